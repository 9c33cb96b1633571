"""Jobs whose tasks take the rows of a frame as Arrow batches, and each say in one object what they did."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from trilake.delta.commands.write.job_files import left_behind
from trilake.delta.log.log import DeltaLog
from trilake.spark.session.compat import without_echo
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import map_rows

#: Rows and bytes of small batches that are taken together.
_CHUNK_ROWS, _CHUNK_BYTES = 1 << 17, 32 << 20


def run_over_rows(
    rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch], int], object], log: DeltaLog, job_id: str, verb: str
) -> list[Any]:
    """What the tasks of a job say of the rows they took, in no order.

    Parameters
    ----------
    work: called in each task with its rows and its number; it travels pickled, and so does what it returns.  ``None``
        says nothing.
    log, job_id: where the tasks write, and what the names of their files have in them.
    verb: what the job is part of, for errors: ``"write"``.

    Raises ``WriteFailedError`` for a job that failed, or the error of trilake that a task raised; nothing was
    committed.
    """
    try:
        with without_echo():
            outcomes = map_rows(rows, _RowTask(work), "outcome binary").collect()
    except AnalysisException:
        raise  # nothing ran
    except Exception as e:  # noqa: BLE001 - whatever Spark raises for a failed job: the table is unchanged, and that must be said
        raise failed_job(e, log, job_id, verb) from None
    return [pickle.loads(row.outcome) for row in outcomes]


@dataclass(frozen=True)
class _RowTask:
    """A task, as it travels."""

    work: Callable[[Iterator[pa.RecordBatch], int], object]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        outcome = self.work(batches, 0 if context is None else context.partitionId())
        if outcome is not None:
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)], pa.binary())], ["outcome"])


def failed_job(cause: BaseException, log: DeltaLog, job_id: str, verb: str) -> Exception:
    """The error for a job that failed before its commit, which says what it left in the table's folder."""
    left = left_behind(log, job_id)
    return job_error_of(
        cause,
        f"the {verb} failed before its commit; the table is unchanged and {left}",
        again=f"repeat the {verb}",
        left="" if left.startswith("no files") else "vacuum removes the remaining files",
        file=log.store.uri,
    )


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches put together: rules and writers cost something a batch."""
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
