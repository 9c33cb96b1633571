"""Rows converted into a Delta table: one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import finish_write, plan_write
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Metadata
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.scan import FileTask, metadata_plan
from trilake.storage.base import Store
from trilake.storage.ownership import discard
from trilake.table.format import parse_mode
from trilake.tools.convert import columns
from trilake.tools.convert.sources import Source
from trilake.tools.convert.targets.target import Done, TargetRequest


@dataclass(frozen=True)
class DeltaRows:
    """Files of a Delta table."""

    store: Store
    plan: FilePlan
    metadata: Metadata
    schema: pa.Schema
    names: tuple[str, ...]

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
        return write_files(self.store, self.plan, (columns.plain(b, self.schema) for b in batches), task=task)

    def read_back(self, written: WrittenFiles) -> Iterator[pa.RecordBatch]:
        plan = metadata_plan(self.metadata, self.plan.engine, self.store.uri, 0, self.names)
        tasks = [FileTask(unquote(str(a["path"])), int(a["size"]), a["partitionValues"]) for a in written.actions]
        for batch in read_tasks(self.store, tasks, plan):
            yield batch.rename_columns(list(self.names))


class DeltaTarget:
    """A Delta table: one commit."""

    exact = True

    def __init__(self, log: DeltaLog, request: WriteRequest, schema: pa.Schema) -> None:
        self.log = log
        self.plan = plan_write(log, request)
        if self.plan.files.provider == "parquet":
            columns.for_parquet(self.plan.files.schema.to_arrow_schema())
        self.rows = DeltaRows(log.store, self.plan.files, self.plan.metadata, schema, tuple(schema.names))

    def commit(self, written: Sequence[WrittenFiles]) -> Done:
        done = finish_write(self.log, self.plan, written)
        return Done(done.version, done.files_added, done.bytes_added)

    def discard(self, written: Sequence[WrittenFiles]) -> None:
        discard(self.log.store, [unquote(str(a["path"])) for part in written for a in part.actions])


def delta_target(store: Store, source: Source, request: TargetRequest, exists: bool) -> DeltaTarget:
    """The target at a place, where a table is or is not.  Raises as :func:`plan_write` does."""
    schema = columns.for_delta(source.schema)
    partition_by = request.partition_by
    if partition_by is None and not exists and len(source.partition_by) < len(source.schema):
        partition_by = source.partition_by
    write = WriteRequest(
        mode=parse_mode(request.mode),
        schema=columns.to_delta(schema),
        partition_by=partition_by,
        properties=request.options or None,
        data_format=request.data_format,
    )
    return DeltaTarget(DeltaLog(store, request.engine), write, schema)
