"""Settings of a Spark session for optimized writes and automatic compaction, under delta-spark's names.

``spark.databricks.delta.optimizeWrite.enabled`` and ``spark.databricks.delta.autoCompact.enabled`` decide over the
properties of tables; an option of the write decides over both.
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
#: MiB of rows that one task of an optimized write gets.
_BIN_MIB = 512


def setting(spark: SparkSession, name: str) -> str | None:
    """A setting of the session below ``spark.databricks.delta``, where it has been set."""
    value = spark.conf.get(_PREFIX + name, None)
    return None if value is None else str(value)


def flag(spark: SparkSession, name: str) -> bool | None:
    """A true/false setting.  Raises ``InvalidArgumentError`` for any other text."""
    text = setting(spark, name)
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"{_PREFIX}{name} is {text!r}", help="it is true or false")
    return text.lower() == "true"


def integer(spark: SparkSession, name: str, default: int) -> int:
    """A whole number.  Raises ``InvalidArgumentError`` for any other text."""
    text = setting(spark, name)
    try:
        return default if text is None else int(text)
    except ValueError as e:
        raise InvalidArgumentError(f"{_PREFIX}{name} is {text!r}", help="it is a whole number") from e


def share(spark: SparkSession, name: str, default: float) -> float:
    """A number between 0 and 1.  Raises ``InvalidArgumentError`` for any other text."""
    text = setting(spark, name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidArgumentError(f"{_PREFIX}{name} is {text!r}", help="it is a number between 0 and 1")
    return value


# --- compaction ------------------------------------------------------------------------------------------------------


def session_compaction(metadata: Metadata) -> AutoCompaction:
    """How the active session compacts after a commit, bins of files as tasks of a job."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        return AutoCompaction()
    text = (setting(spark, "autoCompact.enabled") or "").lower()
    chosen = AutoCompaction(None if not text else text in ("true", "auto"), run=SparkRunner(spark, width=1))
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


def rebalance_wanted(spark: SparkSession, request: WriteRequest, metadata: Metadata) -> bool:
    """Whether rows are brought together before they are written: option, session and table, in this order."""
    if request.optimize_write is not None:
        return request.optimize_write
    stated = flag(spark, "optimizeWrite.enabled")
    return request.optimizes(metadata.configuration) if stated is None else stated


def rebalanced(rows: DataFrame, partition_columns: Sequence[str]) -> DataFrame:
    """The rows shuffled so that those of a partition come to few tasks, and no task has too many.

    Spark decides on the number of tasks when it knows the sizes, which needs adaptive execution; without that, rows of
    a partition come to one task, and those of other tables stay where they are.
    """
    columns = [F.col(quote_name(c)) for c in partition_columns]
    if str(rows.sparkSession.conf.get(f"{_ADAPTIVE}enabled", "true")).lower() == "true":
        return rows.hint("rebalance", *columns)
    return rows.repartition(*columns) if columns else rows


@contextmanager
def right_sizes(spark: SparkSession, *, wanted: bool = True) -> Iterator[None]:
    """While a job runs, let a rebalancing aim at large tasks rather than at many."""
    if not wanted:
        yield
        return
    size = integer(spark, "optimizeWrite.binSize", _BIN_MIB)
    conf = {
        f"{_ADAPTIVE}advisoryPartitionSizeInBytes": f"{size}m",
        f"{_ADAPTIVE}coalescePartitions.parallelismFirst": "false",
    }
    with overridden(spark, conf):
        yield
