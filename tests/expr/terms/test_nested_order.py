"""Arrays and structs are ordered as in Spark, with inner nulls first."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trilake
from trilake.errors import FilterError
from trilake.expr.terms.duckdb_sql import Sql, order_key

_NUMBERS = st.none() | st.integers(-2, 2)
_STRUCTS = st.none() | st.fixed_dictionaries({"a": _NUMBERS, "b": st.none() | st.lists(_NUMBERS, max_size=3)})


def _compared(x: Any, y: Any) -> int:
    """Spark's order: null first, arrays and structs by their first different element, then the shorter one."""
    if x is None or y is None:
        return (x is not None) - (y is not None)
    if isinstance(x, dict):
        return _compared([x["a"], x["b"]], [y["a"], y["b"]])
    if isinstance(x, list):
        parts = (c for c in (_compared(p, q) for p, q in zip(x, y, strict=False)) if c)
        return next(parts, (len(x) > len(y)) - (len(x) < len(y)))
    return (x > y) - (x < y)


@given(st.lists(st.none() | st.lists(_STRUCTS, max_size=3), max_size=8))
def test_order_matches_spark(values: list[Any]) -> None:
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]))
    rows = pa.table({"v": pa.array(values, kind), "n": pa.array(range(len(values)), pa.int64())})
    key = order_key(Sql("v", 'STRUCT("a" BIGINT, "b" BIGINT[])[]'))
    with duckdb.connect() as db:
        db.register("rows", rows)
        found = [n for (n,) in db.execute(f"SELECT n FROM rows ORDER BY {key} NULLS FIRST, n").fetchall()]
    assert found == sorted(range(len(values)), key=cmp_to_key(lambda i, j: _compared(values[i], values[j])))


def test_filters_compare_arrays_and_structs() -> None:
    pair = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    rows = {
        "n": pa.array([1, 2, 3, 4]),
        "l": pa.array([[1, None], [1, 2], [], None], pa.list_(pa.int64())),
        "m": pa.array([[1, 2], [1, None], [None], [1]], pa.list_(pa.int64())),
        "s": pa.array([{"a": 1, "b": None}, {"a": 1, "b": 0}, {"a": None, "b": 1}, None], pair),
        "t": pa.array([{"a": 1, "b": 0}, {"a": 1, "b": None}, {"a": 0, "b": 1}, {"a": 1, "b": 1}], pair),
    }
    trilake.write(pa.table(rows), "memory://nested-order")
    table = trilake.open("memory://nested-order")
    found = {
        c: table.to_arrow(["n"], filter=c)["n"].to_pylist() for c in ("l < m", "l >= m", "s < t", "s > t", "l = m")
    }
    assert found == {"l < m": [1, 3], "l >= m": [2], "s < t": [1, 3], "s > t": [2], "l = m": []}


@pytest.mark.parametrize(
    "kind", ["MAP(VARCHAR, INTEGER)", 'STRUCT("a" MAP(VARCHAR, INTEGER))', "MAP(INTEGER, INTEGER)[]"]
)
def test_maps_have_no_order(kind: str) -> None:
    with pytest.raises(FilterError, match="cannot be ordered"):
        order_key(Sql("v", kind))
