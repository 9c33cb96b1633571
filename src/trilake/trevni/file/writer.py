"""Write files: :func:`write` in one call, :class:`TrevniWriter` batch by batch.

Columns are encoded as rows arrive, and buffered in a :class:`~trilake.trevni.blocks.encode.Spool`.  Closing the writer
writes the header, which needs their sizes, and then the columns.  The file becomes visible only when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import TracebackType
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa

from trilake.common.arguments import checked
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.codecs import check_checksum, check_codec
from trilake.trevni.blocks.encode import BLOCK_SIZE, Spool
from trilake.trevni.blocks.layout import CHECKSUM, CODEC, ColumnDescriptor, Header, ValueType, serialize_header
from trilake.trevni.blocks.source import locate
from trilake.trevni.file.column_file import Column, ColumnValues
from trilake.trevni.nesting.arrow_forms import to_plain
from trilake.trevni.nesting.assemble import SCHEMA, plain_nodes
from trilake.trevni.nesting.columns import (
    SORTED,
    ColumnOptions,
    FileOptions,
    PhysicalColumn,
    SchemaColumns,
    check_depth,
    user_metadata,
)
from trilake.trevni.nesting.shred import PlainShredder, Rows, Shredder, checked_batch, shredder

#: Options by column name, or the columns of another file, to write columns like those.
ColumnsLike = Mapping[str, ColumnOptions | Mapping[str, Any]] | Sequence[ColumnDescriptor] | Sequence[Column]

#: Rows per batch.
_ROWS = 1 << 14


def as_batches(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch | pa.Table]]:
    """Return the schema and batches of any input that :func:`trilake.trevni.write` accepts."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return schema or data.schema, iter([data])
    if isinstance(data, Mapping):
        table = pa.table(dict(data), schema=schema)
        return table.schema, iter([table])
    if not isinstance(data, pa.RecordBatchReader) and hasattr(data, "__arrow_c_stream__"):
        data = pa.RecordBatchReader.from_stream(data)
    if isinstance(data, pa.RecordBatchReader):
        return schema or data.schema, iter(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_items(iter(data), schema)
    raise InvalidArgumentError(
        f"expected data to write, got {type(data).__name__}",
        help="pass an Arrow table, batches, or rows as dictionaries",
    )


def _from_items(items: Iterator[Any], schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Any]]:
    first = next(items, None)
    if first is None:
        return schema or pa.schema([]), iter(())
    if isinstance(first, pa.RecordBatch | pa.Table):
        return schema or first.schema, chain([first], items)
    if isinstance(first, Mapping):
        batch = _row_batch([first, *islice(items, _ROWS - 1)], schema)
        parts = iter(lambda: list(islice(items, _ROWS)), [])
        return batch.schema, chain([batch], (_row_batch(part, batch.schema) for part in parts))
    raise InvalidArgumentError(f"expected a batch or a row, got {type(first).__name__}")


