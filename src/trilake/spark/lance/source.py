"""The Python data source ``lance``: batch reads and writes, and Spark's part of Lance's streams.

Each partition of a read is one fragment of a version.  Tasks write data files that no version references; the driver
commits them after all tasks are done, so the rows of a job appear all at once or never.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types as T

from trilake.common.runtime import Runtime
from trilake.common.text import columns_help
from trilake.delta.standard import standard_engine
from trilake.errors import SchemaMismatchError, TrilakeError
from trilake.lance.commands.fragment_writer import Target, WriteOptions, check_fields, discard, write_fragments
from trilake.lance.commands.stream_sink import commit_batch
from trilake.lance.commands.write import Mode, WritePlan, commit_write, plan_write
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID, FragmentReader, one_batch
from trilake.lance.scan.scan import ScanPlan, candidate_groups, scan
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.table import OPTIONS, version_at, write_options
from trilake.lance.versions import transaction
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.stream import LanceOffset, LanceStream, LanceStreamOptions, parse_options
from trilake.lance.versions.versions import list_versions, read_tag
from trilake.spark.lance import ml_vectors
from trilake.spark.lance.vectors import Vectors, with_vectors
from trilake.spark.session.compat import with_offsets
from trilake.spark.session.options import EXISTING, STREAM_WRITE_OPTIONS, Options, table_path
from trilake.spark.session.schemas import arrow_columns, new_columns
from trilake.spark.session.sources import api
from trilake.spark.session.sources.api import stream_reader, stream_writer
from trilake.spark.session.sources.rows_source import (
    SPLIT_BYTES,
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

READ_OPTIONS = ("version", "tag", "timestamp", "filter", "batchSize", "rowId", "rowAddress", "mlVectors")
WRITE_OPTIONS = ("vectors", "vectorType", *OPTIONS)


class LanceDataSource(api.DataSource):
    """A Lance dataset as a Spark data source.

    Options of a read: ``version``, ``tag`` or ``timestamp``; ``filter``, a SQL condition that selects rows;
    ``batchSize``; ``rowId`` and ``rowAddress``, which add the columns ``_rowid`` and ``_rowaddr``; ``mlVectors``, the
    columns to read as vectors of Spark ML (``*`` for all, empty for none; by default those that were written from such
    vectors).  Options of a write: those of :func:`trilake.lance.table.write_options`; ``vectors``, such as
    ``"v:128,w"``: array columns that become vectors in a new dataset, with the size of the first row by default; and
    ``vectorType``, ``float`` or ``double``.  Vectors of Spark ML become vectors of doubles.
    """

    @classmethod
    def name(cls) -> str:
        return "lance"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        #: The dataset at the time when Spark read a stream's columns; Spark pickles this object for the stream.
        self.analysed: Manifest | None = None

    def schema(self) -> T.StructType:
        # Spark does not say whether it needs the columns for a read or for a stream.
        snapshot, options = self.opened(LANCE_STREAM_OPTIONS)
        self.analysed = replace(snapshot.manifest, fragments=(), indices=())
        schema = snapshot.schema
        for option, name in (("rowId", ROW_ID), ("rowAddress", ROW_ADDRESS)):
            if options.flag(option):
                schema = schema.append(pa.field(name, pa.int64()))
        rows = rows_schema(schema, snapshot.store.uri)
        names = ml_vectors.vector_columns(options.get("mlVectors"), schema)
        return ml_vectors.declared(rows, names) if names else rows

    def reader(self, schema: T.StructType) -> api.DataSourceReader:
        snapshot, options = self.opened()
        size = options.positive("batchSize", "rows")
        return LanceReader(snapshot, options.store, schema, filter=options.get("filter"), batch_size=size)

    def writer(self, schema: T.StructType, overwrite: bool) -> LanceWriter:
        return self._writer(schema, overwrite, Options(self.options, WRITE_OPTIONS))

    def _writer(self, schema: T.StructType, overwrite: bool, options: Options) -> LanceWriter:
        write_values = {k: v for k, v in options.values.items() if k in WRITE_OPTIONS}
        vectors = Vectors.of(write_values.pop("vectors", None), write_values.pop("vectorType", None))
        path = table_path(self.options)
        mode: Mode = "overwrite" if overwrite else "append"
        return LanceWriter.begin(path, options.store, schema, mode, write_options(write_values), vectors)

    def streamReader(self, schema: T.StructType) -> api.DataSourceStreamReader:
        options = Options(self.options, LANCE_STREAM_OPTIONS, reading=True)
        stream_options = parse_options(options.values)
        reader = LanceStreamReader(table_path(self.options), options.store, schema, stream_options, self.analysed)
        return stream_reader(reader, {"maxFilesPerTrigger"} & options.values.keys())

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> api.DataSourceStreamWriter:
        options = Options(self.options, (*WRITE_OPTIONS, *STREAM_WRITE_OPTIONS))
        if options.flag(EXISTING) and not list_versions(open_store(table_path(self.options), options.store)).versions:
            raise table_gone(table_path(self.options))
        return stream_writer(StreamWriter(self._writer(schema, overwrite, options), options), schema)

    def opened(self, more: Sequence[str] = ()) -> tuple[Snapshot, Options]:
        """The version that the options name, and the options; ``more`` are additional valid names."""
        options = Options(self.options, (*READ_OPTIONS, *more), reading=True)
        options.one_of("version", "tag", "timestamp")
        store = open_store(table_path(self.options), options.store)
        version, tag, timestamp = options.integer("version"), options.get("tag"), options.get("timestamp")
        if tag is not None:
            version = read_tag(store, tag).version
        elif timestamp is not None:
            version = version_at(store, timestamp)
        return Snapshot.open(store, standard_engine().runtime, version), options


class TrilakeLanceDataSource(LanceDataSource):
    """The data source ``trilake-lance``, a name that no other source uses."""

    @classmethod
    def name(cls) -> str:
        return "trilake-lance"


#: Rows of the first, short read of a task.
_FIRST_ROWS = 1024
#: Approximate limits on the rows and bytes of a combined batch.
_GATHERED_ROWS, _GATHERED_BYTES = 1 << 16, 16 << 20


class LanceReader(RowsReader):
    """Reads fragments, one per task."""

    def __init__(
        self,
        snapshot: Snapshot,
        store: Mapping[str, str],
        schema: T.StructType,
        *,
        filter: str | None,
        batch_size: int | None,
    ) -> None:
        schema, ml = ml_vectors.plain(schema)
        self.ml = tuple(ml)
        super().__init__(schema, snapshot.schema, filter)
        self.uri, self.store = snapshot.store.uri, dict(store)
        self.stored = snapshot.manifest.schema
        self.snapshot: Snapshot | None = snapshot
        self.base_paths = snapshot.manifest.base_paths
        self.columns, self.row_metadata = _columns(snapshot.view.schema, self.declared, self.uri)
        self.batch_size = batch_size

    def pieces(self) -> list[list[Fragment]]:
        assert self.snapshot is not None
        snapshot, self.snapshot = self.snapshot, None  # tasks need their fragments, not the list of all
        readers = snapshot.readers
        if self.filter is not None:
            candidates = snapshot.candidates(self.filter)[0] or {}
            # Skip fragments in which an index finds no row.
            readers = tuple(r for r in readers if len(candidates.get(r.fragment.id, (0,))))
            readers = tuple(r for r in readers if candidate_groups(r, self.filter, snapshot.view))
        return adjacent_files([r.fragment for r in readers], fragment_bytes)

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        batches = super().read(partition)
        for batch in batches if self.batch_size is not None or not len(self.declared) else _join_batches(batches):
            yield ml_vectors.vectors_in(batch, self.ml)

    def rows_of(self, piece: list[Fragment]) -> Iterator[pa.RecordBatch]:
        view = View(self.stored)
        columns = view.schema.project(list(dict.fromkeys(self.columns)))
        row_metadata = tuple(name for name in self.declared.names if name in self.row_metadata)
        plan = ScanPlan(view, columns, self.filter, batch_size=self.batch_size, row_metadata=row_metadata)
        store = open_store(self.uri, self.store)
        bases = Bases(store, self.base_paths)
        readers = [FragmentReader(store, fragment, self.stored, bases) for fragment in piece]
        plans = [plan]
        if self.filter is None and self.batch_size is None:  # a few rows first, since Spark may need no more
            plans = [replace(plan, limit=_FIRST_ROWS), replace(plan, offset=_FIRST_ROWS, joined=True)]
        for batch in chain.from_iterable(scan(each, readers, threads=1) for each in plans):
            yield self._arranged(batch)

    def _arranged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.row_metadata and batch.schema.names == self.columns:
            return batch
        names = iter(self.columns)
        arrays = [
            batch.column(name).cast(pa.int64()) if name in self.row_metadata else batch.column(next(names))
            for name in self.declared.names
        ]
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, names=self.declared.names)


def fragment_bytes(fragment: Fragment) -> int:
    """The stored bytes of a fragment; those of a whole task if the manifest does not state them."""
    sizes = [file.size_bytes for file in fragment.files]
    return sum(sizes) if all(sizes) else SPLIT_BYTES


def _join_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in fewer batches: the first one unchanged, then each twice as large, up to a limit, since for Spark's
    worker a batch of one row costs as much as one of 1,000."""
    target = rows = size = 0
    batches_so_far: list[pa.RecordBatch] = []
    for batch in batches:
        batches_so_far.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= target or size >= _GATHERED_BYTES:
            yield batch if len(batches_so_far) == 1 else one_batch(pa.Table.from_batches(batches_so_far))
            target = min(2 * max(rows, target), _GATHERED_ROWS)
            batches_so_far, rows, size = [], 0, 0
    if batches_so_far:
        yield one_batch(pa.Table.from_batches(batches_so_far))


