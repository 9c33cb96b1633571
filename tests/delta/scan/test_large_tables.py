"""A filter over a large table applies during the checkpoint read and matches the result of the whole list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.log.sidecar_world import ShuffledJobs
from tests.delta.tables import add, log_of, metadata, protocol, remove
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log import checkpoint, snapshot
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LAST_CHECKPOINT, checkpoint_key, commit_key
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.scan.large_tables import narrowed, narrowed_by_jobs, outline
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptLogError, FilterError, InvalidArgumentError
from trilake.expr import parse_filter
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore

FILTERS = ["id = 23", "id < 15 or id > 60", "p = 'b'", "p = 'a' and id >= 40", "x is null", "id = -1", "id in (5, 71)"]


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every checkpoint as large and read it in batches of three rows."""
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)
    monkeypatch.setattr(checkpoint, "_BATCH_ROWS", 3)
    monkeypatch.setattr(snapshot, "_MANY", 0)


def _table(name: str) -> str:
    """Return a table with eight appends, a checkpoint among them, and deletes and changes before and after it."""
    uri = f"memory://narrowed-{name}"
    store = open_store(uri)
    store.delete([m.key for m in store.list()])
    properties = {"delta.checkpointInterval": "6", "delta.enableDeletionVectors": "true"}
    for i in range(8):
        ids = range(i * 10, i * 10 + 10)
        rows = pa.table({"id": ids, "x": [None if n % 7 else n / 2 for n in ids], "p": ["ab"[n % 2] for n in ids]})
        trilake.write(rows, uri, mode="append", partition_by="p", properties=properties if i == 0 else None)
        if i in (3, 7):
            opened = trilake.open(uri)
            opened.delete(f"id in (23, {i})")
            opened.refresh().update({"x": "1.5"}, "id = 31")
    return uri


def _rows(table: ArrowDeltaTable, filter: str | None = None) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(filter=filter).to_pylist(), key=lambda r: int(r["id"]))


def _fully_loaded(table: ArrowDeltaTable) -> bool:
    return not isinstance(table._opened, PendingSnapshot)


