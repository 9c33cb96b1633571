"""OPTIMIZE, VACUUM, RESTORE, CONVERT, GENERATE, REORG, FSCK and DESCRIBE HISTORY | DETAIL without Spark."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pyarrow as pa

from trilake.delta.commands.maintenance import convert
from trilake.delta.commands.maintenance.analyze import check_columns, compute_statistics
from trilake.delta.commands.maintenance.convert_partitions import given_columns
from trilake.delta.commands.maintenance.fsck import fsck
from trilake.delta.commands.optimize.optimize import OptimizeResult
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError
from trilake.sql.duckdb.changes import counted
from trilake.sql.duckdb.places import Context, place_of
from trilake.sql.duckdb.query import constant
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.maintenance import (
    Convert,
    Detail,
    Fsck,
    Generate,
    History,
    Maintenance,
    Optimize,
    Reorg,
    Restore,
    Vacuum,
    parse_analyze,
)
from trilake.sql.parser.numbers import RESTORE, numbers
from trilake.sql.parser.tokens import path_tokens
from trilake.storage import open_store
from trilake.table.registry import format_of_provider


def run_maintenance(context: Context, statement: Maintenance) -> pa.Table:
    """Run one statement.  Raises what the methods of the table raise."""
    if isinstance(statement, Convert):
        return _convert(context, statement)
    place = place_of(context, statement.parts)
    if isinstance(statement, History) and place.format != "delta":
        return place.open(context).history(statement.limit)
    table = place.delta(context, type(statement).__name__.upper())
    if isinstance(statement, History):
        return table.history(statement.limit)
    if isinstance(statement, Detail):
        return table.detail()
    if isinstance(statement, Optimize):
        return _metrics(table, table.optimize(statement.where, zorder_by=statement.zorder_by, full=statement.full))
    if isinstance(statement, Reorg):
        if statement.compat is not None:
            return _metrics(table, table.upgrade_iceberg_compat(statement.compat))
        return _metrics(table, table.purge(statement.where))
    if isinstance(statement, Vacuum):
        return _vacuum(table, statement)
    if isinstance(statement, Restore):
        return _restore(table, statement)
    if isinstance(statement, Generate):
        table.generate(statement.mode)
        return pa.table({})
    assert isinstance(statement, Fsck)
    gone = fsck(table.log, dry_run=statement.dry_run)
    return pa.table({"dataFilePath": pa.array(gone, pa.string()), "dataFileMissing": pa.repeat(True, len(gone))})


def run_analyze(context: Context, text: str) -> pa.Table:
    """Collect statistics of files that lack some, or of all files."""
    text = context.filled(text)
    call = parse_analyze(Cursor(text, path_tokens(text)))
    table = place_of(context, call.parts).delta(context, "ANALYZE TABLE")
    check_columns(table.snapshot, call.columns)
    if call.scan:
        compute_statistics(table.log, everything=call.everything)
    return pa.table({})


def _metrics(table: ArrowDeltaTable, result: OptimizeResult) -> pa.Table:
    metrics = {k: v for k, v in dataclasses.asdict(result.metrics).items() if isinstance(v, int | float | str)}
    return pa.table({"path": pa.array([table.uri]), "metrics": pa.array([metrics])})


def _vacuum(table: ArrowDeltaTable, statement: Vacuum) -> pa.Table:
    if statement.inventory is not None:
        raise InvalidArgumentError("VACUUM USING INVENTORY needs Spark", help="leave the inventory out")
    result = table.vacuum(statement.hours, dry_run=statement.dry_run, lite=bool(statement.lite))
    if statement.dry_run:
        return pa.table({"path": pa.array([f"{table.uri.rstrip('/')}/{p}" for p in result.paths], pa.string())})
    return pa.table({"path": pa.array([table.uri])})


def _restore(table: ArrowDeltaTable, statement: Restore) -> pa.Table:
    if statement.version is not None:
        result = table.restore(statement.version)
    else:
        assert statement.timestamp is not None
        result = table.restore(timestamp=_moment(constant(statement.timestamp)[0].as_py()))
    return counted(**numbers(result, RESTORE))


def _moment(value: Any) -> str | dt.datetime:
    return value if isinstance(value, dt.datetime) else str(value)


def _convert(context: Context, statement: Convert) -> pa.Table:
    parts = statement.parts
    path = parts[0] if len(parts) == 1 else parts[1]
    if (len(parts) == 1 and "/" not in path) or (
        len(parts) == 2 and parts[0].lower() not in ("parquet", "iceberg") and format_of_provider(parts[0]) is None
    ):
        raise InvalidArgumentError(
            f"{'.'.join(parts)} cannot be converted without Spark", help="name a folder: parquet.`/path`"
        )
    convert.convert_to_delta(
        open_store(path, dict(context.options)),
        standard_engine(),
        partition_by=given_columns(statement.partitions or ""),
        collect_stats=statement.statistics,
        source_format="iceberg" if parts[0].lower() == "iceberg" else "parquet",
    )
    return pa.table({})
