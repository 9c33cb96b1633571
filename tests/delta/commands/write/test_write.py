# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Writes from Arrow: modes, partitions, errors, and how other libraries read the result."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import add, log_of, metadata, protocol, rows, table_of
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.standard import standard_engine
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    UnknownOptionError,
    UnsupportedProtocolError,
)
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore

AB = pa.table({"a": [1, 2], "b": ["x", "y"]})


def _check(uri: str) -> list[dict[str, Any]]:
    """The rows, as deltalake and polars also read them; deltalake must be able to parse the statistics."""
    mine = rows(trilake.open(uri).to_arrow())
    other = deltalake.DeltaTable(uri)
    assert other.version() == trilake.open(uri).version
    theirs = pa.table(other.to_pyarrow_table())
    assert rows(theirs) == mine
    assert rows(pl.read_delta(uri).to_arrow()) == mine
    actions = pa.table(other.get_add_actions(flatten=True))
    if actions.num_rows:
        assert sum(actions["num_records"].to_pylist()) == len(mine)
    return mine


def _files(store: Store) -> list[str]:
    return [o.key for o in store.list() if not o.key.startswith("_delta_log")]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


# --- modes -----------------------------------------------------------------------------------------------------------


def test_save_modes(uri: str) -> None:
    result = trilake.write(AB, uri)
    assert (result.version, result.files_added, result.rows_added) == (0, 1, 2)
    with pytest.raises(TableExistsError, match="mode"):
        trilake.write(AB, uri)
    assert trilake.write(AB, uri, mode="ignore").version == 0
    assert trilake.write(AB, uri, mode="append").version == 1
    assert len(_check(uri)) == 4
    result = trilake.write(AB.slice(1), uri, mode="overwrite")
    assert (result.version, result.files_added, result.files_removed, result.rows_added) == (2, 1, 2, 1)
    assert _check(uri) == [{"a": 2, "b": "y"}]
    assert len(rows(trilake.open(uri, version=1).to_arrow())) == 4
    assert trilake.open(uri).history()["version"].to_pylist() == [2, 1, 0]


@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore", "ErrorIfExists"])
def test_every_mode_creates_a_missing_table(uri: str, mode: str) -> None:
    assert trilake.write(AB, uri, mode=mode).version == 0
    assert _check(uri) == rows(AB)


def test_unknown_mode_is_rejected(uri: str) -> None:
    with pytest.raises(InvalidArgumentError, match="upsert"):
        trilake.write(AB, uri, mode="upsert")


def test_write_without_rows(uri: str) -> None:
    trilake.write(AB.slice(0, 0), uri)
    assert _check(uri) == []
    trilake.write(AB.slice(0, 0), uri, mode="append")
    trilake.write(AB, uri, mode="append")
    assert _check(uri) == rows(AB)
    trilake.write(AB.slice(0, 0), uri, mode="overwrite")
    assert _check(uri) == []


def test_file_names_are_unique_and_no_other_files_remain(uri: str) -> None:
    for _ in range(3):
        trilake.write(AB, uri, mode="append", partition_by=None)
    store = open_store(uri)
    assert len(_files(store)) == 3
    assert sorted(_files(store)) == sorted(trilake.open(uri).files()["path"].to_pylist())
    assert not list(store.unfinished())


# --- partitions ------------------------------------------------------------------------------------------------------

PARTS = pa.table({"n": [1, 2, 3, 4], "p": ["x", "y", "x", None], "d": [dt.date(2024, 1, i) for i in (1, 1, 2, 2)]})


def test_write_partitioned_table(uri: str) -> None:
    trilake.write(PARTS, uri, partition_by=["P", "d"])
    assert _check(uri) == rows(PARTS)
    log = DeltaLog(open_store(uri), standard_engine())
    assert log.snapshot().metadata.partition_columns == ("p", "d")
    files = trilake.open(uri).files()
    assert {tuple(v) for v in files["partition_values"].to_pylist()} == {
        (("p", "x"), ("d", "2024-01-01")),
        (("p", "y"), ("d", "2024-01-01")),
        (("p", "x"), ("d", "2024-01-02")),
        (("p", None), ("d", "2024-01-02")),
    }
    trilake.write(PARTS, uri, mode="append")
    trilake.write(PARTS, uri, mode="append", partition_by=["p", "D"])
    with pytest.raises(SchemaMismatchError, match="partitioned by"):
        trilake.write(PARTS, uri, mode="append", partition_by="p")
    assert len(_check(uri)) == 12


