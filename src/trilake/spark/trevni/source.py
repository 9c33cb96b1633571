"""The Python data source ``trevni``: batch reads and writes, and Spark's part of Trevni's streams.

Each partition of a read is a file or a range of its rows; the path may be a file, a folder, a glob or partition
folders. Tasks write staged files, and the driver moves them into place after all tasks are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T

from trilake.errors import SchemaMismatchError
from trilake.spark.session.compat import with_offsets
from trilake.spark.session.options import EXISTING, STREAM_WRITE_OPTIONS, Options, table_path
from trilake.spark.session.schemas import from_spark, new_columns
from trilake.spark.session.sources import api
from trilake.spark.session.sources.api import stream_reader, stream_writer
from trilake.spark.session.sources.rows_source import (
    Piece,
    RowsReader,
    StreamReader,
    StreamWriter,
    adjacent_files,
    as_declared,
    rows_schema,
)
from trilake.storage import open_store
from trilake.table.streams import BatchId
from trilake.table.table import table_gone
from trilake.trevni.tables.dataset import Split, list_files, read_split
from trilake.trevni.tables.row_groups import StagedFile
from trilake.trevni.tables.stream import TrevniOffset, TrevniStream, commit_batch, parse_limit
from trilake.trevni.tables.table import TrevniTable
from trilake.trevni.tables.table_write import (
    OPTIONS,
    TableWritePlan,
    finish_table_write,
    give_up,
    plan_table_write,
    write_options,
    write_rows,
)

READ_OPTIONS = ("filter", "splitSize", "trusted")
WRITE_OPTIONS = ("partitionBy", *OPTIONS)


class TrevniDataSource(api.DataSource):
    """Trevni files as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        return "trevni"

    def schema(self) -> T.StructType:
        # Spark does not say whether it needs the columns for a read or for a stream.
        table, _ = self.opened(TREVNI_STREAM_OPTIONS)
        return rows_schema(table.schema, table.uri)

    def reader(self, schema: T.StructType) -> api.DataSourceReader:
        table, options = self.opened()
        size = options.positive("splitSize", "bytes")
        return TrevniReader(table, schema, filter=options.get("filter"), size=size)

    def writer(self, schema: T.StructType, overwrite: bool) -> TrevniWriter:
        return self._writer(schema, overwrite, Options(self.options, WRITE_OPTIONS))

    def streamReader(self, schema: T.StructType) -> api.DataSourceStreamReader:
        options = Options({"failOnDataLoss": "true", **self.options}, TREVNI_STREAM_OPTIONS, reading=True)
        limit, fail = parse_limit(options.get("maxFilesPerTrigger")), options.flag("failOnDataLoss")
        path = table_path(self.options)
        reader = TrevniStreamReader(path, options.store, schema, limit=limit, fail_on_data_loss=fail)
        return stream_reader(reader, {"maxFilesPerTrigger"} & options.values.keys())

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> api.DataSourceStreamWriter:
        options = Options(self.options, (*WRITE_OPTIONS, *STREAM_WRITE_OPTIONS))
        if options.flag(EXISTING) and not list_files(open_store(table_path(self.options), options.store)):
            raise table_gone(table_path(self.options))
        return stream_writer(StreamWriter(self._writer(schema, overwrite, options), options), schema)

    def _writer(self, schema: T.StructType, overwrite: bool, options: Options) -> TrevniWriter:
        write_values = {k: v for k, v in options.values.items() if k in WRITE_OPTIONS}
        partition_by = write_values.pop("partitionBy", None)
        path = table_path(self.options)
        if not schema.fields:
            raise SchemaMismatchError(
                "Spark does not pass rows without columns to a data source",
                help="select at least one column",
                file=path,
            )
        plan = plan_table_write(
            open_store(path, options.store),
            new_columns(schema),
            mode="overwrite" if overwrite else "append",
            partition_by=None if partition_by is None else [c.strip() for c in partition_by.split(",") if c.strip()],
            options=write_options(write_values),
        )
        return TrevniWriter(path, options.store, plan)

    def opened(self, more: Sequence[str] = ()) -> tuple[TrevniTable, Options]:
        """The files that the options name, and the options; ``more`` are additional valid names."""
        options = Options(self.options, (*READ_OPTIONS, *more), reading=True)
        return TrevniTable(table_path(self.options), options=options.store, trusted=options.flag("trusted")), options


