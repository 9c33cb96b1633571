"""``replaceUsing`` and ``replaceOn``: an overwrite replaces the table's rows that match one of the new rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake.errors import TrilakeError

KINDS: dict[str, dict[str, Any]] = {
    "copies": {"properties": {"delta.enableDeletionVectors": "false", "delta.enableChangeDataFeed": "true"}},
    "vectors": {"properties": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}},
    "partitions": {"partition_by": ["name"]},
    "names": {"properties": {"delta.columnMapping.mode": "name"}},
}
STUDENTS = [("Dylan", "US"), ("Doug", "UK"), ("Julia", "IT"), ("Adam", None)]


def students(path: Path, **options: Any) -> None:
    trilake.write(pa.table(dict(zip(("name", "country"), zip(*STUDENTS, strict=True), strict=True))), path, **options)


def frame(sql: SparkSession, *rows: tuple[str, str | None]) -> DataFrame:
    return sql.createDataFrame(list(rows), "name string, country string")


def overwrite(df: DataFrame, path: Path, **options: str) -> None:
    df.write.format("delta").mode("overwrite").options(**options).save(str(path))


def rows_at(path: Path) -> set[tuple[str, str | None]]:
    return {tuple(r.values()) for r in trilake.open(path).to_arrow(["name", "country"]).to_pylist()}  # type: ignore[misc]


def parameters(path: Path) -> Mapping[str, Any]:
    newest: Mapping[str, Any] = trilake.open(path).history(1).to_pylist()[0]
    return dict(newest["operationParameters"])


@pytest.mark.parametrize("kind", KINDS)
def test_replace_using_compares_with_equality(sql: SparkSession, tmp_path: Path, kind: str) -> None:
    students(tmp_path, **KINDS[kind])
    overwrite(frame(sql, ("Peter", "FR"), ("Jennie", "UK"), ("Eva", None)), tmp_path, replaceUsing="country")
    kept = {("Dylan", "US"), ("Julia", "IT"), ("Adam", None)}
    assert rows_at(tmp_path) == kept | {("Peter", "FR"), ("Jennie", "UK"), ("Eva", None)}
    assert parameters(tmp_path)["replaceUsingCols"] == "(country)"


@pytest.mark.parametrize("kind", KINDS)
def test_replace_on_uses_its_condition(sql: SparkSession, tmp_path: Path, kind: str) -> None:
    students(tmp_path, **KINDS[kind])
    new = frame(sql, ("Eva", None), ("Eve", None), ("Bob", "US")).alias("s")
    overwrite(new, tmp_path, targetAlias="t", replaceOn="t.country <=> s.country AND t.name <> 'Dylan'")
    kept = {("Dylan", "US"), ("Doug", "UK"), ("Julia", "IT")}
    assert rows_at(tmp_path) == kept | {("Eva", None), ("Eve", None), ("Bob", "US")}
    assert parameters(tmp_path)["replaceOnCond"] == "t.country <=> s.country AND t.name <> 'Dylan'"


@pytest.mark.parametrize("kind", ["copies", "vectors"])
def test_change_feed_has_old_and_new_rows(sql: SparkSession, tmp_path: Path, kind: str) -> None:
    students(tmp_path, **KINDS[kind])
    overwrite(frame(sql, ("Jennie", "UK")), tmp_path, replaceUsing="country")
    changes = trilake.open(tmp_path).changes(1, 1).select(["name", "_change_type"]).to_pylist()
    assert {tuple(r.values()) for r in changes} == {("Doug", "delete"), ("Jennie", "insert")}


def test_nondeterministic_rows_are_computed_once(sql: SparkSession, tmp_path: Path) -> None:
    trilake.write(pa.table({"id": list(range(100)), "new": [False] * 100}), tmp_path)
    rows = sql.range(100).where(F.rand() < 0.5).withColumn("new", F.lit(True))
    overwrite(rows, tmp_path, replaceUsing="id")
    assert sorted(trilake.open(tmp_path).to_arrow()["id"].to_pylist()) == list(range(100))


def test_empty_overwrite_replaces_nothing(sql: SparkSession, tmp_path: Path) -> None:
    students(tmp_path)
    overwrite(frame(sql, ("x", "US")).where("false").alias("s"), tmp_path, replaceOn="true")
    assert rows_at(tmp_path) == set(STUDENTS)
    overwrite(frame(sql, ("x", "US")), tmp_path, replaceOn="true")
    assert rows_at(tmp_path) == {("x", "US")}


def test_new_table_gets_all_rows(sql: SparkSession, tmp_path: Path) -> None:
    overwrite(frame(sql, ("x", "US")), tmp_path / "new", replaceUsing="country")
    assert rows_at(tmp_path / "new") == {("x", "US")}


def test_new_columns_are_added_with_merge_schema(sql: SparkSession, tmp_path: Path) -> None:
    students(tmp_path)
    new = frame(sql, ("Jennie", "UK")).withColumn("age", F.lit(7))
    overwrite(new, tmp_path, replaceUsing="country", mergeSchema="true")
    ages = trilake.open(tmp_path).to_arrow(["name", "age"]).to_pylist()
    assert {r["name"]: r["age"] for r in ages} == {"Dylan": None, "Julia": None, "Adam": None, "Jennie": 7}


def test_named_tables_match_by_name_and_by_position(sql: SparkSession, tmp_path: Path) -> None:
    students(tmp_path)
    sql.sql(f"CREATE TABLE students_replaced USING delta LOCATION '{tmp_path}'")
    try:
        turned = frame(sql, ("Jennie", "UK")).select("country", "name")
        turned.write.format("delta").mode("overwrite").option("replaceUsing", "country").saveAsTable(
            "students_replaced"
        )
        assert ("Doug", "UK") not in rows_at(tmp_path)
        assert ("Jennie", "UK") in rows_at(tmp_path)
        writer = frame(sql, ("Jo", "IT")).toDF("n", "country").alias("s").write.mode("overwrite")
        writer.option("replaceUsing", "country").insertInto("students_replaced")
        writer = frame(sql, ("Al", "US")).toDF("n", "c").alias("s").write.mode("overwrite")
        writer.option("replaceOn", "s.c = country").insertInto("students_replaced")
        assert rows_at(tmp_path) == {("Al", "US"), ("Jennie", "UK"), ("Jo", "IT"), ("Adam", None)}
        with pytest.raises(PySparkException, match="has different positions"):
            turned.write.mode("overwrite").option("replaceUsing", "country").insertInto("students_replaced")
    finally:
        sql.sql("DROP TABLE students_replaced")


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({"replaceUsing": "name", "replaceOn": "true"}, "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS"),
        (
            {"replaceUsing": "name", "replaceWhere": "true"},
            "DELTA_OVERWRITE_BY_FILTER_INCOMPATIBLE_REPLACE_ON_OR_USING",
        ),
        (
            {"replaceOn": "true", "partitionOverwriteMode": "dynamic"},
            "DELTA_DYNAMIC_PARTITION_OVERWRITE_INCOMPATIBLE_REPLACE_ON_OR_USING",
        ),
        ({"replaceOn": "true", "overwriteSchema": "true"}, "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS"),
        ({"replaceOn": "true", "dataChange": "false"}, "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS"),
        ({"replaceUsing": "name,"}, "DELTA_ILLEGAL_OPTION"),
        ({"targetAlias": "t"}, "DELTA_ILLEGAL_OPTION"),
        ({"replaceUsing": "id"}, "UNRESOLVED_INSERT_REPLACE_USING_COLUMN"),
        ({"replaceOn": "name = 'x'"}, "DELTA_INSERT_REPLACE_ON_AMBIGUOUS_COLUMNS_IN_CONDITION"),
        (
            {"replaceOn": "t.name = s.nmae", "targetAlias": "t"},
            "DELTA_INSERT_REPLACE_ON_UNRESOLVED_COLUMNS_IN_CONDITION",
        ),
    ],
)
def test_invalid_options_are_rejected(
    sql: SparkSession, tmp_path: Path, options: dict[str, str], condition: str
) -> None:
    students(tmp_path)
    with pytest.raises(TrilakeError) as raised:
        overwrite(frame(sql, ("x", "US")).alias("s"), tmp_path, **options)
    assert raised.value.condition == condition
    assert "DeltaTable.alias" not in str(raised.value)
    assert rows_at(tmp_path) == set(STUDENTS)


def test_append_rejects_the_options(sql: SparkSession, tmp_path: Path) -> None:
    students(tmp_path)
    with pytest.raises(TrilakeError, match="replaceOn needs mode overwrite, got append"):
        frame(sql, ("x", "US")).write.format("delta").mode("append").option("replaceOn", "true").save(str(tmp_path))
    with pytest.raises(TrilakeError, match="create a new table"):
        frame(sql, ("x", "US")).writeTo("replaced_new").using("delta").option("replaceOn", "true").create()