@pytest.mark.parametrize(
    ("columns", "why"),
    [(["q"], "not in the schema"), (["p", "P"], "twice"), (["n", "p", "d"], "every column"), (["l"], "type")],
)
def test_invalid_partition_columns_are_rejected(uri: str, columns: list[str], why: str) -> None:
    data = PARTS if columns != ["l"] else PARTS.append_column("l", pa.array([[1]] * 4))
    with pytest.raises(InvalidArgumentError, match=why):
        trilake.write(data, uri, partition_by=columns)
    with pytest.raises(TableNotFoundError):
        trilake.open(uri)


def test_replace_where(uri: str) -> None:
    trilake.write(PARTS, uri, partition_by="p")
    new = pa.table({"n": [9], "p": ["x"], "d": [dt.date(2025, 1, 1)]})
    result = trilake.write(new, uri, mode="overwrite", replace_where="p = 'x'")
    assert (result.files_removed, result.files_added) == (1, 1)
    assert [r["n"] for r in _check(uri)] == [2, 4, 9]
    with pytest.raises(SchemaMismatchError, match="violates replace_where"):
        trilake.write(PARTS, uri, mode="overwrite", replace_where="p = 'x'")
    with pytest.raises(SchemaMismatchError, match="violates replace_where"):
        # A null predicate is not true.
        trilake.write(PARTS.slice(3), uri, mode="overwrite", replace_where="p <> 'x'")
    store = open_store(uri)
    assert len(_files(store)) == 4  # the rejected writes leave nothing
    assert trilake.write(new, uri, mode="overwrite", replace_where="n = 9").files_removed == 1
    with pytest.raises(InvalidArgumentError, match="replace_where"):
        trilake.write(new, uri, mode="append", replace_where="p = 'x'")
    trilake.write(new.slice(0, 0), uri, mode="overwrite", replace_where="p is null or p = 'y'")
    assert [r["n"] for r in _check(uri)] == [9]


def test_replace_where_creates_a_missing_table(uri: str) -> None:
    with pytest.raises(SchemaMismatchError, match="violates replace_where"):
        trilake.write(AB, uri, mode="overwrite", replace_where="a = 1")
    with pytest.raises(TableNotFoundError):
        trilake.open(uri)
    trilake.write(AB, uri, mode="overwrite", replace_where="a > 0")
    assert trilake.open(uri).to_arrow() == AB


def test_dynamic_partition_overwrite(uri: str) -> None:
    trilake.write(PARTS, uri, partition_by=["p", "d"])
    new = pa.table({"n": [8, 9], "p": ["x", None], "d": [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]})
    trilake.write(new, uri, mode="overwrite", partition_overwrite="dynamic")
    assert [r["n"] for r in _check(uri)] == [2, 3, 8, 9]
    trilake.write(new.slice(0, 0), uri, mode="overwrite", partition_overwrite="dynamic")
    assert len(_check(uri)) == 4
    with pytest.raises(InvalidArgumentError, match="needs mode='overwrite'"):
        trilake.write(new, uri, mode="append", partition_overwrite="dynamic")


def test_dynamic_overwrite_without_partitions_replaces_all(uri: str) -> None:
    trilake.write(AB, uri)
    trilake.write(AB.slice(1), uri, mode="overwrite", partition_overwrite="dynamic")
    assert _check(uri) == [{"a": 2, "b": "y"}]


@pytest.mark.parametrize("new", [pa.table({"a": [3]}), pa.table({"c": [3]})], ids=["same column", "another"])
def test_an_overwrite_of_the_schema_ends_clustering(uri: str, new: pa.Table) -> None:
    trilake.create(uri, {"a": "bigint", "b": "string"}, cluster_by=["a"])
    trilake.write(AB, uri, mode="overwrite")
    assert trilake.open(uri).detail()["clusteringColumns"].to_pylist() == [["a"]], "an overwrite of the rows keeps it"
    trilake.write(new, uri, mode="overwrite", schema_mode="overwrite")
    assert trilake.open(uri).detail()["clusteringColumns"].to_pylist() == [[]]
    assert DeltaLog(open_store(uri), standard_engine()).snapshot().state.domains == {}


# --- types -----------------------------------------------------------------------------------------------------------

