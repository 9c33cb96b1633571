"""Partition filters derived from generated columns.

For a table partitioned by ``day GENERATED ALWAYS AS (CAST(t AS DATE))``, the filter ``t >= '2024-05-01'`` only needs
the partitions from that day on.  A row that matches the filter also matches the derived condition, which is only used
to skip files.

Writers computed days and hours in their session time zone, which the log does not record.  So a bound on a
``timestamp`` column is widened by more than any zone's offset.  Null partitions are always kept.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.generated import parse_generated
from trilake.errors import ExpressionError, FilterError
from trilake.expr import Filter
from trilake.expr.forms import Derived, Form
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.datatypes import Path, normal_type
from trilake.expr.terms.predicate import (
    NEGATED,
    And,
    Compare,
    Conjunct,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    all_of,
    any_of,
)

#: Microseconds; more than the offset of any time zone.
_ZONE = 18 * 3_600_000_000
#: Longest ``IN`` list to derive a filter from.
_MAX_VALUES = 1000
_NOW = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # generation expressions do not depend on the time


@dataclass(frozen=True)
class _Partition:
    """A partition column that is computed from one other column."""

    name: str
    type: pa.DataType
    derived: Derived

    @property
    def path(self) -> Path:
        return (self.name,)

    @property
    def zoned(self) -> bool:
        """Whether the value depends on a time zone: for instants, and what Spark formats through them."""
        form = self.derived.form
        by_way = form is Form.STEPS and (types.is_text(normal_type(self.type)) or pa.types.is_timestamp(self.type))
        return form is not Form.SAME and (_is_instant(self.derived.type) or by_way)

    def bound(self, literal: pa.Scalar, direction: int) -> pa.Scalar | None:
        """The value of the column for ``literal``, widened; ``None`` where it cannot be computed."""
        moved = _moved(literal, direction) if self.zoned else literal
        value = None if moved is None else self.value(moved)
        # The start of a day is another instant in each zone, even where the day is the same.
        return _moved(value, direction) if value is not None and self.zoned and _is_instant(value.type) else value

    def value(self, literal: pa.Scalar) -> pa.Scalar | None:
        try:
            value = self.derived.expression.of_values(pa.array([literal.as_py()], literal.type))[0]
            return value.cast(normal_type(self.type)) if value.is_valid else None
        except (ExpressionError, FilterError, pa.ArrowException, OverflowError, ValueError):
            return None  # for example a year outside the range of dates


def _is_instant(t: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(t) and t.tz is not None)


def _moved(value: pa.Scalar, direction: int) -> pa.Scalar | None:
    """A date or timestamp shifted by more than any zone's offset."""
    whole, step = (pa.int32(), 1) if pa.types.is_date32(value.type) else (pa.int64(), _ZONE)
    number = value.cast(whole).as_py() + direction * step
    return pa.scalar(number, whole).cast(value.type) if abs(number) < 1 << (whole.bit_width - 1) else None


def derived_partition_filter(
    filter: Filter | None, schema: StructType, partition_columns: Sequence[str]
) -> Filter | None:
    """What ``filter`` implies about partition columns that are generated from the columns it reads.

    Wherever ``filter`` is true of a row, the result is true of the partition values of that row.  ``None`` where
    nothing follows.
    """
    if filter is None:
        return None
    partitions = _partitions(schema, partition_columns)
    if not partitions:
        return None
    implied = _Implied(partitions)
    conjuncts = []
    for conjunct in filter.conjuncts:
        predicate = implied.of(conjunct.predicate, True)
        if predicate is not None:
            conjuncts.append(Conjunct(f"{conjunct.text}, by a generated partition column", predicate))
    if not conjuncts:
        return None
    return Filter(" AND ".join(c.text for c in conjuncts), schema.to_arrow_schema(), tuple(conjuncts))


def _partitions(schema: StructType, names: Sequence[str]) -> list[_Partition]:
    partitions = []
    arrow: pa.Schema | None = None
    for name in names:
        f = schema.find(name)
        text = None if f is None else f.metadata.get("delta.generationExpression")
        if f is None or text is None:
            continue
        try:
            generated = parse_generated(f, str(text), schema, _NOW)
        except ExpressionError:
            continue  # readers need not understand what writers must
        arrow = arrow or schema.to_arrow_schema()
        # loads sqlglot, which tables without generated columns do not need (tests/house/test_laziness.py)
        from trilake.expr.derive import derive

        derived = None if generated.expression is None else derive(generated.expression, arrow)
        if derived is not None:
            partitions.append(_Partition(f.name, f.type.arrow, derived))
    return partitions


