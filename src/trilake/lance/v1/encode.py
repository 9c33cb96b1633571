"""From Arrow arrays to pages.

A page that has no room for nulls gets zeros, false, empty values and empty lists in their place, as Lance itself writes
them; :mod:`trilake.lance.file.null_masks` is what keeps nulls from being lost that way.  Numbers begin at multiples of
sixteen bytes, so that readers can use them where they are; the format asks for nothing of the kind and nobody minds the
gaps.
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
from trilake.lance.file.strings import check_strings
from trilake.lance.v1.layout import PageKind, layout_of
from trilake.lance.v1.pages import PageTableBuilder

ALIGN = 16
Part: TypeAlias = "bytes | memoryview"
#: What :func:`encode_flat` asks of dictionary columns: the keys of a batch in the file's own dictionary.
KeysOf: TypeAlias = Callable[[Field, pa.DictionaryArray], pa.Array]


def encode_flat(field: Field, array: pa.Array, position: int) -> tuple[list[Part], int]:
    """The bytes of a page without pages below it, to be written at ``position``, and the page's own position.

    Nulls become zeros or empty values.  Raises ``RowsDoNotFitError`` for a text that is not UTF-8, which no reader
    would take.
    """
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
    """Writes the pages of batches one after another.

    Parameters
    ----------
    write: appends bytes to the file.
    position: where the file ends.
    pages: is told where pages are.
    keys: see :data:`KeysOf`.
    """

    def __init__(self, write: Callable[[Part], object], position: int, pages: PageTableBuilder, keys: KeysOf) -> None:
        self._write = write
        self._pages = pages
        self._keys = keys
        self.position = position

    def column(self, field: Field, array: pa.Array) -> None:
        """Write the pages of a field and of those below it, for one batch."""
        array = storage_array(array)
        kind = layout_of(field).kind
        if kind is PageKind.STRUCT:
            # A null struct has null children here; flatten() costs a copy of their bitmaps, so only where needed.
            children = array.flatten() if array.null_count else [array.field(i) for i in range(array.type.num_fields)]
            for child, values in zip(field.children, children, strict=True):
                self.column(child, values)
        elif kind is PageKind.OFFSETS:
            offsets, values = list_parts(array)
            self._page(field, len(offsets), [bytes(-self.position % ALIGN), _bytes(offsets)], ALIGN)
            self.column(field.children[0], values)
        else:
            if kind is PageKind.KEYS:
                keys = self._keys(field, array)
                parts, at = encode_flat(field, keys, self.position)
            else:
                parts, at = encode_flat(field, array, self.position)
            self._pages.add(field.id, at, len(array))
            self.append(parts)

    def append(self, parts: list[Part]) -> None:
        """Write bytes."""
        for part in parts:
            size = len(part)
            if size:
                self._write(part)
                self.position += size

    def _page(self, field: Field, length: int, parts: list[Part], align: int) -> None:
        self._pages.add(field.id, self.position + -self.position % align, length)
        self.append(parts)


def list_parts(array: pa.Array) -> tuple[np.ndarray[Any, np.dtype[Any]], pa.Array]:
    """Offsets from 0 on, and the items that they divide; a null list has none."""
    dtype: Any = np.int64 if pt.is_large_list(array.type) else np.int32
    offsets = np.zeros(len(array) + 1, dtype)
    if array.null_count:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        np.cumsum(lengths, out=offsets[1:])
        return offsets, array.flatten()  # leaves out what null lists hide
    if len(array):
        raw = _values(array.buffers()[1], dtype, array.offset, len(array) + 1)
        np.subtract(raw, raw[0], out=offsets)
        return offsets, array.values.slice(int(raw[0]), int(offsets[-1]))
    return offsets, array.values.slice(0, 0)


def _bytes(array: np.ndarray[Any, np.dtype[Any]]) -> Part:
    # A view of nothing cannot be cast.
    return array.data.cast("B") if array.size else b""


def _values(buffer: pa.Buffer, dtype: Any, start: int, count: int) -> np.ndarray[Any, np.dtype[Any]]:
    return np.frombuffer(buffer, dtype, count, start * np.dtype(dtype).itemsize)


def _variable(field: Field, array: pa.Array, position: int) -> tuple[list[Part], int]:
    count = len(array)
    if array.null_count:
        large = types.is_large(array.type)
        array = pc.fill_null(array, pa.scalar(b"", pa.large_binary() if large else pa.binary()).cast(array.type))
    parts: list[Part] = []
    offsets = np.full(count + 1, position, np.int64)
    if count:
        _, starts, data = array.buffers()
        large = types.is_large(array.type)
        raw = _values(starts, np.int64 if large else np.int32, array.offset, count + 1)
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
    """Booleans, or the booleans of fixed-size lists, packed."""
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
    """Values of ``width`` bytes each; zeros for nulls."""
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
    """A column and what is in its structs, at any depth; not what is in lists."""
    array = storage_array(array)
    yield field, array
    if layout_of(field).kind is PageKind.STRUCT:
        children = array.flatten() if array.null_count else [array.field(i) for i in range(array.type.num_fields)]
        for child, values in zip(field.children, children, strict=True):
            yield from walk_columns(child, values)
