"""Register Python data sources with a session."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark.sql import SparkSession

from trilake.spark.session.checks import check_session
from trilake.spark.session.delta_jar import drop_missing_catalog
from trilake.spark.session.internals import active_session, knows_class
from trilake.spark.session.sources.api import HAS_DATA_SOURCES, DataSource

_log = logging.getLogger("trilake.spark")

#: The class of delta-spark's jar that claims the name ``delta``.
_DELTA_SPARK = "org.apache.spark.sql.delta.sources.DeltaDataSource"
#: Attribute of a session with the names registered through it.
_REGISTERED = "_trilake_sources"


def register_sources(spark: SparkSession, sources: Iterable[type[DataSource]]) -> list[str]:
    """Register these data sources, each with its own name; returns the registered names.

    If delta-spark's jar owns the name ``delta``, that name is skipped with a warning in the log.

    Raises ``UnsupportedSparkError`` if the session's tasks run an unsuitable Python, or a setting names a missing
    catalog class.
    """
    drop_missing_catalog(spark)
    check_session(spark)
    names = []
    for source in sources:
        if source.name() == "delta" and _owns_delta(spark):
            _log.warning("delta-spark's jar owns the format name 'delta' in this session; use 'trilake-delta'")
            continue
        if HAS_DATA_SOURCES:
            with active_session(spark):  # Spark (4.3) checks the name in the active session
                spark.dataSource.register(source)
            spark.__dict__.setdefault(_REGISTERED, set()).add(source.name())
        names.append(source.name())
    return names


def ensure_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source once per session object, since Spark warns about a second registration."""
    if source.name() not in spark.__dict__.get(_REGISTERED, ()):
        register_sources(spark, [source])


def _owns_delta(spark: SparkSession) -> bool:
    """Whether delta-spark's jar is on the class path; always false on Connect, where the server decides."""
    return knows_class(spark, _DELTA_SPARK)
