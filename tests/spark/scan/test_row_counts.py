"""Counts from footers and deletion vectors equal those of a query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trilake
from trilake import DeltaTable
from trilake.errors import MissingFileError
from trilake.spark.scan import frame_tables

FRAMES: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "a path": lambda spark, path: spark.read.format("delta").load(path),
    "a schema": lambda spark, path: spark.read.format("delta").schema("id INT").load(path),
    "a path as a name": lambda spark, path: spark.table(f"delta.`{path}`"),
    "a table": lambda spark, path: DeltaTable.forPath(spark, path).toDF(),
    "an alias": lambda spark, path: DeltaTable.forPath(spark, path).alias("t").toDF(),
}


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    trilake.create(path, {"id": "long", "c": "char(3)"}, properties={"delta.enableDeletionVectors": "true"})
    for start in (0, 10):
        trilake.write(pa.table({"id": range(start, start + 10), "c": ["x"] * 10}), path, mode="append")
    trilake.open(path).delete("id % 4 = 1")
    return path


@pytest.fixture
def short_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The counts from footers and deletion vectors."""
    counted: list[int] = []
    count = frame_tables.RowCount.count

    def record(self: frame_tables.RowCount) -> int:
        counted.append(count(self))
        return counted[-1]

    monkeypatch.setattr(frame_tables.RowCount, "count", record)
    return counted


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_deleted_rows_are_subtracted_from_footer_counts(
    spark: SparkSession, table: str, short_counts: list[int], frame: Callable[[SparkSession, str], DataFrame]
) -> None:
    trilake.register(spark)
    rows = frame(spark, table)
    assert (rows.count(), len(rows.collect()), short_counts) == (15, 15, [15])
    trilake.open(table).delete("id = 0")
    assert (rows.count(), len(rows.collect()), short_counts) == (14, 14, [15, 14])


def test_only_whole_tables_with_deletions_use_footer_counts(
    spark: SparkSession, table: str, short_counts: list[int]
) -> None:
    trilake.register(spark)
    rows = spark.read.format("delta").load(table)
    assert [rows.where("id < 5").count(), rows.select("id").limit(7).count(), rows.distinct().count()] == [4, 7, 15]
    cached = rows.cache()
    assert cached.count() == 15
    cached.unpersist()
    assert short_counts == []


def test_vector_of_a_file_with_unknown_row_count_is_read(
    spark: SparkSession, table: str, short_counts: list[int]
) -> None:
    trilake.register(spark)
    for commit in Path(table, "_delta_log").glob("*.json"):
        commit.write_text(commit.read_text().replace('\\"numRecords\\":10', '\\"numRecord\\":10'))
    assert (spark.read.format("delta").load(table).count(), short_counts) == (15, [])


def test_count_detects_a_missing_file(spark: SparkSession, table: str) -> None:
    trilake.register(spark)
    rows = spark.read.format("delta").load(table)
    next(Path(table).glob("*.parquet")).unlink()
    with pytest.raises(MissingFileError):
        rows.count()
