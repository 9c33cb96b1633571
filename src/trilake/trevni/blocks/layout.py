"""The header and descriptors of a Trevni file, and their bytes (spec: "File Format").

::

    file   = header column*
    header = "Trv" 02  rowCount:fixed64  columnCount:fixed32
             metadata  metadata{columnCount}  start:fixed64{columnCount}
    column = blockCount:fixed32  blockDescriptor{blockCount}  block{blockCount}
    blockDescriptor = rows:fixed32  rawSize:fixed32  storedSize:fixed32  [firstValue]

Nothing here does I/O.  Before allocating memory for a count or length, parsers compare it with the remaining bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.parquet.thrift import unsigned, zigzag
from trilake.trevni.blocks.cursor import Cursor

#: Status codes of decoders, and their messages.
OK, TRUNCATED, OVERLONG, TOO_BIG, NEGATIVE, RUN = 0, 1, 2, 3, 4, 5
STATUS = {
    TRUNCATED: "the block ends inside a value",
    OVERLONG: "an integer does not end within its 5 or 10 bytes",
    TOO_BIG: "an integer has more bits than its type",
    NEGATIVE: "a value has a negative length",
    RUN: "a run of lengths is longer than the rest of the block",
}

KIND_NULL, KIND_BOOL, KIND_VARINT, KIND_FIXED, KIND_BYTES = 0, 1, 2, 3, 4

#: Maximum run length: a run is written as an int of about -2 times its length.
MAX_RUN = 1 << 29


MAGIC = b"Trv"
#: Avro 1.7.3 and 1.7.4 wrote version 1, which differs only in that it has no negative run lengths.
VERSIONS = (1, 2)

#: Maximum nesting of arrays: enough for real data, and too few to exhaust the stack.
MAX_DEPTH = 100

CODEC, CHECKSUM = "trevni.codec", "trevni.checksum"
NAME, TYPE, VALUES, ARRAY, PARENT = "trevni.name", "trevni.type", "trevni.values", "trevni.array", "trevni.parent"
RESERVED = "trevni."

Metadata = Mapping[str, bytes]


class ValueType(Enum):
    """The type names of the specification."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FIXED32 = "fixed32"
    FIXED64 = "fixed64"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"

    @property
    def width(self) -> int | None:
        """Bytes per value, or ``None`` if values have different sizes."""
        return _WIDTHS.get(self)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values."""
        return _ARROW[self]

    def wrong_sizes(self, values: Any, sizes: Any) -> Any:
        """Compare arrays of value counts and byte sizes; returns a mask of the pairs that are impossible."""
        if self is ValueType.BOOLEAN:
            return sizes != (values + 7) // 8
        if self is ValueType.NULL or self.width is not None:
            return sizes != values * (self.width or 0)
        least = sizes < values
        if self in (ValueType.STRING, ValueType.BYTES):
            return least | ((values == 0) & (sizes > 0))
        return least | (sizes > values * (5 if self is ValueType.INT else 10))


_WIDTHS = {ValueType.FIXED32: 4, ValueType.FIXED64: 8, ValueType.FLOAT: 4, ValueType.DOUBLE: 8}
_ARROW = {
    ValueType.NULL: pa.null(),
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.INT: pa.int32(),
    ValueType.LONG: pa.int64(),
    ValueType.FIXED32: pa.int32(),
    ValueType.FIXED64: pa.int64(),
    ValueType.FLOAT: pa.float32(),
    ValueType.DOUBLE: pa.float64(),
    ValueType.STRING: pa.string(),
    ValueType.BYTES: pa.binary(),
}


@dataclass(frozen=True, slots=True)
class BlockDescriptor:
    """One block of a column (spec: "block descriptor"), at ``offset`` in the file, from its row ``row`` on.

    Sizes are before and after compression, without the checksum; ``values`` columns have a ``first_value``.
    """

    row: int
    rows: int
    raw_size: int
    stored_size: int
    offset: int
    first_value: Any = None


@dataclass(frozen=True, eq=False)
class BlockTable:
    """All block descriptors of a column; ``row_starts`` and ``offsets`` also have the end of the last block."""

    row_starts: np.ndarray[Any, np.dtype[np.int64]]
    raw_sizes: np.ndarray[Any, np.dtype[np.int64]]
    stored_sizes: np.ndarray[Any, np.dtype[np.int64]]
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    first_values: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.raw_sizes)

    @property
    def rows(self) -> int:
        """Number of rows in all blocks."""
        return int(self.row_starts[-1])

    def covering(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of blocks that contain the rows ``start`` to ``stop``."""
        if start >= stop:
            return 0, 0
        first = int(np.searchsorted(self.row_starts, start, side="right")) - 1
        last = int(np.searchsorted(self.row_starts, stop, side="left"))
        return first, last

    def raw_bytes(self, start: int, stop: int) -> int:
        """Return the payload bytes of the blocks that contain the rows ``start`` to ``stop``."""
        first, last = self.covering(start, stop)
        return int(self.raw_sizes[first:last].sum())

    def __iter__(self) -> Iterator[BlockDescriptor]:
        first = self.first_values.to_pylist() if self.first_values is not None else [None] * len(self)
        return map(
            BlockDescriptor,
            self.row_starts[:-1].tolist(),
            np.diff(self.row_starts).tolist(),
            self.raw_sizes.tolist(),
            self.stored_sizes.tolist(),
            self.offsets[:-1].tolist(),
            first,
        )


