"""Session settings for optimized writes and auto compaction, with delta-spark's names.

``spark.databricks.delta.optimizeWrite.enabled`` and ``spark.databricks.delta.autoCompact.enabled`` override table
properties; an option of the write overrides both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.text import quote_name
from trilake.delta.commands.optimize.auto_compact import AutoCompaction
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.protocol.actions import Metadata
from trilake.errors import InvalidArgumentError
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.settings import overridden

_PREFIX = "spark.databricks.delta."
_ADAPTIVE = "spark.sql.adaptive."
#: MiB of rows per task of an optimized write.
_BIN_MIB = 512


def setting(spark: SparkSession, name: str) -> str | None:
    """A setting of the session below ``spark.databricks.delta``; ``None`` if it is not set."""
    value = spark.conf.get(_PREFIX + name, None)
    return None if value is None else str(value)


def flag(spark: SparkSession, name: str) -> bool | None:
    """A boolean setting.  Raises ``InvalidArgumentError`` for other values."""
    value = setting(spark, name)
    if value is None:
        return None
    if value.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"{_PREFIX}{name} must be true or false, got {value!r}")
    return value.lower() == "true"


def integer(spark: SparkSession, name: str, default: int) -> int:
    """An integer setting.  Raises ``InvalidArgumentError`` for other values."""
    value = setting(spark, name)
    try:
        return default if value is None else int(value)
    except ValueError as e:
        raise InvalidArgumentError(f"{_PREFIX}{name} must be a whole number, got {value!r}") from e


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


# --- compaction ------------------------------------------------------------------------------------------------------


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


# --- writes ----------------------------------------------------------------------------------------------------------


def wants_rebalance(spark: SparkSession, request: WriteRequest, metadata: Metadata) -> bool:
    """Whether to rebalance rows before writing, as decided by the option, the session or the table, in this order."""
    if request.optimize_write is not None:
        return request.optimize_write
    stated = flag(spark, "optimizeWrite.enabled")
    return request.optimizes(metadata.configuration) if stated is None else stated


def rebalanced(rows: DataFrame, partition_columns: Sequence[str]) -> DataFrame:
    """The rows, shuffled so that each partition's rows go to few tasks, and no task gets too many.

    With adaptive execution, Spark chooses the number of tasks by size.  Without it, each partition's rows go to one
    task, and rows of unpartitioned tables stay where they are.
    """
    columns = [F.col(quote_name(c)) for c in partition_columns]
    if str(rows.sparkSession.conf.get(f"{_ADAPTIVE}enabled", "true")).lower() == "true":
        return rows.hint("rebalance", *columns)
    return rows.repartition(*columns) if columns else rows


@contextmanager
def right_sizes(spark: SparkSession, *, enabled: bool = True) -> Iterator[None]:
    """In the block, make rebalancing prefer large tasks over parallelism."""
    if not enabled:
        yield
        return
    size = integer(spark, "optimizeWrite.binSize", _BIN_MIB)
    conf = {
        f"{_ADAPTIVE}advisoryPartitionSizeInBytes": f"{size}m",
        f"{_ADAPTIVE}coalescePartitions.parallelismFirst": "false",
    }
    with overridden(spark, conf):
        yield
