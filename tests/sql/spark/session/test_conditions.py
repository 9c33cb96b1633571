"""Rejected statements and calls have the error condition of delta-spark 4 for the same mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import trilake
from trilake import DeltaTable
from trilake.spark.session.sql_states import SQL_STATES, sql_state

_SETUP = """
CREATE TABLE {t} (id INT, name STRING) USING delta;
INSERT INTO {t} VALUES (1, 'a'), (2, 'b');
CREATE TABLE {p} (id INT, day STRING, extra INT) USING delta PARTITIONED BY (day);
INSERT INTO {p} VALUES (1, 'mon', NULL);
CREATE TABLE {m} (a INT, `b c` STRING, k INT) USING delta
  TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
ALTER TABLE {m} ADD CONSTRAINT k CHECK (k > 0);
CREATE TABLE {c} (id INT NOT NULL, n INT) USING delta;
ALTER TABLE {c} ADD CONSTRAINT small CHECK (n < 10);
CREATE TABLE {q} (n INT) USING delta;
INSERT INTO {q} VALUES (1);
ALTER TABLE {q} ADD CONSTRAINT small CHECK (n < 10);
CREATE TABLE {i} (id BIGINT GENERATED ALWAYS AS IDENTITY, n INT, twice INT GENERATED ALWAYS AS (n * 2)) USING delta
  TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
CREATE TABLE {l} (id INT, name STRING, other INT) USING delta CLUSTER BY (id)
  TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
CREATE TABLE {k} (id INT, m MAP<INT, INT>, m2 INT) USING delta CLUSTER BY (id)
  TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '2');
CREATE TABLE {v} (s VARCHAR(3), h CHAR(2)) USING delta;
CREATE TABLE {s} (id INT, s STRUCT<a: INT, b: INT>, xs ARRAY<STRUCT<y: INT>>) USING delta;
CREATE TABLE {o} (id INT) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true');
INSERT INTO {o} VALUES (1);
CREATE TABLE {f} (id INT, n INT) USING delta
  TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true');
