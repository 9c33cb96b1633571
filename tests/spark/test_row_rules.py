"""Rules of a table that only Spark can evaluate, and those it need not, on rows that come from Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from tests.delta.tables import log_of, metadata, protocol
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.identity import identity_metadata
from trilake.engine import standard_engine
from trilake.errors import TrilakeError, UnsupportedExpressionError
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


def test_spark_computes_what_the_engine_cannot(spark: SparkSession, table: str) -> None:
    # A narrower type than the table's: Spark hashes an int unlike a bigint.
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
    with pytest.raises(TrilakeError, match="generated column h must be"):
        trilake.write(good.selectExpr("`it's a`", "h + 1 AS h", "who"), table, mode="append")
    with pytest.raises(TrilakeError, match="CHECK constraint a"):
        trilake.write(spark.sql("SELECT -5L AS `it's a`"), table, mode="append")
    assert trilake.open(table).to_arrow().num_rows == 1


def test_without_spark_the_table_says_what_it_needs(table: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match=r"generated column h .*; CHECK constraint h"):
        trilake.write(pa.table({"it's a": [1]}), table, mode="append")
