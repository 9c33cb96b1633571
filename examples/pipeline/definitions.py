"""What the pipeline computes: Spark runs this file and calls the functions when it needs their rows."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake

LAKE = os.environ["LAKE"]

spark = SparkSession.active()
trilake.register(spark)

dp.create_sink("copy", "lance", {"path": f"{LAKE}/orders.lance"})
dp.create_sink("large", "delta", {"path": f"{LAKE}/large"})


@dp.materialized_view(name="revenue")
def revenue() -> DataFrame:
    """The revenue of each shop, from the Delta table and the Trevni table of prices."""
    orders = spark.read.format("delta").load(f"{LAKE}/orders")
    prices = spark.read.format("trevni").load(f"{LAKE}/prices")
    return orders.join(prices, "item").groupBy("shop").agg(F.sum(F.col("count") * F.col("price")).alias("revenue"))


@dp.append_flow(target="copy", name="copied")
def copied() -> DataFrame:
    """Every order, once, into a Lance dataset."""
    return spark.readStream.format("delta").load(f"{LAKE}/orders")


@dp.append_flow(target="large", name="kept")
def large() -> DataFrame:
    """The large orders, into another Delta table."""
    return spark.readStream.format("delta").load(f"{LAKE}/orders").where("count >= 8")
