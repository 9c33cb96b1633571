"""Hostile tables give answers or typed errors in bounded time and memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import LONG_A, add, log_of, metadata, parquet, protocol, rows, table_of
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LAST_CHECKPOINT, commit_key
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptLogError, MissingFileError, TrilakeError, UnsupportedProtocolError
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    """Limit every test of this file to 100 MB of Python objects or Arrow buffers."""
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000_000
    assert pa.total_allocated_bytes() - before < 100_000_000


def _opened(*actions: dict[str, Any], schema: str = LONG_A, **conf: str) -> ArrowDeltaTable:
    return ArrowDeltaTable(log_of([protocol(), metadata(schema, **conf), *actions]).store, standard_engine())


def _schema(type_: str) -> str:
    return '{"type":"struct","fields":[{"name":"a","type":' + type_ + ',"nullable":true,"metadata":{}}]}'


# --- schemas ---------------------------------------------------------------------------------------------------------


def _nested(kind: str, depth: int) -> str:
    start, end = {
        "struct": ('{"type":"struct","fields":[{"name":"x","nullable":true,"metadata":{},"type":', "}]}"),
        "array": ('{"type":"array","containsNull":true,"elementType":', "}"),
        "map": ('{"type":"map","valueContainsNull":true,"keyType":"long","valueType":', "}"),
        "type": ('{"type":', "}"),
    }[kind]
    return start * depth + '"long"' + end * depth


@pytest.mark.parametrize("kind", ["struct", "array", "map", "type"])
@pytest.mark.parametrize("depth", [120, 1_000, 10_000])
def test_deep_schemas_are_rejected(kind: str, depth: int) -> None:
    with pytest.raises(CorruptLogError, match=r"nested|schemaString"):
        _opened(schema=_schema(_nested(kind, depth)))


@pytest.mark.parametrize("kind", ["struct", "array", "map"])
def test_moderately_deep_schemas_are_accepted(kind: str) -> None:
    table = _opened(schema=_schema(_nested(kind, 40)))
    assert table.to_arrow().num_rows == 0
    assert table.schema.names == ["a"]
    assert "a" in repr(table)


@pytest.mark.parametrize(
    "type_",
    ["decimal(39,0)", "decimal(0,0)", "decimal(5,6)", "decimal(5,-1)", "decimal(99999999999999999999,1)"],
)
def test_invalid_decimal_types_are_rejected(type_: str) -> None:
    with pytest.raises(CorruptLogError, match="decimal"):
        _opened(schema=_schema(f'"{type_}"'))


@pytest.mark.parametrize("type_", ["", "x" * 10_000, "decimal(1)", "interval day", "LONG", "decimal(5,2"])
def test_invalid_types_are_rejected(type_: str) -> None:
    with pytest.raises((CorruptLogError, UnsupportedProtocolError)) as e:
        _opened(schema=_schema(json.dumps(type_)))
    assert len(str(e.value)) < 1_000


def test_thousands_of_columns() -> None:
    fields = [{"name": f"c{i}", "type": "long", "nullable": True, "metadata": {}} for i in range(5_000)]
    table = _opened(schema=json.dumps({"type": "struct", "fields": fields}))
    assert len(table.schema) == 5_000
    assert table.to_arrow().num_columns == 5_000


def test_duplicate_column_names_are_rejected() -> None:
    fields: list[dict[str, Any]] = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("a", "A")]
    with pytest.raises(CorruptLogError, match="two columns"):
        _opened(schema=json.dumps({"type": "struct", "fields": fields}))


@pytest.mark.parametrize("value", ["x", [1], {"y": 1}, 1.5, True, 2**70, None])
def test_invalid_column_ids_and_physical_names(value: Any) -> None:
    field: dict[str, Any] = {"name": "a", "type": "long", "nullable": True}
    field["metadata"] = {"delta.columnMapping.id": value, "delta.columnMapping.physicalName": value}
    for mode in ("id", "name"):
        try:
            table = table_of(
                pa.table({"a": [1]}),
                schema=json.dumps({"type": "struct", "fields": [field]}),
                configuration={"delta.columnMapping.mode": mode},
            )
            assert table.to_arrow().num_rows == 1
        except TrilakeError:
            continue


@pytest.mark.parametrize("mode", ["", "NAME", "both", "5"])
def test_invalid_column_mapping_modes(mode: str) -> None:
    with suppress(TrilakeError):
        table = table_of(pa.table({"a": [1]}), configuration={"delta.columnMapping.mode": mode})
        assert table.to_arrow().num_rows == 1


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2**62, 2**63 - 1, -1, -(2**63), 0])
def test_wrong_file_sizes(size: int) -> None:
    table = table_of(pa.table({"a": [1]}), fields=[{"size": size}])
    assert table.to_arrow().num_rows == 1
    assert table.files()["size"].to_pylist() == [size]
    assert "table" in table._repr_html_()


def test_file_sizes_that_overflow_a_long() -> None:
    table = _opened(add("x", size=2**62), add("y", size=2**62), add("z", size=2**62))
    assert "3 files" in table._repr_html_()


@pytest.mark.parametrize("when", [2**62, -(2**62), -1, 2**63 - 1])
def test_wrong_modification_times(when: int) -> None:
    table = table_of(pa.table({"a": [1]}), fields=[{"modificationTime": when}])
    assert table.files().num_rows == 1
    assert table.to_arrow().num_rows == 1


@pytest.mark.parametrize("count", [-1, 2**62, "x", 1.5, None, [1]])
def test_wrong_record_counts(count: Any) -> None:
    table = table_of(pa.table({"a": [1, 2]}), fields=[{"stats": json.dumps({"numRecords": count})}])
    assert table.to_arrow().num_rows == 2
    assert table.files().num_rows == 1
    assert isinstance(table.count(), int)
    assert table.count("a > 1") == 1


def test_deeply_nested_statistics() -> None:
    stats = '{"numRecords":1,"minValues":' + '{"a":' * 3_000 + "1" + "}" * 3_001
    table = table_of(pa.table({"a": [1]}), fields=[{"stats": stats}])
    assert table.to_arrow(filter="a = 1").num_rows == 1


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("long", "x"),
        ("date", "2024-02-30"),
        ("timestamp", "noon"),
        ("decimal(3,1)", "1e99"),
        ("boolean", "maybe"),
        ("double", "1..0"),
    ],
)
def test_invalid_partition_values(type_: str, text: str) -> None:
    schema = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("a", "long"), ("p", type_))
            ],
        }
    )
    table = table_of(pa.table({"a": [1]}), schema=schema, partition=["p"], fields=[{"partitionValues": {"p": text}}])
    with pytest.raises(CorruptLogError, match="partition value") as e:
        table.to_arrow()
    assert e.value.context["column"] == "p"
    assert table.to_arrow(columns=["a"]).num_rows == 1
    assert table.files().num_rows == 1
    with pytest.raises(CorruptLogError):
        table.to_arrow(filter="p is null")


def test_paths_outside_the_table_are_read_or_rejected(tmp_path: Path) -> None:
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(parquet(pa.table({"a": [7]})))
    folder = tmp_path / "table"
    for path in (str(outside), outside.as_uri(), f"file:{outside}"):
        log_of([add(path)], store=open_store(folder))
        assert trilake.open(folder).to_arrow().to_pylist() == [{"a": 7}]
    for path in (
        "../outside.parquet",
        "x/../../outside.parquet",
        "%2E%2E/outside.parquet",
        ".",
        "a//b",
        "",
        "/",
        "a%00b",
    ):
        log_of([add(path)], store=open_store(folder))
        try:
            assert trilake.open(folder).to_arrow().to_pylist() == [{"a": 7}]
        except TrilakeError:
            continue


@pytest.mark.parametrize("path", ["./p/f", "p//f", "p/./f", "./p//./f", "p%2F/f"])
def test_paths_with_redundant_parts(path: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    data = parquet(pa.table({"a": [7]}))
    store.put("p/f", data)
    log_of([add(path, size=len(data))], store=store)
    table = trilake.open(tmp_path)
    assert table.to_arrow().to_pylist() == [{"a": 7}]
    assert table.to_arrow(filter="a = 7").num_rows == 1
    assert table.to_duckdb().fetchall() == [(7,)]
    trilake.alter(tmp_path).comment("x")
    assert table.refresh().vacuum(0, dry_run=False, enforce_retention=False).files.num_rows == 0
    table.delete("a = 7")
    assert table.refresh().count() == 0


@pytest.mark.parametrize(
    "path",
    ["s4://b/k", "http://example.org/x", "file://host/x", "memory:///", "/nowhere/at/all", "file:///nowhere", "~/x"],
)
def test_invalid_absolute_paths_are_rejected(path: str) -> None:
    with pytest.raises(TrilakeError):
        _opened(add(path)).to_arrow()


def test_very_long_path_is_an_error() -> None:
    with pytest.raises(TrilakeError):
        _opened(add("x" * 100_000)).to_arrow()


def test_very_long_path_on_disk_is_an_error(tmp_path: Path) -> None:
    log_of([add("x" * 5_000)], store=open_store(tmp_path))
    with pytest.raises(TrilakeError):
        trilake.open(tmp_path).to_arrow()


# --- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        protocol(-1, 2),
        protocol(0, 0),
        protocol(99, 99),
        protocol(2**40, 2),
        protocol(3, 7, readerFeatures=["x"] * 1000),
    ],
)
def test_protocol_versions_out_of_range(action: dict[str, Any]) -> None:
    with pytest.raises((UnsupportedProtocolError, CorruptLogError)):
        ArrowDeltaTable(log_of([action, metadata()]).store, standard_engine())


@pytest.mark.parametrize("features", ["x", {"a": 1}, [1, None], 5])
def test_invalid_feature_lists_are_rejected(features: Any) -> None:
    action = protocol(3, 7)
    action["protocol"]["readerFeatures"] = features
    with pytest.raises(TrilakeError):
        ArrowDeltaTable(log_of([action, metadata()]).store, standard_engine())


def test_invalid_properties_are_tolerated() -> None:
    conf = {
        "delta.checkpointInterval": "often",
        "delta.dataSkippingNumIndexedCols": "all",
        "delta.deletedFileRetentionDuration": "for ever",
        "delta.appendOnly": "perhaps",
        "delta.enableChangeDataFeed": "",
    }
    table = table_of(pa.table({"a": [1]}), configuration=conf, protocol_action=protocol())
    for i in range(12):
        trilake.write(pa.table({"a": [i]}), table.uri, mode="append")
    assert table.refresh().to_arrow().num_rows == 13


@pytest.mark.parametrize("provider", ["", "avro", "PARQUET", "x" * 1000])
def test_unknown_providers_are_rejected(provider: str) -> None:
    meta = metadata()
    meta["metaData"]["format"]["provider"] = provider
    store = MemoryStore()
    store.put("f", parquet(pa.table({"a": [1]})))
    table = ArrowDeltaTable(log_of([protocol(), meta, add("f")], store=store).store, standard_engine())
    if provider.lower() in ("", "parquet"):
        assert table.to_arrow().num_rows == 1
    else:
        with pytest.raises(UnsupportedProtocolError, match="data files of format"):
            table.to_arrow()


def test_folder_instead_of_a_log_file(tmp_path: Path) -> None:
    (tmp_path / LAST_CHECKPOINT).mkdir(parents=True)
    (tmp_path / commit_key(1)).mkdir()
    log_of([add("f")], store=open_store(tmp_path))
    assert DeltaLog(open_store(tmp_path), standard_engine()).snapshot().version == 0


def test_file_instead_of_the_log_folder(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").write_text("x")
    with pytest.raises(TrilakeError):
        trilake.open(tmp_path)


def test_table_deleted_while_open() -> None:
    table = table_of(pa.table({"a": [1]}))
    table.log.store.delete([o.key for o in table.log.store.list()])
    with pytest.raises(MissingFileError):
        table.to_arrow()
    assert table.files().num_rows == 1


def test_actions_with_duplicate_keys() -> None:
    store = MemoryStore()
    store.put("f", parquet(pa.table({"a": [1]})))
    twice = b'{"add":{"path":"g","path":"f","size":1,"partitionValues":{"x":"1","x":"2"},"dataChange":true}}\n'
    first = log_of([protocol(), metadata()], store=store)
    store.put(commit_key(1), twice)
    with suppress(TrilakeError):
        assert rows(ArrowDeltaTable(first.store, standard_engine()).to_arrow()) == [{"a": 1}]
