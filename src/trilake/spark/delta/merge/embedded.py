"""MERGE of a large source in the embedded engine, if driver and tasks share a machine.

::

    source --tasks--> Arrow files, mapped --> trilake.delta.commands.merge

A join in Spark caches the source, shuffles all columns of both tables, and passes the result to Python for writing.
The merge without Spark joins only the keys, then reads only matching rows; the source stays in mapped files.  It runs
only if its result is certain to equal Spark's; expressions that the engine does not support, or evaluates differently,
are left to Spark.  If an expression fails on a row, or if the source or the matches are too large, the next strategy
runs.  By then, nothing has been written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame

from trilake.delta.commands.merge.clauses import VISIBLE, Clause, Side
from trilake.delta.commands.merge.commit import ForHistory, MergeRequest, MergeResult
from trilake.delta.commit.conflicts import ReadSet
from trilake.errors import ConstraintViolatedError, ExpressionError, SchemaMismatchError, UnsupportedProtocolError
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.source import FEW_BYTES, SOURCE_NAME, TARGET_NAME, Expr, alias_of, plan_bytes
from trilake.spark.delta.storing.store_assignment import AssignmentRules
from trilake.spark.scan.columns import as_column, built_in_sql, empty_frame
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import SPARK_ERRORS, query_execution
from trilake.spark.session.runner import chunks, run_over_rows
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import is_utc, reads_quotes_plainly
from trilake.storage.staging import spilling, temporary_folder

#: Limits on the bytes and rows of the source.
_MOST_BYTES, _MOST_ROWS = 8 << 30, 32 << 20
#: Limits on matching pairs of rows: in total, and per row of the source.
_MOST_PAIRS = (4 << 20, 4)
#: With more task threads, Spark is faster, since the embedded merge writes its rows in one thread.
_MOST_CORES = 8


class EmbeddedMerge:
    """A strategy of :mod:`~trilake.spark.delta.merge.run`: Spark computes the source, and the embedded engine merges
    it."""

    name = "the embedded engine"

    def __init__(self, job: MergeJob) -> None:
        self._job = job

    def can_run(self) -> str | None:
        """Why the engine may return a different result than Spark, or would not be faster; ``None`` if it can run."""
        request = self._request
        return request if isinstance(request, str) else None

    def run(self, other_reads: Callable[[], ReadSet], for_history: ForHistory) -> MergeResult | str:
        # Imported late, since loading the parser takes a third of a second.
        from trilake.delta.commands.merge import match, merge

        job, request = self._job, self._request
        assert isinstance(request, MergeRequest)
        try:
            with _materialized(job) as rows:
                if rows is None:
                    return "the source is too large for it"
                most = max(_MOST_PAIRS[0], _MOST_PAIRS[1] * rows.num_rows)
                request = replace(request, source_read=other_reads(), for_history=for_history)
                return merge.merge(job.log, rows, request, cached=job.snapshot, started=job.started, most_pairs=most)
        except ConstraintViolatedError:
            raise
        except (ExpressionError, SchemaMismatchError) as e:
            return str(e)
        except match.TooManyPairsError:
            return "too many rows match"

    @cached_property
    def _request(self) -> MergeRequest | str:
        job = self._job
        spark, request = job.spark, job.request
        if is_connect(spark) or not str(spark.conf.get("spark.master", None) or "").startswith("local"):
            return "tasks may run on other machines"
        if spark.sparkContext.defaultParallelism > _MOST_CORES:
            return "Spark has enough cores to be faster"
        if not is_utc(spark) or job.rules != AssignmentRules():
            return "the session's time zone is not UTC, or ANSI mode is off, or names are case-sensitive"
        if not reads_quotes_plainly(spark):
            return "the session has other quoting rules for strings and names"
        if plan_bytes(request.source) <= FEW_BYTES:
            return "the source is small"
        sql = _sql(job)
        if sql is None:
            return "an expression uses functions that are not built into Spark"
        on, clauses = sql
        names = alias_of(request.source) or SOURCE_NAME, request.alias or TARGET_NAME
        embedded = MergeRequest(on, tuple(clauses), *names, job.evolve, txn=request.txn)

        from trilake.delta.commands.merge import merge  # late, as above

        try:
            merge.check_merge(job.log, job.snapshot, _schema(request.source), embedded)
        except (ExpressionError, SchemaMismatchError, UnsupportedProtocolError) as e:
            return str(e)
        return embedded


def _sql(job: MergeJob) -> tuple[str, list[Clause[str]]] | None:
    """Condition and clauses as SQL over the columns of both tables; ``None`` if one of them has no SQL."""
    request = job.request
    target = empty_frame(job.spark, job.snapshot.schema, request.alias)
    both = target.crossJoin(request.source)
    frames: dict[tuple[Side, ...], DataFrame] = {
        ("target",): target,
        ("source",): request.source,
        ("target", "source"): both,
    }
    translated: list[str | None] = []

    def sql(frame: DataFrame, expression: Expr) -> str:
        translated.append(_sql_of(frame, expression))
        return translated[-1] or ""

    on = sql(both, request.condition)
    clauses = []
    for c in request.clauses:
        frame = frames[VISIBLE[c.kind]]
        condition = None if c.condition is None else sql(frame, c.condition)
        values = None if c.values is None else {n: sql(frame, v) for n, v in c.values.items()}
        clauses.append(Clause(c.kind, c.action, condition, values, c.excluded))
    return None if None in translated else (on, clauses)


def _sql_of(frame: DataFrame, expression: Expr) -> str | None:
    """The SQL of an expression of Spark's built-in functions; a SQL string unchanged."""
    try:
        plan = query_execution(frame.select(as_column(expression).alias("v"))).analyzed()
        sql = built_in_sql(lambda: plan.projectList().head().child())
    except SPARK_ERRORS:
        return None  # the join raises the error
    return expression if sql is not None and isinstance(expression, str) else sql


