"""Column defaults that only Spark can evaluate; Spark resolves them when they are declared."""

from __future__ import annotations

import datetime as dt

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.rules.defaults import default_expression, parse_default
from trilake.errors import ExpressionError
from trilake.spark.delta.storing.assignment_rules import holds_all
from trilake.spark.delta.storing.generated import calls_of_users
from trilake.spark.session.schemas import to_spark

_NOW = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def judge_defaults(spark: SparkSession, schema: StructType) -> None:
    """Call :func:`judge_default` for the defaults of a new table that the embedded engine does not support."""
    for f in schema.fields:
        sql = default_expression(f)
        if sql is not None and parse_default(f, sql, _NOW) is None:
            judge_default(spark, f, sql)


def judge_default(spark: SparkSession, field: StructField, sql: str) -> None:
    """Let Spark resolve a column's default, before rows need it.

    Raises ``ExpressionError`` if it cannot be resolved, is not a single value of the column's type, or calls a UDF of
    this session.
    """
    kind = to_spark(StructType((field,))).fields[0].dataType
    try:
        where = spark.range(0).select().where(F.expr(sql).cast(kind).isNull())
        _ = where.schema  # a Connect server resolves names here
        data_type = where.select(F.expr(sql)).schema.fields[0].dataType
    except AnalysisException as e:
        raise _refused(field, sql, str(e).splitlines()[0], "UNRESOLVED_EXPRESSION") from e
    flat = isinstance(data_type, T.AtomicType) and isinstance(kind, T.AtomicType)
    numbers = isinstance(data_type, T.NumericType) and isinstance(kind, T.NumericType)
    if flat and not numbers and not holds_all(kind, data_type):
        reason = f"it is of type {data_type.simpleString()}, the column of type {kind.simpleString()}"
        raise _refused(field, sql, reason, "DATA_TYPE")
    if calls_of_users(spark, where):
        raise _refused(field, sql, "it calls a function that is registered only in this session", "NOT_CONSTANT")


def _refused(field: StructField, sql: str, reason: str, condition: str) -> ExpressionError:
    return ExpressionError(
        f"the default of column {field.name} ({sql[:200]}) cannot be computed: {reason}",
        help="use constants, and functions that every session has",
        column=field.name,
        condition=f"INVALID_DEFAULT_VALUE.{condition}",
    )
