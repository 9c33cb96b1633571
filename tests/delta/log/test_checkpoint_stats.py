# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""``stats_parsed``: JSON statistics as structs of the table's types, and back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilake.delta.log.checkpoint_stats import StatsParser, indexed_paths, stats_json
from trilake.delta.protocol.schema import ArrayType, PrimitiveType, StructField, StructType, parse_primitive
from trilake.delta.scan.statistics import StatisticsReader
from trilake.expr.terms.engine import query


def _schema(**types: Any) -> StructType:
    return StructType(tuple(StructField(n, parse_primitive(t) if isinstance(t, str) else t) for n, t in types.items()))


def _parse(schema: StructType, *stats: Any, partition: tuple[str, ...] = (), **conf: str) -> pa.ChunkedArray:
    strings = [s if s is None or isinstance(s, str) else json.dumps(s) for s in stats]
    return StatsParser(schema, partition, {k.replace("__", "."): v for k, v in conf.items()}, query).parse(
        pa.chunked_array([strings], pa.string())
    )


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("byte", 7, 7),
        ("short", -3, -3),
        ("integer", 5, 5),
        ("long", 2**63 - 1, 2**63 - 1),
        ("long", "x", None),
        ("integer", 2**40, None),
        ("float", 0.5, 0.5),
        ("double", 1e300, 1e300),
        ("double", "NaN", None),
        ("double", "Infinity", None),
        ("decimal(10,2)", 12.34, Decimal("12.34")),
        ("decimal(38,2)", 12345.67, Decimal("12345.67")),
        ("decimal(38,2)", 123456789012345678.25, None),
        ("decimal(4,2)", 1234.0, None),
        ("string", "é", "é"),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("date", "no day", None),
        ("timestamp", "2024-01-01T00:00:00.123Z", datetime(2024, 1, 1, 0, 0, 0, 123000, UTC)),
        ("timestamp", "2024-01-01T00:00:00.123+01:00", datetime(2023, 12, 31, 23, 0, 0, 123000, UTC)),
        ("timestamp_ntz", "0001-01-01T00:00:00.001", datetime(1, 1, 1, 0, 0, 0, 1000)),
    ],
)
def test_values_are_parsed_by_type(type_: str, text: Any, value: Any) -> None:
    stats = {"numRecords": 2, "minValues": {"c": text}, "maxValues": {"c": text}, "nullCount": {"c": 1}}
    (result,) = _parse(_schema(c=type_), stats).to_pylist()
    assert result["minValues"] == result["maxValues"] == {"c": value}
    assert result["nullCount"] == {"c": 1}
    assert result["numRecords"] == 2


@pytest.mark.parametrize("type_", ["binary", "boolean", ArrayType(PrimitiveType("long"))])
def test_types_without_bounds_have_null_counts(type_: Any) -> None:
    column = _parse(_schema(c=type_, d="long"), {"nullCount": {"c": 4}})
    assert column.type.field("minValues").type == pa.struct([("d", pa.int64())])
    assert column.to_pylist()[0]["nullCount"] == {"c": 4, "d": None}


def test_nested_columns_are_parsed() -> None:
    inner = StructType((StructField('q"', PrimitiveType("long")), StructField("b", PrimitiveType("binary"))))
    column = _parse(_schema(s=inner), {"minValues": {"s": {'q"': 3}}, "nullCount": {"s": {'q"': 0, "b": 1}}})
    (result,) = column.to_pylist()
    assert result["minValues"] == {"s": {'q"': 3}}
    assert result["maxValues"] is None
    assert result["nullCount"] == {"s": {'q"': 0, "b": 1}}


@pytest.mark.parametrize("text", [None, "", "no json", "[]", '"s"', "7", '{"minValues":4}', '{"numRecords":"many"}'])
def test_invalid_statistics_are_ignored(text: str | None) -> None:
    (result,) = _parse(_schema(c="long"), text).to_pylist()
    assert not result or all(not v or v == {"c": None} for v in result.values())


