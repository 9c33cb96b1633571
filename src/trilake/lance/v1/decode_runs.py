"""Decode the pages of consecutive batches into one Arrow array.

Decoding them together costs as much as one row group of that size.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trilake.lance.file.schema import Field
from trilake.lance.file.sources import Int64s, Job, Pieces
from trilake.lance.v1.decode import Decoder, flat_array, variable_array
from trilake.lance.v1.layout import PageKind, layout_of
from trilake.lance.v1.pages import check_offsets

#: Maximum bytes of strings to join; more are read in place, batch by batch.
_MAX_STRING_BYTES = 1 << 28
_OFFSET = 8


def joins(field: Field, *, mapped: bool) -> bool:
    """Whether pages of a field can be joined: fixed-width values and, in a mapped file, strings and binaries.

    In a store, joined strings would need one more request, for their offsets, than reads batch by batch.
    """
    return layout_of(field).kind is PageKind.FIXED or (mapped and layout_of(field).kind is PageKind.VARIABLE)


def joined(decoder: Decoder, field: Field, first: int, totals: Int64s) -> Job[pa.Array | None]:
    """Decode a field in the batches from ``first`` on, whose row counts are ``totals``.

    Returns ``None`` if strings must be read batch by batch.  Raises ``CorruptFileError``.
    """
    positions, lengths = (part[first : first + len(totals)] for part in decoder.pages.field(field.id))
    wrong = np.flatnonzero(lengths != totals)
    if len(wrong):
        i = int(wrong[0])
        raise decoder.fail(f"a page has {lengths[i]} values, not {totals[i]}", field, first + i)
    if layout_of(field).kind is PageKind.FIXED:
        [data] = yield [Pieces(positions, totals * (layout_of(field).bits // 8))]
        return flat_array(field, pa.py_buffer(data), int(totals.sum()))
    return (yield from _strings(decoder, field, positions[totals > 0], totals[totals > 0]))


def _strings(decoder: Decoder, field: Field, positions: Int64s, totals: Int64s) -> Job[pa.Array | None]:
    """Decode strings or binaries; each page has one more offset than values."""
    if not len(totals):
        return pa.array([], field.arrow_type)
    source = decoder.source
    [data] = yield [Pieces(positions, _OFFSET * (totals + 1))]
    offsets = np.frombuffer(data, "<i8")
    last = np.cumsum(totals + 1) - 1
    start = last - totals
    begins, sizes = offsets[start], offsets[last] - offsets[start]
    inside = (begins >= 0) & (offsets[last] <= source.size) & (sizes >= 0)
    if not inside.all() or sizes.sum() > min(source.size, _MAX_STRING_BYTES):
        return None  # read batch by batch: the error then names the damaged batch
    before = np.cumsum(sizes) - sizes
    relative = np.delete(offsets + np.repeat(before - begins, totals + 1), start[1:])
    least = check_offsets(
        relative, int(sizes.sum()), file=source.file, column=field.name, batch=None, what="strings or bytes"
    )
    [strings] = yield [Pieces(begins, sizes)]
    return variable_array(field, relative, pa.py_buffer(strings), has_empty=least == 0, file=source.file, batch=None)
