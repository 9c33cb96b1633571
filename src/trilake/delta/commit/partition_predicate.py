"""A predicate that a transaction read by, as far as partition values can tell: what conflict checking needs of it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.statistics import StatisticsReader
from trilake.expr import Filter, can_match


@dataclass(frozen=True, eq=False)
class PartitionPredicate:
    """``filter`` over the rows of a table of this ``schema``, partitioned by ``partition_columns``.

    Conditions on other columns count as possibly true: files are judged by their partition alone, as the reference
    implementation does.
    """

    filter: Filter
    schema: StructType
    partition_columns: tuple[str, ...]

    @classmethod
    def of(cls, head: Head, filter: Filter) -> PartitionPredicate:
        """The predicate for a table as it is at one version."""
        names = tuple(head.schema.field(c).name for c in head.metadata.partition_columns)
        return cls(filter, head.schema, names)

    def may_match(self, files: pa.Table) -> pa.Array:
        """For each file (``partitionValues`` is all that is looked at) whether a row of it may match."""
        known = pa.table({"partitionValues": files["partitionValues"], "stats": pa.nulls(files.num_rows, pa.string())})
        reader = StatisticsReader(known, self.schema, self.partition_columns)
        return pa.array(can_match(self.filter, reader.file_stats()).keep)
