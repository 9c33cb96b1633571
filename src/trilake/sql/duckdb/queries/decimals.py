"""Spark's decimals in DuckDB: the type of each result, and quotients and averages, exact until they are rounded.

DuckDB computes products and sums exactly and keeps them in types of its own; the type that Spark gives them goes along,
and rounds where Spark has fewer digits (SPARK-22036: a result wider than 38 digits keeps at least 6 behind the point).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr.sql.arithmetic import OPERATORS
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql, common_decimal, decimal_parameters, fail

_MOST, _LEAST_SCALE = 38, 6
#: Digits that fit into 64 bits: DuckDB keeps a product of two such numbers there, and fails where it does not fit.
_SHORT = 18
#: A number that stands in the text of a query.
_CONSTANT = re.compile(r"CAST\('-?([\d.]+)' AS DECIMAL\(\d+,\d+\)\)|\(-?(\d+)\)::\w+")


def adjusted(precision: int, scale: int) -> tuple[int, int]:
    """The type that Spark gives a result of so many digits.

    >>> adjusted(20, 4), adjusted(77, 38)
    ((20, 4), (38, 6))
    """
    if precision <= _MOST:
        return precision, scale
    return _MOST, max(_MOST - (precision - scale), min(scale, _LEAST_SCALE))


def decimal_arithmetic(operator: type[exp.Expression], left: Sql, right: Sql, *, wide: bool, safe: bool = False) -> Sql:
    """``left operator right``, of which one is a decimal and the other one or an integer.

    ``wide`` computes in 128 bits from the start; without it DuckDB fails where a product does not fit into 64.
    """
    (p1, s1), (p2, s2) = left.as_decimal, right.as_decimal
    if operator in (exp.Add, exp.Sub):
        scale = max(s1, s2)
        found = adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    elif operator is exp.Mul:
        scale = s1 + s2
        found = adjusted(p1 + p2 + 1, scale)
    elif operator is exp.Mod:
        scale = max(s1, s2)
        found = adjusted(min(p1 - s1, p2 - s2) + scale, scale)
    elif operator is exp.Div:
        scale = max(_LEAST_SCALE, s1 + p2 + 1)
        found = adjusted(p1 - s1 + s2 + scale, scale)
    else:
        raise FilterError("DIV of other numbers than integers cannot be used in a query", help="use / and floor")
    if operator is exp.Div:
        digits = found[1] + s2 - s1
        text = quotient(_unscaled(left), _unscaled(right), digits, found, wide=wide or safe)
        kind = f"DECIMAL{_shown(found)}"
    else:
        x, y = (_decimal(side, wide) for side in (left, right))
        kind = _natural(operator, x, y)
        text = f"({x.text} {OPERATORS[operator]} {y.text})"
        if scale > found[1]:
            kind = f"DECIMAL{_shown(found)}"
            text = f"CAST({text} AS {kind})"
    if operator in (exp.Div, exp.Mod) and not _is_other_than_zero(right):
        missing = "NULL" if safe else fail("division by zero")
        text = f"(CASE WHEN {right.text} = 0 THEN {missing} ELSE {text} END)"
    return Sql(f"TRY({text})" if safe else text, kind, decimal=found)


def quotient(dividend: str, divisor: str, digits: int, found: tuple[int, int], *, wide: bool) -> str:
    """The quotient of two numbers of 128 bits, of which the first is taken 10 to the power of ``digits`` times.

    It is rounded half away from zero, and has the type ``found``, whose scale is the last digit's place.  Without
    ``wide`` DuckDB fails where one digit more than the type has makes 39.
    """
    if digits < 0:
        divisor, digits = f"({divisor} * {10**-digits}::HUGEINT)", 0
    more = f"({dividend} * {10 ** (digits + 1)}::HUGEINT) // {divisor}"  # one digit more, by which it is rounded
    if found[1] < _MOST - 1 and not (wide and found[0] == _MOST):
        return _rounded(more, min(found[0] + 1, _MOST), found)
    return scaled(_half_away(more), found)


def _half_away(whole: str) -> str:
    """A whole number without its last digit, by which it is rounded."""
    return f"(({whole}) + (CASE WHEN ({whole}) < 0 THEN -5 ELSE 5 END)) // 10::HUGEINT"


def _rounded(whole: str, precision: int, found: tuple[int, int]) -> str:
    """A whole number of so many digits as a decimal, of whose digits it has one more, by which it is rounded.

    DuckDB rounds half away from zero where it takes digits from a decimal.
    """
    unit = f"0.{'1'.rjust(found[1] + 1, '0')}"
    return f"CAST((CAST({whole} AS DECIMAL({precision},0)) * {unit}) AS DECIMAL{_shown(found)})"


def scaled(whole: str, found: tuple[int, int]) -> str:
    """A number of 128 bits as a decimal, of whose digits it has all."""
    precision, scale = found
    kind = f"DECIMAL({precision},{scale})"
    if not scale:
        return f"CAST({whole} AS {kind})"
    power = f"{10**scale}::HUGEINT"
    unit = f"CAST('0.{'1'.rjust(scale, '0')}' AS DECIMAL({scale},{scale}))"
    if precision + scale <= _MOST:
        return f"CAST((CAST({whole} AS DECIMAL({precision},0)) * {unit}) AS {kind})"
    part = f"(CAST(({whole}) % {power} AS DECIMAL({scale},0)) * {unit})"
    return f"CAST((CAST(({whole}) // {power} AS DECIMAL({max(precision - scale, 1)},0)) + {part}) AS {kind})"


def average(total: str, count: str, of: tuple[int, int], *, wide: bool) -> Sql:
    """Spark's average of decimals, from DuckDB's sum and count of them: four digits more behind the point.

    The sum is null where the count is 0, and with it the average.  Sums of which 64 bits hold all digits are divided
    there: in 128 bits DuckDB 2.0 takes 0.8 microseconds for each.  ``wide`` divides sums of any length.
    """
    precision, scale = of
    found = min(precision + 4, _MOST), min(scale + 4, _MOST)
    kind, digits = f"DECIMAL{_shown(found)}", found[1] - scale
    if wide:
        rest = f"({_digits(total)} % {count}) * {10 ** (digits + 1)}::HUGEINT // {count}"
        whole = f"({_digits(total)} // {count}) * {10**digits}::HUGEINT + {_half_away(rest)}"
        return Sql(scaled(whole, found), kind, decimal=found)
    # There are fewer than 10 to the power of 19 rows.
    whole = _whole(total, _MOST, scale) if precision + 19 + scale <= _MOST else _digits(total)
    text = quotient(whole, count, digits, found, wide=False)
    short = min(_SHORT - scale, _SHORT - 1 - digits)
    if short > scale:
        few = _whole(f"TRY_CAST({total} AS DECIMAL({short},{scale}))", short, scale, "BIGINT")
        quick = _rounded(f"({few} * {10 ** (digits + 1)}) // {count}", _SHORT, found)
        text = f"coalesce({quick}, {text})"
    return Sql(text, kind, decimal=found)


def decimal_of(values: Sequence[Sql]) -> tuple[int, int] | None:
    """Spark's type of decimals and integers together; ``None`` without a decimal, or with values of other types."""
    known = [v for v in values if v.family != "void"]
    families = {v.family for v in known}
    if "decimal" not in families or families - {"decimal", "integer"}:
        return None
    return common_decimal([decimal_parameters(v.type) if v.decimal is None else v.decimal for v in known])


