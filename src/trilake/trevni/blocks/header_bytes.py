"""Parse and serialize the header, column descriptors and block descriptors (spec: "File Format").

::

    file   = header column*
    header = "Trv" 02  rowCount:fixed64  columnCount:fixed32
             metadata  metadata{columnCount}  start:fixed64{columnCount}
    column = blockCount:fixed32  blockDescriptor{blockCount}  block{blockCount}
    blockDescriptor = rows:fixed32  rawSize:fixed32  storedSize:fixed32  [firstValue]

These functions do no I/O.  Before allocating memory for a count or length, they compare it with the remaining bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.trevni.blocks.cursor import Cursor, zigzag
from trilake.trevni.blocks.layout import (
    ARRAY,
    CHECKSUM,
    CODEC,
    MAGIC,
    MAX_DEPTH,
    NAME,
    PARENT,
    TYPE,
    VALUES,
    VERSIONS,
    BlockTable,
    ColumnDescriptor,
    Header,
    Metadata,
    ValueType,
)


class ParentError(CorruptFileError):
    """The parent of a column is missing or is not an array column."""


# --- header ----------------------------------------------------------------------------------------------------------


def parse_header(data: bytes | memoryview, *, file: str, file_size: int) -> Header:
    """Parse the header at the start of ``data``, the first bytes of a file of ``file_size`` bytes.

    Raises ``CorruptFileError``, ``UnsupportedProtocolError`` for an unknown version, and
    :class:`~trilake.trevni.blocks.cursor.NeedMoreBytes` if the header is longer than ``data``.
    """
    cursor = Cursor(data, file=file, limit=file_size)
    if file_size < 4:
        raise cursor.fail(f"this is not a Trevni file: it has only {file_size} bytes")
    magic = bytes(cursor.take(4, "the magic number"))
    if magic[:3] != MAGIC:
        raise cursor.fail(f"this is not a Trevni file: it starts with {magic!r} instead of {MAGIC!r}", 0)
    if magic[3] not in VERSIONS:
        raise UnsupportedProtocolError(
            f"expected version 1 or 2 of the Trevni format, got {magic[3]}", file=file, offset=3
        )
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
    starts = np.frombuffer(cursor.take(8 * count, "the table of column starts"), "<i8")
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
        raise cursor.fail(
            f"the {what} claims {count} properties, but the file has only {cursor.remaining} more bytes", start
        )
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
        if parent is None:
            raise cursor.fail(
                f"column {label!r} has the parent {parent_name!r}, and no earlier column has that name", at, ParentError
            )
        if not earlier[parent].array:
            raise cursor.fail(
                f"column {label!r} has the parent {parent_name!r}, which is not an array column", at, ParentError
            )
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
    parts = [zigzag(len(metadata))]
    for key, value in metadata.items():
        raw = key.encode()
        parts += (zigzag(len(raw)), raw, zigzag(len(value)), value)
    return b"".join(parts)


def serialize_header(
    row_count: int, metadata: Metadata, columns: Sequence[Metadata], column_sizes: Sequence[int]
) -> bytes:
    """Serialize the header of a version 2 file, whose columns of ``column_sizes`` bytes follow without gaps."""
    parts = [MAGIC + b"\x02", struct.pack("<qi", row_count, len(columns)), serialize_metadata(metadata)]
    parts += [serialize_metadata(column) for column in columns]
    start = sum(map(len, parts)) + 8 * len(columns)
    starts = start + np.cumsum([0, *column_sizes[:-1]] if column_sizes else [], dtype="<i8")
    return b"".join([*parts, starts.astype("<i8").tobytes()])


# --- block descriptors -----------------------------------------------------------------------------------------------


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

    No block may extend beyond ``end``, the start of the next column or the end of the file.  The rows of the blocks
    must add up to ``row_count``, and no size may be negative.

    Raises ``CorruptFileError``, and :class:`~trilake.trevni.blocks.cursor.NeedMoreBytes` if the descriptors are longer
    than ``data``.
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
    else:
        fixed = np.frombuffer(cursor.take(12 * count, "the block descriptors"), "<i4").reshape(count, 3)
    if (fixed < 0).any():
        block = int(np.argmax((fixed < 0).any(axis=1)))
        raise CorruptFileError(
            "a block descriptor has a negative count or size", file=file, column=column.label, block=block, offset=start
        )
    sizes = fixed.astype(np.int64)
    row_starts = np.concatenate(([0], np.cumsum(sizes[:, 0])))
    offsets = start + cursor.position + np.concatenate(([0], np.cumsum(sizes[:, 2] + checksum_size)))
    if offsets[-1] > end:
        block = int(np.argmax(offsets[1:] > end))
        raise CorruptFileError(
            f"the block ends at byte {offsets[block + 1]}, after the end of the column at byte {end}",
            file=file,
            column=column.label,
            block=block,
            offset=int(offsets[block]),
        )
    if row_starts[-1] != row_count:
        raise CorruptFileError(
            f"the blocks of the column have {row_starts[-1]} rows, but the file has {row_count}",
            file=file,
            column=column.label,
            offset=start,
        )
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
