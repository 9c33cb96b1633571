"""Lance in the registry of formats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.common.timestamps import TimestampLike
from trilake.errors import InvalidArgumentError
from trilake.lance.versions.versions import exists
from trilake.storage.base import Store
from trilake.table.data_files import FileBatches, FileFormat, NeededColumns, no_columns
from trilake.table.format import Format, TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import Table

if TYPE_CHECKING:
    from trilake.lance.scan.snapshot import Snapshot
    from trilake.lance.table import LanceTable
    from trilake.table.conversion import Source, Target, TargetRequest
    from trilake.table.dropping import TableFiles
    from trilake.table.findings import Depth, Finding, Findings, PlannedStep
    from trilake.table.report_facts import Facts
    from trilake.table.table import FilterLike
    from trilake.table.upkeep import Upkeep


class LanceFormat(Format):
    """Lance datasets; their optional libraries are imported on use."""

    name = "lance"

    def detect(self, store: Store) -> bool:
        return exists(store)

    def open(self, store: Store, version: int | None, timestamp: TimestampLike | None) -> Table:
        from trilake.lance.table import LanceTable

        return LanceTable(store, version=version, timestamp=timestamp, runtime=SYSTEM_RUNTIME)

    def write(self, store: Store, data: Any, write: TableWrite) -> WriteResult:
        from trilake.lance.table import write_options, write_table
        from trilake.table.frames import arrow_batches

        self.reject_log_only(write)
        self.reject_partitions(write)
        options = write_options(write.properties)
        schema, batches = arrow_batches(data)
        snapshot, files, rows = write_table(
            store, schema, batches, runtime=SYSTEM_RUNTIME, mode=write.mode, options=options
        )
        return written(snapshot, files, rows)

    def store_of(self, table: Table) -> Store:
        return _lance_table(table).snapshot.store

    def verify(self, store: Store, version: int | None, depth: Depth, sample: int | None, limit: int) -> Findings:
        from trilake.lance.verify.run import verify_lance

        return verify_lance(store, SYSTEM_RUNTIME, version, depth, sample, limit)

    def repair_steps(self) -> tuple[str, ...]:
        from trilake.lance.verify.run import STEPS

        return tuple(STEPS)

    def plan_repair(self, store: Store, code: str, findings: Sequence[Finding]) -> list[PlannedStep]:
        from trilake.lance.verify.run import STEPS

        return STEPS[code](store, SYSTEM_RUNTIME, findings)

    def report_facts(self, table: Table) -> Facts:
        from trilake.lance.report import lance_facts

        return lance_facts(_lance_table(table), SYSTEM_RUNTIME.clock_ms())

    def source(self, table: Table, columns: list[str] | None, filter: FilterLike | None) -> Source:
        from trilake.lance.conversion import lance_source

        return lance_source(_lance_table(table), columns, filter)

    def target(self, store: Store, source: Source, request: TargetRequest, exists: bool) -> Target:
        from trilake.lance.conversion import lance_target

        return lance_target(store, source, request, exists)

    def upkeep(self) -> Upkeep:
        from trilake.lance.upkeep import UPKEEP

        return UPKEEP

    def table_files(self, store: Store) -> TableFiles:
        from trilake.lance.cleanup import table_files

        return table_files(store)

    def data_files(self) -> FileFormat:
        return FileFormat("lance", _read_lance, _LanceFile)

    def reject_partitions(self, write: TableWrite) -> None:
        """Raise ``InvalidArgumentError`` for partition columns."""
        if write.partition_by:
            raise InvalidArgumentError("Lance does not support partitions", help="leave partition_by out")


def _lance_table(table: Table) -> LanceTable:
    from trilake.lance.table import LanceTable

    assert isinstance(table, LanceTable)
    return table


def written(snapshot: Snapshot | None, files: int, rows: int) -> WriteResult:
    """Return the result of a write that committed, or of one that ignored an existing dataset."""
    if snapshot is None:
        return WriteResult(None)
    store = snapshot.store
    new = snapshot.manifest.fragments[-files:] if files else ()  # new fragments come last
    size = sum(entry.size_bytes or store.head(entry.key).size for f in new for entry in f.files)
    return WriteResult(snapshot.version, files, 0, rows, size)


# --- data files in tables of another format --------------------------------------------------------------------------


def _read_lance(store: Store, key: str, needed_columns: NeededColumns, threads: bool) -> FileBatches:
    from trilake.lance.data_files import open_by_footer  # late: its protobuf messages take time to load
    from trilake.lance.file.schema import LanceSchema
    from trilake.lance.file.view import View

    file = open_by_footer(store, key)
    view = View(file.schema)
    needed = set(needed_columns(view.arrow))
    columns = LanceSchema(tuple(f for i, f in enumerate(view.schema.fields) if i in needed), view.schema.metadata)
    stored = view.stored(columns)
    for start, stop in pairwise(file.parts(stored).tolist()):
        if needed:
            yield start, view.show(file.read_rows(start, stop, stored), columns)
        else:
            yield start, no_columns(stop - start)


class _LanceFile:
    """A self-contained data file of the default version that is being written."""

    def __init__(self, store: Store, key: str, schema: pa.Schema, compression: str | None) -> None:
        from trilake.lance.data_files import new_data_file
        from trilake.lance.file.schema import LanceSchema
        from trilake.lance.file.storage_version import DEFAULT

        self._schema = schema
        self._writer = new_data_file(store, key, LanceSchema.from_arrow(schema), DEFAULT)

    @property
    def size(self) -> int:
        return self._writer.size

    def write(self, batch: pa.Table) -> None:
        for rows in batch.cast(self._schema).to_batches():
            self._writer.write(rows)

    def close(self) -> None:
        self._writer.close()

    def discard(self) -> None:
        self._writer.discard()


LANCE = LanceFormat()
