"""The history of a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import trilake
from tests.delta.tables import add, log_of, metadata, protocol
from tests.fault_store import FaultStore
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.descriptions import HISTORY, history
from trilake.delta.log.segment import commit_key
from trilake.storage.memory import MemoryStore


def test_history_lists_commits_newest_first() -> None:
    info = {
        "operation": "MERGE",
        "operationParameters": {"predicate": '["a"]', "n": 5, "nested": {"x": [1]}, "none": None},
        "operationMetrics": {"numFiles": "3", "n": 4},
        "isBlindAppend": False,
        "readVersion": 0,
        "job": {"jobId": "1", "runId": 7, "other": "x"},
        "notebook": "none",
        "userMetadata": "hello",
        "engineInfo": "other/1.0",
    }
    ticks = iter([1000, 2000, 3000])
    log = log_of([add("a")], [{"commitInfo": info}], [add("b")], store=MemoryStore(clock=lambda: next(ticks)))
    result = history(log, log.snapshot())
    assert result.schema.equals(HISTORY)
    assert result["version"].to_pylist() == [2, 1, 0]
    assert result["timestamp"].cast(pa.int64()).to_pylist() == [3000, 2000, 1000]
    row = result.to_pylist()[1]
    assert dict(row["operationParameters"]) == {"predicate": '["a"]', "n": "5", "nested": '{"x":[1]}', "none": None}
    assert dict(row["operationMetrics"]) == {"numFiles": "3", "n": "4"}
    assert (row["operation"], row["userMetadata"], row["readVersion"]) == ("MERGE", "hello", 0)
    assert row["job"] == {**dict.fromkeys(row["job"]), "jobId": "1", "runId": "7"}
    assert row["notebook"] is None
    assert result.to_pylist()[0]["operation"] is None


def test_history_limit() -> None:
    log = log_of(*([add(f"f{i}")] for i in range(4)))
    snapshot = log.snapshot()
    for limit, versions in ((None, [3, 2, 1, 0]), (2, [3, 2]), (9, [3, 2, 1, 0]), (0, [])):
        assert history(log, snapshot, limit)["version"].to_pylist() == versions
    assert history(log, log.snapshot(1))["version"].to_pylist() == [1, 0]


def test_each_listed_commit_is_read_once() -> None:
    meta = metadata(delta__enableInCommitTimestamps="true")
    commits = [[{"commitInfo": {"operation": "WRITE", "inCommitTimestamp": 1000 + i}}] for i in range(30)]
    log = log_of([protocol(), meta, *commits[0]], *commits[1:], store=FaultStore(MemoryStore()))
    snapshot, store = log.snapshot(), log.store
    assert isinstance(store, FaultStore)
    for limit, count in ((4, 4), (None, 30)):
        store.forget()
        assert history(log, snapshot, limit).num_rows == count
        assert store.counts() == {"list": 1, "read_many": 1}
        assert sum(len(c.keys) for c in store.calls if c.op == "read_many") == count


def test_history_ends_at_the_oldest_commit() -> None:
    log = log_of(*([add(f"f{i}")] for i in range(4)))
    write_checkpoint(log, log.snapshot(2), SYSTEM_RUNTIME)
    log.store.delete([commit_key(v) for v in range(3)])
    assert history(log, log.snapshot())["version"].to_pylist() == [3]
    log.store.delete([commit_key(3)])
    assert history(log, log.snapshot()).num_rows == 0


def test_history_of_an_open_table() -> None:
    uri = MemoryStore().uri
    trilake.write(pa.table({"a": [1]}), uri, user_metadata="why")
    trilake.write(pa.table({"a": [1]}), uri, mode="append")
    table = trilake.open(uri)
    assert table.history(1)["version"].to_pylist() == [1]
    assert table.history()["userMetadata"].to_pylist() == [None, "why"]
    assert all(e.startswith("trilake/") for e in table.history()["engineInfo"].to_pylist())


def test_every_command_takes_a_string_for_the_history(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    uri.mkdir()
    pq.write_table(pa.table({"n": [1]}), uri / "a.parquet")
    trilake.convert_to_delta(uri, user_metadata="convert")
    trilake.alter(uri, user_metadata="alter").set_properties({"delta.enableDeletionVectors": "true"})
    for n in range(2):
        trilake.write(pa.table({"n": [n, n, 7]}), uri, mode="append", user_metadata="write")
    table = trilake.open(uri)
    table.delete("n = 7", user_metadata="delete")
    table.purge(user_metadata="purge")
    table.optimize(user_metadata="optimize")
    table.vacuum(0, False, enforce_retention=False, user_metadata="vacuum")
    table.update({"n": "5"}, user_metadata="update")
    table.upgrade_iceberg_compat(2, user_metadata="upgrade")
    table.restore(table.refresh().version - 1, user_metadata="restore")
    notes = [e["userMetadata"] for e in reversed(table.refresh().history().to_pylist())]
    assert list(dict.fromkeys(notes)) == [
        *("convert", "alter", "write", "delete", "purge", "optimize", "vacuum", "update", "upgrade", "restore")
    ]
    table.refresh().clone(tmp_path / "clone", user_metadata="clone")
    trilake.create(tmp_path / "new", {"n": "int"}, user_metadata="create")
    for name, note in (("clone", "clone"), ("new", "create")):
        assert trilake.open(tmp_path / name).history(1)["userMetadata"].to_pylist() == [note]
