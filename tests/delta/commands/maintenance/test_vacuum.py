"""Vacuum deletes only garbage, from object stores and local disks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.commands.maintenance.vacuum_world import HOUR, SCHEMA, WEEK, World
from tests.delta.tables import add, clocked, lines, log_of, metadata, protocol, remove, rows, with_runtime
from tests.runtimes import runtime_in_ms
from trilake.delta.commands.maintenance.vacuum import vacuum
from trilake.delta.commands.maintenance.vacuum_files import hidden
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import write_arrow
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore
from trilake.storage.staging import staging

# --- deleted and kept files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("stated", ["false", "true"])
def test_files_removed_by_a_lagging_clock_are_kept(stated: str, lite: bool) -> None:
    world = World(configuration={"delta.enableInCommitTimestamps": stated})
    world.write([(1, 1)])
    world.now += 3 * WEEK * HOUR
    behind = runtime_in_ms(lambda: world.now - 2 * WEEK * HOUR, new_id=world.runtime.new_id)
    request = WriteRequest("overwrite", from_arrow(SCHEMA))
    log = with_runtime(world.log, behind)
    write_arrow(log, SCHEMA, pa.table({"p": [2], "n": [2]}, schema=SCHEMA).to_batches(), request)
    world.now += HOUR
    assert world.vacuum(lite=lite).paths == []
    assert rows(world.read(0)) == world.versions[0]


def test_replaced_files_are_deleted_after_retention() -> None:
    world = World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    (old,) = world.log.tombstones(world.log.snapshot())["path"].to_pylist()
    world.now += WEEK * HOUR - 1000
    assert world.vacuum(dry_run=True).paths == []
    world.now += 1
    dry = world.vacuum(dry_run=True)
    assert (dry.paths, dry.dry_run, dry.version) == ([old], True, None)
    assert world.exists(old)
    assert world.log.head().version == 1
    done = world.vacuum()
    assert done.paths == [old]
    assert done.size == dry.size > 0
    assert not world.exists(old)
    assert rows(world.read()) == [{"p": 1, "n": 2}]


def test_history_records_vacuum_start_and_end() -> None:
    world = World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.now += 2 * WEEK * HOUR
    done = world.vacuum(retention_hours=200)
    history = ArrowDeltaTable(world.store, standard_engine()).history(2).to_pylist()
    assert done.version == 3
    assert [h["operation"] for h in history] == ["VACUUM END", "VACUUM START"]
    assert dict(history[0]["operationParameters"]) == {"status": "COMPLETED"}
    assert dict(history[0]["operationMetrics"]) == {"numDeletedFiles": "1", "numVacuumedDirectories": "1"}
    assert dict(history[1]["operationParameters"]) == {
        "retentionCheckEnabled": "true",
        "defaultRetentionMillis": str(WEEK * HOUR),
        "specifiedRetentionMillis": str(200 * HOUR),
    }
    assert dict(history[1]["operationMetrics"]) == {"numFilesToDelete": "1", "sizeOfDataToDelete": str(done.size)}
    assert world.vacuum(record=False).version is None
    assert world.log.head().version == 3


def test_old_unreferenced_files_go_and_hidden_ones_stay() -> None:
    world = World()
    world.write([(1, 1)])
    kept = [
        "_symlink_format_manifest/manifest",
        "_hidden",
        ".crc",
        "a/.b/c.parquet",
        "a/_b/c.parquet",
        "_delta_log/stray",
        "_change_data_2/x",
        "_p=1/x",
        "a/_SUCCESS",
    ]
    garbage = [
        "stray.parquet",
        "a/b/c.txt",
        "p=1/x",
        "_change_data/cdc-1.parquet",
        "ab/deletion_vector_x.bin",
        "ü %20 +",
    ]
    for key in [*kept, *garbage]:
        world.put(key)
    world.now += (WEEK + 1) * HOUR
    world.put("young.parquet")
    assert sorted(world.vacuum().paths) == sorted(garbage)
    assert all(world.exists(k) for k in [*kept, "young.parquet"])
    assert not any(world.exists(k) for k in garbage)


def test_files_of_nested_tables_are_kept() -> None:
    world = World()
    world.write([(1, 1)])
    for key in (
        "inner/_delta_log/00000000000000000000.json",
        "inner/x",
        "inner/p=1/x",
        "inner2/x",
        "a/b/_delta_log/x",
        "a/x",
    ):
        world.put(key)
    world.now += (WEEK + 1) * HOUR
    assert sorted(world.vacuum().paths) == ["a/x", "inner2/x"]


def test_folders_of_partition_columns_are_not_hidden() -> None:
    keys = pa.array(["_p=1/.q=2/x", "_p=1/_x", "_p=1", "_r=1/x", ".a%2Fb=1/x", "x/_p=1/.q=3/y", "_pp=1/x"])
    assert hidden(keys, ["_p", ".q", "n", ".a/b"]).to_pylist() == [False, True, True, True, False, False, True]
    world = World(partition_by=("p",))
    world.write([(1, 1), (2, 2)])
    world.write([(1, 3)], "overwrite")
    world.now += (WEEK + 1) * HOUR
    assert [p.partition("/")[0] for p in sorted(world.vacuum().paths)] == ["p=1", "p=2"]
    assert rows(world.read()) == [{"p": 1, "n": 3}]


def test_recent_tombstone_protects_an_old_file() -> None:
    world = World()
    world.write([(1, 1)])
    world.now += 5 * WEEK * HOUR
    world.write([(1, 2)], "overwrite")
    write_checkpoint(world.log, world.log.snapshot(), world.runtime)
    world.now += (WEEK - 1) * HOUR
    assert world.vacuum().paths == []
    assert rows(world.read(0)) == [{"p": 1, "n": 1}]
    world.now += 2 * HOUR
    assert len(world.vacuum().paths) == 1


def test_longer_retention_reads_tombstones_from_commits() -> None:
    """A checkpoint has no tombstones older than the table's retention; older ones are read from commits."""
    world = World(configuration={"delta.deletedFileRetentionDuration": "interval 1 hour"})
    world.write([(1, 1)])
    world.now += 100 * HOUR
    world.write([(1, 2)], "overwrite")
    world.now += 50 * HOUR
    write_checkpoint(world.log, world.log.snapshot(), world.runtime)
    assert world.vacuum(retention_hours=60).paths == []
    assert rows(world.read(0)) == [{"p": 1, "n": 1}]
    assert len(world.vacuum(retention_hours=49).paths) == 1


