"""``spark.readStream.format("lance")`` and ``df.writeStream.format("lance")``: the Spark part of Lance's streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa
from pyspark.sql import types as T

from trilake.common.runtime import Runtime
from trilake.delta.stream.sink import query_id
from trilake.errors import SchemaMismatchError
from trilake.lance.commands.fragment_writer import Target, WriteOptions
from trilake.lance.commands.stream_sink import LanceBatch, commit_batch
from trilake.lance.commands.write import Mode, WritePlan
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.scan.scan import ScanPlan, scan
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.stream import LanceOffset, LanceStream, LanceStreamOptions
from trilake.spark.lance import ml_vectors
from trilake.spark.session.options import Options, checkpoint_of
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.sources.api import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
    WriterCommitMessage,
)
from trilake.spark.session.sources.rows_source import as_declared
from trilake.storage import open_store

LANCE_STREAM_OPTIONS = (
    "startingVersion",
    "maxFilesPerTrigger",
    "ignoreDeletes",
    "ignoreChanges",
    "skipChangeCommits",
    "failOnDataLoss",
)


@dataclass
class StreamFragment(InputPartition):
    """The fragment that one task reads, with the columns of its version."""

    fragment: Fragment
    stored: LanceSchema


class LanceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a dataset as a stream; ``analysed`` is the dataset at the time when Spark read its columns."""

    def __init__(
        self,
        path: str,
        store: Mapping[str, str],
        schema: T.StructType,
        options: LanceStreamOptions,
        analysed: Manifest | None,
    ) -> None:
        self.path, self.store, self.options, self.analysed = path, dict(store), options, analysed
        arrays, ml = ml_vectors.plain(schema)
        self.ml = tuple(ml)
        self.declared = from_spark(arrays, keep_nullability=True).to_arrow_schema()
        self._opened: LanceStream | None = None

    @property
    def _stream(self) -> LanceStream:
        if self._opened is None:
            store = open_store(self.path, self.store)
            self._opened = LanceStream(store, self.analysed or transaction.load(store), self.options)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_fragments
        return ReadAllAvailable() if limit is None else ReadMaxFiles(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return self._stream.latest(LanceOffset.from_json(start), files).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._stream.newest().to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.stop_at_newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        batch = self._stream.batch(LanceOffset.from_json(start), LanceOffset.from_json(end))
        return [StreamFragment(fragment, schema) for fragment, schema in batch]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = cast(StreamFragment, partition)
        view = View(part.stored)
        columns = stored_names(view.schema, self.declared.names, self.path)
        plan = ScanPlan(view, view.schema.project(list(dict.fromkeys(columns))), None)
        reader = FragmentReader(open_store(self.path, self.store), part.fragment, part.stored)
        for batch in scan(plan, [reader], threads=1):
            renamed = batch.select(columns).rename_columns(self.declared.names)
            yield ml_vectors.vectors_in(as_declared(renamed, self.declared), self.ml)


def stored_names(schema: LanceSchema, names: Sequence[str], uri: str) -> list[str]:
    """The dataset's names of these columns, ignoring case.  Raises ``SchemaMismatchError`` for an unknown column."""
    by_lower = {name.lower(): name for name in schema.names}
    for name in names:
        if name.lower() not in by_lower:
            raise SchemaMismatchError(
                f"column {name!r} not found in the dataset",
                help=f"the columns are {', '.join(schema.names)}",
                file=uri,
                column=name,
            )
    return [name if name in schema.names else by_lower[name.lower()] for name in names]


class JobWriter(Protocol):
    """The writer of a batch job, which writes fragments."""

    path: str
    store: dict[str, str]
    mode: Mode
    read_version: int
    options: WriteOptions
    runtime: Runtime

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""

    def collect_fragments(self, messages: Sequence[WriterCommitMessage | None]) -> tuple[list[Fragment], Target]:
        """The fragments of all tasks, and their target."""


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a batch in tasks, like a job, and commits each batch once."""

    def __init__(self, job: JobWriter, options: Options) -> None:
        self.job, self.checkpoint = job, checkpoint_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.job.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        job = self.job
        store = open_store(job.path, job.store)
        batch = LanceBatch(query_id(open_store(self.checkpoint, job.store)), batchId)
        fragments, target = job.collect_fragments(messages)
        base = transaction.load(store, job.read_version) if job.read_version else None
        commit_batch(store, WritePlan(job.mode, base, job.options, job.runtime), target, batch, fragments)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted.
        del messages, batchId
