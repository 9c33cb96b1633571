"""The dialect in which filters are parsed: Spark SQL, with functions left as they are written.

sqlglot turns functions into nodes of its own, a little differently in each release.  Here each call stays the name and
the arguments that the user wrote, so that :mod:`trilake.expr.functions` alone says what it means.
"""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.databricks import Databricks

from trilake.errors import FilterError

_KEPT = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")


class SparkFilter(Databricks):
    """Spark SQL conditions."""

    class Tokenizer(Databricks.Tokenizer):
        """Since Spark 4 a doubled quote is a quote: ``'it''s'``."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(Databricks.Parser):  # type: ignore[misc,valid-type]  # sqlglot assigns the class to a variable
        """Only the functions whose arguments have a syntax of their own are parsed as such."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in Databricks.Parser.FUNCTION_PARSERS.items() if name in _KEPT
        }


#: The arguments of nodes that the translation reads, where they are not the operands of an operator.  A node with any
#: other argument says something that would be overlooked.
_OPERANDS = frozenset(("this", "expression", "expressions"))
_ARGUMENTS: dict[type[exp.Expression], frozenset[str]] = {
    exp.Column: frozenset(("this", "table", "db", "catalog")),
    exp.Identifier: frozenset(("this", "quoted")),
    exp.Literal: frozenset(("this", "is_string")),
    exp.Cast: frozenset(("this", "to")),
    exp.TryCast: frozenset(("this", "to", "safe")),
    exp.DataType: frozenset(("this", "expressions", "nested", "values")),
    exp.Between: frozenset(("this", "low", "high")),
    exp.Case: frozenset(("this", "ifs", "default")),
    exp.If: frozenset(("this", "true", "false")),
    exp.Trim: frozenset(("this", "expression", "position")),
    exp.Substring: frozenset(("this", "start", "length")),
    exp.StrPosition: frozenset(("this", "substr")),
    exp.Interval: frozenset(("this", "unit")),
    exp.Concat: frozenset(("expressions", "safe", "coalesce")),
    exp.DPipe: frozenset(("this", "expression", "safe")),
    exp.Div: frozenset(("this", "expression", "typed", "safe")),
}


def parse(text: str) -> list[exp.Expression | None]:
    """The statements of ``text``.

    Raises sqlglot's ``SqlglotError`` for what does not parse, and :class:`FilterError` for a construct with parts that
    the translation does not know.
    """
    statements = [None if s is None else _positive(s) for s in sqlglot.parse(text, dialect=SparkFilter)]
    for node in (node for s in statements if s is not None for node in s.walk()):
        present = {key for key, value in node.args.items() if value not in (None, False, [], "")}
        unknown = present - _ARGUMENTS.get(type(node), _OPERANDS)
        if unknown:
            shown = node.sql(dialect="databricks", comments=False)[:200]
            raise FilterError(f"{shown} cannot be used in a filter", help="write it in another way")
    return statements


def _positive(root: Any) -> Any:
    """``NOT LIKE`` as ``NOT`` of ``LIKE``: releases of sqlglot differ in where they keep the negation."""

    def rewrite(node: exp.Expression) -> exp.Expression:
        inner = node.this if isinstance(node, exp.Escape) else node
        if not isinstance(inner, exp.Expression) or not inner.args.get("negate"):
            return node
        inner.set("negate", None)
        return exp.Not(this=node)

    # A node that was rewritten is visited once more, below its NOT.
    return root.transform(rewrite, copy=False)
