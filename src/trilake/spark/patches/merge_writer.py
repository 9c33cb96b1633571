"""``df.mergeInto(name, condition)``: Spark's words for a MERGE into a table of the catalogue, for trilake tables.

Spark plans such merges against its catalogue, which no Python source takes part in.  After :func:`take_over_merges`,
those into a Delta table become what :meth:`trilake.DeltaTable.merge` does.  PySpark has the method from 4.0 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame

from trilake.errors import InvalidArgumentError
from trilake.spark.delta.merge.merge import DeltaMergeBuilder
from trilake.spark.delta.names.catalogue import parts_of
from trilake.spark.delta.table import DeltaTable
from trilake.spark.patches.chains import classes
from trilake.spark.patches.dataframe_writer import our_location, translated
from trilake.spark.patches.recorder import Action, patch


def take_over_merges() -> None:
    """Teach ``df.mergeInto`` of this process the tables that are ours; doing it again changes nothing."""
    for cls in classes("frame"):
        patch(cls, "mergeInto", _merge_into)


def _merge_into(own: Any, df: DataFrame, table: str, condition: Column) -> Action | None:
    place = our_location(df.sparkSession, table)
    return None if place is None else lambda: translated(lambda: MergeIntoTable.begin(df, table, place, condition))


class MergeIntoTable:
    """A merge into a table of the catalogue, clause by clause, in the words of Spark's ``MergeIntoWriter``.

    Columns of the table are named by the last part of its name: ``target.id`` for ``db.target``.
    """

    def __init__(self, builder: DeltaMergeBuilder) -> None:
        self._builder = builder

    @classmethod
    def begin(cls, df: DataFrame, table: str, place: str, condition: Column) -> MergeIntoTable:
        """The merge of a frame into the table of that name, which is at ``place``.

        Raises ``TypeError`` for a condition that is not a column.
        """
        target = DeltaTable.forPath(df.sparkSession, place).alias(parts_of(table)[-1])
        return cls(target.merge(df, condition))

    def whenMatched(self, condition: Column | None = None) -> _Matched:
        """Say what becomes of rows of the table that match, where ``condition`` is true too."""
        return _Matched(self, condition)

    def whenNotMatched(self, condition: Column | None = None) -> _NotMatched:
        """Say what becomes of rows of the frame that match nothing, where ``condition`` is true."""
        return _NotMatched(self, condition)

    def whenNotMatchedBySource(self, condition: Column | None = None) -> _NotMatchedBySource:
        """Say what becomes of rows of the table that no row of the frame matches, where ``condition`` is true."""
        return _NotMatchedBySource(self, condition)

    def withSchemaEvolution(self) -> MergeIntoTable:
        """Let the merge add columns that the frame has and the table lacks."""
        return self._continued(self._builder.withSchemaEvolution())

    def merge(self) -> None:
        """Run the merge and commit it.  Raises as :meth:`trilake.DeltaTable.merge`'s ``execute`` does."""
        translated(self._builder.execute)

    def _continued(self, builder: DeltaMergeBuilder) -> MergeIntoTable:
        self._builder = builder  # as Spark's own, whose calls change the writer and return it
        return self


class _When:
    """A kind of rows, and the condition that they must meet."""

    def __init__(self, writer: MergeIntoTable, condition: Column | None) -> None:
        self._writer, self._condition = writer, condition

    @property
    def _builder(self) -> DeltaMergeBuilder:
        return self._writer._builder


class _Matched(_When):
    """What becomes of rows of the table that match."""

    def updateAll(self) -> MergeIntoTable:
        """Update all columns from the frame's columns of the same names."""
        return self._writer._continued(self._builder.whenMatchedUpdateAll(self._condition))

    def update(self, assignments: Mapping[str, Column]) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenMatchedUpdate(self._condition, assignments))

    def delete(self) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenMatchedDelete(self._condition))


class _NotMatched(_When):
    """What becomes of rows of the frame that match nothing."""

    def insertAll(self) -> MergeIntoTable:
        """Insert the rows, all columns from those of the same names."""
        return self._writer._continued(self._builder.whenNotMatchedInsertAll(self._condition))

    def insert(self, assignments: Mapping[str, Column]) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenNotMatchedInsert(self._condition, assignments))


class _NotMatchedBySource(_When):
    """What becomes of rows of the table that no row of the frame matches."""

    def updateAll(self) -> MergeIntoTable:
        """Refused: no row of the frame is there to take values from.  Raises ``InvalidArgumentError``."""
        raise InvalidArgumentError(
            "rows that no source row matches have nothing to take all values from", help="name the values with update"
        )

    def update(self, assignments: Mapping[str, Column]) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenNotMatchedBySourceUpdate(self._condition, assignments))

    def delete(self) -> MergeIntoTable:
        return self._writer._continued(self._builder.whenNotMatchedBySourceDelete(self._condition))
