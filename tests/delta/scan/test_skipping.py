# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Data skipping never skips a file with a matching row, even with wrong or missing statistics."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import rows, table_of
from trilake.delta.protocol.schema import PrimitiveType
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import FilterError, TrilakeError
from trilake.storage.memory import MemoryStore

_D = decimal.Decimal


def _stats(low: Any = None, high: Any = None, nulls: int | None = 0, count: int = 1, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"numRecords": count, "minValues": {}, "maxValues": {}, "nullCount": {}, **more}
    for kind, value in (("minValues", low), ("maxValues", high), ("nullCount", nulls)):
        if value is not None:
            result[kind]["a"] = value
    return {"stats": json.dumps(result)}


def test_written_files_record_columns_without_nan(tmp_path: Path) -> None:
    path, interval = tmp_path / "t", {"delta.checkpointInterval": "3"}
    for x in ([1.0, 2.0], [1.0, float("nan")]):
        trilake.write(pa.table({"x": x}), path, mode="append", properties=interval)
    deltalake.write_deltalake(str(path), pa.table({"x": [1.0, 2.0]}), mode="append")
    matching, unknown = "may contain matching rows", "may have a NaN, which bounds do not include"
    result = trilake.open(path).explain("x > 5").files
    assert sorted(result.filter(result["kept"])["reason"].to_pylist()) == [matching, unknown]
    trilake.write(pa.table({"x": [1.0, 9.0]}), path, mode="append")
    assert list((path / "_delta_log").glob("*3.checkpoint*.parquet"))
    table = trilake.open(path)
    result = table.explain("x > 5").files
    assert sorted(result.filter(result["kept"])["reason"].to_pylist()) == [matching, matching, unknown]
    assert (table.count("x > 5"), table.count("x < 1")) == (2, 0)
    assert sorted(deltalake.DeltaTable(str(path)).to_pyarrow_table()["x"].to_pylist())[:2] == [1.0, 1.0]


def _one(value: Any, type_: str, **stats: Any) -> ArrowDeltaTable:
    """Return a table of one file with one row."""
    array = pa.array([value], PrimitiveType(type_).arrow)
    return table_of(pa.table({"a": array}), fields=[_stats(**stats)])


_LONG_TEXT = "x" * 40
_NOW = dt.datetime(2024, 1, 1, 0, 0, 0, 123999)


