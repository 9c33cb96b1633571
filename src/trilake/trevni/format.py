"""Trevni in the registry of formats: tables, data files in tables of other formats, and command line maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.common.timestamps import TimestampLike
from trilake.errors import InvalidArgumentError
from trilake.expr.views import stream_without_views
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.uri import parse_location
from trilake.table.data_files import FileBatches, FileFormat, NeededColumns, RowFile, no_columns
from trilake.table.format import Format, TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import Table
from trilake.table.upkeep import Upkeep, common_facts
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.file.writer import TrevniWriter
from trilake.trevni.tables import table_write
from trilake.trevni.tables.dataset import table_files
from trilake.trevni.tables.table import TrevniTable

if TYPE_CHECKING:
    from trilake.table.conversion import Source, Target, TargetRequest
    from trilake.table.dropping import TableFiles
    from trilake.table.findings import Depth, Findings
    from trilake.table.report_facts import Facts
    from trilake.table.table import FilterLike

_SUFFIX = ".trv"
#: Maximum number of files to list until the first Trevni file: a folder may contain millions of others.
_LISTED = 10_000


class TrevniFormat(Format):
    """Trevni files and folders of them."""

    name = "trevni"
    tells_by_opening = False

    def detect(self, store: Store) -> bool:
        """Whether the location, or one of the first files below it, is named like a Trevni file."""
        if parse_location(store.uri).path.endswith(_SUFFIX):
            return True
        return any(meta.key.endswith(_SUFFIX) for meta in islice(store.list(), _LISTED))

    def open(self, store: Store, version: int | None, timestamp: TimestampLike | None) -> Table:
        if version is not None or timestamp is not None:
            raise InvalidArgumentError(
                "Trevni files have no versions", help="leave version and timestamp out", file=store.uri
            )
        return TrevniTable(store.uri, options=store.options)

    def write(self, store: Store, data: Any, write: TableWrite) -> WriteResult:
        from trilake.table.frames import arrow_batches

        self.reject_log_only(write)
        options = table_write.write_options(write.properties)
        schema, batches = arrow_batches(data)
        if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            # pandas and polars produce views, which most Arrow kernels do not support.
            schema, batches = stream_without_views(schema, batches)
        plan = table_write.plan_table_write(
            store, schema, mode=write.mode, partition_by=write.partition_by, options=options
        )
        staged = [] if plan.nothing else table_write.write_rows(store, plan, batches)
        return table_write.finish_table_write(store, plan, staged)

    def store_of(self, table: Table) -> Store:
        return open_store(table.uri, _trevni_table(table).storage_options)

    def verify(self, store: Store, version: int | None, depth: Depth, sample: int | None, limit: int) -> Findings:
        from trilake.trevni.verify import verify_trevni

        if version is not None:
            raise InvalidArgumentError("Trevni files have no versions", help="leave version out", file=store.uri)
        return verify_trevni(store.uri, store.options, depth, sample, limit)

    def report_facts(self, table: Table) -> Facts:
        from trilake.trevni.report import trevni_facts

        return trevni_facts(_trevni_table(table), SYSTEM_RUNTIME.clock_ms())

    def source(self, table: Table, columns: list[str] | None, filter: FilterLike | None) -> Source:
        from trilake.trevni.conversion import trevni_source

        return trevni_source(_trevni_table(table), columns, filter)

    def target(self, store: Store, source: Source, request: TargetRequest, exists: bool) -> Target:
        from trilake.trevni.conversion import trevni_target

        return trevni_target(store, source, request, exists)

    def upkeep(self) -> Upkeep:
        return TrevniUpkeep()

    def table_files(self, store: Store) -> TableFiles:
        return table_files(store)

    def data_files(self) -> FileFormat:
        return FileFormat("trevni", _read_file, _write_file, has_field_ids=False)


def _trevni_table(table: Table) -> TrevniTable:
    assert isinstance(table, TrevniTable)
    return table


def _read_file(store: Store, key: str, needed_columns: NeededColumns, threads: bool) -> FileBatches:
    file = TrevniFile((store, key))
    schema = file.schema
    names = [schema.field(i).name for i in needed_columns(schema)]
    if not names:
        yield 0, no_columns(file.row_count)
        return
    position = 0
    for batch in file.batches(names):
        yield position, batch
        position += batch.num_rows


def _write_file(store: Store, key: str, schema: pa.Schema, compression: str | None) -> RowFile:
    # Files of many partitions may be open at once, so each buffers little in memory.
    return TrevniWriter((store, key), schema, codec=compression, checksum="crc32", memory=1 << 24)


class TrevniUpkeep(Upkeep):
    """Maintenance of Trevni files, which have no versions."""

    def facts(self, table: Table) -> dict[str, Any]:
        files = table.files()
        rows = int(pc.sum(files["num_records"]).as_py() or 0)
        partitions = _trevni_table(table).partition_names
        return {**common_facts(table, None, rows, files), "partition_columns": partitions}

    def columns(self, table: Table) -> Iterator[dict[str, Any]]:
        partitions = _trevni_table(table).partition_names
        for column in super().columns(table):
            yield {**column, "role": "partition" if column["name"] in partitions else None}


TREVNI = TrevniFormat()
