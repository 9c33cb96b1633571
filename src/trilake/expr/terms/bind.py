"""Build leaves of the predicate tree from columns and literals, by Spark's rules for comparing types.

Spark casts one side to the other's type, or both to a wider one.  Here only the literal changes: ``int_col > 1.5``
becomes ``int_col > 1``, so that the column's statistics apply and nothing overflows.  If the column must be cast, the
result is a comparison as ``double`` or an opaque one.

``char(n)`` compares by Spark's rules: the column is padded to ``n``, then the shorter side of the comparison.
Stored values may be padded or not.  The stored string compares like the padded one unless it is a prefix of the
literal, so a comparison becomes conditions on the stored string that list these prefixes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.text import columns_help, quote_name, single_quoted
from trilake.errors import FilterError
from trilake.expr.terms import datatypes as types
from trilake.expr.terms import duckdb_sql as duck
from trilake.expr.terms import literals
from trilake.expr.terms.casts import cast
from trilake.expr.terms.datatypes import Path, normal_type, spark_name
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.literals import MICROS_PER_DAY, Kind, Literal
from trilake.expr.terms.predicate import (
    OPERATIONS,
    Compare,
    Constant,
    In,
    IsNull,
    Known,
    Not,
    Opaque,
    Predicate,
    StartsWith,
    all_of,
    any_of,
    duckdb_name,
)

# --- char(n): columns -------------------------------------------------------------------------------------------------

#: Arrow field metadata for ``char(n)``, with ``n`` as its value.
CHAR = b"trilake.char"
#: DuckDB compares longer strings, which have too many prefixes.
_MOST = 1_000


def char_field(field: pa.Field, length: int) -> pa.Field:
    """Mark a field as ``char(length)``."""
    return field.with_metadata({**(field.metadata or {}), CHAR: str(length).encode()})


def char_length(field: pa.Field) -> int | None:
    """``n`` of a ``char(n)`` field.

    >>> char_length(char_field(pa.field("c", pa.string()), 3)), char_length(pa.field("c", pa.string()))
    (3, None)
    """
    string = (field.metadata or {}).get(CHAR)
    return None if string is None else int(string)


def without_chars(schema: pa.Schema) -> pa.Schema:
    """The schema with its ``char`` columns as plain strings."""
    return schema if all(f.metadata is None for f in schema) else pa.schema([f.remove_metadata() for f in schema])


# --- char(n): conditions on stored values -----------------------------------------------------------------------------


def compare_padded(path: Path, op: str, string: str, kind: pa.DataType, length: int) -> Predicate:
    """``column op string`` for a ``char(length)`` column, with the shorter side padded."""
    longest = max(length, len(string))
    return compare_value(path, op, string.ljust(longest), kind, longest)


def compare_value(path: Path, op: str, string: str, kind: pa.DataType, length: int) -> Predicate:
    """``rpad(column, length) op string``, without padding ``string``."""
    if max(length, len(string)) > _MOST:
        return Opaque(
            f"(rpad({duckdb_name(path)}, {length}, ' ') {'<>' if op == '!=' else op} {single_quoted(string)})", (path,)
        )
    if op == "!=":
        equal = compare_value(path, "=", string, kind, length)
        return Known(path, not equal.value) if isinstance(equal, Known) else Not(equal)
    prefixes = _beginnings(string)
    holds = OPERATIONS[op]
    true = [t for t in prefixes if holds(t.ljust(length), string)]
    if op == "=":
        return _is_in(path, true, kind)
    base = Compare(path, op, pa.scalar(string, kind))
    more = [t for t in true if not holds(t, string)]
    less = sorted({t for t in prefixes if holds(t, string)} - set(true))
    wider = any_of([base, _is_in(path, more, kind)]) if more else base
    return all_of([wider, Not(_is_in(path, less, kind))]) if less else wider


def starts_with_value(path: Path, prefix: str, kind: pa.DataType, length: int) -> Predicate:
    """``startswith(rpad(column, length), prefix)``."""
    whole = StartsWith(path, pa.scalar(prefix, kind))
    if len(prefix) > length:
        return whole
    shorter = [t for t in _beginnings(prefix)[:-1] if t.ljust(len(prefix)) == prefix]
    return any_of([whole, _is_in(path, shorter, kind)]) if shorter else whole


def _beginnings(string: str) -> list[str]:
    return [string[:i] for i in range(len(string) + 1)]


def _is_in(path: Path, strings: Sequence[str], kind: pa.DataType) -> Predicate:
    if not strings:
        return Known(path, False)
    if len(strings) == 1:
        return Compare(path, "=", pa.scalar(strings[0], kind))
    return In(path, pa.array(strings, kind))


# --- char(n): in DuckDB's SQL -----------------------------------------------------------------------------------------


def padded_sides(parts: Sequence[Sql], strings: Sequence[str | None]) -> list[Sql] | None:
    """The padded operands of a comparison, or of IN; ``None`` if Spark pads none.

    ``strings`` are the constant operands.  Spark pads if the first operand is a ``char``, and the others are all
    constants or all ``char`` columns; for two operands the order does not matter.
    """
    if len(parts) == 2 and parts[0].char is None:
        turned = padded_sides(parts[::-1], strings[::-1])
        return None if turned is None or parts[1].char is None else turned[::-1]
    first, others = parts[0], list(zip(parts[1:], strings[1:], strict=True))
    if first.char is None:
        return None
    if all(string is not None or part.family == "void" for part, string in others):
        longest = max([first.char, *(len(string) for _, string in others if string is not None)])
        padded = [
            part if string is None else replace(part, code=single_quoted(string.ljust(longest)))
            for part, string in others
        ]
        return [filled_up(first, longest), *padded]
    if all(part.char is not None for part, _ in others):
        longest = max(part.char or 0 for part in parts)
        return [filled_up(part, longest) for part in parts]
    return None


def filled_up(value: Sql, length: int) -> Sql:
    """Pad a string with spaces, unless it has been padded to this length."""
    tail = f", {length}, ' ')"
    return Sql(value.code if value.code.endswith(tail) else f"rpad({value.code}{tail}", value.type)


#: Words that need backticks as names.
_RESERVED = frozenset(
    (
        *("all", "and", "any", "as", "between", "by", "case", "cast", "cross", "current_date", "current_timestamp"),
        *("distinct", "else", "end", "except", "exists", "extract", "false", "filter", "from", "group", "having"),
        *("ilike", "in", "inner", "intersect", "interval", "is", "join", "left", "like", "limit", "not", "null", "on"),
        *("or", "order", "outer", "over", "position", "regexp", "right", "rlike", "select", "some", "substring"),
        *("table", "then", "trim", "true", "try_cast", "union", "unknown", "using", "values", "when", "where", "with"),
    )
)


def format_path(path: Path) -> str:
    """A column's path in Spark SQL, with backticks where needed.

    >>> format_path(("a",)), format_path(("in", "b.c")), format_path(("a`b",))
    ('a', '`in`.`b.c`', '`a``b`')
    """
    plain = {n for n in path if n.isidentifier() and n.isascii() and n.lower() not in _RESERVED}
    return ".".join(name if name in plain else quote_name(name) for name in path)


@dataclass(frozen=True)
class Column:
    """A resolved column: its path in the schema's spelling, and its normal type.

    ``char`` is the length of a ``char(n)`` column.
    """

    path: Path
    type: pa.DataType
    char: int | None = None

    @property
    def sql(self) -> str:
        return format_path(self.path)


def resolve(
    parts: tuple[str, ...], schema: pa.Schema, *, case_sensitive: bool = False, **where: Any
) -> tuple[Column, tuple[str, ...]]:
    """The column that ``parts`` name, and the remaining parts (such as keys of a map).

    Raises :class:`FilterError` for unknown and ambiguous names.
    """
    fields: Iterable[pa.Field] = schema
    path: list[str] = []
    datatype: pa.DataType | None = None
    char: int | None = None
    for i, part in enumerate(parts):
        if datatype is not None:
            if not pa.types.is_struct(datatype):
                return Column(tuple(path), normal_type(datatype)), parts[i:]
            fields = datatype
        field = _field(part, list(fields), case_sensitive, parent=".".join(path), **where)
        path.append(field.name)
        datatype, char = types.storage_type(field.type), char_length(field)
    assert datatype is not None
    return Column(tuple(path), normal_type(datatype), char), ()


def _field(name: str, fields: list[pa.Field], case_sensitive: bool, *, parent: str, **where: Any) -> pa.Field:
    matches = [f for f in fields if f.name == name]
    if not matches and not case_sensitive:
        matches = [f for f in fields if f.name.lower() == name.lower()]
    if len(matches) == 1:
        return matches[0]
    owner = f"column {parent!r} has" if parent else "the table has"
    if matches:
        raise FilterError(
            f"{owner} {len(matches)} columns that match {name!r}: {', '.join(repr(f.name) for f in matches)}",
            help="spell the name exactly like one of them" if len({f.name for f in matches}) > 1 else None,
            column=name,
            **where,
            condition="AMBIGUOUS_REFERENCE",
        )
    raise FilterError(
        f"field {name!r} not found in column {parent!r}" if parent else f"column {name!r} not found in the table",
        help=columns_help(name, [f.name for f in fields]),
        column=name,
        **where,
        condition="UNRESOLVED_COLUMN.WITH_SUGGESTION",
    )


# --- comparisons -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fit:
    """A literal in a column's domain: the greatest value of the domain that is not above it.

    ``exact`` if it is the literal itself.  ``side`` is -1 if the literal is below the whole domain and +1 if above.
    """

    value: Any = None
    exact: bool = True
    side: int = 0


def compare(column: Column, op: str, literal: Literal) -> Predicate:
    """``column op literal`` for the operators ``= != < <= > >=``.

    Raises :class:`FilterError` for types that Spark does not compare and for strings that it cannot cast.
    """
    if literal.kind is Kind.NULL or pa.types.is_null(column.type):
        return Constant(None)
    _check_comparable(column, literal)
    if types.is_string(column.type) and literal.kind is not Kind.STRING:
        return _compare_string(column, op, literal)
    if column.char is not None:
        return compare_padded(column.path, op, str(literal.value), column.type, column.char)
    as_double = _as_double(column.type, literal, column)
    if as_double is not None:
        return Compare(column.path, op, pa.scalar(as_double, pa.float64()), widened=True)
    fit = _fit(column, literal)
    if fit.side:
        return Known(column.path, op == "!=" or ((op in ("<", "<=")) == (fit.side > 0) and op != "="))
    if not fit.exact:
        if op in ("=", "!="):
            return Known(column.path, op == "!=")
        op = "<=" if op in ("<", "<=") else ">"
    return Compare(column.path, op, pa.scalar(fit.value, column.type))


def compare_unpadded(column: Column, op: str, literal: Literal) -> Predicate:
    """``column op literal`` in BETWEEN and LIKE, where Spark does not pad the literal."""
    if column.char is None or literal.kind is not Kind.STRING:
        return compare(column, op, literal)
    return compare_value(column.path, op, str(literal.value), column.type, column.char)


def null_safe_equal(column: Column, literal: Literal) -> Predicate:
    """``column <=> literal``: never null."""
    if literal.kind is Kind.NULL:
        return IsNull(column.path)
    return all_of([Not(IsNull(column.path)), compare(column, "=", literal)])


def is_in(column: Column, values: list[Literal]) -> Predicate:
    """``column IN (values)``; null if nothing is equal and a value or the column is null."""
    if not values:
        return Constant(False)
    has_null = any(v.kind is Kind.NULL for v in values)
    leaves = [compare(column, "=", v) for v in values if v.kind is not Kind.NULL]
    scalars: dict[tuple[pa.DataType, bool], list[pa.Scalar]] = {}
    others: list[Predicate] = []
    for leaf in leaves:
        if isinstance(leaf, Compare):
            scalars.setdefault((leaf.literal.type, leaf.widened), []).append(leaf.literal)
        elif isinstance(leaf, In):  # stored char values may be padded or not
            scalars.setdefault((leaf.values.type, leaf.widened), []).extend(leaf.values)
        elif not isinstance(leaf, Known) and leaf not in others:
            others.append(leaf)
    if not scalars and not others:
        return Constant(None) if has_null else Known(column.path, False)
    sets = [In(column.path, pa.array(group, t), has_null, wide) for (t, wide), group in scalars.items()]
    return any_of([*sets, *others, *([Constant(None)] if has_null and not sets else [])])


def starts_with(column: Column, prefix: Literal) -> Predicate:
    """``startswith(column, prefix)``."""
    if prefix.kind is Kind.NULL:
        return Constant(None)
    if column.char is not None and prefix.kind is Kind.STRING:
        return starts_with_value(column.path, str(prefix.value), column.type, column.char)
    if types.is_string(column.type) and prefix.kind is Kind.STRING:
        return StartsWith(column.path, pa.scalar(prefix.value, column.type))
    raise FilterError(
        f"startswith needs a string column and a string, got {spark_name(column.type)} and {prefix.kind.value}",
        column=column.sql,
    )


_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


def _check_comparable(column: Column, literal: Literal) -> None:
    t, kind = column.type, literal.kind
    if pa.types.is_boolean(t):
        ok = kind is Kind.BOOLEAN
    elif types.is_bytes(t):
        ok = kind is Kind.BINARY
    else:
        ok = kind in (_TIMES if pa.types.is_date32(t) or pa.types.is_timestamp(t) else _NUMBERS)
    if not types.is_ordered(t) or not (ok or kind is Kind.STRING or types.is_string(t)):
        raise FilterError(
            f"a {spark_name(t)} column cannot be compared with a {kind.value} literal",
            help="cast one of them",
            column=column.sql,
            literal=literal.sql,
        )


def _compare_string(column: Column, op: str, literal: Literal) -> Predicate:
    """Compare strings with a literal as Spark does: cast the strings, and fail for one that does not parse."""
    sides = [duck.Sql(duckdb_name(column.path), "VARCHAR"), duck.literal(literal)]
    target = duck.common_type(sides, "the two sides of a comparison")
    left, right = (cast(side, target).code for side in sides)
    return Opaque(f"({left} {'<>' if op == '!=' else op} {right})", (column.path,))


def compare_steps(column: Column, op: str, low: Literal, high: Literal) -> Predicate:
    """``f(column) op v`` for a non-decreasing function that is ``v`` from ``low`` up to before ``high``."""
    match op:
        case "<":
            return compare(column, "<", low)
        case "<=":
            return compare(column, "<", high)
        case ">":
            return compare(column, ">=", high)
        case ">=":
            return compare(column, ">=", low)
    inside = all_of([compare(column, ">=", low), compare(column, "<", high)])
    return inside if op == "=" else Not(inside)


def _as_double(t: pa.DataType, literal: Literal, column: Column) -> float | None:
    if pa.types.is_decimal(t) and literal.kind in (Kind.DOUBLE, Kind.STRING):
        return _double(literal, column)
    if pa.types.is_integer(t) and literal.kind is Kind.DOUBLE:
        assert isinstance(literal.value, float)
        # Doubles represent all integers up to 2^53, so the literal can change, unless it is NaN.
        if math.isnan(literal.value) or (pa.types.is_int64(t) and abs(literal.value) >= 2**53):
            return literal.value
    return None


def _fit(column: Column, literal: Literal) -> _Fit:
    t, value = column.type, literal.value
    if pa.types.is_boolean(t):
        boolean = literals.parse_boolean(str(value)) if literal.kind is Kind.STRING else value
        return _Fit(_parsed(boolean, column, literal))
    if types.is_string(t):
        return _Fit(value)
    if types.is_bytes(t):
        return _Fit(value.encode() if isinstance(value, str) else value)
    if types.is_float(t):
        return _fit_float(t, _double(literal, column))
    if pa.types.is_signed_integer(t):
        return _fit_integer(t, _number(literal, column))
    if pa.types.is_decimal(t):
        return _fit_decimal(t, _number(literal, column))
    return _fit_time(column, literal)


def _parsed(value: Any, column: Column, literal: Literal) -> Any:
    if value is None:
        raise FilterError(
            f"the string {str(literal.value)!r} cannot be cast to {spark_name(column.type)}",
            help="compare with a value of the column's type, or cast the column: CAST(column AS STRING)",
            column=column.sql,
        )
    return value


def _double(literal: Literal, column: Column) -> float:
    if isinstance(literal.value, str):
        value: float = _parsed(literals.parse_double(literal.value), column, literal)
        return value
    assert isinstance(literal.value, int | float | Decimal)
    try:
        return float(literal.value)
    except OverflowError:
        return math.inf if literal.value > 0 else -math.inf


#: A number with more whole digits exceeds every integer and decimal column.
_MOST_DIGITS = 80


def _number(literal: Literal, column: Column) -> int | float | Decimal:
    value = literal.value
    if isinstance(value, str):
        value = _parsed(literals.parse_integer(value), column, literal)
    assert isinstance(value, int | float | Decimal)
    return value


def _fit_integer(t: pa.DataType, value: int | float | Decimal) -> _Fit:
    huge = isinstance(value, Decimal) and value and value.adjusted() > _MOST_DIGITS
    if huge or (isinstance(value, float) and math.isinf(value)):
        return _Fit(side=1 if value > 0 else -1)
    floor = math.floor(value)
    limit = 1 << (t.bit_width - 1)
    if not -limit <= floor < limit:
        return _Fit(side=1 if floor > 0 else -1)
    return _Fit(floor, exact=floor == value)


def _fit_decimal(t: pa.DataType, value: int | float | Decimal) -> _Fit:
    # Python integers in units of the last digit are exact, independent of the decimal context.
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    shift = exponent + t.scale
    if shift > _MOST_DIGITS:  # beyond 38 digits, unless it is zero
        return _Fit(side=1 if unscaled > 0 else -1) if unscaled else _Fit(Decimal(0))
    if shift >= 0:
        floor, rest = unscaled * 10**shift, 0
    elif -shift > len(digits):
        floor, rest = (-1 if unscaled < 0 else 0), unscaled
    else:
        floor, rest = divmod(unscaled, 10**-shift)
    if abs(floor) >= 10**t.precision:
        return _Fit(side=1 if floor > 0 else -1)
    return _Fit(Decimal((int(floor < 0), tuple(map(int, str(abs(floor)))), -t.scale)), exact=rest == 0)


def _fit_float(t: pa.DataType, value: float) -> _Fit:
    if pa.types.is_float64(t) or math.isnan(value) or math.isinf(value):
        return _Fit(value)
    with np.errstate(over="ignore"):
        near = np.float32(value)
    if float(near) > value:
        near = np.nextafter(near, np.float32(-np.inf))
    return _Fit(float(near), exact=float(near) == value)


def _fit_time(column: Column, literal: Literal) -> _Fit:
    t, value = column.type, literal.value
    if isinstance(value, str):
        is_date = pa.types.is_date32(t)
        parsed = literals.parse_date(value) if is_date else literals.parse_timestamp(value, with_zone=t.tz is not None)
        value = _parsed(parsed, column, literal)
    elif literal.kind is Kind.DATE and pa.types.is_timestamp(t):
        assert isinstance(value, int)
        value = value * MICROS_PER_DAY
    assert isinstance(value, int)
    exact = True
    if pa.types.is_date32(t) and literal.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        value, rest = divmod(value, MICROS_PER_DAY)
        exact = rest == 0
    limit = 1 << (t.bit_width - 1)
    if not -limit <= value < limit:
        return _Fit(side=1 if value > 0 else -1)
    return _Fit(value, exact=exact)
