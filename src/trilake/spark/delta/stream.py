"""``spark.readStream.format("delta")``: the Spark part of :mod:`trilake.delta.stream.source`.

Partitions are self-contained, because Spark creates their reader in yet another process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types as T

from trilake.common.arguments import resolve_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Metadata
from trilake.delta.scan.changes import ChangeFeedTask, read_change_task
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask, ReadPlan
from trilake.delta.stream.errors import DATA_LOSS_HELP
from trilake.delta.stream.offset import Limit, StreamOffset
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.source import DeltaStream
from trilake.errors import MissingFileError
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.sources import api
from trilake.spark.session.sources.rows_source import Piece, StreamReader, as_declared, pack_files
from trilake.storage import open_store
from trilake.table.streams import StreamDataLossError

#: Options that limit a batch.
STREAM_LIMITS = {"maxFilesPerTrigger", "maxBytesPerTrigger"}

_log = logging.getLogger("trilake.spark")


@dataclass(frozen=True)
class Analysed:
    """The table at the time when Spark read its columns."""

    metadata: Metadata
    version: int


class DeltaStreamReader(StreamReader):
    """Reads a table as a stream.  ``analysed`` is ``None`` if the user gave the columns; only these are read and
    checked for changes."""

    offset = StreamOffset
    stream: DeltaStream

    def __init__(
        self,
        path: str,
        store: Mapping[str, str],
        schema: T.StructType,
        options: StreamOptions,
        analysed: Analysed | None,
    ) -> None:
        super().__init__(path, store, schema)
        self.options, self.analysed = options, analysed
        self.max_files, self.max_bytes = options.max_files, options.max_bytes

    def open_stream(self) -> DeltaStream:
        log = DeltaLog(open_store(self.path, self.store), spark_engine())
        if self.analysed is not None:
            reading = Reading(self.analysed.metadata, self.analysed.version)
        else:
            head = log.head()
            reading = Reading(head.metadata, head.version, self._columns(head.metadata))
        return DeltaStream(log, reading, self.options)

    def _columns(self, metadata: Metadata) -> tuple[str, ...]:
        extra = {"_change_type", "_commit_version", "_commit_timestamp"} if self.options.read_change_feed else set()
        names = [n for n in self.declared.names if n not in extra]
        return tuple(resolve_columns(metadata.schema.names, names, self.path))

    def limit(self, limit: api.ReadLimit) -> Limit:
        """Spark's limit, combined with the other option, since Spark supports only one limit."""
        if isinstance(limit, api.ReadMaxFiles):
            return Limit(limit.max_files, self.max_bytes)
        if isinstance(limit, api.ReadMaxBytes):
            return Limit(None, limit.max_bytes)
        return Limit()

    def reportLatestOffset(self) -> dict[str, Any]:
        return self.stream.newest().to_json()

    def pieces(self, start: StreamOffset, end: StreamOffset) -> Iterable[Any]:
        batch = self.stream.batch(start, end)
        return [(tasks, batch.plan) for tasks in pack_files(batch.tasks, task_size)]

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows_of(*cast(Piece, partition).part)

    def rows_of(self, tasks: Sequence[FileTask | ChangeFeedTask], plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        """The rows of some files, with the declared columns."""
        store = open_store(self.path, self.store)
        for task in tasks:
            try:
                for batch in read_of(task)(store, task, plan):
                    yield as_declared(_arranged(batch, self.declared), self.declared)
            except MissingFileError as e:
                self._missing(e)

    def _missing(self, error: MissingFileError) -> None:
        if self.options.fail_on_data_loss:
            message = f"a file was deleted before the stream read it: {error.message}"
            raise StreamDataLossError(message, help=DATA_LOSS_HELP, **error.context) from error
        _log.warning("the stream skips rows of a missing file, as failOnDataLoss is false: %s", error)


def _arranged(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
    """The columns in the declared order; their names may differ in case."""
    names = batch.schema.names
    if names == declared.names:
        return batch
    by_lower = {n.lower(): i for i, n in enumerate(names)}
    arrays = [batch.column(by_lower[n.lower()]) for n in declared.names]
    return pa.RecordBatch.from_arrays(arrays, names=declared.names)


def read_of(task: FileTask | ChangeFeedTask) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The function that reads a task."""
    return read_change_task if isinstance(task, ChangeFeedTask) else read_task


def task_size(task: FileTask | ChangeFeedTask) -> int:
    """The bytes of a task's file."""
    return task.file.size if isinstance(task, ChangeFeedTask) else task.size