def test_partition_columns_have_no_statistics() -> None:
    column = _parse(_schema(a="long", P="long"), {}, partition=("P",))
    assert column.type.field("minValues").type.names == ["a"]


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, {"a", "s.x", "s.y", "b.c"}),
        ({"delta.dataSkippingNumIndexedCols": "2"}, {"a", "s.x"}),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"a", "s.x", "s.y", "b.c"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, set()),
        ({"delta.dataSkippingStatsColumns": "S"}, {"s.x", "s.y"}),
        ({"delta.dataSkippingStatsColumns": "a, s.y"}, {"a", "s.y"}),
        ({"delta.dataSkippingStatsColumns": "`s`.`x`", "delta.dataSkippingNumIndexedCols": "0"}, {"s.x"}),
        ({"delta.dataSkippingStatsColumns": "none"}, set()),
    ],
)
def test_indexed_columns(conf: dict[str, str], expected: set[str]) -> None:
    inner = StructType((StructField("x", PrimitiveType("long")), StructField("y", PrimitiveType("long"))))
    schema = _schema(a="long", s=inner, **{"b.c": "long", "p": "string"})
    assert indexed_paths(schema, ("p",), conf) == expected


def test_without_indexed_columns_only_row_counts_remain() -> None:
    column = _parse(_schema(c="long"), {"numRecords": 3}, delta__dataSkippingNumIndexedCols="0")
    assert column.to_pylist() == [{"numRecords": 3, "tightBounds": None}]


def test_names_differing_only_in_case() -> None:
    names = {"delta.columnMapping.physicalName": "C"}
    schema = StructType(
        (StructField("c", PrimitiveType("long")), StructField("d", PrimitiveType("long"), metadata=names))
    )
    (result,) = _parse(schema, {"minValues": {"c": 1, "C": 2}}).to_pylist()
    assert result["minValues"] == {"c": 1}


_TYPES = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=5),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(12,3)": st.decimals(-(10**8), 10**8, places=3),
}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_parsed_statistics_round_trip_through_json(data: st.DataObject) -> None:
    schema = _schema(**{n.partition("(")[0]: n for n in _TYPES})
    parser = StatsParser(schema, (), {}, query)
    bounds = parser.type.field("minValues").type
    values = st.fixed_dictionaries({n.partition("(")[0]: st.none() | s for n, s in _TYPES.items()})
    one = st.fixed_dictionaries({"numRecords": st.integers(0, 2**40), "tightBounds": st.none() | st.booleans()})
    rows = data.draw(st.lists(st.none() | st.tuples(one, st.none() | values), min_size=1, max_size=3))
    made = [None if r is None else {**r[0], "minValues": r[1]} for r in rows]
    parsed = pa.chunked_array([pa.array(made, parser.type)])
    assert bounds.num_fields == len(_TYPES)
    back = parser.parse(stats_json(parsed, query)).to_pylist()
    assert [r and r["numRecords"] for r in back] == [r and r["numRecords"] for r in parsed.to_pylist()]
    for there, here in zip(parsed.to_pylist(), back, strict=True):
        if there is not None:
            assert (here["minValues"] or dict.fromkeys(bounds.names)) == (
                there["minValues"] or dict.fromkeys(bounds.names)
            )


@settings(max_examples=30, deadline=None)
@given(st.integers(-(2**62), 2**62), st.integers(0, 2**40), st.datetimes(timezones=st.just(UTC)))
def test_skipping_is_the_same_with_json_and_struct(low: int, span: int, moment: datetime) -> None:
    schema = _schema(c="long", t="timestamp")
    text = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=None).isoformat(timespec="milliseconds")
    stats = {
        "numRecords": 4,
        "minValues": {"c": low, "t": f"{text}Z"},
        "maxValues": {"c": low + span, "t": f"{text}Z"},
        "nullCount": {"c": 1, "t": 0},
    }
    parsed = stats_json(_parse(schema, stats), query)
    for column in ("c", "t"):
        two = [
            StatisticsReader(pa.table({"stats": s}), schema, (), query).column((column,))
            for s in (pa.chunked_array([[json.dumps(stats)]]), parsed)
        ]
        assert two[0] is not None
        assert two[0] == two[1]
