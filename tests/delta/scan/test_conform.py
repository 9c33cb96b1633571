# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Conversion of file columns to table columns."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delta.tables import metadata, parquet, rows, table_of
from trilake.delta.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    from_arrow,
)
from trilake.delta.scan.conform import Resolver, conform_array
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptFileError, MissingFileError

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def _conform(array: pa.Array, target: DataType, mode: str = "none") -> pa.Array:
    out = conform_array(array, target, Resolver(mode), "c")
    out.validate(full=True)
    return out.cast(target.arrow)


def _struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(n, t) for n, t in fields.items()))


# --- top level -------------------------------------------------------------------------------------------------------


def test_missing_extra_and_reordered_columns() -> None:
    table = table_of(
        pa.table({"a": [1], "b": ["x"]}),
        pa.table({"b": ["y"], "extra": [1.5], "a": [2]}),
        pa.table({"a": [3]}),
        pa.table({"extra": [1]}),
        pa.table({"B": ["z"], "A": [5]}),
    )
    expected = [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
        {"a": 3, "b": None},
        {"a": None, "b": None},
        {"a": 5, "b": "z"},
    ]
    assert rows(table.to_arrow()) == sorted(expected, key=repr)
    assert table.to_arrow().schema.names == ["a", "b"]
    assert table.count() == 5
    assert table.to_arrow(columns=["B"]).schema.names == ["b"]


def test_column_names_with_dots_next_to_structs() -> None:
    data = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [10], "a.c.d": ["x"], "`q`": [True]})
    table = table_of(data)
    assert table.to_arrow().to_pylist() == data.to_pylist()
    for name in data.schema.names:
        assert table.to_arrow(columns=[name]).to_pylist() == data.select([name]).to_pylist()


def test_exact_name_takes_precedence_over_other_case() -> None:
    data = pa.table({"A": [1], "a": [2]})
    table = table_of(parquet(data), schema=pa.schema([("a", pa.int64())]))
    assert table.to_arrow().to_pylist() == [{"a": 2}]


def test_read_without_columns() -> None:
    table = table_of(pa.table({"a": [1, 2, 3]}), pa.table({"a": [4]}))
    assert table.to_arrow(columns=[]).num_rows == 4
    assert table.count("a > 1") == 3
    assert sum(b.num_rows for b in table.to_batches(columns=[])) == 4


# --- nested ----------------------------------------------------------------------------------------------------------

_NESTED = pa.list_(pa.struct([("x", pa.int32()), ("m", pa.map_(pa.string(), pa.struct([("y", pa.int32())])))]))


@st.composite
def _values(draw: st.DrawFn) -> list[Any]:
    item = st.none() | st.fixed_dictionaries(
        {
            "x": st.none() | st.integers(0, 9),
            "m": st.none()
            | st.lists(
                st.tuples(
                    st.sampled_from("ab"), st.none() | st.fixed_dictionaries({"y": st.none() | st.integers(0, 9)})
                ),
                max_size=2,
                unique_by=lambda kv: kv[0],
            ),
        }
    )
    return draw(st.lists(st.none() | st.lists(item, max_size=3), max_size=6))


def _widened(value: Any) -> Any:
    """Return a value of ``_NESTED`` as ``_TARGET`` converts it."""
    if value is None:
        return None
    return [
        i
        and {
            "added": None,
            "m": i["m"] and [(k, v and {"y": v["y"], "z": None}) for k, v in i["m"]],
            "x": i["x"],
        }
        for i in value
    ]


_TARGET = ArrayType(_struct(added=STRING, m=MapType(STRING, _struct(y=LONG, z=STRING)), x=LONG))


@given(_values(), st.data())
def test_nested_values_with_null_parents_and_slices(values: list[Any], data: st.DataObject) -> None:
    array = pa.array(values, _NESTED)
    start = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - start))
    out = _conform(array.slice(start, length), _TARGET)
    assert out.to_pylist() == [_widened(v) for v in values[start : start + length]]


def test_null_struct_and_empty_list_are_preserved() -> None:
    array = pa.array([None, {"x": None, "l": []}, {"x": 1, "l": None}])
    target = _struct(x=LONG, l=ArrayType(LONG), new=STRING)
    assert _conform(array, target).to_pylist() == [
        None,
        {"x": None, "l": [], "new": None},
        {"x": 1, "l": None, "new": None},
    ]


def test_struct_without_any_file_field() -> None:
    array = pa.array([{"gone": 1}, None])
    assert _conform(array, _struct(new=LONG)).to_pylist() == [{"new": None}, None]


