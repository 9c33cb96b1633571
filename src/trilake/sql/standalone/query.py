"""Queries on DuckDB: relations by path are scans of the tables, which read the columns and files that are needed.

Texts are Spark's SQL, and become DuckDB's of the same meaning.  DuckDB itself may open no file, no address and no
extension.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from sqlglot import exp

from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.scan.scan import read_schema
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine
from trilake.errors import FilterError, InvalidArgumentError, TableNotFoundError, UnsupportedExpressionError
from trilake.expr.sql.parse import with_room
from trilake.expr.sql.scalar import of_any_expression
from trilake.expr.terms.datatypes import normalise, zoned_type
from trilake.expr.terms.engine import first_line
from trilake.frames import arrow_batches
from trilake.relations.dataset import without_half_floats
from trilake.sql.standalone.database import result_of
from trilake.sql.standalone.places import Context, place_of
from trilake.sql.standalone.queries.around import Query
from trilake.sql.standalone.queries.dialect import parse_query
from trilake.sql.standalone.queries.relations import Tables
from trilake.sql.standalone.queries.select import Translation
from trilake.table import Table
from trilake.text import quote_parts

_CHANGES = "table_changes_by_path"
#: How the names begin that tables get in DuckDB.
_PRIVATE = "__trilake_"
_Result = TypeVar("_Result")
#: What :class:`Idents` puts behind a name.
_IDENT = re.compile(r"#\d+(?=\")")


def run_query(context: Context, text: str) -> pa.Table:
    """The rows of a query.

    Raises ``SqlTextError`` for a text that is no query, ``TableNotFoundError`` for tables that are not there,
    ``UnsupportedExpressionError`` for what only Spark can compute, ``InvalidArgumentError`` for what is wrong.
    """
    tree = _roomy(lambda: parse_query(text))
    sources, names = _sources(context, tree)
    tables = {name: (names[name], without_half_floats(_schema(rows))) for name, rows in sources.items()}

    def of(*, wide: bool) -> pa.Table:
        query = _translated(tree, tables, wide=wide)
        table = result_of(sources, lambda db: db.sql(query.text).to_arrow_table())
        return _as_spark_has_it(table, query)

    try:
        try:
            return of(wide=False)
        except duckdb.OutOfRangeException:  # perhaps of a product that 64 bits do not hold
            return of(wide=True)
    except duckdb.Error as e:
        reason = _IDENT.sub("", first_line(e))
        raise InvalidArgumentError(f"the query cannot run: {reason}", help="without Spark, DuckDB runs it") from e


def constant(expression: str) -> Any:
    """The value of an expression that names no column, as a Python value in a list of one."""
    rows = run_query(Context(), f"SELECT {expression} AS value")
    return rows.column(0)


def _translated(tree: exp.Query, tables: Tables, *, wide: bool) -> Query:
    def build() -> Query:
        now = dt.datetime.fromtimestamp(standard_engine().runtime.clock_ms() / 1000, dt.UTC)
        return Translation(tables, now=now, wide=wide).statement(tree)

    try:
        return _roomy(build)
    except FilterError as e:
        reason = of_any_expression(e.message).replace("a filter", "a query")
        for name in filter(lambda n: n.startswith(_PRIVATE), tables):
            reason = reason.replace(name, quote_parts(tables[name][0]))
        help = None if "filter" in (e.help or "") else e.help
        raise UnsupportedExpressionError(
            f"without Spark this query cannot run: {reason}", help=help, **e.context
        ) from e


def _roomy(work: Callable[[], _Result]) -> _Result:
    """What ``work`` gives.  Raises ``InvalidArgumentError`` for a query that is nested too deeply."""
    try:
        return with_room(work)
    except RecursionError:
        raise InvalidArgumentError("the query is nested too deeply", help="name parts of it in WITH") from None


def _as_spark_has_it(table: pa.Table, query: Query) -> pa.Table:
    """A result under the names and in the types that Spark gives it."""
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


def _sources(context: Context, tree: exp.Query) -> tuple[dict[str, Table | pa.Table], dict[str, tuple[str, ...]]]:
    """What each relation that stands for a table reads, by the name that it gets in the statement instead.

    Beside them are the names that they had.  A table is opened once for all that name it, so that they see one version.
    """
    frames = {n.lower(): rows for n, rows in context.frames.items()}
    known = {c.alias.lower() for c in tree.find_all(exp.CTE)}
    sources: dict[str, Table | pa.Table] = {name: _source(rows) for name, rows in frames.items()}
    names: dict[str, tuple[str, ...]] = {name: (name,) for name in frames}
    opened: dict[tuple[tuple[str, ...], int | None, str | None], str] = {}
    for number, table in enumerate(list(tree.find_all(exp.Table))):
        private = f"{_PRIVATE}{number}"
        if isinstance(table.this, exp.Func):
            changes = _changes(context, table)
            if changes is not None:
                sources[private], names[private] = changes, (_CHANGES,)
                _replace(table, private)
            continue
        parts = tuple(p.name for p in table.parts)
        if len(parts) == 1 and parts[0].lower() in known | set(frames):
            continue
        version, timestamp = _travel(table)
        name = opened.setdefault((parts, version, timestamp), private)
        if name == private:
            sources[private] = place_of(context, parts).open(context, version, timestamp)
            names[private] = parts
        _replace(table, name)
    return sources, names


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
    return exact.cast(without_half_floats(exact.schema))


def _schema(rows: Table | pa.Table) -> pa.Schema:
    """The schema for conditions on the rows."""
    return filter_schema(read_schema(rows.metadata.schema)) if isinstance(rows, ArrowDeltaTable) else rows.schema


def _replace(table: exp.Table, private: str) -> None:
    table.set("this", exp.to_identifier(private))
    for part in ("db", "catalog", "version"):
        table.set(part, None)


def _travel(table: exp.Table) -> tuple[int | None, str | None]:
    version = table.args.get("version")
    if version is None:
        return None, None
    [value] = constant(version.expression.sql(dialect="databricks")).to_pylist()
    if version.name.upper() == "VERSION":
        try:
            return int(value), None
        except (TypeError, ValueError):
            raise InvalidArgumentError(f"{value!r} is no version", help="a version is a number") from None
    if value is None:
        raise InvalidArgumentError("the time of TIMESTAMP AS OF is null", help="write '2024-05-01 12:30:00'")
    return None, str(value)


def _changes(context: Context, table: exp.Table) -> pa.Table | None:
    """The rows of ``table_changes_by_path``; ``None`` for another function."""
    name = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.sql_name()
    if name.lower() != _CHANGES:
        return None
    values = [constant(a.sql(dialect="databricks")).to_pylist()[0] for a in table.this.expressions]
    if not 2 <= len(values) <= 3 or not isinstance(values[0], str) or not all(isinstance(v, int) for v in values[1:]):
        raise InvalidArgumentError(
            f"{_CHANGES} takes a path, the first version, and perhaps the last", help=f"write {_CHANGES}('/path', 1)"
        )
    opened = place_of(context, ("delta", values[0])).open(context)
    if not isinstance(opened, ArrowDeltaTable):
        raise TableNotFoundError("only Delta tables record their changes", file=values[0])
    return opened.changes(*values[1:])