class TrilakeTrevniDataSource(TrevniDataSource):
    """The data source ``trilake-trevni``, a name that no other source uses."""

    @classmethod
    def name(cls) -> str:
        return "trilake-trevni"


class TrevniReader(RowsReader):
    """Reads files, or ranges of their rows; by default, a task reads many small files."""

    def __init__(self, table: TrevniTable, schema: T.StructType, *, filter: str | None, size: int | None) -> None:
        # Files may have columns that the first one lacks, so a filter may name columns that only Spark has declared.
        declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
        rows, self.columns = _read_schema(table.found_schema, declared)
        super().__init__(schema, rows, filter)
        self.table: TrevniTable | None = table.under(rows)
        self.size = size

    def pieces(self) -> list[list[Split]]:
        assert self.table is not None
        splits = self.table.splits(self.filter, size=self.size)
        self.table = None  # tasks need their splits, not the list of all files
        return [[split] for split in splits] if self.size else adjacent_files(splits, lambda split: split.size)

    def rows_of(self, piece: list[Split]) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(read_split(split, self.rows, self.columns, self.filter) for split in piece)


def _read_schema(table: pa.Schema, declared: pa.Schema) -> tuple[pa.Schema, list[str]]:
    """The schema for reading, and the names in it of the columns that Spark declared.  Names are case-insensitive and
    types are the declared ones; other files may have columns that the first one lacks."""
    by_lower = {name.lower(): name for name in table.names}
    names = [name if name in table.names else by_lower.get(name.lower(), name) for name in declared.names]
    fields = {f.name: f for f in table}
    fields.update({name: pa.field(name, f.type) for name, f in zip(names, declared, strict=True)})
    return pa.schema(list(fields.values())), names


@dataclass
class StagedFiles(api.WriterCommitMessage):
    """The files of one task, and their plan."""

    files: list[StagedFile]
    plan: TableWritePlan


def task_name() -> tuple[str, str]:
    """Names for the running task and for this attempt of the task."""
    context = TaskContext.get()
    return ("00000", "0") if context is None else (f"{context.partitionId():05d}", str(context.taskAttemptId()))


class TrevniWriter(api.DataSourceArrowWriter):
    """Stages files in tasks and moves them into place on the driver."""

    def __init__(self, path: str, store: Mapping[str, str], plan: TableWritePlan) -> None:
        self.path, self.store, self.plan = path, store, plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:
        task, attempt = task_name()
        store = open_store(self.path, dict(self.store))
        return StagedFiles(
            write_rows(store, self.plan, map(with_offsets, iterator), task=task, attempt=attempt), self.plan
        )

    def commit(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        files = [f for m in messages if isinstance(m, StagedFiles) for f in m.files]
        finish_table_write(open_store(self.path, dict(self.store)), self.plan, files)

    def commit_batch(self, messages: Sequence[api.WriterCommitMessage | None], batch: BatchId) -> None:
        """Move the files of a stream's batch into place once."""
        parts = [m for m in messages if isinstance(m, StagedFiles)]
        # Spark created this writer only for the commit; tasks used the plan of another writer.
        plan = parts[0].plan if parts else self.plan
        commit_batch(open_store(self.path, dict(self.store)), plan, batch, [f for m in parts for f in m.files])

    def abort(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        # Tasks may still be running.  If the job is committed after all, it stays committed.
        give_up(open_store(self.path, dict(self.store)), self.plan)


TREVNI_STREAM_OPTIONS = ("maxFilesPerTrigger", "failOnDataLoss")


class TrevniStreamReader(StreamReader):
    """Reads a folder as a stream of files, with the columns of its first file when the stream was declared."""

    offset = TrevniOffset

    def __init__(
        self, path: str, store: Mapping[str, str], schema: T.StructType, *, limit: int, fail_on_data_loss: bool
    ) -> None:
        super().__init__(path, store, schema)
        self.max_files, self.fail = limit, fail_on_data_loss

    def open_stream(self) -> TrevniStream:
        return TrevniStream(open_store(self.path, self.store), fail_on_data_loss=self.fail)

    def pieces(self, start: TrevniOffset, end: TrevniOffset) -> list[list[Split]]:
        return [] if start == end else adjacent_files(self.stream.batch(end), lambda split: split.size)

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        for split in cast(Piece, partition).part:
            for batch in read_split(split, self.declared):
                yield as_declared(batch, self.declared)
