"""New values of rows, each computed from a single row: no aggregates, windows or generators."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trilake.errors import ExpressionError
from trilake.spark.scan.resolution import analysis_message
from trilake.spark.session.analysis_errors import analysed_error
from trilake.spark.session.compat import error_condition, is_connect

#: Spark's errors for such functions in a WHERE condition, which does not allow them either.
_REFUSALS = ("INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE", "UNSUPPORTED_GENERATOR")


def check_row_values(frame: DataFrame, values: Sequence[Column]) -> None:
    """Raise ``ExpressionError`` if a value depends on more than its own row.

    Spark itself would return fewer or more rows, or values that depend on the task.  Raises Spark's analysis errors for
    anything else.
    """
    if not values:
        return
    try:
        checked = frame.where(F.struct(*values).isNotNull())
        if is_connect(frame.sparkSession):
            _ = checked.schema  # accessing it analyses the plan
    except AnalysisException as e:
        if not (error_condition(e) or "").startswith(_REFUSALS):
            raise
        error = ExpressionError(
            "a new value must be computed from a single row, without aggregate, window or generator functions. Invalid"
            f" expressions: {analysis_message(e)}",
            help="compute the value in a separate query, and merge its rows into the table",
            condition="UNSUPPORTED_EXPR_FOR_OPERATOR",
        )
        raise analysed_error(error, e) from None
