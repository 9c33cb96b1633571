"""Session settings for stored values: store assignment policies, and case sensitivity."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from trilake import DeltaTable
from trilake.errors import TrilakeError
from trilake.spark.delta.storing.store_assignment import holds_all

POLICY = "spark.sql.storeAssignmentPolicy"
CASE = "spark.sql.caseSensitive"
ANSI = "spark.sql.ansi.enabled"
AS_SESSION = "spark.databricks.delta.updateAndMergeCastingFollowsAnsiEnabledFlag"
COLUMNS = "id INT, small TINYINT, text STRING, d DATE, l ARRAY<INT>, m MAP<STRING, TINYINT>, s STRUCT<x: INT>"


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    for key in (POLICY, CASE, ANSI, AS_SESSION):
        spark.conf.unset(key)
    trilake.uninstall(spark)


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table with one row."""
    place = tmp_path_factory.mktemp("first") / "t"
    trilake.install(spark)
    spark.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta")
    spark.sql(f"INSERT INTO delta.`{place}` (id) VALUES (1)")
    trilake.uninstall(spark)
    return place


@pytest.fixture
def t(first: Path, sql: SparkSession, tmp_path: Path) -> str:
    """The SQL name of a copy of that table."""
    shutil.copytree(first, tmp_path / "t")
    return f"delta.`{tmp_path}/t`"


def only(spark: SparkSession, name: str, column: str) -> Any:
    """The value of a column in the newest row."""
    value = spark.table(name).orderBy("id", ascending=False).first()[column]
    return value.asDict() if isinstance(value, T.Row) else value


def insert(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(f"INSERT INTO {name} (id, {column}) SELECT 2S, {value}")


def update(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(f"UPDATE {name} SET {column} = {value}")


def update_by_call(spark: SparkSession, name: str, column: str, value: str) -> None:
    DeltaTable.forPath(spark, name.split("`")[1]).update(set={column: value})


def merge(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 1S AS id, {value} AS v) q ON t.id = q.id"
        f" WHEN MATCHED THEN UPDATE SET {column} = q.v"
    )


def merge_insert(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 2S AS id, {value} AS v) q ON t.id = q.id"
        f" WHEN NOT MATCHED THEN INSERT (id, {column}) VALUES (q.id, q.v)"
    )


def insert_into(spark: SparkSession, name: str, column: str, value: str) -> None:
    given = {"id": "2S", column: value}
    columns = [given.get(f.name, f"CAST(NULL AS {f.dataType.simpleString()})") for f in spark.table(name).schema]
    spark.sql(f"SELECT {', '.join(columns)}").write.insertInto(name)


WRITES = [insert, update, update_by_call, merge, merge_insert, insert_into]
Write = Callable[[SparkSession, str, str, str], None]


@pytest.mark.parametrize(
    ("write", "ansi"),
    [
        *((insert, "true"), (update, "true"), (merge_insert, "false")),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in ((update_by_call, "false"), (merge, "true"))),
        pytest.param(insert_into, "false", marks=pytest.mark.soak),
    ],
)
def test_legacy_policy_casts_as_without_ansi_mode(sql: SparkSession, t: str, write: Write, ansi: str) -> None:
    sql.conf.set(POLICY, "legacy")
    sql.conf.set(ANSI, ansi)
    for column, value, stored in (
        ("small", "300", 44),
        ("small", "'x'", None),
        ("d", "'x'", None),
        ("l", "array('x', '2')", [None, 2]),
        ("l", "array(3000000000, 1L)", [-1294967296, 1]),
        ("m", "map('a', 300)", {"a": 44}),
        ("s", "named_struct('x', 'q')", {"x": None}),
    ):
        trilake.open(t.split("`")[1]).delete("id = 2")
        write(sql, t, column, value)
        assert only(sql, t, column) == stored, (column, value)


@pytest.mark.parametrize("write", WRITES)
def test_strict_policy_accepts_only_lossless_casts(sql: SparkSession, t: str, write: Write) -> None:
    sql.conf.set(POLICY, "STRICT")
    for column, value in (
        ("small", "1"),
        ("small", "'1'"),
        ("d", "'2020-01-01'"),
        ("l", "array(1L)"),
        ("m", "map('a', 1)"),
        ("s", "named_struct('x', 1L)"),
    ):
        with pytest.raises(TrilakeError, match="cannot up cast") as e:
            write(sql, t, column, value)
        assert e.value.context["condition"] == "CANNOT_UP_CAST_DATATYPE"
    for column, value, stored in (("text", "DATE'2020-01-01'", "2020-01-01"), ("l", "array(1S, NULL)", [1, None])):
        trilake.open(t.split("`")[1]).delete("id = 2")
        write(sql, t, column, value)
        assert only(sql, t, column) == stored, (column, value)


