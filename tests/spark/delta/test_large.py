"""Commands on tables with very many files as Spark jobs: same results as on the driver."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from tests.delta.tables import add, lines, rows
from trilake import DeltaTable
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.checkpoint import sidecar_keys
from trilake.delta.log.checksum import read_checksum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, InvalidArgumentError
from trilake.spark.delta import large_vacuum
from trilake.spark.delta.large_vacuum import first_level, is_large, parts, vacuum_large
from trilake.spark.delta.source import DeltaReader
from trilake.spark.session.optimize_settings import LARGE_FILES, SparkJobs
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

DAY = 24 * 3600
V2 = {"delta.checkpointPolicy": "v2", "trilake.checkpoint.partSize": "3"}
CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[None]:
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)
    spark.conf.set(LARGE_FILES, "0")
    spark.conf.set(CHECK, "false")
    yield
    spark.conf.unset(LARGE_FILES)
    spark.conf.unset(CHECK)


def age(path: Path, days: float) -> None:
    """Make a file, or all below a folder, older."""
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    for file in files:
        at = time.time() - days * DAY
        os.utime(file, (at, at), follow_symlinks=False)


def table_of(path: Path, **properties: str) -> None:
    """A table with every kind of file that vacuum may find, some of them old."""
    conf = {"delta.checkpointInterval": "4", "delta.enableDeletionVectors": "true"}
    conf["delta.enableChangeDataFeed"] = "true"
    frame = pa.table({"n": list(range(40)), "day": [f"{i % 4}" for i in range(40)]})
    trilake.write(frame, path, partition_by=["day"], properties={**conf, **properties})
    table = trilake.open(path)
    table.delete("n = 3")
    table.update({"n": "n + 100"}, "day = '1'")
    trilake.write(frame.slice(0, 4), path, mode="overwrite", replace_where="n < 4")
    age(path, 30)
    trilake.write(frame.slice(4, 8), path, mode="overwrite", replace_where="day = '2' or n < 12")
    trilake.open(path).delete("n = 105")
    trilake.write(frame, path, mode="append")
    for name in ("day=1/old.parquet", "day=9/left/part-0.parquet", "loose.parquet", "_hidden/x", ".y", "day=0/a.trv"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"x" * 7)
        age(path / name, 20)
    (path / "day=2" / "young.parquet").write_bytes(b"x")
    (path / "elsewhere").symlink_to(path.parent / "outside")
    (path.parent / "outside").mkdir(exist_ok=True)
    (path.parent / "outside" / "theirs.parquet").write_bytes(b"x")
    age(path.parent / "outside", 20)
    trilake.write(frame, path / "inner" / "table")
    trilake.open(path / "inner" / "table").delete("n < 3")
    (path / "inner" / "loose").write_bytes(b"x")
    age(path / "inner", 20)
    before = path / "day=0" / "older-than-the-table.parquet"
    before.write_bytes(b"x")
    age(before, 400)
    for folder in ("day=9/left", "day=9", "_hidden"):
        os.utime(path / folder, (time.time() - 20 * DAY,) * 2)


def tree(path: Path) -> set[str]:
    found = {str(f.relative_to(path)) for f in path.rglob("*")}
    return {f for f in found if not f.startswith("_delta_log")}


@pytest.mark.parametrize(("hours", "properties"), [(0.0, V2), (5 * 24.0, {})], ids=str)
def test_jobs_delete_what_the_driver_deletes(
    spark: SparkSession, tmp_path: Path, hours: float, properties: dict[str, str]
) -> None:
    table_of(tmp_path / "a" / "t", **properties)
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    by_jobs, alone = (str(tmp_path / side / "t") for side in "ab")
    assert is_large(spark, DeltaLog(open_store(by_jobs)))
    shown = DeltaTable.forPath(spark, by_jobs).vacuum(hours, dryRun=True).collect()
    dry = {r.path.removeprefix(f"file:{by_jobs}/") for r in shown}
    assert DeltaTable.forPath(spark, by_jobs).vacuum(hours).collect() == []
    done = trilake.open(alone).vacuum(retention_hours=hours, dry_run=False, enforce_retention=False)
    assert sorted(dry) == sorted(done.paths)
    assert len(dry) > 3
    assert tree(tmp_path / "a" / "t") == tree(tmp_path / "b" / "t")
    assert (tmp_path / "a" / "outside" / "theirs.parquet").exists()
    assert rows(trilake.open(by_jobs).to_arrow()) == rows(trilake.open(alone).to_arrow())
    ends = [trilake.open(p).history(2).to_pylist() for p in (by_jobs, alone)]
    for name in ("operation", "operationParameters", "operationMetrics"):
        assert [e[name] for e in ends[0]] == [e[name] for e in ends[1]]


def test_lost_log_line_deletes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """If a sidecar reference is lost, its files would be garbage."""
    table_of(tmp_path / "t", **V2, **{"trilake.checkpoint.topLevelFormat": "json"})
    (top,) = DeltaLog(open_store(str(tmp_path / "t"))).segment().checkpoint_files
    file = tmp_path / "t" / top.key
    named = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for i, line in enumerate(named) if b'"sidecar"' not in line or i % 2))
    before = tree(tmp_path / "t")
    with pytest.raises(CorruptLogError, match="does not match its hint"):
        DeltaTable.forPath(spark, str(tmp_path / "t")).vacuum(0.0)
    assert tree(tmp_path / "t") == before


def test_concurrently_restored_files_are_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit adds old files again after the garbage is listed and VACUUM START is committed."""
    path = tmp_path / "t"
    table_of(path)
    log = DeltaLog(open_store(str(path)), standard_engine())
    real: Callable[..., object] = large_vacuum.committed_since

    def commit_first(log: DeltaLog, version: object) -> object:
        newest = log.head().version
        log.store.put(commit_key(newest + 1), lines([add("day=1/old.parquet", partitionValues={"day": "1"}, size=7)]))
        return real(log, version)

    monkeypatch.setattr(large_vacuum, "committed_since", commit_first)
    vacuum_large(spark, log, retention_hours=0.0, dry_run=False, enforce_retention=False, record=True)
    assert (path / "day=1" / "old.parquet").exists()
    assert not (path / "loose.parquet").exists()
    [end] = trilake.open(str(path)).history(1).to_pylist()
    assert int(dict(end["operationMetrics"])["numDeletedFiles"]) > 3


