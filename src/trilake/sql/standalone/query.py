"""Queries on DuckDB: relations by path are scans of the tables, which read the columns and files that are needed.

Texts are Spark's SQL; sqlglot writes them as DuckDB's.  DuckDB itself may open no file, no address and no extension.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError, TrilakeError
from trilake.expr.terms.engine import open_database
from trilake.frames import arrow_batches
from trilake.sql.standalone.places import Context, place_of
from trilake.sql.text.problems import SqlTextError
from trilake.sql.text.tokens import tokenize
from trilake.table import Table
from trilake.table_dataset import TableDataset, WatchedRows

_CHANGES = "table_changes_by_path"


def run_query(context: Context, text: str) -> pa.Table:
    """The rows of a query.

    Raises ``SqlTextError`` for a text that is no query, ``TableNotFoundError`` for tables that are not there,
    ``InvalidArgumentError`` for what DuckDB refuses or cannot evaluate.
    """
    tree = _parsed(text)
    errors: list[TrilakeError] = []
    with closing(open_database(os.cpu_count() or 1)) as db:
        _bind(context, tree, db, errors)
        return _rows(db, tree.sql(dialect="duckdb"), errors)


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


def _rows(db: duckdb.DuckDBPyConnection, text: str, errors: list[TrilakeError]) -> pa.Table:
    try:
        relation = db.sql(text)
        rows = relation.to_arrow_table()
        for i, kind in enumerate(relation.types):
            if str(kind) == "HUGEINT":  # a sum of whole numbers, which is a BIGINT in Spark
                rows = rows.set_column(i, rows.column_names[i], rows.column(i).cast(pa.int64()))
        return rows
    except duckdb.Error as e:
        if errors:
            raise errors[0] from None
        reason = str(e).split("\n\nLINE ")[0]
        raise InvalidArgumentError(f"the query cannot run: {reason}", help="without Spark, DuckDB runs it") from e
    except pa.ArrowInvalid as e:
        raise InvalidArgumentError(f"a sum of the query does not fit into a BIGINT: {e}") from e


# --- relations -------------------------------------------------------------------------------------------------------


def _bind(context: Context, tree: exp.Query, db: duckdb.DuckDBPyConnection, errors: list[TrilakeError]) -> None:
    """Give each relation that stands for a table a name of the database; errors of reading it go to ``errors``."""
    frames = {n.lower(): rows for n, rows in context.frames.items()}
    known = {c.alias.lower() for c in tree.find_all(exp.CTE)}
    for name, rows in frames.items():
        db.register(name, _source(rows, errors))
    for number, table in enumerate(list(tree.find_all(exp.Table))):
        private = f"__trilake_{number}"
        if isinstance(table.this, exp.Func):
            _bind_function(context, table, db, private)
            continue
        parts = tuple(p.name for p in table.parts)
        if len(parts) == 1 and parts[0].lower() in known | set(frames):
            continue
        opened = place_of(context, parts).open(context, *_travel(table))
        db.register(private, _watched(opened, errors))
        _replace(table, private, parts[-1])
    _unqualify(tree)


def _source(rows: Any, errors: list[TrilakeError]) -> Any:
    if isinstance(rows, Table):
        return _watched(rows, errors)
    schema, batches = arrow_batches(rows)
    return pa.Table.from_batches(batches, schema=schema)


def _watched(table: Table, errors: list[TrilakeError]) -> Any:
    """The rows of a table, whose own errors DuckDB would make texts of."""
    return TableDataset(WatchedRows(table, errors))


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


def _bind_function(context: Context, table: exp.Table, db: duckdb.DuckDBPyConnection, private: str) -> None:
    """``table_changes_by_path`` as the changes of a table, ``range`` with the column that it has in Spark."""
    name = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.sql_name()
    if name.lower() == "range" and not table.args.get("alias"):
        columns = [exp.to_identifier("id")]
        table.set("alias", exp.TableAlias(this=exp.to_identifier("range", quoted=True), columns=columns))
        return
    if name.lower() != _CHANGES:
        return
    values = [constant(a.sql(dialect="databricks")).to_pylist()[0] for a in table.this.expressions]
    if not 2 <= len(values) <= 3 or not isinstance(values[0], str) or not all(isinstance(v, int) for v in values[1:]):
        raise InvalidArgumentError(
            f"{_CHANGES} takes a path, the first version, and perhaps the last", help=f"write {_CHANGES}('/path', 1)"
        )
    opened = place_of(context, ("delta", values[0])).open(context)
    if not isinstance(opened, ArrowDeltaTable):
        raise TableNotFoundError("only Delta tables record their changes", file=values[0])
    db.register(private, opened.changes(*values[1:]))
    _replace(table, private, _CHANGES)
