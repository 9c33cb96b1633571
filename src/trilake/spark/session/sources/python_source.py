"""Run trilake's Python data sources: with Spark's data source API, or without it in PySpark 3.5.

Without the API, the same readers and writers run differently: the driver plans a source, and tasks of ``mapInArrow``
read and write.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.errors import UnsupportedSparkError
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import is_connect
from trilake.spark.session.runner import map_in_arrow, task_rows
from trilake.spark.session.sources.api import HAS_DATA_SOURCES, DataSource, DataSourceReader, DataSourceStreamWriter
from trilake.spark.session.sources.registry import ensure_source
from trilake.spark.session.storage import check_shared
from trilake.spark.session.type_tree import with_arrow_types


def source_frame(
    spark: SparkSession,
    source: type[DataSource],
    path: str,
    options: Mapping[str, Any],
    schema: T.StructType | None = None,
) -> DataFrame:
    """The rows that a source reads at ``path``.

    Parameters
    ----------
    source: one of trilake's data sources; registered if Spark needs that.
    options: the options of the read.
    schema: the columns to read; all by default.

    Raises ``InvalidArgumentError`` for a table in memory, which other processes cannot see.
    """
    check_shared(path)
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
    return task_rows(spark, _Read(planned), parts, read_schema)


@dataclass(frozen=True)
class _Read:
    reader: DataSourceReader

    def __call__(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)


@dataclass(frozen=True)
class SinkBatch:
    """A ``foreachBatch`` function that writes the batches of a stream to a trilake sink.

    ``sink`` makes the writer of a batch, in the way Spark requests it from a source.
    """

    sink: Callable[[], DataSourceStreamWriter]

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch and commit it."""
        writer = self.sink()
        messages = _run(df, writer)
        writer.commit(messages, batch_id)


def _run(df: DataFrame, writer: DataSourceStreamWriter) -> list[Any]:
    """Run the tasks that write ``df``, and return their commit messages."""
    job = _Write(pickle.dumps(writer))
    return [pickle.loads(r.message) for r in map_in_arrow(with_arrow_types(df), job, "message binary").collect()]


@dataclass(frozen=True)
class _Write:
    writer: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pickle.loads(self.writer).write(batches)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(message)], pa.binary())], ["message"])


def check_streams(spark: SparkSession, what: str) -> None:
    """Raise ``UnsupportedSparkError`` for a stream that needs Spark's data source API, if this release lacks it."""
    if HAS_DATA_SOURCES:
        return
    where = " over Spark Connect" if is_connect(spark) else ""
    raise UnsupportedSparkError(
        f"PySpark {spark.version} has no Python data sources, so it cannot {what}{where}",
        help="use PySpark 4.0 or newer; reads, writes, commands and foreachBatch work with this release",
    )
