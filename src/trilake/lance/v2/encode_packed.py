"""Packed structs: one column that stores structs row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from trilake.common.jit import jit
from trilake.errors import UnsupportedProtocolError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.types import is_variable
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_chunks import Chunks, Stream, even_bounds, flat, values_per_chunk
from trilake.lance.v2.encode_fullzip import zip_fixed, zip_strings
from trilake.lance.v2.encode_lists import FixedLists, byte_rows, fixed_bytes
from trilake.lance.v2.encode_miniblock import Page, mini_block
from trilake.lance.v2.encode_options import Options
from trilake.lance.v2.encode_strings import Strings, variable
from trilake.lance.v2.write_levels import Leaf

#: Rows of at least this many bytes use the full-zip layout.
_WIDE = 256


def packed(leaf: Leaf, options: Options, minor: int) -> Page:
    """Lay out the rows of a packed struct.

    Raises ``UnsupportedProtocolError`` for fields that cannot be packed.
    """
    children = [
        (field, storage_array(child)) for field, child in zip(leaf.values.type, leaf.values.flatten(), strict=True)
    ]
    valid = leaf.values.is_valid() if leaf.values.null_count else None
    for field, child in children:
        present = child if valid is None else child.filter(valid)
        if present.null_count:
            raise _unsupported(field, f"{present.null_count} nulls", "fill the nulls, or do not pack the struct")
        if pt.is_boolean(child.type) or pt.is_null(child.type):
            raise _unsupported(field, f"type {child.type}", "cast the field to int8, or do not pack the struct")
    if all(_is_plain(child.type) for _, child in children):
        rows = [byte_rows(*fixed_bytes(child), len(child)) for _, child in children]
        return _fixed(leaf, np.hstack(rows), [8 * row.shape[1] for row in rows], options, minor)
    if minor < 2:
        field = next(field for field, child in children if not _is_plain(child.type))
        raise _unsupported(field, f"type {field.type}", 'write it with data_storage_version="2.2" or newer')
    return _variable(leaf, children)


def _fixed(leaf: Leaf, rows: Any, bits: list[int], options: Options, minor: int) -> Page:
    width = rows.shape[1]
    encoding = pb.CompressiveEncoding(packed_struct=pb.PackedStruct(bits_per_value=bits, values=flat(8 * width)))
    if options.structure == "fullzip" or (options.structure is None and width >= _WIDE):
        return zip_fixed(leaf, rows, encoding)
    bounds = even_bounds(len(rows), values_per_chunk(8 * width))
    chunks = Chunks(encoding, bounds, (Stream(rows.reshape(-1), bounds * width),))
    return mini_block(leaf, chunks, large=minor >= 2)


def _variable(leaf: Leaf, children: list[tuple[pa.Field, pa.Array]]) -> Page:
    parts = [_part(field, child) for field, child in children]
    sizes = np.zeros(len(leaf.values), np.int64)
    for values, _ in parts:
        sizes += values.offsets.itemsize + np.diff(values.offsets) if isinstance(values, Strings) else values.shape[1]
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data, at = np.empty(offsets[-1], np.uint8), offsets[:-1].copy()
    for values, _ in parts:
        if isinstance(values, Strings):
            put_strings(values.offsets, values.data, at, data)
        else:
            put_rows(np.ascontiguousarray(values), at, data)
    encoding = pb.CompressiveEncoding(
        variable_packed_struct=pb.VariablePackedStruct(fields=[described for _, described in parts])
    )
    return zip_strings(leaf, Strings(offsets.astype(np.int32), data), encoding)


def _part(field: pa.Field, child: pa.Array) -> tuple[Any, pb.VariablePackedStruct.FieldEncoding]:
    """Return the values of a field, strings or a byte matrix, and their encoding."""
    described = pb.VariablePackedStruct.FieldEncoding
    if is_variable(child.type):
        strings = Strings.of(child)
        bits = 8 * strings.offsets.itemsize
        return strings, described(value=variable(bits), bits_per_length=bits)
    if pt.is_fixed_size_list(child.type):
        lists = FixedLists.of(child)
        rows, encoding = lists.rows(), lists.encoding
    elif _is_plain(child.type):
        rows = byte_rows(*fixed_bytes(child), len(child))
        encoding = flat(8 * rows.shape[1])
    else:
        raise _unsupported(field, f"type {child.type}", "do not pack the struct")
    return rows, described(value=encoding, bits_per_value=8 * rows.shape[1])


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values are not nested, and have a fixed number of whole bytes."""
    nested = pt.is_nested(kind) or pt.is_dictionary(kind) or pt.is_boolean(kind) or pt.is_null(kind)
    return not (nested or is_variable(kind)) and kind.bit_width % 8 == 0


def _unsupported(field: pa.Field, what: str, help: str) -> UnsupportedProtocolError:
    return UnsupportedProtocolError(f"a packed struct cannot contain {what}", help=help, column=field.name)


@jit
def put_rows(rows: Any, at: Any, data: Any) -> None:
    """Write a row of bytes at each position, and advance the positions."""
    width = rows.shape[1]
    for i in range(len(rows)):
        data[at[i] : at[i] + width] = rows[i]
        at[i] += width


@jit
def put_strings(offsets: Any, source: Any, at: Any, data: Any) -> None:
    """Write the length and bytes of a string at each position, and advance the positions."""
    width = offsets.itemsize
    for i in range(len(at)):
        size = np.int64(offsets[i + 1] - offsets[i])
        for j in range(width):
            data[at[i] + j] = (size >> (8 * j)) & 255
        start = at[i] + width
        data[start : start + size] = source[offsets[i] : offsets[i + 1]]
        at[i] = start + size
