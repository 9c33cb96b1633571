"""Vacuum without a listing: files that commits removed since the last vacuum."""

from __future__ import annotations

import orjson
import pytest

from tests.delta.commands.maintenance.vacuum_world import HOUR, LATER, WEEK, World
from tests.delta.tables import add, clocked, log_of, remove, rows
from trilake.delta.commands.maintenance.vacuum import LAST_VACUUM, vacuum
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.segment import commit_key
from trilake.errors import VersionNotFoundError
from trilake.storage.memory import MemoryStore


def test_lite_deletes_removed_files_and_records_progress() -> None:
    world = World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.put("stray")
    world.now += (WEEK + 1) * HOUR
    done = world.vacuum(lite=True)
    assert len(done.paths) == 1
    assert not world.exists(done.paths[0])
    assert world.exists("stray"), "lite does not list"
    assert orjson.loads(bytes(world.store.read(LAST_VACUUM))) == {"latestCommitVersionOutsideOfRetentionWindow": 1}
    world.write([(1, 3)], "overwrite")
    assert world.vacuum(lite=True).paths == []
    world.now += (WEEK + 1) * HOUR
    assert len(world.vacuum(lite=True).paths) == 1
    assert world.vacuum().paths == ["stray"]


@pytest.mark.parametrize("lite", [False, True])
def test_kept_versions_stay_readable(lite: bool) -> None:
    world = World()
    for n in range(4):
        world.write([(1, n)], "overwrite")
    world.now += (WEEK + 1) * HOUR
    with pytest.raises(VersionNotFoundError):
        world.vacuum(lite=lite, keep_versions=[4])
    kept = [p for v in (0, 2) for p in world.log.snapshot(v).adds["path"].to_pylist()]
    dry = world.vacuum(lite=lite, dry_run=True, keep_versions=[2, 0])
    assert world.vacuum(lite=lite, keep_versions=[2, 0]).paths == dry.paths
    assert len(dry.paths) == 1
    assert [rows(world.read(v)) for v in (0, 2, 3)] == [[{"p": 1, "n": n}] for n in (0, 2, 3)]
    assert {*kept} <= {*world.vacuum(lite=lite).paths}, "a lite one finds them again"
    assert not any(world.exists(p) for p in kept)


def test_lite_is_rejected_after_log_cleanup() -> None:
    world = World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    write_checkpoint(world.log, world.log.snapshot(), world.runtime)
    world.store.delete([commit_key(0)])
    world.versions.pop(0)
    world.now += (WEEK + 1) * HOUR
    with pytest.raises(VersionNotFoundError, match="full vacuum"):
        world.vacuum(lite=True)
    assert len(world.vacuum().paths) == 1
    world.write([(1, 4)], "overwrite")
    world.now += (WEEK + 1) * HOUR
    assert len(world.vacuum(lite=True).paths) == 1, "a full vacuum is as good a start"


def test_lite_ignores_paths_outside_the_table() -> None:
    store = MemoryStore(clock=lambda: 0)
    hostile = ["../../etc/passwd", "/etc/passwd", "file:/x", "a/../../b", "_delta_log/00000000000000000000.json", ".x"]
    log = log_of([add("f")], [remove(p, deletionTimestamp=1) for p in [*hostile, "f"]], store=store)
    for key in ("f", ".x"):
        store.put(key, b"x")
    done = vacuum(clocked(log, LATER.clock_ms), lite=True, record=False)
    assert done.paths == ["f"]
    assert bytes(store.read(".x")) == b"x"


def test_lite_keeps_files_that_were_added_back() -> None:
    store = MemoryStore(clock=lambda: 0)
    log = log_of([add("f")], [remove("f", deletionTimestamp=1), add("g")], [add("f")], store=store)
    assert vacuum(clocked(log, LATER.clock_ms), lite=True, dry_run=True).paths == []
