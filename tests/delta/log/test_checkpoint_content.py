"""Streamed checkpoints of large tables equal those of tables read at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import examples
from tests.delta.log.test_checkpoint_writer import KEEP_ALL, V2_PROTOCOL, VECTOR
from tests.delta.tables import add, lines, log_of, metadata, protocol, remove, rows
from tests.fault_store import Fault, FaultStore
from tests.runtimes import runtime_in_ms
from trilake.delta.log import checkpoint as checkpoint_module
from trilake.delta.log import checkpoint_parts
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.checksum import of_snapshot, read_checksum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LAST_CHECKPOINT, commit_key
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.errors import CorruptLogError, UnknownOutcomeError

Actions = list[list[dict[str, Any]]]
V2 = {"delta.checkpointPolicy": "v2"}


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)
    monkeypatch.setattr(checkpoint_parts, "_AT_ONCE_ROWS", 0)
    monkeypatch.setattr(checkpoint_parts, "SLICE_ROWS", 4)
    monkeypatch.setattr(checkpoint_module, "_BATCH_ROWS", 3)


def history(kind: str) -> Actions:
    first = [V2_PROTOCOL, metadata(**V2)] if kind == "v2" else [protocol(3, 7, readerFeatures=[], writerFeatures=[])]
    first = first if kind == "v2" else [*first, metadata()]
    return [
        [*first, *(add(f"f{i}", size=i, stats=json.dumps({"numRecords": i})) for i in range(20))],
        [remove("f1", deletionTimestamp=5), remove("f2", deletionTimestamp=6), {"txn": {"appId": "app", "version": 7}}],
    ]


NEWER: Actions = [
    [remove("f3", deletionTimestamp=9), add("f3", deletionVector=VECTOR), add("a%20b", size=3)],
    [add("f1", size=100), remove("f4", deletionTimestamp=9), {"txn": {"appId": "app", "version": 8}}],
]


def append(log: DeltaLog, first: int, commits: Actions) -> None:
    for version, actions in enumerate(commits, first):
        log.store.put(commit_key(version), lines(actions))


@pytest.mark.parametrize("part_size", [1000, 7])
@pytest.mark.parametrize("kind", ["classic", "v2"])
def test_streamed_checkpoint_equals_the_whole(kind: str, part_size: int) -> None:
    log = log_of(*history(kind))
    write_checkpoint(log, log.snapshot(), KEEP_ALL, part_size=part_size)
    append(log, 2, NEWER)
    pending, whole = log.opened(), log.snapshot()
    assert isinstance(pending, PendingSnapshot)
    tombstones = sorted(log.tombstones(whole)["path"].to_pylist())
    totals = write_checkpoint(log, pending, KEEP_ALL, part_size=part_size)
    for version in range(4):
        log.store.delete([commit_key(version)])
    again = log.snapshot()
    assert again.segment.checkpoint_version == 3
    assert (len(again.segment.checkpoint_files) > 1) == (part_size == 7 and kind == "classic")
    assert rows(again.adds.drop_columns(["dataChange"])) == rows(whole.adds.drop_columns(["dataChange"]))
    assert sorted(log.tombstones(again)["path"].to_pylist()) == tombstones
    assert again.state.txns == whole.state.txns
    assert totals is not None
    assert (
        totals.num_files == whole.adds.num_rows == json.loads(bytes(log.store.read(LAST_CHECKPOINT)))["numOfAddFiles"]
    )


def test_streamed_checkpoint_omits_expired_tombstones() -> None:
    log = log_of(*history("classic"))
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    append(log, 2, NEWER)
    write_checkpoint(log, log.opened(), runtime_in_ms(lambda: 7 * 24 * 3600 * 1000 + 7))
    for version in range(4):
        log.store.delete([commit_key(version)])
    assert sorted(log.tombstones(log.snapshot())["path"].to_pylist()) == ["f3", "f4"]


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_streamed_checkpoints_of_any_history(data: st.DataObject) -> None:
    """Files are added, removed and added again, with and without vectors, before and after a checkpoint."""
    live: dict[str, bool] = {}

    def commit(number: int) -> list[dict[str, Any]]:
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": number}}]
        for name in sorted(data.draw(st.sets(st.sampled_from("abcdefgh")))):
            vector = {"deletionVector": VECTOR}
            if name in live:
                actions.append(remove(name, deletionTimestamp=number, **(vector if live.pop(name) else {})))
            if data.draw(st.booleans()):
                live[name] = data.draw(st.booleans())
                actions.append(add(name, size=number, **(vector if live[name] else {})))
        return actions

    commits = [commit(n) for n in range(6)]
    commits[0] = [protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"]), metadata()]
    live.clear()
    commits = [commits[0], *(commit(n) for n in range(1, 6))]
    log = log_of(*commits[:3])
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    append(log, 3, commits[3:])
    whole = log.snapshot()
    tombstones = sorted(log.tombstones(whole)["path"].to_pylist())
    write_checkpoint(log, log.opened(), KEEP_ALL, part_size=data.draw(st.sampled_from([3, 1000])))
    for version in range(6):
        log.store.delete([commit_key(version)])
    again = log.snapshot()
    assert rows(again.adds.drop_columns(["dataChange"])) == rows(whole.adds.drop_columns(["dataChange"]))
    assert sorted(log.tombstones(again)["path"].to_pylist()) == tombstones


def test_duplicate_file_prevents_the_checkpoint() -> None:
    """As for a table read at once: the error names the file, and nothing is written."""
    first = [protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"]), metadata()]
    log = log_of([*first, add("a"), add("b")])
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    append(log, 1, [[add("a", deletionVector=VECTOR)]])
    before = {m.key for m in log.store.list()}
    with pytest.raises(CorruptLogError, match=r"twice.*'a'"):
        write_checkpoint(log, log.opened(), KEEP_ALL)
    assert {m.key for m in log.store.list()} == before


def test_failed_writer_leaves_the_older_checkpoint() -> None:
    log = log_of(*history("classic"))
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    append(log, 2, NEWER)
    expected = rows(log.snapshot().adds)
    store = FaultStore(log.store, [Fault("close", "*.checkpoint*.parquet", error=UnknownOutcomeError("lost"))])
    with pytest.raises(UnknownOutcomeError):
        write_checkpoint(DeltaLog(store), DeltaLog(store).opened(), KEEP_ALL)
    assert log.snapshot().segment.checkpoint_version == 1
    assert rows(log.snapshot().adds) == expected


def test_existing_checkpoint_is_kept_and_gets_its_hint() -> None:
    log = log_of(*history("classic"))
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    append(log, 2, NEWER)
    assert write_checkpoint(log, log.opened(), KEEP_ALL) is not None
    there = log.store.read(LAST_CHECKPOINT).to_pybytes()
    append(log, 4, [[{"txn": {"appId": "app", "version": 9}}]])
    log.store.put(LAST_CHECKPOINT, b'{"version":1,"size":1}')
    assert write_checkpoint(log, log.opened(3), KEEP_ALL) is None
    hint = json.loads(log.store.read(LAST_CHECKPOINT).to_pybytes())
    old = json.loads(there)
    assert (hint["version"], hint["size"], hint["numOfAddFiles"]) == (3, old["size"], old["numOfAddFiles"])


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After its call, loading a whole file list fails."""

    def reject(*_: object) -> None:
        raise AssertionError("the list of files was read whole")

    def begin() -> None:
        monkeypatch.setattr(DeltaLog, "_whole", reject)

    return begin


def test_appends_to_a_large_table_never_load_the_file_list(never_whole: Callable[[], None]) -> None:
    """Ten appends write a checkpoint and its checksum without the list."""
    uri = "memory://large-appends"
    trilake.write({"x": [0]}, uri, properties={"delta.checkpointInterval": "5"})
    for i in range(1, 6):
        trilake.write({"x": [i]}, uri, mode="append")
    with pytest.MonkeyPatch.context():
        never_whole()
        for i in range(6, 11):
            trilake.write({"x": [i]}, uri, mode="append")
    log = trilake.open(uri).log
    pending = log.opened()
    assert isinstance(pending, PendingSnapshot)
    assert pending.segment.checkpoint_version == 10
    checksum = read_checksum(log.store, 10)
    assert checksum is not None
    assert checksum.num_files == 11


def test_checksum_of_a_large_table_matches_the_snapshot() -> None:
    uri = "memory://large-checksum"
    trilake.write({"x": [0]}, uri, properties={"delta.checkpointInterval": "3"})
    for i in range(1, 7):
        trilake.write({"x": [i]}, uri, mode="append")
    log = trilake.open(uri).log
    made = read_checksum(log.store, 6)
    assert made == of_snapshot(log.snapshot(6), log.commit_info(6))
