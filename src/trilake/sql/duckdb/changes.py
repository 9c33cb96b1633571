"""INSERT, DELETE, UPDATE, MERGE and TRUNCATE without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from trilake.common import arrow_types
from trilake.common.text import columns_help, double_quoted, plural, quote_name
from trilake.delta.commands.merge.commit import MergeRequest
from trilake.delta.commands.merge.merge import merge
from trilake.delta.commands.write.assignments import assigned_once
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import write_arrow
from trilake.delta.protocol.partitions import partition_fields
from trilake.delta.protocol.schema import StructField, StructType, from_arrow
from trilake.delta.protocol.type_widening import NO_WIDENING, AutomaticWidening
from trilake.delta.rules.row_rules import sql_type
from trilake.delta.rules.store_assignment import check_structs_whole, needs_no_cast
from trilake.delta.scan.scan import read_schema
from trilake.errors import ExpressionError, InvalidArgumentError, SchemaMismatchError, TrilakeError
from trilake.expr import evaluate_all, parse_expression
from trilake.sql.duckdb.query import constant, read_of, rows_to_write
from trilake.sql.duckdb.table_paths import Context, TablePath, find_table
from trilake.sql.parser.changes import (
    Insert,
    check_plain_insert,
    clause_of,
    expected_columns,
    own_partitions,
    parse_delete,
    parse_inserts,
    parse_merge,
    parse_truncate,
    parse_update,
    partition_condition,
    wrong_number_of_columns,
)
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import default_or, has_query, requalified, unqualified, with_defaults
from trilake.sql.parser.statements import MERGE, numbers
from trilake.sql.parser.tokens import path_tokens
from trilake.table.format import TableWrite
from trilake.table.registry import format_named

_Names = dict[tuple[str, ...], str]


def one_row(**numbers: int | None) -> pa.Table:
    """One row of numbers."""
    return pa.table({n: pa.array([v], pa.int64()) for n, v in numbers.items()})


def _names(parts: tuple[str, ...], alias: str | None) -> _Names:
    if alias is not None:
        return {(alias.lower(),): ""}
    lower = tuple(p.lower() for p in parts)
    return {lower: "", lower[-1:]: ""}


def _plain(sql: str, names: _Names) -> str:
    if has_query(sql):
        raise InvalidArgumentError(
            "without Spark, DELETE and UPDATE do not support subqueries", help="write a MERGE whose source is the query"
        )
    return requalified(sql, names)


def run_delete(context: Context, sql: str) -> pa.Table:
    """Delete rows; return their number."""
    change = parse_delete(context.cursor(sql))
    table = find_table(context, change.parts).delta(context, "DELETE")
    where = None if change.condition is None else _plain(change.condition, _names(change.parts, change.alias))
    return one_row(num_affected_rows=table.delete(where).rows)


def run_truncate(context: Context, sql: str) -> pa.Table:
    """Delete all rows, or those of some partitions."""
    change = parse_truncate(context.cursor(sql))
    target = find_table(context, change.parts)
    table = target.delta(context, "TRUNCATE TABLE")
    snapshot = table.snapshot
    fields = partition_fields(read_schema(snapshot.schema), snapshot.metadata.partition_columns)
    condition = partition_condition(change.partition, fields, target.path)
    return one_row(num_affected_rows=table.delete(condition).rows)


def run_update(context: Context, sql: str) -> pa.Table:
    """Update rows; return their number."""
    change = parse_update(context.cursor(sql))
    table = find_table(context, change.parts).delta(context, "UPDATE")
    names, schema = _names(change.parts, change.alias), read_schema(table.snapshot.schema)
    columns = [(unqualified(name, names), value) for name, value in change.values]
    values = assigned_once((c, _plain(default_or(schema, c, value), names)) for c, value in columns)
    where = None if change.condition is None else _plain(change.condition, names)
    return one_row(num_affected_rows=table.update(values, where).rows)


def run_merge(context: Context, sql: str) -> pa.Table:
    """Merge rows; return the numbers of changed rows."""
    call = parse_merge(Cursor(sql, path_tokens(sql)))
    table = find_table(context, call.parts).delta(context, "MERGE")
    source_alias = call.source_alias or (call.source_parts[-1] if call.source_parts else "source")
    query = f"SELECT * FROM {call.source} AS {quote_name(source_alias)}"
    source, read = rows_to_write(context, query), read_of(context, query, table)
    target_alias = call.alias or call.parts[-1]
    # Aliases may need quotes; these never do.
    names: _Names = {(target_alias.lower(),): _TARGET, (source_alias.lower(),): _SOURCE}
    relations = ((call.parts, call.alias, _TARGET), (call.source_parts, call.source_alias, _SOURCE))
    for parts, alias, short in relations:
        if parts is not None and alias is None:
            names[tuple(p.lower() for p in parts)] = short
    schema = read_schema(table.snapshot.schema)
    fronts = {n: a for n, a in names.items() if a == _TARGET}

    def local_sql(expression: str) -> str:
        return requalified(context.filled(expression), names)

    on = local_sql(call.condition)
    clauses = tuple(clause_of(w, schema, local_sql, lambda parts: unqualified(parts, fronts)) for w in call.clauses)
    request = MergeRequest(on, clauses, _SOURCE, _TARGET, call.evolve, source_read=read)
    result = merge(table.log, source, request)
    return one_row(**numbers(result, MERGE))


_TARGET, _SOURCE = "trilake_target", "trilake_source"


# --- INSERT: convert a query's rows to the table's columns, and write them --------------------------------------------


def run_insert(context: Context, sql: str) -> pa.Table:
    """Run the INSERTs of a statement; return the number of rows.

    Raises ``SchemaMismatchError`` for rows that do not fit, and the errors of a write.
    """
    rows = 0
    for insert in parse_inserts(sql, path_tokens(sql)):
        target = find_table(context, insert.parts)
        rows += _into_delta(context, target, insert) if target.has_log else _into(context, target, insert)
    return pa.table({"num_affected_rows": pa.array([rows]), "num_inserted_rows": pa.array([rows])})


def _into_delta(context: Context, target: TablePath, insert: Insert) -> int:
    table = target.delta(context, "INSERT INTO")
    schema, metadata = read_schema(table.snapshot.schema), table.metadata
    values = {column: context.filled(value) for column, value in insert.static.items()}
    static = own_partitions(values, insert.dynamic, metadata.partition_columns, target.path)
    where = insert.replace_where and context.filled(insert.replace_where)
    if static and (insert.overwrite or insert.if_not_exists):
        partition = " AND ".join(f"{quote_name(c)} <=> {v}" for c, v in static.items())
        if insert.if_not_exists and table.count(partition):
            return 0
        where = partition if insert.overwrite and where is None else where
    widening = AutomaticWidening.of(metadata) if insert.evolve else NO_WIDENING
    rows = _rows_of(context, insert, schema, static, target, widening=widening)
    request = WriteRequest(
        mode="overwrite" if insert.overwrite else "append",
        schema=from_arrow(rows.schema),
        replace_where=where,
        schema_mode="merge" if insert.evolve else None,
        fills_absent=True,
    )
    read = read_of(context, insert.query, table)
    # Rows read from the table itself must not be outdated by a concurrent commit.
    opened = None if read.blind else table.opened
    return int(write_arrow(table.log, rows.schema, iter(rows.to_batches()), request, seen=opened, read=read).rows_added)


def _into(context: Context, target: TablePath, insert: Insert) -> int:
    check_plain_insert(insert, target.display_name, target.path)
    schema = target.open(context).schema
    rows = _rows_of(context, insert, from_arrow(schema), {}, target)
    extra = [n for n in rows.column_names if n not in schema.names]
    if extra:
        raise SchemaMismatchError(
            f"column {extra[0]!r} not found in the table", help=columns_help(extra[0], schema.names), column=extra[0]
        )
    missing = [f for f in schema if f.name not in rows.column_names]
    for f in missing:
        rows = rows.append_column(f, pa.nulls(rows.num_rows, f.type))
    rows = rows.select(schema.names)
    write = TableWrite("overwrite" if insert.overwrite else "append")
    return format_named(target.format).write(context.store(target.path), rows, write).rows_added


def _rows_of(
    context: Context,
    insert: Insert,
    schema: StructType,
    static: Mapping[str, str],
    target: TablePath,
    *,
    widening: AutomaticWidening = NO_WIDENING,
) -> pa.Table:
    """The query's rows with the names and types of the table's columns; ``widening`` keeps wider types."""
    expected = expected_columns(insert, schema, static, display_name=target.display_name, path=target.path)
    frames = dict(context.frames)

    def default(field: StructField, sql: str) -> str:
        name = f"__trilake_default_{field.name}"
        frames[name] = pa.table({"value": constant(sql)})  # defaults are Spark SQL
        return f"(FROM {double_quoted(name)})"

    query, absent = with_defaults(insert.query, schema, expected, default)
    rows = rows_to_write(replace(context, frames=frames), query)
    if insert.by_name:
        fields = [schema.find(n) for n in rows.column_names]
        rows = rows.rename_columns([n if f is None else f.name for n, f in zip(rows.column_names, fields, strict=True)])
        if target.has_log and not insert.evolve:
            row_schema = _delta_schema(rows)
            if row_schema is not None:
                check_structs_whole(row_schema, schema)
    elif rows.num_columns != len(expected):
        raise wrong_number_of_columns(
            insert, rows.num_columns, expected, display_name=target.display_name, path=target.path
        )
    else:
        row_schema = None if insert.columns is not None else _delta_schema(rows)
        if row_schema is None or not needs_no_cast(row_schema, expected, schema, evolve=insert.evolve):
            rows = _by_position(rows.rename_columns(expected), schema)
    rows = rows.drop_columns([c for c in rows.column_names if c in absent])
    for column, value in static.items():
        rows = rows.append_column(column, pa.repeat(constant(value)[0], rows.num_rows))
    return _cast(rows, schema, widening)


def _delta_schema(rows: pa.Table) -> StructType | None:
    """The rows' schema; ``None`` with a type that Delta lacks, which the cast or the write rejects."""
    try:
        return from_arrow(rows.schema)
    except TrilakeError:
        return None


