"""Full-zip pages: each entry is a control word with its levels, followed by its value."""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_miniblock import Page
from trilake.lance.v2.encode_strings import Strings
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


def zip_strings(leaf: Leaf, strings: Strings, encoding: pb.CompressiveEncoding) -> Page:
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
        layers=leaf.layers,  # type: ignore[arg-type]
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
