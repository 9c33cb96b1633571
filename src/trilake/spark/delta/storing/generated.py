"""Generated columns that only Spark can evaluate; Spark resolves them when a table is created."""

from __future__ import annotations

import datetime as dt

import orjson
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.scan.generated import generation_expression, parse_generated
from trilake.errors import ExpressionError
from trilake.spark.scan.columns import empty_frame
from trilake.spark.session.compat import error_condition, is_connect
from trilake.spark.session.internals import query_execution
from trilake.spark.session.schemas import to_spark

_NOW = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: delta-spark's error condition, by the beginning of Spark's.
_CONDITIONS = {
    "DATATYPE_MISMATCH.CAST": "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
    "UNRESOLVED_COLUMN": "DELTA_INVALID_GENERATED_COLUMN_REFERENCES",
    "INVALID_WHERE_CONDITION": "DELTA_AGGREGATE_IN_GENERATED_COLUMN",
    "UNSUPPORTED_GENERATOR": "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN",
}


def judge_generated(spark: SparkSession, schema: StructType) -> None:
    """Let Spark resolve the generated columns of a new table that the embedded engine does not support.

    Raises ``ExpressionError`` if one cannot be resolved, is not a single value of the column's type, is not
    deterministic, or calls a UDF of this session.
    """
    expressions = [(f, sql) for f in schema.fields if (sql := generation_expression(f)) is not None]
    unknown = [(f, sql) for f, sql in expressions if parse_generated(f, sql, schema, _NOW).expression is None]
    if not unknown:
        return
    inputs = empty_frame(spark, StructType(tuple(f for f in schema.fields if generation_expression(f) is None)))
    for f, sql in unknown:
        _judge(spark, inputs, f, sql)


def _judge(spark: SparkSession, inputs: DataFrame, field: StructField, sql: str) -> None:
    kind = to_spark(StructType((field,))).fields[0].dataType
    try:
        condition = F.expr(sql).cast(kind).isNull()
        frame = inputs.where(condition)
        _ = frame.schema  # a Connect server resolves names here
        _ = inputs.join(spark.range(0).toDF("__trilake_other"), condition).schema  # refuses rand()
    except AnalysisException as e:
        name = error_condition(e) or ""
        condition_name = next((delta for spark, delta in _CONDITIONS.items() if name.startswith(spark)), name or None)
        raise ExpressionError(
            f"generated column {field.name} ({sql[:200]}) cannot be computed: {str(e).splitlines()[0]}",
            column=field.name,
            condition=condition_name,
        ) from e
    if calls_of_users(spark, frame):
        raise ExpressionError(
            f"generated column {field.name} ({sql[:200]}) calls a function that is registered only in this session",
            help="use functions that every session has",
            column=field.name,
            condition="DELTA_UDF_IN_GENERATED_COLUMN",
        )


def calls_of_users(spark: SparkSession, frame: DataFrame) -> bool:
    """Whether the condition of a frame calls a UDF, as far as Spark shows that."""
    if is_connect(spark):
        return False
    try:
        nodes = orjson.loads(query_execution(frame).analyzed().condition().toJSON())
    except (Py4JError, orjson.JSONDecodeError):
        return False
    return any("UDF" in str(n.get("class", "")) for n in nodes)
