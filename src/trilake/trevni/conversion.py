"""Tables of Trevni files as source and target of conversions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.expr import Filter, parse_filter
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.memory import MemoryStore
from trilake.table import conversion
from trilake.table.folders import data_file, partition_fields
from trilake.table.table import FilterLike
from trilake.trevni.file.writer import TrevniWriter
from trilake.trevni.tables import table_write
from trilake.trevni.tables.dataset import Split, read_split
from trilake.trevni.tables.row_groups import StagedFile
from trilake.trevni.tables.table import TrevniTable


def _rows_of(
    splits: Sequence[Split], schema: pa.Schema, columns: Sequence[str], filter: Filter | None
) -> Iterator[pa.RecordBatch]:
    for split in splits:
        yield from read_split(split, schema, columns, filter)


def trevni_source(table: TrevniTable, columns: list[str] | None, filter: FilterLike | None) -> conversion.Source:
    """Return the rows of a table in pieces.  Raises ``InvalidArgumentError`` and ``FilterError``."""
    schema = conversion.plain_schema(table.projected_schema(columns))
    bound = parse_filter(filter, table.schema)

    def piece(some: Sequence[Split]) -> conversion.Piece:
        return partial(_rows_of, some, table.schema, schema.names, bound)

    splits = table.splits(filter)
    partition = () if not splits else tuple(n for n, _ in splits[0].partition if n in schema.names)
    return conversion.Source(
        uri=table.uri,
        format="trevni",
        version=None,
        schema=schema,  # files may have different columns
        partition_by=partition,
        rows=table.count() if filter is None else None,
        whole=(piece(splits),),
        cut=lambda: tuple((piece([split]),) for split in splits),
    )


@dataclass(frozen=True)
class TrevniRows:
    """Staged files to write."""

    store: Store
    plan: table_write.TableWritePlan
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> list[StagedFile]:
        return table_write.write_rows(
            self.store, self.plan, batches, task=f"{task:05d}", attempt=self.runtime.new_attempt()
        )

    def read_back(self, staged_files: list[StagedFile]) -> Iterator[pa.RecordBatch]:
        files = [(f, data_file(ObjectMeta(f.key, f.size, 0))) for f in staged_files]
        fields = {name.lower(): self.plan.schema.field(name) for name in self.plan.schema.names}
        # Partition columns get the types that readers infer from folder names.
        fields.update({f.name.lower(): f for f in partition_fields([d for _, d in files])})
        schema = pa.schema([fields[name.lower()].with_nullable(True) for name in self.names])
        options = dict(self.store.options)
        for staged, file in files:
            split = Split(self.store.uri, staged.staged, file.partition, options=options)
            for batch in read_split(split, schema):
                yield batch.rename_columns(list(self.names))


class TrevniTarget:
    """A folder of Trevni files to write, which appear at once."""

    exact = True

    def __init__(self, store: Store, plan: table_write.TableWritePlan, names: Sequence[str], runtime: Runtime) -> None:
        self.store, self.plan, self.runtime = store, plan, runtime
        self.rows = TrevniRows(store, plan, tuple(names), runtime)

    def commit(self, staged_files: Sequence[list[StagedFile]]) -> conversion.Done:
        files = [file for some in staged_files for file in some]
        result = table_write.finish_table_write(self.store, self.plan, files, runtime=self.runtime)
        return conversion.Done(None, result.files_added, result.bytes_added)

    def discard(self, staged_files: Sequence[list[StagedFile]]) -> None:
        table_write.give_up(self.store, self.plan)


def trevni_target(
    store: Store, source: conversion.Source, request: conversion.TargetRequest, exists: bool
) -> TrevniTarget:
    """Create the target.  Raises ``SchemaMismatchError`` for a schema that Trevni files cannot store."""

    def write_nothing(one: pa.Schema) -> None:
        TrevniWriter((MemoryStore("memory://check"), "x.trv"), one).close()

    schema = conversion.check_each_column(source.schema, "Trevni", write_nothing)
    plan = table_write.plan_table_write(
        store,
        schema,
        mode=request.mode,
        partition_by=conversion.kept_partitions(source, request, exists),
        options=table_write.write_options(request.options),
        runtime=request.runtime,
    )
    return TrevniTarget(store, plan, schema.names, request.runtime)
