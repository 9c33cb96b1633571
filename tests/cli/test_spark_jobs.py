"""Commands that run in Spark tasks: same output and same tables as without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import trilake
from tests.cli.running import run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def _session(spark: object) -> Iterator[None]:
    """The commands find the test session; their changes to it are undone."""
    yield
    trilake.uninstall(spark)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for n in range(3):
        trilake.write({"id": [n], "kind": ["ab"[n % 2]]}, tmp_path / "t", mode="append")
    return tmp_path / "t"


def test_optimize_and_vacuum_on_spark(table: Path) -> None:
    done = run("optimize", table, "--spark", "--json")
    assert done.code == 0, done.err
    assert len(trilake.open(table).files()) == 1
    seen = run("vacuum", table, "--retention-hours", "0", "--no-retention-check", "--spark", "--json")
    assert seen.code == 0, seen.err
    assert len(list(table.glob("*.parquet"))) == 4
    gone = run("vacuum", table, "--retention-hours", "0", "--no-retention-check", "--spark", "--delete", "--yes")
    assert gone.code == 0, gone.err
    assert len(list(table.glob("*.parquet"))) == 1
    assert trilake.open(table).count() == 3


def test_query_on_spark(table: Path) -> None:
    text = f"SELECT kind, count(*) AS n FROM delta.`{table}` GROUP BY kind ORDER BY kind"
    done = run("query", text, "--spark", "--json")
    assert done.code == 0, done.err
    assert done.json == [{"kind": "a", "n": 2}, {"kind": "b", "n": 1}]
    wrong = run("query", f"SELECT nosuch FROM delta.`{table}`", "--spark", "--json")
    assert wrong.code != 0
    assert "nosuch" in wrong.error["message"]
