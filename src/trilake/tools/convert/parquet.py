"""Folders of Parquet files, with or without ``key=value`` subfolders, as Spark and others write them.

Such a folder has no log.  Files are written below ``_temporary``, which readers ignore, and moved when all are
complete.  ``_SUCCESS`` is written last: without it, a write is running or has failed.  :func:`source` and
:func:`target` return the two sides of a conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.common.option_values import positive
from trilake.common.runtime import Runtime
from trilake.delta.commands.maintenance.convert import committed_files
from trilake.delta.protocol.partitions import hive_directory
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    UnknownOptionError,
    UnknownOutcomeError,
    WriteFailedError,
)
from trilake.expr import Filter, parse_filter
from trilake.parquet.files import DAMAGE, PAGE_CHECKSUMS, open_parquet, unreadable
from trilake.parquet.old_calendar import rebasing_of
from trilake.storage import open_store
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import check_own, discard
from trilake.storage.staging import move, remove_folder, sync_names
from trilake.storage.uri import Location, parse_location
from trilake.table.conversion import (
    Done,
    Piece,
    Source,
    TargetRequest,
    fitted,
    for_parquet,
    kept_partitions,
    packed,
    plain_schema,
)
from trilake.table.folders import DataFile, data_file, is_hidden, partition_fields, partition_values
from trilake.table.table import FilterLike, projected

NAME = "parquet"
SUCCESS = "_SUCCESS"
_STAGING = "_temporary"
_BATCH = 1 << 16
#: Above this many buffered bytes in all folders, the largest folder is written.
_WAITING_BYTES = 256 << 20
#: Most open files: each keeps its footer in memory.
_OPEN_FILES = 64


def find(store: Store) -> tuple[Store, list[DataFile]]:
    """The Parquet files of a location, and their store.

    Skips hidden files, and files that Spark's streaming sink did not commit.
    """
    listing = list(store.list())
    committed = committed_files(store, frozenset(m.key for m in listing))
    visible = (m for m in listing if m.key.endswith(".parquet") and not is_hidden(m.key))
    files = [data_file(m) for m in visible if committed is None or m.key in committed]
    location = parse_location(store.uri)
    if files or not location.path.endswith(".parquet"):
        return store, files
    folder, _, key = location.path.rpartition("/")
    above = open_store(Location(location.scheme, location.authority, folder).uri, dict(store.options))
    meta = above.find(key)
    return (store, []) if meta is None else (above, [DataFile(key, meta.size)])


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetFolder:
    """Parquet files as one table with the columns of the first file; a column that another file lacks is null there."""

    store: Store
    files: tuple[DataFile, ...]

    @classmethod
    def open(cls, store: Store) -> ParquetFolder:
        """Find the files at a location.  Raises ``TableNotFoundError`` if there are none."""
        folder, files = find(store)
        if not files:
            raise TableNotFoundError("no Parquet files found", help="check the path", file=store.uri)
        if len({tuple(name for name, _ in f.partition) for f in files}) > 1:
            raise SchemaMismatchError(
                "files have different partition folders", help="convert the folders one by one", file=store.uri
            )
        return cls(folder, tuple(files))

    @cached_property
    def partitions(self) -> list[pa.Field]:
        """The partition columns, each with the narrowest type for all its values."""
        return partition_fields(self.files)

    @cached_property
    def schema(self) -> pa.Schema:
        with _open_file(self.store, self.files[0].key, as_noted=True) as first:
            footer_schema = first.schema_arrow
        names = {f.name for f in self.partitions}
        return plain_schema(
            pa.schema([*(f for f in footer_schema if f.name not in names), *self.partitions], footer_schema.metadata)
        )

    @property
    def rows(self) -> int:
        total = 0
        for file in self.files:
            with _open_file(self.store, file.key) as parquet_file:
                total += parquet_file.metadata.num_rows
        return total


@contextmanager
def _open_file(store: Store, key: str, *, as_noted: bool = False) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; errors name it."""
    try:
        with closing(store.open_input(key)) as source:
            yield open_parquet(source, as_noted=as_noted)
    except (*DAMAGE, OSError) as e:
        if isinstance(e, TrilakeError) or not (isinstance(e, DAMAGE) or type(e) is OSError):
            raise
        raise unreadable(e, file=f"{store.uri}/{key}") from e


