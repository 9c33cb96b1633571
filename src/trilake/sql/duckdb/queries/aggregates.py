"""Spark's functions over several rows, as DuckDB's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from trilake.common.text import single_quoted
from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.literals import Literal
from trilake.expr.terms.nested_order import order_key
from trilake.sql.duckdb.queries.decimals import average, spark_decimal

#: A whole number of the text.
_ONE = re.compile(r"\(\d+\)::INTEGER")


class Constants(Protocol):
    """Who says what a constant argument is."""

    def constant(self, node: exp.Expression) -> Literal | None:
        """The value of a constant node."""


@dataclass(frozen=True)
class Aggregate:
    """One call of such a function.

    Parameters
    ----------
    name: in lower case.
    args: the arguments.
    nodes: the arguments as they were parsed.
    translator: says what constants are.
    distinct: whether equal values count once.
    ignore_nulls: whether ``IGNORE NULLS`` stands behind it.
    where: the condition of its ``FILTER``.
    order: the keys of its ``WITHIN GROUP (ORDER BY ...)``, and whether each goes down.
    over: its window, with ``OVER``; empty for none.
    star: whether its argument is a star.
    wide: whether decimals are computed in 128 bits from the start.
    """

    name: str
    args: tuple[Sql, ...]
    nodes: tuple[exp.Expression, ...]
    translator: Constants
    distinct: bool = False
    ignore_nulls: bool = False
    where: str | None = None
    order: tuple[tuple[Sql, bool], ...] = ()
    over: str = ""
    star: bool = False
    wide: bool = False

    def of(self, call: str, also: str | None = None) -> str:
        """DuckDB's call, with the filter, another condition and the window."""
        conditions = [c for c in (self.where, also) if c]
        only = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
        return f"{call}{only}{self.over}"

    @property
    def unique(self) -> str:
        """The word in front of the argument."""
        return "DISTINCT " if self.distinct else ""

    def arg(self, index: int = 0) -> Sql:
        """An argument.  Raises ``InvalidArgumentError`` where it is missing."""
        if index >= len(self.args):
            raise InvalidArgumentError(
                f"{self.name} takes more than {len(self.args)} arguments", condition="WRONG_NUM_ARGS.WITHOUT_SUGGESTION"
            )
        return self.args[index]

    def number(self, index: int = 0) -> str:
        """A numeric argument as a double.  Raises ``FilterError`` for another one."""
        value = self.arg(index)
        if not value.is_number and value.family not in ("void", "string"):
            raise FilterError(f"{self.name} of a value of type {value.spark_type}", help="cast it to a number")
        return cast(value, "DOUBLE").text

    def constant(self, index: int) -> object:
        """The value of a constant argument.  Raises ``FilterError`` for another one."""
        literal = self.translator.constant(self.nodes[index])
        if literal is None:
            raise FilterError(f"argument {index + 1} of {self.name} must be a constant")
        return literal.value

    @property
    def skips_nulls(self) -> bool:
        """Whether nulls are left out, by ``IGNORE NULLS`` or by a second argument."""
        return self.ignore_nulls or (len(self.args) > 1 and self.constant(1) is True)


Handler = Callable[[Aggregate], Sql]


def _count(a: Aggregate) -> Sql:
    if a.star or (len(a.args) == 1 and not a.distinct and _ONE.fullmatch(a.args[0].text)):
        return Sql(a.of("count(*)"), "BIGINT")
    texts = [x.text for x in a.args] or [a.arg().text]
    present = " AND ".join(f"{t} IS NOT NULL" for t in texts)
    if not a.distinct:
        return Sql(a.of(f"count({texts[0]})") if len(texts) == 1 else a.of("count(*)", present), "BIGINT")
    if len(texts) == 1:
        return Sql(a.of(f"count(DISTINCT {texts[0]})"), "BIGINT")
    return Sql(a.of(f"count(DISTINCT ({', '.join(texts)}))", present), "BIGINT")


def _sum(a: Aggregate) -> Sql:
    x = a.arg()
    if x.family == "decimal":
        precision, scale = x.as_decimal
        return Sql(a.of(f"sum({a.unique}{x.text})"), f"DECIMAL(38,{scale})", decimal=(min(38, precision + 10), scale))
    if x.family == "integer":
        return Sql(f"CAST({a.of(f'sum({a.unique}{x.text})')} AS BIGINT)", "BIGINT")
    return Sql(a.of(f"sum({a.unique}{a.number()})"), "DOUBLE")