@pytest.mark.parametrize("kind", [pa.large_list, pa.list_view, lambda t: pa.list_(t, 2)])
def test_other_arrow_list_layouts(kind: Any) -> None:
    array = pa.array([[1, 2], None, [3, 4]], kind(pa.int32()))
    assert _conform(array, ArrayType(LONG)).to_pylist() == [[1, 2], None, [3, 4]]
    assert _conform(array.slice(1), ArrayType(LONG)).to_pylist() == [None, [3, 4]]
    file = parquet(pa.table({"l": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))}))
    table = table_of(file, schema=pa.schema([("l", pa.list_(pa.int32()))]))
    assert table.to_arrow()["l"].to_pylist() == [[1, 2], None, [3, 4]]


@pytest.mark.parametrize(
    "stored",
    [
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array(["a", None, "b"], pa.string_view()),
    ],
)
def test_other_arrow_string_layouts(stored: pa.Array) -> None:
    assert _conform(stored, STRING).to_pylist() == ["a", None, "b"]
    table = table_of(parquet(pa.table({"s": stored})), schema=pa.schema([("s", pa.string())]))
    assert table.to_arrow()["s"].to_pylist() == ["a", None, "b"]


# --- types -----------------------------------------------------------------------------------------------------------

_D = decimal.Decimal
WIDENING = [
    ("byte", "short", [-128, 127]),
    ("byte", "integer", [-128, 127]),
    ("byte", "long", [-128, 127]),
    ("short", "integer", [-(2**15), 2**15 - 1]),
    ("short", "long", [-(2**15), 2**15 - 1]),
    ("integer", "long", [-(2**31), 2**31 - 1]),
    ("byte", "double", [-128, 127]),
    ("short", "double", [-(2**15)]),
    ("integer", "double", [-(2**31), 2**31 - 1]),
    ("float", "double", [0.5, float("inf")]),
    ("byte", "decimal(10,0)", [-128]),
    ("short", "decimal(10,0)", [-(2**15)]),
    ("integer", "decimal(10,0)", [2**31 - 1]),
    ("integer", "decimal(12,2)", [2**31 - 1]),
    ("long", "decimal(20,0)", [2**63 - 1]),
    ("long", "decimal(38,18)", [2**63 - 1, -(2**63)]),
    ("decimal(5,2)", "decimal(10,2)", [_D("999.99")]),
    ("decimal(5,2)", "decimal(38,35)", [_D("999.99")]),
    ("decimal(18,0)", "decimal(38,20)", [_D("9" * 18)]),
    ("date", "timestamp_ntz", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
]


@pytest.mark.parametrize(("before", "after", "values"), WIDENING)
def test_type_widening(before: str, after: str, values: list[Any]) -> None:
    array = pa.array([*values, None], PrimitiveType(before).arrow)
    target = PrimitiveType(after)
    expected = [None if v is None else _as(v, after) for v in [*values, None]]
    assert _conform(array, target).to_pylist() == expected
    nested = pa.array([[{"v": v}] for v in [*values, None]], pa.list_(pa.struct([("v", array.type)])))
    assert _conform(nested, ArrayType(_struct(v=target))).to_pylist() == [[{"v": v}] for v in expected]
    table = table_of(parquet(pa.table({"c": array})), schema=pa.schema([("c", target.arrow)]))
    assert table.to_arrow()["c"].to_pylist() == expected


def _as(value: Any, type_: str) -> Any:
    if type_ == "timestamp_ntz":
        return dt.datetime.combine(value, dt.time())
    return float(value) if type_ == "double" else _D(value) if type_.startswith("decimal") else value


@pytest.mark.parametrize(
    ("stored", "target"),
    [
        (pa.array([2**40]), PrimitiveType("integer")),
        (pa.array(["x"]), LONG),
        (pa.array(["12"]), LONG),
        (pa.array([1.5]), LONG),
        (pa.array([{"x": 1}]), LONG),
        (pa.array([1]), _struct(x=LONG)),
        (pa.array([1]), ArrayType(LONG)),
        (pa.array([[1]]), MapType(LONG, LONG)),
        (pa.array([1]), PrimitiveType("variant")),
        (pa.array([{"value": b"x"}]), PrimitiveType("variant")),
        (pa.array([_D("1.234")]), PrimitiveType("decimal(3,2)")),
        (pa.array([b"\xff"]), STRING),
        (pa.array([dt.time(1)]), LONG),
    ],
)
def test_file_with_another_type_names_the_column(stored: pa.Array, target: DataType) -> None:
    with pytest.raises(CorruptFileError, match="in the data file") as e:
        _conform(stored, target)
    assert e.value.context["column"] == "c"


# --- time ------------------------------------------------------------------------------------------------------------

_YEARS = [dt.datetime(1, 1, 1), dt.datetime(1582, 10, 4), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
_YEARS += [dt.datetime(2024, 2, 29, 1, 2, 3, 456789), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]


def test_int96_of_all_years() -> None:
    data = parquet(pa.table({"t": pa.array(_YEARS, pa.timestamp("us"))}), use_deprecated_int96_timestamps=True)
    for type_, zone in (("timestamp", dt.UTC), ("timestamp_ntz", None)):
        table = table_of(data, schema=pa.schema([("t", PrimitiveType(type_).arrow)]))
        assert table.to_arrow()["t"].to_pylist() == [y.replace(tzinfo=zone) for y in _YEARS]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_every_unit_and_zone(unit: str, zone: str | None) -> None:
    when = dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC if zone else None)
    array = pa.array([when, None], pa.timestamp(unit, zone))
    assert _conform(array, PrimitiveType("timestamp")).to_pylist() == [when.replace(tzinfo=dt.UTC), None]
    table = table_of(parquet(pa.table({"t": array})), schema=pa.schema([("t", pa.timestamp("us", "UTC"))]))
    assert table.to_arrow()["t"].to_pylist() == [when.replace(tzinfo=dt.UTC), None]


def test_nanoseconds_are_rounded_down() -> None:
    array = pa.array([1_999, -1, -1_000, -1_001], pa.timestamp("ns"))
    micros = _conform(array, PrimitiveType("timestamp_ntz")).cast(pa.int64()).to_pylist()
    assert micros == [1, -1, -1, -2]


def test_years_1_and_9999_as_dates() -> None:
    days = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    assert table_of(pa.table({"d": days})).to_arrow()["d"].to_pylist() == days


# --- void and variant ------------------------------------------------------------------------------------------------


def test_void_columns_are_null() -> None:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("a", "long"), ("v", "void"))]
    schema = json.dumps({"type": "struct", "fields": fields})
    table = table_of(pa.table({"a": [1]}), pa.table({"a": [2], "v": pa.nulls(1)}), schema=schema)
    assert rows(table.to_arrow()) == [{"a": 1, "v": None}, {"a": 2, "v": None}]
    assert table.to_arrow().schema.field("v").type == pa.null()


