"""User mistakes on Spark, each a call that must raise a helpful error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from tests.mistakes.mistakes_without_spark import Tables
from trilake import DeltaTable


class OnSpark:
    """A session and tables for wrong calls."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self.spark, self.tables = spark, tables

    def frame(self, text: str) -> DataFrame:
        """A query whose rows exist only in Spark's tasks."""
        return self.spark.range(0, 4, 1, 2).selectExpr(*text.split("; "))

    def append(self, text: str, path: str, **options: Any) -> None:
        """Append the rows of a query to a Delta table."""
        self.frame(text).write.format("delta").mode("append").options(**options).save(path)

    def stream(self, text: str, format: str, path: str) -> None:
        """Append the rows of a query as a stream."""
        source = f"{self.tables.folder}/rows-{format}"
        rows = self.spark.range(0, 4, 1, 2)
        rows.write.mode("ignore").parquet(source)
        df = self.spark.readStream.schema(rows.schema).parquet(source).selectExpr(*text.split("; "))
        writer = df.writeStream.format(format).option("checkpointLocation", f"{path}-checkpoint-{len(text)}")
        writer.trigger(availableNow=True).start(path).awaitTermination()

    def read(self, path: str, format: str = "delta") -> None:
        """Read all rows with ``spark.read``."""
        self.spark.read.format(format).load(path).collect()

    def read_without_end(self, format: str) -> None:
        """Read a dataset whose file is truncated after the DataFrame was created."""
        path = f"{self.tables.folder}/cut-{format}"
        trilake.write({"id": list(range(1000)), "name": ["a"] * 1000}, path, format=format)
        df = self.spark.read.format(format).load(path)
        file = next(f for f in Path(path).rglob("*") if f.suffix in {".lance", ".trv", ".parquet"} and f.is_file())
        os.truncate(file, file.stat().st_size // 2)
        df.collect()

    def table(self, path: str | None = None) -> DeltaTable:
        """A table."""
        return DeltaTable.forPath(self.spark, path or self.tables.t)


_GOOD = "id; 'x' AS name"

MISTAKES: dict[str, Callable[[OnSpark], Any]] = {
    "write: table is there": lambda s: s.frame(_GOOD).write.format("delta").save(s.tables.t),
    "write: no path": lambda s: s.frame(_GOOD).write.format("delta").save(),
    "write: new column": lambda s: s.append("id; 'x' AS name; 3 AS age", s.tables.t),
    "write: wrong type": lambda s: s.append("'one' AS id; 'x' AS name", s.tables.t),
    "write: unknown option": lambda s: s.append(_GOOD, s.tables.t, mergeSchem="true"),
    "write: option that is not a boolean": lambda s: s.append(_GOOD, s.tables.t, mergeSchema="yes"),
    "write: other partitioning": lambda s: (
        s.frame("id AS n; 'x' AS p").write.format("delta").mode("append").partitionBy("n").save(s.tables.parts)
    ),
    "write: buckets": lambda s: s.frame(_GOOD).write.bucketBy(2, "id").format("delta").mode("append").save(s.tables.t),
    "write: constraint broken in a task": lambda s: s.append("id; CAST(500 + id AS INT) AS n", s.tables.rules),
    "write: null where none may be, in a task": lambda s: s.append(
        "IF(id = 3, NULL, id) AS id; CAST(1 AS INT) AS n", s.tables.rules
    ),
    "write: generated column with another value, in a task": lambda s: s.append(
        "id; CAST(5 AS INT) AS n; 11L AS twice", s.tables.rules
    ),
    "write: value out of range, in a task": lambda s: s.append("id; (1L << 40) + id AS n", s.tables.rules),
    "write: required column left out": lambda s: s.append("CAST(1 AS INT) AS n", s.tables.rules),
    "write: row outside of replaceWhere, in a task": lambda s: (
        s.frame(_GOOD).write.format("delta").mode("overwrite").option("replaceWhere", "id = 1").save(s.tables.t)
    ),
    "write: division by zero in the query": lambda s: s.append("1 DIV (id - id) AS id; 'x' AS name", s.tables.t),
    "write: error in a function of the user": lambda s: (
        s.frame(_GOOD)
        .withColumn("id", F.udf(lambda n: int("x"), "bigint")("id"))
        .write.format("delta")
        .mode("append")
        .save(s.tables.t)
    ),
    "write: overwrite of an append-only table": lambda s: (
        s.frame(_GOOD).write.format("delta").mode("overwrite").save(s.tables.append_only)
    ),
    "write: property with a wrong value": lambda s: s.append(
        _GOOD, f"{s.tables.folder}/new", **{"delta.appendOnly": "no"}
    ),
    "write: txnAppId alone": lambda s: s.append(_GOOD, s.tables.t, txnAppId="a"),
    "write: Lance in partitions": lambda s: (
        s.frame(_GOOD).write.format("lance").partitionBy("id").save(f"{s.tables.folder}/l")
    ),
    "write: Lance dataset is there": lambda s: (
        s.frame("id; 1 AS x").write.format("lance").mode("error").save(s.tables.lance)
    ),
    "write: other columns into Trevni": lambda s: trilake.write(
        s.frame("id; 1 AS x"), s.tables.trevni, mode="append", format="trevni"
    ),
    "write: error in a query for Lance": lambda s: trilake.write(
        s.frame("1 DIV (id - id) AS id; 'x' AS name"), s.tables.lance, mode="append", format="lance"
    ),
    "write: vectors of Spark ML": lambda s: (
        s.spark.createDataFrame([(1, Vectors.dense([1.0]))], ["id", "v"])
        .write.format("trevni")
        .mode("append")
        .save(f"{s.tables.folder}/vectors")
    ),
    "stream: other columns into Lance": lambda s: s.stream("id; 1 AS x", "lance", s.tables.lance),
    "stream: value of a wrong type into Lance": lambda s: s.stream("'one' AS id; 'x' AS name", "lance", s.tables.lance),
    "stream: other columns into Trevni": lambda s: s.stream("id; 1 AS x", "trevni", s.tables.trevni),
    "stream: value of a wrong type into Trevni": lambda s: s.stream(
        "'one' AS id; 'x' AS name", "trevni", s.tables.trevni
    ),
    "stream: null where none may be": lambda s: s.stream(
        "IF(id = 3, NULL, id) AS id; CAST(1 AS INT) AS n", "delta", s.tables.rules
    ),
    "insertInto: other number of columns": lambda s: s.frame("id").write.insertInto(f"delta.`{s.tables.t}`"),
    "saveAsTable: name that is not a name": lambda s: s.frame(_GOOD).write.format("delta").saveAsTable("a..b"),
    "writeTo: no such table": lambda s: s.frame(_GOOD).writeTo("mistakes_none").using("delta").append(),
    "writeTo: partitioned by an expression": lambda s: (
        s.frame(_GOOD).writeTo("mistakes_none").using("delta").partitionedBy(F.years("id")).create()
    ),
    "read: no such folder": lambda s: trilake.read(s.spark, s.tables.folder / "nowhere"),
    "read: column that is not there": lambda s: trilake.read(s.spark, s.tables.t, columns=["nmae"]),
    "read: filter over a missing column": lambda s: trilake.read(s.spark, s.tables.t, filter="idd = 1"),
    "read: file is gone": lambda s: s.read(s.tables.gone),
    "read: file is not a Parquet": lambda s: s.read(s.tables.broken),
    "read: file lost its end": lambda s: s.read_without_end("delta"),
    "read: Lance file lost its end": lambda s: s.read_without_end("lance"),
    "read: Trevni file lost its end": lambda s: s.read_without_end("trevni"),
    "read: error of trilake in a function of the user": lambda s: (
        s.spark.range(1).select(F.udf(lambda n: trilake.open("/nowhere").count(), "bigint")("id")).collect()
    ),
    "read: no such folder, by format": lambda s: s.read(f"{s.tables.folder}/nowhere"),
    "read: no such Lance dataset": lambda s: s.read(f"{s.tables.folder}/nowhere", "lance"),
    "read: no such Trevni files": lambda s: s.read(f"{s.tables.folder}/nowhere", "trevni"),
    "read: Delta table as Lance": lambda s: s.read(s.tables.t, "lance"),
    "forPath: no such table": lambda s: DeltaTable.forPath(s.spark, f"{s.tables.folder}/nowhere"),
    "forName: no such table": lambda s: DeltaTable.forName(s.spark, "mistakes_none"),
    "delete: append-only table": lambda s: s.table(s.tables.append_only).delete("id = 1"),
    "delete: number for a condition": lambda s: s.table().delete(5),
    "delete: column that is not there": lambda s: s.table().delete("idd = 1"),
    "delete: number where a condition stands": lambda s: s.table().delete("id + 1"),
    "delete: function that is not there": lambda s: s.table().delete("lengt(name) = 1"),
    "update: value of a column that is not there": lambda s: s.table().update("id = 1", {"name": "upper(nmae)"}),
    "update: column that is not there": lambda s: s.table().update(set={"nmae": "'x'"}),
    "update: nothing to set": lambda s: s.table().update("id = 1"),
    "update: constraint broken": lambda s: s.table(s.tables.rules).update(set={"n": "500"}),
    "merge: no source": lambda s: s.table().merge(None, "a = b"),
    "merge: name that both sides have": lambda s: (
        s.table().merge(s.frame("id"), "id = id").whenMatchedDelete().execute()
    ),
    "merge: name of the target in an insert": lambda s: (
        s.table()
        .alias("t")
        .merge(s.frame("id AS k").alias("s"), "t.id = s.k")
        .whenNotMatchedInsert(values={"id": "k", "name": "name"})
        .execute()
    ),
    "merge: source with two columns of one name": lambda s: (
        s.table().alias("t").merge(s.frame("id; id").alias("s"), "t.id = 1").whenMatchedDelete().execute()
    ),
    "merge: several matches": lambda s: (
        s.table()
        .alias("t")
        .merge(s.frame("1L AS id; 'z' AS name").alias("s"), "s.id = t.id")
        .whenMatchedUpdateAll()
        .execute()
    ),
    "merge: constraint broken": lambda s: (
        s.table(s.tables.rules)
        .alias("t")
        .merge(s.frame("id; CAST(700 AS INT) AS n").alias("s"), "s.id = t.id")
        .whenMatchedUpdate(set={"n": "s.n"})
        .execute()
    ),
    "vacuum: retention too short": lambda s: s.table().vacuum(0),
    "restore: version that is not there": lambda s: s.table().restoreToVersion(50),
    "restore: string for a version": lambda s: s.table().restoreToVersion("1"),
    "clone: onto a table": lambda s: s.table().clone(s.tables.parts),
    "create: table is there": lambda s: DeltaTable.create(s.spark).location(s.tables.t).addColumn("a", "int").execute(),
    "create: neither name nor location": lambda s: DeltaTable.create(s.spark).addColumn("a", "int").execute(),
    "create: unknown type": lambda s: DeltaTable.create(s.spark).addColumn("a", "integr"),
    "feature: unknown": lambda s: s.table().addFeatureSupport("timeMachine"),
    "feature: drop of one that is not there": lambda s: s.table().dropFeatureSupport("deletionVectors"),
    "optimize: condition over data": lambda s: s.table().optimize().where("id = 1").executeCompaction(),
    "convert: no format named": lambda s: DeltaTable.convertToDelta(s.spark, s.tables.t),
}
