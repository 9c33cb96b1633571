"""Run functions in Spark tasks: over lists of tasks, and over the rows of a DataFrame."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.delta.commands.rows.row_changes import run_here
from trilake.delta.commands.write.request import left_behind
from trilake.delta.log.log import DeltaLog
from trilake.spark.session.checks import check_session
from trilake.spark.session.compat import arrow_frame, with_offsets, without_echo
from trilake.spark.session.job_errors import failing_as, job_error_of
from trilake.spark.session.type_tree import with_arrow_types

#: The placeholder column of rows without columns.
NO_COLUMN = "__trilake_row"
#: The columns of :func:`pickled`.
PICKLED = T.StructType([T.StructField("outcome", T.BinaryType())])
#: Up to these limits, each task is one Spark task; beyond them, Spark distributes the tasks.
_FEW_TASKS, _FEW_BYTES = 64, 1 << 20


@dataclass(frozen=True)
class SparkRunner:
    """A :data:`trilake.delta.commands.rows.row_changes.Runner` on Spark's executors; fewer than ``least`` tasks run
    here."""

    spark: SparkSession
    #: The maximum number of tasks per Spark partition, which limits the cost of retries.
    width: int = 16
    least: int = 2

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        if len(tasks) < self.least:
            yield from run_here(function, tasks)
            return
        yield from outcomes(task_rows(self.spark, lambda task: [pickled(function(task))], tasks, PICKLED, self.width))


def pickled(outcome: object) -> pa.RecordBatch:
    """The result of a task as a row for the driver."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)], pa.binary())], PICKLED.names)


def outcomes(rows: DataFrame) -> list[Any]:
    """Run the job whose rows are :func:`pickled` results of its tasks; returns the results."""
    return [pickle.loads(row.outcome) for row in rows.collect()]


def with_a_column(df: DataFrame) -> DataFrame:
    """The DataFrame; if it has no columns, with the column :data:`NO_COLUMN`, since Arrow would lose the number of
    rows."""
    return df if df.columns else df.select(F.lit(None).cast("boolean").alias(NO_COLUMN))


def map_in_arrow(
    df: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: T.StructType | str
) -> DataFrame:
    """``df.mapInArrow`` in a session that :func:`check_session` accepts."""
    check_session(df.sparkSession)
    return df.mapInArrow(lambda batches: work(map(with_offsets, batches)), schema)


def map_rows(
    df: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: T.StructType | str
) -> DataFrame:
    """Like :func:`map_in_arrow`, for any column names; PySpark looks columns up without quoting backticks in names."""
    df = with_arrow_types(df)
    names = df.columns
    plain = df.toDF(*(f"c{i}" for i in range(len(names))))
    return map_in_arrow(plain, lambda batches: work(b.rename_columns(names) for b in batches), schema)


def task_rows(
    spark: SparkSession,
    read: Callable[[Any], Iterable[pa.RecordBatch]],
    tasks: Sequence[Any],
    schema: T.StructType | str,
    width: int = 1,
) -> DataFrame:
    """The rows that ``read`` returns for each of ``tasks``, in Spark tasks: one each, or ``width`` if there are many.
    Uses only DataFrames, so it works on Spark Connect."""
    packed = [pickle.dumps(t) for t in tasks]
    # A few tasks are pickled with the code, so that rows are just their numbers.
    few = packed if len(tasks) <= _FEW_TASKS and sum(map(len, packed)) <= _FEW_BYTES else None

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                yield from read(pickle.loads(row if few is None else few[row]))

    if few is not None:
        return map_in_arrow(spark.range(0, len(tasks), 1, max(len(tasks), 1)), run, schema)
    rows = pa.table({"task": pa.array(packed, pa.binary())})
    partitions = max(min(2, len(tasks)), -(-len(tasks) // width))
    return map_in_arrow(arrow_frame(spark, rows).repartition(partitions), run, schema)


#: Target rows and bytes of combined batches.
_CHUNK_ROWS, _CHUNK_BYTES = 1 << 17, 32 << 20


def run_over_rows(
    rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch], int], object], log: DeltaLog, job_id: str, verb: str
) -> list[Any]:
    """Run ``work`` in each task with its rows and its partition ID; returns the results that are not ``None``, in any
    order.  Raises ``WriteFailedError`` if the job (``verb``: ``"write"``) fails, or the trilake error of a task."""
    return row_outcomes(rows, work, partial(failed_job, log=log, job_id=job_id, verb=verb))


def row_outcomes(
    rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch], int], object], failed: Callable[[Exception], Exception]
) -> list[Any]:
    """Like :func:`run_over_rows`, for any format; ``failed`` makes the error of a job that failed."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        outcome = work(batches, 0 if context is None else context.partitionId())
        if outcome is not None:
            yield pickled(outcome)

    with failing_as(failed, AnalysisException), without_echo():  # after an error of the analysis, no task ran
        return outcomes(map_rows(rows, run, PICKLED))


def failed_job(cause: BaseException, log: DeltaLog, job_id: str, verb: str) -> Exception:
    """The error for a job that failed before its commit; says which files the job left behind."""
    remaining = left_behind(log, job_id)
    return job_error_of(
        cause,
        f"the {verb} failed before its commit; the table is unchanged and {remaining}",
        again=f"repeat the {verb}",
        cleanup="" if remaining.startswith("no files") else "vacuum removes the remaining files",
        file=log.store.uri,
    )


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small batches, since rules and writers have a cost per batch."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)