def _row_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None) -> pa.RecordBatch:
    """Convert rows to a batch; without a schema, its columns are those of all rows."""
    for row in rows:
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(f"expected a row, got {type(row).__name__}", help="pass rows as dictionaries")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if schema is not None and (extra := [name for name in names if name not in set(schema.names)]):
        raise SchemaMismatchError(
            f"a row has {', '.join(map(repr, extra))}, which the schema lacks", help="pass the schema of all rows"
        )
    try:
        if schema is None:
            return pa.record_batch({name: pa.array([row.get(name) for row in rows]) for name in names})
        return pa.record_batch([pa.array([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)
    except (pa.ArrowException, ValueError, TypeError) as e:
        raise SchemaMismatchError(f"the rows cannot be converted to Arrow: {e}") from e


#: Default maximum of finished blocks in memory, in bytes.
MEMORY = 1 << 28
#: Rows to encode at a time.
_STEP = 1 << 17


class TrevniWriter:
    r"""Write one file, batch by batch.

    Parameters
    ----------
    path: a path or URI, a pair ``(store, key)``, or a binary file object, which is left open.
    schema: schema of the batches; ``None`` with ``columns`` of another file, for rows of :meth:`write_columns`.
    codec: default of the columns: ``null``, ``deflate``, ``snappy`` or ``bzip2``.
    checksum: default of the columns: ``null`` or ``crc32``.
    columns: options by column name, see :class:`ColumnOptions`; or the ``columns`` of an open file, to write columns
        with the same names, types, nesting, order and metadata.  Then ``metadata`` may have any keys.
    metadata: file metadata, strings to bytes or strings.  Keys must not start with ``trevni.``, except for
        ``trevni.codec`` and ``trevni.checksum`` with the values of the parameters, which determines their position.
    block_size: payload size in bytes at which a block is closed before the next row.
    memory: maximum bytes of finished blocks in memory; the rest goes to a temporary file in ``folder``.
    folder: a local folder; by default the system's temporary folder.

    As a context manager, it writes the file at the end of the block, or discards it after an error.

    >>> import pyarrow as pa
    >>> import io
    >>> sink = io.BytesIO()
    >>> with TrevniWriter(sink, pa.schema([("x", pa.int32())])) as writer:
    ...     writer.write(pa.record_batch({"x": pa.array([1, 2], pa.int32())}))
    >>> sink.getvalue()[:4], writer.rows
    (b'Trv\x02', 2)
    >>> writer.close(), writer.discard()  # of a closed file: nothing
    (None, None)
    """

    @checked
    def __init__(
        self,
        path: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
        schema: pa.Schema | None,
        *,
        codec: str | None = None,
        checksum: str | None = None,
        columns: ColumnsLike | None = None,
        metadata: Mapping[str, bytes | str] | None = None,
        block_size: int = BLOCK_SIZE,
        memory: int = MEMORY,
        folder: str | None = None,
    ) -> None:
        if block_size < 1:
            raise InvalidArgumentError(f"the block size must be at least 1, got {block_size}")
        self._target = path
        metadata = dict(metadata or {})
        codec = self._setting(metadata, CODEC, codec)
        checksum = self._setting(metadata, CHECKSUM, checksum)
        self._metadata: dict[str, bytes] = {}
        if codec is not None and CODEC not in metadata:
            self._metadata[CODEC] = check_codec(codec).encode()
        if checksum is not None and CHECKSUM not in metadata:
            self._metadata[CHECKSUM] = check_checksum(checksum).encode()
        for key, value in metadata.items():
            # A copy of a file's columns may keep its metadata, including reserved keys.
            copied = columns is not None and not isinstance(columns, Mapping)
            if key in (CODEC, CHECKSUM) or copied or user_metadata({key: value}):
                self._metadata[key] = value.encode() if isinstance(value, str) else value
        self._spool = Spool(memory, folder)
        self._options = FileOptions(self._spool, codec or "null", checksum or "null", block_size)
        self._physical_columns: list[PhysicalColumn] | None = None
        self._shredders: list[Shredder | PlainShredder] = []
        self._header: Header | None = None
        if columns is not None and not isinstance(columns, Mapping):
            self._use_declared_columns(columns, schema)
        else:
            options = {name: ColumnOptions.of(option) for name, option in (columns or {}).items()}
            if schema is None:
                raise InvalidArgumentError("either a schema or columns must be given")
            self._use_schema(schema, options)
        self.rows = 0
        self._done = False

    @staticmethod
    def _setting(metadata: dict[str, bytes | str], key: str, parameter: str | None) -> str | None:
        if key not in metadata:
            return parameter
        value = metadata[key]
        setting = value if isinstance(value, str) else value.decode(errors="replace")
        if parameter is not None and parameter != setting:
            raise InvalidArgumentError(f"{key} is {setting!r} in metadata and {parameter!r} as a parameter")
        return setting

    def _use_schema(self, schema: pa.Schema, options: Mapping[str, ColumnOptions]) -> None:
        if len(set(schema.names)) < len(schema):
            twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
            raise InvalidArgumentError(f"duplicate column names: {', '.join(map(repr, twice))}")
        self._schema: pa.Schema | None = schema
        make = SchemaColumns(self._options, options, schema.names)
        self._shredders = [shredder(f, f.name, None, make) for f in schema]
        make.check_names()

    def _use_declared_columns(self, declared: Any, schema: pa.Schema | None) -> None:
        physical: list[PhysicalColumn] = []
        names: dict[str, int] = {}
        descriptors: list[ColumnDescriptor] = []
        if not isinstance(declared, Sequence) or not all(isinstance(c, ColumnDescriptor | Column) for c in declared):
            expected = "options by column name, or the columns of a file"
            raise InvalidArgumentError(f"columns must be {expected}, got {declared!r:.80}")
        for number, column in enumerate(declared):
            parent = names[column.parent] if isinstance(column.parent, str) else column.parent
            type_ = column.type if isinstance(column.type, ValueType) else ValueType(column.type)
            name = column.name or f"column {number}"
            if name in names:
                raise InvalidArgumentError(f"duplicate column names: {name!r}")
            names[name] = number
            properties = {key: bytes(value) for key, value in column.metadata.items()}
            codec, checksum = (properties[key].decode() if key in properties else None for key in (CODEC, CHECKSUM))
            options = ColumnOptions(codec, checksum, column.values)
            encoder = self._options.encoder(type_, column.array, options, name)
            above = None if parent is None else physical[parent]
            check_depth(name, above)
            physical.append(_CopiedColumn(name, encoder, above, properties))
            descriptors.append(ColumnDescriptor(number, name, type_, column.array, parent, column.values))
        self._physical_columns = physical
        self._header = Header(2, 0, {}, tuple(descriptors), (), 0)
        nodes = plain_nodes(self._header)
        self._shredders = [PlainShredder(node, physical) for node in nodes]
        self._schema = pa.schema([node.field for node in nodes])
        if schema is not None and schema.names != self._schema.names:
            raise SchemaMismatchError(
                f"schema must have the fields of columns, {self._schema.names}, got {schema.names}"
            )

    @property
    def size(self) -> int:
        """Approximate size of the file so far, in bytes."""
        return sum(column.encoder.size for column in self._all_columns())

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add the rows of ``batch``.  Raises ``SchemaMismatchError`` and ``InvalidArgumentError``."""
        for one in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            assert self._schema is not None
            checked = checked_batch(one, self._schema)
            for start in range(0, checked.num_rows, _STEP):
                part = checked.slice(start, _STEP)
                rows = Rows(part.num_rows)
                for shred, values in zip(self._shredders, part.columns, strict=True):
                    shred.add(to_plain(values), rows)
                self.rows += part.num_rows

    def write_columns(self, rows: int, values: Sequence[ColumnValues]) -> None:
        """Add rows as flat lengths and values.

        Parameters
        ----------
        rows: the number of rows.
        values: for each column, in the form of :meth:`trilake.trevni.TrevniFile.column`.

        Raises ``InvalidArgumentError`` for a writer without ``columns``, and for wrong numbers of values.

        >>> import io
        >>> from trilake.trevni import TrevniFile, write
        >>> one, other = io.BytesIO(), io.BytesIO()
        >>> _ = write({"x": [1, 2]}, one)
        >>> file = TrevniFile(one.getvalue())
        >>> with TrevniWriter(other, None, columns=file.columns) as writer:
        ...     writer.write_columns(2, [file.column("x")])
        >>> TrevniFile(other.getvalue()).read().to_pydict()
        {'x': [1, 2]}
        """
        if self._physical_columns is None or self._header is None:
            raise InvalidArgumentError("write_columns needs a writer created with columns of another file")
        through: dict[int, Rows] = {}
        for descriptor, column, flat in zip(self._header.columns, self._physical_columns, values, strict=True):
            above = Rows(rows) if descriptor.parent is None else through[descriptor.parent]
            slots = rows if above.slots is None else int(above.slots[-1])
            lengths = flat.lengths if descriptor.array else None
            if lengths is None:
                count, offsets = slots, None
            else:
                if len(lengths) != slots:
                    raise InvalidArgumentError(f"expected {slots} lengths, got {len(lengths)}", column=column.name)
                offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
                count = int(offsets[-1])
                through[descriptor.number] = above.through(offsets)
            if len(flat.values) != count:
                raise InvalidArgumentError(f"expected {count} values, got {len(flat.values)}", column=column.name)
            column.encoder.add(rows, above.slots, offsets, flat.values)
        self.rows += rows

    def _all_columns(self) -> list[PhysicalColumn]:
        if self._physical_columns is not None:
            return self._physical_columns
        return [column for shred in self._shredders if isinstance(shred, Shredder) for column in shred.columns()]

    def close(self) -> None:
        """Write the file.  After an error there is no file.  Raises ``StorageError``."""
        if self._done:
            return
        self._done = True
        try:
            if hasattr(self._target, "write"):
                self._finish(cast(IO[bytes], self._target))
                return
            store, key = self._target if isinstance(self._target, tuple) else locate(self._target)
            with store.open_output(key) as sink:
                self._finish(sink)
        finally:
            self._spool.close()

    def discard(self) -> None:
        """Close without writing a file."""
        self._done = True
        self._spool.close()

    def _finish(self, sink: IO[bytes]) -> None:
        columns = self._all_columns()
        for column in columns:
            column.encoder.finish()
        properties = [column.metadata() for column in columns]
        metadata = dict(self._metadata)
        # Metadata copied from another file may contain its schema.
        if self._physical_columns is None and (SCHEMA in metadata or not self._is_plain(columns)):
            assert self._schema is not None
            metadata[SCHEMA] = self._schema.serialize().to_pybytes()
        sizes = [column.encoder.stored_size for column in columns]
        sink.write(serialize_header(self.rows, metadata, properties, sizes))
        for column in columns:
            column.encoder.copy_to(sink)

    def _is_plain(self, columns: Sequence[PhysicalColumn]) -> bool:
        """Whether the schema can be derived from the columns."""
        numbers = {id(column): number for number, column in enumerate(columns)}
        descriptors = []
        for number, column in enumerate(columns):
            parent = None if column.parent is None else numbers[id(column.parent)]
            descriptors.append(ColumnDescriptor(number, column.name, column.encoder.type, column.encoder.array, parent))
        nodes = plain_nodes(Header(2, self.rows, {}, tuple(descriptors), (), 0))
        return bool(pa.schema([node.field for node in nodes]).equals(self._schema, check_metadata=True))

    def __enter__(self) -> TrevniWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class _CopiedColumn(PhysicalColumn):
    """A column with the metadata of another file."""

    def metadata(self) -> dict[str, bytes]:
        standard = super().metadata()
        # Keep the order of the other file.  Nothing here checks whether values ascend.
        copied = {key: standard.get(key, value) for key, value in self._properties.items()} | standard
        copied.pop(SORTED, None)
        return copied


@checked
def write(
    data: Any,
    path: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
    *,
    codec: str | None = None,
    checksum: str | None = None,
    columns: ColumnsLike | None = None,
    metadata: Mapping[str, bytes | str] | None = None,
    block_size: int = BLOCK_SIZE,
    schema: pa.Schema | None = None,
    memory: int = MEMORY,
    folder: str | None = None,
) -> int:
    """Write a Trevni file and return its number of rows.

    Parameters
    ----------
    data: an Arrow table, record batch or reader, an object with the Arrow C stream interface (polars, DuckDB), an
        iterable of batches or tables, a mapping from names to arrays, or an iterable of rows (dictionaries).
    schema: for rows as dictionaries; by default inferred from the first rows.

    The other parameters are those of :class:`TrevniWriter`, which also documents how Arrow types are stored.

    Raises ``InvalidArgumentError``, ``SchemaMismatchError``, ``UnknownOptionError`` and ``StorageError``.

    >>> import io
    >>> sink = io.BytesIO()
    >>> write({"id": [1, 2, 3]}, sink, codec="deflate", checksum="crc32")
    3
    """
    rows_schema, batches = as_batches(data, schema)
    with TrevniWriter(
        path,
        rows_schema,
        codec=codec,
        checksum=checksum,
        columns=columns,
        metadata=metadata,
        block_size=block_size,
        memory=memory,
        folder=folder,
    ) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.rows
