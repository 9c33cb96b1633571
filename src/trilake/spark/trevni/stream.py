"""``spark.readStream.format("trevni")`` and ``df.writeStream.format("trevni")``: the Spark part of Trevni's streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa
from pyspark.sql import types as T

from trilake.delta.stream.sink import query_id
from trilake.spark.session.options import Options, checkpoint_of
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.sources.api import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
    WriterCommitMessage,
)
from trilake.spark.session.sources.rows_source import as_declared
from trilake.storage import open_store
from trilake.trevni.tables.dataset import Split, read_split
from trilake.trevni.tables.row_groups import StagedFile
from trilake.trevni.tables.stream import TrevniBatch, TrevniOffset, TrevniStream, commit_batch
from trilake.trevni.tables.table_write import TableWritePlan

TREVNI_STREAM_OPTIONS = ("maxFilesPerTrigger", "failOnDataLoss")


@dataclass
class StreamFile(InputPartition):
    """The part of a file that one task reads."""

    split: Split


class TrevniStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a folder as a stream of files, with the columns of its first file when the stream was declared."""

    def __init__(
        self, path: str, store: Mapping[str, str], schema: T.StructType, *, limit: int, fail_on_data_loss: bool
    ) -> None:
        self.path, self.store, self.limit, self.fail = path, dict(store), limit, fail_on_data_loss
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
        self._opened: TrevniStream | None = None

    @property
    def _stream(self) -> TrevniStream:
        if self._opened is None:
            self._opened = TrevniStream(open_store(self.path, self.store), fail_on_data_loss=self.fail)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        return TrevniOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return self._stream.latest(TrevniOffset.from_json(start), files).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.stop_at_newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        return [StreamFile(split) for split in self._stream.batch(TrevniOffset.from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in read_split(cast(StreamFile, partition).split, self.declared):
            yield as_declared(batch, self.declared)


class JobWriter(Protocol):
    """The writer of a batch job, which stages files."""

    path: str
    store: Mapping[str, str]
    plan: TableWritePlan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""


@dataclass
class StagedRows(WriterCommitMessage):
    """The staged files of one task, and their plan."""

    files: list[StagedFile]
    plan: TableWritePlan


class TrevniStreamWriter(DataSourceStreamArrowWriter):
    """Stages the rows of a batch in tasks, like a job, and moves each batch into place once."""

    def __init__(self, job: JobWriter, options: Options) -> None:
        self.job, self.checkpoint = job, checkpoint_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        staged = cast(Any, self.job.write(iterator))
        return StagedRows(staged.files, self.job.plan)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        job, parts = self.job, [m for m in messages if isinstance(m, StagedRows)]
        # Spark created this writer only for the commit; tasks used the plan of another writer.
        plan = parts[0].plan if parts else job.plan
        batch = TrevniBatch(query_id(open_store(self.checkpoint, job.store)), batchId)
        commit_batch(open_store(job.path, job.store), plan, batch, [f for m in parts for f in m.files])

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted here: the next attempt of
        # the batch, or a later write, removes staged files.
        del messages, batchId