@pytest.mark.parametrize(
    ("value", "type_", "stats", "filter"),
    [
        ("abcdef", "string", {"low": "abc", "high": "abd"}, "a = 'abcdef'"),
        (_LONG_TEXT, "string", {"low": "x" * 32, "high": "x" * 32 + "\U0010ffff"}, f"a = '{_LONG_TEXT}'"),
        ("é", "string", {"low": "é", "high": "é"}, "a > 'z'"),
        ("\U0010ffff", "string", {"low": "\U0010ffff", "high": "\U0010ffff"}, "a > '\ufffd'"),
        (
            _NOW,
            "timestamp_ntz",
            {"low": "2024-01-01T00:00:00.123", "high": "2024-01-01T00:00:00.123"},
            "a = timestamp_ntz'2024-01-01 00:00:00.123999'",
        ),
        (
            _NOW.replace(tzinfo=dt.UTC),
            "timestamp",
            {"low": "2024-01-01T00:00:00.123Z", "high": "2024-01-01T00:00:00.123Z"},
            "a > timestamp'2024-01-01 00:00:00.1239 UTC'",
        ),
        (
            _NOW.replace(tzinfo=dt.UTC),
            "timestamp",
            {"low": "2023-12-31T16:00:00.123-08:00", "high": "2023-12-31T16:00:00.123-08:00"},
            "a >= timestamp'2024-01-01 00:00:00.123999 UTC'",
        ),
        (float("nan"), "double", {"low": 1.0, "high": 2.0}, "a > 3"),
        (float("nan"), "double", {"low": 1.0, "high": 2.0}, "isnan(a)"),
        (float("nan"), "double", {}, "a = double('NaN')"),
        (-0.0, "double", {"low": 0.0, "high": 0.0}, "a = -0.0"),
        (0.0, "double", {"low": -0.0, "high": -0.0}, "a >= 0"),
        (float("inf"), "double", {"low": "Infinity", "high": "Infinity"}, "a > 1e308"),
        (0.1, "float", {"low": 0.1, "high": 0.1}, "a > 0.05"),
        (1.4e-45, "float", {"low": 1.4e-45, "high": 1.4e-45}, "a > 0"),
        (2**63 - 1, "long", {"low": 2**63 - 1, "high": 2**63 - 1}, f"a = {2**63 - 1}"),
        (-(2**63), "long", {"low": -(2**63), "high": -(2**63)}, "a < -9223372036854775807"),
        (2**53 + 1, "long", {"low": 2**53 + 1, "high": 2**53 + 1}, f"a > {2**53}"),
        (
            _D("12345678901234567890.123456789012345678"),
            "decimal(38,18)",
            {"low": 12345678901234567000, "high": 12345678901234567000},
            "a > 12345678901234567890.1",
        ),
        (
            _D("-12345678901234567890.123456789012345678"),
            "decimal(38,18)",
            {"low": -1.2345678901234567e19, "high": -1.2345678901234567e19},
            "a < -12345678901234567890.1",
        ),
        (_D("9" * 38), "decimal(38,0)", {"low": 1e38, "high": 1e38}, f"a = {'9' * 38}"),
        (_D("0.1"), "decimal(3,1)", {"low": 0.1, "high": 0.1}, "a = 0.1"),
        (dt.date(1, 1, 1), "date", {"low": "0001-01-01", "high": "0001-01-01"}, "a = date'0001-01-01'"),
        (dt.date(9999, 12, 31), "date", {"low": "9999-12-31", "high": "9999-12-31"}, "a > date'9999-12-30'"),
        (None, "long", {"nulls": 1}, "a is null"),
        (None, "long", {"low": 1, "high": 2, "nulls": 1}, "a is null"),
        (None, "long", {"nulls": 1}, "a <=> null"),
        (None, "long", {"nulls": None}, "a is null"),
        (5, "long", {"nulls": None}, "a is not null"),
        (5, "long", {"nulls": 1, "count": 2, "tightBounds": False, "low": 1, "high": 9}, "a is not null"),
        (None, "long", {"nulls": 1, "count": 2, "tightBounds": False, "low": 1, "high": 9}, "a is null"),
        (5, "long", {"low": 1, "high": 9, "tightBounds": False}, "a = 5"),
        (5, "long", {"low": 1}, "a = 5"),
        (5, "long", {"high": 9}, "a = 5"),
        (5, "long", {}, "a = 5"),
        (5, "long", {"low": "1", "high": "9"}, "a = 5"),
        (5, "long", {"low": "garbage", "high": {"x": 1}}, "a = 5"),
        (5, "long", {"low": [1], "high": None, "nulls": 0}, "a = 5"),
        (True, "boolean", {"low": True, "high": True}, "a = true"),
        (True, "boolean", {}, "a"),
        (b"\xff", "binary", {}, "a = X'FF'"),
        (5, "integer", {"low": 1, "high": 2**40}, "a = 5"),
        (-5, "short", {"low": -(2**40), "high": 2**40}, "a = -5"),
    ],
)
def test_matching_row_is_found(value: Any, type_: str, stats: dict[str, Any], filter: str) -> None:
    table = _one(value, type_, **stats)
    assert table.explain(filter).kept == ["f0"]
    assert table.to_arrow(filter=filter).num_rows == 1
    assert table.count(filter) == 1


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "7", "null", "{", '{"minValues":5}', '{"minValues":{"a":{"b":1}}}', '{"numRecords":"x"}', "\0"],
)
def test_invalid_statistics_count_as_unknown(text: str) -> None:
    table = table_of(pa.table({"a": [5]}), fields=[{"stats": text}])
    assert table.to_arrow(filter="a = 5").num_rows == 1
    assert table.count() == 1
    assert table.files().num_rows == 1


