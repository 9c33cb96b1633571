"""The common parts of the Python data sources: batch reads of ``lance`` and ``trevni``, and all formats' streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark.sql import types as T

from trilake.delta.protocol.schema import from_arrow
from trilake.errors import SchemaMismatchError
from trilake.expr import Filter as TableFilter
from trilake.expr import parse_filter
from trilake.spark.session.options import Options, checkpoint_of
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.sources import api
from trilake.spark.session.sources.api import DataSourceReader, InputPartition
from trilake.storage import open_store
from trilake.table.streams import BatchId, query_id

File = TypeVar("File")

#: The limits of a batch for Spark.  A task holds two batches: one is being decoded, one is in transit.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 32 << 20


def short_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slice a batch to the size for Spark, without a copy."""
    rows = min(BATCH_ROWS, max(1, BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for start in range(0, max(batch.num_rows, 1), rows):
        yield batch.slice(start, rows)


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast rows to exactly the schema that Spark expects, which may come from the user.  Raises ``SchemaMismatchError``
    if a value does not fit."""
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise SchemaMismatchError(
            f"the rows do not match the schema of the read: {e}",
            help="leave .schema(...) out, or pass the table's own types",
        ) from e


def rows_schema(schema: pa.Schema, uri: str) -> T.StructType:
    """The schema that Spark must declare: all nullable, because a file may lack a column.  Raises
    ``SchemaMismatchError`` for a type that Spark does not support."""
    try:
        return to_spark(from_arrow(schema).nullable)
    except SchemaMismatchError as e:
        raise SchemaMismatchError(
            f"Spark cannot read these columns: {e.message}",
            help="pass .schema(...) without the column, or with a Spark type, such as bigint",
            file=uri,
            column=e.context.get("column"),
        ) from e


@dataclass
class Piece(InputPartition):
    """The part of a table that one task reads; ``None`` if there is nothing to read."""

    part: Any


class RowsReader(DataSourceReader):
    """Reads the columns that Spark has declared, in the rows for which ``filter``, SQL over ``rows``, is true."""

    def __init__(self, schema: T.StructType, rows: pa.Schema, filter: str | None) -> None:
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
        self.rows = rows
        self.filter: TableFilter | None = parse_filter(filter, rows)

    @abstractmethod
    def pieces(self) -> Iterable[Any]:
        """The parts for the tasks.  Called once, before the reader is sent to them."""

    @abstractmethod
    def rows_of(self, piece: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a part, with the declared columns in their order; names and types may differ."""

    def partitions(self) -> Sequence[InputPartition]:
        return [Piece(part) for part in self.pieces()] or [Piece(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = cast(Piece, partition).part
        if part is not None:
            for batch in self.rows_of(part):
                yield from short_batches(as_declared(batch.rename_columns(self.declared.names), self.declared))


class StreamReader(api.DataSourceStreamReader, api.SupportsTriggerAvailableNow):
    """Reads a table as a stream, with the columns that Spark has declared.

    One process without a SparkSession, which lives as long as the query, makes offsets and parts; Spark's tasks read
    the parts.
    """

    #: The class of the stream's offsets.
    offset: Any
    #: The limits of a batch.
    max_files: int | None = None
    max_bytes: int | None = None

    def __init__(self, path: str, store: Mapping[str, str], schema: T.StructType) -> None:
        self.path, self.store = path, dict(store)
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()

    @cached_property
    def stream(self) -> Any:
        """The format's own stream, which knows the table's files."""
        return self.open_stream()

    @abstractmethod
    def open_stream(self) -> Any:
        """Open the format's own stream."""

    @abstractmethod
    def pieces(self, start: Any, end: Any) -> Iterable[Any]:
        """The parts of a batch for the tasks."""

    def initialOffset(self) -> Any:
        return self.stream.initial().to_json()

    def getDefaultReadLimit(self) -> api.ReadLimit:
        if self.max_files is not None:
            return api.ReadMaxFiles(self.max_files)
        return api.ReadAllAvailable() if self.max_bytes is None else api.ReadMaxBytes(self.max_bytes)

    def limit(self, limit: api.ReadLimit) -> Any:
        """Spark's limit, as the format's stream takes it: a number of files."""
        return limit.max_files if isinstance(limit, api.ReadMaxFiles) else None

    def latestOffset(self, start: dict[str, Any], limit: api.ReadLimit) -> Any:
        return self.stream.latest(self.offset.from_json(start), self.limit(limit)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.stop_at_newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Piece(part) for part in self.pieces(self.offset.from_json(start), self.offset.from_json(end))]


class StreamWriter(api.DataSourceStreamArrowWriter):
    """Writes the rows of a batch in tasks, like a batch write, and commits each batch once."""

    def __init__(self, job: Any, options: Options) -> None:
        self.job, self.checkpoint = job, checkpoint_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return self.job.write(iterator)

    def commit(self, messages: Sequence[api.WriterCommitMessage | None], batchId: int) -> None:
        self.job.commit_batch(messages, BatchId(query_id(open_store(self.checkpoint, self.job.store)), batchId))

    def abort(self, messages: Sequence[api.WriterCommitMessage | None], batchId: int) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted.
        del messages, batchId


#: The maximum bytes per task, and the cost of opening a file in bytes: Spark's defaults.
SPLIT_BYTES = 128 << 20
OPEN_BYTES = 4 << 20
#: The least number of tasks among which the bytes of many files are divided.
_TASKS = 8


def pack_files(files: Sequence[File], size: Callable[[File], int]) -> list[list[File]]:
    """Groups of files, large ones first; ``size`` returns the bytes of a file.

    >>> [len(group) for group in pack_files(range(100), lambda f: 1 << 20)]
    [12, 12, 12, 12, 12, 12, 12, 12, 4]
    """
    return adjacent_files(sorted(files, key=size, reverse=True), size)


def adjacent_files(files: Sequence[File], size: Callable[[File], int]) -> list[list[File]]:
    """Groups of adjacent files, in their order; ``size`` returns the bytes of a file."""
    weights = [size(f) + OPEN_BYTES for f in files]
    limit = min(SPLIT_BYTES, max(OPEN_BYTES, sum(weights) // _TASKS))
    out: list[list[File]] = []
    filled = limit
    for weight, file in zip(weights, files, strict=True):
        if filled + weight > limit:
            out.append([])
            filled = 0
        out[-1].append(file)
        filled += weight
    return out
