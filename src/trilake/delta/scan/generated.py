"""Generated columns: computed if a write leaves them out, verified if it does not.

Protocol: *Generated Columns*.  The field metadata ``delta.generationExpression`` is an expression over other columns,
and every row must satisfy ``(value <=> expression) IS TRUE``.  A filter on the source column of a generated partition
column implies one on partition values: :func:`derived_partition_filter`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.scan.row_text import describe_row, row_at
from trilake.errors import ConstraintViolatedError, ExpressionError, FilterError, UnsupportedExpressionError
from trilake.expr import Expression, Filter, parse_expression
from trilake.expr.expression import Derived, Form
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.datatypes import Path, normal_type
from trilake.expr.terms.engine import Query
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

#: delta-spark's error conditions for an invalid generation expression.
_CONDITIONS = {
    None: "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "DELTA_INVALID_GENERATED_COLUMN_REFERENCES",
    "DELTA_UNSUPPORTED_SUBQUERY": "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
    "INVALID_WHERE_CONDITION": "DELTA_AGGREGATE_IN_GENERATED_COLUMN",
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN",
}

GENERATION_EXPRESSION = "delta.generationExpression"

#: Strings and quoted names, which cannot contain calls.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
#: Keywords whose value depends on the time or the session, with or without parentheses.
STATEMENT_WORDS = r"current_(?:date|time|timestamp|timezone|user|catalog|database|schema)|localtimestamp"
#: Functions whose value depends on the statement, not on the row.
_OF_STATEMENT = re.compile(
    rf"\b(?:{STATEMENT_WORDS}|session_user)\b"
    r"|\b(?:now|curdate|user|unix_timestamp|input_file_name)\s*\(\s*\)",
    re.IGNORECASE,
)


def reject_of_statement(column: str, sql: str) -> None:
    """Raise ``ExpressionError`` for a generation expression that depends on the time or the session.

    >>> reject_of_statement("g", "concat(`now()`, 'current_date')")
    """
    match = _OF_STATEMENT.search(_QUOTED.sub("''", sql))
    if match is not None:
        raise ExpressionError(
            f"generated column {column} ({sql[:200]}) reads {match[0]}, which is not deterministic",
            help="write the value as a plain column, or give the column a default",
            column=column,
            condition="DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        )


@dataclass(frozen=True)
class GeneratedColumn:
    """A generated column; ``expression`` is ``None`` if only Spark can evaluate ``sql``."""

    name: str
    sql: str
    expression: Expression | None

    def verify(
        self, stored: pa.Array, computed: pa.ChunkedArray | pa.Array, batch: pa.RecordBatch, query: Query
    ) -> None:
        """Raise ``ConstraintViolatedError`` if a given value differs from the computed one; null equals null."""
        same = null_safe_equal(stored, computed, query)
        if pc.all(same).as_py() in (True, None):
            return
        at = pc.index(same, pa.scalar(False)).as_py()
        row = row_at(batch, at)
        columns = None if self.expression is None else {self.name, *self.expression.columns}
        right = describe_row({"the expression": computed[at].as_py()})
        raise ConstraintViolatedError(
            f"generated column {self.name} must equal {self.sql}, but it does not in the row with"
            f" {describe_row(row, columns)}: {right}",
            help="leave out the column to have it computed; nothing was committed",
            constraint=f"{self.name} <=> {self.sql}",
            column=self.name,
            condition="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
        )


def generation_expression(field: StructField) -> str | None:
    """The expression of a generated column; ``None`` for other columns."""
    sql = field.metadata.get(GENERATION_EXPRESSION)
    return None if sql is None else str(sql)


def generated_columns(schema: StructType, now: dt.datetime) -> tuple[GeneratedColumn, ...]:
    """The generated columns of a table, bound to its other columns.  Raises ``ExpressionError``."""
    expressions = [(f, sql) for f in schema.fields if (sql := generation_expression(f)) is not None]
    return tuple(parse_generated(f, sql, schema, now) for f, sql in expressions)


def parse_generated(field: StructField, sql: str, schema: StructType, now: dt.datetime) -> GeneratedColumn:
    """Parse one generated column of a table, with values of the column's type.  Raises ``ExpressionError``."""
    try:
        expression = parse_expression(sql, schema.to_arrow_schema(), now=now).cast(field.type.arrow)
    except UnsupportedExpressionError:
        return GeneratedColumn(field.name, sql, None)
    except ExpressionError as e:
        message = f"generated column {field.name} ({sql}) cannot be computed: {e.message}"
        raise ExpressionError(message, help=e.help, condition=_CONDITIONS.get(e.condition)) from e
    depends = [c for c in sorted(expression.columns) if generation_expression(schema.field(c)) is not None]
    if depends:
        raise ExpressionError(
            f"generated column {field.name} refers to generated column {', '.join(depends)}",
            help="use the expression of that column instead of its name",
            column=field.name,
            condition="DELTA_INVALID_GENERATED_COLUMN_REFERENCES",
        )
    return GeneratedColumn(field.name, sql, expression)


