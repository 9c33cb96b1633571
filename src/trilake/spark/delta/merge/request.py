"""The request of a MERGE on Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession

from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.commands.merge.pruning import materialized
from trilake.delta.protocol.schema import from_arrow
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.frame_columns import FrameColumns
from trilake.spark.live_frames.frames import pinned
from trilake.spark.scan.columns import checked_condition
from trilake.spark.session.compat import arrow_frame, is_frame

Expr = str | Column


@dataclass(frozen=True)
class SparkMerge:
    """The request of a merge."""

    source: DataFrame
    condition: Expr
    clauses: tuple[Clause[Expr], ...] = ()
    alias: str | None = None
    evolve: bool = False
    #: The application ID and version of the merge's ``txn`` action.
    txn: tuple[str, int] | None = None
    #: The frames of the table whose columns condition and clauses may name.
    frames: FrameColumns = field(default_factory=FrameColumns)

    @property
    def expressions(self) -> list[object]:
        """The condition, and the conditions and values of all clauses."""
        values = [v for c in self.clauses for v in (c.condition, *(c.values or {}).values())]
        return [self.condition, *values]


def source_frame(spark: SparkSession, source: object, *, round_times: bool = True) -> object:
    """The source of a merge as a DataFrame.

    Arrow, pandas or polars rows become a DataFrame with the alias ``source``; a DataFrame is pinned to its version;
    anything else is returned unchanged.

    Raises ``SchemaMismatchError`` for timestamps finer than a microsecond unless ``round_times`` is set.
    """
    if source is None or is_frame(source):
        return pinned(source)
    try:
        with materialized(source, round_times=round_times) as rows:
            return arrow_frame(spark, rows.cast(from_arrow(rows.schema).to_arrow_schema())).alias("source")
    except InvalidArgumentError:
        return source


def merge_request(
    source: object, condition: object, alias: str | None, frames: FrameColumns | None = None
) -> SparkMerge:
    """Start a merge; ``frames`` has the DataFrames of the table whose columns the merge may name.

    Raises ``ValueError`` for ``None`` and ``TypeError`` for arguments of other types.
    """
    if source is None:
        raise ValueError("'source' in merge cannot be None")
    if not is_frame(source):
        raise TypeError("Type of 'source' in merge must be DataFrame.")
    if condition is None:
        raise ValueError("'condition' in merge cannot be None")
    checked_condition(condition)
    return SparkMerge(
        cast(DataFrame, source), cast("str | Column", condition), alias=alias, frames=frames or FrameColumns()
    )
