"""MERGE of a large source by the embedded engine, if driver and tasks share a machine.

::

    source --tasks--> Arrow files, mapped --> trilake.delta.commands.merge

To join large tables row by row, Spark caches the source, shuffles all columns of both tables, and passes the result to
Python, which writes it.  The merge without Spark joins keys, reads only matching rows, and needs memory only for mapped
files.  It is used if it certainly gives the same result: an expression that it doesn't know or evaluates differently
leaves the merge to Spark, as does one that fails on a row.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.commands.merge.commit import MergeRequest, MergeResult
from trilake.delta.commands.merge.names import VISIBLE, Side
from trilake.delta.protocol.schema import StructType
from trilake.errors import ConstraintViolatedError, ExpressionError, SchemaMismatchError
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.request import Expr
from trilake.spark.delta.merge.source import FEW_BYTES, plan_bytes
from trilake.spark.delta.merge.source_keys import SOURCE_NAME, TARGET_NAME, alias_of
from trilake.spark.delta.storing.assignment_rules import AssignmentRules
from trilake.spark.scan.columns import as_column, built_in_text, empty_frame
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import query_execution
from trilake.spark.session.row_jobs import chunks, run_over_rows
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import is_utc, reads_quotes_plainly
from trilake.storage.spill import spilling, temporary_folder

_log = logging.getLogger("trilake.spark")

#: Limits on bytes and rows of the source.
_MOST_BYTES, _MOST_ROWS = 8 << 30, 32 << 20
#: Limit on matching pairs of rows: in total, or per row of the source.
_MOST_PAIRS = (4 << 20, 4)
#: With more task threads Spark is faster: the embedded merge writes its rows in one thread.
_MOST_CORES = 8


def merge_embedded(job: MergeJob) -> MergeResult | None:
    """Run a merge by the embedded engine; ``None``, without any effect, if that is not possible.

    Raises the errors of :func:`trilake.spark.delta.merge.run.merge_dataframe`.
    """
    from trilake.delta.commands.merge import match, merge  # imported late: loading the parser takes a third of a second

    request = _request(job)
    if isinstance(request, MergeRequest):
        try:
            merge.check_merge(job.log, job.snapshot, _schema(job.request.source), request)
            with _materialized(job) as rows:
                most = max(_MOST_PAIRS[0], _MOST_PAIRS[1] * rows.num_rows)
                request = replace(request, source_read=job.reads_besides())
                return merge.merge(
                    job.log, rows, request, job.runtime, cached=job.snapshot, started=job.started, most_pairs=most
                )
        except ConstraintViolatedError:
            raise
        except (ExpressionError, SchemaMismatchError) as e:
            request = str(e)
        except _TooLargeError:
            request = "the source is too large for it"
        except match.TooManyPairsError:
            request = "too many rows match"
    _log.info("%s is merged by jobs of Spark's: %s", job.snapshot.uri, request)
    return None


class _TooLargeError(Exception):
    """The source has too many rows, or bytes."""


# --- whether it can be -----------------------------------------------------------------------------------------------


def _request(job: MergeJob) -> MergeRequest | str:
    """The request for the embedded engine, or why it cannot run the merge."""
    spark, request = job.spark, job.request
    if is_connect(spark) or not str(spark.conf.get("spark.master", None) or "").startswith("local"):
        return "tasks may run on other machines"
    if spark.sparkContext.defaultParallelism > _MOST_CORES:
        return "Spark has many cores for it"
    if not is_utc(spark) or job.rules != AssignmentRules():
        return "the session's zone is not UTC, or it is not in ANSI mode, or case counts in names"
    if not reads_quotes_plainly(spark):
        return "the session reads strings and names in another way"
    if request.frames.columns_in(request.expressions):
        return "an expression names a column of a frame"
    if plan_bytes(request.source) <= FEW_BYTES:
        return "the source is small"
    source_alias = alias_of(request.source) or SOURCE_NAME
    sql = _texts(job)
    if sql is None:
        return "an expression is more than Spark's own functions of columns"
    return MergeRequest(
        sql[0],
        tuple(sql[1]),
        source_alias,
        request.alias or TARGET_NAME,
        job.evolve,
        txn=request.txn,
        for_history=job.shown,
    )


def _texts(job: MergeJob) -> tuple[str, list[Clause[str]]] | None:
    """Condition and clauses as SQL over the columns of both tables; ``None`` if one of them has no SQL."""
    request = job.request
    empty = empty_frame(job.spark, job.snapshot.schema)
    target = empty if request.alias is None else empty.alias(request.alias)
    both = target.crossJoin(request.source)
    frames: dict[tuple[Side, ...], DataFrame] = {
        ("target",): target,
        ("source",): request.source,
        ("target", "source"): both,
    }
    lacking = False

    def sql(frame: DataFrame, expression: Expr) -> str:
        nonlocal lacking
        result = _text(frame, expression)
        lacking = lacking or result is None
        return result or ""

    on = sql(both, request.condition)
    clauses = []
    for c in request.clauses:
        frame = frames[VISIBLE[c.kind]]
        condition = None if c.condition is None else sql(frame, c.condition)
        values = None if c.values is None else {n: sql(frame, v) for n, v in c.values.items()}
        clauses.append(Clause(c.kind, c.action, condition, values, c.excluded))
    return None if lacking else (on, clauses)


def _text(frame: DataFrame, expression: Expr) -> str | None:
    """The SQL of an expression of Spark's built-in functions; a SQL string as it is."""
    try:
        plan = query_execution(frame.select(as_column(expression).alias("v"))).analyzed()
        sql = built_in_text(lambda: plan.projectList().head().child())
    except (Py4JError, PySparkException):
        return None  # the join raises the error
    return expression if sql is not None and isinstance(expression, str) else sql


def _schema(source: DataFrame) -> pa.Schema:
    schema = from_spark(source.schema, limits=True)
    assert isinstance(schema, StructType)
    return schema.to_arrow_schema()


# --- the rows of the source ------------------------------------------------------------------------------------------


@contextmanager
def _materialized(job: MergeJob) -> Iterator[pa.Table]:
    """The rows of the source, computed once, in mapped files that the block deletes at its end."""
    with temporary_folder("trilake-merge-") as folder, ExitStack() as stack:
        paths = run_over_rows(job.request.source, _Materialize(str(folder), _MOST_BYTES), job.log, job.job_id, "merge")
        parts = []
        if not all(paths):
            raise _TooLargeError
        for path in paths:
            with spilling():
                mapped = stack.enter_context(pa.memory_map(path))
            parts.append(pa.ipc.open_file(mapped).read_all())
        rows = pa.concat_tables(parts) if parts else _schema(job.request.source).empty_table()
        if rows.num_rows > _MOST_ROWS:
            raise _TooLargeError
        yield rows


@dataclass(frozen=True)
class _Materialize:
    """Writes the rows of a task into a file of the folder, and returns its path.

    An empty path means that the files of all tasks became too large, or the disk was almost full.
    """

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
