"""Codecs for values of 8, 16, 32 or 64 bits: plain, bit-packed or run-length encoded, whichever is smallest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_chunks import Chunks, Stream, even_bounds, flat, values_per_chunk
from trilake.lance.v2.unaligned import read_only

#: Values in a bit-packed block, and in a chunk of runs.
BLOCK, RUN_CHUNK = 1024, 4096
#: Maximum length of a run: lengths have 8 bits.
MAX_RUN = 255


@dataclass(frozen=True)
class Measures:
    """Statistics of values that decide how they are encoded."""

    #: significant bits of each block of 1024 values
    widths: Any
    #: number of values that differ from the previous one
    changes: int

    @classmethod
    def of(cls, values: Any) -> Measures:
        widths = np.empty(-(-len(values) // BLOCK), np.uint8)
        return cls(widths, int(measure(read_only(values), widths)))

    def packed_bytes(self, width: int) -> int:
        """Bytes of the packed values; ``width`` is the number of bytes of a plain value."""
        return len(self.widths) * width + 128 * int(self.widths.sum(dtype=np.int64))

    def run_count(self, count: int) -> int:
        """Estimate the number of runs: a run has at most 255 values, and ends with its chunk."""
        return self.changes + 1 + count // MAX_RUN + count // RUN_CHUNK


def integer_chunks(values: Any, *, pack: bool = True, runs: float = 0.5) -> Chunks:
    """Encode unsigned integers in the smallest encoding.

    ``pack`` allows bit packing; run lengths are used if there are fewer runs than the fraction ``runs`` of the values.
    """
    values = read_only(values)
    width, count = values.itemsize, len(values)
    measures = Measures.of(values)
    packed = measures.packed_bytes(width) if pack else count * width
    run_count = measures.run_count(count)
    if run_count < runs * count and run_count * (width + 1) < min(packed, count * width):
        return run_chunks(values)
    if packed < count * width:
        return packed_chunks(values, measures.widths)
    return flat_chunks(values.view(np.uint8), width * 8, count)


def flat_chunks(data: Any, bits: int, count: int) -> Chunks:
    """Encode plain values of whole bytes."""
    bounds = even_bounds(count, values_per_chunk(bits))
    return Chunks(flat(bits), bounds, (Stream(data, bounds * (bits // 8)),))


def packed_chunks(values: Any, widths: Any) -> Chunks:
    """Encode blocks of 1024 values, each packed to its own width."""
    bits = values.itemsize * 8
    starts = np.zeros(len(widths) + 1, np.int64)  # in words
    np.cumsum(1 + widths.astype(np.int64) * (BLOCK // bits), out=starts[1:])
    words = np.zeros(starts[-1], values.dtype)
    pack_blocks(values, widths, words, starts)
    encoding = pb.CompressiveEncoding(inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=bits))
    stream = Stream(words.view(np.uint8), starts * values.itemsize)
    return Chunks(encoding, even_bounds(len(values), BLOCK), (stream,))


def run_chunks(values: Any) -> Chunks:
    """Encode runs of equal values: a buffer of values, and one of lengths."""
    width = values.itemsize
    bounds = even_bounds(len(values), RUN_CHUNK)
    starts = np.zeros(len(bounds), np.int64)
    count_runs(values, bounds, starts)
    heads, lengths = np.empty(starts[-1], values.dtype), np.empty(starts[-1], np.uint8)
    fill_runs(values, bounds, starts, heads, lengths)
    encoding = pb.CompressiveEncoding(rle=pb.Rle(values=flat(width * 8), run_lengths=flat(8)))
    return Chunks(encoding, bounds, (Stream(heads.view(np.uint8), starts * width), Stream(lengths, starts)))


@jit
def bit_length(value: Any) -> int:
    """The number of significant bits."""
    length = 0
    rest = np.uint64(value)
    while rest != 0:
        length += 1
        rest >>= np.uint64(1)
    return length


@jit
def measure(values: Any, widths: Any) -> int:
    """Fill in the significant bits of each block; return how many values differ from the previous one."""
    changes = 0
    for block in range(len(widths)):
        start = block * 1024
        end = min(start + 1024, len(values))
        together = values[start]
        for i in range(start, end):
            together |= values[i]
        widths[block] = bit_length(together)
        for i in range(max(start, 1), end):
            changes += values[i] != values[i - 1]
    return changes


@jit
def pack_block(block: Any, width: Any, words: Any, at: int) -> None:
    """Pack 1024 values to ``width`` bits in FastLanes order, into zeros from ``words[at]`` on."""
    bits = block.itemsize * 8
    lanes = 1024 // bits
    for row in range(bits):
        # Groups of eight rows come in the order 0, 4, 2, 6, 1, 5, 3, 7.
        group = row >> 3
        base = (((group & 1) << 2) | (group & 2) | (group >> 2)) * 16 + (row & 7) * 128
        bit = row * width
        word, shift = at + bit // bits * lanes, bit % bits
        for lane in range(lanes):
            words[word + lane] |= block[base + lane] << block.dtype.type(shift)
        if shift + width > bits:
            for lane in range(lanes):
                words[word + lanes + lane] |= block[base + lane] >> block.dtype.type(bits - shift)


@jit
def pack_blocks(values: Any, widths: Any, words: Any, starts: Any) -> None:
    """Pack all blocks, each after a word with its width."""
    tail = np.zeros(1024, values.dtype)
    for i in range(len(widths)):
        width = np.int64(widths[i])
        words[starts[i]] = width
        if width == 0:
            continue
        if (i + 1) * 1024 <= len(values):
            pack_block(values[i * 1024 : (i + 1) * 1024], width, words, starts[i] + 1)
        else:
            tail[: len(values) - i * 1024] = values[i * 1024 :]
            pack_block(tail, width, words, starts[i] + 1)


@jit
def count_runs(values: Any, bounds: Any, starts: Any) -> None:
    """Fill in the number of runs, of at most 255 values each, before each chunk."""
    runs = 0
    for chunk in range(len(bounds) - 1):
        begin = bounds[chunk]
        for i in range(bounds[chunk], bounds[chunk + 1]):
            if values[i] != values[begin] or i - begin == 255:
                runs += 1
                begin = i
        runs += bounds[chunk + 1] > bounds[chunk]
        starts[chunk + 1] = runs


@jit
def fill_runs(values: Any, bounds: Any, starts: Any, heads: Any, lengths: Any) -> None:
    """Fill in the value and the length of each run."""
    for chunk in range(len(bounds) - 1):
        run = starts[chunk]
        begin = bounds[chunk]
        for i in range(bounds[chunk], bounds[chunk + 1]):
            if values[i] != values[begin] or i - begin == 255:
                heads[run] = values[begin]
                lengths[run] = i - begin
                run += 1
                begin = i
        if bounds[chunk + 1] > bounds[chunk]:
            heads[run] = values[begin]
            lengths[run] = bounds[chunk + 1] - begin
