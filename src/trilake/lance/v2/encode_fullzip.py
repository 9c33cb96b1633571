"""Full-zip pages: each entry is a control word with its levels, followed by its value."""

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
from trilake.lance.v2 import encode_values as e
from trilake.lance.v2.encode_miniblock import Page, mini_block
from trilake.lance.v2.encode_options import Options
from trilake.lance.v2.write_levels import Leaf


def zip_fixed(leaf: Leaf, rows: Any, encoding: pb.CompressiveEncoding) -> Page:
    """Lay out fixed-width values; ``rows`` is a byte matrix with a row for each visible entry."""
    count, width = rows.shape
    layout, control = _layout(leaf, count, encoding)
    layout.bits_per_value = 8 * width
    word = control.shape[1]
    if leaf.repetition is None:
        if word:
            zipped = np.empty((count, word + width), np.uint8)
            zipped[:, :word], zipped[:, word:] = control, rows
            rows = zipped
        return _page(leaf, layout, (np.ascontiguousarray(rows).reshape(-1),))
    visible = np.ones(len(control), bool) if leaf.definition is None else leaf.definition <= leaf.visible
    starts = np.zeros(len(control) + 1, np.int64)
    np.cumsum(word + width * visible, out=starts[1:])
    data = np.empty(starts[-1], np.uint8)
    zip_rows(control, visible, np.ascontiguousarray(rows), data)
    return _page(leaf, layout, (data, _row_index(leaf, starts)))


def zip_strings(leaf: Leaf, strings: e.Strings, encoding: pb.CompressiveEncoding) -> Page:
    """Lay out strings or binaries; a visible null has only a control word."""
    layout, control = _layout(leaf, len(strings), encoding)
    width = strings.offsets.itemsize
    layout.bits_per_offset = 8 * width
    definition = np.zeros(len(control), np.uint16) if leaf.definition is None else leaf.definition
    starts = np.empty(len(control) + 1, np.int64)
    measure_strings(definition, leaf.visible, strings.offsets, control.shape[1], width, starts)
    data = np.empty(starts[-1], np.uint8)
    fill_strings(control, definition, leaf.visible, strings.offsets, strings.data, starts, data)
    return _page(leaf, layout, (data, _row_index(leaf, starts)))


def _layout(leaf: Leaf, values: int, encoding: pb.CompressiveEncoding) -> tuple[pb.FullZipLayout, Any]:
    """Return the layout, and the control words as rows of bytes."""
    bits_rep, bits_def = (
        0 if levels is None else int(levels.max(initial=0)).bit_length()
        for levels in (leaf.repetition, leaf.definition)
    )
    layout = pb.FullZipLayout(
        bits_rep=bits_rep,
        bits_def=bits_def,
        num_items=leaf.entries,
        num_visible_items=values,
        value_compression=encoding,
        layers=leaf.layers,
    )
    bits = bits_rep + bits_def
    width = (bits > 0) + (bits > 8) + 2 * (bits > 16)
    words = np.zeros(leaf.entries if width else 0, np.uint32)
    if bits_rep and leaf.repetition is not None:
        words |= leaf.repetition.astype(np.uint32) << np.uint32(bits_def)
    if bits_def and leaf.definition is not None:
        words |= leaf.definition
    if not width:
        return layout, np.empty((leaf.entries, 0), np.uint8)
    return layout, words.astype(f"<u{width}").view(np.uint8).reshape(-1, width)


def _page(leaf: Leaf, layout: pb.FullZipLayout, buffers: tuple[Any, ...]) -> Page:
    return Page(pb.PageLayout(full_zip_layout=layout), buffers, leaf.rows, leaf.length)


def _row_index(leaf: Leaf, starts: Any) -> Any:
    """Build the repetition index: the position of each row, then the total size, in the narrowest integers."""
    if leaf.repetition is not None:
        starts = np.append(starts[:-1][leaf.repetition == leaf.lists], starts[-1])
    bits = int(starts[-1]).bit_length()
    return starts.astype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32 if bits <= 32 else np.uint64)


@jit
def zip_rows(control: Any, visible: Any, rows: Any, data: Any) -> None:
    """Write the control words, and the rows of visible entries."""
    word, width = control.shape[1], rows.shape[1]
    at, row = 0, 0
    for i in range(len(control)):
        for j in range(word):
            data[at + j] = control[i, j]
        at += word
        if visible[i]:
            data[at : at + width] = rows[row]
            at += width
            row += 1


@jit
def measure_strings(definition: Any, visible: int, offsets: Any, word: int, width: int, starts: Any) -> None:
    """Fill ``starts`` with the position of each entry, then the total size."""
    at, value = 0, 0
    for i in range(len(definition)):
        starts[i] = at
        at += word
        if definition[i] <= visible:
            if definition[i] == 0:
                at += width + offsets[value + 1] - offsets[value]
            value += 1
    starts[len(definition)] = at


@jit
def fill_strings(
    control: Any, definition: Any, visible: int, offsets: Any, source: Any, starts: Any, data: Any
) -> None:
    """Write control words, lengths and bytes."""
    word, width = control.shape[1], offsets.itemsize
    value = 0
    for i in range(len(definition)):
        at = starts[i]
        for j in range(word):
            data[at + j] = control[i, j]
        at += word
        if definition[i] <= visible:
            if definition[i] == 0:
                size = offsets[value + 1] - offsets[value]
                for j in range(width):
                    data[at + j] = (np.int64(size) >> (8 * j)) & 255
                at += width
                data[at : at + size] = source[offsets[value] : offsets[value + 1]]
            value += 1


def packed(leaf: Leaf, options: Options, minor: int) -> Page:
    """Lay out the rows of a packed struct.  Raises ``UnsupportedProtocolError`` for fields that cannot be packed."""
    children = list(zip(leaf.values.type, map(storage_array, leaf.values.flatten()), strict=True))
    valid = leaf.values.is_valid() if leaf.values.null_count else None
    for field, child in children:
        present = child if valid is None else child.filter(valid)
        if present.null_count:
            raise _unsupported(field, f"{present.null_count} nulls", "fill the nulls, or do not pack the struct")
        if pt.is_boolean(child.type) or pt.is_null(child.type):
            raise _unsupported(field, f"type {child.type}", "cast the field to int8, or do not pack the struct")
    if all(_is_plain(child.type) for _, child in children):
        rows = [e.byte_rows(*e.fixed_bytes(child), len(child)) for _, child in children]
        return _fixed(leaf, np.hstack(rows), [8 * row.shape[1] for row in rows], options, minor)
    if minor < 2:
        field = next(field for field, child in children if not _is_plain(child.type))
        raise _unsupported(field, f"type {field.type}", 'write the data with data_storage_version="2.2" or newer')
    return _variable(leaf, children)


def _fixed(leaf: Leaf, rows: Any, bits: list[int], options: Options, minor: int) -> Page:
    width = rows.shape[1]
    encoding = pb.CompressiveEncoding(packed_struct=pb.PackedStruct(bits_per_value=bits, values=e.flat(8 * width)))
    if options.zips(width):
        return zip_fixed(leaf, rows, encoding)
    bounds = e.even_bounds(len(rows), e.values_per_chunk(8 * width))
    chunks = e.Chunks(encoding, bounds, (e.Stream(rows.reshape(-1), bounds * width),))
    return mini_block(leaf, chunks, large=minor >= 2)


def _variable(leaf: Leaf, children: list[tuple[pa.Field, pa.Array]]) -> Page:
    parts = [_part(field, child) for field, child in children]
    sizes = np.zeros(len(leaf.values), np.int64)
    for values, _ in parts:
        sizes += values.offsets.itemsize + np.diff(values.offsets) if isinstance(values, e.Strings) else values.shape[1]
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data, at = np.empty(offsets[-1], np.uint8), offsets[:-1].copy()
    for values, _ in parts:
        if isinstance(values, e.Strings):
            put_strings(values.offsets, values.data, at, data)
        else:
            put_rows(np.ascontiguousarray(values), at, data)
    encoding = pb.CompressiveEncoding(
        variable_packed_struct=pb.VariablePackedStruct(fields=[described for _, described in parts])
    )
    return zip_strings(leaf, e.Strings(offsets.astype(np.int32), data), encoding)


def _part(field: pa.Field, child: pa.Array) -> tuple[Any, pb.VariablePackedStruct.FieldEncoding]:
    """Return the values of a field, strings or a byte matrix, and their encoding."""
    described = pb.VariablePackedStruct.FieldEncoding
    if is_variable(child.type):
        strings = e.Strings.of(child)
        bits = 8 * strings.offsets.itemsize
        return strings, described(value=e.variable(bits), bits_per_length=bits)
    if pt.is_fixed_size_list(child.type):
        lists = e.FixedLists.of(child)
        rows, encoding = lists.rows(), lists.encoding
    elif _is_plain(child.type):
        rows = e.byte_rows(*e.fixed_bytes(child), len(child))
        encoding = e.flat(8 * rows.shape[1])
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
