"""Vacuum deletes only the table's own files: links, nested tables, files older than the table, golden tables."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.delta.commands.maintenance.vacuum_world import HOUR, SCHEMA, WEEK, World
from tests.delta.tables import add, clocked, lines, log_of, metadata, protocol, remove, rows, with_runtime
from tests.runtimes import runtime_in_ms
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commands.maintenance.vacuum import LAST_VACUUM, vacuum
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import write_arrow
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import decoded_paths
from trilake.delta.protocol.deletion_vectors import z85_encode
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ClockError, MissingFileError
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

# --- tables of other writers -----------------------------------------------------------------------------------------


REAL = [
    "basic-with-vacuum-protocol-check-feature",
    "dv-partitioned-with-checkpoint",
    "k-cdf-table-with-cdc-and-dvs",
    "k-v2-checkpoints-json-with-sidecars",
    "log-replay-special-characters-b",
    "log-replay-dv-key-cases",
    "only-checkpoint-files",
    "rs-cdc_ict_table",
    "rs-table-with-dv-small",
    "snapshot-repartitioned",
    "table-with-columnmapping-mode-name",
    "data-reader-partition-values",
]


@pytest.mark.parametrize("name", REAL)
def test_live_files_of_golden_tables_are_kept(shared: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(shared / "corpus" / "delta" / "golden" / name / "delta", tmp_path / "t")
    log = DeltaLog(open_store(str(tmp_path / "t")), standard_engine())
    before = {o.key for o in log.store.list()}
    try:
        expected = rows(ArrowDeltaTable(log.store, standard_engine()).to_arrow())
    except MissingFileError:
        expected = []
    log = clocked(log, lambda: 10**14)
    assert vacuum(log, dry_run=True, lite="only" not in name).paths is not None
    done = vacuum(log, retention_hours=0, enforce_retention=False, record=False)
    assert {o.key for o in log.store.list()} == before - set(done.paths) | {LAST_VACUUM}
    assert not set(done.paths) & set(decoded_paths(log.snapshot().adds["path"]).to_pylist())
    if expected:
        assert rows(ArrowDeltaTable(log.store, standard_engine()).to_arrow()) == expected
    assert vacuum(log, retention_hours=0, enforce_retention=False, record=False).paths == []


def test_vacuum_on_an_object_store(s3_options: Mapping[str, str]) -> None:
    store = open_store("s3://lake/maintained table", dict(s3_options))
    table = pa.table({"p": [1, 2], "n": [1, 2]}, schema=SCHEMA)
    log = DeltaLog(store, standard_engine())
    modes: tuple[Any, ...] = ("append", "overwrite")
    for mode in modes:
        request = WriteRequest(mode, from_arrow(SCHEMA), partition_by=("p",))
        write_arrow(log, SCHEMA, iter(table.to_batches()), request)
    store.put("p=9/stray", b"x")
    done = vacuum(clocked(log, lambda: 10**14))
    assert (len(done.paths), done.folders) == (3, ())
    assert [o.key for o in store.list("p=9")] == []
    assert rows(ArrowDeltaTable(store, standard_engine()).to_arrow()) == rows(table)
    copy = DeltaLog(open_store("s3://lake/a copy", dict(s3_options)), standard_engine())
    assert clone(log.snapshot(), log, copy).num_copied_files == 2
    shallow = DeltaLog(open_store("s3://lake/a reference", dict(s3_options)), standard_engine())
    clone(log.snapshot(), log, shallow, shallow=True)
    for place in (copy, shallow):
        assert rows(ArrowDeltaTable(place.store, standard_engine()).to_arrow()) == rows(
            ArrowDeltaTable(store, standard_engine()).to_arrow()
        )


# --- foreign files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lite", [False, True])
def test_files_behind_a_link_are_kept(tmp_path: Path, lite: bool) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    made = uuid.UUID(int=5)
    vector_file = f"deletion_vector_{made}.bin"
    linked_vector = {"storageType": "u", "pathOrInlineDv": "vv" + z85_encode(made.bytes), "offset": 1}
    linked_vector |= {"sizeInBytes": 4, "cardinality": 1}
    log = log_of(
        [add("p=1/f"), add("own/g")],
        [
            remove("p=1/f", deletionTimestamp=1, deletionVector=linked_vector),
            remove("p=1/deep/h", deletionTimestamp=1),
            remove("own/g", deletionTimestamp=1),
        ],
        store=open_store(str(root)),
    )
    for name in ("f", "deep/h", vector_file, "stray"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text("theirs")
    (root / "own").mkdir()
    (root / "own" / "g").write_text("ours")
    for link in ("p=1", "vv"):
        (root / link).symlink_to(outside)
    done = vacuum(clocked(log, lambda: 10**13), lite=lite)
    assert done.paths == ["own/g"]
    assert sorted(p.name for p in outside.rglob("*") if p.is_file()) == sorted(["f", "h", vector_file, "stray"])


@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("place", ["local", "memory"])
def test_files_of_a_nested_table_are_kept(tmp_path: Path, lite: bool, place: str) -> None:
    store = open_store(str(tmp_path)) if place == "local" else MemoryStore(clock=lambda: 1)
    marks = ["a/_delta_log/0.json", "b/c/_versions/1.manifest", "d/_staged/x.plan", "e/metadata/v1.metadata.json"]
    inner = ["a/f", "a/p=1/f", "b/c/f", "d/f", "e/data/f"]
    removes = [remove(p, deletionTimestamp=1) for p in [*inner, "b/f", "g"]]
    log = log_of([add("g")], removes, store=store)
    for key in [*marks, *inner, "b/f", "g"]:
        store.put(key, b"x")
    assert vacuum(clocked(log, lambda: 10**13), lite=lite).paths == ["b/f", "g"]
    assert {o.key for o in store.list()} >= {*marks, *inner}


def test_unreferenced_files_older_than_the_table_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    foreign = ["a.csv", f"part-00000-{uuid.UUID(int=1)}-c000.snappy.parquet", "p=1/old.parquet"]
    dead = f"part-00000-{uuid.UUID(int=2)}-{'0' * 8}.c000.zstd.parquet"
    for key in [*foreign, dead]:
        world.put(key)
    world.now += HOUR
    world.store.options["allow_foreign_files"] = "true"
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    for key in ("younger.parquet", "other.trv"):
        world.put(key)
    world.now += (WEEK + 1) * HOUR
    planned = world.vacuum(dry_run=True)
    done = world.vacuum()
    assert done.paths == planned.paths
    assert set(done.paths) >= {"younger.parquet", dead}
    assert len(done.paths) == 3
    assert sorted(done.foreign["path"].to_pylist()) == sorted([*foreign, "other.trv"])
    assert all(world.exists(key) for key in [*foreign, "other.trv"])
    assert "4 foreign files kept" in repr(done)
    assert "remove them by hand" in caplog.text


def test_removed_files_of_a_converted_table_are_deleted() -> None:
    """They are older than the table, but in its log."""
    store = MemoryStore(clock=lambda: 10 * HOUR)
    created = metadata()
    created["metaData"]["createdTime"] = 100 * HOUR
    old = remove("original.parquet", deletionTimestamp=200 * HOUR)
    store.put("original.parquet", b"x")
    store.put("never.parquet", b"x")
    log = log_of([created, add("original.parquet")], [old, add("new.parquet")], store=store)
    store.delete([commit_key(0)])
    store.put(commit_key(0), lines([protocol(), created, add("original.parquet")]))
    done = vacuum(clocked(log, lambda: 1000 * HOUR))
    assert done.paths == ["never.parquet", "original.parquet"], "version 0 is older than its metadata says"


def test_clock_ahead_of_the_store_deletes_nothing() -> None:
    world = World()
    world.write([(1, 1)])
    world.write([(1, 2)], "overwrite")
    world.put("young")
    ahead = runtime_in_ms(lambda: world.now + 40 * 24 * HOUR)
    for how in ({}, {"dry_run": True}, {"lite": True}, {"retention_hours": 0, "enforce_retention": False}):
        before = [o.key for o in world.store.list()]
        with pytest.raises(ClockError, match="ahead of the store's"):
            vacuum(with_runtime(world.log, ahead), **how)
        assert [o.key for o in world.store.list()] == before
    behind = runtime_in_ms(lambda: world.now - 40 * 24 * HOUR)
    assert vacuum(with_runtime(world.log, behind), record=False).paths == []


def test_old_temporary_log_files_are_removed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put(commit_key(0), lines([protocol(), metadata()]))
    names = [f".trilake-{c * 24}.tmp" for c in "abcde"]
    folders = ("", "_delta_log/", "_delta_log/_sidecars/", "_symlink_format_manifest/")
    left = [f"{folder}{name}" for folder, name in zip(folders, names, strict=False)]
    for key in [*left, f"_hidden/{names[4]}", "_delta_log/.trilake-notes.tmp"]:
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_text("x")
    log = clocked(DeltaLog(store, standard_engine()), lambda: 10**13)
    assert vacuum(log, lite=True, dry_run=True).paths == left[1:3]
    assert sorted(vacuum(log).paths) == sorted(left)
    assert (tmp_path / "_hidden" / names[4]).exists()
    assert (tmp_path / "_delta_log" / ".trilake-notes.tmp").exists()
