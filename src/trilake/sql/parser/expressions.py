"""Expressions as SQL strings: replace and remove the qualifiers of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.places import Edit, Edited
from trilake.sql.parser.tokens import Token, tokenize


def requalified(sql: str, names: Mapping[tuple[str, ...], str]) -> str:
    """Replace the qualifiers of columns: each of ``names``, in lower case, by its value; an empty value removes it.

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
            sql = tokens[at].text if tokens[at].kind == "symbol" else ""
            depth += (sql in ("(", "[")) - (sql in (")", "]"))
            if at > arrow and (depth < 0 or (depth == 0 and sql == ",")):
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
