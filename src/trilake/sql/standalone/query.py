"""Queries on DuckDB: relations by path are scans of the tables, which read the columns and files that are needed.

Texts are Spark's SQL; sqlglot writes them as DuckDB's.  DuckDB itself may open no file, no address and no extension.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.frames import arrow_batches
from trilake.sql.standalone.database import result_of
from trilake.sql.standalone.places import Context, place_of
from trilake.sql.text.problems import SqlTextError
from trilake.sql.text.tokens import tokenize
from trilake.table import Table

_CHANGES = "table_changes_by_path"


def run_query(context: Context, text: str) -> pa.Table:
    """The rows of a query.

    Raises ``SqlTextError`` for a text that is no query, ``TableNotFoundError`` for tables that are not there,
    ``InvalidArgumentError`` for what DuckDB refuses or cannot evaluate.
    """
    tree = _parsed(text)
    sources = _sources(context, tree)
    statement = tree.sql(dialect="duckdb")
    try:
        return result_of(sources, lambda db: _rows(db, statement))
    except duckdb.Error as e:
        reason = str(e).split("\n\nLINE ")[0]
        raise InvalidArgumentError(f"the query cannot run: {reason}", help="without Spark, DuckDB runs it") from e


def constant(expression: str) -> Any:
    """The value of an expression that names no column, as a Python value in a list of one."""
    rows = run_query(Context(), f"SELECT {expression} AS value")
    return rows.column(0)


def _parsed(text: str) -> exp.Query:
    tokens = tokenize(text)
    # What Spark takes as a query of its own, and sqlglot as a relation.
    head = "SELECT * FROM " if tokens and tokens[0].upper == "VALUES" else ""
    try:
        tree = parse_one(head + text, dialect="databricks")
    except SqlglotError as e:
        raise SqlTextError.of(text, e) from None
    if not isinstance(tree, exp.Query):
        raise InvalidArgumentError(
            f"this statement does not run without Spark: {text.strip()[:200]}",
            help="queries, changes of rows, CREATE TABLE and Delta's maintenance do",
        )
    return tree


def _rows(db: duckdb.DuckDBPyConnection, statement: str) -> pa.Table:
    relation = db.sql(statement)
    rows = relation.to_arrow_table()
    try:
        for i, kind in enumerate(relation.types):
            if str(kind) == "HUGEINT":  # a sum of whole numbers, which is a BIGINT in Spark
                rows = rows.set_column(i, rows.column_names[i], rows.column(i).cast(pa.int64()))
    except pa.ArrowInvalid as e:
        raise InvalidArgumentError(f"a sum of the query does not fit into a BIGINT: {e}") from e
    return rows


# --- relations -------------------------------------------------------------------------------------------------------


def _sources(context: Context, tree: exp.Query) -> dict[str, Table | pa.Table]:
    """What each relation that stands for a table reads, by the name that it gets in the statement instead.

    A table is opened once for all that name it, so that they see one version.
    """
    frames = {n.lower(): rows for n, rows in context.frames.items()}
    known = {c.alias.lower() for c in tree.find_all(exp.CTE)}
    sources: dict[str, Table | pa.Table] = {name: _source(rows) for name, rows in frames.items()}
    opened: dict[tuple[tuple[str, ...], int | None, str | None], str] = {}
    for number, table in enumerate(list(tree.find_all(exp.Table))):
        private = f"__trilake_{number}"
        if isinstance(table.this, exp.Func):
            changes = _changes(context, table)
            if changes is not None:
                sources[private] = changes
                _replace(table, private, _CHANGES)
            continue
        parts = tuple(p.name for p in table.parts)
        if len(parts) == 1 and parts[0].lower() in known | set(frames):
            continue
        version, timestamp = _travel(table)
        name = opened.setdefault((parts, version, timestamp), private)
        if name == private:
            sources[private] = place_of(context, parts).open(context, version, timestamp)
        _replace(table, name, parts[-1])
    _unqualify(tree)
    return sources


def _source(rows: Any) -> Table | pa.Table:
    if isinstance(rows, Table):
        return rows
    schema, batches = arrow_batches(rows)
    return pa.Table.from_batches(batches, schema=schema)


def _replace(table: exp.Table, private: str, alias: str) -> None:
    table.set("this", exp.to_identifier(private))
    table.set("db", None)
    table.set("catalog", None)
    table.set("version", None)
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def _unqualify(tree: exp.Query) -> None:
    """Columns such as ``delta.`/path`.a`` are those of the relation that is called like its path."""
    for column in tree.find_all(exp.Column):
        if column.args.get("db") is not None:
            column.set("db", None)
            column.set("catalog", None)


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
    """The rows of ``table_changes_by_path``; ``None`` for another function, of which ``range`` gets the column that it
    has in Spark."""
    name = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.sql_name()
    if name.lower() == "range" and not table.args.get("alias"):
        columns = [exp.to_identifier("id")]
        table.set("alias", exp.TableAlias(this=exp.to_identifier("range", quoted=True), columns=columns))
        return None
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