def test_shredded_variant_is_reassembled() -> None:
    # As Spark 4.3 writes plain Parquet: values in typed_value are not in value.
    rows = [{"metadata": b"\x01\0\0", "value": v, "typed_value": t} for v, t in ((None, 7), (b"\x05x", None))]
    result = _conform(pa.array([*rows, None]), PrimitiveType("variant"))
    assert [v and v["value"] for v in result.to_pylist()] == [b"\x0c\x07", b"\x05x", None]


def test_variant_is_a_binary_struct() -> None:
    schema = '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}'
    stored = pa.table({"v": [{"metadata": b"m", "value": b"v"}, None]})
    table = table_of(stored, pa.table({"other": [1]}), schema=schema)
    assert rows(table.to_arrow()) == sorted(
        [{"v": {"value": b"v", "metadata": b"m"}}, {"v": None}, {"v": None}], key=repr
    )


# --- column mapping --------------------------------------------------------------------------------------------------


def _mapped(fields: list[tuple[str, str, int, str]]) -> str:
    inner = ",".join(
        f'{{"name":"{n}","type":"{t}","nullable":true,"metadata":'
        f'{{"delta.columnMapping.id":{i},"delta.columnMapping.physicalName":"{p}"}}}}'
        for n, p, i, t in fields
    )
    return f'{{"type":"struct","fields":[{inner}]}}'


def _with_ids(table: pa.Table, ids: list[int]) -> bytes:
    fields = [f.with_metadata({"PARQUET:field_id": str(i)}) for f, i in zip(table.schema, ids, strict=True)]
    return parquet(table.cast(pa.schema(fields)))


def test_swapped_names_in_name_mode() -> None:
    schema = _mapped([("a", "b", 1, "long"), ("b", "a", 2, "long"), ("c", "C", 3, "long")])
    table = table_of(
        pa.table({"a": [1], "b": [2], "c": [3]}),
        schema=schema,
        configuration={"delta.columnMapping.mode": "name"},
    )
    assert table.to_arrow().to_pylist() == [{"a": 2, "b": 1, "c": None}]
    assert table.to_arrow(filter="a = 2").num_rows == 1
    assert table.to_arrow(filter="a = 1").num_rows == 0
    assert table.to_arrow(columns=["b"]).to_pylist() == [{"b": 1}]