def _schema(source: DataFrame) -> pa.Schema:
    return from_spark(source.schema, limits=True).to_arrow_schema()


@contextmanager
def _materialized(job: MergeJob) -> Iterator[pa.Table | None]:
    """The rows of the source, computed once, in mapped files that the block deletes; ``None`` if they are too large."""
    with temporary_folder("trilake-merge-") as folder, ExitStack() as stack:
        paths = run_over_rows(job.request.source, _Materialize(str(folder), _MOST_BYTES), job.log, job.job_id, "merge")
        if not all(paths):
            yield None
            return
        parts = []
        for path in paths:
            with spilling():
                mapped = stack.enter_context(pa.memory_map(path))
            parts.append(pa.ipc.open_file(mapped).read_all())
        rows = pa.concat_tables(parts) if parts else _schema(job.request.source).empty_table()
        yield rows if rows.num_rows <= _MOST_ROWS else None


@dataclass(frozen=True)
class _Materialize:
    """Writes a task's rows to a file, and returns its path; empty if all files are too large or the disk is almost
    full."""

    folder: str
    most: int

    def __call__(self, batches: Iterator[pa.RecordBatch], task: int) -> str | None:
        writer: pa.RecordBatchFileWriter | None = None
        path = ""
        with ExitStack() as stack:
            for rows in chunks(batches):
                with spilling():
                    if not self._room():
                        return ""
                    if writer is None:
                        number, path = tempfile.mkstemp(".arrow", dir=self.folder)  # unique per attempt
                        os.close(number)
                        file = stack.enter_context(pa.OSFile(path, "wb"))
                        writer = stack.enter_context(pa.ipc.new_file(file, rows.schema))
                    writer.write_batch(rows)
        return path or None

    def _room(self) -> bool:
        with os.scandir(self.folder) as files:
            size = sum(f.stat().st_size for f in files)
        return size <= min(self.most, shutil.disk_usage(self.folder).free)
