"""Queries in DuckDB's SQL over tables of all formats, named by path.

DuckDB reads only the columns and files that the query needs; it cannot open other files or URLs, or load extensions.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from trilake.common.option_values import stated_version
from trilake.common.text import quote_parts
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.expr import evaluate_all, parse_expression
from trilake.expr.terms.engine import first_line, idle_connection
from trilake.expr.views import in_microseconds, microseconds_schema
from trilake.sql.duckdb.database import Source, batches_of, table_of
from trilake.sql.duckdb.places import Context, relation_of, unknown_name
from trilake.sql.duckdb.relations import CHANGES, Name, Query, Relation, parse_query
from trilake.table.frames import arrow_batches
from trilake.table.relations.dataset import duckdb_rows
from trilake.table.table import Table

_UNKNOWN = re.compile(r"Catalog Error: Table with name (.*) does not exist")


def run_query(context: Context, sql: str, *, json: bool = False) -> pa.Table:
    """Run a query; with ``json``, columns of type JSON have Arrow's JSON type, and are not strings.

    Raises ``SqlTextError`` for a syntax error, ``TableNotFoundError`` for a missing table, ``InvalidArgumentError`` for
    any other error in the query or its values.
    """
    query = parse_query(sql)
    try:
        return table_of(_sources(context, query), query.sql, _parameters(context, query), json=json)
    except duckdb.Error as e:
        raise _problem(e) from e


def open_query(context: Context, sql: str, rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run a query; return its schema, and its rows in batches of ``rows``.

    Reading a batch may raise ``duckdb.Error`` for an invalid value.
    """
    query = parse_query(sql)
    return batches_of(_sources(context, query), query.sql, rows)


def rows_to_write(context: Context, sql: str) -> pa.Table:
    """Run a query, and round times to microseconds, as tables store them."""
    table = run_query(context, sql)
    schema = microseconds_schema(table.schema)
    if schema is table.schema:
        return table
    return pa.Table.from_batches([in_microseconds(b, round_down=True) for b in table.to_batches()], schema)


def read_of(context: Context, sql: str, target: Table) -> ReadSet:
    """The read set of a query whose rows are written into ``target``."""
    for relation in parse_query(sql).relations:
        if relation.changes is None and relation.at is None:
            place = relation_of(context, relation.parts, quoted=relation.quoted)
            if place is not None and place.at is None and context.store(place.path).uri == target.uri:
                return ReadSet(whole_table=True)
    return ReadSet()


def constant(expression: str) -> Any:
    """Evaluate a constant expression of Spark SQL; an Arrow array of one value."""
    one_row = pa.table({"": [0]})
    return evaluate_all([parse_expression(expression, pa.schema([]))], one_row)[0]


def unknown_table(error: duckdb.Error) -> str | None:
    """The name of an unknown table, if that is the error."""
    unknown = _UNKNOWN.match(str(error))
    return None if unknown is None else unknown[1]


def _problem(error: duckdb.Error) -> InvalidArgumentError | TableNotFoundError:
    name = unknown_table(error)
    if name is not None:
        return unknown_name(quote_parts((name,)))
    columns = re.search(r"Candidate bindings: (.*)", str(error))
    return InvalidArgumentError(
        f"the query cannot run: {first_line(error).rstrip('!.')}",
        help=f"did you mean {columns[1]}?" if columns else "without Spark, write the query in DuckDB's SQL",
    )


# --- relations -------------------------------------------------------------------------------------------------------


def _sources(context: Context, query: Query) -> dict[Name, Source]:
    frames = {name.lower(): rows for name, rows in context.frames.items()}
    sources: dict[Name, Source] = {}
    for relation in query.relations:
        if relation.changes is not None:
            sources[relation.name] = _changes(context, relation.changes)
        elif relation.at is None and (name := relation.parts[-1].lower()) in frames and len(relation.parts) == 1:
            sources[relation.name] = _frame(frames[name])
        elif len(relation.parts) > 1 or relation.parts[0].lower() not in query.defined:
            place = relation_of(context, relation.parts, quoted=relation.quoted)
            if place is not None:
                sources[relation.name] = place.open(context, *_version(context, relation))
            elif relation.name != relation.parts:
                raise unknown_name(quote_parts(relation.parts))
    return sources


def _frame(rows: Any) -> Source:
    if isinstance(rows, Table):
        return rows
    schema, batches = arrow_batches(rows)
    return duckdb_rows(pa.Table.from_batches(batches, schema=schema))


def _version(context: Context, relation: Relation) -> tuple[int | None, str | None]:
    if relation.at is None:
        return None, None
    kind, expression = relation.at
    [value] = _values(context, expression)
    if kind == "VERSION":
        return stated_version(value), None
    if value is None:
        raise InvalidArgumentError("TIMESTAMP AS OF needs a timestamp, got NULL", help="write '2024-05-01 12:30:00'")
    return None, str(value)


def _changes(context: Context, arguments: str) -> pa.Table:
    values = _values(context, arguments)
    of = int | str | dt.datetime
    if not 2 <= len(values) <= 3 or not isinstance(values[0], str) or not all(isinstance(v, of) for v in values[1:]):
        raise InvalidArgumentError(
            f"{CHANGES} takes a path, the first version or time, and optionally the last",
            help=f"write {CHANGES}('/path', 1)",
        )
    place = relation_of(context, ("delta", values[0]))
    opened = place and place.open(context)
    if not isinstance(opened, ArrowDeltaTable):
        raise TableNotFoundError("only Delta tables have a change feed", help="check the path", file=values[0])
    return opened.changes(*values[1:])


def _values(context: Context, expressions: str) -> tuple[Any, ...]:
    query = parse_query(f"SELECT {expressions}")
    with idle_connection() as connection:
        try:
            row: tuple[Any, ...] = connection.execute(query.sql, _parameters(context, query)).fetchall()[0]
        except duckdb.Error as e:
            raise _problem(e) from e
    return row


def _parameters(context: Context, query: Query) -> dict[str, Any] | None:
    return {name: context.values[name] for name in query.parameters & context.values.keys()} or None
