"""INSERT: rows in which all values are DEFAULT, missing columns, and new columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import SchemaMismatchError
from trilake.spark.delta.settings import KEEP_NULL_STRUCTS, NULLS_FOR_MISSING

_DEFAULTS = "(a INT DEFAULT 42, b INT DEFAULT 7)"
_ALLOWED = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'enabled')"


def rows(spark: SparkSession, table: str) -> list[tuple[object, ...]]:
    return [tuple(r) for r in spark.sql(f"SELECT * FROM {table} ORDER BY 1").collect()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("INTO {} VALUES (DEFAULT, DEFAULT)", [(1, 2), (42, 7)]),
        ("INTO {} (a) VALUES (DEFAULT), (DEFAULT)", [(1, 2), (42, 7), (42, 7)]),
        ("INTO {} SELECT DEFAULT, DEFAULT", [(1, 2), (42, 7)]),
        ("INTO {} SELECT DEFAULT, DEFAULT FROM range(3)", [(1, 2), (42, 7), (42, 7), (42, 7)]),
        ("INTO {} SELECT DEFAULT, 3 UNION ALL SELECT 2, 3", [(1, 2), (2, 3), (42, 3)]),
        ("INTO {} REPLACE WHERE a = 42 VALUES (DEFAULT, DEFAULT)", [(1, 2), (42, 7)]),
        ("OVERWRITE {} VALUES (DEFAULT, DEFAULT)", [(42, 7)]),
    ],
)
def test_insert_rows_of_only_defaults(
    sql: SparkSession, tmp_path: Path, values: str, expected: list[tuple[int, int]]
) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} {_DEFAULTS} USING delta {_ALLOWED}")
    sql.sql(f"INSERT INTO {table} VALUES (1, 2)")
    sql.sql(f"INSERT {values.format(table)}")
    assert rows(sql, table) == expected


@pytest.mark.parametrize(
    ("columns", "more", "expected"),
    [
        ("a INT, b INT", "", (None, None)),
        ("a INT DEFAULT 42, b STRING DEFAULT upper('x')", f"PARTITIONED BY (b) {_ALLOWED}", (42, "X")),
        ("a BIGINT GENERATED ALWAYS AS IDENTITY", "", (1,)),
        ("a INT DEFAULT 5, b INT GENERATED ALWAYS AS (a + 1)", _ALLOWED, (5, 6)),
    ],
)
def test_rows_without_values_get_table_defaults(
    sql: SparkSession, tmp_path: Path, columns: str, more: str, expected: tuple[object, ...]
) -> None:
    """By INSERT, by MERGE, and from a DataFrame without columns."""
    tables = [f"delta.`{tmp_path}/{n}`" for n in range(3)]
    for table in tables:
        sql.sql(f"CREATE TABLE {table} ({columns}) USING delta {more}")
    sql.sql(f"INSERT INTO {tables[0]} VALUES ({', '.join(['DEFAULT'] * len(expected))})")
    sql.sql(
        f"MERGE INTO {tables[1]} t USING (SELECT 1 AS id) s ON t.a = s.id + 1000"
        " WHEN NOT MATCHED THEN INSERT (a) VALUES (DEFAULT)"
    )
    sql.sql("VALUES (1)").select().write.format("delta").mode("append").save(f"{tmp_path}/2")
    assert [rows(sql, table) for table in tables] == [[expected]] * 3


def test_merge_keeps_the_default_of_the_first_column(sql: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT DEFAULT 42, b INT) USING delta {_ALLOWED}")
    sql.sql(
        f"MERGE INTO {table} t USING (SELECT id FROM range(2)) s ON t.a = s.id"
        " WHEN NOT MATCHED THEN INSERT (b) VALUES (DEFAULT)"
    )
    assert rows(sql, table) == [(42, None)] * 2


def test_trevni_append_from_a_frame_without_columns(sql: SparkSession, tmp_path: Path) -> None:
    trilake.write(sql.sql("SELECT 1 AS a"), str(tmp_path), format="trevni")
    sql.range(3).select().write.format("trevni").mode("append").save(str(tmp_path))
    assert sorted(trilake.open(str(tmp_path)).to_arrow()["a"].to_pylist(), key=str) == [1, None, None, None]


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_table_without_columns_is_not_created(sql: SparkSession, tmp_path: Path, format: str) -> None:
    """It would lose the written rows."""
    without = sql.range(3).select()
    for mode in ("append", "overwrite"):
        with pytest.raises(SchemaMismatchError, match="at least one column"):
            without.write.format(format).mode(mode).save(f"{tmp_path}/new")
        with pytest.raises(SchemaMismatchError, match="at least one column"):
            trilake.write(pa.table({"n": [1]}).select([]), f"{tmp_path}/new", format=format, mode=mode)
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").rglob("*.*"))


AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT WITH SCHEMA EVOLUTION INTO {} SELECT 5, 6, 7 AS c", [(1, 2, None), (5, 6, 7)]),
        ("INSERT WITH SCHEMA EVOLUTION INTO {} SELECT 5, 6, 7 AS c, 'x' AS d", [(1, 2, None, None), (5, 6, 7, "x")]),
        ("SET {}", [(1, 2, None), (5, 6, 7)]),
    ],
)
def test_extra_columns_are_added_with_schema_evolution(
    sql: SparkSession, tmp_path: Path, statement: str, expected: list[tuple[object, ...]]
) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, b INT) USING delta")
    sql.sql(f"INSERT INTO {table} VALUES (1, 2)")
    with pytest.raises(SchemaMismatchError, match="the query has"):
        sql.sql(f"INSERT INTO {table} SELECT 5, 6, 7 AS c")
    if statement.startswith("SET"):
        sql.conf.set(AUTO_MERGE, "true")
        statement = "INSERT INTO {} SELECT 5, 6, 7 AS c"
    try:
        sql.sql(statement.format(table))
        with pytest.raises(SchemaMismatchError, match="the query has"):
            sql.sql(f"INSERT INTO {table} SELECT 5")
    finally:
        sql.conf.unset(AUTO_MERGE)
    assert rows(sql, table) == expected


def test_schema_evolution_widens_types(sql: SparkSession, tmp_path: Path) -> None:
    """As with appends of DataFrames: by clause and by setting, by name and by position."""
    table = f"delta.`{tmp_path}`"
    wide = "SELECT 100000 AS a, named_struct('x', 9999999999) AS s"
    narrow = "a SMALLINT, s STRUCT<x: INT>) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    for statement in ("INSERT WITH SCHEMA EVOLUTION INTO {} BY NAME", "INSERT OVERWRITE {}"):
        sql.sql(f"CREATE OR REPLACE TABLE {table} ({narrow}")
        sql.conf.set(AUTO_MERGE, str("EVOLUTION" not in statement).lower())
        try:
            sql.sql(f"{statement.format(table)} {wide}")
        finally:
            sql.conf.unset(AUTO_MERGE)
        assert sql.sql(f"SELECT typeof(a), typeof(s), a, s.x FROM {table}").collect() == [
            ("int", "struct<x:bigint>", 100000, 9999999999)
        ]
    sql.sql(f"CREATE OR REPLACE TABLE {table} ({narrow}")
    sql.sql(f"INSERT INTO {table} SELECT 1, named_struct('x', 1L)")
    assert sql.sql(f"SELECT typeof(a), typeof(s) FROM {table}").collect() == [("smallint", "struct<x:int>")]
    trilake.create(f"{tmp_path}/alone", {"a": "smallint"}, properties={"delta.enableTypeWidening": "true"})
    trilake.sql(f"INSERT WITH SCHEMA EVOLUTION INTO delta.`{tmp_path}/alone` SELECT CAST(100000 AS INT) AS a")
    assert trilake.open(f"{tmp_path}/alone").to_arrow().to_pylist() == [{"a": 100000}]


def test_overwrite_partition_with_new_columns(sql: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, b INT) USING delta PARTITIONED BY (a)")
    sql.sql(f"INSERT INTO {table} VALUES (1, 2), (2, 3)")
    sql.sql(f"INSERT WITH SCHEMA EVOLUTION OVERWRITE {table} PARTITION (a = 1) SELECT 4 AS b, 5 AS c")
    assert rows(sql, table) == [(1, 4, 5), (2, 3, None)]
    with pytest.raises(SchemaMismatchError, match=r"the query has 3"):
        sql.sql(f"INSERT WITH SCHEMA EVOLUTION OVERWRITE {table} PARTITION (a = 1) SELECT 1 AS a, 4 AS b, 5 AS c")


def test_missing_required_column_is_rejected_as_in_delta_spark(sql: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT NOT NULL, b INT) USING delta")
    for statement in ("(b) VALUES (1)", "BY NAME SELECT 1 AS b"):
        with pytest.raises(SchemaMismatchError) as e:
            sql.sql(f"INSERT INTO {table} {statement}")
        assert e.value.condition == "DELTA_INSERT_COLUMN_MISMATCH"


def test_insert_by_name_requires_all_struct_fields(sql: SparkSession, tmp_path: Path) -> None:
    """Appended DataFrames may omit some, and so may rows with schema evolution."""
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, s STRUCT<x: INT, n: STRUCT<y: INT, z: INT>>) USING delta")
    for fields, packed in (
        ("'N', named_struct('y', 1, 'z', 2)", "'N': {'y': 1, 'z': 2}"),
        ("'n', named_struct('z', 1), 'x', 2", "'n': {'z': 1}, 'x': 2"),
    ):
        by_name = f"BY NAME SELECT 1 AS a, named_struct({fields}) AS s"
        in_duckdb = f"BY NAME SELECT 1 AS a, {{{packed}}} AS s"
        for run, rows in ((sql.sql, by_name), (trilake.sql, in_duckdb)):
            for verb in ("INTO", "OVERWRITE"):
                with pytest.raises(SchemaMismatchError, match="but the column has 2") as e:
                    run(f"INSERT {verb} {table} {rows}")
                assert e.value.condition == "DELTA_INSERT_COLUMN_ARITY_MISMATCH"
        sql.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} {by_name}")
        sql.sql(f"SELECT 1 AS a, named_struct({fields}) AS s").write.format("delta").mode("append").save(str(tmp_path))
    assert sql.sql(f"SELECT count(*) FROM {table} WHERE s.x IS NULL OR s.n.y IS NULL").first() == (4,)


@pytest.mark.parametrize("kept", [False, True])
def test_null_structs_of_another_type_follow_the_setting(sql: SparkSession, tmp_path: Path, kept: bool) -> None:
    """Matched by position they become structs of nulls, as in delta-spark 4.0; the setting is on by default in 4.2."""
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, s STRUCT<x: INT, n: STRUCT<y: INT>>) USING delta")
    null, inside = "CAST(NULL AS STRUCT<q: BIGINT, r: STRUCT<y: INT>>)", "CAST(NULL AS STRUCT<y: BIGINT>)"
    sql.conf.set(KEEP_NULL_STRUCTS, str(kept).lower())
    try:
        sql.sql(f"INSERT INTO {table} SELECT 1, {null}")
        sql.sql(f"INSERT INTO {table} (s, a) SELECT CAST(NULL AS STRUCT<x: BIGINT, n: STRUCT<y: INT>>), 2")
        sql.sql(f"INSERT INTO {table} SELECT 3, struct(4 AS q, {inside} AS r)")
        sql.sql(f"INSERT INTO {table} BY NAME SELECT struct({inside} AS n, 6 AS x) AS s, 5 AS a")
        sql.sql(f"SELECT 6, {null}").write.format("delta").insertInto(table)
    finally:
        sql.conf.unset(KEEP_NULL_STRUCTS)
    whole, part = (None, None) if kept else ((None, None), (None,))
    assert rows(sql, table) == [(1, whole), (2, None), (3, (4, part)), (5, (6, None)), (6, whole)]


def test_column_list_matches_structs_by_position_but_not_those_in_arrays(sql: SparkSession, tmp_path: Path) -> None:
    """As in delta-spark, unless a type differs: then it matches all of them by position."""
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, s STRUCT<x: INT, y: INT>, l ARRAY<STRUCT<x: INT, y: INT>>) USING delta")
    struct = "named_struct('y', 1, 'x', 2)"
    sql.sql(f"INSERT INTO {table} (a, s) SELECT 1 AS a, {struct} AS s")
    sql.sql(f"INSERT INTO {table} (a, l) SELECT 2 AS a, array({struct}) AS l")
    sql.sql(f"INSERT INTO {table} (a, l) SELECT 3L AS a, array({struct}) AS l")
    sql.sql(f"INSERT INTO {table} SELECT 4 AS a, {struct} AS s, array({struct}) AS l")
    assert rows(sql, table) == [
        (1, (1, 2), None),
        (2, None, [(2, 1)]),
        (3, None, [(1, 2)]),
        (4, (2, 1), [(2, 1)]),
    ]


@pytest.mark.parametrize("by", ["", "(a, s) ", "BY NAME "])
def test_insert_with_unknown_struct_fields_is_rejected(sql: SparkSession, tmp_path: Path, by: str) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, s STRUCT<x: INT>) USING delta")
    with pytest.raises(SchemaMismatchError) as e:
        sql.sql(f"INSERT INTO {table} {by}SELECT 1 AS a, named_struct('x', 2, 'y', 3) AS s")
    assert e.value.condition == "DELTA_METADATA_MISMATCH"


@pytest.mark.parametrize("statement", ["REPLACE TABLE", "CREATE OR REPLACE TABLE"])
def test_replace_adds_the_feature_of_its_defaults(sql: SparkSession, statement: str) -> None:
    sql.sql("CREATE OR REPLACE TABLE test_replaced_defaults (id INT) USING delta")
    try:
        sql.sql(f"{statement} test_replaced_defaults {_DEFAULTS} USING delta {_ALLOWED}")
        sql.sql("INSERT INTO test_replaced_defaults (b) VALUES (1)")
        assert rows(sql, "test_replaced_defaults") == [(42, 1)]
        assert [r.version for r in sql.sql("DESCRIBE HISTORY test_replaced_defaults").collect()] == [2, 1, 0]
    finally:
        sql.sql("DROP TABLE test_replaced_defaults")


@pytest.mark.parametrize("source", ["(a) VALUES (2)", "(a) SELECT 2", "BY NAME SELECT 2 AS a"])
def test_absent_partition_columns_are_null(sql: SparkSession, tmp_path: Path, source: str) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, p STRING) USING delta PARTITIONED BY (p)")
    sql.sql(f"INSERT INTO {table} {source}")
    sql.sql(f"INSERT INTO {table} (p) VALUES ('x')")
    assert rows(sql, table) == [(None, "x"), (2, None)]
    sql.sql(f"INSERT OVERWRITE {table} {source}")
    assert rows(sql, table) == [(2, None)]


@pytest.mark.parametrize("verb", ["INTO", "OVERWRITE"])
@pytest.mark.parametrize(
    "source", ["(b) VALUES ('x')", "BY NAME SELECT 'x' AS b", "PARTITION (b = 'x') (d) VALUES (1)"]
)
def test_missing_columns_can_be_rejected(
    sql: SparkSession, tmp_path: Path, conf: Callable[[str, str], None], verb: str, source: str
) -> None:
    """Defaults, generated and identity columns need no value."""
    table = f"delta.`{tmp_path}`"
    computed = "i BIGINT GENERATED ALWAYS AS IDENTITY, d INT DEFAULT 7, g STRING GENERATED ALWAYS AS (b)"
    sql.sql(f"CREATE TABLE {table} (a INT, b STRING, {computed}) USING delta PARTITIONED BY (b) {_ALLOWED}")
    conf(NULLS_FOR_MISSING, "false")
    with pytest.raises(SchemaMismatchError, match=r"lacks a, and") as e:
        sql.sql(f"INSERT {verb} {table} {source}")
    assert e.value.condition == "DELTA_INSERT_COLUMN_MISMATCH"
    sql.sql(f"INSERT {verb} {table} (a, b) VALUES (DEFAULT, 'x')")
    sql.sql(f"INSERT {verb} {table} (B, A) VALUES ('y', 1)")
    assert sql.sql(f"SELECT a, b, d, g FROM {table} WHERE b = 'y'").collect() == [(1, "y", 7, "y")]
    conf(NULLS_FOR_MISSING, "true")
    sql.sql(f"INSERT INTO {table} (b) VALUES ('z')")
    assert sql.sql(f"SELECT a FROM {table} WHERE b = 'z'").collect() == [(None,)]


@pytest.mark.parametrize("by", ["", "(a, v, s) ", "BY NAME "])
def test_schema_evolution_gives_void_columns_a_type(sql: SparkSession, tmp_path: Path, by: str) -> None:
    table = f"delta.`{tmp_path}`"
    sql.sql(f"CREATE TABLE {table} (a INT, v VOID, s STRUCT<x: INT, y: VOID>) USING delta")
    sql.sql(f"INSERT INTO {table} VALUES (1, NULL, struct(1, NULL))")
    values = "2 AS a, array(3) AS v, named_struct('x', 4, 'y', 'five') AS s"
    with pytest.raises(SchemaMismatchError):
        sql.sql(f"INSERT INTO {table} {by}SELECT {values}")
    sql.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} {by}SELECT {values}")
    assert rows(sql, table) == [(1, None, (1, None)), (2, [3], (4, "five"))]


def test_create_as_select_copies_defaults_only_with_feature(sql: SparkSession, tmp_path: Path) -> None:
    """The source has defaults, identity and generated columns: a query result has plain values."""
    source = f"delta.`{tmp_path}/source`"
    columns = (
        "i BIGINT GENERATED BY DEFAULT AS IDENTITY, a INT DEFAULT 42 COMMENT 'c', g INT GENERATED ALWAYS AS (a + 1)"
    )
    sql.sql(f"CREATE TABLE {source} ({columns}) USING delta {_ALLOWED}")
    made = [f"{tmp_path}/{n}" for n in range(5)]
    sql.sql(f"CREATE TABLE delta.`{made[0]}` USING delta AS SELECT * FROM {source}")
    sql.sql(f"CREATE OR REPLACE TABLE delta.`{made[0]}` USING delta AS SELECT * FROM {source}")
    sql.table(source).write.format("delta").save(made[1])
    sql.table(source).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(made[1])
    for path, more in ((made[2], ""), (made[3], _ALLOWED)):
        sql.sql(f"CREATE TABLE delta.`{path}` (i BIGINT) USING delta {more}")
        sql.table(source).write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    sql.sql(f"CREATE TABLE delta.`{made[4]}` USING delta {_ALLOWED} AS SELECT * FROM {source}")
    sql.table(source).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(made[3])
    tables = [trilake.open(path) for path in made]
    notes = [{f.name: f.metadata for f in t.snapshot.schema.fields} for t in tables]
    plain = {"i": {}, "a": {"comment": "c"}, "g": {}}
    expected = {**plain, "a": {"comment": "c", "CURRENT_DEFAULT": "42"}}
    assert notes == [plain, plain, plain, expected, expected]
    assert [t.snapshot.protocol.writer_features for t in tables[:3]] == [None] * 3
