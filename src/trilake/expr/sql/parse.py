"""Parse Spark SQL: a condition into a predicate tree, and any expression into DuckDB's SQL.

Comparisons of a column with a constant become leaves of the tree; everything else becomes opaque DuckDB expressions
(:mod:`trilake.expr.sql.translate`).
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar, cast

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError, TokenError

from trilake.common.lru_cache import LruCache
from trilake.errors import ExpressionError, FilterError, UnsupportedExpressionError
from trilake.expr.sql.dialect import (
    IN_BACKQUOTES,
    column_names,
    mistaken_string,
    parse,
    string_as_name,
    string_for_column,
    to_spark_sql,
)
from trilake.expr.sql.functions import AGGREGATES, FUNCTIONS, NON_DETERMINISTIC, Function
from trilake.expr.sql.strings import like_parts
from trilake.expr.sql.translate import COMPARISONS, MORE_IN_SPARK, Translator, is_name, operands, plain
from trilake.expr.terms import bind
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.bind import Column
from trilake.expr.terms.datatypes import Path
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.evaluate import Rows, evaluate
from trilake.expr.terms.literals import NULL, TRUE, Kind, Literal, days_from_civil, parse_date
from trilake.expr.terms.predicate import (
    MIRRORED,
    Conjunct,
    Constant,
    IsNull,
    Not,
    Opaque,
    Predicate,
    all_of,
    any_of,
    joined_equalities,
)

#: Longest filter.
MAX_LENGTH = 1_000_000
#: Most conditions for DuckDB, which takes milliseconds to plan each.
MAX_OPAQUE = 2_000
#: Recursion limit and stack bytes for deeply nested filters.
_DEEP_CALLS, _DEEP_STACK = 5_000, 1 << 26
#: Recent conditions that do not depend on the time, with their schemas, as parsing takes longer than a small scan.
_PARSED = LruCache(256, 1 << 16)

Built = TypeVar("Built")


def parse_sql(
    sql: str,
    schema: pa.Schema,
    *,
    case_sensitive: bool,
    now: dt.datetime,
    functions: Mapping[str, Function] | None = None,
) -> tuple[Conjunct, ...]:
    """The conjuncts of a Spark SQL condition over the columns of ``schema``.

    ``now`` is the value of ``current_timestamp()`` and ``current_date()``; ``functions`` must be a module constant, as
    the cache compares it by ``id``.  Raises :class:`FilterError`.
    """
    key = sql, case_sensitive, id(functions)
    recent: tuple[pa.Schema, tuple[Conjunct, ...]] | None = _PARSED.get(key)
    if recent is not None and recent[0].equals(schema, check_metadata=True):
        return recent[1]
    translator = Translator(schema, case_sensitive=case_sensitive, now=now, functions=functions)
    parsed = _parsed(sql, translator)
    if not translator.timed:
        _PARSED.put(key, (schema, parsed), len(sql))
    return parsed


def _parsed(sql: str, translator: Translator) -> tuple[Conjunct, ...]:
    if len(sql) > MAX_LENGTH:
        raise FilterError(
            f"the filter is {len(sql):,} characters long, and the limit is {MAX_LENGTH:,}",
            help="a pyarrow expression is faster for a long list: pc.field('x').isin(values); or join with them",
        )
    if not is_unicode(sql):
        raise FilterError("the filter is not valid Unicode", help="remove the lone surrogate")

    names, builder = column_names(translator.schema), _Builder(translator)

    def build() -> tuple[Conjunct, ...]:
        root = parse_tree(sql, names)
        if (constant := string_for_column(root, sql, names)) is not None:
            raise FilterError(mistaken_string(constant), help=IN_BACKQUOTES)
        return tuple(builder.conjunct(part) for part in conjuncts(root))

    try:
        return with_room(build)
    except RecursionError:
        raise too_deep(sql) from None


def is_unicode(sql: str) -> bool:
    """Whether a string has no lone surrogate."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True


_room_lock = threading.Lock()


def with_room(build: Callable[[], Built]) -> Built:
    """Call ``build``, with a deeper stack if needed: sqlglot needs about twenty calls per level.

    Raises ``RecursionError`` if that is not enough.
    """
    try:
        return build()
    except RecursionError:
        pass
    with _room_lock, ThreadPoolExecutor(1) as pool:
        limit, stack = sys.getrecursionlimit(), threading.stack_size(_DEEP_STACK)
        sys.setrecursionlimit(max(limit, _DEEP_CALLS))
        try:
            return pool.submit(build).result()
        finally:
            sys.setrecursionlimit(limit)
            threading.stack_size(stack)


