"""Decode single rows anywhere in a file, reading only their bytes.

A take reads *slots*: pairs of a batch and an index in the pages of that batch.  A list maps the slots of its rows to
those of its items.  All slots are computed at once, so that the number of requests depends on how deep the columns are
nested, not on the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from trilake.lance.file.schema import Field
from trilake.lance.file.sources import Bytes, Int64s, Job, Pieces, together
from trilake.lance.v1.decode import MAX_UNBACKED, Decoder, dictionary_array, flat_array, variable_array
from trilake.lance.v1.layout import PageKind, layout_of


@dataclass(frozen=True, slots=True)
class Slots:
    """The values to take: entry ``index[i]`` of the pages of batch ``batch[i]``."""

    batch: Int64s
    index: Int64s

    def __len__(self) -> int:
        return len(self.index)

    def expand(self, starts: Int64s, lengths: Int64s) -> Slots:
        """Return the slots of items: ``lengths[i]`` items from ``starts[i]``, in the batch of slot ``i``."""
        total = int(lengths.sum())
        ends = np.cumsum(lengths)
        index = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
        return Slots(np.repeat(self.batch, lengths), index)


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
    (data,) = yield [Pieces(base + slots.index * width, width)]
    if kind is PageKind.KEYS:
        keys = pa.Array.from_buffers(field.arrow_type.index_type, len(slots), [None, pa.py_buffer(data)])
        return dictionary_array(field, keys, decoder.dictionaries, decoder.source.file)
    return flat_array(field, pa.py_buffer(data), len(slots))


def _bits(field: Field, base: Int64s, slots: Slots) -> Job[pa.Array]:
    arrow, each = field.arrow_type, layout_of(field).bits
    at = (slots.index[:, None] * each + np.arange(each)).ravel()
    (data,) = yield [Pieces(np.repeat(base, each) + (at >> 3), 1)]
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
    (data,) = yield [Pieces(base + 8 * slots.index, 16)]
    starts, lengths = _pairs(data, "<i8")
    size = decoder.source.size
    ends = starts + lengths
    # Values do not overlap, so together they are at most as long as the file.
    if len(slots) and ((lengths < 0).any() or starts.min() < 0 or ends.max() > size or _exceeds(lengths, size)):
        raise decoder.fail("offsets of strings or bytes decrease, or point outside the file", field, None)
    (content,) = yield [Pieces(starts, lengths)]
    offsets = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    has_empty = bool((lengths == 0).any())
    return variable_array(
        field, offsets, pa.py_buffer(content), has_empty=has_empty, file=decoder.source.file, batch=None
    )


def _list(decoder: Decoder, field: Field, base: Int64s, slots: Slots) -> Job[pa.Array]:
    large = layout_of(field).bits == 64
    width = 8 if large else 4
    (child,) = field.children
    (data,) = yield [Pieces(base + width * slots.index, 2 * width)]
    starts, lengths = _pairs(data, "<i8" if large else "<i4")
    limit = 8 * decoder.source.size + MAX_UNBACKED
    if len(slots) and ((lengths < 0).any() or starts.min() < 0 or _exceeds(lengths, limit)):
        raise decoder.fail("offsets of lists decrease, or exceed what the file can contain", field, None)
    total = int(lengths.sum())
    if not large and total > 2**31 - 1:
        raise decoder.fail("more than 2^31 list items in one request; take fewer rows at a time", field, None)
    items = slots.expand(starts, lengths)
    values = yield from take(decoder, child, items)
    offsets: npt.NDArray[np.int64] = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffer = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    return pa.Array.from_buffers(field.arrow_type, len(slots), [None, buffer], children=[values])


def _exceeds(lengths: Int64s, limit: int) -> bool:
    """Whether the sum exceeds ``limit``; a floating-point sum cannot overflow."""
    return float(lengths.sum(dtype=np.float64)) > limit
