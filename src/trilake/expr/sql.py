"""Spark SQL text to a predicate tree.

The text is parsed by sqlglot.  What compares a column with a constant becomes a leaf of the tree; the rest becomes an
opaque DuckDB expression (:mod:`trilake.expr.translate`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from trilake.errors import FilterError
from trilake.expr import bind
from trilake.expr import datatypes as types
from trilake.expr.bind import Column
from trilake.expr.evaluate import Rows, evaluate
from trilake.expr.literals import NULL, TRUE, Kind, Literal
from trilake.expr.predicate import MIRRORED, Constant, IsNull, Not, Opaque, Predicate, all_of, any_of
from trilake.expr.translate import Translator, operands, plain

#: A filter is read by people; a text longer than this is a mistake or an attack.
MAX_TEXT = 4_000_000
DIALECT = "databricks"

_OPERATORS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


@dataclass(frozen=True)
class Conjunct:
    """One of the conditions that a filter joins by AND, with the text of it."""

    text: str
    predicate: Predicate


def parse_sql(text: str, schema: pa.Schema, *, case_sensitive: bool, now: dt.datetime) -> list[Conjunct]:
    """The conjuncts of a Spark SQL condition over the columns of ``schema``.

    ``now`` is what ``current_timestamp()`` and ``current_date()`` mean.  Raises :class:`FilterError`.
    """
    if len(text) > MAX_TEXT:
        raise FilterError(f"the filter is {len(text)} characters long", help=f"the limit is {MAX_TEXT}")
    try:
        root = _parse(text)
        builder = _Builder(text, Translator(schema, case_sensitive=case_sensitive, now=now, text=text))
        return [Conjunct(_text(part), builder.predicate(part)) for part in _conjuncts(root)]
    except RecursionError:
        # sqlglot descends recursively, and so do we.
        raise FilterError(
            "the filter is nested too deeply", help="write long chains of OR as IN", filter=_shorten(text)
        ) from None


def _parse(text: str) -> exp.Expression:
    if not text.strip():
        raise FilterError("the filter is empty", help="pass None to keep all rows")
    try:
        statements = sqlglot.parse(text, dialect=DIALECT)
    except SqlglotError as error:
        details = (getattr(error, "errors", None) or [{}])[0]
        raise FilterError(
            f"the filter cannot be parsed: {details.get('description') or str(error).splitlines()[0]}",
            help="a filter is a Spark SQL condition such as \"x > 5 AND name LIKE 'a%'\"",
            line=details.get("line"),
            position=details.get("col"),
            near=details.get("highlight"),
            filter=_shorten(text),
        ) from error
    if len(statements) != 1 or statements[0] is None:
        raise FilterError(
            "the filter is not one condition", help="remove the semicolon and what follows", filter=_shorten(text)
        )
    root = statements[0]
    if not isinstance(root, exp.Expression):
        raise FilterError("the filter is not a condition", filter=_shorten(text))
    return root


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."


def _text(node: exp.Expression) -> str:
    return _shorten(node.sql(dialect=DIALECT, comments=False))


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    node = plain(node)
    if isinstance(node, exp.And):
        return [leaf for part in operands(node) for leaf in _conjuncts(part)]
    return [node]


class _Builder:
    """Builds the tree of one filter."""

    def __init__(self, text: str, translator: Translator) -> None:
        self.text = text
        self.translator = translator

    def predicate(self, node: exp.Expression) -> Predicate:
        """The tree of a boolean expression."""
        node = plain(node)
        match node:
            case exp.And():
                return all_of([self.predicate(part) for part in operands(node)])
            case exp.Or():
                return any_of([self.predicate(part) for part in operands(node)])
            case exp.Not():
                inner = self.predicate(node.this)
                return inner.part if isinstance(inner, Not) else Not(inner)
            case exp.Column() | exp.Dot():
                column = self.column(node)
                if column is not None and pa.types.is_boolean(column.type):
                    return bind.compare(column, "=", TRUE)
            case exp.Is():
                built = self._is(node)
            case exp.In():
                built = self._in(node)
            case exp.Between():
                built = self._between(node)
            case exp.Like() | exp.Escape() | exp.StartsWith():
                built = self._prefix(node)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                built = self._null_safe(node)
            case _ if type(node) in _OPERATORS:
                built = self._compare(node.this, _OPERATORS[type(node)], node.expression)
            case _:
                built = None
        if not isinstance(node, exp.Column | exp.Dot) and built is not None:
            return built
        return self._opaque(node)

    # --- leaves ------------------------------------------------------------------------------------------------------

    def column(self, node: exp.Expression) -> Column | None:
        """The column that ``node`` is, if it is one and nothing more."""
        return self.translator.column(plain(node))

    def literal(self, node: exp.Expression) -> Literal | None:
        """The constant that ``node`` is, if it reads no column."""
        return self.translator.constant(plain(node))

    def _compare(self, left: exp.Expression, op: str, right: exp.Expression) -> Predicate | None:
        column, literal = self.column(left), self.literal(right)
        if column is None or literal is None:
            column, literal, op = self.column(right), self.literal(left), MIRRORED[op]
        if column is None or literal is None or not _simple(column, literal):
            return None
        return bind.compare(column, op, literal)

    def _null_safe(self, node: exp.Expression) -> Predicate | None:
        column, literal = self.column(node.this), self.literal(node.expression)
        if column is None or literal is None:
            column, literal = self.column(node.expression), self.literal(node.this)
        if column is None or literal is None or not _simple(column, literal):
            return None
        equal = bind.null_safe_equal(column, literal)
        return Not(equal) if isinstance(node, exp.NullSafeNEQ) else equal

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
        column = self.column(node.this)
        if column is None or {k for k, v in node.args.items() if v} - {"this", "expressions"}:
            return None
        values: list[Literal] = []
        for item in node.expressions:
            value = self.literal(item)
            if value is None or not _simple(column, value):
                return None
            values.append(value)
        return bind.is_in(column, values)

    def _between(self, node: exp.Between) -> Predicate | None:
        if node.args.get("symmetric"):
            return None
        low = self._compare(node.this, ">=", node.args["low"])
        high = self._compare(node.this, "<=", node.args["high"])
        return None if low is None or high is None else all_of([low, high])

    def _prefix(self, node: exp.Expression) -> Predicate | None:
        escape = "\\"
        if isinstance(node, exp.Escape):
            given = self.literal(node.expression)
            if given is None or not isinstance(given.value, str) or len(given.value) != 1:
                return None
            escape, node = given.value, node.this
        if not isinstance(node, exp.Like | exp.StartsWith):
            return None
        column, pattern = self.column(node.this), self.literal(node.expression)
        if column is None or pattern is None or not types.is_text(column.type):
            return None
        if isinstance(node, exp.StartsWith) or pattern.kind is Kind.NULL:
            return bind.starts_with(column, pattern) if pattern.kind in (Kind.STRING, Kind.NULL) else None
        if not isinstance(pattern.value, str):
            return None
        plain = like_prefix(pattern.value, escape)
        if plain is None:
            return None
        prefix, whole = plain
        value = Literal(prefix, Kind.STRING)
        return bind.compare(column, "=", value) if whole else bind.starts_with(column, value)

    def _opaque(self, node: exp.Expression) -> Predicate:
        sql, columns = self.translator.condition(node)
        if columns:
            return Opaque(sql, columns)
        value = evaluate(Opaque(sql, ()), Rows(pa.table({"c": pa.nulls(1)})))[0].as_py()
        return Constant(value)


def _simple(column: Column, literal: Literal) -> bool:
    """Whether a leaf can say it; types that have no order are left to DuckDB."""
    return types.is_ordered(column.type) or pa.types.is_null(column.type) or literal is NULL


def like_prefix(pattern: str, escape: str) -> tuple[str, bool] | None:
    r"""The text that a LIKE pattern starts with, if it is that text and nothing else, or followed by one final ``%``.

    The second value says that it is the whole.  ``None`` for any other pattern.

    >>> like_prefix("abc%", "\\"), like_prefix("a\\_c", "\\"), like_prefix("a_c", "\\")
    (('abc', False), ('a_c', True), None)
    """
    text: list[str] = []
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char == escape:
            # Spark lets only the wildcards and the escape character itself be escaped.
            if i + 1 >= len(pattern) or pattern[i + 1] not in ("_", "%", escape):
                raise FilterError(
                    f"the LIKE pattern {pattern!r} has an escape character before nothing that can be escaped",
                    help=f"write {escape + escape} for the character itself",
                )
            text.append(pattern[i + 1])
            i += 2
            continue
        if char == "_" or (char == "%" and pattern[i:].strip("%")):
            return None
        if char == "%":
            return "".join(text), False
        text.append(char)
        i += 1
    return "".join(text), True
