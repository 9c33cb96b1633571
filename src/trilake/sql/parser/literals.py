"""Parameters: Python values as SQL literals, in place of a statement's parameter markers."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from trilake.common.text import string_literal
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.tokens import tokenize

#: Parameters of a statement, by name or in order.
Args: TypeAlias = Mapping[str, Any] | Sequence[Any] | None


def with_values(sql: str, args: Args, to_sql: Callable[[Any], str]) -> str:
    """Replace the parameter markers of a statement with values, formatted by ``to_sql``.

    Raises ``InvalidArgumentError`` for a parameter without a value.

    >>> with_values("SELECT ? + ? -- ?", [1, 2], literal)
    'SELECT 1 + 2 -- ?'
    """
    if args is None:
        return sql
    edits, at = [], 0
    for token in tokenize(sql):
        if token.kind != "marker":
            continue
        if token.text == "?":
            if isinstance(args, Mapping) or at >= len(args):
                raise InvalidArgumentError(
                    f"parameter {at + 1} has no value", help="pass args as a list with a value for each ?"
                )
            value = args[at]
            at += 1
        else:
            name = token.text[1:]
            values = args if isinstance(args, Mapping) else {str(i): value for i, value in enumerate(args, 1)}
            if name not in values:
                raise InvalidArgumentError(f"parameter {token.text} has no value", help=f"pass args={{'{name}': ...}}")
            value = values[name]
        edits.append(Edit(token.start, token.end, to_sql(value)))
    return Edited.of(sql, edits).sql


def literal(value: Any, other: Callable[[Any], str] | None = None) -> str:
    r"""Format a Python value as SQL; ``other`` formats values of other types.

    Raises ``InvalidArgumentError`` for a value without a SQL literal.

    >>> literal("it's"), literal(dt.date(2020, 2, 29)), literal([1, None])
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
        _, digits, exponent = value.as_tuple()
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        return f"CAST('{value}' AS DECIMAL({max(len(digits), scale)}, {scale}))"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
        return f"make_dt_interval(0, 0, 0, CAST({micros} AS DECIMAL(18, 0)) / 1000000)"
    if isinstance(value, list | tuple):
        return f"array({', '.join(literal(v, other) for v in value)})"
    if isinstance(value, dict):
        return f"map({', '.join(literal(x, other) for pair in value.items() for x in pair)})"
    if other is not None:
        return other(value)
    raise InvalidArgumentError(f"values of type {type(value).__name__} are not supported as parameters")