def too_deep(sql: str) -> FilterError:
    """The error for a filter that is nested more deeply than :func:`with_room` allows."""
    return FilterError(
        f"the filter is nested too deeply: the limit is about {_DEEP_CALLS // 25} levels of parentheses and calls",
        help="write long chains of OR as IN, and compute parts as columns first",
        filter=shorten(sql),
    )


def parse_tree(sql: str, names: frozenset[str] = frozenset()) -> exp.Expression:
    """Parse a string with sqlglot; ``names`` are the column names in lower case.

    Raises :class:`FilterError` for a syntax error.
    """
    if not sql.strip():
        raise FilterError("the filter is empty", help="pass None to keep all rows")
    try:
        return parse(sql, names)
    except TokenError as error:
        unclosed = re.match(r"Missing (\S+) from", str(error.__cause__))
        raise FilterError(
            f"the filter cannot be parsed: {unclosed[1] if unclosed else 'a quote'} is not closed",
            help="write a quote inside a string as \\'",
            filter=shorten(sql),
        ) from error
    except SqlglotError as error:
        details = (getattr(error, "errors", None) or [{}])[0]
        words = str(details.get("description") or str(error).splitlines()[0])
        words = re.sub(
            r"Required keyword: '\w+' missing for <class '[^']*'>", "an operand or argument is missing", words
        )
        words = re.sub(r"^Expecting (\S+)$", r"expected \1", words)
        raise FilterError(
            f"the filter cannot be parsed: {words}",
            help="a filter is a Spark SQL condition such as \"x > 5 AND name LIKE 'a%'\"",
            line=details.get("line"),
            position=details.get("col"),
            near=details.get("highlight"),
            filter=shorten(sql),
        ) from error


def shorten(sql: str) -> str:
    """At most 200 characters of a string, for messages."""
    return sql if len(sql) <= 200 else sql[:197] + "..."


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    """The conditions joined by AND, at any depth."""
    node = plain(node)
    if isinstance(node, exp.And):
        return [leaf for part in operands(node) for leaf in conjuncts(part)]
    return [node]


