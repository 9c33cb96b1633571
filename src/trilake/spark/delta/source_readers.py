"""Partitions of the Python data source that read a snapshot or a change data feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types as T

from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.scan.changes import CHANGE_FIELDS, ChangeFeedTask, plan_changes, read_change_task
from trilake.delta.scan.narrowed import snapshot_for
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask, ReadPlan, parse_table_filter, plan_scan, read_plan
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.sources.api import DataSourceReader, InputPartition
from trilake.spark.session.sources.packing import pack_files
from trilake.spark.session.sources.rows_source import as_declared
from trilake.storage import open_store


@dataclass
class FilePartition(InputPartition):
    """Files that one task reads."""

    tasks: Sequence[FileTask | ChangeFeedTask]


def pack(tasks: Sequence[Any], size: Any) -> list[FilePartition]:
    """Files in partitions of about equal size."""
    return [FilePartition(p) for p in pack_files(tasks, size)]


class DeltaReader(DataSourceReader):
    """Reads the rows of one snapshot for which ``filter``, a SQL condition, is true."""

    def __init__(
        self,
        path: str,
        store: Mapping[str, str],
        opened: Snapshot | PendingSnapshot,
        schema: T.StructType,
        filter: str | None = None,
    ) -> None:
        self.path, self.store, self.columns = path, store, schema.names
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
        self.opened: Snapshot | PendingSnapshot | None = opened
        self.plan: ReadPlan = read_plan(opened, self.columns, None)
        self.filter = filter

    def partitions(self) -> Sequence[InputPartition]:
        assert self.opened is not None
        log = DeltaLog(open_store(self.path, dict(self.store)), spark_engine())
        filter = parse_table_filter(self.filter, self.opened)
        scan = plan_scan(snapshot_for(log, self.opened, filter, log.load), self.columns, filter)
        self.plan = scan.plan
        self.opened = None  # tasks need the plan, but not the log with its million files
        return pack(scan.tasks(), lambda t: t.size) or [FilePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store = open_store(self.path, dict(self.store))
        for task in cast(FilePartition, partition).tasks:
            for batch in read_task(store, cast(FileTask, task), self.plan):
                yield as_declared(batch, self.declared)


class ChangeFeedReader(DataSourceReader):
    """Reads the change data feed of some versions."""

    def __init__(self, path: str, store: Mapping[str, str], start: int, end: int, schema: T.StructType) -> None:
        self.path, self.store, self.start, self.end, self.columns = path, store, start, end, schema.names
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
        scan = self._scan()
        self.plan = scan.plan

    def _scan(self) -> Any:
        extra = {f.name for f in CHANGE_FIELDS}
        log = DeltaLog(open_store(self.path, dict(self.store)), spark_engine())
        return plan_changes(log, self.start, self.end, columns=[c for c in self.columns if c not in extra])

    def partitions(self) -> Sequence[InputPartition]:
        return pack(self._scan().tasks, lambda t: t.file.size) or [FilePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store = open_store(self.path, dict(self.store))
        for task in cast(FilePartition, partition).tasks:
            for batch in read_change_task(store, cast(ChangeFeedTask, task), self.plan):
                yield as_declared(batch.select(self.columns), self.declared)
