"""Default columns: the value of a column that a write leaves out.

Table feature *allowColumnDefaults*: the field metadata ``CURRENT_DEFAULT`` is a SQL expression that reads no column.
It holds for rows to come.  Rows that are there already read as null: a column that is added to a table has no value in
the files before it, and ``EXISTS_DEFAULT`` is not used in Delta tables.  A null that is given stays a null.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from trilake.delta.protocol.schema import StructField
from trilake.errors import UnsupportedExpressionError
from trilake.expr import Expression, parse_expression

CURRENT_DEFAULT = "CURRENT_DEFAULT"


def default_text(field: StructField) -> str | None:
    """The SQL expression of a column's default, ``None`` where it has none.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> default_text(StructField("a", PrimitiveType("long"), metadata={"CURRENT_DEFAULT": "1 + 1"}))
    '1 + 1'
    """
    text = field.metadata.get(CURRENT_DEFAULT)
    return None if text is None else str(text)


def parse_default(field: StructField, text: str, now: dt.datetime) -> Expression | None:
    """A default as an expression of the column's type; ``None`` where only Spark can evaluate it.

    Raises ``ExpressionError`` for a text that reads columns or does not give a value of the column's type.
    """
    try:
        return parse_expression(text, pa.schema([]), now=now).cast(field.type.arrow)
    except UnsupportedExpressionError:
        return None
