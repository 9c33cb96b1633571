"""Trevni data files in tables of other formats."""

from __future__ import annotations

import pyarrow as pa

from trilake.storage.base import Store
from trilake.table.data_files import FileBatches, FileFormat, NeededColumns, RowFile, no_columns
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.file.writer import TrevniWriter


def _read_trevni(store: Store, key: str, needed_columns: NeededColumns, threads: bool) -> FileBatches:
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


def _write_trevni(store: Store, key: str, schema: pa.Schema, compression: str | None) -> RowFile:
    # Files of many partitions may be open at once, so each buffers little in memory.
    return TrevniWriter((store, key), schema, codec=compression, checksum="crc32", memory=1 << 24)


TREVNI_FILES = FileFormat("trevni", _read_trevni, _write_trevni, has_field_ids=False)
