"""Decode pages as Arrow arrays: the rows of a batch, all pages of consecutive batches at once, or single rows.

Aligned buffers are used in place; others are copied once, because Arrow's kernels and other libraries expect alignment.
A take reads *slots*: pairs of a batch and an index in the pages of that batch.  A list maps the slots of its rows to
those of its items.  All slots are computed at once, so that the number of requests depends on how deep the columns are
nested, not on the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from trilake.common.utf8 import is_utf8
from trilake.errors import CorruptFileError
from trilake.lance.file import types
from trilake.lance.file.schema import Field
from trilake.lance.file.sources import Bytes, Int64s, Job, Pieces, Source, gathered, together
from trilake.lance.v1.pages import PageKind, PageTable, check_offsets, layout_of

#: Maximum values without bytes in one piece: a tiny file must not exhaust the memory.
MAX_UNBACKED = 1 << 25
_MAX_INT32 = 2**31 - 1
#: Maximum pages of a field to check one by one.
_FEW_BATCHES = 32


class Decoder:
    """Decodes arrays of one data file, from its bytes, page table, and dictionary values by field id."""

    def __init__(self, source: Source, pages: PageTable, dictionaries: dict[int, pa.Array]) -> None:
        self.source = source
        self.pages = pages
        self.dictionaries = dictionaries
        self._checked: set[int] = set()
        self._claimed: dict[int, int] = {}

    def with_source(self, source: Source) -> Decoder:
        """Return a decoder of the same file over prefetched bytes."""
        if source is self.source:
            return self
        other = Decoder(source, self.pages, self.dictionaries)
        other._checked, other._claimed = self._checked, self._claimed
        return other

    def check(self, field: Field) -> None:
        """Raise ``CorruptFileError`` unless all pages of a field and of its children are inside the file."""
        for each in field.walk():
            if each.id in self._checked or layout_of(each).kind is PageKind.STRUCT:
                continue
            if not self.pages.has(each.id):
                raise self.fail("the file has no pages for a required field", each, None)
            layout, size = layout_of(each), self.source.size
            extra = 64 if layout.kind is PageKind.VARIABLE else 0
            most = 8 * size // layout.bits if layout.bits else MAX_UNBACKED + 8 * size
            claimed = self._few_are_inside(each.id, layout.bits, extra, most)
            if claimed is not None:
                self._claim(each, claimed)
                continue
            positions, lengths = self.pages.field(each.id)
            bad = (positions < 0) | (lengths < 0) | (lengths > most) | (positions > size)
            if not bad.any():  # nothing overflows from here on
                bad = (lengths > 0) & (positions + (lengths * layout.bits + extra + 7) // 8 > size)
            if bad.any():
                batch = int(np.argmax(bad))
                where = f"byte {positions[batch]}, with {lengths[batch]} values"
                raise self.fail(f"a page at {where} is outside the file, which has {size} bytes", each, batch)
            self._claim(each, int((lengths * layout.bits).sum()) // 8)

    def _few_are_inside(self, field_id: int, bits: int, extra: int, most: int) -> int | None:
        """Return the bytes of few pages, checked one by one, which is faster; ``None`` for many, or one outside."""
        if len(self.pages.field(field_id)[0]) > _FEW_BATCHES:
            return None
        positions, lengths = self.pages.lists(field_id)
        size = self.source.size
        for position, length in zip(positions, lengths, strict=True):
            if not (0 <= position <= size and 0 <= length <= most):
                return None
            if length and position + (length * bits + extra + 7) // 8 > size:
                return None
        return sum(lengths) * bits // 8

    def _claim(self, field: Field, claimed: int) -> None:
        """Count the bytes of pages: overlapping pages of a small file could exhaust the memory."""
        self._claimed[field.id] = claimed
        size = self.source.size
        if sum(self._claimed.values()) > size:
            raise self.fail(f"the pages of some fields take more than the file's {size} bytes", field, None)
        self._checked.add(field.id)

    def column(self, field: Field, batch: int, start: int, count: int, total: int | None) -> pa.Array:
        """Decode ``count`` values from ``start``; the page must have ``total``, if given."""
        kind = layout_of(field).kind
        if kind is PageKind.STRUCT:
            children = [self.column(c, batch, start, count, total) for c in field.children]
            return pa.Array.from_buffers(field.arrow_type, count, [None], children=children)
        positions, lengths = self.pages.lists(field.id)
        position, length = positions[batch], lengths[batch]
        slots = length - 1 if kind is PageKind.OFFSETS else length
        if start + count > slots or (total is not None and slots != total):
            raise self.fail(f"a page has {slots} values, not {start + count if total is None else total}", field, batch)
        width = layout_of(field).bits // 8
        if kind is PageKind.FIXED:
            arrow = field.arrow_type
            item = arrow.value_type if pt.is_fixed_size_list(arrow) else arrow
            return flat_array(field, self._read(position + start * width, count * width, alignment(item)), count)
        if kind is PageKind.VARIABLE:
            return self._variable(field, batch, position, start, count)
        if kind is PageKind.BITS:
            return self._bits(field, position, start, count)
        if kind is PageKind.KEYS:
            keys = self._read(position + start * width, count * width, width)
            index = pa.Array.from_buffers(field.arrow_type.index_type, count, [None, keys])
            return dictionary_array(field, index, self.dictionaries, self.source.file)
        if kind is PageKind.NULL:
            return pa.nulls(count)
        return self._list(field, batch, position, start, count)

    def fail(self, message: str, field: Field, batch: int | None) -> CorruptFileError:
        return CorruptFileError(message, file=self.source.file, column=field.name, field_id=field.id, batch=batch)

    def _read(self, start: int, length: int, align: int) -> pa.Buffer:
        buffer = self.source.read(start, length)
        if buffer.address & (align - 1):
            return pa.py_buffer(np.frombuffer(buffer, np.uint8).copy())
        return buffer

    def _bits(self, field: Field, position: int, start: int, count: int) -> pa.Array:
        arrow = field.arrow_type
        first, bits = start * layout_of(field).bits, count * layout_of(field).bits
        skip = first & 7
        buffer = self.source.read(position + (first >> 3), (skip + bits + 7) >> 3)
        values = pa.Array.from_buffers(pa.bool_(), bits, [None, buffer], offset=skip)
        if pt.is_fixed_size_list(arrow):
            return pa.Array.from_buffers(arrow, count, [None], children=[values])
        return values

    def _variable(self, field: Field, batch: int, position: int, start: int, count: int) -> pa.Array:
        source, what = self.source, "strings or bytes"
        if not count:
            return pa.array([], field.arrow_type)
        offsets = np.frombuffer(source.read(position + 8 * start, 8 * (count + 1)), "<i8")
        least = check_offsets(offsets, source.size, file=source.file, column=field.name, batch=batch, what=what)
        first, last = int(offsets[0]), int(offsets[-1])
        data = source.read(first, last - first)
        return variable_array(field, offsets - first, data, has_empty=least == 0, file=source.file, batch=batch)

    def _list(self, field: Field, batch: int, position: int, start: int, count: int) -> pa.Array:
        large = layout_of(field).bits == 64
        width = 8 if large else 4
        (child,) = field.children
        if not count:
            return pa.array([], field.arrow_type)
        raw = self.source.read(position + width * start, width * (count + 1))
        offsets = np.frombuffer(raw, "<i8" if large else "<i4")
        wide, limit = offsets.astype(np.int64, copy=False), self._slots(child, batch)
        check_offsets(wide, limit, file=self.source.file, column=field.name, batch=batch, what="lists")
        first = int(offsets[0])
        values = self.column(child, batch, first, int(offsets[-1]) - first, None)
        relative = pa.py_buffer(offsets - offsets[0])
        return pa.Array.from_buffers(field.arrow_type, count, [None, relative], children=[values])

    def _slots(self, field: Field, batch: int) -> int:
        """The number of a list's items in a batch, by the page table."""
        for leaf in field.walk():
            if layout_of(leaf).kind is PageKind.STRUCT:
                continue
            length = self.pages.lists(leaf.id)[1][batch]
            return length - 1 if layout_of(leaf).kind is PageKind.OFFSETS else length
        return MAX_UNBACKED  # a struct without fields has no pages


