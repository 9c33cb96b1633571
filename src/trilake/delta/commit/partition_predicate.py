"""A filter reduced to partition values, for conflict checks."""

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

    Conditions on other columns count as possibly true, as in delta-spark.
    """

    filter: Filter
    schema: StructType
    partition_columns: tuple[str, ...]

    @classmethod
    def of(cls, head: Head, filter: Filter) -> PartitionPredicate:
        names = tuple(head.schema.field(c).name for c in head.metadata.partition_columns)
        return cls(filter, head.schema, names)

    def may_match(self, files: pa.Table) -> pa.Array:
        """For each file, by its ``partitionValues`` alone, whether a row may match."""
        stats = pa.table({"partitionValues": files["partitionValues"], "stats": pa.nulls(files.num_rows, pa.string())})
        reader = StatisticsReader(stats, self.schema, self.partition_columns)
        return pa.array(can_match(self.filter, reader.file_stats()).keep)