@pytest.mark.parametrize(
    ("type_", "low", "high", "filter"),
    [
        ("long", 1, 9, "a = 10"),
        ("long", 1, 9, "a < 1"),
        ("long", 1, 9, "a in (0, 10, 11)"),
        ("long", 1, 9, "a is null"),
        ("long", 2**63 - 2, 2**63 - 1, "a = 0"),
        ("double", 1.5, 2.5, "a = 3"),
        ("string", "b", "c", "a = 'd'"),
        ("string", "b", "c", "a like 'x%'"),
        ("date", "2024-01-01", "2024-01-31", "a = date'2024-02-01'"),
        ("timestamp", "2024-01-01T00:00:00.000Z", "2024-01-01T00:00:01.000Z", "a > timestamp'2024-01-01 00:00:02 UTC'"),
        ("decimal(10,2)", 1.25, 9.75, "a > 9.75"),
    ],
)
def test_files_without_matches_are_skipped(type_: str, low: Any, high: Any, filter: str) -> None:
    table = _one(None, type_, low=low, high=high)
    explained = table.explain(filter)
    assert explained.skipped == ["f0"]
    assert "skip" in str(explained)
    assert table.to_arrow(filter=filter).num_rows == 0


def test_nested_columns_are_skipped_by_path() -> None:
    data = [pa.table({"s": [{"x": i, "t": [i]}], "a b": [i]}) for i in (1, 2)]
    fields = [
        {"stats": json.dumps({"numRecords": 1, "minValues": b, "maxValues": b, "nullCount": {"s": {"x": 0}, "a b": 0}})}
        for b in ({"s": {"x": i}, "a b": i} for i in (1, 2))
    ]
    table = table_of(*data, fields=fields)
    assert table.explain("s.x = 2").kept == ["f1"]
    assert table.explain("`a b` = 1").kept == ["f0"]
    assert table.to_arrow(filter="s.x = 2").num_rows == 1


def test_skipping_with_special_column_names() -> None:
    for name in ["it's", 'a"b', "a.b", "ü", "$x", "a[0]", "i", "j", "s", "min Values"]:
        stats = {"numRecords": 1, "minValues": {name: 1}, "maxValues": {name: 1}, "nullCount": {name: 0}}
        table = table_of(pa.table({name: [1]}), fields=[{"stats": json.dumps(stats)}])
        assert table.to_arrow(filter=f"`{name}` = 1").num_rows == 1, name
        assert table.explain(f"`{name}` = 2").kept == [], name


def test_invalid_filter_is_rejected() -> None:
    table = _one(5, "long")
    for filter in ("b = 1", "a =", "a = 'x' and", "sum(a) > 1"):
        with pytest.raises(FilterError):
            table.to_arrow(filter=filter)


def test_explain_without_filter() -> None:
    explained = _one(5, "long").explain()
    assert explained.kept == ["f0"]
    assert "no filter" in str(explained)


# --- random data, random filters -------------------------------------------------------------------------------------

_TEXT = st.sampled_from(["", "a", "b", "ab", "b" * 31 + "c", "b" * 40, "b" * 32, "ü", "\U0010ffff" * 33, "z"])
_VALUES: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "long": (st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1, 2**53]), lambda v: f"{v}"),
    "byte": (st.integers(-128, 127), lambda v: f"{v}"),
    "double": (
        st.integers(-2, 2).map(float) | st.sampled_from([0.1, -0.0, float("nan"), float("inf"), -float("inf"), 1e300]),
        lambda v: f"CAST('{v}' AS DOUBLE)",
    ),
    "float": (
        st.floats(-2, 2, width=32) | st.sampled_from([float("nan"), float("inf")]),
        lambda v: f"CAST('{v}' AS FLOAT)",
    ),
    "string": (_TEXT, lambda v: f"'{v}'"),
    "boolean": (st.booleans(), lambda v: str(v).lower()),
    "date": (
        st.sampled_from([dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 1, 2), dt.date(9999, 12, 31)]),
        lambda v: f"DATE '{v:%Y-%m-%d}'" if v.year > 999 else f"DATE '{v.year:04d}-{v:%m-%d}'",
    ),
    "timestamp_ntz": (
        st.integers(-3, 3).map(lambda n: dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=n * 500)),
        lambda v: f"CAST('{v}' AS TIMESTAMP_NTZ)",
    ),
    "decimal": (
        st.decimals(-3, 3, places=3) | st.just(_D("12345678901234567.123")),
        lambda v: f"CAST('{v}' AS DECIMAL(20,3))",
    ),
}
_OPERATORS = ["=", "<", "<=", ">", ">=", "<>", "<=>"]


