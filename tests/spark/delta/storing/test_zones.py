"""Rules and predicates on timestamps use the session time zone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from trilake.errors import ConstraintViolatedError, InvalidArgumentError, TrilakeError
from trilake.spark.delta import write

ZONE = "spark.sql.session.timeZone"
#: Values of the columns of :func:`ruled` for the local time 23:30 of a day.
LATE = ("2020-01-05 23:30:00", "2020-01-05", 23)


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "America/New_York")
    yield spark
    spark.conf.set(ZONE, before or "UTC")
    trilake.uninstall(spark)


@pytest.fixture
def ruled(sql: SparkSession, tmp_path: Path) -> str:
    name = f"delta.`{tmp_path}/ruled`"
    sql.sql(
        f"CREATE TABLE {name} (i INT, t TIMESTAMP DEFAULT TIMESTAMP'2020-01-05 23:30:00',"
        " d DATE GENERATED ALWAYS AS (CAST(t AS DATE)), h INT GENERATED ALWAYS AS (hour(t))) USING delta"
        " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    sql.sql(f"ALTER TABLE {name} ADD CONSTRAINT early CHECK (t < '2020-01-06 00:00:00')")
    return name


@pytest.fixture
def plain(sql: SparkSession, tmp_path: Path) -> str:
    name = f"delta.`{tmp_path}/plain`"
    sql.sql(f"CREATE TABLE {name} (i INT, t TIMESTAMP) USING delta")
    sql.sql(f"INSERT INTO {name} VALUES (1, '2020-06-01 00:00:00'), (2, '2020-05-31 22:00:00')")
    return name


def rows(spark: SparkSession, name: str, columns: str) -> list[tuple[object, ...]]:
    return sorted(tuple(r) for r in spark.sql(f"SELECT {columns} FROM {name}").collect())


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {t} (i) VALUES (1)",
        "INSERT INTO {t} (i, t) VALUES (1, '2020-01-05 23:30:00')",
        "INSERT INTO {t} (i, t, d) VALUES (1, '2020-01-05 23:30:00', DATE'2020-01-05')",
        "MERGE INTO {t} t USING (SELECT 1 AS k) s ON t.i = s.k WHEN NOT MATCHED THEN INSERT (i) VALUES (s.k)",
        "MERGE INTO {t} t USING {late} s ON t.i = s.i WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_new_rows_use_the_session_time_zone(sql: SparkSession, ruled: str, statement: str) -> None:
    sql.sql(statement.format(t=ruled, late="(SELECT 1 AS i, TIMESTAMP'2020-01-05 23:30:00' AS t)"))
    assert rows(sql, ruled, "CAST(t AS STRING), CAST(d AS STRING), h") == [LATE]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {t} SET t = '2020-01-05 23:30:00'",
        "MERGE INTO {t} t USING (SELECT 1 AS k) s ON t.i = s.k WHEN MATCHED THEN UPDATE SET t = '2020-01-05 23:30:00'",
    ],
)
def test_changed_rows_use_the_session_time_zone(sql: SparkSession, ruled: str, statement: str) -> None:
    sql.sql(f"INSERT INTO {ruled} (i, t) VALUES (1, '2020-01-01 12:00:00')")
    sql.sql(statement.format(t=ruled))
    assert rows(sql, ruled, "CAST(t AS STRING), CAST(d AS STRING), h") == [LATE]


def test_constraint_uses_the_session_time_zone(sql: SparkSession, ruled: str) -> None:
    with pytest.raises(ConstraintViolatedError):
        sql.sql(f"INSERT INTO {ruled} (i, t) VALUES (1, '2020-01-06 00:00:00')")
    with pytest.raises(ConstraintViolatedError):
        sql.sql(f"INSERT INTO {ruled} (i, t, d) VALUES (1, '2020-01-05 23:30:00', DATE'2020-01-06')")


@pytest.mark.parametrize("way", ["statement", "option", "overwrite"])
def test_replace_where_uses_the_session_time_zone(sql: SparkSession, plain: str, way: str) -> None:
    query, where = "SELECT 9 AS i, TIMESTAMP'2020-06-01 00:30:00' AS t", "t >= '2020-06-01 00:00:00'"
    if way == "statement":
        sql.sql(f"INSERT INTO {plain} REPLACE WHERE {where} {query}")
    elif way == "option":
        path = plain.split("`")[1]
        sql.sql(query).write.format("delta").mode("overwrite").option("replaceWhere", where).save(path)
    else:
        sql.sql(query).writeTo(plain).overwrite(F.col("t") >= F.lit("2020-06-01 00:00:00").cast("timestamp"))
    assert rows(sql, plain, "i") == [(2,), (9,)]


def test_row_outside_of_replace_where_is_rejected(sql: SparkSession, plain: str) -> None:
    with pytest.raises(TrilakeError, match="violates"):
        sql.sql(f"INSERT INTO {plain} REPLACE WHERE t >= '2020-06-01 00:00:00' VALUES (9, '2020-05-31 23:30:00')")


def test_replace_where_on_hours_is_rejected_outside_utc(sql: SparkSession, plain: str) -> None:
    with pytest.raises(InvalidArgumentError, match="America/New_York"):
        sql.sql(f"INSERT INTO {plain} REPLACE WHERE hour(t) = 22 VALUES (9, '2020-05-31 22:30:00')")
    sql.sql(f"INSERT INTO {plain} REPLACE WHERE to_date(t) = DATE'2020-05-31' VALUES (9, '2020-05-31 23:30:00')")
    sql.sql(f"INSERT INTO {plain} REPLACE WHERE i = 1 VALUES (1, '2020-06-02 00:00:00')")
    assert rows(sql, plain, "i, CAST(t AS STRING)") == [(1, "2020-06-02 00:00:00"), (9, "2020-05-31 23:30:00")]


@pytest.mark.parametrize(
    "where", ["size(a) = 1", "size(a) = 1 AND s.x = 7", "size(a) = 1 AND t >= '2020-05-31 20:00:00'"]
)
def test_replace_where_allows_functions_of_other_values(sql: SparkSession, tmp_path: Path, where: str) -> None:
    name = f"delta.`{tmp_path}/nested`"
    sql.sql(f"CREATE TABLE {name} (i INT, a ARRAY<INT>, s STRUCT<x: INT>, t TIMESTAMP) USING delta")
    row = "array({}), named_struct('x', 7), TIMESTAMP'2020-05-31 20:00:00'"
    sql.sql(f"INSERT INTO {name} VALUES (1, {row.format('5')}), (2, {row.format('5, 6')})")
    sql.sql(f"INSERT INTO {name} REPLACE WHERE {where} VALUES (9, {row.format('8')})")
    assert rows(sql, name, "i") == [(2,), (9,)]


def test_replace_where_on_dates_uses_the_session_time_zone(
    sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Spark keeps the cast of a date, dates were taken to start in UTC: rows of the first day stayed."""
    name = f"delta.`{tmp_path}/days`"
    sql.sql(f"CREATE TABLE {name} (i INT, d DATE) USING delta")
    sql.sql(f"INSERT INTO {name} VALUES (1, '2020-06-01'), (2, '2020-05-31')")
    statement = f"INSERT INTO {name} REPLACE WHERE d >= TIMESTAMP'2020-06-01 00:00:00' VALUES (9, '2020-06-02')"
    with monkeypatch.context() as patched:
        left = "(CAST(d AS TIMESTAMP) >= TIMESTAMP '2020-06-01 04:00:00')"
        patched.setattr(write, "_folded", lambda *args: left)
        with pytest.raises(InvalidArgumentError, match="America/New_York"):
            sql.sql(statement)
    sql.sql(f"INSERT INTO {name} REPLACE WHERE d >= '2020-06-01' VALUES (9, '2020-06-02')")
    assert rows(sql, name, "i") == [(2,), (9,)]


