"""Arrow expressions implied by a predicate, for readers that prune by them.

A reader may only drop rows for which the predicate is not true, so every rule keeps the row when in doubt.  In Spark
NaN is greater than all numbers, while a row group's maximum ignores it; so ``>``, ``>=`` and ``!=`` on floating point
columns are not pushed down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from trilake.expr.terms import datatypes as types
from trilake.expr.terms.predicate import (
    NEGATED,
    OPERATIONS,
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Known,
    Not,
    Or,
    Predicate,
    StartsWith,
)

#: Microseconds that fit 64-bit nanoseconds: Arrow casts literals to these for files with INT96 timestamps.
_NANOS_LIMIT = (1 << 63) // 1000 - 1


def superset(predicate: Predicate, rename: Mapping[str, str | None], *, expected: bool = True) -> pc.Expression | None:
    """An expression that is true wherever ``predicate`` is ``expected``; ``None`` if that is every row.

    ``rename`` has names in the file by those in the table, ``None`` for a column that cannot be pruned by.  Others keep
    their names; nested fields are left out.
    """
    match predicate:
        case Not(part):
            return superset(part, rename, expected=not expected)
        case And(parts) | Or(parts):
            implied = [superset(p, rename, expected=expected) for p in parts]
            return _join(implied, all=isinstance(predicate, And) == expected)
        case Constant(value):
            return None if value is expected else pc.scalar(False)
        case Known() | Compare() | In() | IsNull() | StartsWith() if len(predicate.path) == 1:
            name = rename.get(predicate.path[0], predicate.path[0])
            return None if name is None else _leaf(predicate, pc.field(name), expected)
    return None


def _leaf(
    leaf: Known | Compare | In | IsNull | StartsWith, field: pc.Expression, expected: bool
) -> pc.Expression | None:
    match leaf:
        case Known(_, value):
            return field.is_valid() if value is expected else pc.scalar(False)
        case IsNull():
            return field.is_null() if expected else field.is_valid()
        case Compare() if not leaf.widened:
            return _compare(field, leaf.op if expected else NEGATED[leaf.op], leaf.literal)
        case In() if expected and not leaf.widened and len(leaf.values) <= 1000:
            if types.is_float(leaf.values.type) or pa.types.is_timestamp(leaf.values.type):
                return _join([_compare(field, "=", v) for v in leaf.values], all=False)
            return field.isin(leaf.values)
        case StartsWith() if expected:
            return _prefix(field, leaf.prefix)
    return None


def _join(implied: list[pc.Expression | None], *, all: bool) -> pc.Expression | None:
    """The conjunction of the known parts, or the disjunction if all are known."""
    parts = [e for e in implied if e is not None]
    if not parts or (not all and len(parts) < len(implied)):
        return None
    # A balanced tree, as Arrow recurses.
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        rest = parts[-1:] if len(parts) % 2 else []
        parts = [(a & b) if all else (a | b) for a, b in pairs] + rest
    return parts[0]


def _compare(field: pc.Expression, op: str, literal: pa.Scalar) -> pc.Expression | None:
    if types.is_float(literal.type):
        value = literal.as_py()
        if value != value or op in (">", ">=", "!="):
            return None
    if pa.types.is_timestamp(literal.type):
        return _compare_time(field, op, literal)
    expression: pc.Expression = OPERATIONS[op](field, literal)
    return expression


def _compare_time(field: pc.Expression, op: str, literal: pa.Scalar) -> pc.Expression | None:
    """A comparison for files with nanoseconds, which the filter sees rounded down to microseconds."""
    micros = literal.cast(pa.int64()).as_py()
    if abs(micros) >= _NANOS_LIMIT:
        return None
    after = pa.scalar(micros + 1, literal.type)
    match op:
        case "=":
            return (field >= literal) & (field < after)
        case "<=":
            return field < after
        case "!=":
            return None
    expression: pc.Expression = OPERATIONS[op](field, literal)
    return expression


@overload
def successor(prefix: str) -> str | None: ...
@overload
def successor(prefix: bytes) -> bytes | None: ...
def successor(prefix: str | bytes) -> str | bytes | None:
    r"""The smallest string or bytes greater than all with the ``prefix``; ``None`` if there is none.

    Code points sort like UTF-8 bytes; surrogates are not characters.

    >>> successor("ab"), successor("a\U0010ffff"), successor("\ud7ff")
    ('ac', 'b', '\ue000')
    """
    if isinstance(prefix, bytes):
        stem = prefix.rstrip(b"\xff")
        return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        prefix = prefix[:-1]
    return None


def _prefix(field: pc.Expression, prefix: pa.Scalar) -> pc.Expression | None:
    value: str = prefix.as_py()
    if not value:
        return field.is_valid()
    lower, upper = field >= prefix, successor(value)
    return lower if upper is None else lower & (field < pa.scalar(upper, prefix.type))