def test_swapped_names_in_id_mode() -> None:
    schema = _mapped([("a", "x", 1, "long"), ("b", "y", 2, "long"), ("c", "z", 3, "string")])
    data = pa.table({"y": [10, 11], "x": [20, 21], "b": [30, 31]})
    table = table_of(_with_ids(data, [1, 2, 9]), schema=schema, configuration={"delta.columnMapping.mode": "id"})
    assert table.to_arrow().to_pylist() == [{"a": 10, "b": 20, "c": None}, {"a": 11, "b": 21, "c": None}]
    assert table.to_arrow(filter="a = 10 and b = 20").num_rows == 1


def test_id_mode_never_falls_back_to_names() -> None:
    table = table_of(
        pa.table({"x": [1]}),
        schema=_mapped([("a", "x", 1, "long")]),
        configuration={"delta.columnMapping.mode": "id"},
    )
    assert table.to_arrow().to_pylist() == [{"a": None}]


def test_partition_values_and_statistics_use_physical_names() -> None:
    stats = '{"numRecords":1,"minValues":{"x":%d},"maxValues":{"x":%d},"nullCount":{"x":0}}'
    table = table_of(
        pa.table({"x": [1]}),
        pa.table({"x": [2]}),
        schema=_mapped([("a", "x", 1, "long"), ("p", "q", 2, "integer")]),
        configuration={"delta.columnMapping.mode": "name"},
        partition=["p"],
        fields=[
            {"partitionValues": {"q": "7", "p": "8"}, "stats": stats % (1, 1)},
            {"partitionValues": {"q": "9"}, "stats": stats % (2, 2)},
        ],
    )
    assert rows(table.to_arrow()) == [{"a": 1, "p": 7}, {"a": 2, "p": 9}]
    assert table.explain("a = 2").kept == ["f1"]
    assert table.explain("p = 7").kept == ["f0"]


@pytest.mark.parametrize("configuration", [{}, {"delta.columnMapping.mode": "none"}])
def test_copied_mapping_metadata_is_ignored_without_mode(configuration: dict[str, str]) -> None:
    stats = '{"numRecords":1,"minValues":{"a":%d,"x":9},"maxValues":{"a":%d,"x":9},"nullCount":{"a":0}}'
    table = table_of(
        pa.table({"a": [1], "x": [8]}),
        pa.table({"a": [2]}),
        schema=_mapped([("a", "x", 1, "long"), ("p", "q", 2, "integer")]),
        configuration=configuration,
        partition=["p"],
        fields=[
            {"partitionValues": {"p": "7", "q": "8"}, "stats": stats % (1, 1)},
            {"partitionValues": {"p": "9"}, "stats": stats % (2, 2)},
        ],
    )
    assert rows(table.to_arrow()) == [{"a": 1, "p": 7}, {"a": 2, "p": 9}]
    assert table.explain("a = 2").kept == ["f1"]
    assert table.explain("p = 7").kept == ["f0"]


# --- files -----------------------------------------------------------------------------------------------------------


def _broken(content: bytes | None) -> ArrowDeltaTable:
    table = table_of(pa.table({"a": [1, 2]}), pa.table({"a": [3]}))
    if content is None:
        table.log.store.delete(["f1"])
    else:
        table.log.store.put("f1", content)
    return table


def test_missing_file_is_named() -> None:
    with pytest.raises(MissingFileError, match="f1"):
        _broken(None).to_arrow()


_FILE = parquet(pa.table({"a": list(range(100))}))


@pytest.mark.parametrize("content", [b"", b"PAR1", _FILE[:-1], _FILE[: len(_FILE) // 2], b"x" * 100, _FILE[4:]])
def test_damaged_file_is_named(content: bytes) -> None:
    with pytest.raises(CorruptFileError, match="f1"):
        _broken(content).to_arrow()


def test_arrow_and_delta_schemas_round_trip() -> None:
    schema = pa.schema(
        [("a", pa.int64()), ("n", _NESTED), ("d", pa.decimal128(10, 2)), ("t", pa.timestamp("us", "UTC"))]
    )
    assert from_arrow(schema).to_arrow_schema().names == schema.names
    assert from_arrow(from_arrow(schema).to_arrow_schema()) == from_arrow(schema)
    assert metadata()["metaData"]["id"] == "table-id"
