"""Expressions in a command as strings: remove table qualifiers, split lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.places import Edit, Edited
from trilake.sql.parser.tokens import Token, tokenize

# --- names of the table in front of columns --------------------------------------------------------------------------


def requalified(text: str, names: Mapping[tuple[str, ...], str]) -> str:
    """A string in which columns that begin with one of ``names`` begin with what that name leads to instead.

    An empty text takes the name off.  Names are in small letters.  In the body of a lambda its variables hide them.

    >>> requalified("db.t.a > 1 AND t.b = 't.c'", {("db", "t"): "x", ("t",): ""})
    "x.a > 1 AND b = 't.c'"
    """
    tokens = tokenize(text)
    longest_first = sorted(names, key=len, reverse=True)
    hidden = _lambda_variables(tokens)
    edits = []
    for at, parts, _ in names_in(text, tokens):
        if parts[0] in hidden.get(at, ()):
            continue
        for name in longest_first:
            if len(parts) > len(name) and parts[: len(name)] == name:
                behind = tokens[at + 2 * len(name)].start
                edits.append(Edit(tokens[at].start, behind, f"{names[name]}." if names[name] else ""))
                break
    return Edited.of(text, edits).text


def _lambda_variables(tokens: Sequence[Token]) -> dict[int, set[str]]:
    """The variables of lambdas, in small letters, by the positions of the tokens in whose place they can be meant."""
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
            text = tokens[at].text if tokens[at].kind == "symbol" else ""
            depth += (text in ("(", "[")) - (text in (")", "]"))
            if at > arrow and (depth < 0 or (depth == 0 and text == ",")):
                break
            out.setdefault(at, set()).update(variables)
    return out


def unqualified(parts: tuple[str, ...], fronts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """A column without the longest of the names, which are in small letters, that stands in front of it.

    >>> unqualified(("DB", "t", "a"), [("t",), ("db", "t")])
    ('a',)
    """
    lower = tuple(p.lower() for p in parts)
    for front in sorted(fronts, key=len, reverse=True):
        if len(parts) > len(front) and lower[: len(front)] == front:
            return parts[len(front) :]
    return parts


def names_in(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[str, ...], Cursor]]:
    """The names of a string: the position of the first token, the parts in small letters, a cursor behind the name."""
    at = 0
    while at < len(tokens):
        if not tokens[at].is_name:
            at += 1
            continue
        cursor = Cursor(text, tokens, at)
        yield at, tuple(p.lower() for p in cursor.name()), cursor
        at = cursor.at


def has_query(text: str) -> bool:
    """Whether a query may be inside of an expression."""
    return any(t.upper in ("SELECT", "FROM", "TABLE", "VALUES") for t in tokenize(text))


# --- lists -----------------------------------------------------------------------------------------------------------


def items(text: str) -> list[str]:
    """The parts of a list between its commas, where these are outside of all brackets.

    >>> items("a, f(b, c), 'x,y'")
    ['a', 'f(b, c)', "'x,y'"]
    """
    return [text[a:b] for a, b in spans(Cursor(text))]


def spans(cursor: Cursor) -> Iterable[tuple[int, int]]:
    """The positions of the parts of a list, up to its end."""
    while cursor.token is not None:
        yield cursor.until(symbols=",")
        if not cursor.accept_symbol(","):
            return


def split_names(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Names of columns, each with its parts.  Raises ``SyntaxProblem``."""
    out = []
    for text in texts:
        cursor = Cursor(text)
        out.append(cursor.name())
        cursor.end()
    return out
