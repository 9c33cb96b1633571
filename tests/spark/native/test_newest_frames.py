"""Frames that were read once show the newest version whenever they are used."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable
from trilake.errors import SchemaMismatchError, TableNotFoundError
from trilake.spark.native.newest_frames import pinned

READS: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "a path": lambda spark, path: spark.read.format("delta").load(path),
    "a path with a schema": lambda spark, path: spark.read.format("delta").schema("id BIGINT").load(path),
    "a name": lambda spark, path: spark.read.table("followed"),
    "the session": lambda spark, path: spark.table("followed"),
    "a path as a name": lambda spark, path: spark.table(f"delta.`{path}`"),
    "a table": lambda spark, path: DeltaTable.forPath(spark, path).toDF(),
    "a table with an alias": lambda spark, path: DeltaTable.forPath(spark, path).alias("followed").toDF(),
}


@pytest.fixture
def session(spark: SparkSession, table: str) -> Iterator[SparkSession]:
    trilake.register(spark)
    spark.sql(f"CREATE TABLE followed USING delta LOCATION '{table}'")
    yield spark
    trilake.uninstall(spark)
    spark.sql("DROP TABLE IF EXISTS followed")


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    trilake.write(pa.table({"id": [1, 2], "s": ["a", "b"]}), path)
    return path


def append(path: str, *ids: int) -> None:
    trilake.write(pa.table({"id": list(ids), "s": ["x"] * len(ids)}), path, mode="append")


def ids(frame: DataFrame) -> list[int]:
    return sorted(r.id for r in frame.select("id").collect())


@pytest.mark.parametrize(
    ("read", "installed"),
    [*((r, False) for r in READS.values()), (READS["a name"], True), (READS["the session"], True)],
    ids=[*READS, "a name, with SQL", "the session, with SQL"],
)
def test_a_frame_shows_what_others_wrote(
    session: SparkSession, table: str, read: Callable[[SparkSession, str], DataFrame], installed: bool
) -> None:
    if installed:
        trilake.install(session)
    frame = read(session, table)
    column, before = frame["id"], frame.where("id > 0")
    assert isinstance(frame, DataFrame)
    append(table, 3)
    assert ids(frame) == [1, 2, 3]
    assert ids(before) == [1, 2]  # what was made of it is Spark's own
    assert ids(frame.where(column > 1)) == ids(frame.where(frame.id > 1)) == [2, 3]
    DeltaTable.forPath(session, table).delete("id = 1")
    assert ids(frame) == [2, 3]
    assert ids(frame.join(before.withColumnRenamed("id", "other"), F.col("id") == F.col("other"))) == [2]


def test_names_stay_before_columns(session: SparkSession, table: str) -> None:
    frame = DeltaTable.forPath(session, table).alias("t").toDF()
    append(table, 3)
    assert ids(frame.where("t.id > 1")) == [2, 3]
    assert frame.select("_metadata.file_name").distinct().count() == 2


def test_a_version_that_was_asked_for_stays(session: SparkSession, table: str) -> None:
    asked = session.read.format("delta").option("versionAsOf", 0).load(table)
    behind = session.read.format("delta").load(f"{table}@v0")
    append(table, 3)
    assert ids(asked) == ids(behind) == [1, 2]


def test_a_cached_frame_stays(session: SparkSession, table: str) -> None:
    frame = session.read.format("delta").load(table).cache()
    assert frame.count() == 2
    append(table, 3)
    assert frame.count() == 2
    frame.unpersist()
    assert frame.count() == 3


def test_a_table_is_written_and_merged_into_itself(session: SparkSession, table: str) -> None:
    frame = session.read.format("delta").load(table)
    frame.write.format("delta").mode("append").save(table)
    assert ids(frame) == [1, 1, 2, 2]
    merge = DeltaTable.forPath(session, table).alias("t").merge(frame.alias("s"), "t.id = s.id AND false")
    merge.whenNotMatchedInsertAll().execute()
    assert frame.count() == 8
    DeltaTable.forPath(session, table).merge(frame, frame["id"] == F.lit(-1)).whenNotMatchedInsertAll().execute()
    assert frame.count() == 16


def test_columns_that_came_later_are_not_shown(session: SparkSession, table: str) -> None:
    frame = session.read.format("delta").load(table)
    trilake.write(pa.table({"id": [3], "more": [1]}), table, mode="append", schema_mode="merge")
    assert (frame.columns, ids(frame), len(frame.first() or ())) == (["id", "s"], [1, 2, 3], 2)


def test_a_column_that_is_gone_or_another_is_named(session: SparkSession, table: str) -> None:
    frame = session.read.format("delta").load(table)
    trilake.alter(table).set_properties({"delta.columnMapping.mode": "name"})
    trilake.alter(table).rename_column("s", "t")
    with pytest.raises(SchemaMismatchError, match="column 's' of the table is gone") as e:
        frame.count()
    assert isinstance(e.value, AnalysisException)
    assert e.value.getCondition() == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
    trilake.alter(table).rename_column("t", "s")
    assert frame.count() == 2
    trilake.write(pa.table({"id": ["x"], "s": ["y"]}), table, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaMismatchError, match="'id' of the table is string now, not bigint"):
        frame.show()


@pytest.mark.parametrize("versions", [1, 2, 3])
def test_a_table_that_was_made_anew_is_read(session: SparkSession, table: str, versions: int) -> None:
    append(table, 3)
    frame = session.read.format("delta").load(table)
    assert frame.count() == 3
    shutil.rmtree(table)
    with pytest.raises(TableNotFoundError):
        frame.count()
    for i in range(versions):
        append(table, 10 + i)
    assert frame.count() == versions
    assert ids(frame) == [10 + i for i in range(versions)]


def test_a_pinned_frame_stays(session: SparkSession, table: str) -> None:
    frame = session.read.format("delta").load(table)
    fixed = pinned(frame)
    append(table, 3)
    assert (fixed.count(), frame.count()) == (2, 3)
    assert pinned(5) == 5


def test_threads_see_whole_versions(session: SparkSession, table: str) -> None:
    frame, seen, failed = session.read.format("delta").load(table), set[int](), list[Exception]()

    def look() -> None:
        try:
            for _ in range(4):
                seen.add(frame.count())
        except Exception as e:  # noqa: BLE001 - shown below
            failed.append(e)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(3):
        append(table, 10 * i, 10 * i + 1)
    for t in threads:
        t.join()
    assert not failed
    assert seen <= {2, 4, 6, 8}
    assert frame.count() == 8
