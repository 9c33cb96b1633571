"""Writing files: :func:`write` for data that is at hand, :class:`TrevniWriter` for data that comes in batches.

Columns are encoded as rows come and wait in a :class:`~trilake.trevni.blocks.encode.Spool`; the header, which needs
their sizes, is written when all rows are there, and the columns after it.  The file appears when it is whole, or not at
all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa

from trilake.common.arguments import checked
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.codecs import check_checksum, check_codec
from trilake.trevni.blocks.encode import BLOCK_SIZE, Spool, column_bytes
from trilake.trevni.blocks.header_bytes import serialize_header
from trilake.trevni.blocks.layout import CHECKSUM, CODEC, ColumnDescriptor, Header, ValueType
from trilake.trevni.blocks.source import locate
from trilake.trevni.file.batches import as_batches
from trilake.trevni.file.column_file import Column, ColumnValues
from trilake.trevni.file.column_options import (
    ColumnOptions,
    ColumnsLike,
    FileOptions,
    SchemaColumns,
    check_depth,
    user_metadata,
)
from trilake.trevni.nesting.arrow_forms import to_plain
from trilake.trevni.nesting.assemble import SCHEMA, plain_nodes
from trilake.trevni.nesting.shred import (
    SORTED,
    PhysicalColumn,
    PlainShredder,
    Rows,
    Shredder,
    checked_batch,
    shredder,
)

#: Bytes of finished blocks that a writer keeps in memory before it spills them.
MEMORY = 1 << 28
#: Rows encoded in one go.
_STEP = 1 << 17


class TrevniWriter:
    r"""Writes one file from batches that come one after another.

    Parameters
    ----------
    path: a path or URI, a pair ``(store, key)``, or a binary file object, which is left open.
    schema: of the batches; ``None`` where ``columns`` are given and the rows come by :meth:`write_columns`.
    codec: ``null``, ``deflate``, ``snappy`` or ``bzip2``; for columns without a codec of their own.
    checksum: ``null`` or ``crc32``.
    columns: options by column name, see :class:`ColumnOptions`; or the ``columns`` of an open file, to write columns of
        the same names, types, nesting, order and metadata.  Then ``metadata`` may hold any keys.
    metadata: file metadata, text to bytes or text.  Keys must not start with ``trevni.``; ``trevni.codec`` and
        ``trevni.checksum`` are allowed where they say what the parameters say, to keep their place.
    block_size: payload bytes from which on a block is closed before the next row.
    memory: bytes of finished blocks kept in memory; what exceeds it goes to a temporary file in ``folder``.
    folder: a local folder; the one that this machine keeps temporary files in by default.

    Used as a context manager, the file appears at the end of the block, unless there was an error.

    >>> import pyarrow as pa
    >>> import io
    >>> sink = io.BytesIO()
    >>> with TrevniWriter(sink, pa.schema([("x", pa.int32())])) as writer:
    ...     writer.write(pa.record_batch({"x": pa.array([1, 2], pa.int32())}))
    >>> sink.getvalue()[:4]
    b'Trv\x02'
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
            raise InvalidArgumentError(f"the block size must be 1 at least, not {block_size}")
        self._target = path
        own_metadata = dict(metadata or {})
        # A copy of a file's columns may keep what that file says, reserved or not.
        copied = columns is not None and not isinstance(columns, Mapping)
        codec = self._setting(own_metadata, CODEC, codec)
        checksum = self._setting(own_metadata, CHECKSUM, checksum)
        self._metadata = {
            **({CODEC: check_codec(codec).encode()} if codec is not None and CODEC not in own_metadata else {}),
            **(
                {CHECKSUM: check_checksum(checksum).encode()}
                if checksum is not None and CHECKSUM not in own_metadata
                else {}
            ),
            **{
                key: value.encode() if isinstance(value, str) else value
                for key, value in own_metadata.items()
                if key in (CODEC, CHECKSUM) or copied or user_metadata({key: value})
            },
        }
        self._spool = Spool(memory, folder)
        self._options = FileOptions(self._spool, codec or "null", checksum or "null", block_size)
        self._physical_columns: list[PhysicalColumn] | None = None
        self._maker: SchemaColumns | None = None
        self._shredders: list[Shredder] = []
        self._header: Header | None = None
        if columns is not None and not isinstance(columns, Mapping):
            self._use_declared_columns(columns, schema)
        else:
            options = {name: ColumnOptions.of(option) for name, option in (columns or {}).items()}
            if schema is None:
                raise InvalidArgumentError("a schema is needed unless columns are given")
            self._derive(schema, options)
        self.rows = 0
        self._done = False

    @staticmethod
    def _setting(metadata: dict[str, bytes | str], key: str, parameter: str | None) -> str | None:
        if key not in metadata:
            return parameter
        value = metadata[key]
        text = value if isinstance(value, str) else value.decode(errors="replace")
        if parameter is not None and parameter != text:
            raise InvalidArgumentError(f"the metadata says {key} is {text!r}, the parameter {parameter!r}")
        return text

    def _derive(self, schema: pa.Schema, options: Mapping[str, ColumnOptions]) -> None:
        if len(set(schema.names)) < len(schema):
            twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
            raise InvalidArgumentError(f"column names must differ, {', '.join(map(repr, twice))} comes more than once")
        self._schema: pa.Schema | None = schema
        self._maker = SchemaColumns(self._options, options, schema.names)
        self._shredders = [shredder(f, f.name, None, self._maker) for f in schema]
        self._maker.check_names()

    def _use_declared_columns(
        self, columns: Sequence[ColumnDescriptor] | Sequence[Column], schema: pa.Schema | None
    ) -> None:
        physical: list[PhysicalColumn] = []
        names: dict[str, int] = {}
        descriptors: list[ColumnDescriptor] = []
        declared: Sequence[ColumnDescriptor | Column] = columns
        given: object = columns
        kinds = {isinstance(c, ColumnDescriptor | Column) for c in given} if isinstance(given, Sequence) else {False}
        if False in kinds:
            raise InvalidArgumentError(
                f"columns are given as {columns!r:.80}",
                help="give options by the name of a column, or columns of a file",
            )
        for number, column in enumerate(declared):
            parent = names[column.parent] if isinstance(column.parent, str) else column.parent
            type_ = column.type if isinstance(column.type, ValueType) else ValueType(column.type)
            name = column.name or f"column {number}"
            if name in names:
                raise InvalidArgumentError(f"column names must differ, {name!r} comes more than once")
            names[name] = number
            own = {key: bytes(value) for key, value in column.metadata.items()}
            codec = own[CODEC].decode() if CODEC in own else None
            checksum = own[CHECKSUM].decode() if CHECKSUM in own else None
            encoder = self._options.encoder(type_, column.array, codec, checksum, column.values, column=name)
            above = None if parent is None else physical[parent]
            check_depth(name, above)
            physical.append(_GivenColumn(name, encoder, above, own))
            descriptors.append(ColumnDescriptor(number, name, type_, column.array, parent, column.values))
        self._physical_columns = physical
        self._header = Header(2, 0, {}, tuple(descriptors), (), 0)
        children: list[list[int]] = [[] for _ in descriptors]
        for descriptor in descriptors:
            if descriptor.parent is not None:
                children[descriptor.parent].append(descriptor.number)
        nodes = plain_nodes(self._header, children)
        self._shredders = [PlainShredder(node, physical) for node in nodes]
        # Only the types of the columns can be written, whatever the names in the data are.
        self._schema = pa.schema([node.field for node in nodes])
        if schema is not None and schema.names != self._schema.names:
            raise SchemaMismatchError(f"the data has the fields {schema.names}, the columns given {self._schema.names}")

    # --- rows ---

    @property
    def size(self) -> int:
        """About how many bytes the file has so far."""
        return sum(column.encoder.size for column in self._all_columns())

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add the rows of ``batch``.

        Raises ``SchemaMismatchError``, and ``InvalidArgumentError`` where a column cannot take them.

        >>> import io
        >>> import pyarrow as pa
        >>> sink = io.BytesIO()
        >>> writer = TrevniWriter(sink, pa.schema([("x", pa.int32())]))
        >>> writer.write(pa.table({"x": pa.array([1, 2], pa.int32())}))
        >>> writer.rows
        2
        """
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
        """Add rows whose lengths and values are flat already.

        Parameters
        ----------
        rows: how many rows.
        values: one entry for each of the columns given, as :meth:`trilake.trevni.TrevniFile.column` reads them.

        Raises ``InvalidArgumentError`` where the writer was made without columns, or numbers do not fit.

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
            raise InvalidArgumentError("flat columns can be written only where the columns were given")
        through: dict[int, Rows] = {}
        for descriptor, column, flat in zip(self._header.columns, self._physical_columns, values, strict=True):
            above = Rows(rows) if descriptor.parent is None else through[descriptor.parent]
            slots = rows if above.slots is None else int(above.slots[-1])
            lengths = flat.lengths if descriptor.array else None
            if lengths is None:
                count, offsets = slots, None
            else:
                if len(lengths) != slots:
                    raise InvalidArgumentError(f"{len(lengths)} lengths for {slots} slots", column=column.name)
                offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
                count = int(offsets[-1])
                through[descriptor.number] = above.through(offsets)
            if len(flat.values) != count:
                raise InvalidArgumentError(f"{len(flat.values)} values for {count} places", column=column.name)
            column.encoder.add(rows, above.slots, offsets, flat.values)
        self.rows += rows

    # --- end ---

    def _all_columns(self) -> list[PhysicalColumn]:
        if self._physical_columns is not None:
            return self._physical_columns
        return [column for shred in self._shredders for column in shred.columns()]

    def close(self) -> None:
        """Write the file.  Raises ``StorageError`` where that fails; then there is no file.

        >>> import io
        >>> import pyarrow as pa
        >>> sink = io.BytesIO()
        >>> writer = TrevniWriter(sink, pa.schema([("x", pa.int32())]))
        >>> writer.close()
        >>> len(sink.getvalue()) > 0
        True
        """
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
        """Give up: no file is written.

        >>> import io
        >>> import pyarrow as pa
        >>> sink = io.BytesIO()
        >>> writer = TrevniWriter(sink, pa.schema([("x", pa.int32())]))
        >>> writer.discard()
        >>> sink.getvalue()
        b''
        """
        self._done = True
        self._spool.close()

    def _finish(self, sink: IO[bytes]) -> None:
        columns = self._all_columns()
        for column in columns:
            column.encoder.finish()
        own = [column.metadata() for column in columns]
        metadata = dict(self._metadata)
        # A schema that came with the metadata of another file must not say what these columns are.
        if self._physical_columns is None and (SCHEMA in metadata or not self._is_plain(columns)):
            assert self._schema is not None
            metadata[SCHEMA] = self._schema.serialize().to_pybytes()
        sizes = [len(column.encoder.descriptors()) + column.encoder.stored_size for column in columns]
        sink.write(serialize_header(self.rows, metadata, own, sizes))
        for column in columns:
            column_bytes(column.encoder, sink)

    def _is_plain(self, columns: Sequence[PhysicalColumn]) -> bool:
        """Whether the columns by themselves mean just the schema."""
        numbers = {id(column): number for number, column in enumerate(columns)}
        children: list[list[int]] = [[] for _ in columns]
        descriptors = []
        for number, column in enumerate(columns):
            parent = None if column.parent is None else numbers[id(column.parent)]
            if parent is not None:
                children[parent].append(number)
            descriptors.append(ColumnDescriptor(number, column.name, column.encoder.type, column.encoder.array, parent))
        nodes = plain_nodes(Header(2, self.rows, {}, tuple(descriptors), (), 0), children)
        return bool(pa.schema([node.field for node in nodes]).equals(self._schema, check_metadata=True))

    def __enter__(self) -> TrevniWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class _GivenColumn(PhysicalColumn):
    """A column with the metadata that it had elsewhere."""

    def metadata(self) -> dict[str, bytes]:
        standard = super().metadata()
        # What the file said keeps its order; whether it ascends is known again.
        own = {key: standard.get(key, value) for key, value in self._properties.items() if key != SORTED}
        return {**own, **{key: value for key, value in standard.items() if key not in own and key != SORTED}}


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
    """Write a Trevni file and return the number of its rows.

    Parameters
    ----------
    data: an Arrow table, record batch or reader, anything with the Arrow C stream interface (polars, duckdb), an
        iterable of batches or tables, a mapping of names to arrays, or an iterable of rows (dictionaries).
    schema: for rows as dictionaries; without it, it is inferred from the first of them.

    The other parameters are those of :class:`TrevniWriter`, which also says how Arrow types are stored.

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
