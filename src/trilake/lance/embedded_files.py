"""Lance data files in tables of another format."""

from __future__ import annotations

import pyarrow as pa

from trilake.errors import SchemaMismatchError, UnsupportedProtocolError
from trilake.storage.base import Store
from trilake.table.data_files import FileBatches, FileFormat, NeededColumns, RowFile, no_columns

#: Rows per row group: more than in datasets, as these files are scanned, not accessed by row.
_GROUP = 1 << 14


def _read_lance(store: Store, key: str, needed_columns: NeededColumns, threads: bool) -> FileBatches:
    from trilake.lance.file.schema import LanceSchema
    from trilake.lance.file.view import View
    from trilake.lance.v1.data_file import V1File  # late: its protobuf messages take time to load

    file = V1File.open(store, key)
    view = View(file.schema)
    needed = set(needed_columns(view.arrow))
    columns = LanceSchema(tuple(f for i, f in enumerate(view.schema.fields) if i in needed), view.schema.metadata)
    stored = view.stored(columns)
    for number, position in enumerate(file.batch_offsets[:-1].tolist()):
        if needed:
            yield position, view.show(file.read_batch(number, stored), columns)
        else:
            yield position, no_columns(int(file.batch_offsets[number + 1]) - position)


def _check_lance(schema: pa.Schema) -> None:
    from trilake.lance.file.schema import LanceSchema
    from trilake.lance.file.storage_version import FIRST

    try:
        FIRST.check_types(LanceSchema.from_arrow(schema))
    except UnsupportedProtocolError as e:
        raise SchemaMismatchError(
            f"the table has Lance files, which cannot store a column: {e.message}",
            help='create the table with data_format="parquet", or without the column',
            column=e.context.get("column"),
        ) from e


def _write_lance(store: Store, key: str, schema: pa.Schema, compression: str | None) -> RowFile:
    return _LanceFile(store, key, schema)


class _LanceFile:
    """A self-contained Lance data file being written.

    Null companions store the nulls of columns.  In lists and structs, the format stores nulls of strings and binaries
    only, as empty values.  So nested fields are written as non-nullable, which preserves empty values and rejects all
    nulls.
    """

    def __init__(self, store: Store, key: str, schema: pa.Schema) -> None:
        from trilake.lance.commands.fragment_writer import Target
        from trilake.lance.file.null_masks import masked_schema
        from trilake.lance.file.schema import LanceSchema
        from trilake.lance.file.storage_version import FIRST
        from trilake.lance.v1.data_file_writer import V1Writer

        self.target = Target.new(schema, FIRST, nulls="mask")
        self.strict = LanceSchema.from_arrow(pa.schema([f.with_type(_without_nulls(f.type)) for f in schema]))
        whole = masked_schema(pa.schema([f.storage_field for f in self.strict.fields], schema.metadata))
        self.writer = V1Writer(store, key, LanceSchema.from_arrow(whole))

    @property
    def size(self) -> int:
        return self.writer.size

    def write(self, batch: pa.Table) -> None:
        """Add rows.  Raises ``SchemaMismatchError`` for a null in a list or struct."""
        from trilake.lance.file.null_masks import unfold
        from trilake.lance.scan.batch_sizes import regroup

        for group in regroup(batch.to_batches(), _GROUP):
            rows = self.target.conform(group)
            self._check(rows)
            self.writer.write(unfold(rows, self.target.schema, "zero"))

    def _check(self, rows: pa.RecordBatch) -> None:
        from trilake.lance.file.null_masks import lost_null

        for field, array in zip(self.strict.fields, rows.columns, strict=True):
            if pa.types.is_nested(array.type):
                path = lost_null(field.storage_field, array.drop_null())
                if path is not None:
                    raise SchemaMismatchError(
                        "the table has Lance files, which cannot store a null in a list or struct",
                        help='fill the nulls, or create the table with data_format="parquet"',
                        column=path,
                    )

    def close(self) -> None:
        self.writer.close()

    def discard(self) -> None:
        self.writer.discard()


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    """Make all nested fields non-nullable."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _without_nulls(f.type), False, f.metadata) for f in kind])
    if pa.types.is_list(kind):
        f = kind.value_field
        return pa.list_(pa.field(f.name, _without_nulls(f.type), False, f.metadata))
    return kind


LANCE_FILES = FileFormat("lance", _read_lance, _write_lance, _check_lance)
