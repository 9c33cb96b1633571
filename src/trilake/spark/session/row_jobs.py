"""Jobs whose tasks get a frame's rows as Arrow batches and return one object each."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from trilake.delta.commands.write.request import left_behind
from trilake.delta.log.log import DeltaLog
from trilake.spark.session.compat import without_echo
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import map_rows

#: Target rows and bytes of combined batches.
_CHUNK_ROWS, _CHUNK_BYTES = 1 << 17, 32 << 20


def run_over_rows(
    rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch], int], object], log: DeltaLog, job_id: str, verb: str
) -> list[Any]:
    """Run a job over rows and return the results of its tasks, in any order.

    Parameters
    ----------
    work: called in each task with its rows and its partition ID; pickled, as is its result.  ``None`` is dropped.
    log, job_id: the table to which tasks write, and the ID in the names of their files.
    verb: the operation, for errors: ``"write"``.

    Raises ``WriteFailedError`` if the job fails, or the trilake error of a task; in both cases nothing is committed.
    """
    return row_outcomes(rows, work, lambda e: failed_job(e, log, job_id, verb))


def row_outcomes(
    rows: DataFrame,
    work: Callable[[Iterator[pa.RecordBatch], int], object],
    failed: Callable[[Exception], Exception],
) -> list[Any]:
    """Like :func:`run_over_rows`, for any format; ``failed`` makes the error of a job that failed."""
    try:
        with without_echo():
            outcomes = map_rows(rows, _RowTask(work), "outcome binary").collect()
    except AnalysisException:
        raise  # no task ran
    except Exception as e:  # noqa: BLE001 - any error of a failed job
        raise failed(e) from None
    return [pickle.loads(row.outcome) for row in outcomes]


@dataclass(frozen=True)
class _RowTask:
    work: Callable[[Iterator[pa.RecordBatch], int], object]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        outcome = self.work(batches, 0 if context is None else context.partitionId())
        if outcome is not None:
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)], pa.binary())], ["outcome"])


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
