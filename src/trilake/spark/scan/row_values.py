"""New values of rows, each computed from its one row: no aggregates, windows or generators."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trilake.errors import ExpressionError
from trilake.spark.scan.resolution import analysis_text
from trilake.spark.session.analysis_errors import analysed_error
from trilake.spark.session.compat import error_condition, is_connect

#: How Spark refuses such functions in a condition, where they have no place either.
_REFUSALS = ("INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE", "UNSUPPORTED_GENERATOR")


def check_row_values(frame: DataFrame, values: Sequence[Column]) -> None:
    """Raise ``ExpressionError`` where a value over the rows of ``frame`` is not one of its row alone.

    Spark would select it: of fewer rows, of more, or by what the other rows of a task are.  Raises what Spark's
    analysis raises for anything else that is wrong.
    """
    if not values:
        return
    try:
        checked = frame.where(F.struct(*values).isNotNull())
        if is_connect(frame.sparkSession):
            _ = checked.schema  # a plan is analysed there when it is asked for
    except AnalysisException as e:
        if not (error_condition(e) or "").startswith(_REFUSALS):
            raise
        error = ExpressionError(
            "a new value is unsupported here: it contains aggregate, window or generator functions. Invalid"
            f" expressions: {analysis_text(e)}",
            help="compute the value in a query of its own, and merge its rows into the table",
            condition="UNSUPPORTED_EXPR_FOR_OPERATOR",
        )
        raise analysed_error(error, e) from None
