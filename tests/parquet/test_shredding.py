"""Shredded variants round-trip, and DuckDB reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parquet.test_variants import TREES, decoded, encoded
from trilake.parquet.shredding import Shape, shredded
from trilake.parquet.variants import unshredded

_NAMES = ["zz", "b", "unused", "é", "a", "c", "d"]
_TYPE = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])


def variants(values: list[Any]) -> pa.Array:
    data = [n.encode() for n in _NAMES]
    ends = bytes(sum(map(len, data[:i])) for i in range(len(data) + 1))
    metadata = bytes([1, len(data)]) + ends + b"".join(data)
    return pa.array([None if v is ... else {"value": encoded(v, _NAMES), "metadata": metadata} for v in values], _TYPE)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(TREES | st.just(...), max_size=8),
    st.sampled_from([[1], ["x"], [True], [{"a": 1, "zz": {"b": "x"}}], [{"b": {"a": {"é": None, "a": 2}}}]]),
)
def test_shredded_variants_round_trip(values: list[Any], sample: list[Any]) -> None:
    for shape in (Shape.of(variants(values), "v"), Shape.of(variants(sample), "v")):
        if shape is not None:
            parts = shredded(variants(values), shape, "v")
            parts.validate(full=True)
            assert decoded(unshredded(parts, "v")) == values


def _typed(shape: Shape | None) -> Any:
    """The types of a shape, keyed by name."""
    if shape is None:
        return None
    typed = shape.type.field("typed_value").type
    return {n: _typed(s) for n, s in shape.fields} if shape.fields else str(typed)


@pytest.mark.parametrize(
    ("values", "typed"),
    [
        ([], None),
        ([...], None),
        ([None, None], None),
        ([1, 2**40, ...], "int64"),
        (["x", "y" * 70], "string"),
        ([1, "x"], None),
        ([True, False], "bool"),
        ([[1], [2]], None),
        ([{}, {}], None),
        ([{"a": 1, "b": [1]}, {"a": 2}], {"a": "int64"}),
        ([{"a": 1}, {"a": "x"}], None),
        ([{"a": i, "b": {"c": "x", "d": None}} for i in range(9)] + [5], {"a": "int64", "b": {"c": "string"}}),
        ([{"a": 1} for _ in range(19)] + [{"a": 1, "b": 1}], {"a": "int64"}),
    ],
)
def test_common_fields_are_shredded(values: list[Any], typed: Any) -> None:
    assert _typed(Shape.of(variants(values), "v")) == typed


@pytest.mark.parametrize("value", [b"\x18\x05", b"\x0c", b"\x40\xff\0\0\0x", b"\x09x", b"\x0c\x01\x01", b""])
def test_values_with_wrong_size_are_kept(value: bytes) -> None:
    rows = pa.array([{"value": value, "metadata": b"\x01\0\0"}], _TYPE)
    for sample in ([1], ["x"]):
        shape = Shape.of(variants(sample), "v")
        assert shape is not None
        assert shredded(rows, shape, "v").to_pylist()[0]["value"] == value


def test_all_types_round_trip_through_duckdb(tmp_path: Path) -> None:
    row = "n, 'x' || n, n % 2 = 0, n + 0.5::DOUBLE, DATE '2020-01-01' + n::INT, TIMESTAMP '1969-01-01 01:02:03.5'"
    query = f"SELECT ROW({row}, TIMESTAMPTZ '2020-01-01 00:00:00Z')::STRUCT(i INT, s VARCHAR, b BOOLEAN, f DOUBLE,"
    query += " d DATE, t TIMESTAMP, z TIMESTAMPTZ)::VARIANT AS v FROM range(40) t(n)"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{tmp_path}/a.parquet' (SHREDDING {{v: 'STRUCT(q INTEGER)'}})")
        whole = unshredded(pq.read_table(tmp_path / "a.parquet")["v"].combine_chunks(), "v")
        shape = Shape.of(whole, "v")
        assert _typed(shape) == {
            "b": "bool",
            "d": "date32[day]",
            "f": "double",
            "i": "int64",
            "s": "string",
            "t": "timestamp[us]",
            "z": "timestamp[us, tz=UTC]",
        }
        assert shape is not None
        parts = shredded(whole, shape, "v")
        assert parts.field("value").null_count == 40
        assert decoded(unshredded(parts, "v")) == decoded(whole)
        assert json.dumps(parts[3].as_py()["typed_value"]["s"]) == '{"value": null, "typed_value": "x3"}'
