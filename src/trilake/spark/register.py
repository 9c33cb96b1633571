"""``register``: make the formats known to a Spark session."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from trilake.spark.delta_source import DeltaDataSource, TrilakeDeltaDataSource
from trilake.spark.lance_source import LanceDataSource, TrilakeLanceDataSource
from trilake.spark.savers import install
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


def register(spark: SparkSession, *, push_filters: bool = False) -> list[str]:
    """Register trilake's data sources, each under the format's name and under ``trilake-<name>``.

    It also teaches ``df.write`` what Spark refuses for Python sources (:mod:`trilake.spark.dataframe_writer`):
    ``df.write.format("delta").save(path)`` in all four modes, ``partitionBy``, ``saveAsTable`` and ``insertInto``.

    Where delta-spark's jar already owns the name ``delta``, that name is left alone and a warning says so.

    ``push_filters`` sets ``spark.sql.python.filterPushdown.enabled``, after which a read with the option
    ``pushFilters=true`` skips files and row groups.  Both are needed and neither is a default: up to Spark 4.3, all
    uses of one DataFrame of a Python source share the scan that was planned last, so a DataFrame with pushed filters
    must be filtered in one way only.  :func:`trilake.read` has no such limit.

    Returns the names registered.
    """
    names = []
    for source in SOURCES:
        if source.name() == "delta" and _owns_delta(spark):
            _log.warning("delta-spark's jar owns the format name 'delta' in this session; use 'trilake-delta'")
            continue
        spark.dataSource.register(source)
        names.append(source.name())
    install(names)
    if push_filters:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
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
