"""``spark.sql`` over trilake tables: which statements trilake handles, strings that look like SQL, and
uninstalling."""

from __future__ import annotations

import gc
import json
import os
import re
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake.errors import InvalidArgumentError, TrilakeError, UnsupportedSparkError, WriteFailedError
from trilake.spark.catalog.named_tables import existing_delta_table
from trilake.spark.patches.recorder import patched
from trilake.spark.session.compat import error_condition
from trilake.spark.session.sources.api import HAS_DATA_SOURCES
from trilake.sql.spark.install import _DERIVED, _SESSIONS, installed, session_key
from trilake.sql.spark.session import relations
from trilake.sql.spark.tables import alter


def rows(spark: SparkSession, text: str, **more: object) -> list[tuple[object, ...]]:
    return sorted(tuple(r) for r in spark.sql(text, **more).collect())  # type: ignore[arg-type]


def test_strings_and_comments_like_tables_are_unchanged(sql: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/a b"
    sql.sql(f"CREATE TABLE delta.`{path}` (delta STRING, `merge` INT, `from` STRING) USING delta")
    sql.sql(
        f"INSERT INTO delta.`{path}` VALUES ('delta.`{path}`', 1, \"FROM delta.`/none` -- x\") /* FROM delta.`/none` */"
    )
    found = rows(sql, f"SELECT delta, merge, /* delta.`/none` */ `from` FROM delta.`{path}` -- FROM delta.`/none`")
    assert found == [(f"delta.`{path}`", 1, "FROM delta.`/none` -- x")]
    sql.sql(f"UPDATE delta.`{path}` SET `from` = 'WHERE 1 = 2' WHERE delta LIKE 'delta.`%'")
    sql.sql(f"DELETE FROM delta.`{path}` WHERE `from` = ') OR (1 = 1'")
    assert rows(sql, f"SELECT `from` FROM delta.`{path}`") == [("WHERE 1 = 2",)]


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/Los_Angeles"])
def test_table_changes_times_are_instants_in_every_zone(
    sql: SparkSession, conf: Callable[[str, str], None], tmp_path: Path, zone: str
) -> None:
    """They were wrong if the time zones of the session and the machine differ."""
    path, start = str(tmp_path / "t"), 1_700_000_000
    for version in range(3):
        trilake.write([{"n": version}], path, mode="append", properties={"delta.enableChangeDataFeed": "true"})
        os.utime(f"{path}/_delta_log/{version:020}.json", (start + 3600 * version,) * 2)
    conf("spark.sql.session.timeZone", zone)
    changes = f"SELECT n FROM table_changes_by_path('{path}', timestamp_seconds({start + 3600})"
    assert rows(sql, f"{changes})") == [(1,), (2,)]
    assert rows(sql, f"{changes}, timestamp_seconds({start + 7199}))") == [(1,)]
    assert rows(sql, f"{changes}, string(timestamp_seconds({start + 7200})))") == [(1,), (2,)]


def test_table_changes_show_later_commits(sql: SparkSession, tmp_path: Path) -> None:
    """The DataFrame kept the rows of the newest version at the time of the statement."""
    trilake.write([{"n": 1}, {"n": 2}], f"{tmp_path}/t", properties={"delta.enableChangeDataFeed": "true"})
    changes = f"SELECT n, _change_type, _commit_version AS v FROM table_changes_by_path('{tmp_path}/t', 0"
    to_newest, to_first = sql.sql(f"{changes})").orderBy("v"), sql.sql(f"{changes}, 0)")
    before = [(1, "insert", 0), (2, "insert", 0)]
    assert sorted(to_newest.collect()) == before
    sql.sql(f"DELETE FROM delta.`{tmp_path}/t` WHERE n = 2")
    assert sorted(to_newest.collect()) == [before[0], (2, "delete", 1), before[1]]
    assert sorted(to_first.collect()) == before


def test_changes_of_a_folder_of_parquet_files_are_rejected(sql: SparkSession, tmp_path: Path) -> None:
    sql.range(1).write.parquet(f"{tmp_path}/p")
    with pytest.raises(AnalysisException) as e:
        sql.sql(f"SELECT * FROM table_changes_by_path('{tmp_path}/p', 0)")
    assert error_condition(e.value) == "DELTA_MISSING_DELTA_TABLE"


def test_invalid_version_of_a_change_feed(sql: SparkSession, tmp_path: Path) -> None:
    trilake.write([{"n": 1}], f"{tmp_path}/t", properties={"delta.enableChangeDataFeed": "true"})
    read = sql.read.format("delta").option("readChangeFeed", "true").option("startingVersion", "first")
    with pytest.raises(AnalysisException, match="must be an integer, got 'first'") as e:
        read.load(f"{tmp_path}/t")
    assert error_condition(e.value) == "DELTA_VERSION_INVALID"


def test_cte_shadows_a_table_of_the_same_name(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(f"CREATE TABLE sql_hidden USING delta LOCATION '{tmp_path}/t' AS SELECT 1 AS a")
    try:
        text = "WITH sql_hidden AS (SELECT 2 AS a) SELECT a FROM sql_hidden UNION ALL SELECT a FROM default.sql_hidden"
        assert rows(sql, text) == [(1,), (2,)]
        # Inside of its definition the name still means the table.
        assert rows(sql, "WITH sql_hidden AS (SELECT a + 10 AS a FROM sql_hidden) SELECT a FROM sql_hidden") == [(11,)]
    finally:
        sql.sql("DROP TABLE sql_hidden")


def test_columns_may_be_qualified_by_the_full_table_name(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(f"CREATE TABLE sql_whole USING delta LOCATION '{tmp_path}/t' AS SELECT 1 AS a, named_struct('b', 2) AS s")
    try:
        text = "SELECT default.sql_whole.a, sql_whole.s.b, spark_catalog.default.sql_whole.* FROM default.sql_whole"
        [found] = sql.sql(text).collect()
        assert (found[0], found[1], found[2]) == (1, 2, 1)
        sql.sql("UPDATE default.sql_whole SET default.sql_whole.a = sql_whole.a + 1 WHERE default.sql_whole.a = 1")
        assert rows(sql, "SELECT a FROM sql_whole") == [(2,)]
    finally:
        sql.sql("DROP TABLE sql_whole")


def test_errors_are_from_spark_with_original_positions(sql: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException, ParseException

    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` (a INT) USING delta")
    with pytest.raises(AnalysisException) as missing:
        sql.sql(f"SELECT a,\n  nope\nFROM delta.`{tmp_path}/t`")
    assert "line 2 pos 2" in str(missing.value)
    assert "__trilake" not in str(missing.value)
    with pytest.raises(ParseException, match=r"line 2, pos 9"):
        sql.sql(f"VACUUM delta.`{tmp_path}/t`\n  RETAIN seven HOURS")
    with pytest.raises(AnalysisException) as none:
        sql.sql(f"SELECT * FROM delta.`{tmp_path}/none`")
    assert isinstance(none.value, TrilakeError)


def test_views_show_the_newest_rows(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS a")
    sql.sql(f"CREATE TEMP VIEW sql_now AS SELECT * FROM delta.`{tmp_path}/t`")
    sql.sql(f"CREATE VIEW sql_lasting (b) AS SELECT a + 1 FROM delta.`{tmp_path}/t`")
    try:
        sql.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES (5)")
        assert rows(sql, "SELECT * FROM sql_now") == [(1,), (5,)]
        assert rows(sql, "SELECT b FROM sql_lasting") == [(2,), (6,)]
        assert sorted(r.a for r in sql.table("sql_now").collect()) == [1, 5]
        sql.sql("CREATE OR REPLACE TEMP VIEW sql_now AS SELECT 'spark' AS a")
        assert rows(sql, "SELECT * FROM sql_now") == [("spark",)]
    finally:
        sql.sql("DROP VIEW sql_now")
        sql.sql("DROP VIEW sql_lasting")


def test_no_temporary_view_is_left_behind(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS a")
    sql.sql(f"SELECT * FROM delta.`{tmp_path}/t` a JOIN delta.`{tmp_path}/t` b USING (a)").collect()
    sql.sql(f"DELETE FROM delta.`{tmp_path}/t` WHERE a IN (SELECT a FROM delta.`{tmp_path}/t`)")
    assert not [t.name for t in sql.catalog.listTables() if "trilake" in t.name]


def test_failed_create_leaves_no_table(sql: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TrilakeError):
        sql.sql(
            f"CREATE TABLE sql_fails (a INT) USING delta LOCATION '{tmp_path}/t' TBLPROPERTIES ('delta.nope' = '1')"
        )
    assert not sql.catalog.tableExists("sql_fails")
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_create_with_invalid_check_leaves_no_table(sql: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    with pytest.raises(TrilakeError, match="nope"):
        sql.sql(f"CREATE TABLE {name} (a INT, CONSTRAINT c CHECK (nope > 0)) USING delta")
    assert not (tmp_path / "t" / "_delta_log").exists()
    sql.sql(f"CREATE TABLE {name} (a INT, CONSTRAINT c CHECK (a > 0)) USING delta")
    assert trilake.open(f"{tmp_path}/t").version == 0
    sql.sql(f"INSERT INTO {name} VALUES (1)")
    sql.sql(f"CREATE OR REPLACE TABLE {name} (a INT, b INT) USING delta")
    assert rows(sql, f"SELECT a, b FROM {name}") == []


def test_statement_without_trilake_tables_is_unchanged(sql: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilake.sql.spark import statements

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a statement of Spark's was run here")

    monkeypatch.setattr(statements, "run", never)
    assert rows(sql, "SELECT 'FROM delta.`/x`' AS s, 1 AS merge FROM range(1) AS delta") == [("FROM delta.`/x`", 1)]


def test_uninstall_restores_spark_methods(spark: SparkSession, tmp_path: Path) -> None:
    trilake.unregister(spark)
    original = type(spark).sql
    trilake.install(spark)
    trilake.install(spark)
    assert type(spark).sql is not original
    assert (type(spark), "sql") in patched("sql")
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS a")
    trilake.uninstall(spark)
    assert not patched("sql")
    trilake.unregister(spark)
    assert type(spark).sql is original
    trilake.register(spark)
    with pytest.raises(Exception, match=r"(?i)unsupported|delta"):
        spark.sql(f"SELECT * FROM delta.`{tmp_path}/t`")


def test_new_session_supports_trilake_tables(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS a")
    new = sql.newSession()
    try:
        assert rows(new, f"SELECT a FROM delta.`{tmp_path}/t`") == [(1,)]
        new.sql(f"UPDATE delta.`{tmp_path}/t` SET a = 2")
        assert new.read.format("delta").load(f"{tmp_path}/t").first()["a"] == 2  # type: ignore[index]
        assert new.readStream.format("delta").load(f"{tmp_path}/t").isStreaming
        assert rows(sql, f"SELECT a FROM delta.`{tmp_path}/t`") == [(2,)]
        trilake.install(new)  # a second time, which changes nothing: Spark reported that the source exists
        assert SparkSession.getActiveSession() is not None
        assert rows(new, f"SELECT a FROM delta.`{tmp_path}/t`") == [(2,)]
    finally:
        trilake.uninstall(new)
        trilake.unregister(new)


def test_unused_new_session_is_released(sql: SparkSession) -> None:
    new, other = sql.newSession(), sql.newSession()
    forgotten, keys = weakref.ref(new), [session_key(new), session_key(other)]
    assert [installed(s) is not None for s in (new, other)] == [True, True]
    assert [key in known for key in keys for known in (_SESSIONS, _DERIVED)] == [False, True] * 2
    trilake.uninstall(other)
    assert installed(other) is None
    assert keys[1] not in _DERIVED
    del new
    gc.collect()
    assert forgotten() is None
    assert keys[0] not in _DERIVED


def test_foreach_batch_merges_by_sql_of_its_session(sql: SparkSession, tmp_path: Path) -> None:
    """Spark passes the batches in a cloned session."""
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 0L AS id, 0L AS batch")
    sql.sql(f"CREATE TEMPORARY VIEW batch_before AS SELECT count(*) AS n FROM delta.`{tmp_path}/t`")
    sql.table("batch_before").withColumn("one", F.lit(1)).createTempView("batch_frame")
    sql.range(2).write.parquet(f"{tmp_path}/in")
    sql.range(1, 3).write.mode("append").parquet(f"{tmp_path}/in")
    seen = []

    def upsert(batch: DataFrame, _: int) -> None:
        spark = batch.sparkSession
        seen.append(rows(spark, "SELECT n, one FROM batch_before JOIN batch_frame USING (n)"))
        batch.groupBy("id").count().createOrReplaceTempView("batch_rows")
        spark.sql(
            f"MERGE INTO delta.`{tmp_path}/t` t USING batch_rows b ON t.id = b.id"
            " WHEN MATCHED THEN UPDATE SET batch = b.count"
            " WHEN NOT MATCHED THEN INSERT (id, batch) VALUES (b.id, b.count)"
        )

    try:
        files = sql.readStream.schema("id long").option("maxFilesPerTrigger", 99).parquet(f"{tmp_path}/in")
        writer = files.writeStream.foreachBatch(upsert).option("checkpointLocation", f"{tmp_path}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        assert seen == [[(1, 1)]]
        assert rows(sql, f"SELECT * FROM delta.`{tmp_path}/t`") == [(0, 1), (1, 2), (2, 1)]
    finally:
        for view in ("batch_before", "batch_frame"):
            sql.catalog.dropTempView(view)


def test_delta_package_names_are_trilake_classes(sql: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession as Sessions

    from delta import configure_spark_with_delta_pip
    from delta.exceptions import ConcurrentAppendException, DeltaConcurrentModificationException
    from delta.tables import DeltaTable
    from trilake.errors import ConcurrentAppendError

    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS a")
    assert DeltaTable.forPath(sql, f"{tmp_path}/t").toDF().count() == 1
    with pytest.raises(ConcurrentAppendException):
        raise ConcurrentAppendError("someone was faster")
    assert issubclass(ConcurrentAppendException, DeltaConcurrentModificationException)
    builder = Sessions.builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    found = configure_spark_with_delta_pip(builder).getOrCreate()
    assert rows(found, f"SELECT a FROM delta.`{tmp_path}/t`") == [(1,)]
    with pytest.raises(TypeError):
        configure_spark_with_delta_pip("no builder")  # type: ignore[arg-type]


def test_metadata_column_is_not_in_a_star(sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS a, 'x' AS b")
    found = sql.sql(f"SELECT *, _metadata.file_size > 0 AS sized FROM delta.`{tmp_path}/t`")
    assert (found.columns, [tuple(r) for r in found.collect()]) == (["a", "b", "sized"], [(1, "x", True)])
    found = sql.sql(f"SELECT t.*, t._metadata.file_name LIKE 'part%' AS part FROM delta.`{tmp_path}/t` AS t")
    assert (found.columns, [tuple(r) for r in found.collect()]) == (["a", "b", "part"], [(1, "x", True)])
    # Spark before 4.0 has no `* EXCEPT`: the star is replaced by its columns if they are known.
    monkeypatch.setattr(relations, "parse_release", lambda version: (3, 5))
    found = sql.sql(f"SELECT *, _metadata.file_size > 0 AS sized FROM delta.`{tmp_path}/t` WHERE a IN (1, 2)")
    assert (found.columns, [tuple(r) for r in found.collect()]) == (["a", "b", "sized"], [(1, "x", True)])
    found = sql.sql(f"SELECT `q.r`.*, `q.r`._metadata.file_size > 0 AS sized FROM delta.`{tmp_path}/t` AS `q.r`")
    assert (found.columns, [tuple(r) for r in found.collect()]) == (["a", "b", "sized"], [(1, "x", True)])
    joined = f"t._metadata.file_size > 0 AS sized FROM delta.`{tmp_path}/t` AS t, range(2)"
    assert sql.sql(f"SELECT t.*, {joined}").columns == ["a", "b", "sized"]
    with pytest.raises(UnsupportedSparkError, match="cannot exclude _metadata"):
        sql.sql(f"SELECT *, {joined}")


def test_lance_table_in_the_catalog(sql: SparkSession) -> None:
    sql.sql("CREATE TABLE sql_lance USING lance AS SELECT id, id * 2 AS v FROM range(3)")
    try:
        sql.sql("INSERT INTO sql_lance VALUES (9, 9)")
        assert rows(sql, "SELECT count(*) FROM sql_lance VERSION AS OF 1") == [(3,)]
        assert rows(sql, "DELETE FROM sql_lance WHERE id = 1") == [(1,)]
        assert rows(sql, "SELECT * FROM sql_lance") == [(0, 0), (2, 4), (9, 9)]
        assert "LOCATION" not in rows(sql, "SHOW CREATE TABLE sql_lance")[0][0]
    finally:
        sql.sql("DROP TABLE sql_lance")


def test_lance_table_is_described_by_its_columns(sql: SparkSession, tmp_path: Path) -> None:
    name = f"lance.`{tmp_path}/t`"
    sql.sql(f"CREATE TABLE {name} (id BIGINT, s STRUCT<aB: INT>)")
    columns = [("id", "bigint", None), ("s", "struct<aB:int>", None)]
    assert [tuple(r) for r in sql.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()] == columns
    assert [(c.name, c.dataType, c.description) for c in sql.catalog.listColumns(name)] == columns
    assert rows(sql, f"SHOW TBLPROPERTIES {name}") == []
    create = f"CREATE TABLE {name} (\n  id BIGINT,\n  s STRUCT<aB: INT>)\nUSING lance\nLOCATION 'file:{tmp_path}/t'\n"
    assert rows(sql, f"SHOW CREATE TABLE {name}") == [(create,)]
    facts = json.loads(rows(sql, f"DESCRIBE EXTENDED {name} AS JSON")[0][0])
    assert list(facts)[4:] == ["columns", "location", "type", "provider"]
    with pytest.raises(InvalidArgumentError, match="both name a version"):
        sql.sql(f"SELECT * FROM lance.`{tmp_path}/t@v1` VERSION AS OF 1")


def test_analyze_writes_the_log_and_describe_as_json(sql: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    sql.sql(
        f"CREATE TABLE {name} (a INT NOT NULL COMMENT 'n', s STRUCT<b: DECIMAL(5, 2)>) USING delta PARTITIONED BY (a)"
    )
    sql.sql(f"INSERT INTO {name} VALUES (1, struct(2.5))")
    sql.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR COLUMNS s.b")
    assert trilake.open(f"{tmp_path}/t").version == 1
    sql.sql(f"ANALYZE TABLE {name} COMPUTE DELTA STATISTICS")
    assert sql.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0].operation == "COMPUTE STATS"
    description = json.loads(sql.sql(f"DESCRIBE EXTENDED {name} AS JSON").collect()[0].json_metadata)
    assert description["columns"][0] == {"name": "a", "type": {"name": "int"}, "nullable": False, "comment": "n"}
    decimal = {"name": "b", "type": {"name": "decimal", "precision": 5, "scale": 2}, "nullable": True}
    assert description["columns"][1]["type"] == {"name": "struct", "fields": [decimal]}
    assert (description["provider"], description["type"], description["partition_columns"]) == (
        "delta",
        "EXTERNAL",
        ["a"],
    )
    # As Spark 4.3 prints V2 tables, which Delta tables are: nothing about partitions if there are none.
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/u` (a INT) USING delta")
    assert rows(sql, f"DESCRIBE TABLE delta.`{tmp_path}/u`") == [("a", "int", None)]


def test_drop_table_by_path_is_rejected(sql: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    sql.sql(f"DROP TABLE IF EXISTS {name}")
    sql.sql(f"CREATE TABLE {name} AS SELECT 1 AS a")
    sql.sql(f"DROP TABLE IF EXISTS {name}")
    with pytest.raises(TrilakeError, match="cannot be dropped"):
        sql.sql(f"DROP TABLE {name}")
    assert rows(sql, f"SELECT * FROM {name}") == [(1,)]


def test_invalid_values_have_delta_spark_conditions(sql: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    sql.sql(f"CREATE TABLE {name} (i INT, d DECIMAL(5, 1)) USING delta")
    sql.sql("CREATE OR REPLACE TEMP VIEW sql_large AS SELECT id + 3000000000 AS i, 123456.7 AS d FROM range(2)")
    merge = f"MERGE INTO {name} t USING (SELECT 1 AS i) s ON t.i = s.i"
    insert, each_time = "INSERT (i) VALUES (s.i)", "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"
    rejected = {
        f"INSERT INTO {name} SELECT i, 1 FROM sql_large": "CAST_OVERFLOW_IN_TABLE_INSERT",
        f"INSERT INTO {name} SELECT 1, d FROM sql_large": "CAST_OVERFLOW_IN_TABLE_INSERT",
        f"INSERT INTO {name} SELECT 'no number', 1": "CAST_INVALID_INPUT",
        f"{merge} AND rand() > 2 WHEN MATCHED THEN DELETE": each_time,
        f"{merge} WHEN MATCHED AND rand() > 2 THEN DELETE": each_time,
        f"{merge} WHEN NOT MATCHED AND rand() > 2 THEN {insert}": each_time,
    }
    found = {}
    for text in rejected:
        with pytest.raises(TrilakeError) as error:
            sql.sql(text)
        found[text] = error.value.getCondition()  # type: ignore[attr-defined]
    sql.catalog.dropTempView("sql_large")
    assert found == rejected
    assert sql.table(name).count() == 0


@pytest.mark.parametrize("by_spark", sorted({HAS_DATA_SOURCES, False}))
def test_rename_moves_files_and_rejects_existing_name(
    sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    """Spark before 4.0 looks up the source of a renamed table and does not find trilake's; so there the
    catalog is changed directly."""
    monkeypatch.setattr(alter, "HAS_DATA_SOURCES", by_spark)
    sql.sql("CREATE SCHEMA sql_renames")
    try:
        sql.sql("CREATE TABLE sql_renames.one USING delta AS SELECT 1 AS a")
        sql.sql(f"CREATE TABLE sql_renames.two USING delta LOCATION '{tmp_path}/two' AS SELECT 2 AS a")
        for taken in ("sql_renames.two", "`sql_renames`.TWO"):
            with pytest.raises(AnalysisException) as error:
                sql.sql(f"ALTER TABLE sql_renames.one RENAME TO {taken}")
            assert error.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
        assert rows(sql, "SELECT a FROM sql_renames.one") == [(1,)]
        place = existing_delta_table(sql, "sql_renames.one").location
        sql.sql("CACHE TABLE sql_renames.one")
        sql.sql("ALTER TABLE sql_renames.one RENAME TO sql_renames.three")
        assert rows(sql, "SELECT a FROM sql_renames.three") == [(1,)]
        sql.sql("INSERT INTO sql_renames.three VALUES (3)")
        assert rows(sql, "SELECT a FROM sql_renames.three") == [(1,), (3,)]
        assert existing_delta_table(sql, "sql_renames.three").location == place.removesuffix("one") + "three"
        assert not Path(place).exists()
        sql.sql("ALTER TABLE sql_renames.two RENAME TO sql_renames.one")
        assert rows(sql, "SELECT a FROM sql_renames.one") == [(2,)]
        assert existing_delta_table(sql, "sql_renames.one").location == f"{tmp_path}/two"
        with pytest.raises(AnalysisException):
            sql.sql("ALTER TABLE sql_renames.one RENAME TO default.sql_elsewhere")
        assert not sql.catalog.tableExists("default.sql_elsewhere")
    finally:
        sql.sql("DROP SCHEMA sql_renames CASCADE")


def test_overflow_is_rejected_without_ansi(sql: SparkSession, tmp_path: Path) -> None:
    before = sql.conf.get("spark.sql.ansi.enabled")
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` (i INT, d DECIMAL(5, 1)) USING delta")
    sql.conf.set("spark.sql.ansi.enabled", "false")
    try:
        rejected = {
            "3000000000, 1": ("CAST_OVERFLOW_IN_TABLE_INSERT", "column i does not fit int: 3000000000"),
            "1, 123456.7": ("CAST_OVERFLOW_IN_TABLE_INSERT", "column d does not fit decimal(5,1): 123456.7"),
            "'no number', 1": ("CAST_INVALID_INPUT", "column i does not fit int: no number"),
        }
        for values, (condition, said) in rejected.items():
            with pytest.raises(WriteFailedError, match=re.escape(said)) as error:
                sql.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES ({values})")
            assert error.value.getErrorClass() == condition  # type: ignore[attr-defined]
            assert error.value.help == "fix the query or its data, then repeat the write"
        sql.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES (3L, '2.25')")
        assert [(i, str(d)) for i, d in rows(sql, f"SELECT * FROM delta.`{tmp_path}/t`")] == [(3, "2.3")]
    finally:
        sql.conf.set("spark.sql.ansi.enabled", str(before))
