"""Adapters for the corpus runner: Spark read paths as callables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import trilake


def _arrow(df: DataFrame) -> pa.Table:
    return df.toArrow()


def source(spark: SparkSession) -> dict[str, Any]:
    """``spark.read.format("delta")``."""

    def load(path: str, **options: Any) -> DataFrame:
        reader = spark.read.format("delta")
        for name, value in options.items():
            if value is not None:
                reader = reader.option(name, value)
        return reader.load(path)

    def read_cdf(path: str, start: int, end: int | None) -> pa.Table:
        return _arrow(load(path, readChangeFeed="true", startingVersion=start, endingVersion=end))

    return {
        "read": lambda path, version=None: _arrow(load(path, versionAsOf=version)),
        "read_cdf": read_cdf,
        "read_where": lambda path, sql: _arrow(load(path).where(sql)),
        "read_asof": lambda path, ts: _arrow(load(path, timestampAsOf=ts)),
    }


def native(spark: SparkSession) -> dict[str, Any]:
    """``trilake.read``: Spark's own scan over the snapshot's files."""
    return {
        "read": lambda path, version=None: _arrow(trilake.read(spark, path, version=version)),
        "read_where": lambda path, sql: _arrow(trilake.read(spark, path, filter=sql)),
        "read_asof": lambda path, ts: _arrow(trilake.read(spark, path, timestamp=ts)),
    }
