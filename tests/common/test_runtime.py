"""Attempt names of a runtime."""

from __future__ import annotations

from itertools import count

from tests.runtimes import runtime_in_ms


def test_attempt_names_differ_if_ids_differ() -> None:
    numbers = count(1)
    runtime = runtime_in_ms(lambda: 0, lambda: f"{next(numbers):08d}-0000-4000-8000-000000000000")
    assert [runtime.new_attempt() for _ in range(3)] == ["80004001", "80004002", "80004003"]
    assert runtime.new_hex_id() == "00000004000040008000000000000000"