def test_filter_never_loads_the_whole_file_list(all_are_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = _table("same")
    table = trilake.open(uri)
    assert table.snapshot.segment.checkpoint_version is not None
    for filter in FILTERS:
        lazy = trilake.open(uri)
        assert _rows(lazy, filter) == _rows(table, filter)
        assert lazy.count(filter) == table.count(filter)
        assert lazy.files(filter).sort_by("path").equals(table.files(filter).sort_by("path"))
        assert not _fully_loaded(lazy), filter
    lazy = trilake.open(uri)
    assert lazy.count() == table.count() == 77
    assert (lazy.version, lazy.schema, lazy.properties) == (table.version, table.schema, table.properties)
    assert lazy.refresh()._opened is lazy._opened
    assert "very many files" in repr(lazy)
    assert lazy.history(3).equals(table.history(3))
    assert not _fully_loaded(lazy)
    assert _rows(lazy) == _rows(table)
    assert _fully_loaded(lazy)


def test_tasks_find_the_same_files(all_are_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trilake.delta.scan.large_tables.SHARE_BYTES", 2000)
    table = trilake.open(_table("tasks"))
    pending = table.opened
    assert isinstance(pending, PendingSnapshot)
    for text in FILTERS:
        filter = parse_filter(text, table.schema)
        assert filter is not None
        here, there = narrowed(table.log, pending, filter), narrowed_by_jobs(table.log, pending, filter, ShuffledJobs())
        assert here is not None
        assert there is not None
        assert there.adds.sort_by("path").equals(here.adds.sort_by("path")), text


def test_outline_reads_footers_and_files_with_vectors(all_are_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = trilake.open(_table("outline"))
    pending = table.opened
    assert isinstance(pending, PendingSnapshot)
    known = outline(table.log, pending)
    adds = table.snapshot.adds
    marked = adds.filter(pc.is_valid(adds["deletionVector"]))
    assert known is not None
    assert known.marked.sort_by("path").equals(marked.sort_by("path"))
    assert marked.num_rows
    assert 0.5 < known.size / pc.sum(adds["size"]).as_py() < 2


def test_checkpoint_pieces_are_bounded(all_are_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = _table("pieces")
    sizes = []
    read = checkpoint.checkpoint_pieces

    def watched(*args: Any, **how: Any) -> Iterator[pa.Table]:
        for piece in read(*args, **how):
            sizes.append(piece.num_rows)
            yield piece

    monkeypatch.setattr("trilake.delta.log.log.checkpoint_pieces", watched)
    assert trilake.open(uri).count("id = 23") == 0
    assert sum(sizes) > 8
    assert max(sizes) <= 3


def test_new_files_are_found_after_refresh(all_are_large: None) -> None:
    uri = _table("refresh")
    table = trilake.open(uri)
    trilake.write(pa.table({"id": [1000], "x": [1.0], "p": ["z"]}), uri, mode="append")
    assert table.count("id = 1000") == 0
    assert table.refresh().count("id = 1000") == 1


def test_invalid_filters_are_rejected_before_reading(all_are_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = trilake.open(_table("wrong"))
    monkeypatch.setattr("trilake.delta.log.log.checkpoint_pieces", None)
    with pytest.raises(FilterError):
        table.to_arrow(filter="no one = 1")
    with pytest.raises(InvalidArgumentError, match="no column 'nobody'"):
        table.to_arrow(["nobody"], "id = 1")


# --- damage ----------------------------------------------------------------------------------------------------------


def _checkpoint(*actions: dict[str, Any]) -> Store:
    """Return a table whose checkpoint has other file names than the log: ``twice`` for each that ends so."""
    log = log_of([protocol(), metadata(), *actions], store=MemoryStore())
    write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
    return log.store


def _changed(store: Store, change: Any) -> None:
    key = checkpoint_key(0)
    rows = pq.read_table(pa.BufferReader(store.read(key))).to_pylist()
    schema = pq.read_schema(pa.BufferReader(store.read(key)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(change(rows), schema), sink)
    store.put(key, sink.getvalue())


def _open(store: Store) -> ArrowDeltaTable:
    return ArrowDeltaTable(store, standard_engine())


def _by_tasks(store: Store, text: str) -> Snapshot | None:
    table = _open(store)
    filter = parse_filter(text, table.schema)
    assert filter is not None
    assert isinstance(table.opened, PendingSnapshot)
    return narrowed_by_jobs(table.log, table.opened, filter, ShuffledJobs())


STATS = [json.dumps({"numRecords": 1, "minValues": {"a": i}, "maxValues": {"a": i}}) for i in range(9)]


def test_duplicate_file_is_an_error_for_any_filter(all_are_large: None) -> None:
    store = _checkpoint(*(add(f"f{i}", stats=STATS[i]) for i in range(9)))

    def named_twice(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            if row["add"] and row["add"]["path"] == "f8":
                row["add"]["path"] = "f2"
        return rows

    _changed(store, named_twice)
    # Neither commits nor checksums may replace the checkpoint.
    sums = [m.key for m in store.list("_delta_log") if m.key.endswith(".crc")]
    store.delete([LAST_CHECKPOINT, commit_key(0), *sums])
    for filter in ("a = 2", "a = 8", "a = 4", None):
        with pytest.raises(CorruptLogError, match="twice"):
            _open(store).count(filter)
    assert _by_tasks(store, "a IN (2, 8)") is None
    assert _by_tasks(store, "a = 4") is not None


def test_checkpoint_that_lost_a_file_is_an_error(all_are_large: None) -> None:
    store = _checkpoint(*(add(f"f{i}", stats=STATS[i]) for i in range(9)))
    _changed(store, lambda rows: rows[:-1])
    assert _open(store).files().num_rows == 9
    store.delete([commit_key(0)])  # which replace it when all files are requested
    assert _by_tasks(store, "a = 2") is None
    for filter in ("a = 2", None):
        with pytest.raises(CorruptLogError, match="numOfAddFiles 9, not 8"):
            _open(store).files(filter)


def test_later_commits_override_checkpoint_files(all_are_large: None) -> None:
    store = _checkpoint(*(add(f"f{i}", stats=STATS[i]) for i in range(9)))
    for version, actions in enumerate(([remove("f2")], [add("f3", stats=STATS[8])], [remove("f4"), add("f5")]), 1):
        log_of(actions, store=store, start=version)
    result = {f"a = {i}": _open(store).files(f"a = {i}")["path"].to_pylist() for i in (2, 3, 4, 8)}
    assert result == {"a = 2": ["f5"], "a = 3": ["f5"], "a = 4": ["f5"], "a = 8": ["f8", "f3", "f5"]}
    assert _open(store).snapshot.adds.num_rows == 7


def test_small_table_is_read_on_open() -> None:
    store = _checkpoint(add("f0"))
    assert not isinstance(DeltaLog(store, standard_engine()).opened(), PendingSnapshot)
