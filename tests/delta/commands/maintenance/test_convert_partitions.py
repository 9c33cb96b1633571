"""Converting folders of Parquet files: names, types and values of partition columns come from the folders."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.delta.commands.maintenance.parquet_folder import folder, put, read, types
from trilake.delta.commands.maintenance.convert import convert_to_delta
from trilake.delta.commands.maintenance.convert_partitions import discover, given_columns, unescape
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.partitions import hive_directory
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.storage.memory import MemoryStore


def test_partition_columns_come_from_folders() -> None:
    store = folder("d=2024-01-31/s=x%2Fy %3D/a", "d=2024-02-01/s=__HIVE_DEFAULT_PARTITION__/a", "d=2024-02-01/s=é/b")
    convert_to_delta(store, standard_engine())
    assert types(store) == {"n": "long", "d": "date", "s": "string"}
    assert read(store) == [
        {"n": 0, "d": dt.date(2024, 1, 31), "s": "x/y ="},
        {"n": 1, "d": dt.date(2024, 2, 1), "s": None},
        {"n": 2, "d": dt.date(2024, 2, 1), "s": "é"},
    ]
    assert len(read(store, filter="d = DATE'2024-02-01' AND s IS NULL")) == 1
    assert ArrowDeltaTable(store, standard_engine()).files("s = 'é'").num_rows == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2", "+3", "007"], ("integer", [1, -2, 3, 7])),
        (["1", "2147483648"], ("long", [1, 2147483648])),
        (["9223372036854775808"], ("decimal(19,0)", [decimal.Decimal(9223372036854775808)])),
        (["1", "9" * 39], ("double", [1.0, 1e39])),
        (["1", "1.5", "-.5", "1e3", "NaN"], ("double", [1.0, 1.5, -0.5, 1000.0, math.nan])),
        (["1", "1d"], ("string", ["1", "1d"])),
        (["2024-01-01", "1999-12-31"], ("date", [dt.date(2024, 1, 1), dt.date(1999, 12, 31)])),
        (["2024-02-30"], ("string", ["2024-02-30"])),
        (["2024-01-01", "1"], ("string", ["2024-01-01", "1"])),
        (
            ["2024-01-01", "2024-01-01 01%3A02%3A03.5"],
            (
                "timestamp",
                [
                    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
                    dt.datetime(2024, 1, 1, 1, 2, 3, 500_000, tzinfo=dt.UTC),
                ],
            ),
        ),
        (["1", "__HIVE_DEFAULT_PARTITION__"], ("integer", [1, None])),
        (["__HIVE_DEFAULT_PARTITION__"], ("string", [None])),
        (["true", "false"], ("string", ["true", "false"])),
        ([" 1"], ("string", [" 1"])),
    ],
)
def test_partition_types_are_inferred_like_spark(values: list[str], expected: tuple[str, list[Any]]) -> None:
    store = folder(*(f"v={v}/f{i}" for i, v in enumerate(values)))
    convert_to_delta(store, standard_engine())
    result = ArrowDeltaTable(store, standard_engine()).to_arrow().sort_by("n")
    assert (types(store)["v"], [repr(v) for v in result["v"].to_pylist()]) == (
        expected[0],
        [repr(v) for v in expected[1]] if expected[0] != "timestamp" else [repr(v) for v in result["v"].to_pylist()],
    )
    if expected[0] == "timestamp":
        assert result["v"].to_pylist() == expected[1]


def test_given_partition_types_are_used() -> None:
    store = folder("a=1/b=x/f", "a=007/b=__HIVE_DEFAULT_PARTITION__/f")
    columns: list[str | StructField] = [StructField("A", PrimitiveType("string")), "b"]
    convert_to_delta(store, standard_engine(), partition_by=columns)
    assert types(store) == {"n": "long", "A": "string", "b": "string"}
    assert [r["A"] for r in read(store)] == ["1", "007"]
    store = folder("a=1/f", "a=2/f")
    convert_to_delta(store, standard_engine(), partition_by=[StructField("a", PrimitiveType("decimal(5,2)"))])
    assert sorted(r["a"] for r in read(store)) == [decimal.Decimal("1.00"), decimal.Decimal("2.00")]


@pytest.mark.parametrize(
    ("keys", "partition_by", "what"),
    [
        (["a=1/f", "b=1/f"], None, "conflicting"),
        (["a=1/f", "f"], None, "conflicting"),
        (["a=1/b=1/f", "b=1/a=1/f"], None, "conflicting"),
        (["a=1/f", "A=2/f"], None, "conflicting"),
        (["x/a=1/f"], None, "mixes"),
        (["a=1/x/f"], None, "mixes"),
        (["a=/f"], None, "without a name or value"),
        (["=1/f"], None, "without a name or value"),
        (["a=1/a=2/f"], None, "not unique"),
        (["a=1/f"], [], "found 1 partition"),
        (["a=1/f"], ["b"], "column b, but found .* a .*DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME"),
        (["f"], ["a"], "found 0 partition"),
        (["a=1/b=2/f"], ["b", "a"], "expecting partition column b, but found partition column a"),
        (["a=x/f"], [StructField("a", PrimitiveType("integer"))], "cannot be cast"),
        (["a=300/f"], [StructField("a", PrimitiveType("byte"))], "cannot be cast"),
        (["a=1/f"], [StructField("a", StructType(()))], "cannot be partitioned"),
    ],
)
def test_inconsistent_partition_folders_are_rejected(keys: list[str], partition_by: Any, what: str) -> None:
    store = folder(*keys)
    with pytest.raises(InvalidArgumentError, match=what):
        convert_to_delta(store, standard_engine(), partition_by=partition_by)
    assert not DeltaLog(store, standard_engine()).exists()


def test_folder_timestamps_use_the_time_zone() -> None:
    result = discover(
        ["t=2024-07-01 12%3A00%3A00", "t=2024-07-01 12%3A00%3A00Z"],
        [StructField("t", PrimitiveType("timestamp"))],
        timezone="Europe/Berlin",
    )
    assert [v["t"] for v in result.values.values()] == ["2024-07-01 10:00:00", "2024-07-01 12:00:00"]


def test_partition_column_may_also_be_in_the_files() -> None:
    store = MemoryStore()
    put(store, "p=1/x", pa.table({"a": [1], "p": ["other"], "b": [2]}))
    convert_to_delta(store, standard_engine())
    assert ArrowDeltaTable(store, standard_engine()).schema.names == ["a", "p", "b"]
    assert read(store) == [{"a": 1, "p": 1, "b": 2}]
    store = MemoryStore()
    put(store, "p=1/x", pa.table({"p": [1]}))
    with pytest.raises(SchemaMismatchError, match="no columns except"):
        convert_to_delta(store, standard_engine())


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(min_size=1, max_size=6), st.none() | st.text(min_size=1, max_size=6)), min_size=1))
def test_escaped_partition_values_round_trip(values: list[tuple[str, str | None]]) -> None:
    name = "".join(c for c in values[0][0] if c not in ".\0") or "c"
    folders = {hive_directory({name: v}): v for _, v in values if v is None or not {"\0", "/"} & set(v)}
    kept = {k: v for k, v in folders.items() if "/" not in k}
    assume(kept)
    result = discover(list(kept), [StructField(name, PrimitiveType("string"))])
    assert {k: v[name] for k, v in result.values.items()} == kept


def test_partition_columns_accept_many_forms() -> None:
    expected = [StructField("a", PrimitiveType("integer")), StructField("b c", PrimitiveType("date"))]
    assert given_columns("a int, `b c` date") == expected
    assert given_columns({"a": "int", "`b c`": pa.date32()}) == expected
    assert given_columns(pa.schema([("a", pa.int32()), ("b c", pa.date32())])) == expected
    assert given_columns(StructType(tuple(expected))) == expected
    described = deltalake.Schema([deltalake.Field("a", "integer", metadata={"CURRENT_DEFAULT": "1"})])
    assert given_columns(described) == expected[:1], "folders name all values, so a default has no effect"
    assert (given_columns(None), given_columns(""), given_columns("a"), given_columns(["a", "b c"])) == (
        None,
        [],
        ["a"],
        ["a", "b c"],
    )
    with pytest.raises(InvalidArgumentError):
        given_columns("a int b")


def test_unescape_partition_values() -> None:
    assert [unescape(t) for t in ("%41%2f%zz%4", "%C3%BC%fc", "%FC")] == ["A/%zz%4", "Ã¼ü", "ü"]
