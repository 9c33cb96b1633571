"""Column defaults: the value of a column that a write omits.

Table feature *allowColumnDefaults*: the field metadata ``CURRENT_DEFAULT`` is a SQL expression without columns.  It
only affects new rows: a column that is added later is null in existing rows (``EXISTS_DEFAULT`` is not used in Delta
tables). An explicit null stays null.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from trilake.delta.protocol.schema import StructField, StructType
from trilake.errors import InvalidArgumentError, UnsupportedExpressionError, stating
from trilake.expr import Expression, parse_expression

CURRENT_DEFAULT = "CURRENT_DEFAULT"
#: Raises for a string that cannot be a default, if DuckDB cannot evaluate it.
JudgeDefault: TypeAlias = Callable[[StructField, str], None]
_FEATURE = "allowColumnDefaults"
#: Spark's error conditions for an invalid default.
_CONDITIONS = {
    None: "INVALID_DEFAULT_VALUE.DATA_TYPE",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "INVALID_DEFAULT_VALUE.UNRESOLVED_EXPRESSION",
    "INVALID_WHERE_CONDITION": "INVALID_DEFAULT_VALUE.UNRESOLVED_EXPRESSION",
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": "INVALID_DEFAULT_VALUE.NON_DETERMINISTIC",
    "DELTA_UNSUPPORTED_SUBQUERY": "INVALID_DEFAULT_VALUE.SUBQUERY_EXPRESSION",
}


def default_expression(field: StructField) -> str | None:
    """The SQL expression of a column's default; ``None`` without a default.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> default_expression(StructField("a", PrimitiveType("long"), metadata={"CURRENT_DEFAULT": "1 + 1"}))
    '1 + 1'
    """
    sql = field.metadata.get(CURRENT_DEFAULT)
    return None if sql is None else str(sql)


def columns_of_rows(rows: StructType, features: Collection[str] | None) -> StructType:
    """The columns of rows, with their defaults only if the table has the feature.

    A default must not enable the feature by itself: that would lock out other writers.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> noted = {"CURRENT_DEFAULT": "1", "comment": "it"}
    >>> rows = StructType((StructField("a", PrimitiveType("long"), metadata=noted),))
    >>> columns_of_rows(rows, ["appendOnly"]).fields[0].metadata
    {'comment': 'it'}
    """
    if _FEATURE in (features or ()) or not any(CURRENT_DEFAULT in f.metadata for f in rows.fields):
        return rows
    return StructType(
        tuple(replace(f, metadata={k: v for k, v in f.metadata.items() if k != CURRENT_DEFAULT}) for f in rows.fields)
    )


def check_defaults_allowed(statement: str, schema: StructType, features: Collection[str]) -> None:
    """Reject defaults in a table whose features do not allow them.  Raises ``InvalidArgumentError``."""
    with_default = [f.name for f in schema.fields if CURRENT_DEFAULT in f.metadata]
    if with_default and _FEATURE not in features:
        raise InvalidArgumentError(
            f"{statement} gives column {with_default[0]} a DEFAULT, but the table does not have the feature {_FEATURE}",
            help=f"set the table property 'delta.feature.{_FEATURE}' = 'supported' first, or in CREATE TABLE",
            column=with_default[0],
            condition="WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED",
        )


def parse_default(field: StructField, sql: str, now: dt.datetime) -> Expression | None:
    """A default as an expression of the column's type; ``None`` if only Spark can evaluate it.

    Raises ``ExpressionError`` for an expression that reads columns or has the wrong type.
    """
    try:
        with stating(_CONDITIONS):
            return parse_expression(sql, pa.schema([]), now=now).cast(field.type.arrow)
    except UnsupportedExpressionError:
        return None
