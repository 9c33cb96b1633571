"""Constants of an expression: literals, typed literals, and the statement's time."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr.terms import datatypes as types
from trilake.expr.terms import literals
from trilake.expr.terms.literals import NULL, Kind, Literal

_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOW = ("current_date", "curdate", "current_timestamp", "now", "localtimestamp")


def simple_constant(node: exp.Expression, now: Callable[[], dt.datetime]) -> Literal | None:
    """The value of a node that is a literal constant; ``None`` for other nodes.

    ``now`` returns the value of ``current_timestamp()`` on demand.  Raises ``FilterError`` for an invalid literal.
    """
    match node:
        case exp.Null():
            return NULL
        case exp.Boolean():
            return Literal(bool(node.this), Kind.BOOLEAN)
        case exp.Literal():
            return _literal(node)
        case exp.RawString():
            return Literal(node.name, Kind.STRING)
        case exp.HexString():
            digits = node.name
            try:
                return Literal(bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits), Kind.BINARY)
            except ValueError:
                raise FilterError(f"X'{digits}' is not a binary literal") from None
        case exp.Concat() if all(isinstance(e, exp.Literal) and e.is_string for e in node.expressions):
            # Adjacent strings are concatenated.
            return Literal("".join(e.name for e in node.expressions), Kind.STRING)
        case exp.Neg():
            inner = simple_constant(node.this.unnest(), now)
            return None if inner is None else inner.negated
        case exp.CurrentDate() | exp.CurrentTimestamp():
            return _time(now(), only_date=isinstance(node, exp.CurrentDate))
        case exp.Anonymous() if node.name.lower() in _NOW and not node.expressions:
            return _time(now(), only_date=node.name.lower() in ("current_date", "curdate"))
        case exp.Cast() if isinstance(node.this, exp.Literal) and not isinstance(node, exp.TryCast):
            return _typed_literal(node)
    return None


def _time(now: dt.datetime, *, only_date: bool) -> Literal:
    return Literal.of(now.astimezone(dt.UTC).date() if only_date else now)


def _typed_literal(node: exp.Cast) -> Literal | None:
    """A literal with its type, such as ``DATE '2020-01-01'``; ``None`` for other casts."""
    target, string = node.to.this.value, node.this.name
    if not node.this.is_string:
        return Literal(float(string), Kind.DOUBLE) if target == "DOUBLE" and _NUMBER.fullmatch(string) else None
    if target == "DATE":
        value, kind = literals.parse_date(string), Kind.DATE
    elif target in ("TIMESTAMPTZ", "TIMESTAMPNTZ"):
        kind = Kind.TIMESTAMP if target == "TIMESTAMPTZ" else Kind.TIMESTAMP_NTZ
        value = literals.parse_timestamp(string, with_zone=kind is Kind.TIMESTAMP)
    else:
        return None
    if value is None:
        raise FilterError(f"{string!r} is not a {kind.value}", help="write it as 2020-12-31 or 2020-12-31 23:59:59")
    return Literal(value, kind)


def _literal(node: exp.Literal) -> Literal:
    string = node.name
    if node.is_string:
        return Literal(string, Kind.STRING)
    if len(string) > 100:
        raise FilterError(f"the number has {len(string)} digits, which is too many for Spark")
    if not _NUMBER.fullmatch(string):
        raise FilterError(f"{string!r} is not a number", help="an exponent needs digits, as in 1e5")
    if "e" in string.lower():
        return Literal(float(string), Kind.DOUBLE)
    return Literal(Decimal(string), Kind.DECIMAL) if "." in string else Literal(int(string), Kind.INTEGER)


def literal_of(scalar: pa.Scalar) -> Literal:
    """The literal of a value that DuckDB computed."""
    if not scalar.is_valid:
        return NULL
    if pa.types.is_timestamp(scalar.type):
        return Literal(scalar.cast(types.TIMESTAMP_NTZ).cast(pa.int64()).as_py(), Kind.TIMESTAMP)
    if pa.types.is_date32(scalar.type):
        return Literal(scalar.cast(pa.int32()).as_py(), Kind.DATE)
    return Literal.of(scalar.as_py())
