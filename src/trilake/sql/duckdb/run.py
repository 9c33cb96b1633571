"""``trilake.sql``: run one statement and return an Arrow table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from trilake.common.arguments import described
from trilake.delta.commands.maintenance import convert
from trilake.delta.commands.maintenance.analyze import check_columns, compute_statistics
from trilake.delta.commands.maintenance.convert_partitions import given_columns
from trilake.delta.commands.maintenance.restore import METRICS, fsck
from trilake.delta.commands.optimize.optimize import OptimizeResult
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.sql.duckdb.changes import one_row, run_delete, run_insert, run_merge, run_truncate, run_update
from trilake.sql.duckdb.query import constant, run_query
from trilake.sql.duckdb.table_paths import Context, find_table
from trilake.sql.duckdb.tables import run_alter, run_create, run_describe
from trilake.sql.parser.cursor import Cursor, SqlTextError, SyntaxProblem
from trilake.sql.parser.literals import Args, with_values
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
    parse_maintenance,
)
from trilake.sql.parser.statements import kind, numbers
from trilake.sql.upkeep import maintain
from trilake.table.registry import format_named, format_of_provider


def run_maintenance(context: Context, statement: Maintenance) -> pa.Table:
    """Run one statement."""
    if isinstance(statement, Convert):
        return _convert(context, statement)
    table_path = find_table(context, statement.parts)
    if isinstance(statement, History):
        return table_path.open(context).history(statement.limit)
    if not table_path.has_log and table_path.at is None:
        return maintain(table_path.open(context), statement, _time)
    table = table_path.delta(context, type(statement).__name__.upper())
    match statement:
        case Detail():
            return table.detail()
        case Optimize():
            return _metrics(table, table.optimize(statement.where, zorder_by=statement.zorder_by, full=statement.full))
        case Reorg(compat=None):
            return _metrics(table, table.purge(statement.where))
        case Reorg(compat=int(compat)):
            return _metrics(table, table.upgrade_iceberg_compat(compat))
        case Vacuum():
            return _vacuum(table, statement)
        case Restore():
            return _restore(table, statement)
        case Generate():
            table.generate(statement.mode)
            return pa.table({})
    assert isinstance(statement, Fsck)
    missing = fsck(table.log, dry_run=statement.dry_run)
    return pa.table({"dataFilePath": pa.array(missing, pa.string()), "dataFileMissing": pa.repeat(True, len(missing))})


def run_analyze(context: Context, sql: str) -> pa.Table:
    """Collect statistics of files that lack some, or of all files."""
    call = parse_analyze(context.cursor(sql))
    table = find_table(context, call.parts).delta(context, "ANALYZE TABLE")
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
        result = table.restore(timestamp=_time(statement.timestamp))
    return one_row(**numbers(result, METRICS))


def _time(expression: str) -> str:
    return str(constant(expression)[0].as_py())


def _convert(context: Context, statement: Convert) -> pa.Table:
    parts = statement.parts
    path = parts[0] if len(parts) == 1 else parts[1]
    if (len(parts) == 1 and "/" not in path) or (
        len(parts) == 2 and parts[0].lower() not in ("parquet", "iceberg") and format_of_provider(parts[0]) is None
    ):
        raise InvalidArgumentError(
            f"without Spark, CONVERT TO DELTA needs a path, got {'.'.join(parts)}", help="write parquet.`/path`"
        )
    convert.convert_to_delta(
        context.store(path),
        standard_engine(),
        partition_by=given_columns(statement.partitions or ""),
        collect_stats=statement.statistics,
        source_format="iceberg" if parts[0].lower() == "iceberg" else "parquet",
    )
    return pa.table({})


_Handler = Callable[[Context, str], pa.Table]
#: Most characters of a cached statement.
_LONGEST = 40_000


def sql(text: str, args: Args = None, *, storage_options: Mapping[str, str] | None = None, **frames: Any) -> pa.Table:
    """Run one SQL statement over tables named by path, without Spark; return its rows as an Arrow table.

    Parameters
    ----------
    text: a query in DuckDB's SQL over ``'/path'``, ``delta.`/path```, ``lance.`/path``` and ``trevni.`/path```, with
        ``@v3`` after the path, ``VERSION AS OF``, ``TIMESTAMP AS OF`` and ``table_changes_by_path``; or ``INSERT``,
        ``DELETE``, ``UPDATE``, ``MERGE``, ``TRUNCATE``, ``CREATE TABLE``, ``ALTER TABLE``, ``ANALYZE TABLE``,
        ``DESCRIBE``, ``OPTIMIZE``, ``VACUUM``, ``RESTORE``, ``CONVERT TO DELTA``, ``GENERATE``, ``REORG``, ``FSCK
        REPAIR``.
    args: values of the parameters ``?``, ``:name`` and ``$name``.
    storage_options: credentials, region and endpoint of an object store.
    frames: relations by name: open tables, Arrow data, pandas or polars DataFrames.

    DuckDB reads only the columns and files that a query needs; times are in UTC.  Conditions and values of ``DELETE``,
    ``UPDATE`` and ``MERGE``, and constraints, are Spark SQL.

    Raises ``SqlTextError`` for a syntax error, ``InvalidArgumentError`` for statements that need Spark, and the errors
    of :func:`trilake.open` and of the commands.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.sql("CREATE TABLE delta.`memory://doc-sql` (id BIGINT, note STRING)")
    >>> trilake.sql("INSERT INTO delta.`memory://doc-sql` VALUES (1, 'a'), (2, 'b')").to_pylist()
    [{'num_affected_rows': 2, 'num_inserted_rows': 2}]
    >>> trilake.sql("SELECT note FROM delta.`memory://doc-sql` WHERE id > :n", {"n": 1}).to_pylist()
    [{'note': 'b'}]
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"a statement must be a string, got {described(text)}")
    values: dict[str, Any] = {}

    def parameter(value: Any) -> str:
        name = f"p{len(values)}"
        values[name] = value
        return f"${name}"

    try:
        numbered = with_values(text, args, parameter)
        handler = (_cached_handler if len(numbered) <= _LONGEST else _handler)(numbered)
        return handler(Context(dict(storage_options or {}), frames, values), numbered)
    except SyntaxProblem as e:
        raise SqlTextError.at(text, e) from None


