"""SQL of Lance datasets: Spark's SQL, and pylance's syntax and functions.

Syntax that Spark does not have is translated, except inside quotes.
"""

from __future__ import annotations

import re

import pyarrow as pa

from trilake.expr import Expression, Filter, parse_expression, parse_filter
from trilake.lance.scan.arrow_cast import parse_type
from trilake.lance.scan.sql_functions import in_sparks_words, whole_call
from trilake.table.table import FilterLike

#: Quoted strings and names, which stay the same, then the syntax to replace.
_FORMS = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
    |\bregexp_match\s*\((?P<match>)
    |\b(?P<stamp>timestamp|datetime)\s*\(\s*\d+\s*\)(?=\s*(?:'|\)))
    |\b(?P<datetime>datetime)\b(?=\s*(?:'|\)))
    |\bdecimal\s*(?P<digits>\(\s*\d+\s*,\s*\d+\s*\))\s*(?P<decimal>'[^']*')""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def filter_of(condition: FilterLike, schema: pa.Schema) -> Filter | None:
    """Bind a condition to ``schema``.  Raises ``FilterError``."""
    if not isinstance(condition, str):
        return parse_filter(condition, schema)
    from trilake.lance.scan.functions import LANCE_FUNCTIONS  # imports sqlglot, which takes a third of a second

    return parse_filter(as_spark(condition), schema, functions=LANCE_FUNCTIONS)


def expression_of(sql: str, schema: pa.Schema) -> Expression:
    """Bind an expression to ``schema``; ``arrow_cast`` of the whole determines its type.

    Raises ``ExpressionError`` and ``UnsupportedExpressionError``.
    """
    from trilake.lance.scan.functions import LANCE_FUNCTIONS

    kind, words = None, as_spark(sql)
    cast = whole_call(sql, "arrow_cast")
    if cast is not None and len(cast) == 2 and (kind := parse_type(cast[1].strip("'"))) is not None:
        # Spark's SQL has only some of Arrow's types: then only the value is Spark's.
        words = words if whole_call(words, "arrow_cast") is None else as_spark(cast[0])
    expression = parse_expression(words, schema, functions=LANCE_FUNCTIONS)
    return expression if kind is None else expression.of_type(kind)


def as_spark(sql: str) -> str:
    """Translate a condition to Spark's functions and types.

    >>> as_spark("regexp_match(s, 'datetime(6)') AND d = DECIMAL(5,3) '1.000' AND t < TIMESTAMP(6) '2021-01-01'")
    "regexp_like(s, 'datetime(6)') AND d = CAST('1.000' AS DECIMAL(5,3)) AND t < TIMESTAMP '2021-01-01'"
    """
    return in_sparks_words(_FORMS.sub(_replaced, sql))


def _replaced(match: re.Match[str]) -> str:
    if match["quoted"] is not None:
        return match[0]
    if match["match"] is not None:
        return "regexp_like("
    if match["decimal"] is not None:
        return f"CAST({match['decimal']} AS DECIMAL{match['digits']})"
    return "TIMESTAMP"