def _avg(a: Aggregate) -> Sql:
    x = a.arg()
    if x.family == "decimal":
        total, count = (a.of(f"{f}({a.unique}{x.text})") for f in ("sum", "count"))
        return average(total, count, x.as_decimal, wide=a.wide)
    return Sql(a.of(f"avg({a.unique}{a.number()})"), "DOUBLE")


def _extreme(name: str) -> Handler:
    def handle(a: Aggregate) -> Sql:
        x = a.arg()
        if not x.has_order:
            raise FilterError(f"{name} of values of type {x.spark_type}, which have no order")
        key = order_key(x)
        call = f"{name}({x.text})" if key == x.text else f"arg_{name}({x.text}, {key})"
        return Sql(a.of(call), x.type, decimal=x.decimal)

    return handle


def _first(name: str) -> Handler:
    def handle(a: Aggregate) -> Sql:
        x = a.arg()
        if a.over:
            nulls = " IGNORE NULLS" if a.skips_nulls else ""
            return Sql(a.of(f"{name}_value({x.text}{nulls})"), x.type, decimal=x.decimal)
        also = f"{x.text} IS NOT NULL" if a.skips_nulls else None
        return Sql(a.of(f"{name}({x.text})", also), x.type, decimal=x.decimal)

    return handle


def _collected(a: Aggregate) -> Sql:
    x = spark_decimal(a.arg())
    unique = "DISTINCT " if a.distinct or a.name == "collect_set" else ""
    kind = f"{x.type}[]"
    return Sql(f"coalesce({a.of(f'list({unique}{x.text})', f'{x.text} IS NOT NULL')}, CAST([] AS {kind}))", kind)


def _condition(template: str, result: str) -> Handler:
    def handle(a: Aggregate) -> Sql:
        if a.arg().family not in ("boolean", "void"):
            raise FilterError(f"{a.name} of a value of type {a.arg().spark_type}, not of a condition")
        if template == "count":
            return Sql(a.of("count(*)", a.arg().text), result)
        return Sql(a.of(f"{template}({a.arg().text})"), result)

    return handle


def _statistic(name: str, arguments: int = 1) -> Handler:
    def handle(a: Aggregate) -> Sql:
        numbers = ", ".join(a.number(i) for i in range(arguments))
        return Sql(a.of(f"{name}({a.unique}{numbers})"), "DOUBLE")

    return handle


def _correlation(a: Aggregate) -> Sql:
    numbers = f"{a.number(0)}, {a.number(1)}"
    varies = " AND ".join(f"{a.of(f'{f}({numbers})')} <> 0" for f in ("regr_sxx", "regr_syy"))
    return Sql(f"(CASE WHEN {varies} THEN {a.of(f'corr({numbers})')} END)", "DOUBLE")


def _quantile(a: Aggregate) -> Sql:
    """``percentile`` and ``median``: between two values, where none is at the place."""
    if a.name == "median":
        return Sql(a.of(f"quantile_cont({a.number()}, 0.5)"), "DOUBLE")
    if len(a.args) > 2:
        raise FilterError(f"{a.name} with frequencies is not known here")
    many = a.arg(1).family == "array"
    return Sql(a.of(f"quantile_cont({a.number()}, {_place(a, 1)})"), "DOUBLE[]" if many else "DOUBLE")


def _place(a: Aggregate, index: int) -> str:
    """A place between 0 and 1, or an array of such, which DuckDB wants as a constant."""
    node = a.nodes[index]
    nodes = list(node.expressions) if a.args[index].family == "array" else [node]
    places = [literal.value for n in nodes if (literal := a.translator.constant(n)) is not None]
    if len(places) != len(nodes) or not all(0 <= float(str(p)) <= 1 for p in places):
        raise FilterError(f"{a.name} needs constant places between 0 and 1")
    shown = [f"{float(str(p))!r}::DOUBLE" for p in places]
    return f"[{', '.join(shown)}]" if a.args[index].family == "array" else shown[0]


def _ordered_quantile(a: Aggregate) -> Sql:
    """``percentile_cont`` and ``percentile_disc`` with ``WITHIN GROUP``."""
    if len(a.order) != 1:
        raise FilterError(f"{a.name} needs WITHIN GROUP (ORDER BY ...) of one value")
    value, down = a.order[0]
    if not value.is_number:
        raise FilterError(f"{a.name} of values of type {value.spark_type}")
    direction = "DESC" if down else "ASC"
    call = f"{a.name}({_place(a, 0)}) WITHIN GROUP (ORDER BY {cast(value, 'DOUBLE').text} {direction})"
    return Sql(a.of(call), "DOUBLE")


