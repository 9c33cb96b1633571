"""Reused sidecars and log cleanup: deleting an older checkpoint keeps sidecars that a newer one references."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from tests.delta.log.sidecar_world import DAY_MS, World, files, numbered, same_as_commits
from tests.delta.tables import add, metadata, remove, rows
from tests.fault_store import SimulatedCrash
from tests.runtimes import runtime_in_ms
from trilake.delta.log.checkpoint_writer import PART_SIZE, write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.segment import SIDECARS, commit_key
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError

pytestmark = pytest.mark.usefixtures("every_table_is_large")


def aged(**conf: str) -> World:
    """A table whose checkpoint and sidecars are two days old, and one commit after them."""
    world = World(*files(numbered(0, 40)), **conf)
    world.checkpoint()
    world.now += 2 * DAY_MS
    world.commit(add("x"))
    return world


@pytest.mark.parametrize(("days", "stays"), [(1, False), (2, True)])
def test_sidecars_of_expiring_checkpoints_are_not_reused(days: int, stays: bool) -> None:
    """The age of the next commit, which needs it, decides."""
    world = aged(**{"delta.logRetentionDuration": f"interval {days} days"})
    before = world.named
    world.checkpoint()
    assert (len(set(before) & set(world.named)) == len(before)) == stays
    same_as_commits(world)


def test_lagging_clock_does_not_make_a_checkpoint_young() -> None:
    world = aged(**{"delta.logRetentionDuration": "interval 3 days"})
    before, now = world.named, world.now
    opened = world.log.opened()
    world.now = now + 3 * DAY_MS
    behind = runtime_in_ms(lambda: now - 10 * DAY_MS, world.runtime.new_id)
    write_checkpoint(world.log, opened, behind)
    assert set(world.named).isdisjoint(before)


def test_compaction_file_does_not_make_the_commit_young() -> None:
    from trilake.delta.log.log_compaction import compact_log

    world = aged(**{"delta.logRetentionDuration": "interval 4 days"})
    world.commit(add("y"))
    before = world.named
    world.now += 5 * DAY_MS
    compact_log(world.log, 1, 2)
    world.commit(add("z"))
    world.checkpoint()
    assert set(world.named).isdisjoint(before)


def test_concurrent_cleanup_keeps_reused_sidecars() -> None:
    """A cleanup with a shorter retention runs just before the new checkpoint appears."""
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
def test_cleanup_keeps_sidecars_of_a_concurrent_checkpoint(retention: int | None) -> None:
    """It listed the log earlier, and deletes the older checkpoint after the new one has reused its sidecars."""
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
                # As if its writer had read the clock a month ago, when the older checkpoint was safe.
                for module in ("sidecars", "checkpoint_writer"):
                    patch.setattr(f"trilake.delta.log.{module}.base_outlasts", lambda *_: True)
                write_checkpoint(writer.log, opened, world.runtime)

    world.store.before = before
    cleaned = cleanup_log(world.log, world.runtime, retention_ms=retention)
    assert done
    assert cleaned.keys
    assert len(old) == 4
    assert set(old) <= set(world.named)
    # A reader may fall back from a checkpoint without a sidecar to an earlier one.
    assert set(old) <= {m.key for m in world.inner.list(SIDECARS)}
    snapshot = DeltaLog(world.inner).snapshot()
    assert snapshot.segment.checkpoint_version == 2
    assert snapshot.adds.num_rows == 42


def test_damaged_sidecar_prevents_cleanup() -> None:
    """It exists with the right size; the earlier commits still have its content."""
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


def test_orphaned_sidecars_are_deleted_by_the_next_cleanup() -> None:
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
def test_crash_at_any_call_keeps_the_old_checkpoint(nth: int) -> None:
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
