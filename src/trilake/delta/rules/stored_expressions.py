"""Expressions that a table keeps in its schema: each is parsed before it is stored.

Readers and later writers evaluate them; a text that is no SQL would make every later write fail.  Tables of other
writers are read whatever they hold.
"""

from __future__ import annotations

import orjson

from trilake.delta.protocol.schema import StructType, nested_fields
from trilake.delta.rules.constraints import INVARIANTS
from trilake.delta.rules.defaults import CURRENT_DEFAULT
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import ExpressionError
from trilake.expr import check_syntax

_KINDS = {CURRENT_DEFAULT: "the default of column", GENERATION_EXPRESSION: "the expression of generated column"}


def check_expressions(schema: StructType) -> None:
    """Refuses defaults, expressions of generated columns and invariants that are no SQL, at every depth of a schema.

    Raises ``ExpressionError``.
    """
    for field in nested_fields(schema):
        for key, kind in _KINDS.items():
            if key in field.metadata:
                check_syntax(str(field.metadata[key]), f"{kind} {field.name}")
        if INVARIANTS in field.metadata:
            what = f"the invariant of column {field.name}"
            try:
                text = orjson.loads(field.metadata[INVARIANTS])["expression"]["expression"]
            except (orjson.JSONDecodeError, KeyError, TypeError) as e:
                raise ExpressionError(
                    f"{what} is not the JSON that the protocol says", help='{"expression": {"expression": "n > 0"}}'
                ) from e
            check_syntax(str(text), what)
