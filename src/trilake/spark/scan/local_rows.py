"""Rows that are already on the driver, so that writing them needs no job."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from trilake.spark.session.compat import is_connect, to_arrow
from trilake.spark.session.internals import query_execution

#: Plan nodes of literal rows, and the operators allowed above them: they add no rows, run no Python and do not set the
#: number of output files.
_LEAVES = ("LocalRelation", "OneRowRelation")
_STEPS = ("Project", "Filter")
_MOST_BYTES = 16 << 20


def rows_on_driver(df: DataFrame) -> pa.Table | None:
    """The rows of a small frame whose data is on the driver; ``None`` for any other frame.

    Such a frame is made from pandas or Arrow data or ``VALUES``, followed by filters and projections.  A Python task
    takes 50 to 100 ms before its first row; this takes a quarter of that.

    Raises Spark's errors if the rows cannot be computed.
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
        return None  # let a job compute the rows
    return to_arrow(df)
