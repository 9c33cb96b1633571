"""Conditions on the rows of a table that only Spark can evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trilake.delta.commands.alter.metadata_commits import FindViolation
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.table import ArrowDeltaTable
from trilake.spark.delta.read import read_dataframe
from trilake.storage import open_store


def violation_finder(spark: SparkSession, path: str, options: Mapping[str, str]) -> FindViolation:
    """Returns a function that lets Spark find a row of the table at ``path`` for which a condition is not true.

    See :class:`~trilake.delta.commands.alter.alter_table.Alter`.
    """

    def find(snapshot: Snapshot, condition: str) -> Mapping[str, Any] | None:
        table = ArrowDeltaTable(open_store(path, dict(options)), snapshot.engine, version=snapshot.version)
        violated = ~F.coalesce(F.expr(condition), F.lit(False))
        rows = read_dataframe(spark, table, options=options).where(violated).take(1)
        return rows[0].asDict(recursive=True) if rows else None

    return find
