"""Expressions as SQL strings: replace and remove the qualifiers of columns, and the keyword DEFAULT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.rules.defaults import default_expression
from trilake.sql.parser.cursor import Cursor, spans
from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.tokens import Token, depths, tokenize


def requalified(sql: str, names: Mapping[tuple[str, ...], str]) -> str:
    """Replace the qualifiers of columns: each of ``names``, in lower case, with its value; an empty value removes it.

    The variables of a lambda hide them in its body.

    >>> requalified("db.t.a > 1 AND t.b = 't.c'", {("db", "t"): "x", ("t",): ""})
    "x.a > 1 AND b = 't.c'"
    """
    tokens = tokenize(sql)
    longest_first = sorted(names, key=len, reverse=True)
    hidden = _lambda_variables(tokens)
    edits = []
    for at, parts, _ in names_in(sql, tokens):
        if parts[0] in hidden.get(at, ()):
            continue
        for name in longest_first:
            if len(parts) > len(name) and parts[: len(name)] == name:
                behind = tokens[at + 2 * len(name)].start
                edits.append(Edit(tokens[at].start, behind, f"{names[name]}." if names[name] else ""))
                break
    return Edited.of(sql, edits).sql


def _lambda_variables(tokens: Sequence[Token]) -> dict[int, set[str]]:
    """Which lambda variables, in lower case, are in scope at each token."""
    out: dict[int, set[str]] = {}
    for arrow, token in enumerate(tokens):
        if token.text != "->":
            continue
        first = arrow - 1
        if first >= 0 and tokens[first].text == ")":
            while first > 0 and tokens[first].text != "(":
                first -= 1
        variables = {t.name.lower() for t in tokens[max(first, 0) : arrow] if t.is_name}
        depth = 0
        for at in range(max(first, 0), len(tokens)):
            symbol = tokens[at].symbol
            depth += (symbol in ("(", "[")) - (symbol in (")", "]"))
            if at > arrow and (depth < 0 or (depth == 0 and symbol == ",")):
                break
            out.setdefault(at, set()).update(variables)
    return out


def unqualified(parts: tuple[str, ...], fronts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Remove the longest of these qualifiers, in lower case, from a column's name.

    >>> unqualified(("DB", "t", "a"), [("t",), ("db", "t")])
    ('a',)
    """
    lower = tuple(p.lower() for p in parts)
    for front in sorted(fronts, key=len, reverse=True):
        if len(parts) > len(front) and lower[: len(front)] == front:
            return parts[len(front) :]
    return parts


def names_in(sql: str, tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[str, ...], Cursor]]:
    """The names in an expression: index of the first token, parts in lower case, a cursor after the name."""
    at = 0
    while at < len(tokens):
        if not tokens[at].is_name:
            at += 1
            continue
        cursor = Cursor(sql, tokens, at)
        yield at, tuple(p.lower() for p in cursor.name()), cursor
        at = cursor.at


def has_query(sql: str) -> bool:
    """Whether an expression may contain a query."""
    return any(t.upper in ("SELECT", "FROM", "TABLE", "VALUES") for t in tokenize(sql))


def split_names(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Split names of columns into their parts.  Raises ``SyntaxProblem``."""
    out = []
    for name in names:
        cursor = Cursor(name)
        out.append(cursor.name())
        cursor.end()
    return out


_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")


def default_or(schema: StructType, column: tuple[str, ...], value: str) -> str:
    """A value, or the column's default if the value is the word DEFAULT."""
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
    """Replace the word DEFAULT in a query with the defaults; also return the columns whose values are all DEFAULT."""
    if not any(t.upper == "DEFAULT" for t in Cursor(sql).tokens):
        return sql, set()
    lists, only = _value_lists(sql)
    defaults: dict[int, list[tuple[int, int]]] = {}
    for row in lists:
        for i, (start, end) in enumerate(row):
            if sql[start:end].upper() == "DEFAULT":
                defaults.setdefault(i, []).append((start, end))
    edits, absent = [], set()
    for i, places in defaults.items():
        if i >= len(expected):
            continue
        field = schema.field(expected[i])
        whole = only and len(places) == len(lists)
        if whole:
            absent.add(field.name)
        default = None if whole else default_expression(field)
        value = "NULL" if default is None else format_default(field, default)
        edits += [Edit(start, end, value) for start, end in places]
    return Edited.of(sql, edits).sql, absent


def _value_lists(sql: str) -> tuple[list[list[tuple[int, int]]], bool]:
    """The rows of VALUES or SELECT, as positions by value, and whether there are no further rows."""
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


def _parts(cursor: Cursor, start: int, end: int) -> list[tuple[int, int]]:
    return list(spans(Cursor(cursor.sql, [t for t in cursor.tokens if start <= t.start and t.end <= end])))
