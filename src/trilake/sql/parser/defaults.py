"""The keyword DEFAULT as a value in INSERT, UPDATE and MERGE."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.rules.defaults import default_expression
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.places import Edit, Edited
from trilake.sql.parser.tokens import Token, depths, tokenize

_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")


def default_or(schema: StructType, column: tuple[str, ...], value: str) -> str:
    """A value, or the column's default where the value is the word DEFAULT."""
    tokens = tokenize(value)
    if len(tokens) != 1 or tokens[0].upper != "DEFAULT":
        return value
    field = schema.find(column[0])
    sql = default_expression(field) if field is not None and len(column) == 1 else None
    return "NULL" if sql is None else f"({sql})"


def with_defaults(
    sql: str,
    schema: StructType,
    expected: Sequence[str],
    format_default: Callable[[StructField, str], str] = lambda _, default: f"({default})",
) -> tuple[str, set[str]]:
    """Replace the word DEFAULT in a query by the defaults; also return the columns whose values are all DEFAULT."""
    if not any(t.upper == "DEFAULT" for t in Cursor(sql).tokens):
        return sql, set()
    lists, only = _value_lists(sql)
    defaults: dict[int, list[Token]] = {}
    for row in lists:
        for i, tokens in enumerate(row):
            if len(tokens) == 1 and tokens[0].upper == "DEFAULT":
                defaults.setdefault(i, []).append(tokens[0])
    edits, absent = [], set()
    for i, tokens in defaults.items():
        if i >= len(expected):
            continue
        field = schema.field(expected[i])
        whole = only and len(tokens) == len(lists)
        if whole:
            absent.add(field.name)
        default = None if whole else default_expression(field)
        value = "NULL" if default is None else format_default(field, default)
        edits += [Edit(t.start, t.end, value) for t in tokens]
    return Edited.of(sql, edits).sql, absent


def _value_lists(sql: str) -> tuple[list[list[list[Token]]], bool]:
    """The rows of VALUES or SELECT, as tokens by value, and whether there are no further rows."""
    cursor = Cursor(sql)
    if cursor.accept("VALUES"):
        out = []
        while True:
            a, b = cursor.brackets() if cursor.is_symbol("(") else cursor.until(symbols=",")
            out.append(_parts(cursor, a, b))
            if not cursor.accept_symbol(","):
                return out, _is_alone(cursor)
    if cursor.accept("SELECT"):
        a, b = cursor.until("FROM", "WHERE", "UNION", "EXCEPT", "INTERSECT", "LIMIT", "ORDER")
        return [_parts(cursor, a, b)], _is_alone(cursor)
    return [], True


def _is_alone(cursor: Cursor) -> bool:
    """Whether no UNION or the like follows."""
    behind = cursor.tokens[cursor.at :]
    return not any(t.upper in _SET_OPERATORS for t, depth in zip(behind, depths(behind), strict=True) if not depth)


def _parts(cursor: Cursor, start: int, end: int) -> list[list[Token]]:
    inside = [t for t in cursor.tokens if start <= t.start and t.end <= end]
    out: list[list[Token]] = [[]]
    for t, depth in zip(inside, depths(inside), strict=True):
        if t.kind == "symbol" and t.text == "," and depth == 0:
            out.append([])
        else:
            out[-1].append(t)
    return out
