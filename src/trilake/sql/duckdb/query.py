"""Queries in DuckDB's SQL over tables of all formats, named by path.

DuckDB reads only the columns and files that the query needs; it cannot open other files or URLs, or load extensions.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from trilake.common.option_values import stated_version
from trilake.common.text import double_quoted, quote_parts
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.expr import evaluate_all, parse_expression
from trilake.expr.terms.engine import first_line, new_connection
from trilake.expr.views import in_microseconds, microseconds_schema
from trilake.sql.duckdb.database import Source, batches_of, table_of
from trilake.sql.duckdb.table_paths import Context, parse_table_path, unknown_name
from trilake.sql.parser.cursor import Cursor, SqlTextError, SyntaxProblem
from trilake.sql.parser.edits import Edit, Edited, line_and_position
from trilake.sql.parser.tokens import AFTER_RELATION, tokenize
from trilake.table.frames import arrow_batches
from trilake.table.registry import DEFAULT
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
            table_path = parse_table_path(context, relation.parts, quoted=relation.quoted)
            if table_path is not None and table_path.at is None and context.store(table_path.path).uri == target.uri:
                return ReadSet(whole_table=True)
    return ReadSet()


def constant(expression: str) -> Any:
    """Evaluate a constant expression of Spark SQL; an Arrow array of one value."""
    one_row = pa.table({"": [0]})
    return evaluate_all([parse_expression(expression, pa.schema([]))], one_row)[0]


def unknown_table(error: duckdb.Error) -> str | None:
    """The table that the error reports as unknown; ``None`` for another error."""
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


def _sources(context: Context, query: Query) -> dict[Name, Source]:
    frames = {name.lower(): rows for name, rows in context.frames.items()}
    sources: dict[Name, Source] = {}
    for relation in query.relations:
        if relation.changes is not None:
            sources[relation.name] = _changes(context, relation.changes)
        elif relation.at is None and (name := relation.parts[-1].lower()) in frames and len(relation.parts) == 1:
            sources[relation.name] = _frame(frames[name])
        elif len(relation.parts) > 1 or relation.parts[0].lower() not in query.defined:
            table_path = parse_table_path(context, relation.parts, quoted=relation.quoted)
            if table_path is not None:
                sources[relation.name] = table_path.open(context, *_version(context, relation))
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
    table_path = parse_table_path(context, (DEFAULT, values[0]))
    opened = table_path and table_path.open(context)
    if not isinstance(opened, ArrowDeltaTable):
        raise TableNotFoundError(
            "expected a Delta table: only those have a change feed", help="check the path", file=values[0]
        )
    return opened.changes(*values[1:])


def _values(context: Context, expressions: str) -> tuple[Any, ...]:
    query = parse_query(f"SELECT {expressions}")
    with new_connection() as connection:
        try:
            row: tuple[Any, ...] = connection.execute(query.sql, _parameters(context, query)).fetchall()[0]
        except duckdb.Error as e:
            raise _problem(e) from e
    return row


def _parameters(context: Context, query: Query) -> dict[str, Any] | None:
    return {name: context.values[name] for name in query.parameters & context.values.keys()} or None


# --- the tables that a query reads, found by DuckDB's parser ----------------------------------------------------------
# A table keeps its name in DuckDB.  Only where the name is not enough (a version, a change feed) is it replaced in the
# SQL.

#: The table function for a change data feed.
CHANGES = "table_changes_by_path"
#: A relation's name in DuckDB: a table, or a schema and a table.
Name = tuple[str, ...]
#: Most characters of a cached query.
_LONGEST = 40_000


@dataclass(frozen=True)
class Relation:
    """A table that a query reads.

    Parameters
    ----------
    name: its name in DuckDB.
    parts: its name in the query.
    quoted: whether a name of one part is quoted, and so may be a path.
    at: ``VERSION`` or ``TIMESTAMP``, and an expression.
    changes: the arguments of ``table_changes_by_path``.
    """

    name: Name
    parts: tuple[str, ...]
    at: tuple[str, str] | None = None
    changes: str | None = None
    quoted: bool = True


@dataclass(frozen=True)
class Query:
    """A query in DuckDB's SQL, and what it reads."""

    sql: str
    relations: tuple[Relation, ...]
    parameters: frozenset[str]
    #: Common table expressions, in lower case.
    defined: frozenset[str]