INSERT INTO {f} VALUES (1, 2);
CREATE TABLE {n} (id INT, xs ARRAY<STRUCT<y: INT>>) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
CREATE TEMPORARY VIEW cond_view AS SELECT * FROM {t};
CREATE OR REPLACE TEMPORARY VIEW spark_view AS SELECT 1 AS a;
CREATE TABLE cond_named (id INT) USING delta LOCATION '{dir}/named';
INSERT OVERWRITE DIRECTORY '{dir}/files' USING parquet SELECT 1 AS id;
"""

#: Conditions, and a statement each that is rejected with it; ``{t}`` and so on are the tables above.
_STATEMENTS = Path(__file__).with_name("conditions.txt")


_CALLS: dict[str, tuple[str, Callable[[SparkSession, str], Any]]] = {
    "append: new column": (
        "DELTA_METADATA_MISMATCH",
        lambda s, d: s.sql("SELECT 1 AS id, 'a' AS name, 2 AS x").write.format("delta").mode("append").save(f"{d}/t"),
    ),
    "append: a column of the change feed": (
        "RESERVED_CDC_COLUMNS_ON_WRITE",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'a' AS _change_type")
            .write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .save(f"{d}/f")
        ),
    ),
    "append: another type": (
        "DELTA_FAILED_TO_MERGE_FIELDS",
        lambda s, d: s.sql("SELECT 'x' AS id, 'a' AS name").write.format("delta").mode("append").save(f"{d}/t"),
    ),
    "append: merged types": (
        "DELTA_FAILED_TO_MERGE_FIELDS",
        lambda s, d: (
            s.sql("SELECT array(1) AS id, 'a' AS name")
            .write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .save(f"{d}/t")
        ),
    ),
    "append: required column left out": (
        "DELTA_MISSING_NOT_NULL_COLUMN_VALUE",
        lambda s, d: s.sql("SELECT 1 AS n").write.format("delta").mode("append").save(f"{d}/c"),
    ),
    "append: other partitions": (
        "DELTA_METADATA_MISMATCH",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'mon' AS day, 1 AS extra")
            .write.format("delta")
            .mode("append")
            .partitionBy("id")
            .save(f"{d}/p")
        ),
    ),
    "write: there already": (
        "DELTA_PATH_EXISTS",
        lambda s, d: s.sql("SELECT 1 AS id, 'a' AS name").write.format("delta").save(f"{d}/t"),
    ),
    "write: partition column that is none": (
        "DELTA_PARTITION_COLUMN_NOT_FOUND",
        lambda s, d: s.sql("SELECT 1 AS id").write.format("delta").partitionBy("nope").save(f"{d}/new"),
    ),
    "write: replaceWhere not met": (
        "DELTA_REPLACE_WHERE_MISMATCH",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'a' AS name")
            .write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", "id = 5")
            .save(f"{d}/t")
        ),
    ),
    "write: replaceWhere with a subquery": (
        "DELTA_UNSUPPORTED_SUBQUERY",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'a' AS name")
            .write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", f"id IN (SELECT id FROM delta.`{d}/t`)")
            .save(f"{d}/t")
        ),
    ),
    "write: replaceWhere by rows and dataChange=false": (
        "DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'a' AS name")
            .write.format("delta")
            .mode("overwrite")
            .options(replaceWhere="id = 1", dataChange="false")
            .save(f"{d}/t")
        ),
    ),
    "write: replaceWhere and dynamic": (
        "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'mon' AS day, 1 AS extra")
            .write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", "day = 'mon'")
            .option("partitionOverwriteMode", "dynamic")
            .save(f"{d}/p")
        ),
    ),
    "write: overwriteSchema and dynamic": (
        "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'mon' AS day, 1 AS extra")
            .write.format("delta")
            .mode("overwrite")
            .option("overwriteSchema", "true")
            .option("partitionOverwriteMode", "dynamic")
            .save(f"{d}/p")
        ),
    ),
    "write: an option's value": (
        "DELTA_ILLEGAL_OPTION",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'a' AS name")
            .write.format("delta")
            .mode("append")
            .option("mergeSchema", "maybe")
            .save(f"{d}/t")
        ),
    ),
    "write: txnAppId alone": (
        "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        lambda s, d: (
            s.sql("SELECT 1 AS id, 'a' AS name")
            .write.format("delta")
            .mode("append")
            .option("txnAppId", "me")
            .save(f"{d}/t")
        ),
    ),
    "read: no table": ("DELTA_PATH_DOES_NOT_EXIST", lambda s, d: s.read.format("delta").load(f"{d}/none").count()),
    "read: version": (
        "DELTA_VERSION_NOT_FOUND",
        lambda s, d: s.read.format("delta").option("versionAsOf", 99).load(f"{d}/t").count(),
    ),
    "read: version that is none": (
        "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
        lambda s, d: s.read.format("delta").option("versionAsOf", "x").load(f"{d}/t").count(),
    ),
    "read: time that is none": (
        "DELTA_TIMESTAMP_INVALID",
        lambda s, d: s.read.format("delta").option("timestampAsOf", "x").load(f"{d}/t").count(),
    ),
    "read: time before the table": (
        "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        lambda s, d: s.read.format("delta").option("timestampAsOf", "1999-01-01").load(f"{d}/t").count(),
    ),
    "read: version and time": (
        "DELTA_ONEOF_IN_TIMETRAVEL",
        lambda s, d: (
            s.read.format("delta").option("versionAsOf", 0).option("timestampAsOf", "x").load(f"{d}/t").count()
        ),
    ),
    "feed: not recorded": (
        "DELTA_MISSING_CHANGE_DATA",
        lambda s, d: (
            s.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(f"{d}/t").count()
        ),
    ),
    "feed: no start": (
        "DELTA_NO_START_FOR_CDC_READ",
        lambda s, d: s.read.format("delta").option("readChangeFeed", "true").load(f"{d}/t").count(),
    ),
    "feed: two starts": (
        "DELTA_MULTIPLE_CDC_BOUNDARY",
        lambda s, d: (
            s.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", 0)
            .option("startingTimestamp", "2020-01-01")
            .load(f"{d}/t")
            .count()
        ),
    ),
    "forPath: no table": ("DELTA_MISSING_DELTA_TABLE", lambda s, d: DeltaTable.forPath(s, f"{d}/none")),
    "forName: no table": ("DELTA_MISSING_DELTA_TABLE", lambda s, d: DeltaTable.forName(s, "cond_nope")),
    "insert: too few fields of a struct": (
        "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
        lambda s, d: (
            s.sql(f"CREATE TABLE delta.`{d}/fields` (id INT, s STRUCT<a: INT, b: INT>) USING delta"),
            s.sql(f"INSERT INTO delta.`{d}/fields` SELECT 1, named_struct('a', 1)"),
        ),
    ),
    "create: two places": (
        "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH",
        lambda s, d: (
            DeltaTable.create(s).tableName(f"delta.`{d}/a`").location(f"{d}/b").addColumn("a", "int").execute()
        ),
    ),
    "create: two places in SQL": (
        "DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE",
        lambda s, d: s.sql(f"CREATE TABLE delta.`{d}/a` (id INT) USING delta LOCATION '{d}/b'"),
    ),
    "create: there already": (
        "TABLE_OR_VIEW_ALREADY_EXISTS",
        lambda s, d: DeltaTable.create(s).location(f"{d}/t").addColumn("id", "int").execute(),
    ),
    "create: neither name nor place": (
        "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION",
        lambda s, d: DeltaTable.create(s).addColumn("id", "int").execute(),
    ),
    "restore: version": (
        "DELTA_CANNOT_RESTORE_TABLE_VERSION",
        lambda s, d: DeltaTable.forPath(s, f"{d}/t").restoreToVersion(99),
    ),
    "restore: time": (
        "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
        lambda s, d: DeltaTable.forPath(s, f"{d}/t").restoreToTimestamp("1999-01-01"),
    ),
    "delete: no column": (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        lambda s, d: DeltaTable.forPath(s, f"{d}/t").delete("nope = 1"),
    ),
    "update: no column": (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        lambda s, d: DeltaTable.forPath(s, f"{d}/t").update(set={"nope": "1"}),
    ),
    "update: append-only": (
        "DELTA_CANNOT_MODIFY_APPEND_ONLY",
        lambda s, d: DeltaTable.forPath(s, f"{d}/o").update(set={"id": "3"}),
    ),
    "merge: two source rows": (
        "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
        lambda s, d: (
            DeltaTable.forPath(s, f"{d}/t")
            .alias("t")
            .merge(s.sql("SELECT * FROM VALUES (1), (1) AS v(id)").alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.id > 0")
            .whenMatchedUpdate(set={"name": "'x'"})
            .execute()
        ),
    ),
    "merge: no clause": (
        "DELTA_MERGE_MISSING_WHEN",
        lambda s, d: DeltaTable.forPath(s, f"{d}/t").alias("t").merge(s.range(1).alias("s"), "t.id = s.id").execute(),
    ),
    "write: buckets": (
        "DELTA_OPERATION_NOT_ALLOWED",
        lambda s, d: s.range(1).write.format("delta").bucketBy(2, "id").saveAsTable("cond_buckets"),
    ),
    "vacuum: negative": (
        "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE",
        lambda s, d: DeltaTable.forPath(s, f"{d}/t").vacuum(-2),
    ),
    "generate: mode": ("DELTA_MODE_NOT_SUPPORTED", lambda s, d: DeltaTable.forPath(s, f"{d}/t").generate("nope")),
    "convert: nothing there": (
        "DELTA_EMPTY_DIRECTORY",
        lambda s, d: DeltaTable.convertToDelta(s, f"parquet.`{d}/nothing`"),
    ),
    "stream: update mode": (
        "DELTA_UNSUPPORTED_OUTPUT_MODE",
        lambda s, d: (
            s.readStream.format("delta")
            .load(f"{d}/t")
            .writeStream.format("delta")
            .outputMode("update")
            .option("checkpointLocation", f"{d}/check")
            .start(f"{d}/sink")
        ),
    ),
}


def _condition(call: Callable[[], Any]) -> str:
    try:
        call()
    except PySparkException as e:
        condition = e.getErrorClass() or f"none: {e}"
        return condition if e.getSqlState() else f"{condition} without a SQLSTATE"  # type: ignore[attr-defined]
    except Exception as e:  # noqa: BLE001 - it is what is looked for
        return f"{type(e).__name__}: {e}"
    return "nothing is rejected"


def test_error_conditions_match_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    trilake.register(spark)
    trilake.install(spark)
    names = {*re.findall(r"\{(\w+)\}", _SETUP)} - {"dir"}
    places = {n: f"delta.`{tmp_path}/{n}`" for n in {*names, "new"}}
    wrong = []
    try:
        for statement in _SETUP.format(dir=tmp_path, **places).split(";\n"):
            if statement.strip():
                spark.sql(statement)
        for line in _STATEMENTS.read_text().splitlines():
            condition, _, text = line.partition(": ")
            found = _condition(lambda text=text: spark.sql(text.format(dir=tmp_path, **places)).collect())  # type: ignore[misc]
            if found != condition:
                wrong.append(f"{text}\n    {found}, not {condition}")
        for name, (condition, call) in _CALLS.items():
            found = _condition(lambda call=call: call(spark, str(tmp_path)))  # type: ignore[misc]
            if found != condition:
                wrong.append(f"{name}\n    {found}, not {condition}")
    finally:
        spark.sql("DROP VIEW IF EXISTS cond_view")
        spark.sql("DROP VIEW IF EXISTS spark_view")
        spark.sql("DROP TABLE IF EXISTS cond_named")
        trilake.uninstall(spark)
    assert not wrong, "\n".join(wrong)


def test_every_condition_has_its_sqlstate() -> None:
    stated = re.compile(r'(?:condition|default_condition)(?:: ClassVar\[str\])? ?= ?"([A-Z_.]+)"|"((?:DELTA)_[A-Z_]+)"')
    source = Path(trilake.__file__).parent
    names = {
        m[1] or m[2]
        for path in source.rglob("*.py")
        if path.name != "sql_states.py"
        for m in stated.finditer(path.read_text())
    }
    assert len(names) > 130
    assert [n for n in sorted(names) if sql_state(n) is None] == []
    assert all(len(state) == 5 for state in SQL_STATES.values())
