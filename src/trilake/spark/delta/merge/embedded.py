"""MERGE of a large source by the embedded engine, where driver and tasks are one machine.

::

    source --tasks--> Arrow files, mapped --> trilake.delta.commands.merge

To join large tables row by row, Spark keeps the source, sends all columns of both through a shuffle, and hands the
result to Python, which writes it.  The merge without Spark joins keys, looks at the rows that match, and holds what is
mapped and not more.  It is taken where it is known to do the same: an expression that means something else to it, or
that it does not know, leaves the merge to Spark, and so does one that fails on a row.
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

#: Bytes and rows of a source for which there is room.
_MOST_BYTES, _MOST_ROWS = 8 << 30, 32 << 20
#: Pairs of rows that match at a time for which there is room: so many, or the second number for each row of the source.
_MOST_PAIRS = (4 << 20, 4)
#: Task threads of a session beyond which Spark is quicker: the embedded merge writes its rows in one thread.
_MOST_CORES = 8


def merge_embedded(job: MergeJob) -> MergeResult | None:
    """Run a merge in this way; ``None`` where it cannot be, and then nothing has changed.

    Raises what :func:`trilake.spark.delta.merge.run.merge_dataframe` does.
    """
    from trilake.delta.commands.merge import match, merge  # late: the parser takes a third of a second to load

    asked = _request(job)
    if isinstance(asked, MergeRequest):
        try:
            merge.check_merge(job.log, job.snapshot, _schema(job.request.source), asked)
            with _held(job) as rows:
                most = max(_MOST_PAIRS[0], _MOST_PAIRS[1] * rows.num_rows)
                asked = replace(asked, source_read=job.reads_besides())
                return merge.merge(
                    job.log, rows, asked, job.runtime, cached=job.snapshot, started=job.started, most_pairs=most
                )
        except ConstraintViolatedError:
            raise
        except (ExpressionError, SchemaMismatchError) as e:
            asked = str(e)
        except _TooLargeError:
            asked = "the source is too large for it"
        except match.TooManyPairsError:
            asked = "too many rows match"
    _log.info("%s is merged by jobs of Spark's: %s", job.snapshot.uri, asked)
    return None


class _TooLargeError(Exception):
    """The source has too many rows, or bytes."""


# --- whether it can be -----------------------------------------------------------------------------------------------


def _request(job: MergeJob) -> MergeRequest | str:
    """The merge as the embedded engine is asked for it, or why it is not."""
    spark, request = job.spark, job.request
    if is_connect(spark) or not str(spark.conf.get("spark.master", None) or "").startswith("local"):
        return "tasks may run on other machines"
    if spark.sparkContext.defaultParallelism > _MOST_CORES:
        return "Spark has many cores for it"
    if not is_utc(spark) or job.rules != AssignmentRules():
        return "the session's zone is not UTC, or it is not in ANSI mode, or case counts in names"
    if not reads_quotes_plainly(spark):
        return "the session reads strings and names in another way"
    if request.frames.asked(request.expressions):
        return "an expression names a column of a frame"
    if plan_bytes(request.source) <= FEW_BYTES:
        return "the source is small"
    own = alias_of(request.source) or SOURCE_NAME
    texts = _texts(job)
    if texts is None:
        return "an expression is more than Spark's own functions of columns"
    return MergeRequest(
        texts[0],
        tuple(texts[1]),
        own,
        request.alias or TARGET_NAME,
        job.evolve,
        txn=request.txn,
        for_history=job.shown,
    )


def _texts(job: MergeJob) -> tuple[str, list[Clause[str]]] | None:
    """Condition and clauses as strings over the columns of both tables; ``None`` where one of them has no text."""
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

    def text(frame: DataFrame, expression: Expr) -> str:
        nonlocal lacking
        found = _text(frame, expression)
        lacking = lacking or found is None
        return found or ""

    on = text(both, request.condition)
    clauses = []
    for c in request.clauses:
        frame = frames[VISIBLE[c.kind]]
        condition = None if c.condition is None else text(frame, c.condition)
        values = None if c.values is None else {n: text(frame, v) for n, v in c.values.items()}
        clauses.append(Clause(c.kind, c.action, condition, values, c.excluded))
    return None if lacking else (on, clauses)


def _text(frame: DataFrame, expression: Expr) -> str | None:
    """The text of an expression of Spark's own functions, as it was written where it is a text."""
    try:
        plan = query_execution(frame.select(as_column(expression).alias("v"))).analyzed()
        text = built_in_text(lambda: plan.projectList().head().child())
    except (Py4JError, PySparkException):
        return None  # the join itself will say what is wrong
    return expression if text is not None and isinstance(expression, str) else text


def _schema(source: DataFrame) -> pa.Schema:
    schema = from_spark(source.schema, limits=True)
    assert isinstance(schema, StructType)
    return schema.to_arrow_schema()


# --- the rows of the source ------------------------------------------------------------------------------------------


@contextmanager
def _held(job: MergeJob) -> Iterator[pa.Table]:
    """The rows of the source, computed once, in mapped files that are gone when the block ends."""
    with temporary_folder("trilake-merge-") as folder, ExitStack() as stack:
        paths = run_over_rows(job.request.source, _Hold(str(folder), _MOST_BYTES), job.log, job.job_id, "merge")
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
class _Hold:
    """Writes the rows of a task into a file of the folder, whose path it returns; travels to the task.

    An empty path says that the files of all tasks grew too large, or the disk was about to be full.
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
                        number, path = tempfile.mkstemp(".arrow", dir=self.folder)  # of this attempt alone
                        os.close(number)
                        file = stack.enter_context(pa.OSFile(path, "wb"))
                        writer = stack.enter_context(pa.ipc.new_file(file, rows.schema))
                    writer.write_batch(rows)
        return path or None

    def _room(self) -> bool:
        with os.scandir(self.folder) as files:
            size = sum(f.stat().st_size for f in files)
        return size <= min(self.most, shutil.disk_usage(self.folder).free)
