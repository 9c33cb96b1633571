"""Decoded values of a page, before they become Arrow arrays: buffers without nulls, with slice and take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from trilake.common.utf8 import is_utf8
from trilake.lance.file import types
from trilake.lance.file.sources import Int64s


@cache
def kernels() -> ModuleType:
    """The module :mod:`trilake.lance.v2.kernels`."""
    # Importing numba takes a second, and readers of manifests and footers do not need it.
    from trilake.lance.v2 import kernels as loaded

    return loaded


Bytes = npt.NDArray[np.uint8]
_MAX_INT32 = 2**31 - 1
#: Bytes after the last value that a copy may overwrite.
_SLACK = 16


class DamagedPage(Exception):
    """A page is damaged; the reader adds the file and the column."""


class UnsupportedPage(DamagedPage):
    """The encoding of a page is not supported."""


def allocate(size: int) -> Bytes:
    """Allocate from Arrow's pool, which reuses the memory of earlier scans."""
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


class Values(ABC):
    """Values without nulls."""

    if TYPE_CHECKING:  # dataclasses would take a real property for the default of a field of that name

        @property
        def count(self) -> int: ...

    @abstractmethod
    def slice(self, start: int, stop: int) -> Values:
        """The values from ``start`` up to ``stop``."""

    @abstractmethod
    def take(self, index: Int64s) -> Values:
        """Take single values; every index must exist."""

    @abstractmethod
    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        """Convert to an array of a type, with a validity bitmap if some are null.  Raises ``DamagedPage`` if they do
        not fit.
        """


