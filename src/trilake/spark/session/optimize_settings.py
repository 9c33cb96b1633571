"""Session settings for large tables, optimized writes and auto compaction, with delta-spark's names.

``spark.databricks.delta.optimizeWrite.enabled`` and ``spark.databricks.delta.autoCompact.enabled`` override table
properties; an option of the write overrides both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.text import quote_name
from trilake.delta.commands.optimize.optimize import AutoCompaction
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.engine import Jobs
from trilake.delta.protocol.actions import Metadata
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.spark.session.job_errors import failing_as, job_error_of
from trilake.spark.session.runner import SparkRunner, task_rows
from trilake.spark.session.settings import overridden, session_flag
from trilake.storage.base import Store

_PREFIX = "spark.databricks.delta."
_ADAPTIVE = "spark.sql.adaptive."
#: MiB of rows per task of an optimized write.
_BIN_MIB = 512


D = TypeVar("D")


def setting(spark: SparkSession, name: str) -> str | None:
    """A setting of the session below ``spark.databricks.delta``; ``None`` if it is not set."""
    value = spark.conf.get(_PREFIX + name, None)
    return None if value is None else str(value)


def flag(spark: SparkSession, name: str) -> bool | None:
    """A boolean setting.  Raises ``InvalidArgumentError`` for other values."""
    return None if setting(spark, name) is None else session_flag(spark, _PREFIX + name, False)


def integer(spark: SparkSession, name: str, default: D) -> int | D:
    """An integer setting.  Raises ``InvalidArgumentError`` for other values."""
    value = setting(spark, name)
    try:
        return default if value is None else int(value)
    except ValueError as e:
        raise InvalidArgumentError(f"{_PREFIX}{name} must be an integer, got {value!r}") from e


def share(spark: SparkSession, name: str, default: float) -> float:
    """A number between 0 and 1.  Raises ``InvalidArgumentError`` for other values."""
    value = setting(spark, name)
    try:
        number = default if value is None else float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidArgumentError(f"{_PREFIX}{name} must be a number between 0 and 1, got {value!r}")
    return number


def session_compaction(metadata: Metadata) -> AutoCompaction:
    """The active session's auto compaction, which runs in Spark jobs."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        return AutoCompaction()
    value = (setting(spark, "autoCompact.enabled") or "").lower()
    chosen = AutoCompaction(None if not value else value in ("true", "auto"), run=SparkRunner(spark, width=1))
    if not chosen.applies_to(metadata):
        return chosen
    size = integer(spark, "autoCompact.maxFileSize", chosen.max_size)
    return AutoCompaction(
        chosen.enabled,
        min_files=integer(spark, "autoCompact.minNumFiles", chosen.min_files),
        max_size=size,
        min_size=integer(spark, "autoCompact.minFileSize", max(1, size // 2)),
        run=chosen.run,
    )


def wants_rebalance(spark: SparkSession, request: WriteRequest, metadata: Metadata) -> bool:
    """Whether to rebalance rows before writing, as decided by the option, the session or the table, in this order."""
    if request.optimize_write is not None:
        return request.optimize_write
    stated = flag(spark, "optimizeWrite.enabled")
    return request.optimizes(metadata.configuration) if stated is None else stated


def rebalanced(rows: DataFrame, partition_columns: Sequence[str]) -> DataFrame:
    """The rows, shuffled so that each partition's rows go to few tasks, and no task gets too many.  Without adaptive
    execution, each partition's rows go to one task, and rows of unpartitioned tables stay where they are."""
    columns = [F.col(quote_name(c)) for c in partition_columns]
    if str(rows.sparkSession.conf.get(f"{_ADAPTIVE}enabled", "true")).lower() == "true":
        return rows.hint("rebalance", *columns)
    return rows.repartition(*columns) if columns else rows


def right_sizes(spark: SparkSession) -> AbstractContextManager[None]:
    """In the block, make rebalancing prefer large tasks over parallelism."""
    size = integer(spark, "optimizeWrite.binSize", _BIN_MIB)
    conf = {
        f"{_ADAPTIVE}advisoryPartitionSizeInBytes": f"{size}m",
        f"{_ADAPTIVE}coalescePartitions.parallelismFirst": "false",
    }
    return overridden(spark, conf)


# --- large tables, whose file lists do not fit in this process: Spark jobs process them ------------------------------


#: Tables with more files than this are processed by jobs.
LARGE_FILES = "spark.trilake.delta.largeTableFiles"
DEFAULT_LARGE_FILES = 2_000_000


def by_jobs(spark: SparkSession, store: Store, files: int) -> bool:
    """Whether a table has more files than the session allows in this process.  Raises ``InvalidArgumentError`` if the
    setting is not a number."""
    value = str(spark.conf.get(LARGE_FILES, str(DEFAULT_LARGE_FILES)))
    if not value.isdecimal():
        raise InvalidArgumentError(f"{LARGE_FILES} must be a number of files, got {value!r}", setting=LARGE_FILES)
    # Executors cannot see this process's memory.
    return files > int(value) and not store.uri.startswith("memory:")


def session_jobs(store: Store, files: int) -> Jobs | None:
    """The active session's jobs for a table with this many files; ``None`` if it needs none."""
    spark = SparkSession.getActiveSession()
    return SparkJobs(spark, store.uri) if spark is not None and by_jobs(spark, store, files) else None


@dataclass(frozen=True)
class SparkJobs:
    """Spark's executors as the :class:`trilake.delta.engine.Jobs` of the table at ``uri``."""

    spark: SparkSession
    uri: str

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        with failing_as(self._failed, TrilakeError):
            return list(SparkRunner(self.spark, width=1, least=1)(function, tasks))

    def repeated(self, strings: Callable[[Any], Iterator[pa.ChunkedArray]], tasks: Sequence[Any]) -> str | None:
        """A string that occurs more than once among the strings of all tasks; ``None`` if there is none."""
        if not tasks:
            return None

        def read(task: Any) -> Iterator[pa.RecordBatch]:
            for chunk in (chunk for column in strings(task) for chunk in column.chunks):
                yield pa.RecordBatch.from_arrays([chunk.cast(pa.string())], ["value"])

        with failing_as(self._failed, TrilakeError):
            rows = task_rows(self.spark, read, tasks, "value string")
            hashed = rows.groupBy(F.xxhash64("value").alias("hash")).count().where("count > 1")
            if not hashed.limit(1).count():
                return None
            repeats = rows.groupBy("value").count().where("count > 1").limit(1).collect()
            return str(repeats[0].value) if repeats else None

    def _failed(self, cause: Exception) -> TrilakeError:
        what = "a job over the files of a large table failed"
        return job_error_of(cause, what, again="try again", file=self.uri)
