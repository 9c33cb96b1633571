"""Converting folders of Parquet files: partitions, schemas and statistics without reading or rewriting rows."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as OtherTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.delta.commands.maintenance.parquet_folder import folder, put, read, types
from tests.delta.tables import rows, write
from tests.fault_store import FaultStore
from trilake.delta.commands.maintenance.convert import ConvertResult, convert_to_delta
from trilake.delta.commands.maintenance.convert_footers import merged_schema
from trilake.delta.commands.maintenance.vacuum import vacuum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType, from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    SchemaMismatchError,
    TableNotFoundError,
    TrilakeError,
)
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore

# --- the conversion --------------------------------------------------------------------------------------------------


def test_conversion_leaves_files_unchanged() -> None:
    store = folder("a.parquet", "sub/b.parquet", "c with %20 and ü.parquet")
    before = {o.key: bytes(store.read(o.key)) for o in store.list()}
    done = convert_to_delta(store, standard_engine())
    size = sum(len(v) for v in before.values())
    assert done == ConvertResult(0, True, 3, 3, size)
    assert read(store) == [{"n": 0}, {"n": 1}, {"n": 2}]
    after = {o.key: bytes(store.read(o.key)) for o in store.list() if not o.key.startswith("_delta_log/")}
    assert after == before
    assert vacuum(DeltaLog(store, standard_engine()), retention_hours=0, enforce_retention=False).paths == []
    assert convert_to_delta(store, standard_engine()) == ConvertResult(2, False, 3), "nothing is to do the second time"
    (entry,) = ArrowDeltaTable(store, standard_engine(), version=0).history().to_pylist()
    assert entry["operation"] == "CONVERT"
    assert dict(entry["operationParameters"]) == {
        "numFiles": "3",
        "partitionedBy": "[]",
        "collectStats": "true",
        "sourceFormat": "parquet",
    }
    assert dict(entry["operationMetrics"]) == {"numConvertedFiles": "3"}


def test_hidden_files_are_ignored() -> None:
    store = folder("x.parquet")
    for key in (
        "_SUCCESS",
        "_metadata",
        "_common_metadata",
        ".x.parquet.crc",
        "_tmp/y",
        ".z/y",
        "a/_b/c",
        "d._COPYING_",
    ):
        store.put(key, b"no parquet")
    assert convert_to_delta(store, standard_engine()).num_files == 1
    store = folder("_p=1/x.parquet", "_p=2/x.parquet")
    assert convert_to_delta(store, standard_engine()).num_files == 2
    assert read(store) == [{"n": 0, "_p": 1}, {"n": 1, "_p": 2}]


def test_folder_without_data_files_is_rejected() -> None:
    store = MemoryStore()
    store.put("_x", b"")
    with pytest.raises(TableNotFoundError, match="no file"):
        convert_to_delta(store, standard_engine())
    assert [o.key for o in store.list()] == ["_x"]


def test_nested_delta_table_is_rejected() -> None:
    store = folder("x.parquet", "sub/y.parquet")
    store.put("sub/_delta_log/00000000000000000000.json", b"{}")
    with pytest.raises(InvalidArgumentError, match="'sub' is a Delta table"):
        convert_to_delta(store, standard_engine())


@pytest.mark.parametrize("content", [b"", b"text", b"PAR1PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_non_parquet_file_is_named(content: bytes) -> None:
    store = folder("a.parquet")
    store.put("notes.txt", content)
    with pytest.raises(CorruptFileError) as caught:
        convert_to_delta(store, standard_engine())
    assert "notes.txt" in str(caught.value)
    assert not DeltaLog(store, standard_engine()).exists()


def test_vanished_file_is_an_error() -> None:
    store = folder("a.parquet", "b.parquet")

    def vanish(op: str, key: str) -> None:
        if op == "open_input" and key == "b.parquet":
            store.delete([key])

    with pytest.raises(MissingFileError):
        convert_to_delta(FaultStore(store, before=vanish), standard_engine())


def test_lost_race_returns_the_other_conversion() -> None:
    store = folder("a.parquet")

    def other(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(0) and not DeltaLog(store, standard_engine()).exists():
            convert_to_delta(store, standard_engine())

    done = convert_to_delta(FaultStore(store, before=other), standard_engine())
    assert done == ConvertResult(0, False, 1)


def test_converted_table_has_properties_and_accepts_writes() -> None:
    store = folder("p=1/a.parquet")
    convert_to_delta(store, standard_engine(), properties={"delta.enableRowTracking": "true", "owner": "me"})
    assert DeltaLog(store, standard_engine()).head().metadata.configuration["owner"] == "me"
    table = pa.table({"n": [7], "p": pa.array([2], pa.int32())})
    write(DeltaLog(store, standard_engine()), table)
    assert read(store) == [{"n": 0, "p": 1}, {"n": 7, "p": 2}]
    assert DeltaLog(store, standard_engine()).snapshot().adds["baseRowId"].null_count == 0
    with pytest.raises(InvalidArgumentError, match="column mapping"):
        convert_to_delta(folder("a.parquet"), standard_engine(), properties={"delta.columnMapping.mode": "name"})
    bad = MemoryStore()
    put(bad, "x", pa.table({"a b": [1]}))
    with pytest.raises(InvalidArgumentError, match="Parquet files do not allow"):
        convert_to_delta(bad, standard_engine())


def test_log_may_be_written_elsewhere() -> None:
    store, into = folder("p=a b/x%y.parquet"), MemoryStore()
    convert_to_delta(store, standard_engine(), into=into)
    assert not DeltaLog(store, standard_engine()).exists()
    assert read(into) == [{"n": 0, "p": "a b"}]
    assert [o.key for o in into.list()] == [commit_key(0)]
    assert convert_to_delta(store, standard_engine(), into=store).converted


# --- schemas ---------------------------------------------------------------------------------------------------------


def test_schemas_of_all_files_are_merged() -> None:
    store = MemoryStore()
    inner = pa.struct([("x", pa.int32())])
    wider = pa.struct([("x", pa.int32()), ("y", pa.string())])
    put(
        store,
        "1",
        pa.table(
            {"a": [1], "s": pa.array([{"x": 1}], inner)},
            schema=pa.schema([pa.field("a", pa.int64(), False), ("s", inner)]),
        ),
    )
    put(store, "2", pa.table({"B": [2.5], "A": [2], "s": pa.array([{"x": 1, "y": "z"}], wider), "v": pa.nulls(1)}))
    put(store, "3", pa.table({"v": ["late"]}))
    convert_to_delta(store, standard_engine())
    assert types(store) == {"a": "long", "s": "struct<x:integer,y:string>", "B": "double", "v": "string"}
    assert all(f.nullable for f in ArrowDeltaTable(store, standard_engine()).snapshot.schema.fields)
    assert rows(ArrowDeltaTable(store, standard_engine()).to_arrow()) == rows(
        pa.Table.from_pylist(
            [
                {"a": 1, "s": {"x": 1, "y": None}, "B": None, "v": None},
                {"a": 2, "s": {"x": 1, "y": "z"}, "B": 2.5, "v": None},
                {"a": None, "s": None, "B": None, "v": "late"},
            ]
        )
    )


@pytest.mark.parametrize(
    "other",
    [
        {"a": pa.array(["x"])},
        {"a": pa.array([1], pa.int32())},
        {"s": pa.array([{"x": "1"}])},
        {"l": pa.array([["1"]])},
        {"m": pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string()))},
        {"l": pa.array([1])},
    ],
)
def test_conflicting_file_schemas_are_rejected(other: dict[str, pa.Array]) -> None:
    store = MemoryStore()
    first = {
        "a": pa.array([1]),
        "s": pa.array([{"x": 1}]),
        "l": pa.array([[1]]),
        "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    }
    put(store, "1", pa.table(first))
    put(store, "2", pa.table(other))
    with pytest.raises(SchemaMismatchError, match="schemas of the files do not match") as caught:
        convert_to_delta(store, standard_engine())
    assert next(iter(other)) in str(caught.value)
    assert "2" in caught.value.context["file"]


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c")])
def test_small_integers_of_several_widths_have_the_widest_type(order: tuple[str, ...]) -> None:
    store = MemoryStore()
    types_of_files = {"a": pa.int8(), "b": pa.int32(), "c": pa.int16()}
    for i, name in enumerate(order):
        values = pa.array([i], types_of_files[name])
        put(store, f"{i}", pa.table({"n": values, "l": pa.array([[i]], pa.list_(values.type))}))
    convert_to_delta(store, standard_engine())
    assert types(store) == {"n": "integer", "l": "array<integer>"}
    assert read(store) == [{"n": i, "l": [i]} for i in range(3)]
    assert read(store, filter="n = 1") == [{"n": 1, "l": [1]}]


def test_folders_of_a_declared_column_with_a_dot_are_not_hidden() -> None:
    store = folder(".k%25=a/x", ".other=b/x", ".hidden/x")
    convert_to_delta(store, standard_engine(), partition_by=[".k%"])
    assert read(store) == [{"n": 0, ".k%": "a"}]


@pytest.mark.parametrize(
    ("keys", "condition"),
    [
        (("x", "k=1/x"), "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        (("a=1/x", "k=1/x"), "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME"),
    ],
)
def test_folders_with_different_partition_columns_are_rejected(keys: tuple[str, ...], condition: str) -> None:
    with pytest.raises(InvalidArgumentError, match="conflicting partition folders") as caught:
        convert_to_delta(folder(*keys), standard_engine())
    assert caught.value.condition == condition


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0], pa.timestamp("ns")),
        pa.array([0], pa.time64("us")),
        pa.array([[0]], pa.list_(pa.timestamp("ns", "UTC"))),
    ],
)
def test_unsupported_types_are_rejected(column: pa.Array) -> None:
    store = MemoryStore()
    put(store, "x", pa.table({"c": column}), version="2.6")
    with pytest.raises(SchemaMismatchError) as caught:
        convert_to_delta(store, standard_engine())
    assert "x" in str(caught.value.context["file"])


def test_columns_that_differ_only_in_case_are_rejected() -> None:
    store = MemoryStore()
    put(store, "x", pa.table({"s": pa.array([{"a": 1, "A": 2}])}))
    with pytest.raises(SchemaMismatchError, match="differ only in case"):
        convert_to_delta(store, standard_engine())


def test_int96_timestamps_are_instants() -> None:
    store = MemoryStore()
    at = dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    table = pa.table({"t": pa.array([at], pa.timestamp("us", "UTC")), "s": pa.array([{"n": 1, "u": at}])})
    put(store, "x", table, use_deprecated_int96_timestamps=True)
    convert_to_delta(store, standard_engine())
    assert types(store) == {"t": "timestamp", "s": "struct<n:long,u:timestamp>"}
    assert read(store)[0]["t"] == at


def test_spark_schema_metadata_is_used_when_it_matches() -> None:
    noted = StructType((StructField("n", PrimitiveType("long"), False, {"comment": "a number"}),))
    for text, comment in ((noted.json(), "a number"), ("{", None), (StructType(()).json(), None)):
        store = MemoryStore()
        schema = pa.schema([("n", pa.int64())], metadata={"org.apache.spark.sql.parquet.row.metadata": text})
        put(store, "x", pa.table({"n": [1]}, schema=schema))
        convert_to_delta(store, standard_engine())
        (f,) = ArrowDeltaTable(store, standard_engine()).snapshot.schema.fields
        assert (f.metadata.get("comment"), f.nullable) == (comment, True)


def test_variants_in_spark_metadata_may_be_shredded() -> None:
    store = MemoryStore()
    noted = StructType((StructField("n", PrimitiveType("long")), StructField("v", PrimitiveType("variant")))).json()
    value = {"metadata": b"\x01\1\0\1a", "typed_value": {"a": {"value": None, "typed_value": 1}}}
    rows = pa.table({"n": [3], "v": pa.array([value])})
    put(store, "x", rows.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": noted}))
    convert_to_delta(store, standard_engine())
    table = ArrowDeltaTable(store, standard_engine())
    assert str(table.snapshot.schema) == "struct<n:long,v:variant>"
    assert table.snapshot.metadata.configuration == {"delta.enableVariantShredding": "true"}
    assert table.snapshot.protocol.reader_features == ("variantShredding", "variantType")
    assert stats(store) == [{"numRecords": 1, "minValues": {"n": 3}, "maxValues": {"n": 3}, "nullCount": {"n": 0}}]
    assert table.to_arrow()["v"].to_pylist()[0]["value"] == b"\x02\x01\x00\x00\x02\x0c\x01"


def test_merged_schema_keeps_first_file_order() -> None:
    a = from_arrow(pa.schema([("x", pa.int64()), ("y", pa.string())]))
    b = from_arrow(pa.schema([("Y", pa.string()), ("z", pa.bool_()), ("X", pa.int64())]))
    assert merged_schema([("1", a), ("2", b)]).names == ["x", "y", "z"]


# --- statistics ------------------------------------------------------------------------------------------------------


def stats(store: Store) -> list[dict[str, Any]]:
    return [orjson.loads(s) for s in DeltaLog(store, standard_engine()).snapshot().adds["stats"].to_pylist()]


def test_statistics_come_from_footers() -> None:
    store = MemoryStore()
    long_text = "é" * 40
    table = pa.table(
        {
            "i": pa.array([3, None, -1], pa.int32()),
            "u": pa.array([1, 2, 2**64 - 1], pa.uint64()),
            "f": [1.0, math.nan, None],
            "g": [0.5, 1.5, 2.5],
            "s": ["a", long_text, None],
            "d": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-2.25")]),
            "t": pa.array([0, 1_000_001, None], pa.timestamp("us", "UTC")),
            "y": pa.array([0, 1, None], pa.date32()),
            "b": [True, False, None],
            "z": [b"x", b"y", None],
            "st": [{"x": 5, "l": [1]}, {"x": None, "l": None}, None],
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "ll": pa.array(
                [[{"a": 1, "b": 2}], None, []], pa.large_list(pa.struct([("a", pa.int64()), ("b", pa.int64())]))
            ),
            "last": [7, 8, None],
            "none": pa.array([None, None, None], pa.int64()),
            "dict": pa.array(["p", "q", None]).dictionary_encode(),
        }
    )
    put(store, "x", table, row_group_size=2, store_decimal_as_integer=True)
    convert_to_delta(store, standard_engine())
    (result,) = stats(store)
    assert result["numRecords"] == 3
    low, high, nulls = result["minValues"], result["maxValues"], result["nullCount"]
    assert (low["i"], high["i"], nulls["i"]) == (-1, 3, 1)
    assert (low["s"], high["s"]) == ("a", "é" * 32 + "\U0010ffff")
    assert (low["d"], high["d"]) == (-2.25, 1.1)
    assert (low["t"], high["t"]) == ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.001Z")
    assert (low["y"], high["y"]) == ("1970-01-01", "1970-01-02")
    assert (low["st"], high["st"], nulls["st"]) == ({"x": 5}, {"x": 5}, {"x": 2})
    assert (low["last"], high["last"]) == (7, 8)
    assert not {"f", "g"} & set(high), "a footer cannot say whether there is a NaN"
    assert low["g"] == 0.5
    assert not {"b", "z", "m", "ll", "none"} & set(low)
    assert nulls["none"] == 3
    for predicate, count in {
        "i > 2": 1,
        "f > 100": 1,
        "s > 'z'": 1,
        "d < -2": 1,
        "st.x = 5": 1,
        "last = 9": 0,
        "u > 5": 1,
        "dict = 'q'": 1,
        "t > TIMESTAMP'1970-01-01 00:00:01'": 1,
    }.items():
        assert ArrowDeltaTable(store, standard_engine()).count(predicate) == count, predicate


def test_statistics_follow_options_and_properties() -> None:
    store = folder("a", "b")
    convert_to_delta(store, standard_engine(), properties={"delta.enableRowTracking": "true"}, collect_stats=False)
    assert stats(store) == [{"numRecords": 1}] * 2, "row ids need them"
    store = MemoryStore()
    put(store, "x", pa.table({"a": [1], "b": [2]}))
    convert_to_delta(store, standard_engine(), properties={"delta.dataSkippingStatsColumns": "b"})
    assert stats(store)[0]["minValues"] == {"b": 2}
    store = MemoryStore()
    put(store, "x", pa.table({"a": [1], "b": [2]}), write_statistics=False)
    convert_to_delta(store, standard_engine())
    assert stats(store) == [{"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}}]


values = st.one_of(st.none(), st.floats(allow_subnormal=False), st.integers(-5, 5).map(float))


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(values, st.none() | st.text("ab\U0010ffffé", max_size=40), st.none() | st.integers(-9, 9)), max_size=8
    ),
    st.sampled_from(["f > 0", "f = 1", "f IS NULL", "f < -1", "f >= 2", "s > 'a'", "s = 'é'", "n <= 3", "n = 0"]),
)
def test_files_with_matches_are_not_skipped(
    data: list[tuple[float | None, str | None, int | None]], filter: str
) -> None:
    schema = pa.schema([("f", pa.float64()), ("s", pa.string()), ("n", pa.int64())])
    table = pa.Table.from_pylist([{"f": f, "s": s, "n": n} for f, s, n in data], schema=schema)
    store, plain = MemoryStore(), MemoryStore()
    for i in range(2):
        for place in (store, plain):
            put(place, f"x{i}", table.slice(i * 4, 4), row_group_size=2)
    convert_to_delta(store, standard_engine())
    convert_to_delta(plain, standard_engine(), collect_stats=False)
    # As strings: a NaN differs from itself.
    left, right = (rows(ArrowDeltaTable(s, standard_engine()).to_arrow(filter=filter)) for s in (store, plain))
    assert repr(left) == repr(right)


# --- other readers ---------------------------------------------------------------------------------------------------


def test_deltalake_reads_the_converted_table(tmp_path: Path) -> None:
    table = pa.table({"p": ["a b", None, "ü/%"], "d": [dt.date(2024, 1, 1)] * 3, "n": [1, 2, 3]})
    pq.write_to_dataset(table, tmp_path / "t", partition_cols=["p", "d"])
    store = open_store(str(tmp_path / "t"))
    done = convert_to_delta(store, standard_engine(), partition_by=[StructField("p", PrimitiveType("string")), "d"])
    assert done.num_files == 3
    expected = rows(table.select(["n", "p", "d"]))
    assert read(store) == expected
    other = OtherTable(str(tmp_path / "t"))
    assert rows(other.to_pyarrow_table().select(["n", "p", "d"])) == expected
    assert other.metadata().partition_columns == ["p", "d"]


def test_truncated_files_raise_typed_errors() -> None:
    store = folder("good.parquet")
    content = bytearray(bytes(store.read("good.parquet")))
    for cut in range(0, len(content) - 1, 37):
        store.put("bad.parquet", bytes(content[:cut]))
        with pytest.raises(TrilakeError):
            convert_to_delta(store, standard_engine())
