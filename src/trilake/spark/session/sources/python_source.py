"""Run trilake's Python data sources: with Spark's data source API, or without it in PySpark 3.5.

Without the API, the same readers and writers run differently: the driver plans a source, and tasks of ``mapInArrow``
read and write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.errors import UnsupportedSparkError
from trilake.spark.session.bypass import bypass
from trilake.spark.session.checks import check_session
from trilake.spark.session.compat import is_connect
from trilake.spark.session.delta_jar import drop_missing_catalog
from trilake.spark.session.internals import active_session, knows_class
from trilake.spark.session.runner import PICKLED, map_in_arrow, outcomes, pickled, task_rows
from trilake.spark.session.settings import shared_location
from trilake.spark.session.sources.api import HAS_DATA_SOURCES, DataSource, DataSourceStreamWriter
from trilake.spark.session.type_tree import with_arrow_types

_log = logging.getLogger("trilake.spark")

#: The class of delta-spark's jar that claims the name ``delta``.
_DELTA_SPARK = "org.apache.spark.sql.delta.sources.DeltaDataSource"
#: Attribute of a session with the names registered through it.
_REGISTERED = "_trilake_sources"


def register_sources(spark: SparkSession, sources: Iterable[type[DataSource]]) -> list[str]:
    """Register these data sources, each with its own name, except ``delta`` if delta-spark's jar owns it; returns the
    names.  Raises ``UnsupportedSparkError`` for tasks with an unsuitable Python, or a setting that names a missing
    class."""
    drop_missing_catalog(spark)
    check_session(spark)
    names = []
    for source in sources:
        if source.name() == "delta" and knows_class(spark, _DELTA_SPARK):
            _log.warning("delta-spark has registered the format name 'delta' in this session; use 'trilake-delta'")
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


def source_frame(
    spark: SparkSession,
    source: type[DataSource],
    path: str,
    options: Mapping[str, Any],
    schema: T.StructType | None = None,
) -> DataFrame:
    """The rows that one of trilake's data sources reads at ``path``; ``schema`` has the columns, all by default.
    Raises ``InvalidArgumentError`` for a table in memory."""
    path = shared_location(path)
    if HAS_DATA_SOURCES:
        ensure_source(spark, source)
        reader = spark.read.format(source.name()).options(**options)
        with bypass():  # the patched spark.read would call this function again
            return (reader if schema is None else reader.schema(schema)).load(path)
    instance = source({**{k: str(v) for k, v in options.items()}, "path": path})
    read_schema = instance.schema() if schema is None else schema
    assert isinstance(read_schema, T.StructType)
    planned = instance.reader(read_schema)
    parts = list(planned.partitions())
    return task_rows(spark, planned.read, parts, read_schema)


@dataclass(frozen=True)
class SinkBatch:
    """A ``foreachBatch`` function that writes the batches of a stream to a trilake sink.  ``sink`` makes the writer of
    a batch, in the way Spark requests it from a source."""

    sink: Callable[[], DataSourceStreamWriter]

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        writer = self.sink()
        rows = map_in_arrow(with_arrow_types(df), lambda batches: iter([pickled(writer.write(batches))]), PICKLED)
        writer.commit(outcomes(rows), batch_id)


def check_streams(spark: SparkSession, what: str) -> None:
    """Raise ``UnsupportedSparkError`` for a stream that needs Spark's data source API, if this release lacks it."""
    if HAS_DATA_SOURCES:
        return
    where = " over Spark Connect" if is_connect(spark) else ""
    raise UnsupportedSparkError(
        f"PySpark {spark.version} has no Python data sources, so it cannot {what}{where}",
        help="use PySpark 4.0 or newer; reads, writes, commands and foreachBatch work with this release",
    )