def parse_query(sql: str) -> Query:
    """Parse a query, and find its relations, including names of common table expressions.

    Raises ``SqlTextError`` for a syntax error, ``InvalidArgumentError`` for anything but one query.

    >>> [r.parts for r in parse_query("SELECT * FROM '/lake/t' JOIN delta.`/lake/u` USING (id)").relations]
    [('/lake/t',), ('delta', '/lake/u')]
    """
    return _parse_cached(sql) if len(sql) <= _LONGEST else _parse(sql)


def _parse(sql: str) -> Query:
    try:
        tree = _tree(sql)
    except SqlTextError:
        with_at = _as_of_to_at(sql)
        if with_at is None:
            raise
        try:
            tree, sql = _tree(with_at), with_at
        except SqlTextError as e:
            raise SqlTextError(e.message, text=sql, line=1, position=0) from None
    defined = (entry["key"].lower() for n in _nodes(tree) for entry in (n.get("cte_map") or {}).get("map", ()))
    reader = _Reader(sql)
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE" and not node["catalog_name"]:
            reader.table(node)
        elif node.get("type") == "TABLE_FUNCTION" and node["function"]["function_name"].lower() == CHANGES:
            reader.changes(node)
    edited = Edited.of(sql, reader.edits).sql if reader.edits else sql
    named_parameters = (tree if edited is sql else _tree(edited)).get("named_param_map", ())
    parameters = {str(p["key"]) for p in named_parameters}
    return Query(edited, tuple(reader.relations.values()), frozenset(parameters), frozenset(defined))


_parse_cached = lru_cache(maxsize=128)(_parse)


def _tree(sql: str) -> dict[str, Any]:
    with new_connection() as connection:
        try:
            kinds = [s.type.name for s in connection.extract_statements(sql)]
        except duckdb.ParserException:
            kinds = ["SELECT"]
        if kinds != ["SELECT"]:
            raise InvalidArgumentError(
                f"expected one SELECT, got {' and '.join(kinds) or 'nothing'}",
                help="pass one statement at a time; change tables with INSERT, UPDATE, DELETE or MERGE",
            )
        answer = orjson.loads(connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0])
    if answer["error"]:
        index = len(sql.encode()[: int(answer.get("position") or 0)].decode(errors="ignore"))
        line, position = line_and_position(sql, index)
        raise SqlTextError(answer["error_message"], text=sql, line=line, position=position)
    statement: dict[str, Any] = answer["statements"][0]
    return statement


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack += reversed(node.values())
        elif isinstance(node, list):
            stack += reversed(node)


