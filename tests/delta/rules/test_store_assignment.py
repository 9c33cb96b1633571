"""Store assignment: case-insensitive names at any depth, lossless casts, any memory layout."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    from_arrow,
)
from trilake.delta.rules.store_assignment import assign_batch, check_assignable
from trilake.errors import SchemaMismatchError

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def one(type_: DataType) -> StructType:
    return StructType((StructField("c", type_),))


def assigned(array: pa.Array, type_: DataType) -> Any:
    batch = assign_batch(pa.record_batch({"C": array}), one(type_))
    assert batch.schema == one(type_).to_arrow_schema()
    return batch["c"].to_pylist()


def test_columns_match_by_name_and_missing_ones_are_null() -> None:
    target = StructType((StructField("a", LONG), StructField("B", STRING), StructField("x", LONG)))
    rows = assign_batch(pa.record_batch({"b": ["x"], "A": pa.array([1], pa.int8())}), target)
    assert rows.to_pylist() == [{"a": 1, "B": "x", "x": None}]
    assert rows.schema == target.to_arrow_schema()


PAIR = StructType((StructField("p", LONG), StructField("q", STRING)))
PAIRS = st.lists(
    st.none() | st.tuples(st.none() | st.integers(0, 9), st.none() | st.text("ab", max_size=2)), max_size=4
)


@given(PAIRS, st.lists(st.none() | PAIRS, max_size=3), st.integers(0, 2))
def test_nested_structs_match_by_name(pairs: Any, lists: Any, skip: int) -> None:
    given_type = pa.struct([("Q", pa.large_string()), ("P", pa.int16())])

    def source_value(pair: Any) -> Any:
        return None if pair is None else {"Q": pair[1], "P": pair[0]}

    def stored(pair: Any) -> Any:
        return None if pair is None else {"p": pair[0], "q": pair[1]}

    array = pa.array([None if x is None else [source_value(p) for p in x] for x in lists], pa.list_(given_type))
    want = [None if x is None else [stored(p) for p in x] for x in lists][skip:]
    assert assigned(array.slice(min(skip, len(lists))), ArrayType(PAIR)) == want
    keyed = pa.array(
        [None if x is None else [(str(i), source_value(p)) for i, p in enumerate(x)] for x in lists],
        pa.map_(pa.string(), given_type),
    )
    want = [None if x is None else [(str(i), stored(p)) for i, p in enumerate(x)] for x in lists][skip:]
    assert assigned(keyed.slice(min(skip, len(lists))), MapType(STRING, PAIR)) == want
    assert assigned(pa.array([source_value(p) for p in pairs], given_type), PAIR) == [stored(p) for p in pairs]


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 2), pa.list_view(pa.int32())],
    ids=str,
)
def test_every_list_layout_is_accepted(kind: pa.DataType) -> None:
    array = pa.array([[1, 2], None, [3, None], [5, 6]], kind)
    assert assigned(array, ArrayType(LONG)) == [[1, 2], None, [3, None], [5, 6]]
    assert assigned(array.slice(1, 2), ArrayType(LONG)) == [None, [3, None]]


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([1, None], pa.int8()), "long", [1, None]),
        (pa.array([200], pa.int64()), "short", [200]),
        (pa.array([7], pa.int32()), "decimal(10,2)", [Decimal("7.00")]),
        (pa.array([2.0], pa.float64()), "integer", [2]),
        (pa.array(["a", "a"]).dictionary_encode(), "string", ["a", "a"]),
        (pa.array([None, None]), "date", [None, None]),
        (pa.array([dt.date(2020, 1, 2)]), "timestamp_ntz", [dt.datetime(2020, 1, 2)]),  # noqa: DTZ001
        # Nanoseconds that lose nothing.
        (pa.array([1000, -2000], pa.timestamp("ns")), "timestamp_ntz", [1, -2]),
    ],
)
def test_fitting_values_are_cast(array: pa.Array, kind: str, values: list[Any]) -> None:
    result = assigned(array, PrimitiveType(kind))
    zero = dt.datetime(1970, 1, 1)  # noqa: DTZ001
    if pa.types.is_timestamp(array.type):
        result = [(v - zero) // dt.timedelta(microseconds=1) for v in result]
    assert result == values


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([300]), "byte"),
        (pa.array([1.5]), "long"),
        (pa.array([2**53 + 1]), "double"),
        (pa.array([Decimal("1.005")]), "decimal(10,2)"),
        (pa.array([Decimal(100)]), "decimal(2,0)"),
    ],
)
def test_lossy_values_are_rejected(array: pa.Array, kind: str) -> None:
    with pytest.raises(SchemaMismatchError, match="does not fit"):
        assigned(array, PrimitiveType(kind))


def test_check_assignable_schemas() -> None:
    target = StructType(
        (StructField("a", LONG, False), StructField("g", LONG, False), StructField("c", ArrayType(PAIR)))
    )
    rows = from_arrow(pa.schema([("A", pa.int8()), ("C", pa.list_(pa.struct([("Q", pa.string())])))]))
    check_assignable(rows, target, uri="memory", filled={"g"})
    with pytest.raises(SchemaMismatchError, match="column g must not be null and is missing"):
        check_assignable(rows, target, uri="memory")
    wrong = from_arrow(pa.schema([("a", pa.string()), ("c", pa.list_(pa.struct([("z", pa.string())])))]))
    with pytest.raises(SchemaMismatchError, match=r"c\.element\.z is not in the table") as raised:
        check_assignable(wrong, target, uri="memory", filled={"g"})
    assert "column a is string, but the table has long" in raised.value.message


def test_values_of_void_columns_need_schema_evolution() -> None:
    with pytest.raises(SchemaMismatchError, match="c is long, but the table has void") as e:
        check_assignable(one(LONG), one(PrimitiveType("void")), uri="t")
    assert e.value.condition == "DELTA_METADATA_MISMATCH"
    assert e.value.help is not None
    assert e.value.help.startswith("give the void columns a type with option(")
