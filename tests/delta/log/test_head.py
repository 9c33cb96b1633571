"""The head of a version matches its snapshot without reading file actions."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from trilake.delta.log import checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import checkpoint_key, commit_key
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, MissingMetadataError, TableNotFoundError
from trilake.parquet.files import checked_footer
from trilake.storage import open_store
from trilake.storage.base import Store

ROWS = pa.table({"n": [1, 2, 3], "p": ["a", "b", "a"]})


def _store(name: str, commits: int) -> Store:
    store = open_store(f"memory://head-{name}-{commits}")
    store.delete([o.key for o in store.list()])
    for _ in range(commits):
        trilake.write(ROWS, store.uri, mode="append", partition_by="p")
    return store


@pytest.mark.parametrize("commits", [1, 5, 11, 14, 21])
def test_head_matches_the_snapshot(commits: int) -> None:
    log = DeltaLog(_store("same", commits), standard_engine())
    for version in {None, 0, commits // 2, commits - 1}:
        head, snapshot = log.head(version), log.snapshot(version)
        assert (head.version, head.protocol, head.metadata) == (snapshot.version, snapshot.protocol, snapshot.metadata)
        assert (head.state.txns, head.state.domains) == (snapshot.state.txns, snapshot.state.domains)
        assert head.segment == snapshot.segment
        assert head.state.adds.num_rows == 0 < snapshot.adds.num_rows
        assert not isinstance(head, Snapshot)


def test_head_has_transactions_and_domains() -> None:
    store = _store("txn", 10)
    actions = [
        {"txn": {"appId": "a", "version": 7}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    ]
    store.put(commit_key(10), "\n".join(map(json.dumps, actions)).encode())
    log = DeltaLog(store, standard_engine())
    state = log.head().state
    assert state.txns["a"]["version"] == 7
    assert set(state.domains) == {"d"}
    assert log.snapshot().state.txns == state.txns


def test_row_groups_with_only_files_are_not_read() -> None:
    store = _store("groups", 11)
    key = checkpoint_key(10)
    table = pq.read_table(pa.BufferReader(store.read(key)))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    store.put(key, sink.getvalue())
    store.delete(["_delta_log/_last_checkpoint"])  # it states the size of the checkpoint
    source = pa.BufferReader(store.read(key))
    file = pq.ParquetFile(source)
    footer = checked_footer(source, file)
    # protocol and metaData are the first two rows; all others are files.
    assert file.metadata.num_row_groups > 5
    assert checkpoint._groups_with(footer, ["protocol", "metaData"]) == [0]
    assert checkpoint._groups_with(footer, ["add"]) != [0]
    log = DeltaLog(store, standard_engine())
    assert log.head().metadata == log.snapshot().metadata

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2, write_statistics=False)
    store.put(key, sink.getvalue())
    source = pa.BufferReader(store.read(key))
    file = pq.ParquetFile(source)
    footer = checked_footer(source, file)
    groups = list(range(file.metadata.num_row_groups))
    assert checkpoint._groups_with(footer, ["protocol"]) == groups  # without statistics nothing is skipped
    assert log.head().metadata == log.snapshot().metadata


def test_append_parses_no_file_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store("append", 12)

    def reject(*_: object) -> None:
        raise AssertionError("an append looked at files")

    monkeypatch.setattr("trilake.delta.log.log.parse_commits", reject)
    monkeypatch.setattr("trilake.delta.log.log.read_checkpoint", reject)
    assert trilake.write(ROWS, store.uri, mode="append").version == 12


def test_invalid_logs_are_rejected() -> None:
    with pytest.raises(TableNotFoundError):
        DeltaLog(open_store("memory://head-none"), standard_engine()).head()
    store = _store("corrupt", 2)
    store.put(commit_key(2), b"")
    with pytest.raises(CorruptLogError):
        DeltaLog(store, standard_engine()).head()
    store.put(commit_key(2), b"[1]\n")
    with pytest.raises(CorruptLogError):
        DeltaLog(store, standard_engine()).head()
    bare = open_store("memory://head-bare")
    bare.put(commit_key(0), b'{"add":{"path":"x","size":1,"partitionValues":{}}}\n')
    with pytest.raises(MissingMetadataError):
        DeltaLog(bare, standard_engine()).head()