@dataclass(frozen=True, slots=True)
class Flat(Values):
    """Packed values of ``bits`` bits each; the first begins at bit ``skip``."""

    data: Bytes
    bits: int
    count: int
    skip: int = 0

    def slice(self, start: int, stop: int) -> Flat:
        if start == 0 and stop == self.count:
            return self
        if self.bits == 1:
            first, skip = divmod(self.skip + start, 8)
            return Flat(self.data[first:], 1, stop - start, skip)
        width = self.bits // 8
        return Flat(self.data[start * width : stop * width], self.bits, stop - start)

    def take(self, index: Int64s) -> Flat:
        if self.bits == 1:
            at = index + self.skip
            picked = self.data[at >> 3] >> (at & 7).astype(np.uint8) & 1
            return Flat(np.packbits(picked, bitorder="little"), 1, len(index))
        rows: Any = self.typed()[index]
        return Flat(rows.view(np.uint8), self.bits, len(index))

    def typed(self) -> npt.NDArray[Any]:
        """View the values as unsigned integers of their width, or as fixed-size bytes."""
        width = self.bits // 8
        kind = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}.get(width)
        return self.data[: self.count * width].view(kind or np.dtype((np.void, width)))

    def bitmap(self) -> pa.Buffer:
        """Return the bits, shifted to the start of a byte."""
        if not self.skip:
            return pa.py_buffer(self.data)
        bits = np.unpackbits(self.data, count=self.skip + self.count, bitorder="little")[self.skip :]
        return pa.py_buffer(np.packbits(bits, bitorder="little"))

    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        if not types.is_flat(arrow):
            raise DamagedPage(f"values of {self.bits} bits cannot be read as {arrow}")
        if arrow.bit_width == 1 and self.bits == 8:  # full-zip pages store a boolean as a byte
            bits = np.packbits(self.data[: self.count] != 0, bitorder="little")
            return pa.Array.from_buffers(arrow, self.count, [validity, pa.py_buffer(bits)])
        if arrow.bit_width != self.bits:
            raise DamagedPage(f"values of {self.bits} bits cannot be read as {arrow}, which has {arrow.bit_width} bits")
        if self.bits == 1:
            return pa.Array.from_buffers(arrow, self.count, [validity, self.bitmap()])
        buffer = pa.py_buffer(self.data)
        align = 1 if pt.is_fixed_size_binary(arrow) else min(self.bits // 8, 16)
        if buffer.address % align:
            buffer = pa.py_buffer(self.data.copy())
        return pa.Array.from_buffers(arrow, self.count, [validity, buffer])


@dataclass(frozen=True, slots=True)
class Variable(Values):
    """Strings or binaries: value ``i`` is ``data[offsets[i]:offsets[i + 1]]``; offsets are int32 or int64."""

    offsets: npt.NDArray[Any]
    data: Bytes

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> Variable:
        return Variable(self.offsets[start : stop + 1], self.data)

    def take(self, index: Int64s) -> Variable:
        offsets = self.offsets.astype(np.int64)
        return gather(self.data, offsets[index], np.diff(offsets)[index])

    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        if not types.is_variable(arrow):
            raise DamagedPage(f"strings or bytes cannot be read as {arrow}")
        offsets = self.offsets
        large = types.is_large(arrow)
        if large != (offsets.dtype.itemsize == 8):
            if not large and int(offsets[-1] - offsets[0]) > _MAX_INT32:
                raise DamagedPage("a column has more than 2 GiB of strings or bytes in one read; read fewer rows")
            first = offsets[0] if not large else 0
            offsets = (offsets - first).astype(np.int64 if large else np.int32)
            data = self.data[int(first) :]
        else:
            data = self.data
        if types.is_text(arrow) and not is_utf8(offsets, data):
            raise DamagedPage("a string is not UTF-8")
        return pa.Array.from_buffers(arrow, self.count, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


@dataclass(frozen=True, slots=True)
class FixedLists(Values):
    """Lists of ``size`` items each; ``valid`` is the validity of the items, ``None`` if none is null."""

    size: int
    items: Values
    valid: Flat | None
    count: int

    def slice(self, start: int, stop: int) -> FixedLists:
        a, b = start * self.size, stop * self.size
        valid = None if self.valid is None else self.valid.slice(a, b)
        return FixedLists(self.size, self.items.slice(a, b), valid, stop - start)

    def take(self, index: Int64s) -> FixedLists:
        at = (index[:, None] * self.size + np.arange(self.size)).ravel()
        valid = None if self.valid is None else self.valid.take(at)
        return FixedLists(self.size, self.items.take(at), valid, len(index))

    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        if not pt.is_fixed_size_list(arrow) or arrow.list_size != self.size:
            raise DamagedPage(f"lists of {self.size} items cannot be read as {arrow}")
        items = self.items.arrow(arrow.value_type, None if self.valid is None else self.valid.bitmap())
        return pa.Array.from_buffers(arrow, self.count, [validity], children=[items])


@dataclass(frozen=True, slots=True)
class Rows(Values):
    """Packed structs: the fields of a row are adjacent, ``widths`` bits each."""

    widths: Sequence[int]
    data: Flat

    @property
    def count(self) -> int:
        return self.data.count

    def slice(self, start: int, stop: int) -> Rows:
        return Rows(self.widths, self.data.slice(start, stop))

    def take(self, index: Int64s) -> Rows:
        return Rows(self.widths, self.data.take(index))

    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        if not pt.is_struct(arrow) or arrow.num_fields != len(self.widths):
            raise DamagedPage(f"structs of {len(self.widths)} fields cannot be read as {arrow}")
        rows = self.data.data[: self.count * (self.data.bits // 8)].reshape(self.count, -1)
        children = []
        at = 0
        for width, field in zip(self.widths, arrow, strict=True):
            cells = np.ascontiguousarray(rows[:, at : at + width // 8]).reshape(-1)
            at += width // 8
            children.append(fixed(cells, self.count, field.type).arrow(field.type))
        return pa.Array.from_buffers(arrow, self.count, [validity], children=children)


@dataclass(frozen=True, slots=True)
class Structs(Values):
    """Structs with separately decoded fields."""

    children: Sequence[Values]
    count: int

    def slice(self, start: int, stop: int) -> Structs:
        return Structs([c.slice(start, stop) for c in self.children], stop - start)

    def take(self, index: Int64s) -> Structs:
        return Structs([c.take(index) for c in self.children], len(index))

    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        if not pt.is_struct(arrow) or arrow.num_fields != len(self.children):
            raise DamagedPage(f"structs of {len(self.children)} fields cannot be read as {arrow}")
        children = [
            fixed(c.data, c.count, f.type).arrow(f.type) if isinstance(c, Flat) and c.bits != 1 else c.arrow(f.type)
            for c, f in zip(self.children, arrow, strict=True)
        ]
        return pa.Array.from_buffers(arrow, self.count, [validity], children=children)


@dataclass(frozen=True, slots=True)
class Indexed(Values):
    """Dictionary-encoded values."""

    indices: Flat
    items: Values

    @property
    def count(self) -> int:
        return self.indices.count

    def slice(self, start: int, stop: int) -> Indexed:
        return Indexed(self.indices.slice(start, stop), self.items)

    def take(self, index: Int64s) -> Indexed:
        return Indexed(self.indices.take(index), self.items)

    def decoded(self) -> Values:
        """Look up the items.  Raises ``DamagedPage``."""
        return self.items.take(self._checked().astype(np.int64, copy=False))

    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        if pt.is_dictionary(arrow):
            self._checked()
            index = self.indices.arrow(arrow.index_type, validity)
            return pa.DictionaryArray.from_arrays(index, self.items.arrow(arrow.value_type))
        return self.decoded().arrow(arrow, validity)

    def _checked(self) -> npt.NDArray[Any]:
        entries = self.indices.typed()
        if len(entries) and int(entries.max()) >= self.items.count:
            raise DamagedPage(f"dictionary index {entries.max()} is out of range for {self.items.count} entries")
        return entries


@dataclass(frozen=True, slots=True)
class Nothing(Values):
    """Values without content: all null, or structs without fields."""

    count: int

    def slice(self, start: int, stop: int) -> Nothing:
        return Nothing(stop - start)

    def take(self, index: Int64s) -> Nothing:
        return Nothing(len(index))

    def arrow(self, arrow: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        if pt.is_struct(arrow) and not arrow.num_fields:
            return pa.Array.from_buffers(arrow, self.count, [validity])
        if pt.is_fixed_size_list(arrow) and validity is not None:
            items = pa.nulls(self.count * arrow.list_size, arrow.value_type)
            return pa.Array.from_buffers(arrow, self.count, [validity], children=[items])
        return pa.nulls(self.count, arrow)


def gather(data: Bytes, begin: Int64s, length: Int64s) -> Variable:
    """Copy pieces of ``data``, one after another, into variable-length values."""
    total = int(length.sum())
    offsets = new_offsets(len(begin), total)
    np.cumsum(length, out=offsets[1:])
    out = allocate(total + _SLACK)
    if len(data) < total:  # repeated values: padding lets short ones be copied as whole words
        data = np.append(data, np.zeros(_SLACK, np.uint8))
    kernels().copy_pieces(data, begin, length, out)
    return Variable(offsets, out[:total])


def new_offsets(count: int, size: int) -> npt.NDArray[Any]:
    """Allocate the offsets of values with at most ``size`` bytes."""
    offsets = np.empty(count + 1, np.int32 if size <= _MAX_INT32 else np.int64)
    offsets[0] = 0
    return offsets


def fixed(data: Bytes, count: int, arrow: pa.DataType) -> Values:
    """View packed bytes as values of a fixed-width type, or of nested fixed-size lists."""
    if pt.is_fixed_size_list(arrow):
        size = arrow.list_size
        return FixedLists(size, fixed(data, count * size, arrow.value_type), None, count)
    try:
        bits = arrow.bit_width
    except ValueError:
        raise DamagedPage(f"packed values cannot be read as {arrow}") from None
    if bits * count > 8 * len(data):
        raise DamagedPage(f"{len(data)} bytes are too few for {count} values of {arrow}")
    return Flat(data, bits, count)
