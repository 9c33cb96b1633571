"""DataFrames for the writer tests."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def two_rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1), ("b", 2)], "key string, value int")