def _columns(schema: LanceSchema, declared: pa.Schema, uri: str) -> tuple[list[str], frozenset[str]]:
    """The dataset's names of the declared columns, and the declared columns for row IDs and addresses."""
    existing = {name.lower() for name in schema.names}
    row_metadata = frozenset(name for name in (ROW_ID, ROW_ADDRESS) if name in declared.names and name not in existing)
    return stored_names(schema, [n for n in declared.names if n not in row_metadata], uri), row_metadata


@dataclass
class WrittenFragments(api.WriterCommitMessage):
    """The fragments of one task, and the sizes of its vectors."""

    fragments: list[Fragment]
    sizes: dict[str, int]


@dataclass
class LanceWriter(api.DataSourceArrowWriter):
    """Writes data files in tasks and commits them on the driver."""

    path: str
    store: dict[str, str]
    mode: Mode
    read_version: int
    #: The stored schema; ``None`` while sizes of vectors are unknown.
    schema: LanceSchema | None
    options: WriteOptions
    #: The columns of a new dataset.
    arrow: pa.Schema
    vectors: Vectors
    runtime: Runtime
    version: StorageVersion

    @classmethod
    def begin(
        cls,
        path: str,
        store: Mapping[str, str],
        schema: T.StructType,
        mode: Mode,
        options: WriteOptions,
        vectors: Vectors | None = None,
    ) -> LanceWriter:
        plan = plan_write(open_store(path, dict(store)), mode, standard_engine().runtime, options)
        arrays, ml = ml_vectors.plain(schema)
        appends = plan.mode == "append" and plan.base is not None
        arrow = arrow_columns(arrays) if appends else new_columns(arrays)
        vectors = (vectors or Vectors()).and_ml(ml, arrow)
        stored: LanceSchema | None = None
        if plan.mode == "append" and plan.base is not None:
            view = plan.target(arrow).view
            stored = view.whole
            if set(arrow.names) != set(view.schema.names):
                raise SchemaMismatchError(
                    f"the dataset has the columns {', '.join(view.schema.names)}, but the rows have "
                    + ", ".join(arrow.names),
                    help="select and rename columns to match the dataset",
                    file=path,
                )
            for f in view.schema.storage_schema:
                check_fields(arrow.field(f.name).type, f)
        elif not vectors.unsized:
            stored = plan.target(with_vectors(arrow, vectors, {})).view.whole
        version = 0 if plan.base is None else plan.base.version
        return cls(path, dict(store), mode, version, stored, options, arrow, vectors, plan.runtime, plan.version)

    def target(self, sizes: Mapping[str, int]) -> Target:
        """The target of a task's rows.  A new dataset gets no dictionaries, since tasks would not agree on one."""
        schema = self.schema
        if schema is None:
            arrow = with_vectors(self.arrow, self.vectors, sizes)
            schema = Target.new(arrow, self.version, nulls=self.options.nulls).view.whole
        return Target(schema, self.version, nulls=self.options.nulls)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFragments:
        batches: Iterator[pa.RecordBatch] = (
            ml_vectors.lists_in(b, self.vectors.ml) for b in map(with_offsets, iterator)
        )
        sizes: dict[str, int] = {}
        if self.schema is None:
            sizes, batches = self.vectors.sizes_in(batches)
            if len(sizes) < len(self.vectors.unsized):
                return WrittenFragments([], {})  # there are no rows
        store = open_store(self.path, self.store)
        return WrittenFragments(write_fragments(store, batches, self.target(sizes), self.options, self.runtime), sizes)

    def commit(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        self.finish(messages)

    def finish(self, messages: Sequence[api.WriterCommitMessage | None]) -> Snapshot:
        """Commit the fragments of all tasks; raises the error of :meth:`collected`."""
        return commit_write(open_store(self.path, self.store), *self.collected(messages))

    def collected(self, messages: Sequence[api.WriterCommitMessage | None]) -> tuple[WritePlan, Target, list[Fragment]]:
        """What the tasks wrote, for a commit.  Raises ``SchemaMismatchError``, with the files deleted, if tasks found
        vectors of different sizes."""
        store = open_store(self.path, self.store)
        results = [m for m in messages if isinstance(m, WrittenFragments)]
        fragments = [f for w in results for f in w.fragments]
        try:
            target = self.target(self.vectors.common_sizes([w.sizes for w in results]) if self.schema is None else {})
        except TrilakeError:
            discard(store, fragments)
            raise
        base = transaction.load(store, self.read_version) if self.read_version else None
        return WritePlan(self.mode, base, self.options, self.runtime), target, fragments

    def commit_batch(self, messages: Sequence[api.WriterCommitMessage | None], batch: BatchId) -> None:
        """Commit the fragments of a stream's batch once; raises the error of :meth:`collected`."""
        plan, target, fragments = self.collected(messages)
        commit_batch(open_store(self.path, self.store), plan, target, batch, fragments)

    def abort(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted.
        del messages


LANCE_STREAM_OPTIONS = (
    "startingVersion",
    "maxFilesPerTrigger",
    "ignoreDeletes",
    "ignoreChanges",
    "skipChangeCommits",
    "failOnDataLoss",
)


class LanceStreamReader(StreamReader):
    """Reads a dataset as a stream; ``analysed`` is the dataset at the time when Spark read its columns."""

    offset = LanceOffset

    def __init__(
        self,
        path: str,
        store: Mapping[str, str],
        schema: T.StructType,
        options: LanceStreamOptions,
        analysed: Manifest | None,
    ) -> None:
        arrays, ml = ml_vectors.plain(schema)
        super().__init__(path, store, arrays)
        self.ml, self.options, self.analysed = tuple(ml), options, analysed
        self.max_files = options.max_fragments

    def open_stream(self) -> LanceStream:
        store = open_store(self.path, self.store)
        return LanceStream(store, self.analysed or transaction.load(store), self.options)

    def reportLatestOffset(self) -> Any:
        return self.stream.newest().to_json()

    def pieces(self, start: LanceOffset, end: LanceOffset) -> list[list[tuple[Fragment, LanceSchema]]]:
        return adjacent_files(self.stream.batch(start, end), lambda each: fragment_bytes(each[0]))

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        store = open_store(self.path, self.store)
        for stored, some in groupby(cast(Piece, partition).part, itemgetter(1)):  # the columns are those of a version
            view = View(stored)
            columns = stored_names(view.schema, self.declared.names, self.path)
            plan = ScanPlan(view, view.schema.project(list(dict.fromkeys(columns))), None)
            readers = [FragmentReader(store, fragment, stored) for fragment, _ in some]
            for batch in scan(plan, readers, threads=1):
                renamed = batch.select(columns).rename_columns(self.declared.names)
                yield ml_vectors.vectors_in(as_declared(renamed, self.declared), self.ml)


def stored_names(schema: LanceSchema, names: Sequence[str], uri: str) -> list[str]:
    """The dataset's names of these columns, ignoring case.  Raises ``SchemaMismatchError`` for an unknown column."""
    by_lower = {name.lower(): name for name in schema.names}
    for name in names:
        if name.lower() not in by_lower:
            raise SchemaMismatchError(
                f"column {name!r} not found in the dataset",
                help=columns_help(name, schema.names),
                file=uri,
                column=name,
            )
    return [name if name in schema.names else by_lower[name.lower()] for name in names]
