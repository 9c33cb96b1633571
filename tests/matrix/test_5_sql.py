"""SQL of the session, after ``trilake.install``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import trilake
from tests.matrix.calls import Lake, since


@pytest.fixture
def sql(lake: Lake) -> Iterator[Lake]:
    """The session with SQL of trilake."""
    trilake.install(lake.spark)
    yield lake
    trilake.uninstall(lake.spark)


@since(3, 5, connect=(4, 0))
def test_queries(sql: Lake) -> None:
    """`spark.sql` after `trilake.install`: SELECT by path and by name, versions, joins, views"""
    spark, place = sql.spark, sql.path("queried")
    trilake.write(sql.simple(), place)
    trilake.write(sql.simple(10, 50), place, mode="append")
    assert spark.sql(f"SELECT count(*) FROM delta.`{place}` WHERE id > 39").collect()[0][0] == 20
    assert spark.sql(f"SELECT count(*) FROM delta.`{place}` VERSION AS OF 0").collect()[0][0] == 50
    spark.sql(f"CREATE TABLE matrix_queried USING delta LOCATION '{place}'")
    joined = spark.sql(
        "WITH a AS (SELECT id FROM matrix_queried WHERE id < 5) SELECT b.s FROM a JOIN matrix_queried b USING (id)"
    )
    assert sorted(r.s for r in joined.collect()) == ["0", "1", "2", "3", "4"]
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW matrix_view AS SELECT id FROM matrix_queried WHERE id > 57")
    assert spark.sql("SELECT count(*) FROM matrix_view").collect()[0][0] == 2
    spark.sql("DROP VIEW matrix_view")
    spark.sql("DROP TABLE matrix_queried")
    assert trilake.open(place).count() == 60


def test_views_of_frames(sql: Lake) -> None:
    """`createOrReplaceTempView` of a table's frame: shows the newest rows, accepts changes"""
    spark, place = sql.spark, sql.path("viewed")
    trilake.write(sql.simple(5), place)
    spark.read.format("delta").load(place).createOrReplaceTempView("matrix_frame")
    spark.sql(f"SELECT s AS t, id FROM delta.`{place}`").createOrReplaceTempView("matrix_columns")
    trilake.write(sql.simple(5, 5), place, mode="append")
    assert spark.sql("SELECT count(*) FROM matrix_frame").collect()[0][0] == 10 == spark.table("matrix_columns").count()
    spark.sql("DELETE FROM matrix_frame WHERE id = 0")
    spark.sql("UPDATE matrix_columns SET t = 'x' WHERE id = 1")
    rows = sorted(tuple(r) for r in spark.sql("SELECT * FROM matrix_frame WHERE id < 3").collect())
    assert rows == [(1, "x"), (2, "2")]
    for name in ("matrix_frame", "matrix_columns"):
        spark.catalog.dropTempView(name)


@since(3, 5, connect=(4, 0))
def test_changes(sql: Lake) -> None:
    """CREATE TABLE, INSERT, UPDATE, DELETE, MERGE, ALTER TABLE, DROP TABLE in SQL"""
    spark = sql.spark
    spark.sql("CREATE TABLE matrix_sql (id BIGINT NOT NULL, s STRING) USING delta TBLPROPERTIES ('k' = 'v')")
    spark.sql("INSERT INTO matrix_sql VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql("UPDATE matrix_sql SET s = 'x' WHERE id = 2")
    spark.sql("DELETE FROM matrix_sql WHERE id = 3")
    spark.sql(
        "MERGE INTO matrix_sql t USING (SELECT 2L AS id, 'm' AS s UNION ALL SELECT 9L, 'n') v ON t.id = v.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    rows = spark.sql("SELECT * FROM matrix_sql ORDER BY id").collect()
    assert [tuple(r) for r in rows] == [(1, "a"), (2, "m"), (9, "n")]
    spark.sql("ALTER TABLE matrix_sql ADD COLUMNS (more INT)")
    assert spark.table("matrix_sql").columns == ["id", "s", "more"]
    spark.sql("DROP TABLE matrix_sql")
    assert not spark.catalog.tableExists("matrix_sql")


def test_statements_of_delta(sql: Lake) -> None:
    """OPTIMIZE, VACUUM, RESTORE, DESCRIBE HISTORY and DETAIL, SHOW TBLPROPERTIES in SQL"""
    spark, place = sql.spark, sql.path("maintained")
    trilake.write(sql.simple(), place, properties={"k": "v"})
    trilake.write(sql.simple(10, 50), place, mode="append")
    spark.sql(f"OPTIMIZE delta.`{place}`")
    spark.sql(f"VACUUM delta.`{place}`")
    spark.sql(f"RESTORE TABLE delta.`{place}` TO VERSION AS OF 0")
    history = [r["operation"] for r in spark.sql(f"DESCRIBE HISTORY delta.`{place}`").collect()]
    assert history == ["RESTORE", "VACUUM END", "VACUUM START", "OPTIMIZE", "WRITE", "WRITE"]
    assert spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()[0]["format"] == "delta"
    assert ("k", "v") in [tuple(r)[:2] for r in spark.sql(f"SHOW TBLPROPERTIES delta.`{place}`").collect()]
    assert spark.sql(f"SELECT count(*) FROM delta.`{place}`").collect()[0][0] == 50
