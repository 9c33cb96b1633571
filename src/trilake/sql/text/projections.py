"""Views that show columns of one table under names, and statements that change the table by those names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.sql.text.cursor import Cursor, SyntaxProblem
from trilake.sql.text.expressions import has_query, names_in, spans
from trilake.sql.text.places import Edit, Edited
from trilake.sql.text.tokens import tokenize
from trilake.text import quote_name


@dataclass(frozen=True)
class Projection:
    """A query that shows all rows of ``table``: all columns (``None``), or some under names, as (shown, column)."""

    table: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] | None


def parse_projection(text: str) -> Projection | None:
    """``SELECT a AS b, c FROM table AS t``; ``None`` for any other query.

    >>> parse_projection("SELECT t.a AS b, c FROM db.tab t")
    Projection(table=('db', 'tab'), columns=(('b', 'a'), ('c', 'c')))
    """
    cursor = Cursor(text)
    try:
        cursor.expect("SELECT")
        start, end = cursor.until("FROM")
        cursor.expect("FROM")
        table = cursor.name()
        alias = None
        if cursor.accept("AS") or (cursor.token is not None and cursor.token.is_name):
            alias = cursor.part()
        cursor.end()
        fronts = {alias.lower()} if alias else {table[-1].lower()}
        shown = text[start:end]
        if shown.strip() == "*":
            return Projection(table, None)
        return Projection(table, tuple(_column(Cursor(shown[a:b]), fronts) for a, b in spans(Cursor(shown))))
    except SyntaxProblem:
        return None


def _column(cursor: Cursor, fronts: Collection[str]) -> tuple[str, str]:
    """One column and the name that it is shown by.  Raises ``SyntaxProblem`` for anything else."""
    parts = cursor.name()
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() not in fronts):
        cursor.fail()
    if cursor.token is None:
        return parts[-1], parts[-1]
    cursor.accept("AS")
    name = cursor.part()
    cursor.end()
    return name, parts[-1]


def by_column(text: str, shown: Mapping[str, str], columns: Collection[str], fronts: Collection[str]) -> str:
    """An expression over the names that a view shows, as one over the columns of its table.

    Parameters
    ----------
    shown: the table's columns by the names that the view shows them by, in small letters.
    columns: all columns of the table, in small letters.
    fronts: what may stand in front of a name, in small letters; it stays there.

    Raises ``SchemaMismatchError`` for a column of the table that the view does not show, ``InvalidArgumentError`` for
    an expression in which a name may be something else.

    >>> by_column("key > 1 AND v.value.key = f(key)", {"key": "value", "value": "key"}, {"key", "value"}, {"v"})
    '`value` > 1 AND v.`key`.key = f(`value`)'
    """
    tokens = tokenize(text)
    if has_query(text) or any(t.text == "->" for t in tokens):
        raise InvalidArgumentError(
            f"{text} is over a view that gives columns other names, and has names of its own", help="change the table"
        )
    edits = []
    for at, parts, behind in names_in(text, tokens):
        first = 1 if len(parts) > 1 and parts[0] in fronts else 0
        name = parts[first]
        if behind.is_symbol("(") and len(parts) == 1:
            continue  # a function
        column = shown.get(name)
        token = tokens[at + 2 * first]
        if column is not None:
            edits.append(Edit(token.start, token.end, quote_name(column)))
        elif name in columns:
            raise SchemaMismatchError(
                f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] the view shows no column {token.name}",
                help=f"its columns are {', '.join(shown)}",
                column=token.name,
            )
    return Edited.of(text, edits).text