def reject_other_types(schema: StructType, now: dt.datetime) -> None:
    """Raise ``ExpressionError`` for a generation expression that needs a cast to its column's type.

    delta-spark refuses each later change of the metadata of such a table.
    """
    for f in schema.fields:
        if (sql := generation_expression(f)) is not None:
            with suppress(UnsupportedExpressionError):
                expression = parse_expression(sql, schema.to_arrow_schema(), now=now)
                if expression.needs_cast(f.type.arrow):
                    raise other_type(f, sql, expression.sql.spark_type)


def other_type(field: StructField, sql: str, found: str) -> ExpressionError:
    """The error for a generation expression of another type, ``found``, than its column."""
    name = types.spark_name(field.type.arrow)
    return ExpressionError(
        f"generated column {field.name} is of type {name}, but {sql[:200]} is of type {found}",
        help=f"write CAST({sql[:200]} AS {name.upper()})",
        column=field.name,
        condition=_CONDITIONS[None],
    )


def null_safe_equal(a: pa.Array | pa.ChunkedArray, b: pa.Array | pa.ChunkedArray, query: Query) -> pa.ChunkedArray:
    """``a <=> b`` for each row, by Spark's rules: null equals null, NaN equals NaN, -0.0 equals 0.0."""
    a, b = _chunked(a), _chunked(b)
    if types.is_ordered(types.normal_type(a.type)):
        same = pc.equal(a, b)
        if types.is_float(a.type):
            same = pc.or_(same, pc.and_(pc.is_nan(a), pc.is_nan(b)))
        return pc.if_else(pc.is_valid(same), same, pc.and_(pc.is_null(a), pc.is_null(b)))
    naive = types.naive_type(a.type)
    pairs = pa.table({"a": a.cast(naive), "b": b.cast(naive)})
    return query("SELECT a IS NOT DISTINCT FROM b AS same FROM t", t=pairs)["same"]


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


# --- Partition filters derived from generated columns -----------------------------------------------------------------
# For a table partitioned by `day GENERATED ALWAYS AS (CAST(t AS DATE))`, the filter `t >= '2024-05-01'` only needs
# the partitions from that day on.  A row that matches the filter also matches the derived condition, which serves only
# to skip files.
#
# Writers compute days and hours in their session time zone, which the log does not record.  So a bound on a
# `timestamp` column is widened by more than any zone's offset.  Null partitions are always kept.

#: Microseconds; more than the offset of any time zone.
_ZONE = 18 * 3_600_000_000
#: The longest ``IN`` list from which a filter is derived.
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
        """Whether the value depends on a time zone: instants, and strings that Spark formats from them."""
        form = self.derived.form
        by_way = form is Form.STEPS and (types.is_string(normal_type(self.type)) or pa.types.is_timestamp(self.type))
        return form is not Form.SAME and (_is_instant(self.derived.type) or by_way)

    def bound(self, literal: pa.Scalar, direction: int) -> pa.Scalar | None:
        """The value of the column for ``literal``, widened; ``None`` if it cannot be computed."""
        moved = _moved(literal, direction) if self.zoned else literal
        value = None if moved is None else self.value(moved)
        # A day starts at another instant in each zone, even if the day is the same.
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
    """The condition for partition values that is true if ``filter`` is true for a row; ``None`` if nothing follows."""
    if filter is None or not (partitions := _partitions(schema, partition_columns)):
        return None
    implied = _Implied(partitions)
    conjuncts = []
    for conjunct in filter.conjuncts:
        predicate = implied.of(conjunct.predicate, True)
        if predicate is not None:
            conjuncts.append(Conjunct(f"{conjunct.sql}, by a generated partition column", predicate))
    if not conjuncts:
        return None
    return Filter(" AND ".join(c.sql for c in conjuncts), schema.to_arrow_schema(), tuple(conjuncts))


