"""Expressions of a command: parameters put in as literals, names of the table taken off columns, lists taken apart."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.sql.session.session import Args, SqlSession
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.places import Edit, Edited
from trilake.sql.text.tokens import string_literal, tokenize

# --- parameters ------------------------------------------------------------------------------------------------------


def with_parameters(session: SqlSession, text: str, args: Args) -> str:
    """A statement with literals in place of its parameter markers.

    Raises ``InvalidArgumentError`` for a parameter without a value.
    """
    if args is None:
        return text
    edits, at = [], 0
    for token in tokenize(text):
        if token.kind != "marker":
            continue
        if token.text == "?":
            if isinstance(args, Mapping) or at >= len(args):
                raise InvalidArgumentError(
                    f"parameter {at + 1} has no value", help="give a list with a value for each ?"
                )
            value = args[at]
            at += 1
        else:
            name = token.text[1:]
            if not isinstance(args, Mapping) or name not in args:
                raise InvalidArgumentError(f"parameter :{name} has no value", help=f"give args={{'{name}': ...}}")
            value = args[name]
        edits.append(Edit(token.start, token.end, literal(session, value)))
    return Edited.of(text, edits).text


def literal(session: SqlSession, value: Any) -> str:
    r"""A Python value, or a column that needs no row, as SQL.

    >>> literal(None, "it's"), literal(None, dt.date(2020, 2, 29)), literal(None, [1, None])
    ("'it\\'s'", "DATE'2020-02-29'", 'array(1, NULL)')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -(1 << 31) <= value < 1 << 31 else f"{value}L" if abs(value) < 1 << 63 else f"{value}BD"
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex()}'"
    if isinstance(value, decimal.Decimal):
        return f"CAST('{value}' AS DECIMAL({max(len(value.as_tuple().digits), _scale(value))}, {_scale(value)}))"
    if isinstance(value, dt.datetime):
        shown = value.isoformat(sep=" ")
        return f"TIMESTAMP'{shown}'"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
        return f"make_dt_interval(0, 0, 0, CAST({micros} AS DECIMAL(18, 0)) / 1000000)"
    if isinstance(value, list | tuple):
        return f"array({', '.join(literal(session, v) for v in value)})"
    if isinstance(value, dict):
        return f"map({', '.join(literal(session, x) for pair in value.items() for x in pair)})"
    if type(value).__name__ == "Column":
        row = session.spark.range(1).select(value).collect()[0]
        return literal(session, row[0])
    raise InvalidArgumentError(f"a {type(value).__name__} cannot be a parameter")


def _scale(value: decimal.Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


# --- names of the table in front of columns --------------------------------------------------------------------------


def requalified(text: str, names: Mapping[tuple[str, ...], str]) -> str:
    """A text in which columns that begin with one of ``names`` begin with what that name leads to instead.

    An empty text takes the name off.  Names are in small letters.

    >>> requalified("db.t.a > 1 AND t.b = 't.c'", {("db", "t"): "x", ("t",): ""})
    "x.a > 1 AND b = 't.c'"
    """
    tokens = tokenize(text)
    longest_first = sorted(names, key=len, reverse=True)
    edits, at = [], 0
    while at < len(tokens):
        if not tokens[at].is_name:
            at += 1
            continue
        cursor = Cursor(text, tokens, at)
        parts = tuple(p.lower() for p in cursor.name())
        for name in longest_first:
            if len(parts) > len(name) and parts[: len(name)] == name:
                behind = tokens[at + 2 * len(name)].start
                edits.append(Edit(tokens[at].start, behind, f"{names[name]}." if names[name] else ""))
                break
        at = cursor.at
    return Edited.of(text, edits).text


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
