"""DELETE on Spark, which evaluates the predicate: any SQL or column, including UDFs."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession

from trilake.delta.commands.rows.change_result import ChangeResult
from trilake.delta.commands.rows.row_changes import FoundRows, candidates
from trilake.delta.commands.write.delete import Deletion, every_row
from trilake.delta.commit.conflicts import NOTHING_READ
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import FilterError
from trilake.spark.delta.frame_columns import FrameColumns
from trilake.spark.delta.row_addresses import addressed_rows
from trilake.spark.delta.session_transaction import Transaction, once
from trilake.spark.scan.columns import read_condition
from trilake.spark.scan.planning.table_reads import reads_besides
from trilake.spark.scan.resolution import column_errors, resolving
from trilake.spark.session.runner import SparkRunner


def delete_rows(
    spark: SparkSession,
    table: ArrowDeltaTable,
    condition: str | Column | None,
    *,
    alias: str | None = None,
    frames: FrameColumns | None = None,
) -> ChangeResult:
    """Delete the rows of an open table for which ``condition`` is true; all rows without a condition.

    ``frames`` has the DataFrames whose columns the condition may name.
    """
    skipped = ChangeResult("DELETE", table.version, {"numDeletedRows": 0}, committed=False)
    columns = frames or FrameColumns()
    return once(spark, table.snapshot, skipped, lambda txn: _delete(spark, table, condition, alias, columns, txn))


def _delete(
    spark: SparkSession,
    table: ArrowDeltaTable,
    condition: str | Column | None,
    alias: str | None,
    frames: FrameColumns,
    txn: Transaction | None,
) -> ChangeResult:
    snapshot = table.snapshot
    if condition is None:
        command = Deletion(table.log, snapshot, "true", None, table.log.engine.runtime, txn=txn)
        return command.finish(every_row(snapshot), SparkRunner(spark))
    read = read_condition(
        spark, condition, snapshot.schema, alias=alias, extend=frames.added, now=not snapshot.adds.num_rows
    )
    command = Deletion(table.log, snapshot, read.sql, read.filter, table.log.engine.runtime, txn=txn)
    maybe, whole = list(range(snapshot.adds.num_rows)), list[int]()
    if read.filter is not None:
        maybe, whole = candidates(snapshot, read.filter)
    rows, other_reads = {}, NOTHING_READ
    if maybe:
        columns = None if read.filter is None else sorted(read.filter.columns)
        addressed = addressed_rows(spark, table, maybe, columns=columns)
        target = addressed.frame if alias is None else addressed.frame.alias(alias)
        with resolving(column_errors(snapshot.schema.names, alias, FilterError), FilterError):
            matches = frames.added(target, [read.column]).where(read.column)
            # A parsed condition reads only the row itself.
            others = [matches] if read.filter is None else []
            with reads_besides(others, snapshot.uri, snapshot.version) as get_reads:
                rows = addressed.collect(matches)
                other_reads = get_reads()
    rows_to_delete = FoundRows(rows, tuple(whole), tuple(sorted([*maybe, *whole])))
    return command.finish(rows_to_delete, SparkRunner(spark), other_reads=other_reads)