def spark_decimal(value: Sql) -> Sql:
    """A decimal in the type that Spark gives it."""
    if value.family != "decimal" or value.decimal is None or value.decimal == decimal_parameters(value.type):
        return value
    kind = f"DECIMAL{_shown(value.decimal)}"
    return Sql(f"CAST({value.text} AS {kind})", kind)


def _decimal(value: Sql, wide: bool) -> Sql:
    if value.family == "integer":
        value = cast(value, f"DECIMAL{_shown(value.as_decimal)}")
    precision, scale = decimal_parameters(value.type)
    return cast(value, f"DECIMAL({max(precision, _SHORT + 1)},{scale})") if wide else value


def _natural(operator: type[exp.Expression], left: Sql, right: Sql) -> str:
    """The type that DuckDB gives a sum, a product or a remainder."""
    (p1, s1), (p2, s2) = decimal_parameters(left.type), decimal_parameters(right.type)
    both_short = max(p1, p2) <= _SHORT
    if operator is exp.Mul:
        scale, precision = s1 + s2, p1 + p2
        if scale > _MOST:
            raise FilterError(f"a product of {left.spark_type} and {right.spark_type} has too many digits for a query")
        most = _SHORT if both_short and scale < _SHORT else _MOST
    elif operator is exp.Mod:
        scale = max(s1, s2)
        precision, most = max(p1 - s1, p2 - s2) + scale, _MOST
        if precision > _MOST:  # which DuckDB computes as doubles
            raise FilterError(
                f"a remainder of {left.spark_type} and {right.spark_type} has too many digits for a query"
            )
    else:
        scale = max(s1, s2)
        precision, most = max(p1 - s1, p2 - s2) + scale + 1, _MOST
    return f"DECIMAL({min(precision, most)},{scale})"


def _unscaled(value: Sql) -> str:
    """The digits of a number as one of 128 bits."""
    if value.family == "integer":
        return f"{value.text}::HUGEINT"
    precision, scale = decimal_parameters(value.type)
    return _whole(value.text, precision, scale) if precision + scale < _MOST else _digits(value.text)


def _whole(decimal: str, precision: int, scale: int, kind: str = "HUGEINT") -> str:
    """The digits of a decimal, which with ``scale`` more of them is within DuckDB's own limit."""
    if not scale:
        return f"CAST({decimal} AS {kind})"
    fits = precision > _SHORT or precision + scale <= _SHORT
    power = f"{10**scale}" if fits else f"CAST({10**scale} AS DECIMAL({_SHORT + 1},0))"
    return f"CAST({decimal} * {power} AS {kind})"


def _is_other_than_zero(value: Sql) -> bool:
    """Whether a number is a constant of the query, and not 0."""
    constant = _CONSTANT.fullmatch(value.text)
    return constant is not None and bool((constant[1] or constant[2]).strip("0."))


def _digits(decimal: str) -> str:
    return f"CAST(replace(CAST({decimal} AS VARCHAR), '.', '') AS HUGEINT)"


def _shown(parameters: tuple[int, int]) -> str:
    return f"({parameters[0]},{parameters[1]})"