@dataclass(frozen=True)
class ColumnDescriptor:
    """A column as described in the header (spec: "column metadata").

    ``name`` is ``None`` if the file has none.  With ``array``, each row, or each element of the parent, has a sequence
    of values.  ``parent`` is the number of an array column.  With ``values``, block descriptors store first values.
    ``codec`` and ``checksum`` are those in effect.  ``metadata`` has all properties in file order.
    """

    number: int
    name: str | None
    type: ValueType
    array: bool = False
    parent: int | None = None
    values: bool = False
    codec: str = "null"
    checksum: str = "null"
    metadata: Metadata = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name, or the number of a column without a name."""
        return self.name if self.name is not None else f"column {self.number}"


@dataclass(frozen=True)
class Header:
    """Everything before the columns; ``starts`` are their file offsets, ``size`` is the length of the header."""

    version: int
    row_count: int
    metadata: Metadata
    columns: tuple[ColumnDescriptor, ...]
    starts: tuple[int, ...]
    size: int

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the child columns of each column."""
        children: list[list[int]] = [[] for _ in self.columns]
        for column in self.columns:
            if column.parent is not None:
                children[column.parent].append(column.number)
        return tuple(map(tuple, children))


class ParentError(CorruptFileError):
    """The parent of a column is missing or is not an array column."""


def parse_header(data: bytes | memoryview, *, file: str, file_size: int) -> Header:
    """Parse a header from the first bytes of a file.  Raises ``CorruptFileError`` and ``UnsupportedProtocolError``."""
    cursor = Cursor(data, file=file, limit=file_size)
    if file_size < 4:
        raise cursor.fail(f"this is not a Trevni file: it has only {file_size} bytes")
    magic = bytes(cursor.take(4, "the magic number"))
    if magic[:3] != MAGIC:
        raise cursor.fail(f"this is not a Trevni file: it starts with {magic!r} instead of {MAGIC!r}", 0)
    if magic[3] not in VERSIONS:
        message = f"expected version 1 or 2 of the Trevni format, got {magic[3]}"
        raise UnsupportedProtocolError(message, file=file, offset=3)
    row_count = cursor.fixed64("the row count")
    if row_count < 0:
        raise cursor.fail(f"the row count is negative: {row_count}", 4)
    count = cursor.fixed32("the column count")
    # A column takes at least one byte of metadata and eight bytes for its start.
    if not 0 <= count <= cursor.remaining // 9:
        raise cursor.fail(f"the column count is {count}, but the file has only {cursor.remaining} more bytes", 12)
    metadata = _parse_metadata(cursor, "file metadata")
    file_codec = _string_property(cursor, metadata, CODEC, "null")
    file_checksum = _string_property(cursor, metadata, CHECKSUM, "null")
    columns: list[ColumnDescriptor] = []
    by_name: dict[str, int] = {}
    depths: list[int] = []
    for number in range(count):
        at = cursor.position
        cursor.about(column=f"column {number}")
        column = _parse_column(cursor, number, columns, by_name, file_codec, file_checksum, at)
        depths.append(0 if column.parent is None else depths[column.parent] + 1)
        if depths[-1] > MAX_DEPTH:
            raise cursor.fail(f"column {column.label!r} is nested more than {MAX_DEPTH} levels deep", at)
        columns.append(column)
        if column.name is not None:
            by_name[column.name] = number
    cursor.about(column=None)
    table_at = cursor.position
    starts = np.frombuffer(cursor.take(8 * count, "the table of column offsets"), "<i8")
    header = Header(magic[3], row_count, metadata, tuple(columns), tuple(starts.tolist()), cursor.position)
    for number, start in enumerate(header.starts):
        # A column takes at least four bytes, its block count.
        if not header.size <= start <= file_size - 4:
            raise CorruptFileError(
                f"the column starts at byte {start}, expected {header.size} to {file_size - 4}",
                help="the file may be truncated: restore it from a backup",
                file=file,
                column=columns[number].label,
                offset=table_at + 8 * number,
            )
    return header


