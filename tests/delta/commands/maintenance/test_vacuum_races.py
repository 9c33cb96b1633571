"""Vacuum that crashes, fails or races with other writers leaves a valid table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.delta.commands.maintenance.vacuum_world import HOUR, WEEK, World
from tests.delta.tables import lines, rows
from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.delta.commands.maintenance.restore import restore
from trilake.delta.commands.maintenance.vacuum import vacuum
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ConcurrentDeleteReadError, MissingFileError, StorageError

pytestmark = pytest.mark.long


def test_crash_at_any_call_leaves_a_valid_table() -> None:
    def prepared() -> World:
        world = World(configuration={"delta.enableDeletionVectors": "true"}, partition_by=("p",))
        world.write([(1, 1), (1, 2), (2, 1)])
        world.write([(1, 3)], "overwrite", replace_where="p = 1 AND n = 1 OR n = 3")
        world.now += (WEEK + 1) * HOUR
        world.write([(2, 5)], "overwrite")
        world.put("young")
        return world

    crashed, nth = True, 0
    while crashed:
        nth += 1
        world = prepared()
        store = FaultStore(world.store, [Fault(nth=nth, kind="crash")])
        try:
            vacuum(DeltaLog(store, world.log.engine))
            crashed = False
        except SimulatedCrash:
            pass
        world.note()
        cutoff = world.now - WEEK * HOUR
        for v in world.current_since(cutoff):
            if v <= 2:
                assert rows(world.read(v)) == world.versions[v]
        assert world.exists("young")
        world.vacuum()
    assert nth > 10


def test_failed_delete_is_recorded_in_the_history() -> None:
    world = World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.now += (WEEK + 1) * HOUR
    store = FaultStore(world.store, [Fault("delete", nth=2)])  # the first deletes the file that reads the store's clock
    with pytest.raises(StorageError):
        vacuum(DeltaLog(store, world.log.engine))
    end = ArrowDeltaTable(world.store, standard_engine()).history(1).to_pylist()[0]
    assert (end["operation"], dict(end["operationParameters"])) == ("VACUUM END", {"status": "FAILED"})
    assert len(world.vacuum().paths) == 1


def test_concurrently_restored_file_is_kept() -> None:
    world = World()
    world.write([(1, 1)])
    (old,) = world.log.snapshot().adds.to_pylist()
    world.write([(1, 2)], "overwrite")
    world.now += (WEEK + 1) * HOUR

    def restore(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(2) and not world.exists(key):
            action = {k: v for k, v in old.items() if v is not None} | {"partitionValues": {}}
            world.store.put_if_absent(key, lines([{"commitInfo": {}}, {"add": action}]))

    store = FaultStore(world.store, before=restore)
    done = vacuum(DeltaLog(store, world.log.engine))
    assert done.paths == []
    assert rows(world.read()) == [{"p": 1, "n": 1}, {"p": 1, "n": 2}]


@pytest.mark.parametrize("retention", [0, 24])
def test_vacuum_during_a_restore_keeps_restored_files(retention: int) -> None:
    """It checks for restored files after its first commit, and the restore may commit after that check."""
    world = World(configuration={"delta.deletedFileRetentionDuration": "interval 0 hours"})
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.now += 2 * HOUR
    begun: list[bool] = []

    def late(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(2) and not begun:
            begun.append(True)
            vacuum(world.log, retention_hours=retention)

    log = DeltaLog(FaultStore(world.store, before=late), world.log.engine)
    if retention:  # which keeps the files
        restore(log, version=0)
        assert rows(world.read()) == [{"p": 1, "n": 1}]
        return
    with pytest.raises(ConcurrentDeleteReadError, match="a concurrent vacuum"):
        restore(log, version=0)
    assert rows(world.read()) == [{"p": 1, "n": 2}]
    with pytest.raises(MissingFileError):
        restore(world.log, version=0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3)),
        st.tuples(st.just("overwrite"), st.integers(0, 3)),
        st.tuples(st.just("replace"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("stray"), st.integers(0, 10**6)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.sampled_from(["full", "lite"]), st.integers(0, 60)),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=examples(12))
@given(STEPS, st.booleans(), st.booleans(), st.integers(1, 60))
@example([("overwrite", 0), ("full", 0), ("full", 0)], False, True, 1)
def test_versions_within_retention_stay_readable(
    steps: list[tuple[str, int]], vectors: bool, feed: bool, retention: int
) -> None:
    conf = {"delta.deletedFileRetentionDuration": f"interval {retention} hours"}
    conf |= {"delta.enableDeletionVectors": "true"} if vectors else {}
    conf |= {"delta.enableChangeDataFeed": "true"} if feed else {}
    world = World(configuration=conf, partition_by=("p",))
    world.write([(0, 0), (0, 1), (1, 2), (2, 3)])
    strays: dict[str, int] = {}
    count = 10
    kept_since = 0  # changes of earlier commits need files that a vacuum may have deleted
    for kind, number in steps:
        world.now += 1000
        count += 1
        if kind == "append":
            world.write([(number, count), (0, count)])
        elif kind == "overwrite":
            world.write([(number, count)], "overwrite")
        elif kind == "replace":
            world.write([(number, count)], "overwrite", replace_where=f"n % 2 = {number % 2} OR n = {count}")
        elif kind == "wait":
            world.now += number * HOUR
        elif kind == "stray":
            strays[f"p={number % 3}/stray-{count}"] = world.now
            world.put(f"p={number % 3}/stray-{count}")
        elif kind == "checkpoint":
            write_checkpoint(world.log, world.log.snapshot(), world.runtime)
        else:
            times = {v: o.modified_ms for v, o in world.log.commits()}
            fed = [v for v in world.versions if times[v] >= kept_since] if feed and kind == "full" else []
            feeds = {v: rows(_changes(world, v)) for v in fed}
            cutoff = world.now - number * HOUR
            kept_since = max(kept_since, cutoff)
            within = [v for v in world.current_since(cutoff) if v in world.versions]
            world.vacuum(retention_hours=number, lite=kind == "lite", enforce_retention=False)
            for v in within:
                assert rows(world.read(v)) == world.versions[v]
            for v, expected in feeds.items():
                if times[v] >= cutoff:
                    assert rows(_changes(world, v)) == expected
            for key, time in strays.items():
                assert world.exists(key) or (kind == "full" and time < cutoff) or time < 0
            if kind == "full":
                strays = {k: t for k, t in strays.items() if t >= cutoff}
                assert not [k for k, t in strays.items() if t < cutoff and world.exists(k)]
            # Versions beyond the retention need not stay readable.
            world.versions = {v: r for v, r in world.versions.items() if v in within or v > max(within)}


def _changes(world: World, version: int) -> pa.Table:
    return ArrowDeltaTable(world.store, standard_engine()).changes(version, version).drop_columns(["_commit_timestamp"])
