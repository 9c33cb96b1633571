"""Reused sidecars: a checkpoint of a large table writes what changed and references the other sidecars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import examples
from tests.delta.log.sidecar_world import DAY_MS, FEATURES, ShuffledJobs, World, files, numbered, same_as_commits
from tests.delta.log.test_checkpoint_writer import VECTOR
from tests.delta.tables import add, lines, metadata, protocol, remove, rows
from trilake.delta.engine import Jobs
from trilake.delta.log import checkpoint as checkpoint_module
from trilake.delta.log.checkpoint import sidecar_keys
from trilake.delta.log.checkpoint_writer import PART_SIZE, TOP_LEVEL_FORMAT
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.segment import LAST_CHECKPOINT, SIDECARS, commit_key
from trilake.delta.log.sidecars import folded
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, WriteFailedError
from trilake.storage import open_store

pytestmark = pytest.mark.usefixtures("every_table_is_large")


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_checkpoint_with_few_changes_reuses_sidecars(extension: str) -> None:
    """Of forty full sidecars only those with affected paths are read; one that lost a file is rewritten."""
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
    assert len(small) == 1  # the four earlier files, which are merged with the new ones
    assert len(world.written) == 3  # nine files and six, in two sidecars, and the tombstone
    same_as_commits(world)
    hint = json.loads(bytes(world.inner.read(LAST_CHECKPOINT)))
    assert hint["numOfAddFiles"] == 405
    sizes = [world.inner.head(k).size for k in world.named]
    assert hint["sizeInBytes"] == sum(sizes) + hint["v2Checkpoint"]["sizeInBytes"]
    assert "sidecarFiles" not in hint["v2Checkpoint"]  # forty names that every reader would fetch


def test_only_keys_of_reused_sidecars_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only keys of reused sidecars are read, not statistics."""
    world = World(*files([f"{i % 10}{i // 10}" for i in range(100)], stats='{"numRecords":1}'))
    world.checkpoint()
    read: list[frozenset[str] | None] = []
    real = checkpoint_module._read_actions

    def spied(part: Any, share: Any, query: Any, kind: str, only: frozenset[str] | None, choice: Any) -> Any:
        read.append(only)
        return real(part, share, query, kind, only, choice)

    monkeypatch.setattr(checkpoint_module, "_read_actions", spied)
    world.commit(*files(["50x"]))
    world.checkpoint()
    assert read == [checkpoint_module.KEY_FIELDS] * 10
    monkeypatch.undo()
    same_as_commits(world)


def test_repeated_add_replaces_the_sidecar_entry() -> None:
    """Recomputed statistics are an ``add`` without a ``remove``; also a vector for a file of an old sidecar."""
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    again = remove("d/f0017", deletionTimestamp=world.now), add("d/f0017", deletionVector=VECTOR)
    world.commit(add("d/f0003", stats='{"numRecords":9}', dataChange=False), *again)
    totals = world.checkpoint()
    assert totals == FileTotals(40, 40, 1, 2)
    # Both old sidecars and the new file as two sidecars (three with tasks), and the tombstone.
    assert len(world.written) == (3 if World.jobs is None else 4)
    same_as_commits(world)


@pytest.mark.parametrize("path", ["d/f0003", "d/f%30003", "file:{root}/d/f0003"])
def test_duplicate_of_a_sidecar_file_is_an_error(path: str) -> None:
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


def test_duplicate_new_file_is_an_error() -> None:
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    world.commit(add("x"), add("x", deletionVector=VECTOR))
    with pytest.raises(CorruptLogError, match="twice"):
        world.checkpoint()


@pytest.mark.long
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_chain_of_commits_and_checkpoints_is_valid(data: st.DataObject) -> None:
    """Files are added, removed, added again and change vectors; sometimes the statistics settings change."""
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


def test_number_of_sidecars_stays_small() -> None:
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
def test_unmerged_sidecars_are_half_full_or_double_in_size(sizes: list[int], fresh: int) -> None:
    together = folded(sizes, fresh, 100)
    left = sorted(s for place, s in enumerate(sizes) if place not in together and 2 * s <= 100)
    total = fresh + sum(sizes[p] for p in together)
    if fresh:
        assert all(s > 2 * total for s in left)
        assert all(s >= 7 for s in left)


