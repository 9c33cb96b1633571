# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Partition values: strings of the log and values of every type."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import metadata, rows, table_of
from trilake.delta.files.file_plan import encode_path
from trilake.delta.protocol.partitions import format_values, hive_directory, parse_values, typed_partitions
from trilake.delta.protocol.schema import PrimitiveType, StructField, parse_schema
from trilake.errors import CorruptLogError, SchemaMismatchError
from trilake.storage.memory import MemoryStore

_TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    "long": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "byte": st.integers(-128, 127),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
    "binary": st.binary(min_size=1, max_size=6),
    "date": st.dates(),
    "timestamp": _TIMES.map(lambda t: t.replace(tzinfo=dt.UTC)),
    "timestamp_ntz": _TIMES,
    "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10),
    "decimal(5,0)": st.decimals(-99999, 99999, places=0),
    "decimal(38,38)": st.decimals(-0.5, 0.5, places=38),
}


def _parse(strings: list[str | None], type_: str) -> list[Any]:
    field = StructField("p", PrimitiveType(type_))
    values: list[Any] = parse_values(pa.chunked_array([strings], pa.string()), field).to_pylist()
    return values


def _same(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and a != a and b != b)


@pytest.mark.parametrize("type_", VALUES)
@settings(max_examples=30)
@given(data=st.data())
def test_every_type_round_trips(type_: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type_], max_size=6))
    primitive = PrimitiveType(type_)
    array = pa.array(values, primitive.arrow)
    strings = format_values(array, primitive)
    back = _parse(strings, type_)
    assert all(_same(a, b) for a, b in zip(back, array.to_pylist(), strict=True)), (values, strings, back)