@dataclass
class _Implied:
    partitions: list[_Partition]
    by_path: dict[Path, list[_Partition]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for p in self.partitions:
            self.by_path.setdefault(p.derived.path, []).append(p)

    def of(self, predicate: Predicate, expected: bool) -> Predicate | None:
        """What partition values satisfy wherever ``predicate`` is ``expected``; ``None`` for nothing."""
        match predicate:
            case Not(part):
                return self.of(part, not expected)
            case And(parts) | Or(parts):
                implied = [self.of(part, expected) for part in parts]
                present = [p for p in implied if p is not None]
                if isinstance(predicate, And) == expected:
                    return all_of(present) if present else None
                return any_of(present) if len(present) == len(implied) else None
            case Compare(path, op, literal) if not predicate.widened:
                return self._compare(path, op if expected else NEGATED[op], literal)
            case In(path, values) if expected and not predicate.widened and len(values) <= _MAX_VALUES:
                each = [self._compare(path, "=", value) for value in values]
                present = [p for p in each if p is not None]
                return any_of(present) if len(present) == len(each) else None
            case IsNull(path) if expected:
                forms = (p for p in self.by_path.get(path, ()) if p.derived.form is not Form.OTHER)
                nulls: list[Predicate] = [IsNull(p.path) for p in forms]
                return all_of(nulls) if nulls else None
            case StartsWith(path, prefix) if expected:
                starts = [s for p in self.by_path.get(path, ()) if (s := _starts(p, prefix)) is not None]
                return all_of(starts) if starts else None
        return None

    def _compare(self, path: Path, op: str, literal: pa.Scalar) -> Predicate | None:
        partitions = [p for p in self.by_path.get(path, ()) if literal.type == p.derived.type]
        comparisons = [c for p in partitions if (c := _compare_one(p, op, literal)) is not None]
        calendar = _calendar(partitions)
        if calendar:
            ordered = _compare_calendar(calendar, op, literal)
            if ordered is not None:
                comparisons.append(ordered)
        return all_of(comparisons) if comparisons else None


def _or_null(predicate: Predicate, path: Path) -> Predicate:
    return any_of([predicate, IsNull(path)])


_LOWER, _UPPER = (">", ">=", "="), ("<", "<=", "=")


def _compare_one(p: _Partition, op: str, literal: pa.Scalar) -> Predicate | None:
    form = p.derived.form
    if form is Form.SAME:
        return _or_null(Compare(p.path, op, literal), p.path) if literal.type == normal_type(p.type) else None
    if op == "=" and not p.zoned:
        value = p.value(literal)
        return None if value is None or types.is_float(value.type) else _or_null(Compare(p.path, "=", value), p.path)
    if form in (Form.PART, Form.OTHER):
        return None
    bounds: list[Predicate] = []
    if op in _LOWER and (value := p.bound(literal, -1)) is not None:
        at_least: Predicate = Compare(p.path, ">=", value)
        if form is Form.STEPS and types.is_text(value.type):
            # Spark writes years beyond 9999 with a plus sign, which sorts before digits.
            at_least = any_of([at_least, Compare(p.path, "<", pa.scalar("0", value.type))])
        bounds.append(at_least)
    if op in _UPPER and (value := p.bound(literal, 1)) is not None:
        bounds.append(Compare(p.path, "<=", value))
    return _or_null(all_of(bounds), p.path) if bounds else None


def _starts(p: _Partition, prefix: pa.Scalar) -> Predicate | None:
    text = prefix.as_py()
    if not isinstance(text, str) or not types.is_text(normal_type(p.type)):
        return None
    if p.derived.form is Form.SAME or (p.derived.form is Form.PREFIX and len(text) < p.derived.length):
        return _or_null(StartsWith(p.path, pa.scalar(text, normal_type(p.type))), p.path)
    if p.derived.form is Form.PREFIX:
        return _or_null(Compare(p.path, "=", pa.scalar(text[: p.derived.length], normal_type(p.type))), p.path)
    return None


def _calendar(partitions: list[_Partition]) -> list[_Partition]:
    """Year, month, day and hour columns, as far as the table has them without a gap; at least two."""
    levels = {p.derived.level: p for p in reversed(partitions) if p.derived.form in (Form.YEAR, Form.PART)}
    unbroken = [levels[i] for i in range(4) if all(j in levels for j in range(i + 1))]
    return unbroken if len(unbroken) > 1 else []


def _compare_calendar(calendar: list[_Partition], op: str, literal: pa.Scalar) -> Predicate | None:
    """Bounds on (year, month, ...) in lexicographic order."""
    parts: list[Predicate] = []
    for ops, direction, sign in ((_LOWER, -1, ">"), (_UPPER, 1, "<")):
        values = [p.bound(literal, direction) for p in calendar] if op in ops else []
        given = [v for v in values if v is not None]
        if given and len(given) == len(calendar):
            bound: Predicate = Compare(calendar[-1].path, f"{sign}=", given[-1])
            for p, value in zip(calendar[-2::-1], given[-2::-1], strict=True):
                bound = any_of([Compare(p.path, sign, value), all_of([Compare(p.path, "=", value), bound])])
            parts.append(bound)
    return _or_null(all_of(parts), calendar[0].path) if parts else None
