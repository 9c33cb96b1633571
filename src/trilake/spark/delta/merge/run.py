"""Run a MERGE of a frame on Spark by the first strategy that can.

* :class:`~.upsert.Upsert`: a large source whose rows go in as they are, written by Spark.
* :class:`~.embedded.EmbeddedMerge`: any other large source on one machine, merged as without Spark.
* :class:`JoinedRows`: every other merge, by one join of Spark's.

The log ``trilake.spark`` says at level INFO which strategy merged, and why those before it did not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from pyspark.sql import SparkSession

from trilake.delta.commands.merge.clauses import check_clauses, insert_only
from trilake.delta.commands.merge.commit import MergeResult
from trilake.delta.commands.rows.row_changes import check_changeable
from trilake.delta.table import ArrowDeltaTable
from trilake.spark.delta.merge.embedded import EmbeddedMerge
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.request import SparkMerge
from trilake.spark.delta.merge.resolution import check_expressions, name_error, visible_columns
from trilake.spark.delta.merge.source import persisted
from trilake.spark.delta.merge.upsert import Upsert
from trilake.spark.delta.session_transaction import once
from trilake.spark.delta.storing.store_assignment import OF_CHANGES, overflows_named
from trilake.spark.scan.reads_besides import reads_besides
from trilake.spark.scan.resolution import resolving

_log = logging.getLogger("trilake.spark")


class Strategy(Protocol):
    """A way to run a merge, made for one job."""

    #: What the log calls it.
    name: str

    def can_run(self) -> str | None:
        """Why it cannot run the job, ``None`` if it can; decided by plans and types, before a row is computed."""

    def run(self) -> MergeResult | str:
        """Merge and commit; or, without any effect, why the rows themselves do not allow this way.

        Raises the errors of :func:`merge_dataframe`.
        """


class JoinedRows:
    """One join of Spark's, whose rows tasks write."""

    name = "a join of Spark's"

    def __init__(self, job: MergeJob) -> None:
        self._job = job

    def can_run(self) -> str | None:
        """It always can."""
        return None

    def run(self) -> MergeResult | str:
        """Merge."""
        with persisted(self._job.source) as self._job.source:
            return self._job.run()


#: The fastest first.
STRATEGIES: tuple[Callable[[MergeJob], Strategy], ...] = (Upsert, EmbeddedMerge, JoinedRows)


def merge_dataframe(spark: SparkSession, table: ArrowDeltaTable, request: SparkMerge) -> MergeResult:
    """Merge a frame into an open table.

    Raises ``InvalidArgumentError`` or ``SchemaMismatchError`` for invalid clauses, Spark's errors for expressions that
    cannot be resolved, ``AmbiguousMergeError`` if several source rows would change one row, the errors of the table's
    rules for rows that break them, ``WriteFailedError`` for a failed job, and ``ConflictError`` if a concurrent commit
    conflicts.
    """
    if request.txn is not None:
        return _merge(spark, table, request)
    skipped = MergeResult("MERGE", table.version, committed=False)
    return once(spark, table.snapshot, skipped, lambda txn: _merge(spark, table, replace(request, txn=txn)))


def _merge(spark: SparkSession, table: ArrowDeltaTable, request: SparkMerge) -> MergeResult:
    check_clauses(request.clauses)
    check_changeable(table.snapshot, "MERGE", removes=not insert_only(request.clauses))
    job = MergeJob(spark, table, request)
    analysed = check_expressions(spark, request, table.snapshot.schema)
    name_errors = resolving(partial(name_error, visible_columns(request, table.snapshot.schema)))
    other_reads = reads_besides(analysed, table.uri, table.version)
    with overflows_named(narrowed=True, condition=OF_CHANGES), name_errors, other_reads as job.reads_besides:
        for strategy in (make(job) for make in STRATEGIES):
            reason = strategy.can_run()
            result = strategy.run() if reason is None else reason
            if not isinstance(result, str):
                _log.info("%s is merged by %s", table.uri, strategy.name)
                return result
            _log.info("%s is not merged by %s: %s", table.uri, strategy.name, result)
    raise AssertionError("the last strategy runs every merge")
