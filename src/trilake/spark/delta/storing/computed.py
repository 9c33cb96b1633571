"""Generated columns, defaults and CHECK constraints that only Spark can compute.

Spark resolves their expressions when they are declared.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

import orjson
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.rules.constraints import OF_NEW_TABLE, parse_check
from trilake.delta.rules.defaults import default_expression, parse_default
from trilake.delta.scan.generated import generation_expression, other_type, parse_generated
from trilake.delta.scan.scan import read_schema
from trilake.errors import ExpressionError, stating
from trilake.spark.delta.storing.store_assignment import holds_all
from trilake.spark.scan.columns import empty_frame, join_on
from trilake.spark.session.compat import error_condition, is_connect
from trilake.spark.session.internals import query_execution
from trilake.spark.session.schemas import to_spark

#: delta-spark's error condition, by the beginning of Spark's.
_CONDITIONS = {
    "UNRESOLVED_COLUMN": "DELTA_INVALID_GENERATED_COLUMN_REFERENCES",
    "INVALID_WHERE_CONDITION": "DELTA_AGGREGATE_IN_GENERATED_COLUMN",
    "UNSUPPORTED_GENERATOR": "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN",
}


def judge_generated(spark: SparkSession, schema: StructType) -> None:
    """Let Spark resolve a new table's generated columns.  Raises ``ExpressionError`` if one is not a deterministic
    value of the column's type, or calls a UDF of this session."""
    expressions = [(f, sql) for f in schema.fields if (sql := generation_expression(f)) is not None]
    if not expressions:
        return
    inputs = empty_frame(spark, StructType(tuple(f for f in schema.fields if generation_expression(f) is None)))
    for f, sql in expressions:
        if parse_generated(f, sql, schema, _NOW).expression is None:
            _judge(spark, inputs, f, sql)
        kind = to_spark(StructType((f,)).nullable).fields[0].dataType
        found = inputs.select(F.expr(sql)).schema.fields[0].dataType
        if found.simpleString() != kind.simpleString():
            raise other_type(f, sql, found.simpleString())


def _judge(spark: SparkSession, inputs: DataFrame, field: StructField, sql: str) -> None:
    try:
        condition = F.expr(sql).isNull()
        frame = inputs.where(condition)
        _ = frame.schema  # a Connect server resolves names here
        _ = join_on(inputs, condition).schema  # rejects rand()
    except AnalysisException as e:
        name = error_condition(e) or ""
        condition_name = next((delta for spark, delta in _CONDITIONS.items() if name.startswith(spark)), name or None)
        raise ExpressionError(
            f"generated column {field.name} ({sql[:200]}) cannot be computed: {str(e).splitlines()[0]}",
            column=field.name,
            condition=condition_name,
        ) from e
    what = f"generated column {field.name} ({sql[:200]})"
    _reject_calls_of_users(spark, frame, what, column=field.name, condition="DELTA_UDF_IN_GENERATED_COLUMN")


def judge_checks(spark: SparkSession, schema: StructType, checks: Iterable[tuple[str, str]]) -> None:
    """Call :func:`judge_check` for the CHECK constraints of a new table, as names and conditions, that the embedded
    engine does not support."""
    for name, sql in checks:
        with stating(OF_NEW_TABLE):
            check = parse_check("CHECK constraint", name, sql, schema, _NOW)
        if check.condition is None:
            judge_check(spark, schema, name, sql)


def judge_check(spark: SparkSession, schema: StructType, name: str, sql: str) -> None:
    """Let Spark resolve a CHECK constraint.  Raises ``ExpressionError`` if it is not a condition, or calls a UDF of
    this session, and Spark's ``AnalysisException`` for an expression that does not resolve."""
    what, rows = f"CHECK constraint {name} ({sql[:200]})", empty_frame(spark, read_schema(schema))
    data_type = rows.select(F.expr(sql)).schema.fields[0].dataType
    if not isinstance(data_type, T.BooleanType | T.NullType):
        raise ExpressionError(
            f"{what} must be boolean, but is of type {data_type.simpleString()}",
            constraint=name,
            condition="DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
        )
    frame = rows.where(F.expr(sql))
    _reject_calls_of_users(spark, frame, what, constraint=name, condition="DELTA_UDF_IN_CHECK_CONSTRAINT")


def _reject_calls_of_users(spark: SparkSession, frame: DataFrame, what: str, **context: str) -> None:
    if calls_of_users(spark, frame):
        raise ExpressionError(
            f"{what} calls a function that is registered only in this session",
            help="use only functions that every session has",
            **context,
        )


def calls_of_users(spark: SparkSession, frame: DataFrame) -> bool:
    """Whether the condition of a DataFrame calls a UDF, as far as Spark shows that."""
    if is_connect(spark):
        return False
    try:
        nodes = orjson.loads(query_execution(frame).analyzed().condition().toJSON())
    except (Py4JError, orjson.JSONDecodeError):
        return False
    return any("UDF" in str(n.get("class", "")) for n in nodes)


def with_stages(rows: DataFrame, stages: Iterable[Mapping[str, str]]) -> DataFrame:
    """Rows with the columns of :meth:`~trilake.delta.rules.row_rules.RowRules.spark_stages`; each sees the previous
    ones."""
    for stage in stages:
        rows = rows.withColumns({name: F.expr(sql) for name, sql in stage.items()})
    return rows


_NOW = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def judge_defaults(spark: SparkSession, schema: StructType) -> None:
    """Call :func:`judge_default` for the defaults of a new table that the embedded engine does not support."""
    for f in schema.fields:
        sql = default_expression(f)
        if sql is not None and parse_default(f, sql, _NOW) is None:
            judge_default(spark, f, sql)


def judge_default(spark: SparkSession, field: StructField, sql: str) -> None:
    """Let Spark resolve a column's default.  Raises ``ExpressionError`` if it is not a value of the column's type, or
    calls a UDF of this session."""
    kind = to_spark(StructType((field,))).fields[0].dataType
    try:
        where = spark.range(0).select().where(F.expr(sql).cast(kind).isNull())
        _ = where.schema  # a Connect server resolves names here
        data_type = where.select(F.expr(sql)).schema.fields[0].dataType
    except AnalysisException as e:
        raise _rejected(field, sql, str(e).splitlines()[0], "UNRESOLVED_EXPRESSION") from e
    flat = isinstance(data_type, T.AtomicType) and isinstance(kind, T.AtomicType)
    numbers = isinstance(data_type, T.NumericType) and isinstance(kind, T.NumericType)
    if flat and not numbers and not holds_all(kind, data_type):
        reason = f"it is of type {data_type.simpleString()}, but the column is of type {kind.simpleString()}"
        raise _rejected(field, sql, reason, "DATA_TYPE")
    if calls_of_users(spark, where):
        raise _rejected(field, sql, "it calls a function that is registered only in this session", "NOT_CONSTANT")


def _rejected(field: StructField, sql: str, reason: str, condition: str) -> ExpressionError:
    return ExpressionError(
        f"the default of column {field.name} ({sql[:200]}) cannot be computed: {reason}",
        help="use only constants and functions that every session has",
        column=field.name,
        condition=f"INVALID_DEFAULT_VALUE.{condition}",
    )
