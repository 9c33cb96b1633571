"""Facts about Trevni files for reports: names, sizes, partition folders, and the column sizes of some files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import TrilakeError
from trilake.table.findings import spread
from trilake.table.report_facts import FILES, Facts, PartitionColumn, Storage
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.tables.table import TrevniTable

#: Maximum number of files whose column descriptors are read.
_FILES = 12


def trevni_facts(table: TrevniTable, now_ms: int) -> Facts:
    """Return the facts of a table."""
    files = table.files()
    folders = files["partition_values"]
    names = [name for name, _ in folders[0].as_py()] if len(folders) else []
    zeros = pa.array(np.zeros(files.num_rows, np.int64))
    return Facts(
        format="trevni",
        uri=table.uri,
        version=None,
        schema=table.schema,
        files=pa.table([files["path"], files["size"], files["num_records"], zeros], schema=FILES),
        now_ms=now_ms,
        partitions=tuple(
            PartitionColumn(name, pc.map_lookup(folders, pa.scalar(name, pa.string()), "first")) for name in names
        ),
        storage=_storage(table, files),
    )


def _storage(table: TrevniTable, files: pa.Table) -> Storage:
    """Measure the columns of a sample of files of all sizes."""

    def measured(key: str) -> dict[str, int] | None:
        try:
            return column_bytes(table.file(key))
        except TrilakeError:
            return None

    order = np.argsort(files["size"].to_numpy(), kind="stable")
    keys = files["path"].take(pa.array(order[spread(len(order), _FILES)])).to_pylist()
    return Storage.measured(files.num_rows, map(measured, keys))


def column_bytes(file: TrevniFile) -> dict[str, int]:
    """Return the size of each top-level field of a file in bytes, including its children."""
    sizes: dict[str, int] = {}
    for column, start, end in zip(file.header.columns, file.header.starts, file.ends, strict=True):
        while column.parent is not None:
            column = file.header.columns[column.parent]
        sizes[column.label] = sizes.get(column.label, 0) + end - start
    return sizes
