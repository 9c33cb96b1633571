"""Queries on DuckDB: relations by path are scans of the tables, which read the columns and files that are needed.

Texts are Spark's SQL, and become DuckDB's of the same meaning.  DuckDB itself may open no file, no address and no
extension.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from trilake.common.option_values import stated_version
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.scan.scan import read_schema
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.expr.nanoseconds import in_microseconds, microseconds_schema
from trilake.expr.terms.datatypes import normalise, zoned_type
from trilake.expr.terms.engine import first_line
from trilake.sql.duckdb.database import table_of
from trilake.sql.duckdb.places import Context, place_of
from trilake.sql.duckdb.queries.around import Query
from trilake.sql.duckdb.statement import CHANGES, KnownStatements, Read, Statement
from trilake.table.frames import arrow_batches
from trilake.table.relations.duckdb_rows import duckdb_rows, duckdb_schema
from trilake.table.table import Table

_known = KnownStatements()
#: What :class:`~trilake.sql.duckdb.queries.scope.Idents` puts behind a name.
_IDENT = re.compile(r"#\d+(?=\")")


def run_query(context: Context, text: str) -> pa.Table:
    """The rows of a query.

    Raises ``SqlTextError`` for a text that is no query, ``TableNotFoundError`` for tables that are not there,
    ``UnsupportedExpressionError`` for what only Spark can compute, ``InvalidArgumentError`` for what is wrong.
    """
    frames = {name.lower(): (name.lower(),) for name in context.frames}
    statement = _known.of(text, frozenset(frames))
    sources = _sources(context, statement)
    names = frames | {read.name: read.parts for read in statement.reads}
    tables = {name: (names[name], duckdb_schema(_schema(rows))) for name, rows in sources.items()}

    def of(query: Query) -> pa.Table:
        return _as_spark_has_it(table_of(sources, query.text), query)

    query = statement.query(tables, wide=False)
    try:
        try:
            return of(query)
        except (duckdb.OutOfRangeException, duckdb.ConversionException):  # perhaps 64 bits, or 38 digits, are too few
            wide = statement.query(tables, wide=True)
            if wide.text == query.text:
                raise
            return of(wide)
    except duckdb.Error as e:
        reason = _IDENT.sub("", first_line(e))
        raise InvalidArgumentError(f"the query cannot run: {reason}", help="without Spark, DuckDB runs it") from e


def read_of(context: Context, text: str, target: Table) -> ReadSet:
    """What a query reads of the newest version of a table, for a write of its rows into that one.

    Raises as :func:`run_query` does.
    """
    for read in _known.of(text, frozenset(name.lower() for name in context.frames)).reads:
        if read.changes is None and read.travel is None:
            place = place_of(context, read.parts)
            if place.at is None and place.format == target.format and place.uri(context) == target.uri:
                return ReadSet(whole_table=True)
    return ReadSet()


def constant(expression: str) -> Any:
    """The value of an expression that names no column, as a Python value in a list of one."""
    rows = run_query(Context(), f"SELECT {expression} AS value")
    return rows.column(0)


def _as_spark_has_it(table: pa.Table, query: Query) -> pa.Table:
    """A result under the names and in the types that Spark gives it."""
    schema = microseconds_schema(table.schema)
    if schema is not table.schema:
        batches = [in_microseconds(b, round_down=True) for b in table.to_batches()]
        table = pa.Table.from_batches(batches, schema)
    columns = []
    for column, made in zip(table.columns, query.columns, strict=True):
        if made.sql.family == "void":
            columns.append(pa.chunked_array([pa.nulls(len(column))]))
        elif made.kept is not None or made.instant:
            columns.append(column.cast(made.kept or zoned_type(column.type)))
        else:
            columns.append(column)
    return pa.table(columns, schema=pa.schema([(c.name, a.type) for c, a in zip(query.columns, columns, strict=True)]))


# --- relations -------------------------------------------------------------------------------------------------------


def _sources(context: Context, statement: Statement) -> dict[str, Table | pa.Table]:
    """The rows that each name of a statement stands for."""
    sources = {name.lower(): _source(rows) for name, rows in context.frames.items()}
    for read in statement.reads:
        sources[read.name] = _changes(context, read.changes) if read.changes is not None else _opened(context, read)
    return sources


def _opened(context: Context, read: Read) -> Table:
    version, timestamp = (None, None) if read.travel is None else _travel(*read.travel)
    return place_of(context, read.parts).open(context, version, timestamp)


def _source(rows: Any) -> Table | pa.Table:
    if isinstance(rows, Table):
        return rows
    schema, batches = arrow_batches(rows)
    table = pa.Table.from_batches(batches, schema=schema)
    columns = [
        normalise(column) if pa.types.is_timestamp(column.type) and column.type.unit != "us" else column
        for column in table.columns
    ]
    exact = pa.table(columns, schema=pa.schema([(f.name, c.type) for f, c in zip(schema, columns, strict=True)]))
    return duckdb_rows(exact)


def _schema(rows: Table | pa.Table) -> pa.Schema:
    """The schema for conditions on the rows."""
    return filter_schema(read_schema(rows.metadata.schema)) if isinstance(rows, ArrowDeltaTable) else rows.schema


def _travel(kind: str, expression: str) -> tuple[int | None, str | None]:
    """The version, or the time, that an expression behind ``AS OF`` says."""
    [value] = constant(expression).to_pylist()
    if kind == "VERSION":
        return stated_version(value), None
    if value is None:
        raise InvalidArgumentError("the time of TIMESTAMP AS OF is null", help="write '2024-05-01 12:30:00'")
    return None, str(value)


def _changes(context: Context, arguments: Sequence[str]) -> pa.Table:
    """The rows of ``table_changes_by_path``."""
    values = [constant(a).to_pylist()[0] for a in arguments]
    of = int | str | dt.datetime
    if not 2 <= len(values) <= 3 or not isinstance(values[0], str) or not all(isinstance(v, of) for v in values[1:]):
        raise InvalidArgumentError(
            f"{CHANGES} takes a path, the first version or time, and perhaps the last",
            help=f"write {CHANGES}('/path', 1)",
        )
    opened = place_of(context, ("delta", values[0])).open(context)
    if not isinstance(opened, ArrowDeltaTable):
        raise TableNotFoundError("only Delta tables record their changes", file=values[0])
    return opened.changes(*values[1:])