def test_failed_deletion_is_recorded_in_the_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(tmp_path / "t")

    def broken(*_: object) -> object:
        raise PythonException("no more")

    monkeypatch.setattr(large_vacuum, "map_rows", broken)
    monkeypatch.setattr(large_vacuum, "_without_foreign", lambda *a: a[-1])
    with pytest.raises(PythonException):
        DeltaTable.forPath(spark, str(tmp_path / "t")).vacuum(0.0)
    last = trilake.open(tmp_path / "t").history(1).to_pylist()[0]
    assert (last["operation"], dict(last["operationParameters"])["status"]) == ("VACUUM END", "FAILED")


# --- checkpoints ------------------------------------------------------------------------------------------------------


def parted(path: Path, files: int, **properties: str) -> str:
    """A table of ``count + 1`` files with a checkpoint per version, by default of version 2."""
    frame = pa.table({"n": list(range(files)), "day": [f"{i:02d}" for i in range(files)]})
    conf = {"delta.checkpointInterval": "1", "delta.checkpointPolicy": "v2", **properties}
    trilake.write(frame, path, partition_by=["day"], properties=conf)
    trilake.write(pa.table({"n": [100], "day": ["07"]}), path, mode="append")
    return str(path)


def state_of(path: str) -> tuple[Any, ...]:
    log = DeltaLog(open_store(path))
    snapshot = log.snapshot()
    adds = snapshot.adds.drop_columns(["dataChange", "modificationTime"])
    totals = read_checksum(log.store, snapshot.version)
    assert totals is not None
    return rows(adds), log.tombstones(snapshot).num_rows, totals.num_files, totals.table_size_bytes


