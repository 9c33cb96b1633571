"""Temporary views of DataFrames over one table show its newest rows, and can change the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.spark.session.compat import error_condition

READS: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "a path": lambda spark, path: spark.read.format("delta").load(path),
    "a name": lambda spark, path: spark.read.table("seen"),
    "the session": lambda spark, path: spark.table(f"delta.`{path}`"),
    "a table": lambda spark, path: DeltaTable.forPath(spark, path).toDF(),
    "all columns": lambda spark, path: spark.sql("SELECT * FROM seen"),
    "a path with an alias": lambda spark, path: spark.read.format("delta").load(path).alias("n"),
    "a name with an alias": lambda spark, path: spark.table("seen").alias("n").alias("m"),
    "some columns": lambda spark, path: spark.sql(f"SELECT text, id FROM delta.`{path}`"),
}


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.sql(f"CREATE TABLE seen (id INT, text STRING) USING delta LOCATION '{tmp_path / 't'}'")
    spark.sql("INSERT INTO seen VALUES (1, 'a'), (2, 'b')")
    yield spark
    spark.sql("DROP TABLE IF EXISTS seen")
    for name in ("v", "w"):
        spark.catalog.dropTempView(name)
    spark.catalog.dropGlobalTempView("g")
    trilake.uninstall(spark)


def rows(frame: DataFrame) -> list[tuple[int, str]]:
    return sorted((r.id, r.text) for r in frame.collect())


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_view_of_a_frame_reads_and_changes_its_table(
    sql: SparkSession, tmp_path: Path, read: Callable[[SparkSession, str], DataFrame]
) -> None:
    read(sql, str(tmp_path / "t")).createOrReplaceTempView("v")
    sql.sql("INSERT INTO seen VALUES (3, 'c')")
    assert rows(sql.sql("SELECT * FROM v")) == [(1, "a"), (2, "b"), (3, "c")] == rows(sql.table("v"))
    sql.sql("DELETE FROM v WHERE v.id = 1")
    sql.sql("UPDATE v SET text = 'z' WHERE id = 2")
    sql.sql("MERGE INTO v USING (SELECT 4 AS id, 'd' AS text) s ON v.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert rows(sql.table("seen")) == [(2, "z"), (3, "c"), (4, "d")]


def test_relative_path_without_slash(sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sql.read.format("delta").load("t").createOrReplaceTempView("v")
    assert rows(sql.sql("SELECT * FROM v")) == [(1, "a"), (2, "b")] == rows(sql.sql("SELECT * FROM delta.`t`"))
    sql.sql("DELETE FROM v WHERE v.id = 1")
    sql.sql("INSERT INTO v VALUES (3, 'c')")
    sql.sql("UPDATE delta.`t` SET text = 'z' WHERE id = 2")
    assert rows(sql.sql("SELECT * FROM DELTA.t")) == [(2, "z"), (3, "c")] == rows(sql.table("v"))
    assert rows(sql.sql("SELECT * FROM delta.`t@v1`")) == [(1, "a"), (2, "b")]


def test_database_name_is_not_a_path(sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        sql.sql("CREATE TABLE delta.t (id INT) USING delta")
    sql.sql("CREATE DATABASE delta")
    try:
        with pytest.raises(AnalysisException):
            sql.sql("SELECT * FROM delta.t")
    finally:
        sql.sql("DROP DATABASE delta CASCADE")


def test_view_keeps_its_columns(sql: SparkSession) -> None:
    sql.sql("ALTER TABLE seen SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    sql.sql("CREATE TEMP VIEW w AS SELECT * FROM seen")
    sql.table("seen").createTempView("v")
    sql.sql("ALTER TABLE seen ADD COLUMN more INT FIRST")
    assert sql.sql("SELECT * FROM v").columns == ["id", "text"] == sql.sql("SELECT * FROM w").columns
    sql.sql("ALTER TABLE seen RENAME COLUMN text TO words")
    for name in ("v", "w"):
        with pytest.raises(SchemaMismatchError, match=f"the view {name} was created with the column text"):
            sql.sql(f"SELECT * FROM {name}")


def test_global_view_shows_the_newest_rows(sql: SparkSession) -> None:
    for make in (
        lambda: sql.table("seen").createGlobalTempView("g"),
        lambda: sql.sql("CREATE OR REPLACE GLOBAL TEMP VIEW g AS SELECT * FROM seen"),
    ):
        make()
        sql.sql("INSERT INTO seen VALUES (3, 'c')")
        assert rows(sql.newSession().sql("SELECT * FROM global_temp.g"))[-1] == (3, "c")
        sql.sql("DELETE FROM global_temp.g WHERE id = 3")
        assert rows(sql.table("seen")) == [(1, "a"), (2, "b")]


def test_permanent_view_cannot_read_a_temporary_one(sql: SparkSession) -> None:
    """Other sessions do not have it, or have another table or view of the name."""
    sql.table("seen").createTempView("v")
    sql.range(1).createTempView("w")
    sql.table("seen").where("id > 0").createGlobalTempView("g")
    sql.sql("CREATE VIEW lasting AS WITH v AS (SELECT * FROM seen) SELECT * FROM v")
    try:
        for query in ("SELECT * FROM v", "SELECT * FROM seen JOIN w USING (id)", "TABLE global_temp.g"):
            for create in ("CREATE OR REPLACE VIEW", "ALTER VIEW"):
                with pytest.raises(AnalysisException, match="cannot read the temporary view") as caught:
                    sql.sql(f"{create} lasting AS {query}")
                assert error_condition(caught.value) == "INVALID_TEMP_OBJ_REFERENCE"
        assert rows(sql.table("lasting")) == [(1, "a"), (2, "b")]
    finally:
        sql.sql("DROP VIEW lasting")


def test_global_view_of_a_join_belongs_to_the_session_that_reads_it(sql: SparkSession) -> None:
    seen = sql.table("seen")
    seen.join(seen.select("id"), "id").createGlobalTempView("g")
    other = sql.newSession()
    assert rows(other.sql("SELECT * FROM global_temp.g WHERE id = 1")) == [(1, "a")]
    other.table("global_temp.g").createTempView("v")
    other.sql("MERGE INTO seen t USING global_temp.g s ON t.id = s.id AND s.id = 1 WHEN MATCHED THEN DELETE")
    assert rows(other.sql("SELECT * FROM v")) == [(2, "b")] == rows(sql.sql("SELECT * FROM global_temp.g"))


def test_columns_of_a_frame_may_be_qualified_by_its_table(sql: SparkSession) -> None:
    for frame in (sql.table("seen"), sql.read.table("default.seen")):
        assert rows(frame.where("seen.id = 1 AND default.seen.text = spark_catalog.default.seen.text")) == [(1, "a")]
        assert frame.select("_metadata.file_path").count() == 2


def test_view_of_a_cached_frame_reads_the_cache(sql: SparkSession) -> None:
    frame = sql.table("seen").cache()
    frame.createOrReplaceTempView("v")
    frame.count()
    sql.sql("INSERT INTO seen VALUES (3, 'c')")
    assert len(rows(sql.sql("SELECT * FROM v"))) == 2
    frame.unpersist()
    assert len(rows(sql.sql("SELECT * FROM v"))) == 3


def test_view_of_another_frame_shows_its_rows(sql: SparkSession, tmp_path: Path) -> None:
    versioned = sql.read.format("delta").option("versionAsOf", 1).load(str(tmp_path / "t"))
    for frame in (sql.table("seen").where("id > 0"), versioned, sql.sql("SELECT * FROM seen WHERE id > 0")):
        frame.createOrReplaceTempView("v")
        sql.sql("INSERT INTO seen VALUES (3, 'c')")
        assert rows(sql.sql("SELECT * FROM v")) == [(1, "a"), (2, "b"), *([] if frame is versioned else [(3, "c")])]
        with pytest.raises(InvalidArgumentError, match="view of a DataFrame") as caught:
            sql.sql("DELETE FROM v WHERE id = 1")
        assert isinstance(caught.value, AnalysisException)
        sql.sql("DELETE FROM seen WHERE id = 3")


def test_view_over_a_view_of_the_same_name(sql: SparkSession) -> None:
    sql.table("seen").createOrReplaceTempView("v")
    sql.sql("SELECT * FROM v").createOrReplaceTempView("v")
    assert rows(sql.table("v")) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("kind", ["TEMP VIEW", "VIEW"])
def test_query_that_reads_its_own_view_is_rejected(sql: SparkSession, kind: str) -> None:
    sql.sql(f"CREATE {kind} v AS SELECT * FROM seen")
    sql.sql(f"CREATE {kind} w AS SELECT id, text FROM v")
    try:
        for statement in (
            f"CREATE OR REPLACE {kind} v AS SELECT * FROM V WHERE id > 1",
            f"CREATE OR REPLACE {kind} v AS SELECT * FROM seen WHERE id IN (SELECT id FROM w)",
            "ALTER VIEW v AS SELECT * FROM w",
        ):
            with pytest.raises(InvalidArgumentError, match="cannot select from itself") as caught:
                sql.sql(statement)
            assert caught.value.getSqlState() == "42K0H"
        assert rows(sql.table("v")) == [(1, "a"), (2, "b")]
    finally:
        for name in "vw":
            sql.sql(f"DROP VIEW {name}")


#: Changes of ``copy``, with ids 1 to 3, that read the frame ``{v}``, and the ids after it.
CHANGES = {
    "DELETE FROM copy WHERE id IN (SELECT id FROM {v})": [],
    "UPDATE copy SET id = (SELECT max(id) FROM {v})": [3, 3, 3],
    "MERGE INTO copy USING {v} AS s ON copy.id = s.id WHEN MATCHED THEN DELETE": [],
    "INSERT OVERWRITE copy SELECT * FROM {v} WHERE id > 1": [2, 3],
    "CREATE OR REPLACE TABLE copy USING delta AS SELECT * FROM {v} WHERE id > 2": [3],
}


def test_changes_read_the_newest_rows_of_frames(sql: SparkSession) -> None:
    def after(change: Callable[[DataFrame], object]) -> list[int]:
        sql.sql("CREATE OR REPLACE TABLE copy USING delta AS SELECT explode(array(1, 2, 3)) AS id, 'c' AS text")
        frame = sql.table("seen").where("id > 0")
        frame.createOrReplaceTempView("v")
        sql.sql("INSERT INTO seen VALUES (3, 'c')")
        change(frame)
        sql.sql("DELETE FROM seen WHERE id = 3")
        return sorted(r.id for r in sql.table("copy").collect())

    try:
        for change, ids in CHANGES.items():
            assert after(lambda frame, change=change: sql.sql(change.format(v="v"))) == ids, change  # type: ignore[misc]
            assert after(lambda frame, change=change: sql.sql(change, v=frame)) == ids, change  # type: ignore[misc]
        assert after(lambda frame: DeltaTable.forName(sql, "copy").delete("id IN (SELECT id FROM v)")) == []
        if hasattr(DataFrame, "mergeInto"):
            same = F.expr("copy.id = s.id")
            assert after(lambda frame: frame.alias("s").mergeInto("copy", same).whenMatched().delete().merge()) == []
    finally:
        sql.sql("DROP TABLE copy")