class _Reader:
    """Collects a query's relations, and edits the SQL for versions and change feeds."""

    def __init__(self, sql: str) -> None:
        self.sql, self.bytes = sql, sql.encode()
        self.relations: dict[object, Relation] = {}
        self.edits: list[Edit] = []

    def table(self, node: dict[str, Any]) -> None:
        parts = tuple(filter(None, (node["schema_name"], node["table_name"])))
        if len(parts) == 2 and parts[1][:1] == parts[1][-1:] == "'":
            parts = (parts[0], parts[1][1:-1])
        at, position = node["at_clause"], node["query_location"]
        quoted = position >= len(self.bytes) or self.bytes[position : position + 1] in (b"'", b'"', b"`")
        if at is None and parts[-1] == node["table_name"]:
            folded = tuple(p.lower() for p in parts)
            relation = self.relations.setdefault(folded, Relation(parts, parts, quoted=quoted))
            if relation.parts == parts:
                return
        self._replace(node, parts)

    def _replace(self, node: dict[str, Any], parts: tuple[str, ...]) -> None:
        cursor = self._cursor(node)
        start = cursor.at
        while cursor.token is not None and (cursor.at == start or cursor.accept_symbol(".")):
            cursor.take()
        end, at = cursor.tokens[cursor.at - 1].end, None
        if node["at_clause"]:  # AT (VERSION => expression)
            while not (cursor.is_word("AT") and cursor.is_symbol("(", ahead=1)):
                cursor.take()
            first = cursor.take().start
            inner = cursor.brackets()
            inside = Cursor(self.sql[slice(*inner)])
            unit = inside.take().upper
            inside.expect_symbol("=>")
            at = (unit, inside.rest())
            self.edits.append(Edit(first, inner[1] + 1, ""))
        name = self._private((parts, at), Relation((), parts, at))
        alias = "" if node["alias"] else f" AS {double_quoted(parts[-1])}"
        self.edits.append(Edit(cursor.tokens[start].start, end, f"{double_quoted(name)}{alias}"))

    def changes(self, node: dict[str, Any]) -> None:
        cursor = self._cursor(node)
        first = cursor.take().start
        start, end = cursor.brackets()
        arguments = self.sql[start:end]
        name = self._private(arguments, Relation((), (CHANGES,), changes=arguments))
        alias = "" if node["alias"] else f" AS {CHANGES}"
        self.edits.append(Edit(first, end + 1, f"{double_quoted(name)}{alias}"))

    def _private(self, key: object, relation: Relation) -> str:
        name = f"__trilake_{len(self.relations)}"
        return self.relations.setdefault(key, Relation((name,), relation.parts, relation.at, relation.changes)).name[0]

    def _cursor(self, node: dict[str, Any]) -> Cursor:
        """A cursor at the first token of a relation."""
        position = node["query_location"]
        if position >= len(self.bytes):
            raise InvalidArgumentError(
                "time travel is not supported for this table reference",
                help="write the version after the path, as in '/path@v3', or read the table in a SELECT",
            )
        start = len(self.bytes[:position].decode())
        tokens = [t for t in tokenize(self.sql) if t.start >= start]
        return Cursor(self.sql, tokens)


def _as_of_to_at(sql: str) -> str | None:
    """Replace ``VERSION AS OF 3`` with DuckDB's ``AT (VERSION => 3)``; ``None`` if there is none.

    >>> _as_of_to_at("FROM t VERSION AS OF 3 AS x JOIN u")
    'FROM t AS x AT (VERSION => 3) JOIN u'
    """
    tokens, edits = tokenize(sql), []
    for at in range(1, len(tokens)):
        cursor = Cursor(sql, tokens, at)
        unit = tokens[at]
        if unit.upper not in ("VERSION", "TIMESTAMP") or not cursor.is_word("AS", "OF", ahead=1):
            continue
        cursor.at += 3
        try:
            expression = _operand(cursor)
            edits.append(Edit(tokens[at - 1].end, tokens[cursor.at - 1].end, ""))
            cursor.accept("AS")
            if cursor.token is not None and cursor.token.is_name and cursor.token.upper not in AFTER_RELATION:
                cursor.take()
                if cursor.is_symbol("("):
                    cursor.brackets()
        except SyntaxProblem as e:
            raise SqlTextError.at(sql, e) from None
        end = tokens[cursor.at - 1].end
        edits.append(Edit(end, end, f" AT ({unit.upper} => {expression})"))
    return Edited.of(sql, edits).sql if edits else None


def _operand(cursor: Cursor) -> str:
    """Skip a sum of literals, calls and expressions in brackets; return its SQL."""
    first = cursor.at
    while True:
        cursor.accept_symbol("-")
        if cursor.is_symbol("("):
            cursor.brackets()
        elif cursor.accept("INTERVAL"):
            if cursor.take().kind == "number":
                cursor.take()
        elif cursor.take().kind == "word":
            if cursor.is_symbol("("):
                cursor.brackets()
            elif cursor.token is not None and cursor.token.kind == "string":
                cursor.take()
        if not (cursor.accept_symbol("+") or cursor.is_symbol("-")):
            return cursor.sql_since(first)
