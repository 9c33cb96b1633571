"""Spark's readers and writers."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import trilake
from tests.matrix.calls import Lake, since


def test_save(lake: Lake) -> None:
    """`df.write.format("delta").save`: all modes, `partitionBy`"""
    place = lake.path("save")
    df = lake.rows()
    df.write.format("delta").save(place)
    with pytest.raises(AnalysisException):
        df.write.format("delta").save(place)
    df.write.format("delta").mode("ignore").save(place)
    df.write.format("delta").mode("append").save(place)
    assert trilake.open(place).count() == 200
    df.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("k").save(place)
    assert trilake.open(place).count() == 100


@pytest.mark.parametrize("name", ["lance", "trevni"])
def test_save_others(lake: Lake, name: str) -> None:
    """`df.write.format("lance")`, `format("trevni")`: all modes"""
    place = lake.path(f"save-{name}")
    lake.simple().write.format(name).save(place)
    lake.simple(50, 50).write.format(name).mode("append").save(place)
    assert trilake.open(place).count() == 100
    lake.simple(7).write.format(name).mode("overwrite").save(place)
    assert trilake.open(place).count() == 7


def test_load(lake: Lake) -> None:
    """`spark.read.format("delta").load`: versions, `schema`, change feed"""
    place = lake.path("load")
    trilake.write(lake.rows(), place, properties={"delta.enableChangeDataFeed": "true"})
    trilake.DeltaTable.forPath(lake.spark, place).delete("id < 10")
    assert lake.spark.read.format("delta").load(place).where("id < 20").count() == 10
    assert lake.spark.read.format("delta").option("versionAsOf", 0).load(place).count() == 100
    assert lake.spark.read.format("delta").schema("s string").load(place).columns == ["s"]
    feed = lake.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(place)
    assert [r[0] for r in feed.select("_change_type").distinct().collect()] == ["delete"]


def test_reused_frames(lake: Lake) -> None:
    """frames of `spark.read` and `toDF`, and frames derived from them, show the newest rows"""
    place = lake.path("again")
    trilake.write(lake.simple(), place)
    frames = lake.spark.read.format("delta").load(place), trilake.DeltaTable.forPath(lake.spark, place).toDF()
    columns = [f["id"] for f in frames]
    other = lake.simple(40, 40).select(F.col("id").alias("other"))
    made = [
        frames[0].where("id >= 10").groupBy("s").count().select(F.sum("count")),
        frames[0].alias("a").join(frames[0].alias("b"), "id").where("id >= 10").agg(F.count("*")),
        other.join(frames[1], F.col("other") == frames[1]["id"]).agg(F.count("*") + 30),
    ]
    for rows in (100, 150):  # a frame that was refreshed once must be refreshed again
        trilake.write(lake.simple(50, rows - 50), place, mode="append")
        assert [frame.collect()[0][0] for frame in made] == [rows - 10, rows - 10, 70]
        for frame, column in zip(frames, columns, strict=True):
            assert (frame.count(), frame.where(column >= 10).count()) == (rows, rows - 10)


@pytest.mark.parametrize("name", ["lance", "trevni"])
def test_load_others(lake: Lake, name: str) -> None:
    """`spark.read.format("lance")`, `format("trevni")`"""
    place = lake.path(f"load-{name}")
    trilake.write(lake.simple(), place, format=name)
    assert lake.spark.read.format(name).load(place).where("id > 39").count() == 10
    assert lake.spark.read.format(name).option("filter", "id > 39").load(place).count() == 10


@since(3, 5, connect=(4, 0))
def test_names(lake: Lake) -> None:
    """`saveAsTable`, `insertInto`, `writeTo`, `spark.table` with names in the catalog"""
    spark = lake.spark
    lake.simple().write.format("delta").saveAsTable("matrix_saved")
    lake.simple(50, 50).write.insertInto("matrix_saved")
    assert spark.table("matrix_saved").count() == 100
    assert spark.read.table("matrix_saved").where("id > 90").count() == 9
    assert trilake.DeltaTable.forName(spark, "matrix_saved").toDF().count() == 100
    lake.simple().writeTo("matrix_made").using("delta").create()
    lake.simple(5, 50).writeTo("matrix_made").append()
    assert spark.read.table("matrix_made").count() == 55
    trilake.DeltaTable.create(spark).tableName("matrix_built").addColumn("id", "BIGINT").execute()
    lake.simple().write.format("lance").saveAsTable("matrix_lance")
    assert spark.table("matrix_lance").where("id > 39").count() == 10
    for name in ("matrix_saved", "matrix_made", "matrix_built", "matrix_lance"):
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize("name", ["delta", "lance", "trevni"])
def test_names_of_paths(lake: Lake, name: str) -> None:
    """`saveAsTable`, `insertInto`, `writeTo`, `spark.table` with paths of Delta, Lance and Trevni"""
    spark, named = lake.spark, f"{name}.`{lake.path(f'named-{name}')}`"
    lake.simple().write.format(name).saveAsTable(named)
    lake.simple(50, 50).write.insertInto(named)
    lake.simple(5, 100).writeTo(named).append()
    assert spark.table(named).where("id > 89").count() == 15
    lake.simple(7).writeTo(named).using(name).createOrReplace()
    assert spark.read.table(named).count() == 7
