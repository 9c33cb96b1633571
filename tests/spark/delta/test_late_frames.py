"""Frames over large tables, whose files are listed during planning: same rows and files as other frames."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import trilake
from tests.conftest import SOAK
from tests.spark.native_files import settings
from trilake import DeltaTable
from trilake.common.lru_cache import LruCache
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, StorageError
from trilake.spark.scan import late_scan
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.planning.table_reads import own_reads
from trilake.spark.session.optimize_settings import LARGE_FILES

FILES, ROWS = 4, 10
VECTORS = {"delta.enableDeletionVectors": "true"}

#: A table's partition value by id (``None`` without partitions), its properties, and conditions for it.
KINDS: dict[str, tuple[Callable[[int], Any] | None, dict[str, str], list[str]]] = {
    "plain": (None, {}, ["d > 12", "isnan(d)", "id = 500"]),
    "folders": (lambda i: i % 2, VECTORS, ["p = 1", "p + 1 = 2 AND id > 5", "p IS NULL"]),
    "values": (lambda i: Decimal(f"{i % 2}.5"), VECTORS, ["p = 1.5", "p > 1 AND id < 9", "CAST(p AS int) = 0"]),
    "mapped by id": (lambda i: f"a/{i % 2}" if i % 3 else None, {"delta.columnMapping.mode": "id"}, ["p = 'a/1'"]),
    "mapped by name": (
        lambda i: dt.datetime(2024, 1, 1 + i % 2, 12, tzinfo=dt.UTC),
        {"delta.columnMapping.mode": "name", **VECTORS},
        ["hour(p) = 12", "p > TIMESTAMP '2024-01-01 13:00:00'"],
    ),
    "bytes": (lambda i: bytes([255, i % 2]), {}, ["p = X'FF01'"]),
    "days": (lambda i: dt.date(2024, 1, 1 + i % 2), VECTORS, ["p = DATE '2024-01-02'", "year(p) = 2024"]),
}
CONDITIONS = ["true", "id > 18 AND s <> 'x'", "s IS NULL OR upper(s) = 'V8'"]


def rows_of(ids: range, partition: Callable[[int], Any] | None) -> pa.Table:
    """Rows with these ids."""
    columns: dict[str, Any] = {
        "id": list(ids),
        "s": [f"v{i}" if i % 7 else None for i in ids],
        "d": [float(i) if i % 9 else float("nan") for i in ids],
    }
    return pa.table(columns if partition is None else {**columns, "p": [partition(i) for i in ids]})


def checkpoint(path: str) -> None:
    """Write the checkpoint of a table's newest version."""
    log = DeltaLog(trilake.storage.open_store(path))
    write_checkpoint(log, log.snapshot(), standard_engine().runtime)