class _Builder:
    """Build the tree of a filter."""

    def __init__(self, translator: Translator) -> None:
        self.translator, self.column, self.literal = translator, translator.column, translator.constant
        self.opaque = 0

    def conjunct(self, node: exp.Expression) -> Conjunct:
        self.translator.instants = False
        predicate = self.predicate(node)
        return Conjunct(to_spark_sql(node), predicate, self.translator.instants)

    def predicate(self, node: exp.Expression) -> Predicate:
        node = plain(node)
        match node:
            case exp.And():
                return all_of([self.predicate(part) for part in operands(node)])
            case exp.Or():
                return any_of(joined_equalities([self.predicate(part) for part in operands(node)]))
            case exp.Not():
                inner = self.predicate(node.this)
                return inner.part if isinstance(inner, Not) else Not(inner)
        return self._leaf(node) or self._opaque(node)

    def _leaf(self, node: exp.Expression) -> Predicate | None:
        """Build a condition on one column and constants; ``None`` for others."""
        match node:
            case exp.Column() | exp.Dot():
                column = self.column(node)
                is_boolean = column is not None and pa.types.is_boolean(column.type)
                return bind.compare(column, "=", TRUE) if column is not None and is_boolean else None
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                return self._between(node)
            case exp.Like() | exp.Escape():
                return self._like(node)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                if (sides := self._sides(node.this, node.expression)) is None:
                    return None
                equal = bind.null_safe_equal(sides[0], sides[1])
                return Not(equal) if isinstance(node, exp.NullSafeNEQ) else equal
            case exp.Anonymous():
                return self._function(node)
            case _ if type(node) in COMPARISONS:
                return self._compare(node.this, COMPARISONS[type(node)], node.expression)
        return None

    def _sides(self, left: exp.Expression, right: exp.Expression) -> tuple[Column, Literal, bool] | None:
        for a, b, swapped in ((left, right, False), (right, left, True)):
            column = self.column(a)
            literal = None if column is None else self.literal(b)
            if column is not None and literal is not None:
                return (column, literal, swapped) if _simple(column, literal) else None
        return None

    def _compare(
        self,
        left: exp.Expression,
        op: str,
        right: exp.Expression,
        leaf: Callable[[Column, str, Literal], Predicate] = bind.compare,
    ) -> Predicate | None:
        sides = self._sides(left, right)
        if sides is not None:
            column, literal, swapped = sides
            return leaf(column, MIRRORED[op] if swapped else op, literal)
        for a, b, operator in ((left, right, op), (right, left, MIRRORED[op])):
            built = self._compare_steps(a, operator, b) or self._compare_cast(a, operator, b)
            if built is not None:
                return built
        return None

    def _compare_cast(self, call: exp.Expression, op: str, constant: exp.Expression) -> Predicate | None:
        """Rewrite ``CAST(c AS T) op constant`` as ``c op constant``, for lossless casts that keep the order."""
        call = plain(call)
        if not isinstance(call, exp.Cast) or isinstance(call, exp.TryCast):
            return None
        column, target = self.column(call.this), call.to.this.value
        literal = None if column is None or not _is_lossless(column.type, target) else self.literal(constant)
        if column is None or literal is None:
            return None
        if target == "DOUBLE" and literal.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE):
            assert isinstance(literal.value, int | float | Decimal)
            return bind.compare(column, op, Literal(float(literal.value), Kind.DOUBLE))
        whole = target == "BIGINT" and literal.kind in (Kind.INTEGER, Kind.DECIMAL)
        times = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
        same = whole or (target.startswith("TIMESTAMP") and literal.kind in times)
        return bind.compare(column, op, literal) if same else None

    def _compare_steps(self, call: exp.Expression, op: str, constant: exp.Expression) -> Predicate | None:
        """Rewrite ``year(t) = 2020`` and ``CAST(t AS DATE) = '2020-01-01'`` as ranges of ``t``, for data skipping."""
        step = self._step_function(plain(call))
        literal = None if step is None else self.literal(constant)
        if step is None or literal is None:
            return None
        column, function = step
        low = high = None
        if function == "year" and isinstance(literal.value, int) and literal.kind is Kind.INTEGER:
            if abs(literal.value) < 200_000:  # DuckDB handles years outside the range of dates
                low, high = (days_from_civil(literal.value + i, 1, 1) for i in (0, 1))
        elif function == "date" and isinstance(literal.value, str | int) and literal.kind in (Kind.DATE, Kind.STRING):
            low = parse_date(literal.value) if isinstance(literal.value, str) else literal.value
            high = None if low is None else low + 1
        if low is None or high is None:
            return None
        return bind.compare_steps(column, op, Literal(low, Kind.DATE), Literal(high, Kind.DATE))

    def _step_function(self, node: exp.Expression) -> tuple[Column, str] | None:
        match node:
            case exp.Anonymous() if len(node.expressions) == 1 and node.name.lower() in ("year", "date", "to_date"):
                column, name = self.column(node.expressions[0]), node.name.lower()
            case exp.Cast() if node.to.this.value == "DATE" and not isinstance(node, exp.TryCast):
                column, name = self.column(node.this), "date"
            case _:
                return None
        if column is None or not (pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type)):
            return None
        return column, "year" if name == "year" else "date"

    def _is(self, node: exp.Is) -> Predicate | None:
        column = self.column(node.this)
        if column is None:
            return None
        if isinstance(node.expression, exp.Null):
            return IsNull(column.path)
        if isinstance(node.expression, exp.Boolean) and pa.types.is_boolean(column.type):
            return bind.null_safe_equal(column, Literal(bool(node.expression.this), Kind.BOOLEAN))
        return None

    def _in(self, node: exp.In) -> Predicate | None:
        if {k for k, v in node.args.items() if v} - {"this", "expressions"}:
            return None
        column = self.column(node.this)
        if column is None:
            steps = [self._compare_steps(node.this, "=", item) for item in node.expressions]
            ranges = [step for step in steps if step is not None]
            return any_of(ranges) if ranges and len(ranges) == len(steps) else None
        values: list[Literal] = []
        for item in node.expressions:
            value = self.literal(item)
            if value is None or not _simple(column, value):
                return None
            values.append(value)
        # Spark casts all operands to one type, which may differ from the types of pairs of strings and numbers.
        kinds = {v.kind for v in values} - {Kind.NULL}
        numbers = pa.types.is_integer(column.type) and kinds <= {Kind.INTEGER, Kind.DECIMAL}
        return None if len(kinds) > 1 and not numbers else bind.is_in(column, values)

    def _between(self, node: exp.Between) -> Predicate | None:
        if node.args.get("symmetric"):
            return None
        low = self._compare(node.this, ">=", node.args["low"], bind.compare_unpadded)
        high = self._compare(node.this, "<=", node.args["high"], bind.compare_unpadded)
        return None if low is None or high is None else all_of([low, high])

    def _function(self, node: exp.Anonymous) -> Predicate | None:
        name, args = node.name.lower(), node.expressions
        if self.translator.functions.get(name) is not FUNCTIONS.get(name):
            return None  # it may differ from Spark's
        if not args or (column := self.column(args[0])) is None:
            return None
        if name in ("isnull", "isnotnull") and len(args) == 1:
            return IsNull(column.path) if name == "isnull" else Not(IsNull(column.path))
        if name == "isnan" and len(args) == 1 and types.is_float(column.type):
            return bind.null_safe_equal(column, Literal(math.nan, Kind.DOUBLE))
        if name == "startswith" and len(args) == 2 and types.is_string(column.type):
            prefix = self.literal(args[1])
            if prefix is not None and prefix.kind in (Kind.STRING, Kind.NULL):
                return bind.starts_with(column, prefix)
        return None

    def _like(self, node: exp.Expression) -> Predicate | None:
        escape = "\\"
        if isinstance(node, exp.Escape):
            character = self.literal(node.expression)
            if character is None or not isinstance(character.value, str) or len(character.value) != 1:
                return None
            escape, node = character.value, node.this
        if not isinstance(node, exp.Like):
            return None
        column, pattern = self.column(node.this), self.literal(node.expression)
        if column is None or pattern is None or not types.is_string(column.type) or not isinstance(pattern.value, str):
            return None
        parts = like_parts(pattern.value, escape)
        first = next((i for i, (_, wildcard) in enumerate(parts) if wildcard), len(parts))
        value = Literal("".join(char for char, _ in parts[:first]), Kind.STRING)
        if first == len(parts):
            return bind.compare_unpadded(column, "=", value)
        return bind.starts_with(column, value) if all(part == ("%", True) for part in parts[first:]) else None

    def _opaque(self, node: exp.Expression) -> Predicate:
        self.opaque += 1
        if self.opaque > MAX_OPAQUE:
            raise FilterError(
                f"the filter has more than {MAX_OPAQUE:,} conditions that are computed one by one",
                help="write comparisons of a column with constants, or IN, which are computed together",
            )
        sql, columns = self.translator.condition(node)
        if columns:
            return Opaque(sql, columns)
        return Constant(evaluate(Opaque(sql, ()), Rows.of(pa.table({"c": pa.nulls(1)})))[0].as_py())


