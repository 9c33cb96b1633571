"""Trevni as a format of a Delta table's data files: ``metaData.format.provider`` ``trevni``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from trilake.delta.engine import FileBatches, FileFormat, RowFile
from trilake.errors import UnsupportedProtocolError
from trilake.storage.base import Store

if TYPE_CHECKING:
    from trilake.delta.files.file_plan import FilePlan
    from trilake.delta.scan.scan import ReadPlan


def _read_trevni(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    from trilake.delta.scan.conform import needed_file_columns
    from trilake.delta.scan.data_files import no_columns
    from trilake.trevni.file.file import TrevniFile  # late: a Delta table is opened without it

    if plan.mode == "id":
        raise UnsupportedProtocolError(
            "columns are mapped by id, and Trevni files have no ids of columns", file=plan.uri, version=plan.version
        )
    file = TrevniFile((store, key))
    schema = file.schema
    fields = [f for f in plan.fields if f.name not in plan.partition_columns]
    names = [schema.field(i).name for i in needed_file_columns(fields, schema, plan.resolver)]
    if not names:
        yield 0, no_columns(file.row_count)
        return
    position = 0
    for batch in file.batches(names):
        yield position, batch
        position += batch.num_rows


def _write_trevni(store: Store, key: str, schema: pa.Schema, plan: FilePlan) -> RowFile:
    from trilake.trevni.file.writer import TrevniWriter

    # Files of many partitions may be open at once; what exceeds this waits on disk.
    return TrevniWriter((store, key), schema, codec=plan.compression, checksum="crc32", memory=1 << 24)


TREVNI = FileFormat("trevni", _read_trevni, _write_trevni)
