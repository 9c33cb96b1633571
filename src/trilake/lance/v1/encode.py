"""Encode Arrow arrays as pages.

As in Lance, nulls are written as zeros, false, empty values and empty lists; :mod:`trilake.lance.file.null_masks`
prevents this loss.  Numbers are aligned to 16 bytes, so that readers can use them in place; the format does not require
it, and readers ignore the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.lance.file import types
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import Field
from trilake.lance.file.types import check_strings
from trilake.lance.v1.pages import PageKind, PageTableBuilder, layout_of

ALIGN = 16
Part: TypeAlias = "bytes | memoryview"
#: Returns the keys of a batch in the file's dictionary.
KeysOf: TypeAlias = Callable[[Field, pa.DictionaryArray], pa.Array]


def encode_flat(field: Field, array: pa.Array, position: int) -> tuple[list[Part], int]:
    """Encode a page without child pages; nulls become zeros or empty values.  Also return the position of the page."""
    kind = layout_of(field).kind
    if kind is PageKind.VARIABLE:
        return _variable(field, array, position)
    if kind is PageKind.NULL:
        return [], position
    if kind is PageKind.BITS:
        return [_bytes(_bits(array))], position
    gap = -position % ALIGN
    return [bytes(gap), _packed(array, layout_of(field).bits // 8)], position + gap


class BatchEncoder:
    """Writes the pages of batches one after another, from ``position``; ``pages`` collects their positions."""

    def __init__(self, write: Callable[[Part], object], position: int, pages: PageTableBuilder, keys: KeysOf) -> None:
        self._write = write
        self._pages = pages
        self._keys = keys
        self.position = position

    def column(self, field: Field, array: pa.Array) -> None:
        """Write the pages of a field and of its children, for one batch."""
        array = storage_array(array)
        kind = layout_of(field).kind
        if kind is PageKind.STRUCT:
            for child, values in zip(field.children, _struct_children(array), strict=True):
                self.column(child, values)
        elif kind is PageKind.OFFSETS:
            offsets, values = list_parts(array)
            gap = -self.position % ALIGN
            self._pages.add(field.id, self.position + gap, len(offsets))
            self.append([bytes(gap), _bytes(offsets)])
            self.column(field.children[0], values)
        else:
            values = self._keys(field, array) if kind is PageKind.KEYS else array
            parts, at = encode_flat(field, values, self.position)
            self._pages.add(field.id, at, len(array))
            self.append(parts)

    def append(self, parts: list[Part]) -> None:
        for part in parts:
            size = len(part)
            if size:
                self._write(part)
                self.position += size


def list_parts(array: pa.Array) -> tuple[np.ndarray[Any, np.dtype[Any]], pa.Array]:
    """Return offsets from 0, and the items between them; a null list has no items."""
    if array.null_count:
        offsets = np.zeros(len(array) + 1, np.int64 if pt.is_large_list(array.type) else np.int32)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        np.cumsum(lengths, out=offsets[1:])
        return offsets, array.flatten()  # drops the items of null lists
    raw = array.offsets.to_numpy()
    return raw - raw[0], array.values.slice(int(raw[0]), int(raw[-1] - raw[0]))


def _bytes(array: np.ndarray[Any, np.dtype[Any]]) -> Part:
    # An empty view cannot be cast.
    return array.data.cast("B") if array.size else b""


def _variable(field: Field, array: pa.Array, position: int) -> tuple[list[Part], int]:
    count = len(array)
    large = types.is_large(array.type)
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(b"", pa.large_binary() if large else pa.binary()).cast(array.type))
    parts: list[Part] = []
    offsets = np.full(count + 1, position, np.int64)
    if count:
        _, starts, data = array.buffers()
        width = np.dtype(np.int64 if large else np.int32)
        raw = np.frombuffer(starts, width, count + 1, array.offset * width.itemsize)
        first, last = int(raw[0]), int(raw[-1])
        np.add(raw, position - first, out=offsets)
        check_strings(array, field.name)
        if last > first:
            parts.append(memoryview(data)[first:last])
            position += last - first
    gap = -position % ALIGN
    parts += [bytes(gap), _bytes(offsets)]
    return parts, position + gap


def _bits(array: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if pt.is_fixed_size_list(array.type):
        size = array.type.list_size
        values = storage_array(array.values).slice(array.offset * size, len(array) * size)
        flags = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
        if array.null_count:
            flags = flags.reshape(len(array), size).copy()
            flags[_null_mask(array)] = False
            flags = flags.ravel()
    else:
        flags = (pc.fill_null(array, False) if array.null_count else array).to_numpy(zero_copy_only=False)
    return np.packbits(flags, bitorder="little")


def _packed(array: pa.Array, width: int) -> Part:
    """Return values of ``width`` bytes each; nulls are zeros."""
    count = len(array)
    if not count or not width:
        return b""
    if pt.is_fixed_size_list(array.type):
        size = array.type.list_size
        items = storage_array(array.values).slice(array.offset * size, count * size)
        flat = _packed(items, width // size)
    else:
        flat = memoryview(array.buffers()[1])[array.offset * width : (array.offset + count) * width]
    if array.null_count:
        rows = np.frombuffer(flat, np.uint8).reshape(count, width).copy()
        rows[_null_mask(array)] = 0
        return _bytes(rows)
    return flat


def _null_mask(array: pa.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False)


def walk_columns(field: Field, array: pa.Array) -> Iterator[tuple[Field, pa.Array]]:
    """Yield a column and the fields in its structs, at any depth; not those in lists."""
    array = storage_array(array)
    yield field, array
    if layout_of(field).kind is PageKind.STRUCT:
        for child, values in zip(field.children, _struct_children(array), strict=True):
            yield from walk_columns(child, values)


def _struct_children(array: pa.StructArray) -> list[pa.Array]:
    """The children of a struct array, with its nulls; ``flatten`` copies bitmaps, so it is called only for nulls."""
    return array.flatten() if array.null_count else [array.field(i) for i in range(array.type.num_fields)]