def _by_position(rows: pa.Table, schema: StructType) -> pa.Table:
    for i, name in enumerate(rows.column_names):
        field, column = schema.find(name), rows.column(i)
        if field is None:
            continue
        kind = _with_names_of(column.type, field.type.arrow, name)
        if kind != column.type:
            rows = rows.set_column(i, name, pa.chunked_array([c.view(kind) for c in column.chunks], kind))
    return rows


def _with_names_of(source: pa.DataType, target: pa.DataType, path: str) -> pa.DataType:
    """Give ``source`` the field names of ``target``.

    Raises ``SchemaMismatchError`` for a struct of fewer or more fields.
    """
    if source.id != target.id or not (pa.types.is_struct(source) or arrow_types.parts(source)):
        return source
    is_struct, theirs, ours = pa.types.is_struct(source), arrow_types.parts(source), arrow_types.parts(target)
    if len(theirs) != len(ours):
        raise SchemaMismatchError(
            f"the struct for column {path} has {plural(len(theirs), 'field')} ({', '.join(f.name for f in theirs)}),"
            f" but the column has {len(ours)} ({', '.join(f.name for f in ours)})",
            help="select a value for each field, or write BY NAME",
            column=path,
        )
    names = [f.name for f in ours] if is_struct else ["key", "value"] if len(ours) > 1 else ["element"]
    fields = [
        s.with_name(name if is_struct else s.name).with_type(_with_names_of(s.type, t.type, f"{path}.{name}"))
        for s, t, name in zip(theirs, ours, names, strict=True)
    ]
    return arrow_types.with_parts(source, fields)


