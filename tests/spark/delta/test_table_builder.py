"""``DeltaTable.create`` and related builders, catalog names, and protocol changes."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from tests.delta.commands.alter.test_alter_oracle import Game, sorted_reprs
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Protocol
from trilake.delta.standard import standard_engine
from trilake.errors import (
    ConstraintViolatedError,
    ExpressionError,
    FeatureInUseError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedProtocolError,
)
from trilake.spark.catalog.named_tables import default_location, existing_delta_table, find_delta_table, parts_of
from trilake.spark.delta.reading.read import violation_finder
from trilake.spark.delta.table import DeltaTable
from trilake.spark.delta.table_builder import DeltaTableBuilder, IdentityGenerator
from trilake.storage import open_store


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a table % +ü")


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    trilake.register(spark)
    spark.sql("CREATE DATABASE builder_db")
    yield "builder_db"
    spark.sql("DROP DATABASE builder_db CASCADE")


def log(path: str) -> DeltaLog:
    return DeltaLog(open_store(path), standard_engine())


def test_create_table_with_every_column_option(spark: SparkSession, path: str) -> None:
    table = (
        DeltaTable.create(spark)
        .location(path)
        .comment("everything")
        .addColumn("id", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=10, step=5), comment="the number")
        .addColumn("given", T.LongType(), generatedByDefaultAs=IdentityGenerator())
        .addColumn("at", T.TimestampType(), nullable=False)
        .addColumn("day", "date", generatedAlwaysAs="CAST(at AS DATE)")
        .addColumn("kind", "varchar(4)", default="'none'")
        .addColumns(T.StructType([T.StructField("x", T.DoubleType(), True, {"comment": "of others"})]))
        .addColumns([T.StructField("s", T.StructType([T.StructField("y", T.IntegerType(), False)]))])
        .partitionedBy("day")
        .property("delta.enableChangeDataFeed", "true")
        .execute()
    )
    head = log(path).head()
    assert head.metadata.description == "everything"
    assert head.metadata.partition_columns == ("day",)
    assert head.schema.field("given").metadata["delta.identity.allowExplicitInsert"] is True
    assert head.schema.field("kind").metadata == {
        "__CHAR_VARCHAR_TYPE_STRING": "varchar(4)",
        "CURRENT_DEFAULT": "'none'",
    }
    assert head.schema.field("x").metadata == {"comment": "of others"}
    rows = spark.sql("SELECT TIMESTAMP'2024-05-01 10:00:00' at")
    trilake.write(rows, path, mode="append")
    found = table.toDF().collect()
    assert [tuple(r) for r in found] == [
        (10, 1, found[0]["at"], dt.date(2024, 5, 1), "none", None, None),
    ]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda b: b.tableName(1), TypeError, "Identifier must be str. Found 1 with type"),
        (lambda b: b.location(1), TypeError, "Location must be str"),
        (lambda b: b.comment(1), TypeError, "Table comment must be str"),
        (lambda b: b.addColumn(1, "int"), TypeError, "Column name must be str"),
        (lambda b: b.addColumn("a", 1), TypeError, "Column data type must be str or DataType"),
        (lambda b: b.addColumn("a", "int", nullable=1), TypeError, "Column nullable must be bool"),
        (lambda b: b.addColumn("a", "int", comment=1), TypeError, "Column comment must be str"),
        (lambda b: b.addColumn("a", "int", generatedAlwaysAs=1), TypeError, "must be str or IdentityGenerator"),
        (lambda b: b.addColumn("a", "int", generatedByDefaultAs="1"), TypeError, "must be IdentityGenerator"),
        (
            lambda b: b.addColumn("a", "long", generatedAlwaysAs="1", generatedByDefaultAs=IdentityGenerator()),
            ValueError,
            "cannot both be set",
        ),
        (lambda b: b.addColumn("a", "long", generatedAlwaysAs=IdentityGenerator(1, 0)), ValueError, "non-zero"),
        (lambda b: b.addColumns("a"), TypeError, "list of StructField or StructType"),
        (lambda b: b.addColumns(["a"]), TypeError, "must be StructField"),
        (lambda b: b.partitionedBy(1), TypeError, "Partitioning column must be str"),
        (lambda b: b.clusterBy(["a", 1]), TypeError, "Clustering column must be str"),
        (lambda b: b.property("a", 1), TypeError, "Value of property must be str"),
        (lambda b: b.property(1, "a"), TypeError, "Key of property must be str"),
        (lambda b: b.addColumn("a", "integr"), InvalidArgumentError, "integr"),
        (lambda b: b.addColumn("a", "int").execute(), InvalidArgumentError, "a name or a location"),
    ],
)
def test_builder_arguments(
    spark: SparkSession, call: Callable[[DeltaTableBuilder], Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        call(DeltaTable.create(spark))


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("nosuch(a)", "UNRESOLVED_ROUTINE"),
        ("transform(a, x ->", "PARSE_SYNTAX_ERROR"),
        ("explode(a)", "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("size(collect_list(a))", "DELTA_AGGREGATE_IN_GENERATED_COLUMN"),
        ("transform(a, x -> x)", "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"),
        ("CAST(a[0] AS BIGINT)", "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"),
        ("CAST(a[0] AS DECIMAL(10, 0))", "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"),
        ("size(transform(b, x -> x))", "DELTA_INVALID_GENERATED_COLUMN_REFERENCES"),
        ("size(transform(a, x -> x + rand()))", "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN"),
        ("builder_udf(a)", "DELTA_UDF_IN_GENERATED_COLUMN"),
        ("length(current_user())", "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("year(now())", "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
    ],
)
def test_invalid_generated_column_is_rejected_at_creation(
    spark: SparkSession, path: str, text: str, condition: str
) -> None:
    spark.udf.register("builder_udf", len, "int")
    builder = DeltaTable.create(spark).location(path).addColumn("a", "array<int>")
    with pytest.raises(ExpressionError) as found:
        builder.addColumn("n", "int", generatedAlwaysAs=text).execute()
    assert found.value.condition == condition
    assert not DeltaTable.isDeltaTable(spark, path)


def test_checks_as_properties(spark: SparkSession, path: str) -> None:
    builder = DeltaTable.create(spark).location(path).addColumn("a", "INT")
    table = builder.property("delta.constraints.positive", "a > 0").execute()
    with pytest.raises(ConstraintViolatedError, match="a = 0"):
        trilake.write({"a": [0]}, path, mode="append")
    assert table.detail().collect()[0].properties == {"delta.constraints.positive": "a > 0"}


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("builder_udf(a) > 0", "DELTA_UDF_IN_CHECK_CONSTRAINT"),
        ("exists(a, x -> x > 0) AND builder_udf(a) > 0", "DELTA_UDF_IN_CHECK_CONSTRAINT"),
        ("transform(a, x -> x)", "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"),
    ],
)
def test_invalid_check_is_rejected_at_creation(sql: SparkSession, path: str, text: str, condition: str) -> None:
    """Only Spark can evaluate these."""
    sql.udf.register("builder_udf", len, "int")
    statements = (
        f"CREATE TABLE delta.`{path}` (a ARRAY<INT>) USING delta TBLPROPERTIES ('delta.constraints.c' = '{text}')",
        f"ALTER TABLE delta.`{path} old` ADD CONSTRAINT c CHECK ({text})",
    )
    sql.sql(f"CREATE TABLE delta.`{path} old` (a ARRAY<INT>) USING delta")
    builder = DeltaTable.create(sql).location(path).addColumn("a", "array<int>").property("delta.constraints.c", text)
    for create in (builder.execute, *(partial(sql.sql, s) for s in statements)):
        with pytest.raises(ExpressionError) as found:
            create()
        assert found.value.condition == condition
    assert not DeltaTable.isDeltaTable(sql, path)
    assert trilake.open(f"{path} old").version == 0


def test_generated_struct_with_required_field(spark: SparkSession, path: str) -> None:
    kind = T.StructType([T.StructField("x", T.ArrayType(T.IntegerType(), False), False)])
    made = DeltaTable.create(spark).location(path).addColumn("a", "array<int>")
    made.addColumn("s", kind, generatedAlwaysAs="named_struct('x', transform(a, y -> y + 1))").execute()
    rows = spark.createDataFrame([([1, 2],)], "a array<int>")
    trilake.write(rows, path, mode="append")
    assert trilake.open(path).to_arrow()["s"].to_pylist() == [{"x": [2, 3]}]
    with pytest.raises(ConstraintViolatedError):
        trilake.write(spark.createDataFrame([(None,)], rows.schema), path, mode="append")


def test_generated_column_that_only_spark_computes(spark: SparkSession, path: str) -> None:
    made = DeltaTable.create(spark).location(path).addColumn("a", "array<int>")
    made.addColumn("n", "int", generatedAlwaysAs="aggregate(a, 0, (x, y) -> x + y)").execute()
    trilake.write(spark.createDataFrame([([1, 2],)], "a array<int>"), path, mode="append")
    assert trilake.open(path).to_arrow()["n"].to_pylist() == [3]


def test_builder_modes(spark: SparkSession, path: str) -> None:
    with pytest.raises(TableNotFoundError):
        DeltaTable.replace(spark).location(path).addColumn("a", "int").execute()
    DeltaTable.createIfNotExists(spark).location(path).addColumn("a", "int").execute()
    DeltaTable.createIfNotExists(spark).location(path).addColumn("b", "int").execute()
    with pytest.raises(TableExistsError):
        DeltaTable.create(spark).location(path).addColumn("b", "int").execute()
    assert log(path).head().schema.names == ["a"]
    trilake.write(spark.range(3).selectExpr("CAST(id AS INT) a"), path, mode="append")
    table = DeltaTable.replace(spark).location(path).addColumn("b", "int").clusterBy("b").execute()
    assert table.toDF().columns == ["b"]
    assert table.toDF().count() == 0
    DeltaTable.createOrReplace(spark).location(path).addColumn("c", "int").execute()
    operations = [log(path).commit_info(v)["operation"] for v in range(4)]
    assert operations == ["CREATE TABLE", "WRITE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"]
    assert "delta.clustering" not in {d for d, v in log(path).head().state.domains.items() if not v.get("removed")}


def test_catalog_names(spark: SparkSession, database: str, path: str) -> None:
    name = f"{database}.named"
    assert parts_of(f"{database}.`odd.name`") == [database, "odd.name"]
    DeltaTable.create(spark).tableName(name).location(path).addColumn("id", "bigint").comment("c").execute()
    trilake.write(spark.range(3), path, mode="append")
    # By name in Spark and as a DeltaTable.
    assert spark.table(name).count() == 3
    assert [r[0] for r in spark.table(name).selectExpr("max(id)").collect()] == [2]
    assert existing_delta_table(spark, name).location == path
    assert DeltaTable.forName(spark, name).toDF().count() == 3
    assert DeltaTable.forName(spark, f"delta.`{path}`").toDF().count() == 3
    assert log(path).head().metadata.name == name
    parameters = log(path).commit_info(0)["operationParameters"]
    assert (parameters["isManaged"], parameters["description"]) == ("false", "c")
    with pytest.raises(TableExistsError):
        DeltaTable.create(spark).tableName(name).addColumn("id", "bigint").execute()
    with pytest.raises(TableExistsError, match=r"exists at .*, not at"):
        DeltaTable.createOrReplace(spark).tableName(name).location(path + "2").addColumn("id", "bigint").execute()
    # The catalog gets the new schema as well.
    DeltaTable.createOrReplace(spark).tableName(name).addColumn("other", "string").execute()
    assert spark.table(name).columns == ["other"]
    assert DeltaTable.createIfNotExists(spark).tableName(name).addColumn("x", "int").execute().toDF().columns == [
        "other"
    ]


def test_create_names_the_table_at_its_location(spark: SparkSession, database: str, path: str) -> None:
    def columns(builder: DeltaTableBuilder, sql: str) -> DeltaTableBuilder:
        return builder.location(path).addColumn("a", "INT").addColumn("b", "INT", generatedAlwaysAs=sql)

    columns(DeltaTable.create(spark), "a + 1").execute()
    plain, described, other = f"{database}.plain", f"{database}.described", f"{database}.other"
    DeltaTable.create(spark).tableName(plain).location(path).execute()
    columns(DeltaTable.create(spark).tableName(described), "a + 1").execute()
    assert existing_delta_table(spark, plain).location == existing_delta_table(spark, described).location
    with pytest.raises(SchemaMismatchError, match="column b of the existing table is generated as a"):
        columns(DeltaTable.create(spark).tableName(other), "a + 2").execute()
    with pytest.raises(SchemaMismatchError, match="already exists with different columns"):
        DeltaTable.create(spark).tableName(other).location(path).addColumn("c", "INT").execute()
    assert find_delta_table(spark, other) is None
    with pytest.raises(TableExistsError, match="already exists"):
        DeltaTable.create(spark).tableName(plain).location(path).execute()
    assert log(path).snapshot().version == 0


def test_managed_table_by_name(spark: SparkSession, database: str) -> None:
    table = DeltaTable.create(spark).tableName(f"{database}.Managed").addColumn("id", "bigint").execute()
    place = default_location(spark, f"{database}.managed")
    trilake.write(spark.range(2), place, mode="append")
    assert table.toDF().count() == spark.table(f"{database}.managed").count() == 2
    DeltaTable.createOrReplace(spark).tableName(f"{database}.managed").addColumn("id", "bigint").execute()
    parameters = [r.operationParameters for r in table.history().orderBy("version").collect() if "TABLE" in r.operation]
    assert [(s["isManaged"], s["description"]) for s in parameters] == [("true", None)] * 2, "it was false, and empty"
    trilake.write(spark.range(2), place, mode="append")
    # Unsupported operations by name raise an error and write nothing.
    for sql in (
        f"INSERT INTO {database}.managed VALUES (7)",
        f"CREATE TABLE {database}.b USING delta AS SELECT * FROM {database}.managed",
    ):
        with pytest.raises(PySparkException, match=r"trilake\.install\(spark\)"):
            spark.sql(sql)
    assert table.toDF().count() == 2


def test_names_that_are_not_tables_are_rejected(spark: SparkSession, database: str, path: str) -> None:
    spark.range(1).write.saveAsTable(f"{database}.plain")
    spark.sql(f"CREATE VIEW {database}.v AS SELECT 1 AS a")
    for name in ("plain", "v"):
        with pytest.raises(InvalidArgumentError, match="is a view, or not a Delta, Lance or Trevni table"):
            DeltaTable.forName(spark, f"{database}.{name}")
        with pytest.raises(InvalidArgumentError, match="is a view, or not a Delta, Lance or Trevni table"):
            DeltaTable.createOrReplace(spark).tableName(f"{database}.{name}").addColumn("a", "int").execute()
    with pytest.raises(TableNotFoundError, match=r"builder_db\.nothing cannot be found"):
        DeltaTable.forName(spark, f"{database}.nothing")
    for wrong in ("a..b", "", "a b`"):
        with pytest.raises(InvalidArgumentError):
            DeltaTable.forName(spark, wrong)
    # Created by SQL alone: the catalog has the location, although Spark does not pass it to the source.
    trilake.write(spark.range(4), path)
    spark.sql(f"CREATE TABLE {database}.by_sql (id BIGINT) USING delta LOCATION '{path}'")
    assert DeltaTable.forName(spark, f"{database}.by_sql").toDF().count() == 4


def test_protocol_changes(spark: SparkSession, path: str) -> None:
    trilake.write(spark.range(3), path)
    table = DeltaTable.forPath(spark, path)
    table.upgradeTableProtocol(1, 4)
    assert log(path).head().protocol == Protocol(1, 4)
    table.upgradeTableProtocol(1, 3)
    table.addFeatureSupport("deletionVectors")
    assert log(path).head().protocol.reader_features == ("deletionVectors",)
    table.dropFeatureSupport("deletionVectors", True)
    assert log(path).head().protocol == Protocol(1, 4)
    Alter(log(path)).add_constraint("c", "id >= 0")
    with pytest.raises(FeatureInUseError, match="constraints c"):
        table.dropFeatureSupport("checkConstraints")
    wrong: Any = "3"
    calls: list[Callable[[], None]] = [
        lambda: table.upgradeTableProtocol(wrong, 7),
        lambda: table.upgradeTableProtocol(3, True),
        lambda: table.addFeatureSupport(3),  # type: ignore[arg-type]
        lambda: table.dropFeatureSupport("x", wrong),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="needs to be"):
            call()
    with pytest.raises(UnsupportedProtocolError, match="magic"):
        table.addFeatureSupport("magic")


def test_unknown_feature_raises_the_delta_spark_error(spark: SparkSession, path: str) -> None:
    trilake.write(spark.range(3), path)
    with pytest.raises(Py4JJavaError, match="DELTA_UNSUPPORTED_FEATURES_IN_CONFIG") as found:
        DeltaTable.forPath(spark, path).addFeatureSupport("magic")
    again = pickle.loads(pickle.dumps(found.value))
    for error in (found.value, again):
        assert isinstance(error, UnsupportedProtocolError)
        assert isinstance(error, Py4JJavaError)
        assert error.java_exception is None
        assert str(error) == error.errmsg == str(found.value)
        assert error.getCondition() == "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"


def test_conditions_that_only_spark_can_evaluate(spark: SparkSession, path: str) -> None:
    trilake.write(spark.range(3), path)
    alter = Alter(log(path), find_violation=violation_finder(spark, path, {}))
    with pytest.raises(ConstraintViolatedError, match="id = 2"):
        alter.add_constraint("c", "sha2(CAST(id AS STRING), 256) <> sha2('2', 256)")
    assert alter.add_constraint("c", "length(sha2(CAST(id AS STRING), 256)) = 64 -- all") == 1
    with pytest.raises(ParseException, match="at or near end of input") as e:
        alter.add_constraint("d", "id <")
    assert "coalesce" not in str(e.value), "it shows what the user wrote"


@pytest.mark.parametrize("seed", range(3))
def test_spark_reads_altered_columns(spark: SparkSession, path: str, seed: int) -> None:
    trilake.register(spark)
    game = Game(random.Random(seed), path, widening=True)
    for _ in range(10):
        game.step()
    schema, rows = game.expected[max(game.expected)]
    for df in (DeltaTable.forPath(spark, path).toDF(), spark.read.format("trilake-delta").load(path)):
        assert df.columns == schema.names
        assert sorted_reprs(df.toArrow().cast(schema)) == rows