def _parse_metadata(cursor: Cursor, what: str) -> dict[str, bytes]:
    start = cursor.position
    count = cursor.varint(f"the number of properties in the {what}")
    # A pair takes at least two bytes, its lengths.
    if not 0 <= count <= cursor.remaining // 2:
        left = cursor.remaining
        raise cursor.fail(f"the {what} claims {count} properties, but the file has only {left} more bytes", start)
    metadata: dict[str, bytes] = {}
    for _ in range(count):
        # Like the reference, keep the last value of a duplicate key at the position of the first.
        key = cursor.string(f"a key of the {what}")
        metadata[key] = cursor.bytes_(f"the property {key!r} of the {what}")
    return metadata


def _string_property(cursor: Cursor, metadata: Metadata, key: str, default: str) -> str:
    return cursor.decoded(metadata[key], f"the property {key!r}") if key in metadata else default


def _parse_column(
    cursor: Cursor,
    number: int,
    earlier: Sequence[ColumnDescriptor],
    by_name: Mapping[str, int],
    file_codec: str,
    file_checksum: str,
    at: int,
) -> ColumnDescriptor:
    metadata = _parse_metadata(cursor, f"metadata of column {number}")
    name = _string_property(cursor, metadata, NAME, "") if NAME in metadata else None
    label = name if name is not None else f"column {number}"
    cursor.about(column=label)
    if TYPE not in metadata:
        raise cursor.fail(f"column {label!r} has no {TYPE}", at)
    type_name = _string_property(cursor, metadata, TYPE, "")
    try:
        type_ = ValueType(type_name.lower())
    except ValueError:
        raise cursor.fail(f"column {label!r} has the unknown type {type_name!r}", at) from None
    array, values = ARRAY in metadata, VALUES in metadata
    parent: int | None = None
    if PARENT in metadata:
        parent_name = _string_property(cursor, metadata, PARENT, "")
        parent = by_name.get(parent_name)
        what = f"column {label!r} has the parent {parent_name!r}"
        if parent is None:
            raise cursor.fail(f"{what}, and no earlier column has that name", at, ParentError)
        if not earlier[parent].array:
            raise cursor.fail(f"{what}, which is not an array column", at, ParentError)
        if values:
            raise cursor.fail(f"column {label!r} has both {VALUES} and {PARENT}", at, ParentError)
    if values and array:
        raise cursor.fail(f"column {label!r} has both {VALUES} and {ARRAY}", at)
    return ColumnDescriptor(
        number,
        name,
        type_,
        array,
        parent,
        values,
        _string_property(cursor, metadata, CODEC, file_codec),
        _string_property(cursor, metadata, CHECKSUM, file_checksum),
        metadata,
    )


def serialize_metadata(metadata: Metadata) -> bytes:
    """Serialize metadata as ``count:int (key:string value:bytes){count}``, in the order of the mapping."""
    parts = [_integer(len(metadata))]
    for key, value in metadata.items():
        raw = key.encode()
        parts += (_integer(len(raw)), raw, _integer(len(value)), value)
    return b"".join(parts)


def _integer(value: int) -> bytes:
    return unsigned(zigzag(value))


