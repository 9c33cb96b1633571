"""Arguments and file contents of a wrong type raise a trilake error that names them, in every API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import LONG_A, add, fixed_runtime, lines, log_of, metadata, parquet, protocol, table_of
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptFileError, CorruptLogError, DeletionVectorError, InvalidArgumentError


def _two_versions() -> ArrowDeltaTable:
    table = table_of(pa.table({"a": [1]}))
    table.log.store.put(commit_key(1), lines([{"commitInfo": {}}]))
    return ArrowDeltaTable(table.log.store, standard_engine())


@pytest.mark.parametrize("version", ["1", "0", 0.5, 1.0, True, False, [1], b"1"])
@pytest.mark.parametrize(
    "use",
    [
        lambda t, v: t.log.snapshot(v),
        lambda t, v: t.log.head(v),
        lambda t, v: t.restore(v),
        lambda t, v: t.clone("memory://wrong-shapes", version=v),
        lambda t, v: t.changes(v),
        lambda t, v: t.changes(0, v),
        lambda t, v: ArrowDeltaTable(t.log.store, standard_engine(), version=v),
    ],
)
def test_non_integer_version_is_rejected(use: Callable[[ArrowDeltaTable, Any], object], version: Any) -> None:
    with pytest.raises(InvalidArgumentError) as e:
        use(_two_versions(), version)
    assert repr(version) in str(e.value)


@pytest.mark.parametrize("format", ["delta", "lance"])
def test_open_rejects_a_non_integer_version_in_every_format(format: str) -> None:
    uri = f"memory://wrong-shapes-{format}"
    trilake.write(pa.table({"a": [1]}), uri, format=format, mode="overwrite")
    version = trilake.open(uri).version
    assert trilake.open(uri, version=np.int64(version)).count() == 1  # type: ignore[arg-type]
    for wrong in ("1", 0.5, True):
        with pytest.raises(InvalidArgumentError, match="version must be an integer"):
            trilake.open(uri, version=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", ["1", 0.5, True, -1])
def test_invalid_history_limit_is_rejected(limit: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="limit"):
        _two_versions().history(limit)


@pytest.mark.parametrize(
    "protocol_",
    [
        {"minReaderVersion": "1", "minWriterVersion": 2},
        {"minReaderVersion": True, "minWriterVersion": 2},
        {"minReaderVersion": 1.0, "minWriterVersion": 2},
        {"minReaderVersion": -1, "minWriterVersion": 2},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": "deletionVectors"},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [["x"]]},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [1]},
    ],
)
def test_protocol_with_wrong_types_is_corrupt(protocol_: dict[str, Any]) -> None:
    with pytest.raises(CorruptLogError, match="protocol"):
        log_of([{"protocol": protocol_}, metadata()]).snapshot()


@pytest.mark.parametrize(
    "field",
    [{"name": 1}, {"name": None}, {"metadata": ["x"]}, {"metadata": "x"}, {"type": 7}, {"type": {"type": "struct"}}],
)
def test_column_with_wrong_types_is_corrupt(field: dict[str, Any]) -> None:
    schema = json.loads(LONG_A)
    schema["fields"][0].update(field)
    with pytest.raises(CorruptLogError, match="schema"):
        log_of([protocol(), metadata(json.dumps(schema))]).snapshot()


@pytest.mark.parametrize("path", ["", "../x", "a//../b", "/", "a/../../b", "%00"])
def test_invalid_path_is_corrupt(path: str) -> None:
    table = ArrowDeltaTable(log_of([protocol(), metadata(), add(path)]).store, standard_engine())
    with pytest.raises(CorruptLogError, match="not a valid path of a file"):
        table.to_arrow()


@pytest.mark.parametrize("path", ["%FF", "%C3", "a%ED%A0%80"])
def test_non_utf8_path_is_corrupt(path: str) -> None:
    log = log_of([protocol(), metadata(), add(path)])
    with pytest.raises(CorruptLogError):
        ArrowDeltaTable(log.store, standard_engine()).to_arrow()


def test_non_utf8_path_in_a_checkpoint_is_corrupt() -> None:
    log = log_of([protocol(), metadata(), add("here-is-a-path")])
    write_checkpoint(log, log.snapshot(), fixed_runtime())
    (key,) = [o.key for o in log.store.list("_delta_log") if ".checkpoint." in o.key]
    table = pq.read_table(pa.BufferReader(bytes(log.store.read(key))))
    broken = parquet(table, compression="none", use_dictionary=False).replace(b"here-is-a-path", b"here-is-\xff-path")
    log.store.put(key, broken)
    log.store.delete(["_delta_log/_last_checkpoint", commit_key(0)])
    with pytest.raises(CorruptLogError, match=r"(?i)utf"):
        ArrowDeltaTable(log.store, standard_engine())


@pytest.mark.parametrize("place", ["s3://", "file:", "http://x/y"])
def test_vector_with_an_invalid_path_is_an_error(place: str) -> None:
    vector = {"storageType": "p", "pathOrInlineDv": place, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    table = table_of(
        pa.table({"a": [1]}), fields=[{"deletionVector": vector}], protocol_action=protocol(3, 7, **features)
    )
    with pytest.raises(DeletionVectorError):
        table.to_arrow()


def test_data_file_with_duplicate_columns_is_an_error() -> None:
    data = parquet(pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"]))
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    table = table_of(data, schema=schema)
    with pytest.raises(CorruptFileError, match="several columns named 'a'"):
        table.to_arrow()
    assert table.to_arrow(columns=["b"]).to_pylist() == [{"b": 3}]
    with pytest.raises(CorruptFileError, match="several columns"):
        table.update({"b": "b + 1"}, "b = 3")
    assert DeltaLog(table.log.store, standard_engine()).snapshot().version == 0