EVERY_TYPE = pa.table(
    {
        "long": [1, None],
        "int": pa.array([1, None], pa.int32()),
        "short": pa.array([-5, None], pa.int16()),
        "byte": pa.array([127, None], pa.int8()),
        "float": pa.array([0.5, None], pa.float32()),
        "double": [float("inf"), None],
        "decimal": pa.array([decimal.Decimal("12345.67"), None], pa.decimal128(20, 2)),
        "string": ["ü", None],
        "binary": [b"\xff\0", None],
        "bool": [True, None],
        "date": [dt.date(1, 1, 1), None],
        "utc": pa.array([dt.datetime(2024, 1, 1, 1, 2, 3, 456789, dt.UTC), None], pa.timestamp("us", "UTC")),
        "list": [[1, None], None],
        "struct": pa.array([{"x": 1, "y": [{"z": "a"}]}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def test_every_type_agrees_with_deltalake(uri: str) -> None:
    trilake.write(EVERY_TYPE, uri)
    trilake.write(EVERY_TYPE, uri, mode="append")
    assert trilake.open(uri).to_arrow().num_rows == 4
    assert rows(pa.table(deltalake.DeltaTable(uri).to_pyarrow_table())) == rows(trilake.open(uri).to_arrow())
    assert rows(trilake.open(uri, version=0).to_arrow()) == rows(EVERY_TYPE)


def test_timestamps_without_zone_enable_a_feature(uri: str) -> None:
    data = pa.table({"t": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))})
    trilake.write(data, uri)
    result = DeltaLog(open_store(uri), standard_engine()).snapshot().protocol
    assert "timestampNtz" in (result.reader_features or ())
    assert _check(uri) == rows(data)


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (pa.array([1], pa.uint8()), "short"),
        (pa.array([1], pa.uint64()), "decimal(20,0)"),
        (pa.array([0.5], pa.float16()), "float"),
        (pa.array(["a"]).dictionary_encode(), "string"),
        (pa.array(["a"], pa.large_string()), "string"),
        (pa.array(["a"], pa.string_view()), "string"),
        (pa.array([b"a"], pa.binary(1)), "binary"),
        (pa.array([1000], pa.timestamp("ns", "Asia/Tokyo")), "timestamp"),
        (pa.array([[1]], pa.large_list(pa.int64())), "array<long>"),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "array<long>"),
        (pa.array([86_400_000], pa.date64()), "date"),
    ],
)
def test_other_arrow_types(array: pa.Array, type_: str) -> None:
    uri = MemoryStore().uri
    trilake.write(pa.table({"a": array}), uri)
    table = trilake.open(uri)
    assert str(DeltaLog(open_store(uri), standard_engine()).snapshot().schema.fields[0].type) == type_
    assert table.to_arrow().num_rows == 1
    assert table.to_arrow()["a"].null_count == 0


@pytest.mark.parametrize("type_", [pa.time64("us"), pa.duration("us"), pa.decimal256(50, 2)])
def test_unsupported_types_are_rejected(type_: pa.DataType, uri: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"outer\.element") as e:
        trilake.write(pa.schema([("outer", pa.list_(type_))]).empty_table(), uri)
    assert e.value.context["column"] == "outer.element"


# --- schema enforcement ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (pa.table({"a": [1], "c": [1]}), ["column c"]),
        (pa.table({"a": ["x"]}), ["column a", "string", "long"]),
        (pa.table({"a": [1], "b": [1]}), ["column b"]),
        (pa.table({"a": [[1]]}), ["column a"]),
        (pa.table({"a": [True], "x": [1], "y": [2]}), ["column a", "column x", "column y"]),
    ],
)
def test_schema_mismatch_names_the_columns(data: pa.Table, named: list[str]) -> None:
    uri = MemoryStore().uri
    trilake.write(AB, uri)
    with pytest.raises(SchemaMismatchError) as e:
        trilake.write(data, uri, mode="append")
    assert all(n in str(e.value) for n in named)
    assert trilake.open(uri).version == 0
    assert len(_files(open_store(uri))) == 1


