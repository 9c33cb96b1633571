"""CREATE, ALTER and DESCRIBE of tables by path, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from trilake.common.option_values import stated_version
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.clone import clone, no_versions, snapshot_of_parquet
from trilake.delta.commands.write.create import check_same_table, create_table
from trilake.delta.commands.write.write import write_arrow
from trilake.delta.protocol.schema import StructType, from_arrow
from trilake.delta.protocol.sql_types import type_sql
from trilake.errors import InvalidArgumentError
from trilake.sql.duckdb.changes import one_row
from trilake.sql.duckdb.query import constant, rows_to_write, run_query
from trilake.sql.duckdb.table_paths import Context, TablePath, find_table
from trilake.sql.parser.alter import change_table
from trilake.sql.parser.changes import QUERY_WORDS
from trilake.sql.parser.create import (
    Create,
    check_create_at,
    check_plain,
    create_mode,
    description_like,
    description_of,
    parse_create,
    schema_of,
    with_options,
    write_of_query,
)
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.paths import parquet_path
from trilake.sql.parser.statements import CLONE, numbers
from trilake.sql.parser.tokens import path_tokens
from trilake.table.format import TableWrite
from trilake.table.registry import format_named, format_of_provider

_NOTHING = pa.table({})


def run_create(context: Context, sql: str) -> pa.Table:
    """Create a table; return nothing, or metrics for a clone.

    Raises ``TableExistsError``, ``TableNotFoundError``, and ``InvalidArgumentError`` for a table that is not named by
    path.
    """
    call = _parse(context, sql)
    if call is None:
        raise InvalidArgumentError(
            f"without Spark there is no catalog, which this statement needs: {sql.strip()[:200]}",
            help="name the table by path: CREATE TABLE delta.`/path`",
        )
    target = find_table(context, call.parts, new=True)
    if call.provider is not None and format_of_provider(call.provider) != target.format:
        raise InvalidArgumentError(
            f"{target.display_name} cannot be a {call.provider} table",
            help=f"leave USING out, or write {call.provider}.`/path`",
        )
    call = with_options(call, target.format)
    there = format_named(target.format).detect(context.store(target.path))
    check_create_at(call, target.format, target.path, exists=there)
    if there and call.if_not_exists:
        return _NOTHING
    if call.clone_of is not None:
        return _clone(context, call, target)
    if not target.has_log:
        return _create_other(context, call, target)
    return _create_delta(context, call, target, there=there)


def _parse(context: Context, sql: str) -> Create | None:
    """The statement with its parameters, except those of its query."""
    call = parse_create(Cursor(sql, path_tokens(sql)))
    if call is None or not context.values:
        return call
    begin = len(sql) if call.query is None else sql.rindex(call.query)
    sql = context.filled(sql[:begin]) + sql[begin:]
    return parse_create(Cursor(sql, path_tokens(sql)))


def _create_delta(context: Context, call: Create, target: TablePath, *, there: bool) -> pa.Table:
    log = context.log(target.path)
    if call.query is not None:
        if call.columns:
            raise InvalidArgumentError(
                "CREATE TABLE AS SELECT does not accept a list of columns",
                help="leave it out: the columns are the query's",
            )
        rows = rows_to_write(context, call.query)
        schema = from_arrow(rows.schema)
        request = write_of_query(call, schema, description_of(call, schema), there=there, managed=False)
        write_arrow(log, rows.schema, iter(rows.to_batches()), request)
        return _NOTHING
    if call.like is not None:
        source = find_table(context, call.like)
        if source.has_log:
            table = description_like(source.delta(context, "CREATE TABLE LIKE").log, call)
        else:
            table = description_of(call, from_arrow(source.open(context).schema))
    else:
        table = description_of(call, schema_of(call))
    if there and not table.schema.fields:
        check_same_table(log, table)
        return _NOTHING
    create_table(log, table, mode=create_mode(call))
    return _NOTHING


def _create_other(context: Context, call: Create, target: TablePath) -> pa.Table:
    check_plain(call, target.format)
    if call.query is not None:
        rows = rows_to_write(context, call.query)
    else:
        schema = schema_of(call)
        if call.like is not None:
            schema = from_arrow(find_table(context, call.like).open(context).schema)
        fields = tuple(replace(f, nullable=True) for f in schema.fields)
        rows = StructType(fields).to_arrow_schema().empty_table()
    write = TableWrite("overwrite" if call.replace else "error", call.partition_by or None, dict(call.properties))
    format_named(target.format).write(context.store(target.path), rows, write)
    return _NOTHING


def _clone(context: Context, call: Create, target: TablePath) -> pa.Table:
    assert call.clone_of is not None
    path = parquet_path(call.clone_of)
    if path is not None:
        return _clone_of_parquet(context, call, path, target)
    source = find_table(context, call.clone_of)
    table = replace(source, at=None).delta(context, "CLONE")
    version: int | None = None
    timestamp: str | None = None
    if call.travel is not None:
        value = constant(call.travel[1])[0].as_py()
        if call.travel[0] == "VERSION":
            version = stated_version(value)
        else:
            timestamp = str(value)
    elif source.at is not None:
        version = source.open(context).version
    result = table.clone(
        target.path,
        shallow=call.shallow,
        version=version,
        timestamp=timestamp,
        replace=call.replace,
        properties=call.properties,
    )
    return one_row(**numbers(result, CLONE))


def _clone_of_parquet(context: Context, call: Create, path: str, target: TablePath) -> pa.Table:
    if call.travel is not None:
        raise no_versions(("parquet", path))
    files = context.log(path)
    result = clone(
        snapshot_of_parquet(files.store, files.engine),
        files,
        context.log(target.path),
        shallow=call.shallow,
        replace_target=call.replace,
        properties=call.properties,
        parquet=files.store.uri,
    )
    return one_row(**numbers(result, CLONE))


def run_alter(context: Context, sql: str) -> pa.Table:
    """Change columns, properties, constraints and features of a Delta table."""
    cursor = context.cursor(sql)
    cursor.expect("ALTER", "TABLE")
    table = find_table(context, cursor.name()).delta(context, "ALTER TABLE")
    if cursor.is_word("RENAME", "TO") or cursor.is_word("SET", "LOCATION"):
        raise InvalidArgumentError(
            "a table named by path cannot be renamed or relocated", help="move its folder, or clone it", file=table.uri
        )
    change_table(Alter(table.log), cursor)
    return _NOTHING


def run_describe(context: Context, sql: str) -> pa.Table:
    """Name, type and comment of each column."""
    cursor = context.cursor(sql)
    if not cursor.accept("DESCRIBE"):
        cursor.expect("DESC")
    if cursor.is_any(*QUERY_WORDS) and not cursor.is_word("TABLE"):
        return run_query(context, sql)
    cursor.accept("TABLE")
    target = find_table(context, cursor.name())
    cursor.end()
    schema = from_arrow(target.open(context).schema)
    return pa.table(
        {
            "col_name": pa.array(schema.names, pa.string()),
            "data_type": pa.array([type_sql(f.type) for f in schema.fields], pa.string()),
            "comment": pa.array([f.metadata.get("comment") for f in schema.fields], pa.string()),
        }
    )