@lru_cache(maxsize=256)
def alignment(arrow: pa.DataType) -> int:
    """The alignment of values: their size, at most 16 bytes."""
    return 1 if pt.is_fixed_size_binary(arrow) else min(arrow.bit_width // 8, 16)


def dictionary_array(field: Field, keys: pa.Array, dictionaries: dict[int, pa.Array], file: str) -> pa.Array:
    """Build a dictionary array.  Raises ``CorruptFileError`` if there is no dictionary, or a key is not in it."""
    values = dictionaries.get(field.id)
    if values is None:
        help = "read the file with its dataset"
        raise CorruptFileError("the values of a dictionary are missing", help=help, file=file, column=field.name)
    if not len(values):
        # A column that has only nulls has no dictionary values.
        return pa.nulls(len(keys), field.arrow_type)
    try:
        return pa.DictionaryArray.from_arrays(keys, values, safe=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as e:
        raise CorruptFileError(f"a key is not in the dictionary: {e}", file=file, column=field.name) from e


def variable_array(
    field: Field, offsets: npt.NDArray[np.int64], data: pa.Buffer, *, has_empty: bool, file: str, batch: int | None
) -> pa.Array:
    """Build an array of strings or binaries from offsets from 0; in a nullable field, empty values are null."""
    arrow = field.arrow_type
    if not types.is_large(arrow):
        if offsets[-1] > _MAX_INT32:
            raise CorruptFileError(
                "a batch has more than 2 GiB of strings or binaries in a column",
                help="read fewer rows at a time, or write smaller batches (max_rows_per_group)",
                file=file,
                column=field.name,
                batch=batch,
            )
        narrow: Any = offsets.astype(np.int32)
    else:
        narrow = offsets
    if types.is_text(arrow) and not is_utf8(offsets, np.frombuffer(data if data.size else b"", np.uint8)):
        raise CorruptFileError("a string is not UTF-8", file=file, column=field.name, batch=batch)
    validity = None
    if has_empty and field.nullable:
        validity = pa.py_buffer(np.packbits(offsets[1:] != offsets[:-1], bitorder="little"))
    return pa.Array.from_buffers(arrow, len(offsets) - 1, [validity, pa.py_buffer(narrow), data])


def flat_array(field: Field, buffer: pa.Buffer, count: int) -> pa.Array:
    """Build an array of fixed-width values from a buffer."""
    arrow = field.arrow_type
    if pt.is_fixed_size_list(arrow):
        values = pa.Array.from_buffers(arrow.value_type, count * arrow.list_size, [None, buffer])
        return pa.Array.from_buffers(arrow, count, [None], children=[values])
    return pa.Array.from_buffers(arrow, count, [None, buffer])


#: Maximum bytes of strings to join; more are read in place, batch by batch.
_MAX_STRING_BYTES = 1 << 28
_OFFSET = 8


def joins(field: Field, *, mapped: bool) -> bool:
    """Whether pages of a field can be joined: fixed-width values and, in a mapped file, strings and binaries.

    In a store, joined strings would need one more request, for their offsets, than reads batch by batch.
    """
    return layout_of(field).kind is PageKind.FIXED or (mapped and layout_of(field).kind is PageKind.VARIABLE)


def joined(decoder: Decoder, field: Field, first: int, totals: Int64s) -> Job[pa.Array | None]:
    """Decode a field in the batches from ``first`` on, with ``totals`` rows; ``None`` if they cannot be joined."""
    positions, lengths = (part[first : first + len(totals)] for part in decoder.pages.field(field.id))
    wrong = np.flatnonzero(lengths != totals)
    if len(wrong):
        i = int(wrong[0])
        raise decoder.fail(f"a page has {lengths[i]} values, not {totals[i]}", field, first + i)
    if layout_of(field).kind is PageKind.FIXED:
        data = yield from gathered(Pieces(positions, totals * (layout_of(field).bits // 8)))
        return flat_array(field, pa.py_buffer(data), int(totals.sum()))
    return (yield from _strings(decoder, field, positions[totals > 0], totals[totals > 0]))


def _strings(decoder: Decoder, field: Field, positions: Int64s, totals: Int64s) -> Job[pa.Array | None]:
    """Decode strings or binaries; each page has one more offset than values."""
    if not len(totals):
        return pa.array([], field.arrow_type)
    source = decoder.source
    data = yield from gathered(Pieces(positions, _OFFSET * (totals + 1)))
    offsets = np.frombuffer(data, "<i8")
    last = np.cumsum(totals + 1) - 1
    start = last - totals
    begins, sizes = offsets[start], offsets[last] - offsets[start]
    inside = (begins >= 0) & (offsets[last] <= source.size) & (sizes >= 0)
    if not inside.all() or sizes.sum() > min(source.size, _MAX_STRING_BYTES):
        return None  # read batch by batch: the error then names the damaged batch
    before = np.cumsum(sizes) - sizes
    relative = np.delete(offsets + np.repeat(before - begins, totals + 1), start[1:])
    size = int(sizes.sum())
    least = check_offsets(relative, size, file=source.file, column=field.name, batch=None, what="strings or bytes")
    strings = yield from gathered(Pieces(begins, sizes))
    return variable_array(field, relative, pa.py_buffer(strings), has_empty=least == 0, file=source.file, batch=None)


@dataclass(frozen=True, slots=True)
class Slots:
    """The values to take: entry ``index[i]`` of the pages of batch ``batch[i]``."""

    batch: Int64s
    index: Int64s

    def __len__(self) -> int:
        return len(self.index)


def take(decoder: Decoder, field: Field, slots: Slots) -> Job[pa.Array]:
    """Take the values of a field in distinct slots.  Raises ``CorruptFileError``."""
    kind = layout_of(field).kind
    if kind is PageKind.STRUCT:
        children = yield from together([take(decoder, c, slots) for c in field.children])
        return pa.Array.from_buffers(field.arrow_type, len(slots), [None], children=children)
    positions, lengths = decoder.pages.field(field.id)
    count = lengths[slots.batch] - (kind is PageKind.OFFSETS)
    if (slots.index >= count).any():
        batch = int(slots.batch[np.argmax(slots.index >= count)])
        raise decoder.fail("a page has too few values", field, batch)
    base = positions[slots.batch]
    if kind is PageKind.NULL:
        return pa.nulls(len(slots))
    if kind is PageKind.BITS:
        return (yield from _bits(field, base, slots))
    if kind is PageKind.VARIABLE:
        return (yield from _variable(decoder, field, base, slots))
    if kind is PageKind.OFFSETS:
        return (yield from _list(decoder, field, base, slots))
    width = layout_of(field).bits // 8
    data = yield from gathered(Pieces(base + slots.index * width, width))
    if kind is PageKind.KEYS:
        keys = pa.Array.from_buffers(field.arrow_type.index_type, len(slots), [None, pa.py_buffer(data)])
        return dictionary_array(field, keys, decoder.dictionaries, decoder.source.file)
    return flat_array(field, pa.py_buffer(data), len(slots))


def _bits(field: Field, base: Int64s, slots: Slots) -> Job[pa.Array]:
    arrow, each = field.arrow_type, layout_of(field).bits
    at = (slots.index[:, None] * each + np.arange(each)).ravel()
    data = yield from gathered(Pieces(np.repeat(base, each) + (at >> 3), 1))
    bits = np.packbits(data >> (at & 7).astype(np.uint8) & 1, bitorder="little")
    values = pa.Array.from_buffers(pa.bool_(), len(at), [None, pa.py_buffer(bits)])
    if pt.is_fixed_size_list(arrow):
        return pa.Array.from_buffers(arrow, len(slots), [None], children=[values])
    return values


def _pairs(data: Bytes, dtype: str) -> tuple[Int64s, Int64s]:
    """Split pairs of offsets into starts and lengths."""
    pairs = data.view(dtype).reshape(-1, 2).astype(np.int64, copy=False)
    return pairs[:, 0], pairs[:, 1] - pairs[:, 0]


def _variable(decoder: Decoder, field: Field, base: Int64s, slots: Slots) -> Job[pa.Array]:
    data = yield from gathered(Pieces(base + 8 * slots.index, 16))
    starts, lengths = _pairs(data, "<i8")
    size = decoder.source.size
    ends = starts + lengths
    # Values do not overlap, so together they are at most as long as the file.
    if len(slots) and ((lengths < 0).any() or starts.min() < 0 or ends.max() > size or _exceeds(lengths, size)):
        raise decoder.fail("offsets of strings or bytes decrease, or point outside the file", field, None)
    content = yield from gathered(Pieces(starts, lengths))
    offsets = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    has_empty = bool((lengths == 0).any())
    data = pa.py_buffer(content)
    return variable_array(field, offsets, data, has_empty=has_empty, file=decoder.source.file, batch=None)


def _list(decoder: Decoder, field: Field, base: Int64s, slots: Slots) -> Job[pa.Array]:
    large = layout_of(field).bits == 64
    width = 8 if large else 4
    (child,) = field.children
    data = yield from gathered(Pieces(base + width * slots.index, 2 * width))
    starts, lengths = _pairs(data, "<i8" if large else "<i4")
    limit = 8 * decoder.source.size + MAX_UNBACKED
    if len(slots) and ((lengths < 0).any() or starts.min() < 0 or _exceeds(lengths, limit)):
        raise decoder.fail("offsets of lists decrease, or exceed what the file can contain", field, None)
    total = int(lengths.sum())
    if not large and total > 2**31 - 1:
        raise decoder.fail("more than 2^31 list items in one request; take fewer rows at a time", field, None)
    offsets: npt.NDArray[np.int64] = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    items = Slots(np.repeat(slots.batch, lengths), np.arange(total) + np.repeat(starts - offsets[:-1], lengths))
    values = yield from take(decoder, child, items)
    buffer = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    return pa.Array.from_buffers(field.arrow_type, len(slots), [None, buffer], children=[values])


def _exceeds(lengths: Int64s, limit: int) -> bool:
    """Whether the sum exceeds ``limit``; a floating-point sum cannot overflow."""
    return float(lengths.sum(dtype=np.float64)) > limit