def _cast(rows: pa.Table, schema: StructType, widening: AutomaticWidening) -> pa.Table:
    """Cast the rows to the columns' types, where SQL assigns one to the other; the write checks the rest."""
    for i, name in enumerate(rows.column_names):
        field = schema.find(name)
        if field is None:
            continue
        type_ = StructType((field,)).to_arrow_schema().field(0).type
        column = rows.column(i)
        if column.type == type_ or widening.allows(
            field.type, from_arrow(pa.schema([("", column.type)])).fields[0].type
        ):
            continue
        if column.null_count == len(column):
            column = pa.chunked_array([pa.nulls(len(column), type_)])
        elif pa.types.is_timestamp(column.type) and pa.types.is_timestamp(type_):
            column = column.cast(type_)  # the session's time zone is UTC
        elif not pa.types.is_nested(column.type) and not pa.types.is_nested(type_):
            column = _assign(column, name, type_, sql_type(field.type))
        rows = rows.set_column(i, name, column)
    return rows


def _assign(column: pa.ChunkedArray, name: str, type_: pa.DataType, kind: str) -> pa.ChunkedArray:
    """Cast values by Spark's store assignment rules.

    Raises ``SchemaMismatchError`` for types that cannot be assigned, and for a value that does not fit.
    """
    rows = pa.table({"value": column})
    try:
        try:
            value = parse_expression("value", rows.schema).cast(type_)
        except ExpressionError:
            if not pa.types.is_string(column.type):
                raise
            value = parse_expression(f"CAST(value AS {kind})", rows.schema)
        return evaluate_all([value], rows)[0].cast(type_)
    except (ExpressionError, pa.ArrowInvalid) as e:
        reason = e.message if isinstance(e, ExpressionError) else str(e)
        raise SchemaMismatchError(
            f"a value of type {column.type} does not fit column {name}: {reason}",
            column=name,
            condition="CAST_INVALID_INPUT" if pa.types.is_string(column.type) else "CAST_OVERFLOW_IN_TABLE_INSERT",
        ) from e
