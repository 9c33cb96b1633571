"""Sidecars that stay: a checkpoint of a large table writes what changed and names the other sidecars again."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.log.test_checkpoint_writer import VECTOR
from tests.delta.tables import add, lines, metadata, protocol, remove, rows
from tests.runtimes import runtime_in_ms
from trilake.delta.engine import Jobs
from trilake.delta.log import checkpoint as checkpoint_module
from trilake.delta.log import checkpoint_parts
from trilake.delta.log.checkpoint import sidecar_keys
from trilake.delta.log.checkpoint_writer import PART_SIZE, TOP_LEVEL_FORMAT, write_checkpoint
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.segment import LAST_CHECKPOINT, SIDECARS, commit_key
from trilake.delta.log.sidecars.sidecar import folded
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.engine import standard_engine
from trilake.errors import CorruptLogError, WriteFailedError
from trilake.storage import open_store
from trilake.storage.faults import FaultStore, SimulatedCrash
from trilake.storage.memory import MemoryStore

DAY_MS = 24 * 3600 * 1000
FEATURES = ["v2Checkpoint", "deletionVectors"]
FIRST = protocol(3, 7, readerFeatures=FEATURES, writerFeatures=[*FEATURES, "domainMetadata"])


class ShuffledJobs:
    """Jobs of this process, whose outcomes come in another order than their tasks."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        return [function(t) for t in reversed(tasks)]

    def repeated(self, texts: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        counts = Counter(t for task in tasks for column in texts(task) for t in column.to_pylist())
        return next((t for t, count in counts.items() if count > 1), None)


@pytest.fixture(autouse=True, params=["here", "tasks"])
def every_table_is_large(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(World, "jobs", ShuffledJobs() if request.param == "tasks" else None)
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)
    monkeypatch.setattr(checkpoint_parts, "SLICE_ROWS", 4)
    monkeypatch.setattr(checkpoint_module, "_BATCH_ROWS", 3)


class World:
    """A log in memory, a clock, and commits an hour apart; full sidecars have ten files."""

    jobs: ClassVar[Jobs | None] = None

    def __init__(self, *first: Any, **conf: str) -> None:
        self.now = 1_000 * DAY_MS
        self.inner = MemoryStore(clock=lambda: self.now)
        self.store = FaultStore(self.inner)
        self.log = DeltaLog(self.store, standard_engine(jobs=lambda *_: self.jobs))
        ids = itertools.count()
        self.runtime = runtime_in_ms(lambda: self.now, lambda: f"{next(ids):08d}-0000-4000-8000-000000000000")
        self.version = -1
        self.commit(FIRST, metadata(**{"delta.checkpointPolicy": "v2", PART_SIZE: "10", **conf}), *first)

    def commit(self, *actions: Any) -> None:
        self.version += 1
        self.now += 3_600_000
        self.inner.put(commit_key(self.version), lines(actions))

    def checkpoint(self) -> FileTotals | None:
        """Write the checkpoint of the newest version; the calls of the store are those for it."""
        opened = self.log.opened()
        self.store.calls.clear()
        return write_checkpoint(self.log, opened, self.runtime)

    def called(self, op: str) -> list[str]:
        """The sidecars that a kind of call was made for."""
        return [k for c in self.store.calls if c.op == op for k in c.keys if k.startswith(f"{SIDECARS}/")]

    @property
    def written(self) -> list[str]:
        return [*self.called("put"), *self.called("close")]

    @property
    def named(self) -> list[str]:
        """The sidecars of the newest checkpoint."""
        return sidecar_keys(self.inner, DeltaLog(self.inner).segment())


def files(names: Sequence[str], **fields: Any) -> list[dict[str, Any]]:
    return [add(n, **fields) for n in names]


def numbered(first: int, last: int, folder: str = "d") -> list[str]:
    return [f"{folder}/f{i:04d}" for i in range(first, last)]


def same_as_commits(world: World) -> None:
    """The newest checkpoint is what all commits give."""
    log = DeltaLog(world.inner)
    copy = MemoryStore()
    for v in range(world.version + 1):
        copy.put(commit_key(v), world.inner.read(commit_key(v)))
    true = DeltaLog(copy)
    found, expected = log.snapshot(), true.snapshot()
    assert found.segment.checkpoint_version == world.version
    assert rows(found.adds.drop_columns(["dataChange"])) == rows(expected.adds.drop_columns(["dataChange"]))
    assert sorted(log.tombstones(found)["path"].to_pylist()) == sorted(true.tombstones(expected)["path"].to_pylist())
    assert found.state.txns == expected.state.txns


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_a_checkpoint_of_few_changes_reads_and_writes_little(extension: str) -> None:
    """Of forty full sidecars those are read whose paths may be meant; one that lost a file is written again."""
    folders = [numbered(0, 10, f"day={d:03d}") for d in range(40)]
    world = World(*(f for names in folders for f in files(names, size=3)), **{TOP_LEVEL_FORMAT: extension})
    world.checkpoint()
    before = world.named
    assert len(before) == 40
    world.commit(*files(numbered(0, 4, "day=040")))
    assert world.checkpoint() == FileTotals(404, 3 * 400 + 4)
    assert (world.called("open_input"), len(world.written)) == ([], 1)
    assert world.named == [*before, *world.written]
    same_as_commits(world)

    world.commit(remove("day=020/f0003", deletionTimestamp=world.now, size=3), *files(numbered(10, 12, "day=040")))
    assert world.checkpoint() == FileTotals(405, 3 * 399 + 6)
    lost, small = before[20], world.store.calls and sorted(set(world.called("open_input")) - {before[20]})
    assert set(world.named) >= set(before) - {lost}
    assert lost not in world.named
    assert len(small) == 1  # the four files of before, which are folded together with the new ones
    assert len(world.written) == 3  # nine files and six, in two, and the tombstone
    same_as_commits(world)
    hint = json.loads(bytes(world.inner.read(LAST_CHECKPOINT)))
    assert hint["numOfAddFiles"] == 405
    sizes = [world.inner.head(k).size for k in world.named]
    assert hint["sizeInBytes"] == sum(sizes) + hint["v2Checkpoint"]["sizeInBytes"]
    assert "sidecarFiles" not in hint["v2Checkpoint"]  # forty names, which every reader would fetch


def test_paths_without_order_are_read_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sidecar that stays the keys are read, not statistics."""
    world = World(*files([f"{i % 10}{i // 10}" for i in range(100)], stats='{"numRecords":1}'))
    world.checkpoint()
    read: list[frozenset[str] | None] = []
    real = checkpoint_module._read_actions

    def spied(source: Any, file: pq.ParquetFile, footer: Any, kind: str, choice: Any, only: Any, share: Any) -> Any:
        read.append(only)
        return real(source, file, footer, kind, choice, only, share)

    monkeypatch.setattr(checkpoint_module, "_read_actions", spied)
    world.commit(*files(["50x"]))
    world.checkpoint()
    assert read == [checkpoint_module.KEY_FIELDS] * 10
    monkeypatch.undo()
    same_as_commits(world)


def test_a_file_that_is_said_again_is_there_once() -> None:
    """As statistics are made anew: an ``add`` without a ``remove``; and a vector for a file of an old sidecar."""
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    again = remove("d/f0017", deletionTimestamp=world.now), add("d/f0017", deletionVector=VECTOR)
    world.commit(add("d/f0003", stats='{"numRecords":9}', dataChange=False), *again)
    totals = world.checkpoint()
    assert totals == FileTotals(40, 40, 1, 2)
    # Both old sidecars and the new file, as two, of tasks as three; the tombstone.
    assert len(world.written) == (3 if World.jobs is None else 4)
    same_as_commits(world)


@pytest.mark.parametrize("path", ["d/f0003", "d/f%30003", "file:{root}/d/f0003"])
def test_a_file_that_an_old_sidecar_has_and_a_commit_brings_with_a_vector_is_an_error(path: str) -> None:
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    root = world.store.uri.removeprefix("file:")
    if path.startswith("file:"):
        world.log.store.uri = world.inner.uri = "file:/tables/t"
        root = "/tables/t"
    world.commit(add(path.format(root=root), deletionVector=VECTOR))
    before = {m.key for m in world.inner.list()}
    with pytest.raises(CorruptLogError, match="twice"):
        world.checkpoint()
    assert {m.key for m in world.inner.list()} == before


def test_two_new_files_of_one_path_are_an_error() -> None:
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    world.commit(add("x"), add("x", deletionVector=VECTOR))
    with pytest.raises(CorruptLogError, match="twice"):
        world.checkpoint()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_chain_of_commits_and_checkpoints(data: st.DataObject) -> None:
    """Files come, go, come back and change their vectors; now and then somebody changes what statistics there are."""
    world = World(*files(numbered(0, data.draw(st.integers(0, 30)))))
    live = dict.fromkeys((r["path"] for r in rows(world.log.snapshot().adds)), False)
    world.checkpoint()
    kept = 0
    for number in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(1, 2))):
            actions: list[dict[str, Any]] = [{"txn": {"appId": "app", "version": number}}]
            names = data.draw(st.lists(st.sampled_from(numbered(0, 50)), unique=True, max_size=12))
            for name in names:
                vector = {"deletionVector": VECTOR}
                kind = data.draw(st.sampled_from(["add", "add", "gone", "vector", "again"]))
                if name in live and kind != "again":
                    had = vector if live.pop(name) else {}
                    actions.append(remove(name, deletionTimestamp=world.now, **had))
                    if kind == "vector" and not had:
                        live[name] = True
                        actions.append(add(name, **vector))
                elif kind != "gone":
                    live.setdefault(name, False)
                    actions.append(add(name, size=number, **(vector if live[name] else {})))
            world.commit(*actions)
        if data.draw(st.integers(0, 9)) == 0:
            struct = {"delta.checkpoint.writeStatsAsStruct": data.draw(st.sampled_from(["true", "false"]))}
            world.commit(metadata(**{"delta.checkpointPolicy": "v2", PART_SIZE: "10", **struct}))
        before = set(world.named)
        totals = world.checkpoint()
        kept += len(before & set(world.named))
        assert totals is not None
        assert (totals.num_files, totals.num_vectors) == (len(live), sum(live.values()))
        same_as_commits(world)


def test_the_number_of_sidecars_stays_small() -> None:
    """Sixty appends of one file: full sidecars, and few small ones."""
    world = World(*files(numbered(0, 10)))
    world.checkpoint()
    written = 0
    for i in range(10, 70):
        world.commit(*files(numbered(i, i + 1)))
        world.checkpoint()
        written += sum(pq.read_metadata(world.inner.open_input(k)).num_rows for k in world.written)
        assert len(world.named) <= 2 * (i + 1) / 10 + 4
    assert written < 60 * 4
    same_as_commits(world)


@given(st.lists(st.integers(1, 100), max_size=50), st.integers(0, 100))
def test_what_is_not_folded_is_half_full_or_doubles(sizes: list[int], fresh: int) -> None:
    together = folded(sizes, fresh, 100)
    left = sorted(s for place, s in enumerate(sizes) if place not in together and 2 * s <= 100)
    total = fresh + sum(sizes[p] for p in together)
    if fresh:
        assert all(s > 2 * total for s in left)
        assert all(s >= 7 for s in left)


# --- tasks -----------------------------------------------------------------------------------------------------------


class FailingJobs(ShuffledJobs):
    """The first task is lost and done again; with ``at_last``, the last one is lost for good."""

    def __init__(self, *, at_last: bool = False) -> None:
        self.at_last = at_last

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        function(tasks[0])
        for task in tasks:
            if self.at_last and task is tasks[-1]:
                raise WriteFailedError("an executor is gone")
            yield function(task)


def by_tasks(monkeypatch: pytest.MonkeyPatch, jobs: Jobs, *first: Any) -> World:
    """A table whose first checkpoint a process wrote and whose next one tasks write, all sidecars but one."""
    world = World(*(first or files(numbered(0, 40))), protocol(3, 7, readerFeatures=FEATURES, writerFeatures=FEATURES))
    world.checkpoint()
    world.commit(*(remove(f"d/f{i:04d}", deletionTimestamp=world.now) for i in (3, 13, 23)), add("x"))
    monkeypatch.setattr(World, "jobs", jobs)
    return world


def test_a_task_that_is_done_again_leaves_what_nobody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    world = by_tasks(monkeypatch, FailingJobs())
    assert world.checkpoint() == FileTotals(38, 38)
    left = {m.key for m in world.inner.list(SIDECARS)} - set(world.named)
    assert left
    same_as_commits(world)
    world.now += 60 * DAY_MS
    world.commit(add("y"))
    world.checkpoint()
    cleanup_log(world.log, world.runtime)
    assert left.isdisjoint(m.key for m in world.inner.list(SIDECARS))
    assert world.log.snapshot().adds.num_rows == 39


def test_a_job_that_fails_leaves_the_older_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    world = by_tasks(monkeypatch, FailingJobs(at_last=True))
    before = world.named
    with pytest.raises(WriteFailedError):
        world.checkpoint()
    assert world.named == before
    monkeypatch.setattr(World, "jobs", ShuffledJobs())
    world.checkpoint()
    same_as_commits(world)


def test_a_checkpoint_that_comes_meanwhile_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(ShuffledJobs):
        def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
            if World.jobs is self:
                monkeypatch.setattr(World, "jobs", None)
                world.checkpoint()
                done.append(world.named)
            return super().run(function, tasks)

    done: list[list[str]] = []
    world = by_tasks(monkeypatch, Slow())
    assert world.checkpoint() is None
    assert (world.named, len(done)) == (done[0], 1)
    assert len([m.key for m in world.inner.list() if ".checkpoint." in m.key]) == 2
    monkeypatch.setattr(World, "jobs", ShuffledJobs())
    assert world.checkpoint() is None  # it is there
    same_as_commits(world)


def test_a_file_that_another_writer_names_twice_is_found_by_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint without our tags, of two files of one path in two shares."""
    world = by_tasks(monkeypatch, ShuffledJobs())
    (top,) = world.log.segment().checkpoint_files
    table = pq.read_table(world.inner.open_input(f"{world.named[0]}"))
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    world.inner.put(f"{SIDECARS}/twice.parquet", out.getvalue().to_pybytes())
    state = world.log.head()
    named = [
        {"sidecar": {"path": k.rpartition("/")[2], "sizeInBytes": world.inner.head(k).size, "modificationTime": 0}}
        for k in [*world.named, f"{SIDECARS}/twice.parquet"]
    ]
    first = [{"checkpointMetadata": {"version": 0}}, {"protocol": state.protocol.to_json()}]
    world.inner.delete([top.key, LAST_CHECKPOINT])
    key = f"{top.key.rsplit('.', 2)[0]}.00000000-0000-4000-8000-00000000ffff.json"
    world.inner.put(key, lines([*first, {"metaData": state.metadata.to_json()}, *named]))
    with pytest.raises(CorruptLogError, match="twice"):
        world.checkpoint()


# --- what does not stay ----------------------------------------------------------------------------------------------


def test_sidecars_of_other_columns_are_written_again() -> None:
    world = World(*files(numbered(0, 40), stats='{"numRecords":1}'))
    world.checkpoint()
    before = world.named
    as_struct = {"delta.checkpoint.writeStatsAsStruct": "true"}
    world.commit(metadata(**{"delta.checkpointPolicy": "v2", PART_SIZE: "10", **as_struct}))
    world.checkpoint()
    assert set(world.named).isdisjoint(before)
    for key in world.named:
        assert "stats_parsed" in pq.read_schema(world.inner.open_input(key)).field("add").type.names
    same_as_commits(world)


def test_sidecars_of_another_writer_are_written_again() -> None:
    world = World(*files(numbered(0, 40)), **{TOP_LEVEL_FORMAT: "json"})
    world.checkpoint()
    before = world.named
    (top,) = world.log.segment().checkpoint_files
    actions = [json.loads(line) for line in bytes(world.inner.read(top.key)).splitlines()]
    for action in actions:
        action.get("sidecar", {}).pop("tags", None)
    world.inner.put(top.key, lines(actions))
    world.commit(add("x"))
    world.checkpoint()
    assert set(world.named).isdisjoint(before)
    same_as_commits(world)


def test_expired_tombstones_go() -> None:
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    world.commit(remove("d/f0001", deletionTimestamp=world.now))
    world.checkpoint()
    assert world.log.tombstones(world.log.snapshot()).num_rows == 1
    world.now += 8 * DAY_MS
    world.commit(add("x"))
    world.checkpoint()
    assert world.log.tombstones(world.log.snapshot()).num_rows == 0


def test_a_lost_sidecar_is_not_named_again() -> None:
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    world.inner.delete([world.named[1]])
    world.commit(add("x"))
    before = {m.key for m in world.inner.list()}
    with pytest.raises(CorruptLogError, match="missing"):
        world.checkpoint()
    left = {m.key for m in world.inner.list()} - before
    assert not left if World.jobs is None else all(k.startswith(SIDECARS) for k in left)


def test_a_manifest_that_lost_a_line_is_not_carried_on() -> None:
    world = World(*files(numbered(0, 40)), **{TOP_LEVEL_FORMAT: "json"})
    world.checkpoint()
    (top,) = world.log.segment().checkpoint_files
    lost = world.named[2].rpartition("/")[2].encode()
    kept = [line for line in bytes(world.inner.read(top.key)).splitlines(keepends=True) if lost not in line]
    world.inner.put(top.key, b"".join(kept))
    world.commit(add("x"))
    with pytest.raises(CorruptLogError, match="not what is known"):
        world.checkpoint()


# --- log cleanup meanwhile -------------------------------------------------------------------------------------------


def aged(**conf: str) -> World:
    """A table whose checkpoint and sidecars are two days old, and one commit after them."""
    world = World(*files(numbered(0, 40)), **conf)
    world.checkpoint()
    world.now += 2 * DAY_MS
    world.commit(add("x"))
    return world


@pytest.mark.parametrize(("days", "stays"), [(1, False), (2, True)])
def test_an_older_checkpoint_that_a_cleanup_may_take_gives_no_sidecar(days: int, stays: bool) -> None:
    """What matters is how young the commit after it is, which needs it."""
    world = aged(**{"delta.logRetentionDuration": f"interval {days} days"})
    before = world.named
    world.checkpoint()
    assert (len(set(before) & set(world.named)) == len(before)) == stays
    same_as_commits(world)


def test_a_clock_that_is_behind_makes_no_checkpoint_young() -> None:
    world = aged(**{"delta.logRetentionDuration": "interval 3 days"})
    before, now = world.named, world.now
    opened = world.log.opened()
    world.now = now + 3 * DAY_MS
    behind = runtime_in_ms(lambda: now - 10 * DAY_MS, world.runtime.new_id)
    write_checkpoint(world.log, opened, behind)
    assert set(world.named).isdisjoint(before)


def test_a_compaction_file_does_not_make_the_commit_young() -> None:
    from trilake.delta.log.log_compaction import compact_log

    world = aged(**{"delta.logRetentionDuration": "interval 4 days"})
    world.commit(add("y"))
    before = world.named
    world.now += 5 * DAY_MS
    compact_log(world.log, 1, 2)
    world.commit(add("z"))
    world.checkpoint()
    assert set(world.named).isdisjoint(before)


def test_an_older_checkpoint_that_goes_meanwhile_takes_nothing_along() -> None:
    """A cleanup against the table's retention runs while the new checkpoint is about to be there."""
    world = aged()
    world.commit(add("y"))
    old = world.named
    opened = world.log.opened()
    assert isinstance(opened, PendingSnapshot)
    done: list[str] = []

    def before(op: str, key: str) -> None:
        if op in ("put", "close") and ".checkpoint." in key and not done:
            done.append(key)
            other = World.__new__(World)
            other.__dict__ |= world.__dict__ | {"log": DeltaLog(world.inner, standard_engine())}
            whole = other.log.snapshot(1)
            write_checkpoint(other.log, whole, other.runtime)
            world.inner.delete([*(f.key for f in opened.segment.checkpoint_files), commit_key(0), *old])

    world.store.before = before
    saved = world.inner.read(commit_key(0))
    write_checkpoint(world.log, opened, world.runtime)
    assert done
    assert not any(m.key == done[0] for m in world.inner.list())
    world.inner.put(commit_key(0), saved)
    same_as_commits(world)


@pytest.mark.parametrize("retention", [None, 0])
def test_a_cleanup_spares_what_a_checkpoint_that_comes_meanwhile_names_again(retention: int | None) -> None:
    """It has listed the log, and deletes the older checkpoint after the new one has found it there."""
    world = aged(**{"delta.checkpointInterval": "1"})
    old = world.named
    world.now += DAY_MS
    world.commit(add("y"))
    writer = World.__new__(World)
    writer.__dict__ |= world.__dict__ | {"store": world.inner, "log": DeltaLog(world.inner, standard_engine())}
    opened = writer.log.opened()
    if retention is None:
        world.now += 30 * DAY_MS
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "delete" and ".checkpoint." in key and not done:
            done.append(1)
            with pytest.MonkeyPatch.context() as patch:
                # As if its writer had looked at the clock a month ago, when the older checkpoint was safe.
                patch.setattr("trilake.delta.log.sidecars.reuse.base_outlasts", lambda *_: True)
                write_checkpoint(writer.log, opened, world.runtime)

    world.store.before = before
    cleaned = cleanup_log(world.log, world.runtime, retention_ms=retention)
    assert done
    assert cleaned.keys
    assert len(old) == 4
    assert set(old) <= set(world.named)
    # A reader could go past a checkpoint that lacks a sidecar, to one before it.
    assert set(old) <= {m.key for m in world.inner.list(SIDECARS)}
    snapshot = DeltaLog(world.inner).snapshot()
    assert snapshot.segment.checkpoint_version == 2
    assert snapshot.adds.num_rows == 42


def test_nothing_goes_for_a_checkpoint_whose_sidecar_is_damaged() -> None:
    """It is there, and has the size that it should have; the commits before it hold what it held."""
    world = aged(**{"delta.checkpointInterval": "10"})
    world.checkpoint()
    world.commit(add("y"))
    expected = rows(DeltaLog(world.inner).snapshot().adds.drop_columns(["dataChange"]))
    for key in world.named:
        content = bytes(world.inner.read(key))
        world.inner.put(key, bytes(len(content)))
    before = {m.key for m in world.inner.list()}
    world.now += 40 * DAY_MS
    with suppress(CorruptLogError):
        assert not cleanup_log(world.log, world.runtime).keys
    assert {m.key for m in world.inner.list()} == before
    world.inner.delete([m.key for m in world.inner.list() if ".checkpoint." in m.key])
    assert rows(DeltaLog(world.inner).snapshot().adds.drop_columns(["dataChange"])) == expected


def test_a_shorter_retention_leaves_the_sidecars_of_what_it_deletes_to_the_next_cleanup() -> None:
    world = aged(**{"delta.checkpoint.writeStatsAsStruct": "false"})
    old = world.named
    conf = {"delta.checkpointPolicy": "v2", PART_SIZE: "10", "delta.checkpoint.writeStatsAsStruct": "true"}
    world.commit(metadata(**conf))
    world.checkpoint()
    assert set(world.named).isdisjoint(old)
    world.now += 3 * DAY_MS
    first = cleanup_log(world.log, world.runtime, retention_ms=DAY_MS)
    assert first.keys
    assert not set(old) & set(first.keys)
    assert set(old) <= set(cleanup_log(world.log, world.runtime, retention_ms=DAY_MS).keys)


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_writer_that_dies_anywhere_leaves_what_was_there(nth: int) -> None:
    world = aged()
    world.commit(remove("d/f0011", deletionTimestamp=world.now), add("z"))
    expected = rows(world.log.snapshot().adds.drop_columns(["dataChange"]))
    opened, calls = world.log.opened(), itertools.count(1)

    def before(op: str, key: str) -> None:
        del key
        if op in ("put", "close", "delete", "head", "list") and next(calls) == nth:
            raise SimulatedCrash

    world.store.before = before
    with suppress(SimulatedCrash):
        write_checkpoint(world.log, opened, world.runtime)
    assert rows(DeltaLog(world.inner).snapshot().adds.drop_columns(["dataChange"])) == expected
    world.store.before = None
    world.now += 3 * DAY_MS
    cleanup_log(DeltaLog(world.inner, standard_engine()), world.runtime)
    assert rows(DeltaLog(world.inner).snapshot().adds.drop_columns(["dataChange"])) == expected


# --- others read ours ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_deltalake_reads_a_chain(tmp_path: Path, extension: str) -> None:
    path = str(tmp_path / "t")
    conf = {
        "delta.checkpointPolicy": "v2",
        PART_SIZE: "4",
        TOP_LEVEL_FORMAT: extension,
        "delta.checkpointInterval": "4",
    }
    trilake.write(pa.table({"a": [0], "s": ["x"]}), path, properties=conf)
    for i in range(1, 21):
        trilake.write(pa.table({"a": [i], "s": [f"y{i}"]}), path, mode="append")
    trilake.open(path).delete("a = 7")
    for i in range(22, 25):
        trilake.write(pa.table({"a": [i], "s": [f"y{i}"]}), path, mode="append")
    log = DeltaLog(open_store(path), standard_engine())
    base = log.segment()
    assert base.checkpoint_version == 24
    older = sidecar_keys(log.store, log.segment(20))
    assert set(sidecar_keys(log.store, base)) & set(older)
    log.store.delete([commit_key(v) for v in range(25)])
    expected = rows(trilake.open(path).to_arrow())
    assert len(expected) == 23
    table = deltalake.DeltaTable(path)
    assert table.version() == 24
    found = deltalake.QueryBuilder().register("t", table).execute("select a, s from t").read_all()
    assert rows(pa.table(found)) == expected