def query(sql: str, frames: Mapping[str, Any]) -> pa.Table:
    """Run a query over ``frames`` by name.

    Raises ``InvalidArgumentError`` for any other statement or an error in the query.
    """
    try:
        cursor = Cursor(sql)
        if kind(cursor.tokens) in _HANDLERS or parse_maintenance(cursor) is not None:
            raise InvalidArgumentError(
                "the statement is not a query",
                help="pass a SELECT; trilake.sql runs other statements over tables by path",
            )
        return run_query(Context(frames=frames), sql, json=True)
    except SyntaxProblem as e:
        raise SqlTextError.at(sql, e) from None


def _handler(sql: str) -> _Handler:
    cursor = Cursor(sql)
    if parse_maintenance(cursor) is not None:
        return _maintain
    return _HANDLERS.get(kind(cursor.tokens), run_query)


def _maintain(context: Context, sql: str) -> pa.Table:
    statement = parse_maintenance(context.cursor(sql))
    assert statement is not None
    return run_maintenance(context, statement)


#: Saves tokenizing statements that ran before.
_cached_handler = lru_cache(maxsize=128)(_handler)


def _drop(context: Context, sql: str) -> pa.Table:
    cursor = context.cursor(sql)
    cursor.expect("DROP", "TABLE")
    unless = cursor.accept("IF", "EXISTS")
    table_path = find_table(context, cursor.name(), new=True)
    if format_named(table_path.format).detect(context.store(table_path.path)):
        raise InvalidArgumentError(
            f"a table named by path cannot be dropped: {table_path.path}",
            help="delete it with trilake.drop, or its rows with DELETE FROM",
        )
    if not unless:
        raise TableNotFoundError("no table found", help="check the path, or write IF EXISTS", file=table_path.path)
    return pa.table({})


_HANDLERS: dict[str, _Handler] = {
    "INSERT": run_insert,
    "DELETE": run_delete,
    "UPDATE": run_update,
    "MERGE": run_merge,
    "TRUNCATE": run_truncate,
    **dict.fromkeys(("CREATE", "REPLACE"), run_create),
    "ALTER": run_alter,
    **dict.fromkeys(("DESCRIBE", "DESC"), run_describe),
    "DROP": _drop,
    "ANALYZE": run_analyze,
}