def test_columns_are_matched_by_name_ignoring_case_and_order() -> None:
    uri = MemoryStore().uri
    trilake.write(AB, uri)
    trilake.write(pa.table({"B": ["z"], "A": pa.array([3], pa.int8())}), uri, mode="append")
    trilake.write(pa.table({"a": [4]}), uri, mode="append")
    assert rows(trilake.open(uri).to_arrow())[2:] == [{"a": 3, "b": "z"}, {"a": 4, "b": None}]


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (pa.int8(), pa.array([128])),
        (pa.int32(), pa.array([1.5])),
        (pa.int64(), pa.array([float("nan")])),
        (pa.decimal128(3, 2), pa.array([decimal.Decimal("1.234")])),
        (pa.decimal128(3, 2), pa.array([10])),
    ],
)
def test_lossy_values_are_rejected(target: pa.DataType, value: pa.Array) -> None:
    uri = MemoryStore().uri
    trilake.write(pa.table({"a": pa.array([1]).cast(pa.decimal128(30, 2)).cast(target)}), uri)
    with pytest.raises(SchemaMismatchError, match="column a"):
        trilake.write(pa.table({"a": value}), uri, mode="append")
    assert len(_files(open_store(uri))) == 1


def _required(type_: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("a", type_, nullable=False)])


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (_required(pa.int64()), [1], [None]),
        (_required(pa.struct([pa.field("x", pa.int64(), False)])), [{"x": 1}], [{"x": None}]),
        (pa.schema([("a", pa.struct([pa.field("x", pa.int64(), False)]))]), [{"x": 1}, None], [{"x": None}]),
        (pa.schema([("a", pa.list_(pa.field("element", pa.int64(), False)))]), [[1], None], [[1, None]]),
        (
            pa.schema([("a", pa.map_(pa.string(), pa.field("value", pa.int64(), False)))]),
            [[("k", 1)], None],
            [[("k", None)]],
        ),
    ],
    ids=["top", "inside", "nested", "element", "value"],
)
def test_nulls_in_required_fields_are_rejected(schema: pa.Schema, good: list[Any], bad: list[Any]) -> None:
    uri = MemoryStore().uri
    trilake.write(pa.table({"a": pa.array(good, schema.field("a").type)}, schema=schema), uri)
    assert trilake.open(uri).to_arrow()["a"].to_pylist() == good
    nullable = pa.table({"a": pa.array(bad, _nullable(schema.field("a").type))})
    with pytest.raises(SchemaMismatchError, match="null"):
        trilake.write(nullable, uri, mode="append")
    same = pa.Table.from_arrays([_lying(nullable["a"].chunk(0), schema.field("a").type)], schema=schema)
    with pytest.raises(SchemaMismatchError, match="null"):
        trilake.write(same, uri, mode="append")
    assert trilake.open(uri).to_arrow().num_rows == len(good)


def _nullable(t: pa.DataType) -> pa.DataType:
    """The type with nullable parts."""
    if pa.types.is_struct(t):
        return pa.struct([(f.name, _nullable(f.type)) for f in t])
    if pa.types.is_map(t):
        return pa.map_(t.key_type, _nullable(t.item_type))
    return pa.list_(_nullable(t.value_type)) if pa.types.is_list(t) else t


def _lying(array: pa.Array, t: pa.DataType) -> pa.Array:
    """The same buffers with a non-null type: Arrow does not check."""
    if not pa.types.is_nested(t):
        return array
    count = 1 if pa.types.is_struct(t) else 2  # validity, and offsets if any
    return pa.Array.from_buffers(t, len(array), array.buffers()[:count], children=_children(array, t))


def _children(array: pa.Array, t: pa.DataType) -> list[pa.Array]:
    if pa.types.is_struct(t):
        return [array.field(i) for i in range(t.num_fields)]
    if pa.types.is_map(t):
        entries = pa.StructArray.from_arrays([array.keys, array.items], fields=[t.key_field, t.item_field])
        return [entries]
    return [array.values]


def test_batches_with_different_schemas_are_rejected() -> None:
    uri = MemoryStore().uri
    first, second = pa.record_batch({"a": [1]}), pa.record_batch({"a": [2], "b": [3]})
    with pytest.raises(TrilakeError, match="b"):
        trilake.write([first, second], uri)


# --- properties ------------------------------------------------------------------------------------------------------


def test_properties_are_set_on_creation_only() -> None:
    uri = MemoryStore().uri
    trilake.write(AB, uri, properties={"delta.appendonly": "true", "my.own": "x"})
    conf = DeltaLog(open_store(uri), standard_engine()).snapshot().metadata.configuration
    assert conf == {"delta.appendOnly": "true", "my.own": "x"}
    trilake.write(AB, uri, mode="append", properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        trilake.write(AB, uri, mode="overwrite")
    with pytest.raises(InvalidArgumentError, match="properties are set when"):
        trilake.write(AB, uri, mode="append", properties={"delta.appendOnly": "false"})
    assert trilake.open(uri).version == 1


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("delta.apendOnly", UnknownOptionError),
        ("delta.columnMapping.mode", InvalidArgumentError),
        ("delta.constraints.c", InvalidArgumentError),
        ("DELTA.x", UnknownOptionError),
    ],
)
def test_invalid_properties_are_rejected(key: str, error: type[TrilakeError]) -> None:
    store = MemoryStore()
    with pytest.raises(error, match=key.replace(".", r"\.")):
        trilake.write(AB, store.uri, properties={key: "x"})
    assert not list(store.list())


