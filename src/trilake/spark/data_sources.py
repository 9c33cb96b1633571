"""The data sources of all formats, as Spark knows them."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from trilake.spark.delta_source import DeltaDataSource, TrilakeDeltaDataSource
from trilake.spark.lance_source import LanceDataSource, TrilakeLanceDataSource
from trilake.spark.trevni_source import TrevniDataSource, TrilakeTrevniDataSource

_log = logging.getLogger("trilake.spark")

#: Class of delta-spark's jar that claims the name ``delta``.
_DELTA_SPARK = "org.apache.spark.sql.delta.sources.DeltaDataSource"

SOURCES: list[type[DataSource]] = [
    DeltaDataSource,
    TrilakeDeltaDataSource,
    LanceDataSource,
    TrilakeLanceDataSource,
    TrevniDataSource,
    TrilakeTrevniDataSource,
]


def register_sources(spark: SparkSession) -> list[str]:
    """Register every data source, each under the format's name and under ``trilake-<name>``; the names registered.

    Where delta-spark's jar already owns the name ``delta``, that name is left alone and a warning says so.
    """
    names = []
    for source in SOURCES:
        if source.name() == "delta" and _owns_delta(spark):
            _log.warning("delta-spark's jar owns the format name 'delta' in this session; use 'trilake-delta'")
            continue
        spark.dataSource.register(source)
        names.append(source.name())
    return names


def _owns_delta(spark: SparkSession) -> bool:
    """Whether delta-spark's jar is on the class path; a Connect server cannot be asked, and decides by itself."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_DELTA_SPARK)
    except Exception:  # noqa: BLE001 - py4j wraps ClassNotFoundException
        return False
    return True
