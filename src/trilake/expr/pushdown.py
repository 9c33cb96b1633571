"""Arrow expressions implied by a predicate, for readers that prune by them.

A reader may only drop rows for which the predicate is not true, so every rule keeps the row when in doubt.  In Spark
NaN is greater than all numbers, while a row group's maximum ignores it; so ``>``, ``>=`` and ``!=`` on floating point
columns are not pushed down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from trilake.expr.terms import datatypes as types
from trilake.expr.terms.datatypes import Path, normal_type
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

Rename = Mapping[str | Path, str | Path | None]

#: Microseconds that fit 64-bit nanoseconds: Arrow casts literals to these for files with INT96 timestamps.
_NANOS_LIMIT = (1 << 63) // 1000 - 1


def superset(predicate: Predicate, rename: Rename, schema: pa.Schema | None) -> pc.Expression | None:
    """An expression that is true wherever ``predicate`` is; ``None`` if that is every row."""
    return _Pushdown(rename, schema).implied(predicate, True)


class _Pushdown:
    def __init__(self, rename: Rename, schema: pa.Schema | None) -> None:
        self.rename = rename
        self.schema = schema

    def implied(self, predicate: Predicate, expected: bool) -> pc.Expression | None:
        match predicate:
            case Not(part):
                return self.implied(part, not expected)
            case And(parts) | Or(parts):
                return _join([self.implied(p, expected) for p in parts], all=isinstance(predicate, And) == expected)
            case Constant(value):
                return None if value is expected else pc.scalar(False)
        return self._leaf(predicate, expected)

    def _leaf(self, leaf: Predicate, expected: bool) -> pc.Expression | None:
        if not isinstance(leaf, Known | Compare | In | IsNull | StartsWith):
            return None
        field = self._field(leaf)
        if field is None:
            return None
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

    def _field(self, leaf: Known | Compare | In | IsNull | StartsWith) -> pc.Expression | None:
        path = self._renamed(leaf.path)
        if path is None:
            return None
        compared = (
            leaf.literal.type if isinstance(leaf, Compare) else leaf.values.type if isinstance(leaf, In) else None
        )
        if self.schema is not None and not self._has(path, compared):
            return None
        return pc.field(*path) if len(path) > 1 else pc.field(path[0])

    def _renamed(self, path: Path) -> Path | None:
        if path in self.rename or len(path) == 1:
            target = self.rename[path] if path in self.rename else self.rename.get(path[0], path)
        else:  # fields of a renamed struct may be renamed, too
            target = None if path[0] in self.rename else path
        return (target,) if isinstance(target, str) else target if target is None else tuple(target)

    def _has(self, path: Path, compared: pa.DataType | None) -> bool:
        fields: Any = self.schema
        datatype: pa.DataType | None = None
        for name in path:
            matches = [f for f in fields if f.name == name]
            if len(matches) != 1:
                return False
            datatype = matches[0].type
            fields = datatype if pa.types.is_struct(datatype) else ()
        assert datatype is not None
        return compared is None or normal_type(datatype) == compared


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
    value = prefix.as_py()
    if not isinstance(value, str):
        return None
    if not value:
        return field.is_valid()
    lower, upper = field >= prefix, successor(value)
    return lower if upper is None else lower & (field < pa.scalar(upper, prefix.type))