@st.composite
def _filters(draw: st.DrawFn, names: list[str], depth: int = 2) -> str:
    kind = draw(st.integers(0, 5))
    if depth and kind in (0, 1):
        both = [draw(_filters(names, depth - 1)) for _ in range(2)]
        return f"({both[0]} {'AND' if kind else 'OR'} {both[1]})"
    if depth and kind == 2:
        return f"(NOT {draw(_filters(names, depth - 1))})"
    name = draw(st.sampled_from(names))
    values, literal = _VALUES[name]
    column = f"`{name}`" if draw(st.booleans()) else f"`nest`.`{name}`"
    if kind == 3:
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == 4:
        return f"{column} IN ({', '.join(literal(v) for v in draw(st.lists(values, min_size=1, max_size=3)))})"
    return f"{column} {draw(st.sampled_from(_OPERATORS))} {literal(draw(values))}"


@st.composite
def _tables(draw: st.DrawFn, names: list[str]) -> pa.Table:
    """Strategy of a few rows of these columns, at the top level and inside a struct."""
    size = draw(st.integers(1, 3))

    def column(name: str) -> pa.Array:
        values = draw(st.lists(st.none() | _VALUES[name][0], min_size=size, max_size=size))
        return pa.array(values, PrimitiveType("decimal(20,3)" if name == "decimal" else name).arrow)

    mask = pa.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    nest = pa.StructArray.from_arrays([column(n) for n in names], names=names, mask=mask)
    return pa.table({"id": pa.array(range(size)), **{n: column(n) for n in names}, "nest": nest})


_NAMES = st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=3, unique=True)


# No shrinking: it would run the engines thousands of times.
@settings(max_examples=15, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_filtered_read_matches_filtering_a_full_read(data: st.DataObject) -> None:
    uri, names = MemoryStore().uri, data.draw(_NAMES)
    parts = [data.draw(_tables(names)) for _ in range(2)]
    by = data.draw(st.sampled_from([None, *names]))
    for part in parts:
        trilake.write(part, uri, mode="append", partition_by=[by] if by and part is parts[0] else None)
    table = trilake.open(uri)
    everything = table.to_arrow()
    assert everything.num_rows == sum(p.num_rows for p in parts)
    for _ in range(3):
        filter = data.draw(_filters(names))
        result = table.to_arrow(filter=filter)
        expected = _unskippable(everything).to_arrow(filter=filter)
        # As strings, since NaN is equal to nothing.
        assert repr(rows(result)) == repr(rows(expected)), filter
        assert table.count(filter) == expected.num_rows


def _unskippable(data: pa.Table) -> ArrowDeltaTable:
    """Return the same rows in one file without statistics or row groups to skip."""
    return table_of(data)


_PLAIN = {"long": ["=", "<", ">="], "string": ["=", "<", ">="], "byte": ["<>", ">"], "decimal": ["<", "="]}


@settings(max_examples=25)
@given(st.data())
def test_rows_match_duckdb(data: st.DataObject) -> None:
    """Compare with another engine where the dialects agree."""
    name, uri = data.draw(st.sampled_from(sorted(_PLAIN))), MemoryStore().uri
    part = data.draw(_tables([name]))
    trilake.write(part, uri)
    values, literal = _VALUES[name]
    condition = f"{data.draw(st.sampled_from(_PLAIN[name]))} {literal(data.draw(values))}"
    connection = duckdb.connect()
    connection.register("t", part.drop_columns(["nest"]))
    expected = connection.sql(f'SELECT id FROM t WHERE "{name}" {condition}').to_arrow_table()
    result = trilake.open(uri).to_arrow(columns=["id"], filter=f"`{name}` {condition}")
    assert sorted(result["id"].to_pylist()) == sorted(expected["id"].to_pylist())


def test_filter_errors_are_trilake_errors() -> None:
    with pytest.raises(TrilakeError):
        _one(5, "long").to_arrow(filter="a / 0 > ")
