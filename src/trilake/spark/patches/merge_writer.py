"""``df.mergeInto(name, condition)``, Spark's MERGE into a catalog table, for Delta tables.

Spark plans such merges against its catalog, which does not support Python data sources.  After
:func:`patch_merge_into`, they run as :meth:`trilake.DeltaTable.merge`.  PySpark has this method from 4.0 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame

from trilake.errors import InvalidArgumentError
from trilake.spark.catalog.named_tables import parts_of
from trilake.spark.delta.merge.builder import DeltaMergeBuilder
from trilake.spark.delta.table import DeltaTable
from trilake.spark.live_frames.frames import renewed
from trilake.spark.patches.chains import classes, with_spark_errors
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.patches.table_names import trilake_table
from trilake.table.registry import has_log


def patch_merge_into() -> None:
    """Patch ``df.mergeInto``.  Idempotent."""
    for cls in classes("frame"):
        patch(cls, "mergeInto", _merge_into)


def _merge_into(original: Any, df: DataFrame, table: str, condition: Column) -> Action | None:
    target = trilake_table(df.sparkSession, table)
    if target is None or not has_log(target.format):
        return None
    return with_spark_errors(partial(MergeIntoTable.begin, df, table, target.location, condition))


class MergeIntoTable:
    """A merge into a catalog table, with the methods of Spark's ``MergeIntoWriter``.  The last part of the table's name
    qualifies its columns: ``target.id`` for ``db.target``."""

    def __init__(self, builder: DeltaMergeBuilder) -> None:
        self._builder = builder

    @classmethod
    def begin(cls, df: DataFrame, table: str, place: str, condition: Column) -> MergeIntoTable:
        """Start the merge of a DataFrame into the table at ``place``.  Raises ``TypeError`` for a condition that is not
        a column."""
        target = DeltaTable.forPath(df.sparkSession, place).alias(parts_of(table)[-1])
        return cls(target.merge(renewed(df), condition))

    def whenMatched(self, condition: Column | None = None) -> _Matched:
        return _Matched(self, condition)

    def whenNotMatched(self, condition: Column | None = None) -> _NotMatched:
        return _NotMatched(self, condition)

    def whenNotMatchedBySource(self, condition: Column | None = None) -> _NotMatchedBySource:
        return _NotMatchedBySource(self, condition)

    def withSchemaEvolution(self) -> MergeIntoTable:
        return self._continued(self._builder.withSchemaEvolution())

    def merge(self) -> None:
        with_spark_errors(self._builder.execute)()

    def _continued(self, builder: DeltaMergeBuilder) -> MergeIntoTable:
        self._builder = builder  # Spark's writer is mutable, too
        return self


class _When:
    """A kind of clause, and the actions that Spark's writer has for it."""

    def __init__(self, writer: MergeIntoTable, condition: Column | None) -> None:
        self._writer, self._condition, self._builder = writer, condition, writer._builder


class _Matched(_When):
    def updateAll(self) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenMatchedUpdateAll(self._condition))

    def update(self, assignments: Mapping[str, Column]) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenMatchedUpdate(self._condition, assignments))

    def delete(self) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenMatchedDelete(self._condition))


class _NotMatched(_When):
    def insertAll(self) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenNotMatchedInsertAll(self._condition))

    def insert(self, assignments: Mapping[str, Column]) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenNotMatchedInsert(self._condition, assignments))


class _NotMatchedBySource(_When):
    def updateAll(self) -> MergeIntoTable:
        raise InvalidArgumentError(
            "updateAll is not supported in whenNotMatchedBySource, which has no source row",
            help="use update with a value for each column",
        )

    def update(self, assignments: Mapping[str, Column]) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenNotMatchedBySourceUpdate(self._condition, assignments))

    def delete(self) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenNotMatchedBySourceDelete(self._condition))
