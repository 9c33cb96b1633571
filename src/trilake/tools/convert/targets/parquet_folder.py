"""Rows converted into a folder of Parquet files, of which ``_SUCCESS`` comes last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TrilakeError
from trilake.storage.base import Store
from trilake.storage.ownership import check_own
from trilake.tools.convert import columns, parquet
from trilake.tools.convert.sources import Source
from trilake.tools.convert.targets.target import Done, TargetRequest, kept_partitions
from trilake.trevni.tables.dataset import DataFile, partition_fields


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
                files.write(columns.fitted(batch, self.schema))
        return files.done

    def read_back(self, written: list[parquet.StagedParquet]) -> Iterator[pa.RecordBatch]:
        data_files = [parquet.data_file(f.key, f.size) for f in written]
        types = {f.name: f for f in partition_fields(data_files)}
        schema = pa.schema([types.get(f.name, f).with_nullable(True) for f in self.schema])
        files = [DataFile(s.staged, s.size, f.partition) for s, f in zip(written, data_files, strict=True)]
        return parquet.read_files(self.store, files, schema, self.names, None)


class ParquetTarget:
    """A folder of Parquet files: ``_SUCCESS`` comes last."""

    exact = True

    def __init__(self, store: Store, rows: ParquetRows, old: Sequence[str]) -> None:
        self.store, self.rows, self.old = store, rows, old

    def commit(self, written: Sequence[list[parquet.StagedParquet]]) -> Done:
        files = [f for some in written for f in some]
        parquet.publish(self.store, self.rows.job, files, self.old)
        return Done(None, len(files), sum(f.size for f in files))

    def discard(self, written: Sequence[list[parquet.StagedParquet]]) -> None:
        with suppress(TrilakeError, OSError):  # why the conversion failed is the error to show
            parquet.clean(self.store, self.rows.job)


def parquet_target(store: Store, source: Source, request: TargetRequest, exists: bool) -> ParquetTarget:
    """The target at a place.  Raises ``TableExistsError``, ``SchemaMismatchError`` and ``InvalidArgumentError``."""
    if exists and request.mode == "error":
        raise TableExistsError("Parquet files are there already", file=store.uri)
    schema = columns.for_parquet(source.schema)
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
    runtime, names = request.engine.runtime, tuple(source.schema.names)
    job = runtime.new_hex_id()
    rows = ParquetRows(store, job, schema, tuple(partition_by or ()), options, names, runtime)
    return ParquetTarget(store, rows, old)


def _appended(
    folder: parquet.ParquetFolder, partition_by: tuple[str, ...] | None, schema: pa.Schema
) -> tuple[tuple[str, ...], pa.Schema]:
    """How rows are added to a folder: in its columns, under its partitions.  Raises ``SchemaMismatchError``."""
    have = folder.schema
    own = tuple(f.name for f in folder.partitions)
    if partition_by is not None and tuple(partition_by) != own:
        raise SchemaMismatchError(
            f"the folder is partitioned by {list(own)}, the write by {list(partition_by)}",
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
    fields = [schema.field(f.name) if f.name in own else f.with_nullable(True) for f in have]
    return own, pa.schema(fields, have.metadata)
