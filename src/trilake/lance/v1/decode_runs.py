"""From the pages of neighbouring batches to one Arrow array, where pages can be put together.

Pages are gathered for all batches at once: thousands of rows cost what one row group of them would cost alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trilake.lance.file.schema import Field
from trilake.lance.file.sources import Int64s, Job, Pieces
from trilake.lance.v1.decode import Decoder, flat_array, variable_array
from trilake.lance.v1.layout import PageKind, layout_of
from trilake.lance.v1.pages import check_offsets

#: Bytes of texts that are put together at most: more are read batch by batch, where they lie.
_MOST_TEXT = 1 << 28
_OFFSET = 8


def joins(field: Field, *, mapped: bool) -> bool:
    """Whether pages of a field can be put together: values of fixed width, and texts and bytes in a mapped file.

    Where texts are, their offsets tell: in a store these are requests more than reading batch by batch.
    """
    return layout_of(field).kind is PageKind.FIXED or (mapped and layout_of(field).kind is PageKind.VARIABLE)


def joined(decoder: Decoder, field: Field, first: int, totals: Int64s) -> Job[pa.Array | None]:
    """The values of a field in the batches from ``first`` on, of which ``totals`` says the rows.

    ``None`` for texts that would take much more memory than their file.  Raises ``CorruptFileError``.
    """
    positions, lengths = (part[first : first + len(totals)] for part in decoder.pages.field(field.id))
    wrong = np.flatnonzero(lengths != totals)
    if len(wrong):
        i = int(wrong[0])
        raise decoder.fail(f"a page has {lengths[i]} values, not {totals[i]}", field, first + i)
    if layout_of(field).kind is PageKind.FIXED:
        [data] = yield [Pieces(positions, totals * (layout_of(field).bits // 8))]
        return flat_array(field, pa.py_buffer(data), int(totals.sum()))
    return (yield from _texts(decoder, field, positions[totals > 0], totals[totals > 0]))


def _texts(decoder: Decoder, field: Field, positions: Int64s, totals: Int64s) -> Job[pa.Array | None]:
    """Texts or bytes, of which each page has one offset more than values."""
    if not len(totals):
        return pa.array([], field.arrow_type)
    source = decoder.source
    [data] = yield [Pieces(positions, _OFFSET * (totals + 1))]
    offsets = np.frombuffer(data, "<i8")
    last = np.cumsum(totals + 1) - 1
    start = last - totals
    begins, sizes = offsets[start], offsets[last] - offsets[start]
    inside = (begins >= 0) & (offsets[last] <= source.size) & (sizes >= 0)
    if not inside.all() or sizes.sum() > min(source.size, _MOST_TEXT):
        return None  # batch by batch, where the one that is wrong is named
    before = np.cumsum(sizes) - sizes
    relative = np.delete(offsets + np.repeat(before - begins, totals + 1), start[1:])
    least = check_offsets(
        relative, int(sizes.sum()), file=source.file, column=field.name, batch=None, what="strings or bytes"
    )
    [text] = yield [Pieces(begins, sizes)]
    return variable_array(field, relative, pa.py_buffer(text), has_empty=least == 0, file=source.file, batch=None)
