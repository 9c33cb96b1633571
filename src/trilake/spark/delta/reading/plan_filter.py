"""Conditions in Spark's plans over a Delta table, as filters, and the read sets of such plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from trilake.delta.commit.conflicts import PartitionPredicate, ReadSet
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructType
from trilake.expr import Filter
from trilake.spark.scan.planning.plan_conditions import plan_filter
from trilake.spark.scan.scan import scan_name
from trilake.spark.session.settings import session_zone


@dataclass(frozen=True)
class PlanFilter:
    """Turns conditions that Spark prints into a filter; ``id_mode`` says that the scan matches columns by field ID."""

    spark: SparkSession
    schema: StructType
    id_mode: bool

    def __call__(self, conditions: Sequence[str]) -> Filter | None:
        """The conditions that certainly mean the same to the embedded engine; ``None`` if there are none."""
        names: dict[str, str] = {}
        fields: dict[str, pa.Field] = {}
        for f in self.schema.fields:
            # Folders of partitions may have either name.
            for name in (scan_name(f.physical_name, id_mode=self.id_mode), f.physical_name, f.name):
                if names.setdefault(name, f.name) == f.name:
                    fields[name] = pa.field(name, f.type.arrow)
        columns = pa.schema([fields[name] for name in names if name in fields])
        return plan_filter(conditions, columns, names, session_zone(self.spark))


def read_set(snapshot: Snapshot, filter: Filter, paths: pa.ChunkedArray) -> ReadSet:
    """The read set of a plan that reads the rows of these files for which a filter is true."""
    return ReadSet(predicates=(PartitionPredicate.of(snapshot, filter),), files=frozenset(paths.to_pylist()))