@pytest.mark.parametrize("type_", VALUES)
def test_empty_string_is_null_but_the_word_null_is_not(type_: str) -> None:
    assert _parse(["", None], type_) == [None, None]
    if type_ == "string":
        assert _parse(["null", "NULL", "__HIVE_DEFAULT_PARTITION__", " "], type_) == [
            "null",
            "NULL",
            "__HIVE_DEFAULT_PARTITION__",
            " ",
        ]
    elif type_ != "binary":
        with pytest.raises(CorruptLogError, match="partition value") as e:
            _parse(["no value"], type_)
        assert e.value.context["column"] == "p"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01 00:00:00", "1970-01-01T00:00:00"),
        ("1970-01-01T00:00:00", "1970-01-01T00:00:00"),
        ("2021-06-01 12:30:00.5", "2021-06-01T12:30:00.500000"),
        ("2021-06-01 12:30:00.123456", "2021-06-01T12:30:00.123456"),
        ("2021-06-01T12:30:00Z", "2021-06-01T12:30:00"),
        ("2021-06-01T12:30:00.123456Z", "2021-06-01T12:30:00.123456"),
        ("2021-06-01T12:30:00.000000+02:00", "2021-06-01T10:30:00"),
        ("2021-06-01 12:30:00-0530", "2021-06-01T18:00:00"),
        ("0001-01-01 00:00:00", "0001-01-01T00:00:00"),
        ("9999-12-31 23:59:59.999999", "9999-12-31T23:59:59.999999"),
        ("2021-06-01", "2021-06-01T00:00:00"),
        ("2021-6-1 1:2:3", "2021-06-01T01:02:03"),
        ("2021-06-01T12:30:00.123456789Z", "2021-06-01T12:30:00.123456"),
        ("2021-06-01 12:30:00 +02:00", "2021-06-01T10:30:00"),
        ("2021-06-01 12:30:00 UTC", "2021-06-01T12:30:00"),
        ("2021-06-01 12:30:00 Europe/Berlin", "2021-06-01T10:30:00"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Tokyo"])
def test_timestamp_formats_in_any_session_time_zone(
    text: str, expected: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        instant = dt.datetime.fromisoformat(expected).replace(tzinfo=dt.UTC)
        assert _parse([text, "1999-01-01 00:00:00"], "timestamp")[0] == instant
        if "+" not in text and "-05" not in text and "Berlin" not in text:
            assert _parse([text], "timestamp_ntz") == [dt.datetime.fromisoformat(expected)]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("zone", ["+02:00", "-0530", " +02:00", " Europe/Berlin", "Z"])
def test_timestamp_ntz_ignores_the_zone(zone: str) -> None:
    assert _parse([f"2021-06-01 12:30:00{zone}"], "timestamp_ntz") == [dt.datetime(2021, 6, 1, 12, 30)]


@pytest.mark.parametrize(
    ("strings", "type_", "expected"),
    [
        (["2020-1-5", "2020-01-06 10:00:00"], "date", [dt.date(2020, 1, 5), dt.date(2020, 1, 6)]),
        (["true", "False", "TRUE"], "boolean", [True, False, True]),
        (["Infinity", "-Infinity", "NaN", "1e5", "-0.0"], "double", [float("inf"), float("-inf"), None, 1e5, 0.0]),
        (["+5", "007"], "integer", [5, 7]),
        (["1", "1.0", "1.00", "1E+1"], "decimal(10,2)", [decimal.Decimal(x) for x in ("1", "1", "1", "10")]),
        (["\\u0001\\u0002\\u00ff", "ab"], "binary", [b"\1\2\xff", b"ab"]),
        (["0001-01-01", "9999-12-31"], "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    ],
)
def test_spellings_of_other_writers_are_parsed(strings: list[str | None], type_: str, expected: list[Any]) -> None:
    result = _parse(strings, type_)
    assert all(a == b or (b is None and a != a) for a, b in zip(result, expected, strict=True)), result


@pytest.mark.parametrize(
    ("text", "type_"),
    [("128", "byte"), ("1.5", "long"), ("100000", "decimal(5,0)"), ("1.005", "decimal(5,2)"), ("1 2", "integer")],
)
def test_values_out_of_range_are_rejected(text: str, type_: str) -> None:
    with pytest.raises(CorruptLogError, match="partition value"):
        _parse([text], type_)


@pytest.mark.parametrize(
    ("value", "directory"),
    [
        ("a b", "p=a b"),
        ("a/b", "p=a%2Fb"),
        ("a=b", "p=a%3Db"),
        ("100%", "p=100%25"),
        ("a:b", "p=a%3Ab"),
        ("ü", "p=ü"),
        ("\n", "p=%0A"),
        ("a+b", "p=a+b"),
        (None, "p=__HIVE_DEFAULT_PARTITION__"),
        ("", "p=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_hive_directories(value: str | None, directory: str) -> None:
    assert hive_directory({"p": value}) == directory


def test_escaped_directory_is_escaped_again_in_the_log() -> None:
    assert encode_path(hive_directory({"p": "a b/c%"})) == "p=a%20b%252Fc%2525"


def test_values_come_from_the_log_and_never_from_the_path() -> None:
    schema = parse_schema(
        '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},'
        '{"name":"p","type":"string","nullable":true,"metadata":{}}]}'
    )
    table = table_of(
        pa.table({"a": [1]}),
        pa.table({"a": [2]}),
        pa.table({"a": [3], "p": ["in the file"]}),
        schema=schema.json(),
        partition=["p"],
        fields=[{"partitionValues": {"p": "x"}}, {"partitionValues": {}}, {"partitionValues": {"p": "y"}}],
    )
    assert rows(table.to_arrow()) == [{"a": 1, "p": "x"}, {"a": 2, "p": None}, {"a": 3, "p": "y"}]


def test_typed_partitions_without_files() -> None:
    empty = table_of(schema=pa.schema([("a", pa.int64()), ("p", pa.date32())]), partition=["p"])
    result = typed_partitions(empty.snapshot.adds, [empty.snapshot.schema.field("p")])
    assert result["p"].type == pa.date32()
    assert empty.to_arrow().num_rows == 0
    assert metadata()["metaData"]["partitionColumns"] == []


_ODD = ["a b", "a/b", "a%20b", "ä", "a+b", "..", ".", "null", "a=b", "a\nb", "'", '"', "#?", "~", "a:b", "\\", "%", " "]


@pytest.mark.parametrize("where", ["memory", "local"])
def test_special_strings_round_trip_on_every_store(where: str, tmp_path: Any) -> None:
    uri = "memory://odd-partitions" if where == "memory" else os.fspath(tmp_path / "a table")
    data = pa.table({"n": list(range(len(_ODD) + 2)), "p": [*_ODD, "", None]})
    trilake.write(data, uri, partition_by="p")
    result = {r["n"]: r["p"] for r in trilake.open(uri).to_arrow().to_pylist()}
    assert result == {**dict(enumerate(_ODD)), len(_ODD): None, len(_ODD) + 1: None}
    for value in _ODD:
        literal = value.replace("\\", "\\\\").replace("'", "\\'")
        assert trilake.open(uri).count(f"p = '{literal}'") == 1, value


@settings(max_examples=20)
@given(data=st.data())
def test_two_partition_columns_of_any_type_round_trip(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=2))
    count = data.draw(st.integers(1, 5))
    columns = {
        f"p{i}": pa.array(
            data.draw(st.lists(st.none() | VALUES[k].filter(lambda v: v == v), min_size=count, max_size=count)),
            PrimitiveType(k).arrow,
        )
        for i, k in enumerate(kinds)
    }
    table = pa.table({"n": list(range(count)), **columns})
    store = MemoryStore()
    uri = store.uri
    trilake.write(table, uri, partition_by=["p1", "p0"])
    back = trilake.open(uri).to_arrow().sort_by("n")
    assert back.to_pylist() == table.to_pylist()


def test_many_partition_columns_with_many_values_do_not_mix() -> None:
    # 400 values in each of 8 columns: their product does not fit 64 bits.
    n = 400
    columns = {f"p{i}": [str((j * (i + 3)) % 401) for j in range(n)] for i in range(8)}
    table = pa.table({"n": list(range(n)), **columns})
    uri = MemoryStore().uri
    trilake.write(table, uri, partition_by=list(columns))
    assert trilake.open(uri).to_arrow().sort_by("n").to_pylist() == table.to_pylist()


def test_dates_of_any_year_round_trip(tmp_path: Path) -> None:
    days = pa.array([2**31 - 1, 2**30, 0, -(2**30), -(2**31)], pa.int32()).cast(pa.date32())
    trilake.write(pa.table({"k": range(5), "p": days}), str(tmp_path / "t"), partition_by="p")
    result = trilake.open(str(tmp_path / "t")).to_arrow().sort_by("k")["p"]
    assert result.cast(pa.int32()).to_pylist() == days.cast(pa.int32()).to_pylist()


def test_invalid_utf8_partition_value_is_rejected(tmp_path: Path) -> None:
    raw = pa.array([b"\xff"], pa.binary())
    rows_ = pa.table({"k": [1], "p": pa.Array.from_buffers(pa.string(), 1, raw.buffers())})
    for format in ("delta", "trevni"):
        with pytest.raises(SchemaMismatchError, match=r"not (valid )?UTF-8") as caught:
            trilake.write(rows_, str(tmp_path / format), partition_by="p", format=format)
        assert caught.value.context["column"] == "p"
