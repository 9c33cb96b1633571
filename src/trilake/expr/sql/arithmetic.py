"""Spark's arithmetic in DuckDB: type widening and errors.

In ANSI mode an overflow and a division by zero are errors.  DuckDB fails on overflow, too, though it may simplify an
expression until nothing overflows.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr.terms import literals
from trilake.expr.terms.casts import cast, digits_of
from trilake.expr.terms.duckdb_sql import Sql, fail

#: Types an expression with DuckDB.
Typed = Callable[[str], Sql]

OPERATORS: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "//",
}
_INTERVALS = {
    "year": "to_years({})",
    "month": "to_months({})",
    "week": "to_days(7 * {})",
    "day": "to_days({})",
    "hour": "to_hours({})",
    "minute": "to_minutes({})",
    "second": "to_seconds({})",
    "millisecond": "to_milliseconds({})",
    "microsecond": "to_microseconds({})",
}


def arithmetic(typed: Typed, operator: type[exp.Expression], left: Sql, right: Sql, *, safe: bool = False) -> Sql:
    """``left operator right`` for numbers, or a date and days; ``safe`` makes failures null."""
    if left.family == "date" and right.family == "integer" and operator in (exp.Add, exp.Sub):
        return Sql(f"({left.code} {OPERATORS[operator]} CAST({right.code} AS INTEGER))", "DATE")
    for side in (left, right):
        if not side.is_number and side.family != "void":
            raise FilterError(
                f"arithmetic with values of type {side.spark_type} is not supported in a filter",
                help="cast it to a number",
            )
    families = {left.family, right.family}
    if operator is exp.IntDiv and families - {"integer", "void"}:
        raise FilterError(
            f"DIV needs integers in a filter, got {left.spark_type} and {right.spark_type}",
            help="use /, or cast to bigint",
        )
    may_fail = operator in (exp.Div, exp.IntDiv, exp.Mod) and (right.digits is None or right.code.startswith("(0)"))
    if operator is exp.IntDiv or (operator is exp.Div and "decimal" not in families):
        target = "BIGINT" if operator is exp.IntDiv else "DOUBLE"
        left, right = cast(left, target), cast(right, target)
    elif families & {"float", "double"} and len(families - {"void"}) > 1:
        left, right = cast(left, "DOUBLE"), cast(right, "DOUBLE")
    elif "decimal" in families and operator is not exp.Div:
        left, right = _widened(left), _widened(right)

    def written(left: Sql, right: Sql) -> str:
        sql = f"({left.code} {OPERATORS[operator]} {right.code})"
        if operator is exp.Div and left.family != "double":
            sql = _decimal_division(left, right)
        if may_fail:
            zero = "NULL" if safe else f"(CASE WHEN {left.code} IS NOT NULL THEN {fail('division by zero')} END)"
            sql = f"(CASE WHEN {right.code} = 0 THEN {zero} ELSE {sql} END)"
        return f"TRY({sql})" if safe else sql

    # Find the type with short operands: typing the whole expression would take quadratic time for long sums.
    return Sql(written(left, right), typed(written(example(left), example(right))).type)


def example(value: Sql) -> Sql:
    """A short value of the same type."""
    return value if value.family == "void" else Sql(f"CAST(NULL AS {value.type})", value.type, value.digits)


def _decimal_division(left: Sql, right: Sql) -> str:
    """Divide decimals as Spark does, with a decimal rounded half up; doubles are exact enough for short ones."""
    (p1, s1), (p2, s2) = left.as_decimal, right.as_decimal
    scale = max(6, s1 + p2 + 1)
    whole = p1 - s1 + s2
    if p1 > 15 or p2 > 15 or whole + scale > 38:
        raise FilterError(
            f"a division of {left.spark_type} by {right.spark_type} cannot be used in a filter",
            help="cast both to double",
        )
    quotient = f"CAST({left.code} AS DOUBLE) / CAST({right.code} AS DOUBLE)"
    return f"CAST({digits_of(Sql(f'({quotient})', 'DOUBLE'))} AS DECIMAL({whole + scale},{scale}))"


def positive_modulo(typed: Typed, left: Sql, right: Sql) -> Sql:
    """``pmod``: the remainder with the sign of the divisor."""
    rest = arithmetic(typed, exp.Mod, left, right)
    if rest.family != "integer":
        raise FilterError(
            f"pmod needs integers in a filter, got {left.spark_type} and {right.spark_type}", help="use %"
        )
    n = cast(right, rest.type).code
    return typed(f"(CASE WHEN {rest.code} < 0 THEN ({rest.code} + {n}) % {n} ELSE {rest.code} END)")


def shift(value: Sql, interval: exp.Interval, *, negative: bool) -> Sql:
    """Add an interval to a date or timestamp; a date plus whole days stays a date."""
    unit = interval.text("unit").lower().rstrip("s")
    amount = literals.parse_integer(interval.this.name) if isinstance(interval.this, exp.Literal) else None
    if unit not in _INTERVALS or amount is None or value.family not in ("date", "timestamp"):
        raise FilterError(
            f"{interval.sql(dialect='databricks')} cannot be used with a value of type {value.spark_type} in a filter",
            help="add an integer number of a single unit to a date or timestamp",
        )
    amount = -amount if negative else amount
    keeps_date = value.family == "date" and unit in ("year", "month", "week", "day")
    step = _INTERVALS[unit].format(f"({amount})")
    return cast(Sql(f"(CAST({value.code} AS TIMESTAMP) + {step})", "TIMESTAMP"), "DATE" if keeps_date else "TIMESTAMP")


def _widened(value: Sql) -> Sql:
    """Widen a decimal for the result: DuckDB computes in 64 bits if both operands have up to 18 digits."""
    if value.family == "void":
        return value
    precision, scale = value.as_decimal
    return cast(value, f"DECIMAL({max(precision, 19)},{scale})")
