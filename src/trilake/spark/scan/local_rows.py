"""Rows that the driver holds already: no job is needed to write them."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from trilake.spark.session.compat import is_connect, to_arrow
from trilake.spark.session.internals import query_execution

#: What rows given as literals look like in an optimized plan, and the steps that may stand above them: none of them
#: makes more rows, runs Python, or says how many files are wanted.
_LEAVES = ("LocalRelation", "OneRowRelation")
_STEPS = ("Project", "Filter")
_MOST_BYTES = 16 << 20


def rows_on_driver(df: DataFrame) -> pa.Table | None:
    """The rows of a small frame whose data came from the driver; ``None`` for any other frame.

    That is a frame made of pandas or Arrow data or of ``VALUES``, filtered and computed on by expressions.  A task in
    Python costs 50 to 100 ms before its first row, such rows cost a quarter of that.

    Raises what Spark raises for rows that cannot be computed.
    """
    if is_connect(df.sparkSession):
        return None
    try:
        plan = query_execution(df).optimizedPlan()
        while plan.nodeName() in _STEPS:
            plan = plan.children().head()
        if plan.nodeName() not in _LEAVES or int(plan.stats().sizeInBytes()) > _MOST_BYTES:
            return None
    except Py4JError:
        return None  # a job finds out what these rows are
    return to_arrow(df)