def read_files(
    store: Store, files: Sequence[DataFile], schema: pa.Schema, columns: Sequence[str], filter: Filter | None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of files for which ``filter`` is true, in batches with ``columns`` of ``schema``."""
    selection = list(dict.fromkeys([*columns, *(filter.columns if filter is not None else ())]))
    for file in files:
        constants = [schema.field(name) for name, _ in file.partition if name in selection]
        values = partition_values([file], [schema.field(name) for name, _ in file.partition])
        with _open_file(store, file.key) as parquet_file:
            in_file = [n for n in parquet_file.schema_arrow.names if n in selection and n not in dict(file.partition)]
            rebasing = rebasing_of(parquet_file)
            for batch in parquet_file.iter_batches(_BATCH, columns=in_file):
                if rebasing is not None:
                    batch = rebasing.rows(batch)
                rows = batch.num_rows
                fixed = {f.name: pa.repeat(values[f.name][0], rows) for f in constants}
                arrays = [
                    fixed[n]
                    if n in fixed
                    else batch.column(n)
                    if n in in_file
                    else pa.nulls(rows, schema.field(n).type)
                    for n in selection
                ]
                selected = pa.RecordBatch.from_arrays(arrays, names=selection)
                selected = fitted(selected, pa.schema([schema.field(n).with_nullable(True) for n in selection]))
                if filter is not None:
                    selected = filter.apply(selected)
                if selected.num_rows:
                    yield selected.select(list(columns))


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetOptions:
    """Write options: Arrow's codec name, and the most rows per row group and per file."""

    compression: str = "snappy"
    row_group_rows: int = 1 << 17
    file_rows: int = 1 << 24

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ParquetOptions:
        """Parse ``compression``, ``maxRowsPerGroup`` and ``maxRowsPerFile``.  Raises ``UnknownOptionError``."""
        fields = {"compression": "compression", "maxrowspergroup": "row_group_rows", "maxrowsperfile": "file_rows"}
        values: dict[str, Any] = {}
        for name, value in options.items():
            field = fields.get(name.lower())
            if field is None:
                raise UnknownOptionError(
                    f"unknown option {name!r} for Parquet files",
                    help="options are compression, maxRowsPerGroup and maxRowsPerFile",
                )
            values[field] = value if field == "compression" else positive(name, str(value))
        codec = values.get("compression", "snappy").lower()
        if codec not in ("none", "uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"):
            raise InvalidArgumentError(
                f"unknown compression {codec!r}", help="use none, snappy, gzip, zstd, lz4 or brotli"
            )
        return cls(**{**values, "compression": "none" if codec == "uncompressed" else codec})


@dataclass(frozen=True)
class StagedParquet:
    """A staged file: its final and its current key, rows and bytes."""

    key: str
    staged: str
    rows: int
    size: int


class ParquetFiles:
    """The open files of one task attempt for ``rows``; an error in its ``with`` block discards them."""

    def __init__(self, rows: ParquetRows, task: int) -> None:
        self.store, self.options, self.partition_by = rows.store, rows.options, list(rows.partition_by)
        self.job, self.task, self.attempt = rows.job, task, rows.runtime.new_attempt()
        columns = [f for f in rows.schema if f.name not in self.partition_by]
        self.file_schema = pa.schema(columns, rows.schema.metadata)
        self.waiting: dict[str, list[pa.RecordBatch]] = {}
        self.counts: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.open: dict[str, tuple[pq.ParquetWriter, Any, StagedParquet]] = {}
        self.done: list[StagedParquet] = []

    def write(self, batch: pa.RecordBatch) -> None:
        for folder, rows in self._by_folder(batch):
            self.waiting.setdefault(folder, []).append(rows)
            self.counts[folder] = self.counts.get(folder, 0) + rows.num_rows
            self.sizes[folder] = self.sizes.get(folder, 0) + rows.nbytes
            if self.counts[folder] >= self.options.row_group_rows:
                self._flush(folder)
        while sum(self.sizes.values()) > _WAITING_BYTES:
            self._flush(max(self.sizes, key=lambda folder: self.sizes[folder]))

    def _by_folder(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self.partition_by:
            yield "", batch
            return
        strings = [pc.cast(batch.column(n), pa.string()) for n in self.partition_by]
        keys = [str(i) for i in range(len(strings))]
        rows = pa.Table.from_arrays([*strings, pa.array(np.arange(batch.num_rows))], names=[*keys, "row"])
        grouped = rows.group_by(keys, use_threads=False).aggregate([("row", "list")])
        folders = grouped.select(keys).rename_columns(self.partition_by).to_pylist()
        for values, numbers in zip(folders, grouped["row_list"], strict=True):
            yield hive_directory(values), batch.take(numbers.values).select(self.file_schema.names)

    def _flush(self, folder: str) -> None:
        batches = pa.Table.from_batches(self.waiting.pop(folder)).to_batches()
        rows = pa.Table.from_batches(batches, schema=self.file_schema)
        del self.counts[folder], self.sizes[folder]
        while rows.num_rows:
            writer, sink, file = self.open.pop(folder) if folder in self.open else self._start(folder)
            some = rows.slice(0, self.options.file_rows - file.rows)
            rows = rows.slice(some.num_rows)
            file = StagedParquet(file.key, file.staged, file.rows + some.num_rows, 0)
            self.open[folder] = writer, sink, file
            writer.write_table(some, self.options.row_group_rows)
            if file.rows >= self.options.file_rows:
                self._finish(folder)
            elif len(self.open) > _OPEN_FILES:
                self._finish(next(iter(self.open)))

    def _start(self, folder: str) -> tuple[pq.ParquetWriter, Any, StagedParquet]:
        name = f"part-{self.task:05d}-{self.job}-{self.attempt}.c{len(self.done) + len(self.open):03d}.parquet"
        key = f"{folder}/{name}" if folder else name
        staged = f"{_STAGING}/{self.job}/{key}"
        sink = self.store.open_output(staged)
        writer = pq.ParquetWriter(
            pa.PythonFile(sink, mode="w"), self.file_schema, compression=self.options.compression, **PAGE_CHECKSUMS
        )
        return writer, sink, StagedParquet(key, staged, 0, 0)

    def _finish(self, folder: str) -> None:
        writer, sink, file = self.open.pop(folder)
        writer.close()
        sink.close()
        self.done.append(StagedParquet(file.key, file.staged, file.rows, self.store.head(file.staged).size))

    def __enter__(self) -> ParquetFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            for folder in list(self.waiting):
                self._flush(folder)
            if not self.open and not self.done and not self.partition_by and not self.task:
                self.open[""] = self._start("")  # a write without rows still needs a schema
            for folder in list(self.open):
                self._finish(folder)
            return
        for writer, sink, _ in self.open.values():
            writer.is_open = False  # otherwise its destructor tries to write the footer
            sink.__exit__(kind, error, None)
        discard(self.store, [f.staged for f in self.done])


def publish(store: Store, job: str, files: Iterable[StagedParquet], old: Sequence[str]) -> None:
    """Move staged files to their final keys, delete the ``old`` ones, and write ``_SUCCESS``.

    Raises ``WriteFailedError`` if a file cannot be moved, after removing the moved ones, and ``StorageError`` if an old
    file lies behind a symbolic link or in another table, before any change.
    """
    check_own(store, old, what="the overwrite")
    store.delete([SUCCESS])
    moved: list[str] = []
    try:
        for file in files:
            moved.append(file.key)
            move(store, file.staged, file.key)
        sync_names(store, moved)
    except (StorageError, OSError) as e:
        with suppress(StorageError, OSError):  # report why a file could not be moved
            store.delete(moved)
            clean(store, job)
        again = "repeat the conversion"
        if isinstance(e, UnknownOutcomeError):
            again = f"if {moved[-1]} appears later, remove it, as it would duplicate rows; then {again}"
        raise WriteFailedError(
            f"a file could not be moved to its final name: {e}",
            help=f"{again}; the folder's earlier files are unchanged, except {SUCCESS}, which was deleted",
            file=f"{store.uri}/{moved[-1]}",
        ) from e
    store.delete(old)
    clean(store, job)
    store.put(SUCCESS, b"")


def clean(store: Store, job: str) -> None:
    """Remove the staged files of a job."""
    store.delete([meta.key for meta in store.list(f"{_STAGING}/{job}")])
    remove_folder(store, f"{_STAGING}/{job}")
    remove_folder(store, _STAGING, only_empty=True)


# --- the source and the target of a conversion ------------------------------------------------------------------------


def source(store: Store, columns: list[str] | None, filter: FilterLike | None) -> Source:
    """The rows of a folder, split by file sizes.  Raises the errors of :meth:`ParquetFolder.open`."""
    folder = ParquetFolder.open(store)
    whole = folder.schema
    selected = projected(whole, columns, store.uri)
    bound = parse_filter(filter, whole)

    def piece(some: Sequence[DataFile]) -> Piece:
        return partial(read_files, folder.store, some, whole, selected.names, bound)

    several = len(folder.files) > 1  # one may lack a column of another
    fields = [f.with_nullable(f.nullable or several) for f in selected]
    return Source(
        uri=store.uri,
        format=NAME,
        version=None,
        schema=pa.schema(fields, whole.metadata),
        partition_by=tuple(f.name for f in folder.partitions if f.name in selected.names),
        rows=folder.rows if filter is None else None,
        whole=(piece(folder.files),),
        cut=lambda: tuple((piece(run),) for run in packed([(f, f.size) for f in folder.files])),
    )


@dataclass(frozen=True)
class ParquetRows:
    """Write and read back staged Parquet files."""

    store: Store
    job: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    options: ParquetOptions
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> list[StagedParquet]:
        with ParquetFiles(self, task) as files:
            for batch in batches:
                files.write(fitted(batch, self.schema))
        return files.done

    def read_back(self, written: list[StagedParquet]) -> Iterator[pa.RecordBatch]:
        data_files = [data_file(ObjectMeta(f.key, f.size, 0)) for f in written]
        types = {f.name: f for f in partition_fields(data_files)}
        schema = pa.schema([types.get(f.name, f).with_nullable(True) for f in self.schema])
        files = [DataFile(s.staged, s.size, f.partition) for s, f in zip(written, data_files, strict=True)]
        return read_files(self.store, files, schema, self.names, None)


class ParquetTarget:
    """A folder of Parquet files."""

    exact = True

    def __init__(self, store: Store, rows: ParquetRows, old: Sequence[str]) -> None:
        self.store, self.rows, self.old = store, rows, old

    def commit(self, written: Sequence[list[StagedParquet]]) -> Done:
        files = [f for some in written for f in some]
        publish(self.store, self.rows.job, files, self.old)
        return Done(None, len(files), sum(f.size for f in files))

    def discard(self, written: Sequence[list[StagedParquet]]) -> None:
        clean(self.store, self.rows.job)


def target(store: Store, source: Source, request: TargetRequest, exists: bool) -> ParquetTarget:
    """The target at a location.  Raises the errors of :func:`trilake.tools.convert.run.begin`."""
    if exists and request.mode == "error":
        raise TableExistsError("the target already contains Parquet files", file=store.uri)
    schema = for_parquet(source.schema)
    partition_by = kept_partitions(source, request, exists)
    old: list[str] = []
    if exists:
        folder = ParquetFolder.open(store)
        if folder.store.uri != store.uri:
            raise TableExistsError(
                "the target must be a folder, got a file", help="choose another location", file=store.uri
            )
        if request.mode == "append":
            partition_by, schema = _appended(folder, partition_by, schema)
        else:
            old = [f.key for f in folder.files]
            check_own(store, old, what="the overwrite")
    if len(partition_by or ()) == len(schema):
        raise InvalidArgumentError("every column is a partition column", help="leave a column out of partition_by")
    options = ParquetOptions.of(request.options)
    runtime, names = request.runtime, tuple(source.schema.names)
    job = runtime.new_hex_id()
    rows = ParquetRows(store, job, schema, tuple(partition_by or ()), options, names, runtime)
    return ParquetTarget(store, rows, old)


def _appended(
    folder: ParquetFolder, partition_by: tuple[str, ...] | None, schema: pa.Schema
) -> tuple[tuple[str, ...], pa.Schema]:
    """The partitions and schema for an append to an existing folder.  Raises ``SchemaMismatchError``."""
    have = folder.schema
    partitions = tuple(f.name for f in folder.partitions)
    if partition_by is not None and tuple(partition_by) != partitions:
        raise SchemaMismatchError(
            f"partition_by must be {list(partitions)}, as in the folder, got {list(partition_by)}",
            help="leave partition_by out",
            file=folder.store.uri,
        )
    wrong = sorted(set(schema.names) ^ set(have.names))
    if wrong:
        raise SchemaMismatchError(
            f"the rows and the folder's files have different columns: {', '.join(wrong)}",
            help=f"pass columns=[…] to select the folder's columns: {', '.join(have.names)}",
            file=folder.store.uri,
            column=wrong[0],
        )
    fields = [schema.field(f.name) if f.name in partitions else f.with_nullable(True) for f in have]
    return partitions, pa.schema(fields, have.metadata)
