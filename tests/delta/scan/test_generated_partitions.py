"""Derived partition filters are sound: they hold for the generated values of every row that the filter keeps."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.delta.tables import protocol, table_of
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.scan.generated import derived_partition_filter, generated_columns
from trilake.expr import Filter, parse_filter

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
STAMPS = ["timestamp", "timestamp_ntz", "date"]
FORMS: list[tuple[str, list[tuple[str, str]]]] = [
    ("string", [("string", "s")]),
    ("string", [("string", "substring(s, 1, 2)")]),
    ("string", [("string", "substr(s, 0, 1)")]),
    ("string", [("string", "left(s, 3)")]),
    ("string", [("string", "upper(s)")]),
    ("string", [("integer", "length(s)")]),
    ("integer", [("integer", "s % 3")]),
    ("integer", [("integer", "s"), ("integer", "s * 2")]),
    *[
        (kind, columns)
        for kind in STAMPS
        for columns in (
            [("date", "CAST(s AS DATE)")],
            [("date", "to_date(s)")],
            [("integer", "year(s)")],
            [("string", "date_format(s, 'yyyy-MM')")],
            [("string", "date_format(s, 'yyyy-MM-dd-HH')")],
            [("string", "date_format(CAST(s AS DATE), 'yyyyMMdd')")],
            [("timestamp", "date_trunc('DAY', s)")],
            [("timestamp_ntz", "date_trunc('hour', s)")],
            [("date", "trunc(s, 'MM')")],
            [("integer", "year(s)"), ("integer", "month(s)")],
            [("integer", "year(s)"), ("integer", "month(s)"), ("integer", "day(s)")],
            [("integer", "month(s)"), ("integer", "year(s)"), ("integer", "dayofmonth(s)"), ("integer", "hour(s)")],
            [("integer", "month(s)")],
            [("integer", "year(s)"), ("date", "CAST(s AS DATE)")],
        )
    ],
]


def table(kind: str, columns: list[tuple[str, str]]) -> tuple[StructType, list[str]]:
    names = [f"p{i}" for i in range(len(columns))]
    generated = [
        StructField(name, PrimitiveType(t), metadata={"delta.generationExpression": e})
        for name, (t, e) in zip(names, columns, strict=True)
    ]
    return StructType((StructField("s", PrimitiveType(kind)), *generated)), names


def literals(kind: str) -> list[tuple[str, Any]]:
    """Strategy of literals and row values."""
    if kind == "string":
        strings = ["", "a", "ab", "abc", "abcd", "b", "B", "ba", "\u00e9", "\uffff", "\U0001f600", "ab\U0001f600"]
        return [(f"'{t}'", t) for t in strings]
    if kind == "integer":
        return [(str(i), i) for i in (-3, -1, 0, 1, 2, 5, 100)]
    days = [dt.datetime(y, m, d) for y, m, d in ((1969, 12, 31), (2020, 2, 29), (2020, 3, 1), (2021, 1, 1))]  # noqa: DTZ001
    if kind == "date":
        return [(f"DATE '{d.date()}'", d.date()) for d in days]
    times = [d + dt.timedelta(minutes=m) for d in days for m in (0, 1, 59, 60, 23 * 60 + 59)]
    prefix, zone = ("TIMESTAMP_NTZ", None) if kind == "timestamp_ntz" else ("TIMESTAMP", dt.UTC)
    return [(f"{prefix} '{t}'", t.replace(tzinfo=zone)) for t in times]


@st.composite
def conditions(draw: Any, kind: str, depth: int = 2) -> str:
    strings = [t for t, _ in literals(kind)]
    if depth and draw(st.booleans()):
        parts = [draw(conditions(kind, depth - 1)) for _ in range(draw(st.integers(1, 2)))]
        joined = f" {draw(st.sampled_from(['AND', 'OR']))} ".join(f"({p})" for p in parts)
        return f"NOT ({joined})" if draw(st.booleans()) else joined
    op = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>", "IN", "NULL", "PREFIX"]))
    value = draw(st.sampled_from(strings))
    if op == "IN":
        return f"s IN ({value}, {draw(st.sampled_from(strings))})"
    if op == "NULL":
        return f"s IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if op == "PREFIX":
        return (
            f"startswith(s, {value})" if kind == "string" else f"s BETWEEN {value} AND {draw(st.sampled_from(strings))}"
        )
    return f"s {op} {value}"


def check(kind: str, columns: list[tuple[str, str]], text: str, computed: pa.Table) -> Filter | None:
    schema, names = table(kind, columns)
    filter = parse_filter(text, schema.to_arrow_schema())
    derived = derived_partition_filter(filter, schema, names)
    if filter is not None and derived is not None:
        assert derived.columns <= set(names)
        lost = computed.filter(filter.mask(computed))
        assert lost.filter(pa.compute.invert(derived.mask(lost))).num_rows == 0
    return derived


def rows(kind: str, columns: list[tuple[str, str]]) -> pa.Table:
    schema, _ = table(kind, columns)
    values = [None, *(v for _, v in literals(kind))]
    result = pa.table({"s": pa.array(values, PrimitiveType(kind).arrow)})
    for g in generated_columns(schema, NOW):
        assert g.expression is not None
        result = result.append_column(g.name, g.expression.evaluate(result))
    return result


COMPUTED = [(kind, columns, rows(kind, columns)) for kind, columns in FORMS]


@settings(max_examples=100)
@given(st.data())
def test_derived_filters_lose_no_row(data: Any) -> None:
    kind, columns, computed = data.draw(st.sampled_from(COMPUTED))
    check(kind, columns, data.draw(conditions(kind)), computed)


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kolkata", "Pacific/Apia"])
def test_derived_filters_lose_no_row_of_another_time_zone(zone: str) -> None:
    """Columns as a session in ``zone`` computes them, hour by hour over some days."""
    there = zoneinfo.ZoneInfo(zone)
    instants = [
        dt.datetime(2011, 12, 29, tzinfo=dt.UTC) + dt.timedelta(hours=h, minutes=30 * (h % 2)) for h in range(72)
    ]
    local = [t.astimezone(there) for t in instants]
    midnight = [t.replace(hour=0, minute=0).astimezone(dt.UTC) for t in local]
    cases: list[tuple[list[tuple[str, str]], list[list[Any]]]] = [
        ([("date", "CAST(s AS DATE)")], [[t.date() for t in local]]),
        ([("timestamp", "date_trunc('DAY', s)")], [midnight]),
        ([("string", "date_format(s, 'yyyy-MM-dd-HH')")], [[t.strftime("%Y-%m-%d-%H") for t in local]]),
        (
            [("integer", "year(s)"), ("integer", "month(s)"), ("integer", "day(s)"), ("integer", "hour(s)")],
            [[t.year for t in local], [t.month for t in local], [t.day for t in local], [t.hour for t in local]],
        ),
    ]
    for columns, values in cases:
        computed = pa.table(
            {
                "s": pa.array(instants, pa.timestamp("us", "UTC")),
                **{
                    f"p{i}": pa.array(v, PrimitiveType(t).arrow)
                    for i, ((t, _), v) in enumerate(zip(columns, values, strict=True))
                },
            }
        )
        for op in ("=", "<", "<=", ">", ">="):
            for t in instants[3::23]:
                assert check("timestamp", columns, f"s {op} TIMESTAMP '{t.isoformat()}'", computed) is not None


def kept(kind: str, columns: list[tuple[str, str]], text: str, partitions: list[tuple[Any, ...]]) -> list[Any]:
    """Return the partitions that a filter keeps."""
    schema, names = table(kind, columns)
    derived = derived_partition_filter(parse_filter(text, schema.to_arrow_schema()), schema, names)
    assert derived is not None
    data = {n: pa.array([row[i] for row in partitions], schema.field(n).type.arrow) for i, n in enumerate(names)}
    return [row for row, keep in zip(partitions, derived.mask(pa.table(data)).to_pylist(), strict=True) if keep]


def test_date_partitions_are_skipped() -> None:
    days = [(dt.date(2024, 5, d),) for d in range(1, 10)]
    day = [("date", "CAST(s AS DATE)")]
    assert kept("date", [("date", "s")], "s >= '2024-05-08'", days) == days[7:]
    assert kept("timestamp_ntz", day, "s < '2024-05-03 12:00:00'", days) == days[:3]
    assert kept("timestamp_ntz", day, "s = '2024-05-03 12:00:00'", [*days, (None,)]) == [days[2], (None,)]
    # One day more at each end, because the zone of the writer is unknown.
    assert kept("timestamp", day, "s BETWEEN '2024-05-03 12:00:00' AND '2024-05-05'", days) == days[1:5]
    assert kept("timestamp", day, "CAST(s AS DATE) = '2024-05-04'", days) == days[2:5]


def test_calendar_and_string_partitions_are_skipped() -> None:
    months = [(y, m) for y in (2023, 2024) for m in range(1, 13)]
    calendar = [("integer", "year(s)"), ("integer", "month(s)")]
    assert kept("timestamp_ntz", calendar, "s >= '2024-11-05'", months) == [(2024, 11), (2024, 12)]
    assert kept("timestamp_ntz", calendar, "s > '2023-11-30' AND s < '2024-01-15'", months) == months[10:13]
    strings = [(f"{y}-{m:02d}",) for y, m in months] + [("+12024-01",)]
    assert kept("timestamp", [("string", "date_format(s, 'yyyy-MM')")], "s >= '2024-12-10'", strings) == strings[-2:]
    words = [("aa",), ("ab",), ("b",)]
    assert kept("string", [("string", "substring(s, 1, 2)")], "s LIKE 'abc%'", words) == [("ab",)]
    assert kept("string", [("string", "substring(s, 1, 2)")], "s LIKE 'a%'", words) == words[:2]
    assert kept("string", [("string", "upper(s)")], "s IN ('a', 'b')", [("A",), ("B",), ("C",)]) == [("A",), ("B",)]


@pytest.mark.parametrize(
    ("kind", "columns", "text"),
    [
        ("timestamp", [("integer", "month(s)")], "s = '2024-05-01'"),
        ("double", [("string", "CAST(s > 0 AS STRING)")], "s = 0.0D"),
        ("string", [("date", "CAST(CAST(s AS TIMESTAMP) AS DATE)")], "s = '2024-05-01T00:00:00Z'"),
        ("integer", [("integer", "hash(s)")], "s = 1"),
        ("integer", [("integer", "s % 3")], "s > 1"),
        ("string", [("string", "upper(s)")], "s IS NULL"),
        ("date", [("string", "date_format(s, 'MM-yyyy')")], "s > '2024-05-01'"),
        ("date", [("date", "s")], "s <> '2024-05-01' OR length(CAST(s AS STRING)) > 3"),
    ],
)
def test_unsupported_expressions_derive_no_filter(kind: str, columns: list[tuple[str, str]], text: str) -> None:
    schema, names = table(kind, columns)
    assert derived_partition_filter(parse_filter(text, schema.to_arrow_schema()), schema, names) is None


def test_without_filter_or_generated_partition() -> None:
    schema, names = table("date", [("date", "s")])
    assert derived_partition_filter(None, schema, names) is None
    assert derived_partition_filter(parse_filter("s > '2024-01-01'", schema.to_arrow_schema()), schema, []) is None


def test_files_of_other_partitions_are_not_read() -> None:
    schema, names = table("timestamp", [("date", "CAST(s AS DATE)")])
    days = [dt.datetime(2024, 5, d, 12, tzinfo=dt.UTC) for d in range(1, 8)]
    files = [pa.table({"s": pa.array([day], pa.timestamp("us", "UTC"))}) for day in days]
    fields = [{"partitionValues": {"p0": str(day.date())}} for day in days]
    generated = protocol(3, 7, readerFeatures=[], writerFeatures=["generatedColumns"])
    t = table_of(*files, schema=schema.json(), fields=fields, partition=names, protocol_action=generated)
    explained = t.explain("s > '2024-05-06'")
    assert explained.kept == ["f4", "f5", "f6"]
    assert "by a generated partition column" in str(explained)
    assert t.to_arrow(filter="s > '2024-05-06'").num_rows == 2
    assert t.to_arrow(filter="s > '2024-05-06' OR p0 = '2024-05-01'").num_rows == 3
