"""Run a MERGE of a frame on Spark by the best strategy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from trilake.delta.commands.merge.clauses import check_clauses, insert_only
from trilake.delta.commands.merge.commit import MergeResult
from trilake.delta.commands.rows.row_changes import check_changeable
from trilake.delta.table import ArrowDeltaTable
from trilake.spark.delta.merge.embedded import merge_embedded
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.request import SparkMerge
from trilake.spark.delta.merge.resolution import check_expressions, name_error, visible_columns
from trilake.spark.delta.merge.source import persisted
from trilake.spark.delta.merge.upsert import upsert
from trilake.spark.delta.session_transaction import session_transaction, settle
from trilake.spark.delta.storing.store_assignment import OF_CHANGES, overflows_named
from trilake.spark.scan.reads_besides import reads_besides
from trilake.spark.scan.resolution import resolving


def merge_dataframe(spark: SparkSession, table: ArrowDeltaTable, request: SparkMerge) -> MergeResult:
    """Merge a frame into an open table.

    Raises ``InvalidArgumentError`` or ``SchemaMismatchError`` for clauses that are wrong, what Spark raises for
    expressions that cannot be resolved, ``AmbiguousMergeError`` where several source rows would change one row, what
    the table's rules raise for rows that break them, ``WriteFailedError`` for a job that failed, and a
    ``ConflictError`` where another commit got in the way.
    """
    if request.txn is not None:
        return _merge(spark, table, request)
    txn, snapshot = session_transaction(spark), table.snapshot
    if txn is not None and snapshot.has_transaction(*txn):
        result = MergeResult("MERGE", snapshot.version, committed=False)
    else:
        result = _merge(spark, table, replace(request, txn=txn))
    settle(spark, txn)
    return result


def _merge(spark: SparkSession, table: ArrowDeltaTable, request: SparkMerge) -> MergeResult:
    check_clauses(request.clauses)
    check_changeable(table.snapshot, "MERGE", removes=not insert_only(request.clauses))
    job = MergeJob(spark, table, request)
    analysed = check_expressions(spark, request, table.snapshot.schema)
    name_errors = resolving(partial(name_error, visible_columns(request, table.snapshot.schema)))
    other_reads = reads_besides(analysed, table.uri, table.version)
    with overflows_named(narrowed=True, condition=OF_CHANGES), name_errors, other_reads as job.reads_besides:
        for way in (upsert, merge_embedded):
            result = way(job)
            if result is not None:
                return result
        with persisted(job.source) as job.source:
            return job.run()
