"""Repeated options that take one value are rejected."""

from __future__ import annotations

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(
    "more",
    [
        ("--where", "id > 1", "-w", "id > 2"),
        ("--version", "0", "-v1"),
        ("--format", "delta", "--format=lance"),
        ("--timestamp", "2020-01-01", "--timestamp", "2021-01-01"),
    ],
)
def test_repeated_option_is_rejected(delta: str, more: tuple[str, ...]) -> None:
    done = run("count", delta, *more)
    assert done.code == 2
    assert "more than once" in " ".join(done.err.split())


def test_opposite_flags_are_rejected(delta: str) -> None:
    assert run("repair", delta, "--dry-run", "--run").code == 2
    assert run("count", delta, "--json", "--json").json["count"] == 2
    assert run("head", delta, "-c", "id", "-c", "kind", "-n", "1").code == 0


def test_key_with_two_values_is_rejected(delta: str, lance: str) -> None:
    done = run("query", "SELECT 1 FROM t", "-t", f"t={delta}", "-t", f"t={lance}", "--json")
    assert done.code != 0
    assert "has two values" in done.error["message"]
    assert run("query", "SELECT 1 AS n FROM t LIMIT 1", "-t", f"t={delta}", "-t", f"t={delta}", "--json").json == [
        {"n": 1}
    ]