def test_changes_cast_by_the_session_policy_if_set(sql: SparkSession, t: str) -> None:
    sql.conf.set(AS_SESSION, "true")
    sql.conf.set(ANSI, "false")
    update(sql, t, "small", "300")
    assert only(sql, t, "small") == 44
    with pytest.raises(TrilakeError):
        insert(sql, t, "small", "300")
    sql.conf.set(ANSI, "true")
    sql.conf.set(POLICY, "LEGACY")
    with pytest.raises(TrilakeError):
        merge(sql, t, "small", "300")


@pytest.mark.parametrize("write", WRITES[:-1])
def test_case_sensitive_column_names(sql: SparkSession, t: str, write: Write) -> None:
    sql.conf.set(CASE, "true")
    with pytest.raises((TrilakeError, AnalysisException)):
        write(sql, t, "Text", "'x'")
    assert sql.table(t).count() == 1
    assert only(sql, t, "text") is None
    write(sql, t, "text", "'x'")
    assert only(sql, t, "text") == "x"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {t} BY NAME SELECT 2 AS ID",
        "INSERT INTO {t} BY NAME SELECT 2 AS id, named_struct('X', 1) AS s",
        "UPDATE {t} SET S.x = 1",
        "UPDATE {t} SET s.X = 1",
        "UPDATE {t} SET s = named_struct('X', 1)",
        "MERGE INTO {t} t USING (SELECT 1 AS ID) q ON t.id = q.ID WHEN NOT MATCHED THEN INSERT (ID) VALUES (q.ID)",
        "MERGE INTO {t} t USING {other} q ON t.id = q.id WHEN MATCHED THEN UPDATE SET *",
        "MERGE INTO {t} t USING {other} q ON t.id = q.id WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_name_in_another_case_is_rejected(sql: SparkSession, t: str, statement: str) -> None:
    text = statement.format(t=t, other=f"(SELECT * EXCEPT (text), text AS Text FROM {t})")
    sql.conf.set(CASE, "true")
    with pytest.raises((TrilakeError, AnalysisException)):
        sql.sql(text)
    sql.conf.set(CASE, "false")
    sql.sql(text)


def test_case_sensitive_partition_clauses(sql: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/p`"
    sql.sql(f"CREATE TABLE {name} (id INT, p INT) USING delta PARTITIONED BY (p)")
    sql.conf.set(CASE, "true")
    with pytest.raises(TrilakeError, match="non-partition column P"):
        sql.sql(f"INSERT INTO {name} PARTITION (P = 1) VALUES (1)")
    sql.sql(f"INSERT INTO {name} PARTITION (p = 1) VALUES (1)")
    assert [tuple(r) for r in sql.table(name).collect()] == [(1, 1)]


def test_merge_default_for_unknown_column_is_rejected(sql: SparkSession, t: str) -> None:
    with pytest.raises(TrilakeError, match="nosuch"):
        sql.sql(
            f"MERGE INTO {t} t USING (SELECT 2 AS id) q ON t.id = q.id"
            " WHEN NOT MATCHED THEN INSERT (id, nosuch) VALUES (q.id, DEFAULT)"
        )


def test_up_casts_match_spark(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    spark_cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    parse = jvm.org.apache.spark.sql.types.DataType.fromJson
    decimals = [T.DecimalType(p, s) for p in (1, 3, 5, 7, 10, 15, 19, 20, 38) for s in (0, 1, 5, 18) if s <= p]
    numbers = [T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType()]
    others = [T.StringType(), T.BinaryType(), T.BooleanType(), T.DateType(), T.TimestampType(), T.TimestampNTZType()]
    types: list[T.DataType] = [*numbers, *others, T.NullType(), *decimals]
    java = [parse(t.json()) for t in types]
    wrong = [
        (source.simpleString(), target.simpleString(), holds_all(target, source))
        for source, a in zip(types, java, strict=True)
        for target, b in zip(types, java, strict=True)
        if holds_all(target, source) != spark_cast.canUpCast(a, b)
    ]
    assert not wrong


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("write", [update, merge, merge_insert])
def test_overflow_in_a_change_has_delta_spark_condition(sql: SparkSession, t: str, write: Write, ansi: str) -> None:
    sql.conf.set(ANSI, ansi)
    with pytest.raises(TrilakeError) as e:
        write(sql, t, "small", "1000")
    assert e.value.condition == "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"