def test_partition_overwrite_uses_the_session_time_zone(sql: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/parts`"
    sql.sql(f"CREATE TABLE {name} (i INT, t TIMESTAMP) USING delta PARTITIONED BY (t)")
    sql.sql(f"INSERT INTO {name} VALUES (1, '2020-06-01 00:00:00'), (2, '2020-05-31 20:00:00')")
    sql.sql(f"INSERT OVERWRITE {name} PARTITION (t = TIMESTAMP'2020-06-01 00:00:00') VALUES (3)")
    assert rows(sql, name, "i") == [(2,), (3,)]


def test_new_constraint_checks_rows_in_the_session_time_zone(sql: SparkSession, plain: str, tmp_path: Path) -> None:
    """Existing rows were checked in UTC: valid constraints were rejected, and violated ones accepted."""
    for i, condition in enumerate(
        ("t < '2020-06-01 00:00:01'", "month(t) = 6 OR i = 2", "CAST(t AS DATE) <> '1999-1-1'")
    ):
        sql.sql(f"ALTER TABLE {plain} ADD CONSTRAINT right{i} CHECK ({condition})")
    for condition in ("t >= '2020-06-01 00:00:00'", "CAST(t AS DATE) = DATE'2020-06-01'"):
        with pytest.raises(ConstraintViolatedError, match="wrong") as found:
            sql.sql(f"ALTER TABLE {plain} ADD CONSTRAINT wrong CHECK ({condition})")
        assert found.value.getCondition() == "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"  # type: ignore[attr-defined]


def test_arrow_rows_keep_timestamps_without_zone(sql: SparkSession, tmp_path: Path) -> None:
    """A merge treated them as instants: new columns were timestamps, and a skipped DST hour was an error."""
    path = str(tmp_path / "t")
    times = pa.array([dt.datetime(2024, 3, 10, 2, 30), dt.datetime(2024, 6, 1, 12)], pa.timestamp("us"))  # noqa: DTZ001
    trilake.write(pa.table({"id": [1, 2], "n": times}).slice(0, 1), path)
    rows = pa.table({"id": [1, 2], "n": times, "new": times})
    merge = trilake.DeltaTable.forPath(sql, path).alias("t").merge(rows, "t.id = source.id").withSchemaEvolution()
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert trilake.open(path).to_arrow().sort_by("id").equals(rows)
