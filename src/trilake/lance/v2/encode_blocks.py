"""Block codecs: the levels of a page's chunks, and the items of its dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_chunks import Stream, flat
from trilake.lance.v2.encode_integers import bit_length, count_runs, fill_runs, pack_block


def level_blocks(levels: Any, bounds: Any, *, runs: bool) -> tuple[pb.CompressiveEncoding, Stream]:
    """Encode the levels of each chunk in the smallest encoding for the page.

    ``bounds`` are the first entry of each chunk, then the total; ``runs`` allows run lengths, which 2.1 lacks.
    """
    counts = np.diff(bounds)
    width = int(bit_length(levels.max(initial=0)))
    tails = counts % 1024
    packed = counts // 1024 * (128 * width) + np.minimum(2 * tails, 128 * width)
    if runs:
        starts = np.zeros(len(bounds), np.int64)
        count_runs(levels, bounds, starts)
        if 3 * starts[-1] + 8 * len(counts) < packed.sum():
            return _runs(levels, bounds, starts)
    if width < 16 and packed.sum() < 2 * len(levels):
        starts = np.zeros(len(bounds), np.int64)
        np.cumsum(packed, out=starts[1:])
        words = np.zeros(starts[-1] // 2, np.uint16)
        pack_levels(levels, bounds, width, words, starts)
        encoding = pb.CompressiveEncoding(
            out_of_line_bitpacking=pb.OutOfLineBitpacking(uncompressed_bits_per_value=16, values=flat(width))
        )
        return encoding, Stream(words.view(np.uint8), starts)
    return flat(16), Stream(levels.view(np.uint8), bounds * 2)


def _runs(levels: Any, bounds: Any, starts: Any) -> tuple[pb.CompressiveEncoding, Stream]:
    heads, lengths = np.empty(starts[-1], np.uint16), np.empty(starts[-1], np.uint8)
    fill_runs(levels, bounds, starts, heads, lengths)
    places = 3 * starts + 8 * np.arange(len(starts))
    data = np.empty(places[-1], np.uint8)
    join_runs(heads.view(np.uint8), lengths, starts, data)
    encoding = pb.CompressiveEncoding(rle=pb.Rle(values=flat(16), run_lengths=flat(8)))
    return encoding, Stream(data, places)


def variable_block(offsets: Any, data: Any) -> bytes:
    """Encode strings as one block: offset width, start of the bytes, offsets from 0, bytes."""
    width = offsets.dtype.type
    head = np.array([offsets.itemsize * 8, offsets.itemsize * (2 + len(offsets))], width)
    return b"".join((head.tobytes(), (offsets - offsets[0]).tobytes(), data[offsets[0] : offsets[-1]].tobytes()))


@jit
def pack_levels(levels: Any, bounds: Any, width: int, words: Any, starts: Any) -> None:
    """Pack the levels of each chunk in blocks of 1024; copy the remainder if that takes no more bytes."""
    tail = np.zeros(1024, np.uint16)
    for chunk in range(len(bounds) - 1):
        at, first, end = starts[chunk] // 2, bounds[chunk], bounds[chunk + 1]
        while end - first >= 1024:
            if width > 0:
                pack_block(levels[first : first + 1024], width, words, at)
            first += 1024
            at += 64 * width
        left = end - first
        if left <= 64 * width:
            words[at : at + left] = levels[first:end]
        elif width > 0:
            tail[:left] = levels[first:end]
            tail[left:] = 0
            pack_block(tail, width, words, at)


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
