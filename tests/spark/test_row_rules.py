"""Table rules on rows from Spark, both those that only Spark can evaluate and others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from delta.tables import DeltaTable
from tests.delta.tables import log_of, metadata, protocol
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.standard import standard_engine
from trilake.errors import ConstraintViolatedError, TrilakeError, UnsupportedExpressionError
from trilake.storage import open_store

FEATURES = ["generatedColumns", "checkConstraints", "identityColumns", "allowColumnDefaults", "invariants"]


def generated(name: str, kind: str, text: str) -> StructField:
    return StructField(name, PrimitiveType(kind), metadata={"delta.generationExpression": text})


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    schema = StructType(
        (
            StructField("id", PrimitiveType("long"), True, identity_metadata()),
            StructField("it's a", PrimitiveType("long")),
            StructField("who", PrimitiveType("string"), metadata={"CURRENT_DEFAULT": "upper(current_user())"}),
            generated("h", "integer", "hash(`it's a`)"),
            generated("e", "long", "`it's a` + 1"),
        )
    )
    checks = {"delta__constraints__h": "xxhash64(e, h) <> 0 -- never", "delta__constraints__a": "`it's a` >= 0"}
    log_of(
        [protocol(1, 7, writerFeatures=FEATURES), metadata(schema.json(), **checks)],
        store=open_store(path, {}),
    )
    return path


def test_spark_computes_unsupported_generated_columns(spark: SparkSession, table: str) -> None:
    # A narrower type than the table's: Spark's hash differs for int and bigint.
    rows = spark.range(1000).selectExpr("CAST(id AS INT) AS `IT'S a`").repartition(3)
    trilake.write(rows, table, mode="append")
    back = trilake.read(spark, table)
    wrong = back.where("h <> hash(`it's a`) OR e <> `it's a` + 1 OR who <> upper(current_user()) OR h IS NULL")
    assert wrong.count() == 0
    assert back.select("id").distinct().count() == 1000
    mark = (
        DeltaLog(open_store(table, {}), standard_engine())
        .snapshot()
        .schema.fields[0]
        .metadata["delta.identity.highWaterMark"]
    )
    assert back.agg({"id": "max"}).collect()[0][0] == mark


def test_given_values_are_verified_by_spark(spark: SparkSession, table: str) -> None:
    good = spark.sql("SELECT 5L AS `it's a`, hash(5L) AS h, 'me' AS who")
    trilake.write(good, table, mode="append")
    with pytest.raises(TrilakeError, match="generated column h must equal"):
        trilake.write(good.selectExpr("`it's a`", "h + 1 AS h", "who"), table, mode="append")
    with pytest.raises(TrilakeError, match="CHECK constraint a"):
        trilake.write(spark.sql("SELECT -5L AS `it's a`"), table, mode="append")
    assert trilake.open(table).to_arrow().num_rows == 1


def test_write_without_spark_names_the_requirement(table: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match=r"generated column h .*; CHECK constraint h"):
        trilake.write(pa.table({"it's a": [1]}), table, mode="append")


def _partitioned(path: str, check: str) -> str:
    fields = (
        StructField("p", PrimitiveType("string")),
        StructField("n", PrimitiveType("integer")),
        generated("size", "integer", "length(p)"),
        generated("h", "integer", "hash(p)"),
    )
    of_table = metadata(StructType(fields).json(), ["p"], delta__constraints__c=check)
    log_of([protocol(1, 7, writerFeatures=FEATURES), of_table], store=open_store(path, {}))
    return path


def test_constraint_sees_an_empty_partition_value_as_null(spark: SparkSession, tmp_path: Path) -> None:
    path = _partitioned(str(tmp_path / "table"), "p IS NOT NULL AND xxhash64(n) <> 0")
    trilake.write(spark.sql("SELECT 'a' AS p, 1 AS n"), path, mode="append")
    table = DeltaTable.forPath(spark, path)
    merge = table.alias("t").merge(spark.sql("SELECT '' AS p, 2 AS n").alias("s"), "t.n = s.n")
    for write in (
        lambda: trilake.write(spark.sql("SELECT '' AS p, 1 AS n"), path, mode="append"),
        lambda: table.update(set={"p": "''"}),
        lambda: merge.whenNotMatchedInsertAll().execute(),
    ):
        with pytest.raises(ConstraintViolatedError, match="CHECK constraint c"):
            write()
    table.update(set={"n": "2"})
    merge.whenMatchedUpdate(set={"n": "3"}).execute()
    assert trilake.open(path).to_arrow().select(["p", "n", "size"]).to_pylist() == [{"p": "a", "n": 3, "size": 1}]


def test_generated_column_sees_an_empty_partition_string(spark: SparkSession, tmp_path: Path) -> None:
    """As in the embedded engine."""
    path = _partitioned(str(tmp_path / "table"), "coalesce(p, 'none') <> '' AND xxhash64(n) <> 0")
    trilake.write(spark.sql("SELECT '' AS p, 1 AS n, hash('') AS h"), path, mode="append")
    assert trilake.open(path).to_arrow().select(["p", "n", "size"]).to_pylist() == [{"p": None, "n": 1, "size": 0}]