def test_retention_counts_from_the_commit_time() -> None:
    log = log_of([add("f0")], store=(store := MemoryStore(clock=lambda: 1000 * HOUR)))
    store.put("f0", b"x")
    store.put(commit_key(1), lines([add("f1"), remove("f0", deletionTimestamp=5 * HOUR)]))
    # The commit that removed f0 landed late: readers of version 0 may still be running.
    assert vacuum(clocked(log, lambda: (1000 + WEEK) * HOUR)).paths == []


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), "a week", True])
def test_invalid_retention_is_rejected(hours: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        vacuum(log_of([]), retention_hours=hours, enforce_retention=False)


def test_short_retention_is_rejected_unless_unenforced() -> None:
    world = World(configuration={"delta.deletedFileRetentionDuration": "interval 90 minutes"})
    world.write([(1, 1)])
    world.put("x")
    world.now += 1
    with pytest.raises(InvalidArgumentError, match="keep at least 2 hours") as caught:
        world.vacuum(retention_hours=1)
    assert "retentionDurationCheck.enabled" in str(caught.value)
    assert world.exists("x")
    assert world.vacuum(retention_hours=0, enforce_retention=False).paths == ["x"]
    start = ArrowDeltaTable(world.store, standard_engine()).history(2).to_pylist()[1]
    assert dict(start["operationParameters"])["retentionCheckEnabled"] == "false"


def test_unwritable_table_is_not_vacuumed() -> None:
    unknown = protocol(3, 7, readerFeatures=["vacuumProtocolCheck"], writerFeatures=["vacuumProtocolCheck", "new"])
    log = log_of([unknown, metadata()])
    log.store.put("x", b"x")
    with pytest.raises(UnsupportedProtocolError, match="new"):
        vacuum(with_runtime(log, runtime_in_ms(lambda: 10**15)))
    assert bytes(log.store.read("x")) == b"x"


# --- inventories -----------------------------------------------------------------------------------------------------


def test_inventory_replaces_the_listing() -> None:
    world = World()
    world.write([(1, 1)])
    for key in ("a/x", "y", "z"):
        world.put(key)
    old = world.now
    world.now += (WEEK + 1) * HOUR
    uri = world.store.uri
    inventory = pa.table(
        {
            "path": [f"{uri}/a/x", f"{uri}/y", f"{uri}/y", f"{uri}/a", "s3://other/z", f"{uri}-2/z"],
            "length": [1, 1, 1, 0, 1, 1],
            "isDir": [False, False, False, True, False, False],
            "modificationTime": [old, old, world.now, old, old, old],
        }
    )
    assert world.vacuum(inventory=inventory).paths == ["a/x"]
    with pytest.raises(InvalidArgumentError, match="inventory"):
        world.vacuum(inventory=inventory.drop_columns(["isDir"]))


# --- local disks -----------------------------------------------------------------------------------------------------


def _age(path: Path, hours: float) -> None:
    time = 1_000_000 * HOUR / 1000 - hours * 3600
    os.utime(path, (time, time), follow_symlinks=False)


def test_empty_folders_are_removed_despite_odd_names(tmp_path: Path) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    store = open_store(str(root))
    store.put(commit_key(0), lines([protocol(), metadata(), add("live/f.parquet")]))
    for name in ("live/f.parquet", "old/deep/er/x", "odd %2F +ü\n'\"/x", "new/x", "_kept/x", "half/x", "half/young"):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (root / "empty" / "er").mkdir(parents=True)
    (root / "fresh").mkdir()
    os.mkdir(os.fsencode(root) + b"/not text \xff")
    (Path(os.fsdecode(os.fsencode(root) + b"/not text \xff/x"))).write_text("x")
    for path in sorted([*root.rglob("*")], key=lambda p: -len(p.parts)):
        _age(path, 5 if path.name in ("young", "new", "fresh") or path.match("new/x") else 400)
    _age(outside / "precious", 400)
    (root / "linked").symlink_to(outside)
    (root / "a link").symlink_to(outside / "precious")
    done = vacuum(clocked(DeltaLog(store, standard_engine()), lambda: 1_000_000 * HOUR))
    assert {"old/deep/er/x", "odd %2F +ü\n'\"/x", "half/x"} <= set(done.paths)
    assert set(done.folders) == {"old/deep/er", "old/deep", "old", "odd %2F +ü\n'\"", "empty/er", "empty"}
    left = {str(p.relative_to(root)) for p in root.iterdir()}
    assert {"live", "new", "_kept", "half", "fresh", "linked"} <= left
    assert not {"old", "empty"} & left
    assert any(b"\xff" in name for name in os.listdir(os.fsencode(root)))
    assert (root / "half" / "young").exists()
    assert (outside / "precious").exists(), "what a link leads to is not the table's"
    assert not [p for p in done.paths if p.startswith("linked")]
    assert "a link" in done.paths
    assert not os.path.lexists(root / "a link")


def test_folders_are_scanned_twice_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trilake.write(pa.table({"p": range(5), "n": range(5)}), tmp_path, partition_by="p")
    scanned: list[str] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scanned.append(os.fspath(path).rstrip("/")) or real(path))
    assert vacuum(DeltaLog(open_store(str(tmp_path)), standard_engine()), dry_run=True).paths == []
    assert {p: scanned.count(p) for p in scanned if "p=" in p} == {f"{tmp_path}/p={i}": 2 for i in range(5)}


