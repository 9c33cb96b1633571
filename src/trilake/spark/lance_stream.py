"""``spark.readStream.format("lance")`` and ``df.writeStream.format("lance")``: Spark's side of Lance's streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from trilake.delta.stream_sink import query_id
from trilake.errors import SchemaMismatchError
from trilake.lance import transaction
from trilake.lance.fragment_reader import FragmentReader
from trilake.lance.manifest import Fragment, Manifest
from trilake.lance.scan import ScanPlan, scan
from trilake.lance.schema import LanceSchema
from trilake.lance.stream import LanceOffset, LanceStream, LanceStreamOptions
from trilake.lance.stream_sink import LanceBatch, commit_batch
from trilake.lance.view import View
from trilake.lance.write import Mode, plan_write
from trilake.lance.writing import Target, WriteOptions, write_fragments
from trilake.spark.rows import as_declared
from trilake.spark.schemas import from_spark
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
    """What one task reads: a fragment, with the columns that its version has."""

    fragment: Fragment
    stored: LanceSchema


class LanceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a dataset as a stream; ``analysed`` is what it was when Spark asked for its columns."""

    def __init__(
        self,
        path: str,
        store: Mapping[str, str],
        schema: T.StructType,
        options: LanceStreamOptions,
        analysed: Manifest | None,
    ) -> None:
        self.path, self.store, self.options, self.analysed = path, dict(store), options, analysed
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
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
        columns = _names(view.schema, self.declared, self.path)
        plan = ScanPlan(view, view.schema.project(list(dict.fromkeys(columns))), None)
        reader = FragmentReader(open_store(self.path, self.store), part.fragment, part.stored)
        for batch in scan(plan, [reader], threads=1):
            yield as_declared(batch.select(columns).rename_columns(self.declared.names), self.declared)


def _names(schema: LanceSchema, declared: pa.Schema, uri: str) -> list[str]:
    by_lower = {name.lower(): name for name in schema.names}
    names = [n if n in schema.names else by_lower.get(n.lower()) for n in declared.names]
    if None in names:
        lacking = declared.names[names.index(None)]
        raise SchemaMismatchError(
            f"the dataset has no column {lacking!r}",
            help=f"it has {', '.join(schema.names)}",
            file=uri,
            column=lacking,
        )
    return [n for n in names if n is not None]


@dataclass
class BatchFragments(WriterCommitMessage):
    """What one task has written."""

    fragments: list[Fragment]


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a batch in tasks, commits them on the driver."""

    def __init__(
        self,
        path: str,
        store: Mapping[str, str],
        schema: pa.Schema,
        mode: Mode,
        options: WriteOptions,
        checkpoint: str,
    ) -> None:
        self.path, self.store, self.mode, self.options = path, dict(store), mode, options
        self.rows, self.checkpoint = schema, checkpoint
        plan = plan_write(open_store(path, self.store), mode, options)
        target = plan.target(schema)
        if plan.mode == "append" and plan.base is not None and set(schema.names) != set(target.view.schema.names):
            raise SchemaMismatchError(
                f"the rows have the columns {', '.join(schema.names)}, the dataset has "
                + ", ".join(target.view.schema.names),
                help="select and name the columns as the dataset has them",
                file=path,
            )
        self.schema: LanceSchema = target.view.whole

    def target(self) -> Target:
        """Where rows go."""
        return Target(self.schema, nulls=self.options.nulls)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchFragments:
        store = open_store(self.path, self.store)
        return BatchFragments(write_fragments(store, iterator, self.target(), self.options))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        store = open_store(self.path, self.store)
        batch = LanceBatch(query_id(open_store(self.checkpoint, self.store)), batchId)
        fragments = [f for m in messages if isinstance(m, BatchFragments) for f in m.fragments]
        commit_batch(store, plan_write(store, self.mode, self.options), self.target(), batch, fragments)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted: a clean-up does that.
        del messages, batchId