@pytest.fixture(scope="module", params=[*KINDS] if SOAK else ["folders", "mapped by name"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """A table with most files in its checkpoint, and conditions; later commits add files, remove and mark some."""
    partition, properties, conditions = KINDS[request.param]
    path = str(tmp_path_factory.mktemp("late") / request.param.replace(" ", "-"))
    by = None if partition is None else "p"
    for i in range(FILES):
        ids = range(i * ROWS, (i + 1) * ROWS)
        trilake.write(rows_of(ids, partition), path, mode="append", partition_by=by, properties=properties)
        if i == FILES - 2:
            trilake.open(path).delete("id % 10 = 4")
            checkpoint(path)
    trilake.open(path).delete("id BETWEEN 20 AND 22")
    trilake.open(path).delete("id BETWEEN 10 AND 19")
    return path, [*CONDITIONS, *conditions]


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    """``spark.read.format("delta")`` reads with trilake."""
    trilake.register(spark)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every table with a checkpoint as large."""
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)


@pytest.fixture
def listed(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[int]]]:
    """The number of files in each list so far."""

    def numbers() -> list[int]:
        found = [re.match(r"listed (\d+) files of", r.message) for r in caplog.records]
        caplog.clear()
        return [int(m[1]) for m in found if m]

    with caplog.at_level(logging.INFO, "trilake.spark"):
        yield numbers


def both(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[DataFrame, ...]:
    """The frame with a file list, and the frame without one."""
    frames = []
    for size in (1 << 30, 0):
        monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", size)
        frames.append(spark.read.format("delta").options(**options).load(path))
    return tuple(frames)


def same(frames: tuple[DataFrame, ...], use: Callable[[DataFrame], DataFrame]) -> bool:
    """Whether both frames return the same rows."""
    one, other = (sorted(map(repr, use(frame).collect())) for frame in frames)
    return one == other


def check_conditions(frames: tuple[DataFrame, ...], conditions: list[str]) -> None:
    """The frame without a list returns, for each condition, the rows for which the other frame evaluates it to true."""
    one, other = frames
    row, count = Row(*one.columns), len(one.columns)
    found = one.select("*", *(F.expr(c).alias(f"holds {i}") for i, c in enumerate(conditions))).collect()
    for i, condition in enumerate(conditions, count):
        expected = sorted(repr(row(*r[:count])) for r in found if r[i])
        assert sorted(map(repr, other.where(condition).collect())) == expected, condition


def test_rows_match_other_frames(
    spark: SparkSession, table: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, listed: Callable[[], list[int]]
) -> None:
    path, conditions = table
    frames = both(spark, path, monkeypatch)
    assert frames[0].schema == frames[1].schema
    assert not listed()
    check_conditions(frames, conditions)
    assert listed()
    assert same(frames, lambda df: df.groupBy(df.columns[-1]).agg(F.count("*"), F.max("s")))
    names = ["id", "_metadata.file_path", "_metadata.file_size", "_metadata.row_index", "input_file_name() AS f"]
    assert same(frames, lambda df: df.where("id > 5").selectExpr(*names))
    assert frames[0].count() == frames[1].count()
    assert sorted(frames[0].inputFiles()) == sorted(frames[1].inputFiles())
    assert same(frames, lambda df: df.join(df.where("id < 6").withColumnRenamed("s", "t"), "id"))


def test_older_versions(
    spark: SparkSession, table: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, listed: Callable[[], list[int]]
) -> None:
    path, conditions = table
    for version in range(FILES - 1, trilake.open(path).version):
        frames = both(spark, path, monkeypatch, versionAsOf=version)
        check_conditions(frames, conditions[version % 2 :: 3])
    assert listed()


def test_conditions_select_files(
    spark: SparkSession, table: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, listed: Callable[[], list[int]]
) -> None:
    path, _conditions = table
    frame = both(spark, path, monkeypatch)[1]
    monkeypatch.setattr(DeltaLog, "load", None)  # no query may list all files
    assert frame.where("id = 5").count() == 1
    known = set(trilake.open(path).files("id = 5")["path"].to_pylist())
    assert listed() in ([len(known)], [1])
    assert frame.where("id = 5").select("s").collect()[0].s == "v5"
    again = spark.read.format("delta").load(path).where("id = 5")
    assert again.count() == again.count() == 1
    assert all(n <= len(known) for n in listed())
    again.explain()
    assert again.count() == 1
    assert not listed()  # the list for these conditions is cached


# --- common to all tables ---------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with five files in its checkpoint and one added later."""
    where = str(tmp_path / "t")
    for i in range(5):
        trilake.write(rows_of(range(i * ROWS, (i + 1) * ROWS), None), where, mode="append")
    checkpoint(where)
    trilake.write(rows_of(range(50, 60), None), where, mode="append")
    return where


def test_every_way_to_read_a_table(
    spark: SparkSession, path: str, large: None, listed: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaLog, "load", None)
    trilake.install(spark)
    try:
        frames = {
            "load": spark.read.format("delta").load(path),
            "read": trilake.read(spark, path),
            "forPath": DeltaTable.forPath(spark, path).toDF(),
            "alias": DeltaTable.forPath(spark, path).alias("t").toDF(),
            "table": spark.table(f"delta.`{path}`"),
            "sql": spark.sql(f"SELECT * FROM delta.`{path}`"),
        }
        assert not listed()
        for name, frame in frames.items():
            assert frame.where("id = 33").count() == 1, name
    finally:
        trilake.uninstall(spark)
    assert set(listed()) == {1}


def test_count_of_all_rows_lists_no_files(
    spark: SparkSession, path: str, large: None, listed: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.read.format("delta").load(path)
    with monkeypatch.context() as alone:
        alone.setattr(DeltaLog, "load", None)
        assert frame.count() == 60
        trilake.write(rows_of(range(60, 61), None), path, mode="append")
        assert frame.count() == 61
    assert not listed()
    monkeypatch.setattr(
        "trilake.delta.scan.large_tables.record_counts", lambda adds, _: pa.nulls(adds.num_rows, pa.int64())
    )
    assert frame.count() == 61
    assert listed() == [7]


def test_frame_follows_its_table(spark: SparkSession, path: str, large: None) -> None:
    frame = spark.read.format("delta").load(path)
    few = frame.where("id >= 55")
    assert few.count() == 5
    trilake.write(rows_of(range(60, 70), None), path, mode="append")
    assert few.count() == 15
    checkpoint(path)
    trilake.open(path).delete("id = 69")
    assert few.count() == 14
    assert few.join(frame.withColumnRenamed("s", "t"), "id").count() == 14


def test_cached_lists_are_small_except_the_newest(
    spark: SparkSession, path: str, large: None, listed: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_scan, "_lists", LruCache(64, 3, least=1))
    frame = spark.read.format("delta").load(path)
    for condition, count in (("id < 5", 5), ("id < 15", 15), ("id < 5", 5), ("true", 60), ("true", 60), ("id < 5", 5)):
        assert len(frame.where(condition).select("id").collect()) == count
    assert listed() == [1, 2, 6, 1]


@pytest.mark.parametrize("condition", ["id = 33", "id > 15 AND s IS NOT NULL", "true"])
def test_reads_are_recorded_for_a_write_to_the_table(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    uri = trilake.open(path).uri
    noted = list[tuple[object, ...]]()
    for frame in both(spark, path, monkeypatch):
        with own_reads(frame.where(condition), uri).watched() as read:
            frame.where(condition).collect()
        found = read()
        noted.append((found.whole_table, found.files, [p.filter.sql for p in found.predicates]))
    assert noted[0] == noted[1]
    assert noted[0][0] == (condition == "true")


def test_damaged_checkpoint_raises_a_typed_error(spark: SparkSession, path: str, large: None) -> None:
    frame = spark.read.format("delta").load(path)
    assert frame.where("id = 1").count() == 1
    log = Path(path, "_delta_log")
    other = frame.where("id = 2")
    [file] = log.glob("*.checkpoint.parquet")
    for commit in [*log.glob("*00[0-4].json")]:
        commit.unlink()
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(data)
    with pytest.raises(CorruptLogError, match="checkpoint cannot be read"):
        other.collect()


def test_table_without_files(spark: SparkSession, path: str, large: None) -> None:
    trilake.open(path).delete("true")
    frame = spark.read.format("delta").load(path)
    assert frame.where("id > 3").collect() == frame.collect() == []
    assert (frame.count(), frame.inputFiles()) == (0, [])


def test_file_ignored_by_spark_raises_a_typed_error(
    spark: SparkSession, path: str, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.read.format("delta").load(path)
    monkeypatch.setattr("trilake.spark.scan.obstacles.unreadable", lambda paths, version: paths[0].as_py())
    with pytest.raises(NativeScanError, match="Spark does not read files with such a name"):
        frame.where("id = 7").collect()


def test_files_are_looked_up_by_a_job(
    spark: SparkSession, path: str, large: None, listed: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set(LARGE_FILES, "0")
    try:
        with monkeypatch.context() as alone:
            # The driver looks up nothing.
            alone.setattr("trilake.spark.delta.reading.listed_frames.snapshot_for", None)
            frame = spark.read.format("delta").load(path)
            assert frame.where("id IN (12, 55)").count() == 2
            assert listed() == [2]
            assert (
                trilake.read(spark, path, filter="id = 12").inputFiles()
                == trilake.read(spark, path, filter="id = 13").inputFiles()
            )

        def failing(*args: Any) -> None:
            raise StorageError("no task sees the table")

        monkeypatch.setattr("trilake.spark.delta.reading.listed_frames.narrowed_by_jobs", failing)
        assert frame.where("id = 43").count() == 1
        assert listed() == [1]
    finally:
        spark.conf.unset(LARGE_FILES)


def test_conditions_use_the_session_time_zone(spark: SparkSession, tmp_path: Path, large: None) -> None:
    where = str(tmp_path / "times")
    for hour in (1, 12, 23):
        trilake.write(pa.table({"t": [dt.datetime(2024, 7, 1, hour, tzinfo=dt.UTC)]}), where, mode="append")
    checkpoint(where)
    frame = spark.read.format("delta").load(where)
    for zone, count in (("UTC", 1), ("Asia/Tokyo", 2)):
        with settings(spark, {"spark.sql.session.timeZone": zone}):
            assert frame.where("t > TIMESTAMP '2024-07-01 12:30:00'").count() == count


def test_row_tracking_tables_are_listed_eagerly(
    spark: SparkSession, tmp_path: Path, large: None, listed: Callable[[], list[int]]
) -> None:
    where = str(tmp_path / "tracked")
    trilake.write(rows_of(range(10), None), where, properties={"delta.enableRowTracking": "true"})
    checkpoint(where)
    assert spark.read.format("delta").load(where).where("_metadata.row_id = 3").count() == 1
    assert not listed()
