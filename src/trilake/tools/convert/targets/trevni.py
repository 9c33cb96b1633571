"""Rows converted into a folder of Trevni files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.storage.base import Store
from trilake.tools.convert import columns, parquet
from trilake.tools.convert.sources import Source
from trilake.tools.convert.targets.target import Done, TargetRequest, kept_partitions
from trilake.trevni.tables.dataset import Split, partition_fields, read_split
from trilake.trevni.tables.row_groups import StagedFile
from trilake.trevni.tables.table_write import (
    TableWritePlan,
    finish_table_write,
    give_up,
    plan_table_write,
    write_options,
    write_rows,
)


@dataclass(frozen=True)
class TrevniRows:
    """Staged files of a Trevni table."""

    store: Store
    plan: TableWritePlan
    names: tuple[str, ...]
    runtime: Runtime

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> list[StagedFile]:
        return write_rows(self.store, self.plan, batches, task=f"{task:05d}", attempt=self.runtime.new_attempt())

    def read_back(self, written: list[StagedFile]) -> Iterator[pa.RecordBatch]:
        files = [(f, parquet.data_file(f.key, f.size)) for f in written]
        own = {name.lower(): self.plan.schema.field(name) for name in self.plan.schema.names}
        # Partition columns are read as anybody would who has only the folders' names.
        own.update({f.name.lower(): f for f in partition_fields([d for _, d in files])})
        schema = pa.schema([own[name.lower()].with_nullable(True) for name in self.names])
        options = dict(self.store.options)
        for staged, file in files:
            split = Split(self.store.uri, staged.staged, file.partition, options=options)
            for batch in read_split(split, schema):
                yield batch.rename_columns(list(self.names))


class TrevniTarget:
    """A folder of Trevni files: all are seen at once, see ``docs/internals/trevni.md``."""

    exact = True

    def __init__(self, store: Store, plan: TableWritePlan, names: Sequence[str], runtime: Runtime) -> None:
        self.store, self.plan, self.runtime = store, plan, runtime
        self.rows = TrevniRows(store, plan, tuple(names), runtime)

    def commit(self, written: Sequence[list[StagedFile]]) -> Done:
        done = finish_table_write(self.store, self.plan, [f for some in written for f in some], runtime=self.runtime)
        return Done(None, done.files_added, done.bytes_added)

    def discard(self, written: Sequence[list[StagedFile]]) -> None:
        give_up(self.store, self.plan)


def trevni_target(store: Store, source: Source, request: TargetRequest, exists: bool) -> TrevniTarget:
    """The target at a place.  Raises as :func:`plan_table_write` does."""
    schema = columns.for_trevni(source.schema)
    plan = plan_table_write(
        store,
        schema,
        mode=request.mode,
        partition_by=kept_partitions(source, request, exists),
        options=write_options(request.options),
        runtime=request.engine.runtime,
    )
    return TrevniTarget(store, plan, schema.names, request.engine.runtime)