def serialize_header(
    row_count: int, metadata: Metadata, columns: Sequence[Metadata], column_sizes: Sequence[int]
) -> bytes:
    """Serialize the header of a version 2 file, whose columns of ``column_sizes`` bytes follow without gaps."""
    parts = [MAGIC + b"\x02", struct.pack("<qi", row_count, len(columns)), serialize_metadata(metadata)]
    parts += [serialize_metadata(column) for column in columns]
    start = sum(map(len, parts)) + 8 * len(columns)
    starts = start + np.cumsum([0, *column_sizes[:-1]] if column_sizes else [], dtype="<i8")
    return b"".join([*parts, starts.astype("<i8").tobytes()])


def parse_blocks(
    data: bytes | memoryview,
    column: ColumnDescriptor,
    *,
    start: int,
    end: int,
    row_count: int,
    checksum_size: int,
    file: str,
) -> BlockTable:
    """Parse the block table of the column at ``start`` in the file, from its first bytes ``data``.

    No block may extend beyond ``end``, the start of the next column or the end of the file, and the rows must add up to
    ``row_count``.  Raises ``CorruptFileError``, and :class:`~.cursor.NeedMoreBytes` if ``data`` is too short.
    """
    cursor = Cursor(data, file=file, base=start, limit=end - start, column=column.label)
    count = cursor.fixed32("the block count")
    # A descriptor takes 12 bytes plus the first value, which is empty only in null columns.
    per_block = 12 + (1 if column.values and column.type is not ValueType.NULL else 0)
    if not 0 <= count <= cursor.remaining // per_block:
        raise cursor.fail(f"the block count is {count}, but the column has only {cursor.remaining} more bytes", 0)
    first_values: pa.Array | None = None
    if column.values:
        fixed, first_values = _parse_first_values(cursor, column, count)
        cursor.about(block=None)
    else:
        fixed = np.frombuffer(cursor.take(12 * count, "the block descriptors"), "<i4").reshape(count, 3)
    if (fixed < 0).any():
        cursor.about(block=int(np.argmax((fixed < 0).any(axis=1))))
        raise cursor.fail("a block descriptor has a negative count or size", 0)
    sizes = fixed.astype(np.int64)
    row_starts = np.concatenate(([0], np.cumsum(sizes[:, 0])))
    offsets = start + cursor.position + np.concatenate(([0], np.cumsum(sizes[:, 2] + checksum_size)))
    if offsets[-1] > end:
        block = int(np.argmax(offsets[1:] > end))
        cursor.about(block=block)
        message = f"the block ends at byte {offsets[block + 1]}, after the end of the column at byte {end}"
        raise cursor.fail(message, int(offsets[block]) - start)
    if row_starts[-1] != row_count:
        raise cursor.fail(f"the blocks of the column have {row_starts[-1]} rows, but the file has {row_count}", 0)
    return BlockTable(row_starts, sizes[:, 1], sizes[:, 2], offsets, first_values)


def _parse_first_values(
    c: Cursor, column: ColumnDescriptor, count: int
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], pa.Array]:
    # A Python loop, as the size of a descriptor depends on its value; there is one per block, not per row.
    fixed = np.empty((count, 3), np.int32)
    values: list[Any] = []
    for block in range(count):
        c.about(block=block)
        fixed[block] = np.frombuffer(c.take(12, "a block descriptor"), "<i4")
        values.append(_read_value(c, column.type))
    return fixed, pa.array(values, column.type.arrow)


def _read_value(cursor: Cursor, type_: ValueType) -> Any:
    what = "the first value of a block"
    match type_:
        case ValueType.NULL:
            return None
        case ValueType.BOOLEAN:
            # One byte each, like the reference writer; the reference reader misreads them, taking one byte for all.
            return bool(cursor.take(1, what)[0] & 1)
        case ValueType.INT:
            return cursor.varint(what)
        case ValueType.LONG:
            return cursor.varint(what, 64)
        case ValueType.STRING:
            return cursor.string(what)
        case ValueType.BYTES:
            return cursor.bytes_(what)
        case _:
            code = {"fixed32": "<i", "fixed64": "<q", "float": "<f", "double": "<d"}[type_.value]
            return struct.unpack(code, cursor.take(type_.width or 0, what))[0]
