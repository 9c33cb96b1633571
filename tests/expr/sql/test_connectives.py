"""``AND`` and ``OR`` of many conditions: three-valued, in Spark's order, in time and memory of their number."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trilake
from trilake.errors import ConstraintViolatedError
from trilake.expr import parse_expression

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.bool_())])
_ALL = [None, True, False]
ROWS = pa.RecordBatch.from_pydict({"a": [1, 7, None] * 3, "b": [x for x in _ALL for _ in range(3)]}, schema=SCHEMA)


def values(text: str) -> list[bool | None]:
    return parse_expression(text, SCHEMA).evaluate(ROWS).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("left", "count"), [*(("a", n) for n in (2, 3, 32, 33, 500)), *(("abs(a)", n) for n in (2, 3, 32, 33, 70))]
)
def test_chain_of_many_conditions(left: str, count: int) -> None:
    """Each was duplicated for every later one: twelve were rejected, thirty exhausted memory."""
    numbers = range(7, 7 + count)
    assert values(" AND ".join(f"{left} <> {n}" for n in numbers)) == [True, False, None] * 3
    assert values(" OR ".join(f"{left} = {n}" for n in numbers)) == [False, True, None] * 3


@pytest.mark.parametrize("sure", [True, False])
def test_nulls_do_not_decide(sure: bool) -> None:
    """By SQL's truth table, for each position in a chain of five that can be null, true or false."""
    one = "b" if sure else "CAST(CAST(b AS INT) AS BOOLEAN)"
    kept = "(a IS NOT NULL)" if sure else "(abs(a) IS NOT NULL)"  # true, true, false
    nulls = [x for x in _ALL for _ in range(3)]
    for place in range(5):
        parts = [kept] * 4
        parts.insert(place, one)
        expected = [x if i % 3 < 2 else (False if x is None or x else x) for i, x in enumerate(nulls)]
        assert values(" AND ".join(parts)) == expected
        expected = [True if i % 3 < 2 else x for i, x in enumerate(nulls)]
        assert values(" OR ".join(parts)) == expected


def test_later_conditions_are_evaluated_only_if_undecided() -> None:
    assert values("a IS NOT NULL AND a <> 1 AND 6 DIV (a - 1) = 1 AND a > 2") == [False, True, False] * 3
    assert values("a IS NULL OR a = 1 OR 6 DIV (a - 1) = 1 OR a < 2") == [True, True, True] * 3
    assert values("a <> 1 AND b AND 6 DIV (a - 1) = 1")[3:6] == [False, True, None]


def test_constraint_of_many_conditions(tmp_path: object) -> None:
    path = f"{tmp_path}/t"
    trilake.write({"a": [1]}, path)
    trilake.alter(path).add_constraint("c", " AND ".join(f"abs(a) <> {n}" for n in range(100, 140)))
    trilake.write({"a": [2]}, path, mode="append")
    with pytest.raises(ConstraintViolatedError):
        trilake.write({"a": [-139]}, path, mode="append")
