"""Translate a Spark SQL expression, and distinguish invalid expressions from unsupported ones."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from sqlglot import exp

from trilake.errors import ExpressionError, FilterError, UnsupportedExpressionError
from trilake.expr.sql.dialect import IN_BACKQUOTES, column_names, string_as_name, to_spark_sql
from trilake.expr.sql.functions import AGGREGATES, NON_DETERMINISTIC, Function
from trilake.expr.sql.parse import MAX_LENGTH, is_unicode, parse_tree, shorten, too_deep, with_room
from trilake.expr.sql.translate import Translator, is_name, plain
from trilake.expr.terms import bind
from trilake.expr.terms.datatypes import Path
from trilake.expr.terms.duckdb_sql import Sql

#: Replacements in the translator's errors, which speak of filters.
_WORDS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r" in a filter\b| in filters\b", " here"),
        (r"\bthe filter\b", "it"),
        (r"\b(?:a filter|filters) (can|compute)s?", r"the engine here \1"),
    )
]
_ONE_ROW = "an expression sees one row at a time"


#: Functions that return instants.
_INSTANTS = frozenset(
    ("date_trunc", "to_timestamp", "timestamp", "timestamp_micros", "timestamp_millis", "timestamp_seconds", "now")
)


@dataclass(frozen=True)
class Scalar:
    """A translated expression: the paths that it reads, its column if it is one, and whether it creates instants."""

    sql: Sql
    paths: tuple[Path, ...]
    column: Path | None
    instants: bool


#: Functions that take a unit of time before two values.
_WITH_UNITS = ("timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff")


def translate_scalar(
    source: str,
    schema: pa.Schema,
    *,
    case_sensitive: bool,
    now: dt.datetime,
    functions: Mapping[str, Function] | None = None,
) -> Scalar:
    """Translate an expression.

    Raises what :func:`trilake.expr.parse_expression` raises.
    """
    if not source.strip() or len(source) > MAX_LENGTH or not is_unicode(source):
        raise ExpressionError(
            "the expression is empty, longer than 1 MB, or not valid Unicode",
            help='an expression is Spark SQL such as "year(day)"',
        )

    def build() -> Scalar:
        root = parse_tree(source, column_names(schema))
        _check(root, schema, case_sensitive)
        translator = Translator(schema, case_sensitive=case_sensitive, now=now, functions=functions)
        column = translator.column(root)
        sql, paths = translator.scalar(root)
        nodes = cast(Iterator[exp.Expression], root.find_all(exp.Cast, exp.Anonymous))
        instants = any(
            node.to.this.value in ("TIMESTAMPTZ", "TIMESTAMPLTZ")
            if isinstance(node, exp.Cast)
            else node.name.lower() in _INSTANTS
            for node in nodes
        )
        return Scalar(sql, paths, None if column is None else column.path, instants)

    try:
        try:
            return with_room(build)
        except RecursionError:
            raise too_deep(source) from None
    except FilterError as error:
        reason = error.message
        for pattern, word in _WORDS:
            reason = pattern.sub(word, reason)
        if "one row at a time" in (error.help or ""):  # a subquery or a window function
            raise ExpressionError(reason, help=_ONE_ROW) from error
        where: dict[str, Any] = {k: v for k, v in error.context.items() if k in ("column", "line", "position", "near")}
        raise UnsupportedExpressionError(f"only Spark can evaluate {shorten(source)}: {reason}", **where) from error


def _check(root: exp.Expression, schema: pa.Schema, case_sensitive: bool) -> None:
    if string := string_as_name(root):
        raise ExpressionError(f"{string} is a string, not a name", help=IN_BACKQUOTES)
    for node in root.find_all(exp.Anonymous):
        name = node.name.lower()
        if name in AGGREGATES:
            raise ExpressionError(
                f"{node.name} is an aggregate function", help=_ONE_ROW, condition="INVALID_WHERE_CONDITION"
            )
        if name in NON_DETERMINISTIC:
            raise ExpressionError(
                f"{node.name} is not deterministic",
                help="an expression must return the same value each time",
                condition="INVALID_NON_DETERMINISTIC_EXPRESSIONS",
            )
    for name_node in cast(Iterator[exp.Column | exp.Dot], root.find_all(exp.Column, exp.Dot)):
        inside = isinstance(name_node.parent, exp.Dot) and name_node.parent.this is name_node
        in_lambda = name_node.find_ancestor(exp.Lambda) is not None
        if inside or in_lambda or not is_name(name_node) or _is_unit(name_node):
            continue
        try:
            bind.resolve(tuple(p.name for p in name_node.parts), schema, case_sensitive=case_sensitive)
        except FilterError as error:
            raise ExpressionError(
                error.message, help=error.help, expression=to_spark_sql(plain(root)), condition=error.condition
            ) from error


def _is_unit(node: exp.Expression) -> bool:
    """Whether a name is the unit of time in a call such as ``timestampdiff(MONTH, a, b)``."""
    call = node.parent
    return (
        isinstance(call, exp.Anonymous)
        and call.name.lower() in _WITH_UNITS
        and len(call.expressions) == 3
        and call.expressions[0] is node
    )