def _is_lossless(source: pa.DataType, target: str) -> bool:
    if target == "DOUBLE":
        return bool(types.is_float(source) or (pa.types.is_integer(source) and source.bit_width <= 32))
    if target == "BIGINT":
        return bool(pa.types.is_integer(source))
    return bool(target.startswith("TIMESTAMP") and (pa.types.is_date32(source) or pa.types.is_timestamp(source)))


def _simple(column: Column, literal: Literal) -> bool:
    """Whether a leaf can express the comparison; DuckDB handles types without an order."""
    return types.is_ordered(column.type) or pa.types.is_null(column.type) or literal is NULL


# --- expressions of any type: invalid ones, and those that only Spark supports ----------------------------------------

#: Replacements in the translator's errors, which mention filters.
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
    now: dt.datetime,
    functions: Mapping[str, Function] | None = None,
) -> Scalar:
    """Translate an expression.  Raises the errors of :func:`trilake.expr.parse_expression`."""
    if not source.strip() or len(source) > MAX_LENGTH or not is_unicode(source):
        raise ExpressionError(
            "the expression is empty, longer than 1 MB, or not valid Unicode",
            help='an expression is Spark SQL such as "year(day)"',
        )

    def build() -> Scalar:
        root = parse_tree(source, column_names(schema))
        _check(root, schema)
        translator = Translator(schema, case_sensitive=False, now=now, functions=functions)
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
            raise ExpressionError(reason, help=_ONE_ROW, condition=error.condition) from error
        where: dict[str, Any] = {k: v for k, v in error.context.items() if k in ("column", "line", "position", "near")}
        if functions is None:
            raise UnsupportedExpressionError(f"only Spark can evaluate {shorten(source)}: {reason}", **where) from error
        help = (error.help or "rewrite the expression").removesuffix(MORE_IN_SPARK)
        raise UnsupportedExpressionError(f"cannot evaluate {shorten(source)}: {reason}", help=help, **where) from error


def _check(root: exp.Expression, schema: pa.Schema) -> None:
    if string := string_as_name(root):
        raise ExpressionError(f"{string} is a string, not a name", help=IN_BACKQUOTES)
    for node in root.find_all(exp.Anonymous):
        name = node.name.lower()
        if name in AGGREGATES:
            raise ExpressionError(
                f"the aggregate function {node.name} cannot be used here",
                help=_ONE_ROW,
                condition="INVALID_WHERE_CONDITION",
            )
        if name in NON_DETERMINISTIC:
            raise ExpressionError(
                f"the function {node.name} is not deterministic",
                help="an expression must return the same value each time",
                condition="INVALID_NON_DETERMINISTIC_EXPRESSIONS",
            )
    for name_node in cast(Iterator[exp.Column | exp.Dot], root.find_all(exp.Column, exp.Dot)):
        inside = isinstance(name_node.parent, exp.Dot) and name_node.parent.this is name_node
        in_lambda = name_node.find_ancestor(exp.Lambda) is not None
        if inside or in_lambda or not is_name(name_node) or _is_unit(name_node):
            continue
        try:
            bind.resolve(tuple(p.name for p in name_node.parts), schema)
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
