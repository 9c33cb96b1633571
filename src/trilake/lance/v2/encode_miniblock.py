"""Mini-block pages: chunks of levels and values, the table of chunks, and the repetition index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2 import encode_values as e
from trilake.lance.v2.write_levels import Leaf


class ChunkTooLargeError(Exception):
    """A chunk has more levels or bytes than its header can state: the page must have fewer rows."""


@dataclass(frozen=True)
class Page:
    """An encoded page: layout message, buffers and rows; ``length`` is the length in its metadata."""

    layout: Any
    buffers: tuple[Any, ...]
    rows: int
    length: int


@dataclass(frozen=True)
class Items:
    """The dictionary of a page."""

    encoding: pb.CompressiveEncoding
    data: bytes
    count: int


def mini_block(leaf: Leaf, chunks: e.Chunks, *, large: bool, items: Items | None = None) -> Page:
    """Lay out a mini-block page, with a dictionary of ``items``.  Raises ``ChunkTooLargeError``.

    ``large``, for 2.2 and later, means 32-bit sizes, and allows run lengths of levels.
    """
    layout = pb.MiniBlockLayout(
        value_compression=chunks.encoding,
        layers=leaf.layers,
        num_buffers=len(chunks.streams),
        num_items=int(chunks.bounds[-1]),
        has_large_chunk=large,
    )
    bounds = chunks.bounds
    if leaf.definition is not None and leaf.lists:
        # Entries without a value go to the next chunk, those at the end to the last.
        bounds = np.empty(len(chunks.bounds), np.int64)
        level_bounds(leaf.definition, leaf.visible, chunks.bounds, bounds)
    streams = []
    for levels, encoding in ((leaf.repetition, layout.rep_compression), (leaf.definition, layout.def_compression)):
        if levels is not None:
            compressed, stream = level_blocks(levels, bounds, runs=large)
            encoding.CopyFrom(compressed)
            streams.append(stream)
    words, data = _join(streams, bounds, chunks, large)
    buffers: list[Any] = [words, data]
    if items is not None:
        layout.dictionary.CopyFrom(items.encoding)
        layout.num_dictionary_items = items.count
        buffers.append(items.data)
    if leaf.repetition is not None:
        layout.repetition_index_depth = 1
        index = np.zeros((len(bounds) - 1, 2), np.uint64)
        index_rows(leaf.repetition, leaf.lists, bounds, index)
        buffers.append(index)
    return Page(pb.PageLayout(mini_block_layout=layout), tuple(buffers), leaf.rows, leaf.length)


def _join(levels: list[e.Stream], bounds: Any, chunks: e.Chunks, wide: bool) -> tuple[Any, Any]:
    """Return the table of chunks and their data: headers, levels between ``bounds``, and values."""
    streams = [*levels, *chunks.streams]
    count = len(bounds) - 1
    starts = np.array([stream.starts for stream in streams], np.int64)
    begins, places = np.empty(count + 1, np.int64), np.empty((len(streams), count), np.int64)
    words = np.empty(count, np.uint32 if wide else np.uint16)
    if not place_streams(starts, len(levels), chunks.bounds, bounds, wide, begins, places, words):
        raise ChunkTooLargeError
    data = np.zeros(begins[-1], np.uint8)
    write_headers(starts, len(levels), bounds, wide, begins, data.view(np.uint16))
    numbers = np.arange(count)
    for place, stream in zip(places, streams, strict=True):
        e.copy_strings(stream.starts, stream.data, numbers, place, data)
    return words, data


@jit
def place_streams(
    starts: Any, levels: int, values: Any, bounds: Any, wide: bool, begins: Any, places: Any, words: Any
) -> bool:
    """Fill in where each chunk begins, where its streams are, and its word in the table; ``False`` if one is too large.

    ``starts`` are those of the streams, of which the first ``levels`` are levels; ``values`` and ``bounds`` are the
    bounds of the chunks in values and in levels.  A header has the number of levels and the size of each stream in 16
    bits, if ``wide`` the sizes of values in 32.
    """
    head = 2 + 2 * levels + (4 if wide else 2) * (len(starts) - levels)
    at = 0
    for chunk in range(len(words)):
        begins[chunk] = at
        if levels > 0 and bounds[chunk + 1] - bounds[chunk] > 0xFFFF:
            return False
        end = at + head
        for i in range(len(starts)):
            size = starts[i, chunk + 1] - starts[i, chunk]
            if size > (0xFFFFFFFF if wide and i >= levels else 0xFFFF):
                return False
            places[i, chunk] = (end + 7) & ~7
            end = places[i, chunk] + size
        end = (end + 7) & ~7
        if end - at > (1 << 31 if wide else 1 << 15):
            return False
        exponent = 0
        if chunk < len(words) - 1:  # the last chunk has the remainder
            while 1 << (exponent + 1) <= values[chunk + 1] - values[chunk]:
                exponent += 1
        words[chunk] = ((end - at) // 8 - 1) << 4 | exponent
        at = end
    begins[len(words)] = at
    return True


@jit
def write_headers(starts: Any, levels: int, bounds: Any, wide: bool, begins: Any, halves: Any) -> None:
    """Write the headers of chunks, which :func:`place_streams` describes, as 16-bit words."""
    for chunk in range(len(bounds) - 1):
        at = begins[chunk] // 2
        halves[at] = bounds[chunk + 1] - bounds[chunk] if levels > 0 else 0
        for i in range(len(starts)):
            size = starts[i, chunk + 1] - starts[i, chunk]
            at += 1
            halves[at] = size & 0xFFFF
            if wide and i >= levels:
                at += 1
                halves[at] = size >> 16


@jit
def level_bounds(definition: Any, visible: int, bounds: Any, places: Any) -> None:
    """Fill ``places`` with the end of each chunk: the entry after its last value."""
    values, chunk = 0, 1
    places[0] = 0
    for i in range(len(definition)):
        if definition[i] <= visible:
            values += 1
            if chunk < len(bounds) - 1 and values == bounds[chunk]:
                places[chunk] = i + 1
                chunk += 1
    places[len(bounds) - 1] = len(definition)


@jit
def index_rows(repetition: Any, top: int, bounds: Any, index: Any) -> None:
    """For each chunk, fill in how many rows end in it, and how many levels of an unfinished row it ends with."""
    for chunk in range(len(bounds) - 1):
        first, end = bounds[chunk], bounds[chunk + 1]
        rows, last = 0, first
        for i in range(first + 1, end):
            if repetition[i] == top:
                rows += 1
                last = i
        if end == len(repetition) or repetition[end] == top:
            index[chunk, 0] = rows + 1
        else:
            index[chunk, 0] = rows
            index[chunk, 1] = end - last


def level_blocks(levels: Any, bounds: Any, *, runs: bool) -> tuple[pb.CompressiveEncoding, e.Stream]:
    """Encode the levels of each chunk in the smallest encoding; ``runs`` allows run lengths, which 2.1 lacks."""
    counts = np.diff(bounds)
    width = int(e.bit_length(levels.max(initial=0)))
    tails = counts % 1024
    packed = counts // 1024 * (128 * width) + np.minimum(2 * tails, 128 * width)
    if runs:
        starts = np.zeros(len(bounds), np.int64)
        e.count_runs(levels, bounds, starts)
        if 3 * starts[-1] + 8 * len(counts) < packed.sum():
            return _runs(levels, bounds, starts)
    if width < 16 and packed.sum() < 2 * len(levels):
        starts = np.zeros(len(bounds), np.int64)
        np.cumsum(packed, out=starts[1:])
        words = np.zeros(starts[-1] // 2, np.uint16)
        pack_levels(levels, bounds, width, words, starts)
        encoding = pb.CompressiveEncoding(
            out_of_line_bitpacking=pb.OutOfLineBitpacking(uncompressed_bits_per_value=16, values=e.flat(width))
        )
        return encoding, e.Stream(words.view(np.uint8), starts)
    return e.flat(16), e.Stream(levels.view(np.uint8), bounds * 2)


def _runs(levels: Any, bounds: Any, starts: Any) -> tuple[pb.CompressiveEncoding, e.Stream]:
    heads, lengths = np.empty(starts[-1], np.uint16), np.empty(starts[-1], np.uint8)
    e.fill_runs(levels, bounds, starts, heads, lengths)
    places = 3 * starts + 8 * np.arange(len(starts))
    data = np.empty(places[-1], np.uint8)
    join_runs(heads.view(np.uint8), lengths, starts, data)
    encoding = pb.CompressiveEncoding(rle=pb.Rle(values=e.flat(16), run_lengths=e.flat(8)))
    return encoding, e.Stream(data, places)


@jit
def pack_levels(levels: Any, bounds: Any, width: int, words: Any, starts: Any) -> None:
    """Pack the levels of each chunk in blocks of 1024; copy the remainder if that takes no more bytes."""
    tail = np.zeros(1024, np.uint16)
    for chunk in range(len(bounds) - 1):
        at, first, end = starts[chunk] // 2, bounds[chunk], bounds[chunk + 1]
        while end - first >= 1024:
            if width > 0:
                e.pack_block(levels[first : first + 1024], width, words, at)
            first += 1024
            at += 64 * width
        left = end - first
        if left <= 64 * width:
            words[at : at + left] = levels[first:end]
        elif width > 0:
            tail[:left] = levels[first:end]
            tail[left:] = 0
            e.pack_block(tail, width, words, at)


@jit
def join_runs(heads: Any, lengths: Any, starts: Any, data: Any) -> None:
    """Join, for each chunk, the size of its values as 64 bits, its 16-bit values, and its run lengths."""
    at = 0
    for chunk in range(len(starts) - 1):
        first, end = starts[chunk], starts[chunk + 1]
        size = 2 * (end - first)
        for i in range(8):
            data[at + i] = (size >> (8 * i)) & 255
        data[at + 8 : at + 8 + size] = heads[2 * first : 2 * end]
        data[at + 8 + size : at + 8 + size + end - first] = lengths[first:end]
        at += 8 + size + end - first
