"""DELETE, UPDATE, MERGE and TRUNCATE of Delta tables without Spark."""

from __future__ import annotations

import pyarrow as pa

from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.commands.merge.commit import MergeRequest
from trilake.delta.commands.merge.merge import merge
from trilake.delta.commands.write.assignments import assigned_once
from trilake.delta.protocol.partitions import partition_fields
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import format_path
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError
from trilake.sql.duckdb.places import Context, place_of
from trilake.sql.duckdb.query import read_of, rows_to_write
from trilake.sql.parser.changes import (
    When,
    parse_delete,
    parse_merge,
    parse_truncate,
    parse_update,
    partition_condition,
)
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import default_or, has_query, requalified, unqualified
from trilake.sql.parser.statements import MERGE, numbers
from trilake.sql.parser.tokens import path_tokens

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
    table = place_of(context, change.parts).delta(context, "DELETE")
    where = None if change.condition is None else _plain(change.condition, _names(change.parts, change.alias))
    return one_row(num_affected_rows=table.delete(where).rows)


def run_truncate(context: Context, sql: str) -> pa.Table:
    """Delete all rows, or those of some partitions."""
    change = parse_truncate(context.cursor(sql))
    place = place_of(context, change.parts)
    table = place.delta(context, "TRUNCATE TABLE")
    snapshot = table.snapshot
    fields = partition_fields(read_schema(snapshot.schema), snapshot.metadata.partition_columns)
    condition = partition_condition(change.partition, fields, place.path)
    return one_row(num_affected_rows=table.delete(condition).rows)


def run_update(context: Context, sql: str) -> pa.Table:
    """Update rows; return their number."""
    change = parse_update(context.cursor(sql))
    table = place_of(context, change.parts).delta(context, "UPDATE")
    names, schema = _names(change.parts, change.alias), read_schema(table.snapshot.schema)
    columns = [(unqualified(name, names), value) for name, value in change.values]
    values = assigned_once((c, _plain(default_or(schema, c, value), names)) for c, value in columns)
    where = None if change.condition is None else _plain(change.condition, names)
    return one_row(num_affected_rows=table.update(values, where).rows)


# --- MERGE -----------------------------------------------------------------------------------------------------------


def run_merge(context: Context, sql: str) -> pa.Table:
    """Merge rows; return the numbers of changed rows."""
    call = parse_merge(Cursor(sql, path_tokens(sql)))
    table = place_of(context, call.parts).delta(context, "MERGE")
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
    clauses = tuple(_clause(context, w, names, schema) for w in call.clauses)
    on = requalified(context.filled(call.condition), names)
    request = MergeRequest(on, clauses, _SOURCE, _TARGET, call.evolve, source_read=read)
    result = merge(table.log, source, request)
    return one_row(**numbers(result, MERGE))


_TARGET, _SOURCE = "trilake_target", "trilake_source"


def _clause(context: Context, when: When, names: _Names, schema: StructType) -> Clause[str]:
    condition = None if when.condition is None else requalified(context.filled(when.condition), names)
    if when.values is None:
        return Clause(when.kind, when.action, condition, None, when.excluded)
    values: dict[str, str] = {}
    fronts = {n: a for n, a in names.items() if a == _TARGET}
    for parts, value in when.values:
        column = unqualified(parts, fronts)
        key = format_path(column)
        if key in values:
            raise InvalidArgumentError(
                f"column {key} is assigned twice in one clause", column=key, condition="DELTA_CONFLICT_SET_COLUMN"
            )
        values[key] = requalified(context.filled(default_or(schema, column, value)), names)
    return Clause(when.kind, when.action, condition, values)
