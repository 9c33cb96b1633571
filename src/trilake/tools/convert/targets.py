"""Targets of a conversion, including folders of Parquet files, where ``_SUCCESS`` is written last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TrilakeError
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import check_own
from trilake.table.conversion import Done, Source, Target, TargetRequest, fitted, for_parquet, kept_partitions
from trilake.table.folders import DataFile, data_file, partition_fields
from trilake.table.registry import DEFAULT, format_named
from trilake.tools.convert import parquet
from trilake.tools.convert.sources import PARQUET, format_at


def begin(store: Store, source: Source, request: TargetRequest) -> Target:
    """Check the target, and whether it can hold the rows; nothing is written.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``InvalidArgumentError`` and ``UnsupportedProtocolError``.
    """
    if request.mode not in ("error", "append", "overwrite"):
        raise InvalidArgumentError(f"mode {request.mode!r} is unknown", help="modes are append, error, overwrite")
    if request.data_format is not None and request.format != DEFAULT:
        raise InvalidArgumentError("data_format is the format of a Delta table's files", help="leave it out")
    unknown = [c for c in request.partition_by or () if c not in source.schema.names]
    if unknown:
        raise InvalidArgumentError(
            f"partition_by names {', '.join(map(repr, unknown))}, which is not a column of the rows",
            help=f"the columns are {', '.join(source.schema.names)}",
        )
    there = format_at(store)
    if there is not None and there != request.format:
        raise TableExistsError(
            f"{there} files are there",
            help="convert to another location, or remove them if a write that failed has left them",
            file=store.uri,
        )
    exists = there is not None
    if request.format == PARQUET:
        return parquet_target(store, source, request, exists)
    return format_named(request.format).target(store, source, request, exists)


@dataclass(frozen=True)
class ParquetRows:
    """Staged files of a folder."""

    store: Store
    job: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    options: parquet.ParquetOptions
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> list[parquet.StagedParquet]:
        attempt, by = self.runtime.new_attempt(), self.partition_by
        with parquet.ParquetFiles(self.store, self.job, task, attempt, self.schema, by, self.options) as files:
            for batch in batches:
                files.write(fitted(batch, self.schema))
        return files.done

    def read_back(self, written: list[parquet.StagedParquet]) -> Iterator[pa.RecordBatch]:
        data_files = [data_file(ObjectMeta(f.key, f.size, 0)) for f in written]
        types = {f.name: f for f in partition_fields(data_files)}
        schema = pa.schema([types.get(f.name, f).with_nullable(True) for f in self.schema])
        files = [DataFile(s.staged, s.size, f.partition) for s, f in zip(written, data_files, strict=True)]
        return parquet.read_files(self.store, files, schema, self.names, None)


class ParquetTarget:
    """A folder of Parquet files: ``_SUCCESS`` is written last."""

    exact = True

    def __init__(self, store: Store, rows: ParquetRows, old: Sequence[str]) -> None:
        self.store, self.rows, self.old = store, rows, old

    def commit(self, written: Sequence[list[parquet.StagedParquet]]) -> Done:
        files = [f for some in written for f in some]
        parquet.publish(self.store, self.rows.job, files, self.old)
        return Done(None, len(files), sum(f.size for f in files))

    def discard(self, written: Sequence[list[parquet.StagedParquet]]) -> None:
        with suppress(TrilakeError, OSError):  # report why the conversion failed
            parquet.clean(self.store, self.rows.job)


def parquet_target(store: Store, source: Source, request: TargetRequest, exists: bool) -> ParquetTarget:
    """The target at a location.  Raises ``TableExistsError``, ``SchemaMismatchError`` and ``InvalidArgumentError``."""
    if exists and request.mode == "error":
        raise TableExistsError("Parquet files are there already", file=store.uri)
    schema = for_parquet(source.schema)
    partition_by = kept_partitions(source, request, exists)
    old: list[str] = []
    if exists:
        folder = parquet.ParquetFolder.open(store)
        if folder.store.uri != store.uri:
            raise TableExistsError("a file is there, and no folder", help="name a folder", file=store.uri)
        if request.mode == "append":
            partition_by, schema = _appended(folder, partition_by, schema)
        else:
            old = [f.key for f in folder.files]
            check_own(store, old, what="the overwrite")
    if len(partition_by or ()) == len(schema):
        raise InvalidArgumentError("a table must have a column that it is not partitioned by")
    options = parquet.ParquetOptions.of(request.options)
    runtime, names = request.runtime, tuple(source.schema.names)
    job = runtime.new_hex_id()
    rows = ParquetRows(store, job, schema, tuple(partition_by or ()), options, names, runtime)
    return ParquetTarget(store, rows, old)


def _appended(
    folder: parquet.ParquetFolder, partition_by: tuple[str, ...] | None, schema: pa.Schema
) -> tuple[tuple[str, ...], pa.Schema]:
    """How to add rows to an existing folder, with its columns and partitions.  Raises ``SchemaMismatchError``."""
    have = folder.schema
    partitions = tuple(f.name for f in folder.partitions)
    if partition_by is not None and tuple(partition_by) != partitions:
        raise SchemaMismatchError(
            f"the folder is partitioned by {list(partitions)}, the write by {list(partition_by)}",
            help="leave partition_by out",
            file=folder.store.uri,
        )
    wrong = sorted(set(schema.names) ^ set(have.names))
    if wrong:
        raise SchemaMismatchError(
            f"the rows and the folder do not both have {', '.join(wrong)}",
            help="choose columns=[…] as the folder has them",
            file=folder.store.uri,
            column=wrong[0],
        )
    fields = [schema.field(f.name) if f.name in partitions else f.with_nullable(True) for f in have]
    return partitions, pa.schema(fields, have.metadata)
