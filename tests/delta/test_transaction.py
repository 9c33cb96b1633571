"""``Transaction``, the API for engines built on this library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import fixed_runtime, rows
from trilake import Transaction
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConstraintViolatedError,
    InvalidArgumentError,
    TableNotFoundError,
)
from trilake.storage.memory import MemoryStore

AP = pa.table({"a": [1, 2, 3], "p": ["x", "x", "y"]})


def _table(**options: Any) -> MemoryStore:
    store = MemoryStore()
    trilake.write(AP, store.uri, partition_by="p", **options)
    return store


def _actions(store: MemoryStore, version: int) -> dict[str, list[Any]]:
    log = DeltaLog(store, standard_engine())
    batch = log.parse(log.commits(version, version))
    result: dict[str, list[Any]] = {"add": batch.add.to_pylist(), "remove": batch.remove.to_pylist()}
    for _, name, data in batch.rare:
        result.setdefault(name, []).append(data)
    return result


def test_transaction_rewrites_files() -> None:
    store = _table()
    tx = Transaction(store, runtime=fixed_runtime())
    files = tx.read("p = 'x'")
    assert files.num_rows == 1
    tx.remove(files)
    tx.write(pa.table({"a": [20], "p": ["x"]}))
    tx.set_transaction("app", 3)
    tx.set_domain("my.domain", "{}")
    assert "3 actions" not in repr(tx)
    version = tx.commit("UPDATE", {"predicate": "p = 'x'"}, metrics={"rows": 1}, user_metadata="why")
    assert version == 1
    assert "committed" in repr(tx)
    assert rows(trilake.open(store.uri).to_arrow()) == [{"a": 20, "p": "x"}, {"a": 3, "p": "y"}]
    result = _actions(store, 1)
    info = result["commitInfo"][0]
    assert (info["operation"], info["userMetadata"], info["isBlindAppend"]) == ("UPDATE", "why", False)
    assert info["operationMetrics"] == {"rows": "1"}
    assert result["txn"][0]["version"] == 3
    assert result["domainMetadata"] == [{"domain": "my.domain", "configuration": "{}", "removed": False}]
    assert Transaction(store).read_transaction("app") == 3
    assert Transaction(store).read_transaction("other") is None
    with pytest.raises(InvalidArgumentError, match="already been committed"):
        tx.commit("AGAIN")


def test_read_set_decides_conflicts() -> None:
    store = _table()
    narrow, wide = Transaction(store), Transaction(store, isolation="serializable")
    for tx, filter in ((narrow, "p = 'y'"), (wide, None)):
        tx.read(filter)
        tx.write(pa.table({"a": [4], "p": ["y"]}))
    trilake.write(pa.table({"a": [5], "p": ["x"]}), store.uri, mode="append")
    assert narrow.commit("INSERT") == 2
    with pytest.raises(ConcurrentAppendError, match="operation: WRITE"):
        wide.commit("INSERT")


def test_rearranged_rows_do_not_conflict_with_appends() -> None:
    store = _table()
    tx = Transaction(store)
    files = tx.snapshot.adds
    tx.remove(files, data_change=False)
    for row in files.to_pylist():
        tx.add(
            {
                **{k: v for k, v in row.items() if v is not None},
                "partitionValues": dict(row["partitionValues"]),
                "dataChange": False,
                "path": row["path"] + "?",
            }
        )
    trilake.write(AP, store.uri, mode="append")
    assert tx.commit("OPTIMIZE") == 2
    assert _actions(store, 2)["commitInfo"][0]["isolationLevel"] == "SnapshotIsolation"
    late = Transaction(store, version=1)
    late.remove(late.snapshot.adds, data_change=False)
    with pytest.raises(ConcurrentDeleteReadError if late._reads.files else trilake.TrilakeError):
        late.commit("OPTIMIZE")


def test_application_version_is_committed_once() -> None:
    store = _table()
    first, second, other = Transaction(store), Transaction(store), Transaction(store)
    for tx in (first, second):
        assert tx.read_transaction("stream") is None
        tx.set_transaction("stream", 1)
        tx.write(AP)
    other.write(AP)
    assert first.commit("STREAMING UPDATE") == 1
    assert other.commit("WRITE") == 2
    with pytest.raises(ConcurrentTransactionError, match="stream"):
        second.commit("STREAMING UPDATE")


def test_set_metadata_and_protocol() -> None:
    store = _table()
    tx = Transaction(store)
    tx.set_metadata(replace(tx.snapshot.metadata, configuration={"delta.constraints.c": "a > 0"}))
    protocol = tx.snapshot.protocol
    tx.set_protocol(replace(protocol, min_writer_version=max(3, protocol.min_writer_version)))
    assert tx.commit("ADD CONSTRAINT") == 1
    tx = Transaction(store)
    with pytest.raises(ConstraintViolatedError):
        tx.write(pa.table({"a": [-1], "p": ["x"]}))


def test_invalid_transaction_calls_are_rejected() -> None:
    store = _table()
    tx = Transaction(store)
    with pytest.raises(InvalidArgumentError, match="has no file 'nope'"):
        tx.remove(["nope"])
    with pytest.raises(InvalidArgumentError, match="modificationTime"):
        tx.add({"path": "x", "size": 1, "partitionValues": {}})
    with pytest.raises(InvalidArgumentError, match="levels are"):
        Transaction(store, isolation="none")
    with pytest.raises(TableNotFoundError):
        Transaction(MemoryStore()).read()


def test_files_can_be_added_as_read() -> None:
    """Arrow returns partition values as pairs, which are invalid in a log."""
    store = _table(properties={"delta.enableDeletionVectors": "true"})
    trilake.open(store.uri).delete("a = 1")
    tx = Transaction(store)
    for file in tx.read().to_pylist():
        tx.add({**file, "dataChange": False})
    tx.commit("NOTE")
    assert rows(trilake.open(store.uri).to_arrow()) == [{"a": 2, "p": "x"}, {"a": 3, "p": "y"}]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("path", 1, "path of an add action must be str, got int"),
        ("size", "1", "size of an add action must be int, got str"),
        ("modificationTime", 1.5, "modificationTime of an add action must be int, got float"),
        ("dataChange", 1, "dataChange of an add action must be bool, got int"),
        ("partitionValues", {}, "partitionValues of x do not match the partition columns: {}"),
        ("partitionValues", {"p": "x", "q": "y"}, "partition column: p"),
        ("partitionValues", {"p": 1}, "give a string or None"),
    ],
)
def test_malformed_add_action_is_rejected(field: str, value: Any, message: str) -> None:
    file = {"path": "x", "partitionValues": {"p": "x"}, "size": 1, "modificationTime": 1, "dataChange": True}
    with pytest.raises(InvalidArgumentError, match=message):
        Transaction(_table()).add({**file, field: value})


def test_append_only_table_cannot_remove_rows() -> None:
    store = _table(properties={"delta.appendOnly": "true"})
    tx = Transaction(store)
    tx.remove(tx.read("p = 'x'"))
    with pytest.raises(InvalidArgumentError, match="only allow appends") as result:
        tx.commit("DELETE")
    assert result.value.condition == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    moved = Transaction(store)
    file = moved.read("p = 'y'").to_pylist()[0]
    moved.remove([file["path"]], data_change=False)
    added = {k: file[k] for k in ("path", "partitionValues", "size", "modificationTime", "stats")}
    moved.add({**added, "dataChange": False})
    assert moved.commit("OPTIMIZE") == 1
    assert trilake.open(store.uri).count() == 3


def test_transaction_version_of_an_application(tmp_path: Path) -> None:
    for version in (3, 7, 5):
        trilake.write({"n": [version]}, tmp_path, mode="append", txn=("nightly", version))
    table = trilake.open(tmp_path)
    assert (table.transaction_version("nightly"), table.transaction_version("daily")) == (7, None)
    assert trilake.open(tmp_path, version=0).transaction_version("nightly") == 3
    assert deltalake.DeltaTable(tmp_path).transaction_version("nightly") == 7


def test_a_domain_adds_its_feature() -> None:
    store = MemoryStore()
    trilake.create(store.uri, {"a": "int"})
    for configuration in ("{}", None):
        tx = Transaction(store)
        tx.set_domain("my.domain", configuration)
        tx.commit("NOTE")
        assert "domainMetadata" in (DeltaLog(store, standard_engine()).head().protocol.writer_features or ())
    assert "protocol" not in _actions(store, 2)