def _partitions(schema: StructType, names: Sequence[str]) -> list[_Partition]:
    partitions = []
    arrow: pa.Schema | None = None
    for name in names:
        f = schema.find(name)
        if f is None or (sql := generation_expression(f)) is None:
            continue
        try:
            generated = parse_generated(f, sql, schema, _NOW)
        except ExpressionError:
            continue  # readers need not understand expressions that writers must
        arrow = arrow or schema.to_arrow_schema()
        # loads sqlglot, which tables without generated columns do not need (tests/house/test_laziness.py)
        from trilake.expr.derive import derive

        derived = None if generated.expression is None else derive(generated.expression, arrow)
        if derived is not None:
            partitions.append(_Partition(f.name, f.type.arrow, derived))
    return partitions


@dataclass(frozen=True)
class _Implied:
    partitions: list[_Partition]
    by_path: dict[Path, list[_Partition]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for p in self.partitions:
            self.by_path.setdefault(p.derived.path, []).append(p)

    def of(self, predicate: Predicate, expected: bool) -> Predicate | None:
        """What partition values satisfy if ``predicate`` is ``expected``; ``None`` if nothing follows."""
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
        if calendar and (ordered := _compare_calendar(calendar, op, literal)) is not None:
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
        if form is Form.STEPS and types.is_string(value.type):
            # Spark writes years beyond 9999 with a plus sign, which sorts before digits.
            at_least = any_of([at_least, Compare(p.path, "<", pa.scalar("0", value.type))])
        bounds.append(at_least)
    if op in _UPPER and (value := p.bound(literal, 1)) is not None:
        bounds.append(Compare(p.path, "<=", value))
    return _or_null(all_of(bounds), p.path) if bounds else None


def _starts(p: _Partition, prefix: pa.Scalar) -> Predicate | None:
    sql = prefix.as_py()
    if not isinstance(sql, str) or not types.is_string(normal_type(p.type)):
        return None
    if p.derived.form is Form.SAME or (p.derived.form is Form.PREFIX and len(sql) < p.derived.length):
        return _or_null(StartsWith(p.path, pa.scalar(sql, normal_type(p.type))), p.path)
    if p.derived.form is Form.PREFIX:
        return _or_null(Compare(p.path, "=", pa.scalar(sql[: p.derived.length], normal_type(p.type))), p.path)
    return None


def _calendar(partitions: list[_Partition]) -> list[_Partition]:
    """The year, month, day and hour columns, without a gap; at least two."""
    levels = {p.derived.level: p for p in reversed(partitions) if p.derived.form in (Form.YEAR, Form.PART)}
    unbroken = [levels[i] for i in range(4) if all(j in levels for j in range(i + 1))]
    return unbroken if len(unbroken) > 1 else []


def _compare_calendar(calendar: list[_Partition], op: str, literal: pa.Scalar) -> Predicate | None:
    """Bounds on (year, month, ...) in lexicographic order."""
    parts: list[Predicate] = []
    for ops, direction, sign in ((_LOWER, -1, ">"), (_UPPER, 1, "<")):
        values = [p.bound(literal, direction) for p in calendar] if op in ops else []
        non_null = [v for v in values if v is not None]
        if non_null and len(non_null) == len(calendar):
            bound: Predicate = Compare(calendar[-1].path, f"{sign}=", non_null[-1])
            for p, value in zip(calendar[-2::-1], non_null[-2::-1], strict=True):
                bound = any_of([Compare(p.path, sign, value), all_of([Compare(p.path, "=", value), bound])])
            parts.append(bound)
    return _or_null(all_of(parts), calendar[0].path) if parts else None
