"""Columns that only Spark can compute for a table's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def with_stages(rows: DataFrame, stages: Iterable[Mapping[str, str]]) -> DataFrame:
    """Rows with the columns of some stages, each of which sees the previous ones.

    See :meth:`~trilake.delta.rules.row_rules.RowRules.spark_stages`.
    """
    for stage in stages:
        rows = rows.withColumns({name: F.expr(sql) for name, sql in stage.items()})
    return rows
