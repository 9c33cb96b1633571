"""Views that select or rename columns of one table, and changes of the table through them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trilake.common.text import columns_help, quote_name
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.sql.parser.cursor import Cursor, SyntaxProblem, spans
from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.expressions import has_query, names_in
from trilake.sql.parser.tokens import tokenize


@dataclass(frozen=True)
class Projection:
    """A query over all rows of ``table``; ``columns`` are pairs (name in the view, column), ``None`` for all."""

    table: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] | None


def parse_projection(sql: str) -> Projection | None:
    """Parse ``SELECT a AS b, c FROM table AS t``, also nested; ``None`` for any other query.

    >>> parse_projection("SELECT t.a AS b, c FROM db.tab t")
    Projection(table=('db', 'tab'), columns=(('b', 'a'), ('c', 'c')))
    >>> parse_projection("SELECT b AS d FROM (SELECT a AS b FROM tab AS t) AS s")
    Projection(table=('tab',), columns=(('d', 'a'),))
    """
    try:
        return _projection(Cursor(sql))
    except SyntaxProblem:
        return None


def _projection(cursor: Cursor) -> Projection:
    if cursor.accept("TABLE"):
        table = cursor.name()
        cursor.end()
        return Projection(table, None)
    cursor.expect("SELECT")
    start, end = cursor.until("FROM")
    cursor.expect("FROM")
    fronts = set()
    if cursor.is_symbol("("):
        below = _projection(cursor.inside())
    else:
        below = Projection(cursor.name(), None)
        fronts = {below.table[-1].lower()}
    if cursor.accept("AS") or (cursor.token is not None and cursor.token.is_name):
        fronts = {cursor.part().lower()}
    cursor.end()
    sql = cursor.sql[start:end]
    star = Cursor(sql)  # ``*`` or ``t.*``
    if star.token is not None and star.token.name.lower() in fronts and star.is_symbol(".", ahead=1):
        star.at += 2
    if star.accept_symbol("*") and star.done:
        return below
    columns = [_column(Cursor(sql[a:b]), fronts) for a, b in spans(Cursor(sql))]
    if below.columns is not None:
        columns_by_name = {name.lower(): column for name, column in below.columns}
        if any(column.lower() not in columns_by_name for _, column in columns):
            cursor.fail()
        columns = [(name, columns_by_name[column.lower()]) for name, column in columns]
    return Projection(below.table, tuple(columns))


def _column(cursor: Cursor, fronts: Collection[str]) -> tuple[str, str]:
    parts = cursor.name()
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() not in fronts):
        cursor.fail()
    if cursor.token is None:
        return parts[-1], parts[-1]
    cursor.accept("AS")
    name = cursor.part()
    cursor.end()
    return name, parts[-1]


@dataclass(frozen=True)
class Beside:
    """Another relation in the expression: its alias and its columns, in lower case."""

    front: str | None
    columns: Collection[str]


def by_column(
    sql: str,
    view_columns: Mapping[str, str],
    columns: Collection[str],
    fronts: Collection[str],
    beside: Beside | None = None,
) -> str:
    """Rewrite an expression over a view's columns to one over its table's columns.

    Parameters
    ----------
    sql: the expression.
    view_columns: the table's columns by their names in the view, in lower case.
    columns: all columns of the table, in lower case.
    fronts: possible qualifiers of a column, in lower case; they stay, and with another relation unqualified columns get
        the first one.
    beside: that other relation.  Its columns are qualified by its alias.

    Raises ``SchemaMismatchError`` for a column that is not in the view, ``InvalidArgumentError`` for an ambiguous name.

    >>> by_column("key > 1 AND v.value.key = f(key)", {"key": "value", "value": "key"}, {"key", "value"}, {"v"})
    '`value` > 1 AND v.`key`.key = f(`value`)'
    >>> by_column("k = v AND v.k > s.k", {"k": "v"}, {"v"}, {"v"}, Beside("s", {"v"}))
    '`v`.`v` = `s`.v AND v.`v` > s.k'
    """
    tokens = tokenize(sql)
    if has_query(sql) or any(t.text == "->" for t in tokens):
        raise InvalidArgumentError(
            f"subqueries and lambda functions are not supported on a view that renames columns: {sql}",
            help="use the table instead of the view",
        )
    edits = []
    for at, parts, behind in names_in(sql, tokens):
        first = 1 if len(parts) > 1 and parts[0] in fronts else 0
        name = parts[first]
        if behind.is_symbol("(") and len(parts) == 1:
            continue  # a function
        column = view_columns.get(name)
        token = tokens[at + 2 * first]
        front = ""
        if beside is not None and not first:
            if len(parts) > 1 and parts[0] == beside.front:
                continue
            if name in beside.columns:
                edits.append(Edit(token.start, token.start, _front_of(beside, token.name, column)))
                continue
            front = f"{quote_name(next(iter(fronts)))}."
        if column is not None:
            edits.append(Edit(token.start, token.end, front + quote_name(column)))
        elif name in columns:
            raise SchemaMismatchError(
                f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] column {token.name} not found in the view",
                help=columns_help(token.name, list(view_columns)),
                column=token.name,
            )
    return Edited.of(sql, edits).sql


def _front_of(beside: Beside, name: str, column: str | None) -> str:
    if column is not None or beside.front is None:
        raise InvalidArgumentError(
            f"{name} is ambiguous: the view and the source have a column of this name",
            help="qualify it: view.column or source.column",
            column=name,
            condition="AMBIGUOUS_REFERENCE",
        )
    return f"{quote_name(beside.front)}."
