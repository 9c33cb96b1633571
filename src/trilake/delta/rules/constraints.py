"""NOT NULL, CHECK constraints and column invariants.

Protocol: *CHECK Constraints*, *Column Invariants*.  A null condition is a violation, like a false one.  The error names
the rule and shows the first row that violates it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    contains_type,
    fields_in,
    parts,
)
from trilake.delta.rules.identity import identity_columns
from trilake.delta.scan.row_text import describe_row, row_at, shorten_string
from trilake.errors import (
    ConstraintViolatedError,
    CorruptLogError,
    ExpressionError,
    FilterError,
    UnsupportedExpressionError,
)
from trilake.expr import Expression, Filter, evaluate_all, parse_expression, parse_filter
from trilake.expr.terms.predicate import Opaque

#: Names of types and functions related to time, and prefixes of literals.
_OF_TIMES = re.compile(r"(?i)time|date|day|month|quarter|year|week|hour|minute|second|zone|unix|\bnow\b")


def may_depend_on_zone(sql: str, schema: StructType, columns: Iterable[str], result: DataType | None = None) -> bool:
    """Whether an expression over ``columns``, stored as ``result``, may read or create an instant.

    >>> schema = StructType(())
    >>> may_depend_on_zone("a + 1", schema, []), may_depend_on_zone("CAST(a AS TIMESTAMP)", schema, [])
    (False, True)
    """
    if _OF_TIMES.search(sql) or (result is not None and contains_type(result, "timestamp")):
        return True
    fields = (schema.find(name) for name in columns)
    return any(f is None or contains_type(f.type, "timestamp") for f in fields)


PREFIX = "delta.constraints."
#: delta-spark's error conditions for an invalid condition.
_CONDITIONS: Mapping[str | None, str] = {"DELTA_UNSUPPORTED_SUBQUERY": "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT"}
#: Error conditions that differ for the constraints of a new table.
OF_NEW_TABLE: Mapping[str | None, str] = {
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES"
}
INVARIANTS = "delta.invariants"


@dataclass(frozen=True)
class Check:
    """A condition on every row: a CHECK constraint, or a column invariant.

    ``condition`` is ``None`` if only Spark can evaluate ``sql``; ``filter`` is the same condition for Arrow's kernels,
    which are faster, if they can evaluate it.
    """

    kind: str
    name: str
    sql: str
    condition: Expression | None
    filter: Filter | None = None

    def violated_by(self, row: Mapping[str, Any]) -> ConstraintViolatedError:
        """The error for a row that violates the rule."""
        read = None if self.condition is None else self.condition.columns
        return ConstraintViolatedError(
            f"{self.kind} {self.name} ({shorten_string(self.sql, 300)}) violated by row with values:"
            f" {describe_row(row, read)}",
            help="fix or remove these rows; nothing was committed",
            constraint=self.name,
            condition="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
        )


def parse_check(kind: str, name: str, sql: str, schema: StructType, now: dt.datetime) -> Check:
    """Bind a condition to the columns of a table.

    Raises ``ExpressionError`` for an unknown column, and for an expression that is not a condition.
    """
    arrow = schema.to_arrow_schema()
    try:
        condition = parse_expression(sql, arrow, now=now)
    except UnsupportedExpressionError:
        return Check(kind, name, sql, None)
    except ExpressionError as e:
        raise ExpressionError(
            f"{kind} {name} ({shorten_string(sql, 300)}) cannot be evaluated: {e.message}",
            help=e.help,
            condition=_CONDITIONS.get(e.condition, e.condition),
        ) from e
    if not pa.types.is_boolean(condition.type) and not pa.types.is_null(condition.type):
        raise ExpressionError(
            f"{kind} {name} ({shorten_string(sql, 300)}) must be boolean, but is of type {condition.type}",
            condition="DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
        )
    try:
        filter = parse_filter(sql, arrow, now=now)
    except FilterError:  # the literal NULL is not a filter
        filter = None
    if filter is not None and any(isinstance(node, Opaque) for node in filter.predicate.walk()):
        filter = None  # it needs DuckDB
    return Check(kind, name, sql, condition, filter)


def table_checks(configuration: Mapping[str, str], schema: StructType, now: dt.datetime) -> tuple[Check, ...]:
    """All CHECK constraints and column invariants of a table.

    Raises ``CorruptLogError`` for a malformed invariant, and ``ExpressionError`` for a condition that does not fit the
    table.
    """
    checks = [
        parse_check("CHECK constraint", key[len(PREFIX) :], in_backquotes(sql, schema.names), schema, now)
        for key, sql in sorted(configuration.items())
        if key.startswith(PREFIX)
    ]
    for path, field in fields_in(schema):
        if INVARIANTS in field.metadata:
            checks.append(_invariant(path, field, schema, now))
    return tuple(checks)


@dataclass(frozen=True)
class RowSession:
    """The Spark session of the rows, which evaluates rules that DuckDB cannot, or with other results.

    If its time zone differs from UTC (``zoned``), it evaluates all that may depend on it.  Without ANSI mode
    (``lenient``), casts and arithmetic do not fail: it evaluates generated columns, and all checks but comparisons with
    constants of the column's type.
    """

    zoned: bool = False
    lenient: bool = False

    def depends_on_zone(
        self, sql: str, schema: StructType, columns: Iterable[str], result: DataType | None = None
    ) -> bool:
        """Whether an expression may differ because of the session's time zone; parameters as in
        :func:`may_depend_on_zone`."""
        return self.zoned and may_depend_on_zone(sql, schema, columns, result)


def checks_in_session(checks: tuple[Check, ...], schema: StructType, session: RowSession | None) -> tuple[Check, ...]:
    """The checks; those without a condition are for the session."""
    if session is None:
        return checks
    unknown = {c.name for c in identity_columns(schema)}  # to Spark, which cannot evaluate checks on them

    def differs(check: Check) -> bool:
        if check.condition is None:
            return False
        by_mode = check.filter is None or check.filter.assumes_ansi
        if session.lenient and by_mode and unknown.isdisjoint(check.condition.columns):
            return True
        return session.depends_on_zone(check.sql, schema, check.condition.columns)

    return tuple(replace(c, condition=None, filter=None) if differs(c) else c for c in checks)


def _invariant(path: tuple[str, ...], field: StructField, schema: StructType, now: dt.datetime) -> Check:
    name, raw = ".".join(path), field.metadata[INVARIANTS]
    try:
        sql = orjson.loads(raw)["expression"]["expression"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as e:
        raise CorruptLogError(f"the invariant of column {name} does not follow the protocol: {e}", column=name) from e
    if not isinstance(sql, str):
        raise CorruptLogError(f"the invariant of column {name} is empty: {str(sql)[:80]!r}", column=name)
    return parse_check("the invariant of column", name, sql, schema, now)


def verify_checks(checks: Sequence[Check], batch: pa.RecordBatch) -> None:
    """Raise ``ConstraintViolatedError`` if a row violates one of ``checks``, which must have conditions.

    Raises ``ExpressionError`` if a condition fails on a row.
    """
    values = iter(evaluate_all([c.condition for c in checks if c.filter is None and c.condition is not None], batch))
    for check in checks:
        reject_false(next(values) if check.filter is None else check.filter.evaluate(batch), batch, check)


def reject_false(holds: pa.ChunkedArray | pa.Array, batch: pa.RecordBatch, check: Check) -> None:
    """Raise ``ConstraintViolatedError`` for the first row of ``batch`` for which ``holds`` is not true."""
    if pa.types.is_null(holds.type):
        holds = holds.cast(pa.bool_())
    if holds.null_count == 0 and (pc.all(holds).as_py() in (True, None)):
        return
    at = pc.index(pc.fill_null(holds, False), pa.scalar(False)).as_py()
    raise check.violated_by(row_at(batch, at))


def verify_not_null(batch: pa.RecordBatch, schema: StructType) -> None:
    """Raise ``ConstraintViolatedError`` for a null that the schema of the batch's columns forbids.

    A field of a null struct has no value and violates nothing.
    """
    for f, column in zip(schema.fields, batch.columns, strict=True):
        violation = _violation(column, f.type, f.name, f.nullable)
        if violation is not None:
            path, at = violation
            raise ConstraintViolatedError(
                f"NOT NULL constraint violated for column: {path}, null in the row with"
                f" {describe_row(row_at(batch, at))}",
                help="fill the nulls or remove these rows; nothing was committed",
                constraint="NOT NULL",
                column=path,
                condition="DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            )


def forbids_null(type_: DataType) -> bool:
    """Whether some part of the type must not be null."""
    match type_:
        case ArrayType(_, contains_null=False) | MapType(_, _, value_contains_null=False):
            return True
        case StructType(fields) if any(not f.nullable for f in fields):
            return True
    return any(forbids_null(inner) for _, inner in parts(type_))


def _violation(
    values: pa.Array, type_: DataType, path: str, nullable: bool, parent: pa.Array | None = None
) -> tuple[str, int] | None:
    """Path and row of the first forbidden null among the values of a field, or inside them; ``None`` without one."""
    if not nullable and values.null_count > (0 if parent is None else parent.null_count):
        nulls = values.is_null()
        forbidden = nulls if parent is None else pc.and_(nulls, parent.is_valid())
        return path, int(pc.index(forbidden, True).as_py())
    return _first_null(values, type_, path) if forbids_null(type_) else None


def _first_null(array: pa.Array, type_: DataType, path: str) -> tuple[str, int] | None:
    if len(array) == 0 or pa.types.is_null(array.type):
        return None
    if isinstance(type_, StructType):
        for f, child in zip(type_.fields, array.flatten(), strict=True):
            violation = _violation(child, f.type, f"{path}.{f.name}", f.nullable, array)
            if violation is not None:
                return violation
        return None
    if isinstance(type_, ArrayType):
        return _in_parts(array, array.values, type_.element, f"{path}.element", type_.contains_null)
    if isinstance(type_, MapType):
        return _in_parts(array, array.keys, type_.key, f"{path}.key", True) or _in_parts(
            array, array.items, type_.value, f"{path}.value", type_.value_contains_null
        )
    return None


def _in_parts(array: pa.Array, parts: pa.Array, type_: DataType, path: str, nullable: bool) -> tuple[str, int] | None:
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    parts = parts.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    violation = _violation(parts, type_, path, nullable)
    if violation is None:
        return None
    row = int(np.searchsorted(offsets, int(offsets[0]) + violation[1], side="right")) - 1
    return violation[0], row


# --- CHECK constraints as written by deltalake, which puts names in double quotes -------------------------------------
# The protocol does not name a SQL dialect.  In Spark's, `"Price" >= 0` compares a string, so the rule would reject
# all rows or none.  deltalake (as of 1.6.6) normalises each condition before storing it: it quotes exactly the names
# that contain characters other than lower-case letters, digits and `_`, and never uses backquotes.

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")+\"""")
_PLAIN = re.compile("[a-z_][a-z0-9_]*")


def in_backquotes(sql: str, columns: Iterable[str]) -> str:
    """Put names in backquotes in a condition stored by deltalake; return any other condition unchanged.

    A condition counts as deltalake's if everything in double quotes is the name of a column that needs quotes, and no
    such column appears unquoted.

    >>> in_backquotes('"Unit price" >= 0 AND size > 1', ["Unit price", "size"])
    '`Unit price` >= 0 AND size > 1'
    >>> in_backquotes('Kind <> "Name"', ["Kind", "Name"])
    'Kind <> "Name"'
    """
    if '"' not in sql or "`" in sql or "\\" in sql:
        return sql
    special = {c for c in columns if not _PLAIN.fullmatch(c)}
    quoted = {_name(t) for t in _QUOTED.findall(sql) if t.startswith('"')}
    bare = set(re.findall(r"\w+", _QUOTED.sub(" ", sql).casefold()))
    if not quoted or not quoted <= special or bare & {c.casefold() for c in special}:
        return sql
    return _QUOTED.sub(lambda m: f"`{_name(m[0])}`" if m[0].startswith('"') else m[0], sql)


def _name(token: str) -> str:
    return token[1:-1].replace('""', '"')