@pytest.mark.parametrize("extension", ["parquet", "json"])
def test_jobs_write_the_checkpoint_that_the_driver_writes(
    spark: SparkSession, tmp_path: Path, extension: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes and appends through ``DeltaTable``: other readers see the same, and every check passes."""
    size = {"trilake.checkpoint.partSize": "4", "trilake.checkpoint.topLevelFormat": extension}
    path = parted(tmp_path / "t", 12, **size)
    before = set(sidecar_keys(open_store(path), DeltaLog(open_store(path)).segment()))
    called: list[int] = []
    real = SparkJobs.run

    def counted(self: SparkJobs, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Any:
        called.append(len(tasks))
        return real(self, function, tasks)

    monkeypatch.setattr(SparkJobs, "run", counted)
    DeltaTable.forPath(spark, path).delete("n = 3")
    log = DeltaLog(open_store(path))
    assert log.segment().checkpoint_version == 2
    assert called
    assert set(sidecar_keys(log.store, log.segment())) & before
    adds, tombstones, files, size_in_bytes = state_of(path)
    assert (len(adds), tombstones, files) == (12, 1, 12)
    assert size_in_bytes == sum(a["size"] for a in adds)
    peer = deltalake.DeltaTable(path)
    assert sorted(unquote(u).partition("/t/")[2] for u in peer.file_uris()) == sorted(unquote(a["path"]) for a in adds)
    assert trilake.verify(path).ok
    spark.conf.set(LARGE_FILES, "1000000")
    called.clear()
    DeltaTable.forPath(spark, path).delete("n = 4")
    assert not called


def test_failed_task_writes_no_checkpoint(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = parted(tmp_path / "t", 12, **{"trilake.checkpoint.partSize": "4"})
    store = open_store(path)
    lost = sidecar_keys(store, DeltaLog(store).segment())[0]
    kept = bytes(store.read(lost))
    store.put(lost, kept[: len(kept) // 2])
    first = {commit_key(v): bytes(store.read(commit_key(v))) for v in (0, 1)}
    store.delete(list(first))  # they would replace the checkpoint
    rows = spark.createDataFrame([(n, f"{n:02d}") for n in range(12)], "n long, day string")
    trilake.write(rows, path, mode="append")  # reads no file of the table
    assert DeltaLog(store).segment().checkpoint_version == 1
    assert "its checkpoint failed" in caplog.text
    for key, content in {lost: kept, **first}.items():
        store.put(key, content)
    DeltaTable.forPath(spark, path).delete("n = 5")
    assert DeltaLog(store).segment().checkpoint_version == 3
    assert len(state_of(path)[0]) == state_of(path)[2] > 12
    assert trilake.verify(path).ok


def test_first_v2_checkpoint_is_written_by_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """The older one is a single file, which may list a file twice."""
    path = parted(tmp_path / "t", 12, **{"delta.checkpointPolicy": "classic"})
    DeltaTable.forPath(spark, path).delete("n = 5")
    Alter(DeltaLog(open_store(path), standard_engine())).set_properties({"delta.checkpointPolicy": "v2"})
    DeltaTable.forPath(spark, path).delete("n = 6")
    log = DeltaLog(open_store(path))
    assert sidecar_keys(log.store, log.segment())
    assert state_of(path)[1:3] == (2, 11)
    assert len(deltalake.DeltaTable(path).file_uris()) == 11


def test_duplicate_strings_are_found_by_a_job(spark: SparkSession) -> None:
    jobs = SparkJobs(spark, "file:/t")
    assert jobs.repeated(letters, ["abc", "de"]) is None
    assert jobs.repeated(letters, ["abc", "dea"]) == "a"


def letters(text: str) -> Iterator[pa.ChunkedArray]:
    yield pa.chunked_array([list(text)])


# --- filters ----------------------------------------------------------------------------------------------------------


def test_filter_keeps_only_matching_files_on_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parted(tmp_path / "t", 12)

    def fail(*_: object) -> object:
        raise AssertionError("all files are read")

    monkeypatch.setattr(DeltaLog, "load", fail)
    found = trilake.read(spark, path, filter="n > 9 and day < '11'")
    assert sorted(r.n for r in found.collect()) == [10, 100]
    assert len(found.inputFiles()) == 2
    assert trilake.read(spark, path, filter="n > 1000").count() == 0
    schema = T.StructType([T.StructField("n", T.LongType())])
    reader = DeltaReader(path, {}, DeltaLog(open_store(path)).opened(), schema, "n = 4")
    (part,) = reader.partitions()
    assert [b.column("n").to_pylist() for b in reader.read(part)] == [[4]]
    monkeypatch.undo()
    assert trilake.read(spark, path).count() == 13


# --- settings ---------------------------------------------------------------------------------------------------------


def test_threshold_for_large_tables(spark: SparkSession, tmp_path: Path) -> None:
    table_of(tmp_path / "t")
    log = DeltaLog(open_store(str(tmp_path / "t")))
    assert is_large(spark, log)
    spark.conf.set(LARGE_FILES, "1000")
    assert not is_large(spark, log)
    spark.conf.set(LARGE_FILES, "many")
    with pytest.raises(InvalidArgumentError, match="largeTableFiles"):
        is_large(spark, log)


def test_first_level_is_one_request_per_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for key in ("_delta_log/0.json", "a", "b/1", "b/2", "b/c/3", "b0", "c=1/x", "c=10/y", "\U0010ffff/z"):
        store.put(key, b"")
    found = [e if isinstance(e, str) else e.key for e in first_level(store)]
    assert sorted(found) == sorted(["a", "b", "b0", "c=1", "c=10", "\U0010ffff"])
    assert set(parts(store)) == {"b", "c=1", "c=10", "\U0010ffff", ""}
    monkeypatch.setattr(large_vacuum, "_LOOSE", 1)
    assert parts(store) == ["/"]
