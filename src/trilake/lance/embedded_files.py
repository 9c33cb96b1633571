"""Lance data files in tables of another format."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from trilake.storage.base import Store
from trilake.table.data_files import FileBatches, FileFormat, NeededColumns, RowFile, no_columns


def _read_lance(store: Store, key: str, needed_columns: NeededColumns, threads: bool) -> FileBatches:
    from trilake.lance.data_files import open_by_footer  # late: its protobuf messages take time to load
    from trilake.lance.file.schema import LanceSchema
    from trilake.lance.file.view import View

    file = open_by_footer(store, key)
    view = View(file.schema)
    needed = set(needed_columns(view.arrow))
    columns = LanceSchema(tuple(f for i, f in enumerate(view.schema.fields) if i in needed), view.schema.metadata)
    stored = view.stored(columns)
    for start, stop in pairwise(file.batch_offsets.tolist()):
        if needed:
            yield start, view.show(file.read_rows(start, stop, stored), columns)
        else:
            yield start, no_columns(stop - start)


def _write_lance(store: Store, key: str, schema: pa.Schema, compression: str | None) -> RowFile:
    return _LanceFile(store, key, schema)


class _LanceFile:
    """A self-contained data file of the default version that is being written."""

    def __init__(self, store: Store, key: str, schema: pa.Schema) -> None:
        from trilake.lance.data_files import new_data_file
        from trilake.lance.file.schema import LanceSchema
        from trilake.lance.file.storage_version import DEFAULT

        self._schema = schema
        self._writer = new_data_file(store, key, LanceSchema.from_arrow(schema), DEFAULT)

    @property
    def size(self) -> int:
        return self._writer.size

    def write(self, batch: pa.Table) -> None:
        """Add rows.  Raises ``SchemaMismatchError`` for a null in a field that is not nullable."""
        for rows in batch.cast(self._schema).to_batches():
            self._writer.write(rows)

    def close(self) -> None:
        self._writer.close()

    def discard(self) -> None:
        self._writer.discard()


LANCE_FILES = FileFormat("lance", _read_lance, _write_lance)