def _approximate_quantile(a: Aggregate) -> Sql:
    """``percentile_approx``: the exact one of the values, which is as near as an approximation can be."""
    x = a.arg()
    many = a.arg(1).family == "array"
    if not x.is_number and x.family not in ("date", "timestamp"):
        raise FilterError(f"{a.name} of values of type {x.spark_type}")
    return Sql(a.of(f"quantile_disc({x.text}, {_place(a, 1)})"), f"{x.type}[]" if many else x.type)


def _by(name: str) -> Handler:
    return lambda a: Sql(a.of(f"{name}({a.arg(0).text}, {order_key(a.arg(1))})"), a.arg(0).type)


def _bits(name: str) -> Handler:
    def handle(a: Aggregate) -> Sql:
        if a.arg().family != "integer":
            raise FilterError(f"{a.name} of values of type {a.arg().spark_type}, not of integers")
        return Sql(a.of(f"{name}({a.arg().text})"), a.arg().type)

    return handle


def _texts(a: Aggregate) -> Sql:
    """``listagg`` and ``string_agg``."""
    x = a.arg()
    if x.family not in ("string", "void"):
        raise FilterError(f"{a.name} of values of type {x.spark_type}, not of texts", help="cast it to string")
    separator = a.constant(1) if len(a.args) > 1 else ""
    keys = ", ".join(f"{order_key(k)} {'DESC NULLS LAST' if down else 'ASC NULLS FIRST'}" for k, down in a.order)
    order = f" ORDER BY {keys}" if keys else ""
    return Sql(a.of(f"string_agg({a.unique}{x.text}, {single_quoted(str(separator or ''))}{order})"), "VARCHAR")


def _grouping(a: Aggregate) -> Sql:
    if not a.args:
        raise FilterError(f"{a.name} without columns is not known here", help="name the columns of GROUP BY")
    kind = "TINYINT" if a.name == "grouping" else "BIGINT"
    return Sql(f"CAST(grouping({', '.join(x.text for x in a.args)}) AS {kind})", kind)


#: By lower-case name.
AGGREGATES: Mapping[str, Handler] = {
    "count": _count,
    "count_if": _condition("count", "BIGINT"),
    "sum": _sum,
    **dict.fromkeys(("avg", "mean"), _avg),
    "min": _extreme("min"),
    "max": _extreme("max"),
    **dict.fromkeys(("first", "first_value", "any_value"), _first("first")),
    **dict.fromkeys(("last", "last_value"), _first("last")),
    **dict.fromkeys(("collect_list", "array_agg", "collect_set"), _collected),
    **dict.fromkeys(("bool_and", "every"), _condition("bool_and", "BOOLEAN")),
    **dict.fromkeys(("bool_or", "some", "any"), _condition("bool_or", "BOOLEAN")),
    **dict.fromkeys(("stddev", "std", "stddev_samp"), _statistic("stddev_samp")),
    "stddev_pop": _statistic("stddev_pop"),
    **dict.fromkeys(("variance", "var_samp"), _statistic("var_samp")),
    "var_pop": _statistic("var_pop"),
    "kurtosis": _statistic("kurtosis_pop"),
    "corr": _correlation,
    "covar_pop": _statistic("covar_pop", 2),
    "covar_samp": _statistic("covar_samp", 2),
    **dict.fromkeys(("percentile", "median"), _quantile),
    **dict.fromkeys(("percentile_cont", "percentile_disc"), _ordered_quantile),
    **dict.fromkeys(("percentile_approx", "approx_percentile"), _approximate_quantile),
    "approx_count_distinct": lambda a: Sql(a.of(f"count(DISTINCT {a.arg().text})"), "BIGINT"),
    "mode": lambda a: Sql(a.of(f"mode({a.arg().text})"), a.arg().type),
    "max_by": _by("arg_max_null"),
    "min_by": _by("arg_min_null"),
    **{name: _bits(name) for name in ("bit_and", "bit_or", "bit_xor")},
    **dict.fromkeys(("listagg", "string_agg"), _texts),
    **dict.fromkeys(("grouping", "grouping_id"), _grouping),
}