def test_old_staging_of_a_dead_job_is_removed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put(commit_key(0), lines([protocol(), metadata()]))
    for place in (tmp_path, tmp_path / "_hidden"):
        folder = staging(open_store(str(place)))
        assert folder is not None
        deep = Path(folder.__enter__().path, "_temporary", "0")
        deep.mkdir(parents=True)
        (deep / "part-0.parquet").write_bytes(b"half")
    (staged,) = tmp_path.glob(".trilake-*")
    now = next(iter(store.unfinished())).modified_ms
    assert vacuum(clocked(DeltaLog(store, standard_engine()), lambda: now + (WEEK - 1) * HOUR)).paths == []
    assert staged.exists()
    assert vacuum(clocked(DeltaLog(store, standard_engine()), lambda: now + (WEEK + 1) * HOUR)).paths == [
        f"{staged.name}/files/_temporary/0/part-0.parquet"
    ]
    assert not staged.exists()
    assert len(list((tmp_path / "_hidden").rglob("part-0.parquet"))) == 1, "what is hidden is none of its business"


def test_old_temporary_file_of_a_dead_writer_is_removed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put(commit_key(0), lines([protocol(), metadata()]))
    output = store.open_output("p=1/x.parquet")
    output.write(b"half")
    (left,) = store.unfinished()
    (log_file,) = [*store.list("_delta_log")]
    now = left.modified_ms
    assert (
        vacuum(clocked(DeltaLog(store, standard_engine()), lambda: now + (WEEK - 1) * HOUR), dry_run=True).paths == []
    )
    assert log_file.size
    assert vacuum(clocked(DeltaLog(store, standard_engine()), lambda: now + (WEEK + 1) * HOUR), record=False).paths == [
        left.key
    ]
    assert [*store.unfinished()] == []
    output.__exit__(ValueError, ValueError(), None)
