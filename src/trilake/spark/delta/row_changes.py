"""DELETE and UPDATE on Spark, which evaluates conditions and values: any SQL or column, including UDFs.

An UPDATE takes one pass: Spark scans the files that can match, with the address of each row, and computes the new rows.
Python gets the matching rows, applies the table's rules, writes them, and returns the addresses of the old rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.delta.commands.rows.row_changes import (
    ChangedPart,
    FoundRows,
    RowChangeWriter,
    candidates,
    records_changes,
    rewrite_plan,
)
from trilake.delta.commands.write.assignments import assigned_once, given_columns, targets
from trilake.delta.commands.write.delete import RowCommand, every_row
from trilake.delta.commands.write.update import new_images, update_rules
from trilake.delta.commit.conflicts import NOTHING_READ
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import parse_path, without_alias
from trilake.delta.rules.row_rules import RowRules
from trilake.delta.scan.scan import read_schema
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ExpressionError, FilterError, TrilakeError
from trilake.spark.delta.row_addresses import FILE, OLD, ROW, RowOrigins, addressed_rows, bitmaps, old_images
from trilake.spark.delta.settings import Transaction, once, row_session
from trilake.spark.delta.storing.computed import with_stages
from trilake.spark.delta.storing.store_assignment import (
    OF_CHANGES,
    AssignmentRules,
    named_columns,
    overflows_named,
    stored,
)
from trilake.spark.scan.columns import empty_frame, read_condition, select_named
from trilake.spark.scan.planning.table_reads import reads_of_table
from trilake.spark.scan.resolution import check_row_values, column_errors, resolving
from trilake.spark.session.compat import analysed_frame
from trilake.spark.session.runner import SparkRunner, chunks, run_over_rows
from trilake.spark.session.schemas import to_spark
from trilake.storage.base import Store
from trilake.table.results import ChangeResult


def delete_rows(
    spark: SparkSession,
    table: ArrowDeltaTable,
    condition: str | Column | None,
    *,
    alias: str | None = None,
) -> ChangeResult:
    """Delete the rows of an open table for which ``condition`` is true; all rows without a condition."""
    skipped = ChangeResult("DELETE", table.version, {"numDeletedRows": 0}, committed=False)
    return once(spark, table.snapshot, skipped, lambda txn: _delete(spark, table, condition, alias, txn))


def _delete(
    spark: SparkSession,
    table: ArrowDeltaTable,
    condition: str | Column | None,
    alias: str | None,
    txn: Transaction | None,
) -> ChangeResult:
    snapshot = table.snapshot
    if condition is None:
        command = RowCommand("DELETE", table.log, snapshot, "true", None, txn=txn)
        return command.finish(every_row(snapshot), run=SparkRunner(spark))
    read = read_condition(spark, condition, snapshot.schema, alias=alias, now=not snapshot.adds.num_rows)
    command = RowCommand("DELETE", table.log, snapshot, read.printed, read.filter, txn=txn)
    maybe, whole = list(range(snapshot.adds.num_rows)), list[int]()
    if read.filter is not None:
        maybe, whole = candidates(snapshot, read.filter)
    rows, other_reads = {}, NOTHING_READ
    if maybe:
        columns = None if read.filter is None else sorted(read.filter.columns)
        addressed = addressed_rows(spark, table, maybe, columns=columns)
        with resolving(column_errors(snapshot.schema.names, alias, FilterError), FilterError):
            matches = addressed.aliased(alias).where(read.column)
            # A parsed condition reads only the row itself.
            others = [matches] if read.filter is None else []
            with reads_of_table(others, snapshot.uri, snapshot.version) as get_reads:
                rows = addressed.collect(matches)
                other_reads = get_reads()
    rows_to_delete = FoundRows(rows, tuple(whole), tuple(sorted([*maybe, *whole])))
    return command.finish(rows_to_delete, run=SparkRunner(spark), other_reads=other_reads)


def update_rows(
    spark: SparkSession,
    table: ArrowDeltaTable,
    set: Mapping[str, Column],
    condition: str | Column | None,
    *,
    alias: str | None = None,
) -> ChangeResult:
    """Update the rows of an open table for which ``condition`` is true; all rows without a condition.  Raises
    ``FilterError`` and ``ExpressionError`` for expressions that Spark cannot resolve, ``WriteFailedError`` for a failed
    job."""
    skipped = ChangeResult("UPDATE", table.version, {"numUpdatedRows": 0}, committed=False)
    return once(spark, table.snapshot, skipped, lambda txn: _update(spark, table, set, condition, alias, txn))


def _update(
    spark: SparkSession,
    table: ArrowDeltaTable,
    set: Mapping[str, Column],
    condition: str | Column | None,
    alias: str | None,
    txn: Transaction | None,
) -> ChangeResult:
    snapshot = table.snapshot
    read = None
    if condition is not None:
        read = read_condition(spark, condition, snapshot.schema, alias=alias, now=not snapshot.adds.num_rows)
    printed, chosen = (None, None) if read is None else (read.printed, read.filter)
    command = RowCommand("UPDATE", table.log, snapshot, printed, chosen, txn=txn)
    named = named_columns(spark, snapshot.schema)
    values: Mapping[str, Column] = set
    if alias is not None:
        values = assigned_once((without_alias(parse_path(name), alias, named), v) for name, v in set.items())
    assigned = targets(values, named, uri=snapshot.uri)
    files = list(range(snapshot.adds.num_rows))
    if command.filter is not None:
        maybe, whole = candidates(snapshot, command.filter)
        files = sorted([*maybe, *whole])
    resolved = partial(resolving, column_errors(snapshot.schema.names, alias, ExpressionError))
    changed_schema = given_columns(snapshot.schema, assigned)
    new = {assigned[name].path: value for name, value in values.items()}
    if not files:
        with resolved(of_table=True):
            frame = empty_frame(spark, snapshot.schema, alias)
            analysed_frame(_changed_rows(frame, changed_schema, new))
        return command.finish(FoundRows({}, (), ()))
    addressed = addressed_rows(spark, table, files, row_ids=True)
    rules = update_rules(snapshot, changed_schema, row_session(spark))
    job = _UpdateTask(
        table.log.store,
        rewrite_plan(snapshot, command.job_id),
        rules,
        RowOrigins.of(snapshot, addressed.files),
        records_changes(snapshot),
    )
    with resolved():
        frame = addressed.aliased(alias)
        if read is not None:
            frame = frame.where(read.column)
        rows = _new_rows(frame, snapshot, changed_schema, new, job)
    others = reads_of_table([rows], snapshot.uri, snapshot.version)
    with overflows_named(narrowed=True, condition=OF_CHANGES), others as read_outside:
        outcomes = run_over_rows(rows, job, table.log, command.job_id, "update")
        other_reads = read_outside()
    # Use positions in the snapshot, not in the scan.
    parts = [replace(p, removed_rows=addressed.by_file(p.removed_rows)) for p in outcomes]
    return command.finish(FoundRows({}, (), tuple(files)), parts, SparkRunner(spark), other_reads=other_reads)


def _new_rows(
    frame: DataFrame,
    snapshot: Snapshot,
    changed_schema: StructType,
    values: Mapping[tuple[str, ...], Column],
    job: _UpdateTask,
) -> DataFrame:
    carried: list[str] = []
    if job.feed:
        names = read_schema(snapshot.schema).names
        carried += [f"{quote_name(name)} AS {OLD}{i}" for i, name in enumerate(names)]
    carried += [quote_name(f.name) for f in job.files.extra]
    rows = _changed_rows(frame, changed_schema, values, [*carried, FILE, ROW])
    if job.rules.needs_spark:
        behind = [quote_name(name) for name in rows.columns[len(changed_schema.fields) :]]
        rows = with_stages(rows.selectExpr(*job.rules.spark_columns(), *behind), job.rules.spark_stages())
    return rows


def _changed_rows(
    frame: DataFrame,
    changed_schema: StructType,
    values: Mapping[tuple[str, ...], Column],
    carried: Sequence[str] = (),
) -> DataFrame:
    check_row_values(frame, list(values.values()))
    typed = (
        frame.select(*(v.alias(f"v{i}") for i, v in enumerate(values.values()))).schema if values else T.StructType()
    )
    new = {path: (value, f.dataType) for (path, value), f in zip(values.items(), typed.fields, strict=True)}
    rules = AssignmentRules.of_changes(frame.sparkSession)
    columns: dict[str, str | Column] = {}
    for f in to_spark(changed_schema).fields:
        old, is_changed = quote_name(f.name), any(path[0] == f.name for path in new)
        columns[f.name] = _value(F.col(old), f, (f.name,), new, rules) if is_changed else old
    return select_named(frame, columns, carried)


def _value(
    old: Column,
    field: T.StructField,
    path: tuple[str, ...],
    new: Mapping[tuple[str, ...], tuple[Column, T.DataType]],
    rules: AssignmentRules,
) -> Column:
    if path in new:
        value, type_ = new[path]
        return stored(value, type_, field.dataType, ".".join(path), rules=rules)
    if not any(p[: len(path)] == path for p in new):
        return old
    assert isinstance(field.dataType, T.StructType)
    # A struct that was null becomes non-null, with its other fields null.
    return F.struct(
        *(_value(old.getField(f.name), f, (*path, f.name), new, rules).alias(f.name) for f in field.dataType.fields)
    )


@dataclass(frozen=True)
class _UpdateTask:
    store: Store
    files: FilePlan
    rules: RowRules
    origins: RowOrigins
    feed: bool

    def __call__(self, batches: Iterator[pa.RecordBatch], task: int) -> ChangedPart | None:
        try:
            part = self._write(batches, task)
        except TrilakeError as e:
            return ChangedPart(WrittenFiles(()), error=e)
        return part if part.updated else None

    def _write(self, batches: Iterator[pa.RecordBatch], task: int) -> ChangedPart:
        old_rows: dict[int, BitMap64] = {}
        pipeline = self.rules.start(task)
        with RowChangeWriter(self.store, self.files, task, feed=self.feed) as out:
            for rows in chunks(batches):
                for file, bitmap in bitmaps(rows.select([FILE, ROW])).items():
                    old_rows[file] = old_rows[file] | bitmap if file in old_rows else bitmap
                old = [old_images(rows, self.files.schema.names, self.files.schema)] if self.feed else []
                new = new_images(pipeline, rows, self.files.schema)
                out.update(new, old, self.origins.kept_ids(rows, out.id_column))
            new_files, cdc = out.close([pipeline])
        return ChangedPart(
            new_files, cdc, {n: rows.serialize() for n, rows in old_rows.items()}, updated=out.counts.updated
        )
