"""Find the :class:`~trilake.expr.expression.Form` of an expression in its syntax tree."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from trilake.errors import ExpressionError, FilterError
from trilake.expr.expression import Derived, Expression, Form
from trilake.expr.sql.dialect import column_names
from trilake.expr.sql.parse import parse_tree
from trilake.expr.sql.translate import is_name, plain
from trilake.expr.terms import bind
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.bind import Column

_LEVELS = {"year": 0, "month": 1, "day": 2, "dayofmonth": 2, "hour": 3}
_PATTERN = ("yyyy", "MM", "dd", "HH", "mm", "ss")


def derive(expression: Expression, schema: pa.Schema) -> Derived | None:
    """The form of an expression over ``schema``; ``None`` if its column implies nothing.

    >>> from trilake.expr import parse_expression
    >>> schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    >>> derive(parse_expression("CAST(t AS DATE)", schema), schema).form
    <Form.STEPS: 'steps'>
    """
    if len(expression.paths) != 1 or expression.constant is not None:
        return None
    try:
        node = plain(parse_tree(expression.source, column_names(schema)))
        (path,) = expression.paths
        column, _ = bind.resolve(path, schema, case_sensitive=True)
        return _Reader(schema).read(node, expression, column)
    except (FilterError, ExpressionError, RecursionError):
        return None


class _Reader:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def read(self, node: exp.Expression, expression: Expression, column: Column) -> Derived | None:
        def derived(form: Form, level: int = 0, length: int = 0) -> Derived:
            return Derived(expression, form, column.path, column.type, level, length)

        if expression.column is not None:
            return derived(Form.SAME) if types.normal_type(expression.type) == column.type else None
        name, args = _call(node)
        direct = len(args) == 1 and (name != "hour" or self._column(args[0]) is not None)
        if name in _LEVELS and direct and self._is_step(args[0]):
            return derived(Form.PART if _LEVELS[name] else Form.YEAR, _LEVELS[name])
        if self._is_step(node):
            return derived(Form.STEPS)
        length = self._prefix(name, args, column)
        if length is not None:
            return derived(Form.PREFIX, length=length)
        # The two zeros of a float are equal but may give different values; a timestamp may depend on the time zone.
        sql = expression.sql.code.lower()
        zoned = pa.types.is_timestamp(column.type) or any(word in sql for word in ("timestamp", "epoch"))
        return None if types.is_float(column.type) or zoned else derived(Form.OTHER)

    def _column(self, node: exp.Expression) -> Column | None:
        node = plain(node)
        if not is_name(node):
            return None
        column, rest = bind.resolve(tuple(p.name for p in node.parts), self.schema)
        return None if rest else column

    def _is_step(self, node: exp.Expression) -> bool:
        """Whether a node is a date or timestamp column, or a non-decreasing function of one."""
        node = plain(node)
        column = self._column(node)
        if column is not None:
            return bool(pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type))
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            return node.to.this.value == "DATE" and self._is_step(node.this)
        name, args = _call(node)
        if name in ("to_date", "date", "year") and len(args) == 1:
            return self._is_step(args[0])
        if len(args) != 2:
            return False
        if name == "date_trunc":
            return _text(args[0]) is not None and self._is_step(args[1])
        if name == "trunc":
            return _text(args[1]) is not None and self._is_step(args[0])
        return name == "date_format" and _is_ordered(_text(args[1]) or "") and self._is_step(args[0])

    def _prefix(self, name: str, args: list[exp.Expression], column: Column) -> int | None:
        if not types.is_string(column.type) or not args or self._column(args[0]) is None:
            return None
        numbers = [int(a.name) if isinstance(a, exp.Literal) and a.name.isdigit() else None for a in args[1:]]
        if name in ("substring", "substr") and len(numbers) == 2 and numbers[0] in (0, 1):
            return numbers[1]
        return numbers[0] if name == "left" and len(numbers) == 1 else None


def _call(node: exp.Expression) -> tuple[str, list[exp.Expression]]:
    """The lower-case name and the arguments of a call; an empty name for other nodes."""
    match node:
        case exp.Anonymous():
            return node.name.lower(), [plain(a) for a in node.expressions]
        case exp.Substring():
            parts = [node.this, node.args.get("start"), node.args.get("length")]
            return "substring", [plain(p) for p in parts if p is not None]
        case exp.Extract():
            return node.this.name.lower(), [plain(node.expression)]
    return "", []


def _text(node: exp.Expression) -> str | None:
    return node.name if isinstance(node, exp.Literal) and node.is_string else None


def _is_ordered(pattern: str) -> bool:
    """Whether strings of a date pattern sort like the dates, for years of four digits."""
    rest = pattern
    for i, letters in enumerate(_PATTERN):
        if not rest.startswith(letters):
            return i > 0 and not any(c.isalnum() for c in rest)
        rest = rest[len(letters) :]
        separator = len(rest) - len(rest.lstrip("-/:._ ,"))
        rest = rest[separator:]
    return not rest