# --- tasks -----------------------------------------------------------------------------------------------------------


class FailingJobs(ShuffledJobs):
    """The first task is lost and retried; with ``at_last``, the last one fails for good."""

    def __init__(self, *, at_last: bool = False) -> None:
        self.at_last = at_last

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        function(tasks[0])
        for task in tasks:
            if self.at_last and task is tasks[-1]:
                raise WriteFailedError("an executor is gone")
            yield function(task)


def by_tasks(monkeypatch: pytest.MonkeyPatch, jobs: Jobs, *first: Any) -> World:
    """A table with a first checkpoint written by this process; tasks write the next one, all sidecars but one."""
    world = World(*(first or files(numbered(0, 40))), protocol(3, 7, readerFeatures=FEATURES, writerFeatures=FEATURES))
    world.checkpoint()
    world.commit(*(remove(f"d/f{i:04d}", deletionTimestamp=world.now) for i in (3, 13, 23)), add("x"))
    monkeypatch.setattr(World, "jobs", jobs)
    return world


def test_retried_task_leaves_unreferenced_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_failed_job_leaves_the_older_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    world = by_tasks(monkeypatch, FailingJobs(at_last=True))
    before = world.named
    with pytest.raises(WriteFailedError):
        world.checkpoint()
    assert world.named == before
    monkeypatch.setattr(World, "jobs", ShuffledJobs())
    world.checkpoint()
    same_as_commits(world)


def test_concurrent_checkpoint_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert world.checkpoint() is None  # it exists already
    same_as_commits(world)


def test_job_detects_duplicate_files_of_another_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint without trilake's tags, with two files of one path in two sidecars."""
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
    world.inner.delete([commit_key(0)])  # it would replace the checkpoint
    with pytest.raises(CorruptLogError, match="twice"):
        world.checkpoint()


# --- not reused ------------------------------------------------------------------------------------------------------


def test_sidecars_with_other_columns_are_rewritten() -> None:
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


def test_sidecars_of_another_writer_are_rewritten() -> None:
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


def test_expired_tombstones_are_removed() -> None:
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    world.commit(remove("d/f0001", deletionTimestamp=world.now))
    world.checkpoint()
    assert world.log.tombstones(world.log.snapshot()).num_rows == 1
    world.now += 8 * DAY_MS
    world.commit(add("x"))
    world.checkpoint()
    assert world.log.tombstones(world.log.snapshot()).num_rows == 0


def test_lost_sidecar_is_not_reused() -> None:
    world = World(*files(numbered(0, 40)))
    world.checkpoint()
    world.inner.delete([world.named[1], commit_key(0)])
    world.commit(add("x"))
    before = {m.key for m in world.inner.list()}
    with pytest.raises(CorruptLogError, match="missing"):
        world.checkpoint()
    left = {m.key for m in world.inner.list()} - before
    assert not left if World.jobs is None else all(k.startswith(SIDECARS) for k in left)


def test_incomplete_checkpoint_is_not_reused() -> None:
    world = World(*files(numbered(0, 40)), **{TOP_LEVEL_FORMAT: "json"})
    world.checkpoint()
    (top,) = world.log.segment().checkpoint_files
    lost = world.named[2].rpartition("/")[2].encode()
    kept = [line for line in bytes(world.inner.read(top.key)).splitlines(keepends=True) if lost not in line]
    world.inner.put(top.key, b"".join(kept))
    world.inner.delete([commit_key(0)])
    world.commit(add("x"))
    with pytest.raises(CorruptLogError, match="does not match its hint"):
        world.checkpoint()


# --- other readers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_deltalake_reads_chained_checkpoints(tmp_path: Path, extension: str) -> None:
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
    result = deltalake.QueryBuilder().register("t", table).execute("select a, s from t").read_all()
    assert rows(pa.table(result)) == expected
