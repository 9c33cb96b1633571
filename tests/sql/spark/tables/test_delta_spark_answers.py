"""Commits and results of delta-spark 4.x, from its sources: versions, history parameters, columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from tests.connect_session import run_apart

DETAIL = [
    *("format", "id", "name", "description", "location", "createdAt", "lastModified", "partitionColumns"),
    *("clusteringColumns", "numFiles", "sizeInBytes", "properties", "minReaderVersion", "minWriterVersion"),
    "tableFeatures",
]


@pytest.fixture
def table(sql: SparkSession) -> Iterator[str]:
    sql.sql("CREATE OR REPLACE TABLE answers (id INT, s STRING) USING delta")
    yield "answers"
    sql.sql("DROP TABLE answers")


def newest(spark: SparkSession, table: str = "answers") -> tuple[int, str, dict[str, Any]]:
    row = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]
    return row.version, row.operation, row.operationParameters


@pytest.mark.parametrize(
    ("change", "operation", "parameters"),
    [
        ("UNSET TBLPROPERTIES ('no')", "UNSET TBLPROPERTIES", {"properties": '["no"]', "ifExists": "true"}),
        ("UNSET TBLPROPERTIES IF EXISTS ('no')", "UNSET TBLPROPERTIES", {"properties": '["no"]', "ifExists": "true"}),
        ("SET TBLPROPERTIES ('k' = 'v')", "SET TBLPROPERTIES", {"properties": '{"k":"v"}'}),
        ("DROP CONSTRAINT IF EXISTS c", "DROP CONSTRAINT", {"name": "c", "existed": "false"}),
    ],
    ids=["unset", "unset if exists", "set", "drop constraint"],
)
def test_change_without_effect_is_a_version(
    sql: SparkSession, table: str, change: str, operation: str, parameters: dict[str, str]
) -> None:
    sql.sql(f"ALTER TABLE {table} {change}")
    version = newest(sql)[0]
    sql.sql(f"ALTER TABLE {table} {change}")
    assert newest(sql) == (version + 1, operation, parameters)


@pytest.mark.parametrize("columns", ["()", "", "( )", "(id,)"])
def test_zorder_without_columns_is_a_syntax_error(sql: SparkSession, table: str, columns: str) -> None:
    with pytest.raises(ParseException):
        sql.sql(f"OPTIMIZE {table} ZORDER BY {columns}")


def test_vacuum_returns_the_uri_of_the_table(sql: SparkSession, table: str) -> None:
    place = sql.sql(f"DESCRIBE DETAIL {table}").collect()[0].location
    assert place.startswith("file:/")
    assert [row.path for row in sql.sql(f"VACUUM {table}").collect()] == [place]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE OR REPLACE TABLE defaults (id INT DEFAULT 5) USING delta",
        "ALTER TABLE answers ALTER COLUMN id SET DEFAULT 5",
    ],
    ids=["create", "alter"],
)
def test_column_default_needs_its_feature(sql: SparkSession, table: str, statement: str) -> None:
    with pytest.raises(AnalysisException, match=r"delta\.feature\.allowColumnDefaults") as e:
        sql.sql(statement)
    assert e.value.getCondition() == "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
    assert not sql.catalog.tableExists("defaults")
    sql.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")
    sql.sql(f"ALTER TABLE {table} ALTER COLUMN id SET DEFAULT 5")
    sql.sql(f"INSERT INTO {table} (s) VALUES ('x')")
    assert sql.table(table).collect()[0].id == 5


def test_detail_has_the_columns_of_delta_spark(sql: SparkSession, table: str) -> None:
    detail = sql.sql(f"DESCRIBE DETAIL {table}")
    assert detail.columns == DETAIL
    assert all(f.nullable for f in detail.schema.fields)
    assert detail.collect()[0].name == "spark_catalog.default.answers"


def test_history_has_the_parameters_of_delta_spark(sql: SparkSession, table: str, tmp_path: Path) -> None:
    rows = sql.sql("SELECT 1 AS id, 'x' AS s")
    rows.write.format("delta").mode("append").option("mergeSchema", True).saveAsTable(table)
    assert newest(sql)[2] == {"mode": "Append", "partitionBy": "[]", "canMergeSchema": "true"}
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", True).saveAsTable(table)
    _, operation, parameters = newest(sql)
    assert operation == "CREATE OR REPLACE TABLE AS SELECT"
    assert parameters["canOverwriteSchema"] == parameters["isV1SaveAsTableOverwrite"] == "true"
    sql.sql(f"CREATE OR REPLACE TABLE {table} USING delta AS SELECT 1 AS id")
    assert set(newest(sql)[2]) == {"isManaged", "description", "partitionBy", "clusterBy", "properties"}
    sql.sql(f"CREATE TABLE delta.`{tmp_path}/c` SHALLOW CLONE {table}")
    assert newest(sql, f"delta.`{tmp_path}/c`")[2] == {"source": "spark_catalog.default.answers", "sourceVersion": "3"}
    sql.sql(f"RESTORE {table} TO VERSION AS OF 1")
    assert newest(sql)[2] == {"version": "1", "timestamp": None}


def test_history_has_conditions_as_spark_prints_them(sql: SparkSession, table: str) -> None:
    sql.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    sql.sql(f"UPDATE {table} t SET id = 4 WHERE t.id = 1 AND s IN ('a', 'b')")
    assert newest(sql)[2] == {"predicate": '["((id = 1) AND s IN (a,b))"]'}
    sql.sql(f"DELETE FROM {table} WHERE id + 0L > 3 AND s = 'a'")
    assert newest(sql)[2] == {"predicate": '["(((cast(id as bigint) + 0) > cast(3 as bigint)) AND (s = a))"]'}
    sql.sql(
        f"MERGE INTO {table} t USING (SELECT 2 AS id, 'z' AS z) q ON t.id = q.id "
        "WHEN MATCHED AND q.z = 'y' THEN DELETE WHEN MATCHED THEN UPDATE SET s = z "
        "WHEN NOT MATCHED AND z > 'a' THEN INSERT (id) VALUES (q.id) "
        "WHEN NOT MATCHED BY SOURCE AND t.s IS NULL THEN DELETE"
    )
    assert {name: json.loads(text) for name, text in newest(sql)[2].items()} == {
        "predicate": ["(id = id)"],
        "matchedPredicates": [{"predicate": "(z = y)", "actionType": "delete"}, {"actionType": "update"}],
        "notMatchedPredicates": [{"predicate": "(z > a)", "actionType": "insert"}],
        "notMatchedBySourcePredicates": [{"predicate": "isnull(s)", "actionType": "delete"}],
    }
    # Other numbers after "#" may be those of values and subqueries: the statement's text stays.
    sql.sql(f"DELETE FROM {table} WHERE s <> 'b#2' AND id = 2")
    assert newest(sql)[2] == {"predicate": """["s <> 'b#2' AND id = 2"]"""}
    sql.sql(f"DELETE FROM {table} WHERE id IN (SELECT 3)")
    assert newest(sql)[2] == {"predicate": '["id IN (SELECT 3)"]'}


def test_check_is_stored_with_blanks_between_its_tokens(sql: SparkSession, table: str) -> None:
    sql.sql(f"ALTER TABLE {table} ADD CONSTRAINT known CHECK (length(s)<2 OR s IN ('x y','b'))")
    text = "length ( s ) < 2 OR s IN ( 'x y' , 'b' )"
    assert newest(sql)[2] == {"name": "known", "expr": text}
    assert sql.sql(f"SHOW TBLPROPERTIES {table}('delta.constraints.known')").collect()[0].value == text
    sql.sql(f"INSERT INTO {table} VALUES (1, 'x y')")
    with pytest.raises(AnalysisException, match="known"):
        sql.sql(f"INSERT INTO {table} VALUES (1, 'xy')")


def test_create_statement_has_the_constraints(sql: SparkSession, table: str) -> None:
    sql.sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id > 0)")
    statement = sql.sql(f"SHOW CREATE TABLE {table}").collect()[0][0]
    sql.sql(statement.replace("answers", "answers_again", 1))
    try:
        with pytest.raises(AnalysisException, match="positive"):
            sql.sql("INSERT INTO answers_again VALUES (0, 'x')")
    finally:
        sql.sql("DROP TABLE answers_again")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE nowhere.default.there (id INT) USING delta",
        "CREATE TABLE IF NOT EXISTS a.b.default.there (id INT) USING delta",
        "CREATE OR REPLACE TABLE nowhere.default.there USING delta AS SELECT 1 AS id",
        "CREATE OR REPLACE TABLE a.b.default.there (id INT) USING delta LOCATION '{path}'",
        "CREATE OR REPLACE TABLE a.b.default.there USING lance LOCATION '{path}' AS SELECT 1 AS id",
        "CREATE TABLE a.b.default.there LIKE answers",
        "CREATE OR REPLACE TABLE nowhere.default.there SHALLOW CLONE answers",
    ],
)
def test_name_in_another_catalog_names_no_table_here(
    sql: SparkSession, table: str, tmp_path: Path, statement: str
) -> None:
    tables, path = sql.catalog.listTables(), tmp_path / "new"
    with pytest.raises(AnalysisException) as e:
        sql.sql(statement.format(path=path))
    assert e.value.getCondition() == "REQUIRES_SINGLE_PART_NAMESPACE"
    assert sql.catalog.listTables() == tables
    assert not path.exists()


@pytest.mark.parametrize(
    "columns", ["(id INT) USING delta LOCATION '{}'", "USING lance LOCATION '{}' AS SELECT 1 AS id"]
)
def test_missing_schema_is_found_before_there_are_files(sql: SparkSession, tmp_path: Path, columns: str) -> None:
    path = tmp_path / "new"
    with pytest.raises(AnalysisException) as e:
        sql.sql(f"CREATE OR REPLACE TABLE no_schema.there {columns.format(path)}")
    assert e.value.getCondition() == "SCHEMA_NOT_FOUND"
    assert not path.exists()


@pytest.mark.parametrize("end", ["", " AS SELECT 1 AS id"])
def test_empty_location_is_rejected(sql: SparkSession, end: str) -> None:
    with pytest.raises(AnalysisException, match="LOCATION must not be an empty string"):
        sql.sql(f"CREATE TABLE nowhere{' ' if end else ' (id INT) '}USING delta LOCATION ''{end}")
    assert not sql.catalog.tableExists("nowhere")


def test_new_name_needs_the_comments_of_the_table(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(f"CREATE TABLE delta.`{tmp_path}` (id INT COMMENT 'key', s STRING) USING delta")
    for columns in ("id INT, s STRING", "id INT COMMENT 'key', s STRING COMMENT 'text'"):
        with pytest.raises(AnalysisException) as e:
            sql.sql(f"CREATE TABLE commented ({columns}) USING delta LOCATION '{tmp_path}'")
        assert e.value.getCondition() == "DELTA_CREATE_TABLE_SCHEME_MISMATCH"
    sql.sql(f"CREATE TABLE commented (id INT COMMENT 'key', s STRING) USING delta LOCATION '{tmp_path}'")
    sql.sql("DROP TABLE commented")


def test_doubled_quotes_in_strings(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(
        f"CREATE TABLE quotes (id INT COMMENT 'it''s', v INT COMMENT \"d\"\"q ''\") USING delta COMMENT 'a' 'b''c'"
        f" LOCATION '{tmp_path}/it''s' TBLPROPERTIES ('k''ey' = 'v''al')"
    )
    try:
        assert (tmp_path / "it's" / "_delta_log").is_dir()
        assert [row.comment for row in sql.sql("DESCRIBE quotes").collect()] == ["it's", "d\"q ''"]
        detail = sql.sql(f"DESCRIBE DETAIL '{tmp_path}/it''s'").collect()[0]
        assert (detail.description, detail.properties) == ("ab'c", {"k'ey": "v'al"})
        sql.sql("COMMENT ON TABLE quotes IS 'that''s'")
        assert sql.sql("DESCRIBE DETAIL quotes").collect()[0].description == "that's"
    finally:
        sql.sql("DROP TABLE quotes")


HIVE = """
import sys
import trilake
place = sys.argv[1]
spark = trilake.session(cores=1, **{
    "spark.sql.warehouse.dir": f"file:{place}/warehouse",
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={place}/metastore;create=true",
})
trilake.install(spark)
spark.sql("CREATE TABLE t (id INT) USING delta")
spark.sql("ALTER TABLE t ADD COLUMNS (s STRING, n BIGINT)")
spark.sql("ALTER TABLE t ALTER COLUMN n FIRST")
print([c.name for c in spark.catalog.listColumns("t")], spark.sql("DESCRIBE t").count())
"""


@pytest.mark.soak  # making a metastore takes half a minute
def test_hive_metastore_logs_no_errors_for_new_columns(tmp_path: Path) -> None:
    done = run_apart(HIVE, str(tmp_path))
    assert "['n', 'id', 's'] 3" in done.stdout, done.stderr[-3000:]
    assert "HiveAlterHandler" not in done.stderr
    assert "MetaException" not in done.stderr