def test_change_feed_upgrades_the_protocol(uri: str) -> None:
    trilake.write(AB, uri, properties={"delta.enableChangeDataFeed": "true"})
    assert DeltaLog(open_store(uri), standard_engine()).snapshot().protocol.writer_features == (
        "appendOnly",
        "changeDataFeed",
        "invariants",
    )
    assert _check(uri) == rows(AB)


# --- unsupported -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "named"),
    [
        (protocol(1, 7, writerFeatures=["teleportation"]), "teleportation"),
        (protocol(1, 8), "writer version 8"),
        (protocol(3, 7, readerFeatures=["catalogManaged"], writerFeatures=["catalogManaged"]), "catalogManaged"),
    ],
)
def test_unsupported_features_are_rejected_by_name(action: dict[str, Any], named: str) -> None:
    log = log_of([action, metadata(), add("f")])
    with pytest.raises(UnsupportedProtocolError, match=named):
        trilake.write(pa.table({"a": [1]}), log.store.uri, mode="append")
    assert len(_files(log.store)) == 0
    assert log.commits()[-1][0] == 0


def test_listed_but_unused_features_allow_writes() -> None:
    action = protocol(
        3,
        7,
        readerFeatures=["deletionVectors", "columnMapping"],
        writerFeatures=[
            "deletionVectors",
            "columnMapping",
            "checkConstraints",
            "invariants",
            "rowTracking",
            "domainMetadata",
        ],
    )
    table = table_of(pa.table({"a": [1]}), protocol_action=action)
    trilake.write(pa.table({"a": [2]}), table.uri, mode="append")
    assert table.refresh().to_arrow().num_rows == 2


def test_remove_action_keeps_the_deletion_vector() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    table = table_of(pa.table({"a": [1, 2]}), fields=[{"deletionVector": vector, "tags": {"t": "1"}}])
    trilake.write(pa.table({"a": [3]}), table.uri, mode="overwrite")
    content = bytes(table.log.store.read(commit_key(1))).decode().splitlines()
    removed = next(json.loads(x)["remove"] for x in content if '"remove"' in x)
    assert removed["deletionVector"] == vector
    assert removed["tags"] == {"t": "1"}
    assert removed["extendedFileMetadata"] is True
    assert trilake.open(table.uri).to_arrow()["a"].to_pylist() == [3]


# --- the log ---------------------------------------------------------------------------------------------------------


def test_commit_info_describes_writes(uri: str) -> None:
    trilake.write(AB, uri, user_metadata="first")
    trilake.write(AB, uri, mode="append")
    trilake.write(AB, uri, mode="overwrite")
    history = trilake.open(uri).history().to_pylist()
    assert [h["isBlindAppend"] for h in history] == [False, True, True]
    assert history[2]["userMetadata"] == "first"
    assert dict(history[0]["operationMetrics"])["numRemovedFiles"] == "2"
    assert dict(history[0]["operationParameters"])["mode"].strip('"').lower() == "overwrite"
    assert [h["readVersion"] for h in history] == [1, 0, None]
    theirs = deltalake.DeltaTable(uri).history()
    assert [h["operation"] for h in theirs] == [h["operation"] for h in history]


def test_checkpoint_every_ten_commits(uri: str) -> None:
    for _ in range(22):
        trilake.write(AB.slice(1), uri, mode="append")
    store = open_store(uri)
    result = [o.key for o in store.list("_delta_log") if "checkpoint.parquet" in o.key]
    assert [int(k[11:31]) for k in result] == [10, 20]
    assert DeltaLog(store, standard_engine()).snapshot().segment.checkpoint_version == 20
    assert len(_check(uri)) == 22


def test_checkpoint_interval_is_a_property() -> None:
    uri = MemoryStore().uri
    for i in range(5):
        trilake.write(AB, uri, mode="append", properties={"delta.checkpointInterval": "2"} if i == 0 else None)
    assert [v for v, _ in DeltaLog(open_store(uri), standard_engine()).listing().checkpoints] == [2, 4]
