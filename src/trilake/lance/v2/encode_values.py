"""Encode values as the chunks of mini-block pages: integers, strings and binaries, and fixed-size lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from trilake.common.jit import jit
from trilake.common.unaligned import read_only
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.types import is_large
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.write_levels import validity

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

#: Target bytes of a chunk's values, and their maximum number.
CHUNK_BYTES, CHUNK_VALUES = 8192, 4096


@dataclass(frozen=True)
class Stream:
    """One buffer of each chunk: chunk ``i`` is ``data[starts[i]:starts[i + 1]]``."""

    data: U8
    starts: I64

    @property
    def sizes(self) -> I64:
        return np.diff(self.starts)

    def pieces(self) -> Iterator[U8]:
        for start, end in pairwise(self.starts.tolist()):
            yield self.data[start:end]

    @classmethod
    def of(cls, pieces: list[bytes]) -> Stream:
        starts = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(piece) for piece in pieces], out=starts[1:])
        return cls(np.frombuffer(b"".join(pieces), np.uint8), starts)


@dataclass(frozen=True)
class Chunks:
    """Encoded values: ``streams`` are their buffers, ``bounds`` the first value of each chunk, then the total."""

    encoding: pb.CompressiveEncoding
    bounds: I64
    streams: tuple[Stream, ...]


def even_bounds(count: int, per_chunk: int) -> I64:
    """Bounds of chunks with ``per_chunk`` values each; the last chunk has the remainder."""
    bounds = np.arange(-(-count // per_chunk) + 1, dtype=np.int64) * per_chunk
    bounds[-1] = count
    return bounds


def values_per_chunk(bits: int) -> int:
    """How many values of a bit width fit into a chunk: a power of two, at least 2.

    >>> values_per_chunk(64), values_per_chunk(1), values_per_chunk(8 * 3000)
    (1024, 4096, 2)
    """
    fit = max(CHUNK_BYTES * 8 // max(bits, 1), 2)
    return min(1 << (fit.bit_length() - 1), CHUNK_VALUES)


def bit_stream(bits: U8, bounds: I64, per_value: int) -> Stream:
    """Cut packed values into chunks; each chunk except the last must fill whole bytes."""
    return Stream(bits, -(-bounds * per_value // 8))


def flat(bits: int) -> pb.CompressiveEncoding:
    """The encoding of plain values."""
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


@jit
def copy_strings(offsets: Any, data: Any, numbers: Any, places: Any, target: Any) -> None:
    """Copy the strings with these numbers, each to its position in ``target``."""
    for i in range(len(numbers)):
        start = offsets[numbers[i]]
        size = offsets[numbers[i] + 1] - start
        target[places[i] : places[i] + size] = data[start : start + size]


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


def integer_chunks(values: Any, runs: float, measures: Measures) -> Chunks:
    """Encode unsigned integers in the smallest encoding; runs only if they are fewer than ``runs`` times the values."""
    values = read_only(values)
    width, count = values.itemsize, len(values)
    packed = measures.packed_bytes(width)
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


@dataclass(frozen=True)
class Strings:
    """Variable-length values: value ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: Any
    data: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", read_only(self.offsets))
        object.__setattr__(self, "data", read_only(self.data))

    @classmethod
    def of(cls, array: pa.Array) -> Strings:
        """Wrap the buffers of a string or binary array without a copy; its offset width stays."""
        width = np.dtype(np.int64 if is_large(array.type) else np.int32)
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return cls(np.zeros(1, width), np.empty(0, np.uint8))
        return cls(
            np.frombuffer(offsets, width, len(array) + 1, array.offset * width.itemsize),
            np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def pieces(self) -> Iterator[Any]:
        for start, end in pairwise(self.offsets.tolist()):
            yield self.data[start:end]

    @property
    def size(self) -> int:
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def longest(self) -> int:
        """Bytes of the longest value."""
        return int(np.diff(self.offsets).max(initial=0))


def variable(bits: int) -> pb.CompressiveEncoding:
    """The encoding of strings with offsets of ``bits`` bits."""
    return pb.CompressiveEncoding(variable=pb.Variable(offsets=flat(bits)))


def string_chunks(strings: Strings, limit: int = CHUNK_BYTES) -> Chunks:
    """Cut values into chunks of about ``limit`` bytes; offsets count from the start of the chunk's buffer."""
    width = strings.offsets.itemsize
    bounds = np.empty(len(strings) // 2 + 2, np.int64)
    bounds = bounds[: 1 + string_bounds(strings.offsets, width, limit, CHUNK_VALUES, bounds)]
    counts = np.diff(bounds)
    sizes = (counts + 1) * width + np.diff(strings.offsets[bounds].astype(np.int64))
    starts = np.zeros(len(bounds), np.int64)
    np.cumsum(-(-sizes // width) * width, out=starts[1:])
    data = np.zeros(starts[-1], np.uint8)
    fill_strings(strings.offsets, strings.data, bounds, starts, data, data.view(strings.offsets.dtype))
    return Chunks(variable(8 * width), bounds, (Stream(data, starts),))


@jit
def string_bounds(offsets: Any, width: int, limit: int, most: int, bounds: Any) -> int:
    """Fill ``bounds`` with the first value of each chunk, then the total; return the number of chunks."""
    count = len(offsets) - 1
    first, chunks = 0, 0
    bounds[0] = 0
    while first < count:
        size = 2
        while (
            size * 2 <= min(most, count - first)
            and (2 * size + 1) * width + offsets[first + 2 * size] - offsets[first] <= limit
        ):
            size *= 2
        left = count - first
        if left <= 2 or (left <= most and (left + 1) * width + offsets[count] - offsets[first] <= limit):
            size = left
        first += size
        chunks += 1
        bounds[chunks] = first
    return chunks


@jit
def fill_strings(offsets: Any, source: Any, bounds: Any, starts: Any, data: Any, words: Any) -> None:
    """Write the offsets and bytes of each chunk."""
    width = words.itemsize
    for chunk in range(len(bounds) - 1):
        first, end, start = bounds[chunk], bounds[chunk + 1], starts[chunk]
        head = (end - first + 1) * width
        shift = head - offsets[first]
        at = start // width
        for i in range(first, end + 1):
            words[at + i - first] = offsets[i] + shift
        size = offsets[end] - offsets[first]
        data[start + head : start + head + size] = source[offsets[first] : offsets[end]]


@dataclass(frozen=True)
class FixedLists:
    """Fixed-size lists, possibly nested, as flat buffers.

    ``dimensions`` are the sizes from the outermost level inwards, ``valid`` the validity of the items of each level.
    """

    count: int
    dimensions: tuple[int, ...]
    valid: tuple[Any, ...]
    items: Any
    item_bits: int

    @classmethod
    def of(cls, array: pa.Array) -> FixedLists:
        count, dimensions, valid = len(array), [], []
        while pt.is_fixed_size_list(array.type):
            size = array.type.list_size
            array = storage_array(array.values).slice(array.offset * size, len(array) * size)
            dimensions.append(size)
            bitmap, offset = validity(array)
            valid.append(None if bitmap is None else aligned_bits(bitmap, offset, len(array)))
        items, bits = fixed_bytes(array)
        return cls(count, tuple(dimensions), tuple(valid), items, bits)

    @property
    def encoding(self) -> pb.CompressiveEncoding:
        encoding = flat(self.item_bits)
        for size, valid in zip(reversed(self.dimensions), reversed(self.valid), strict=True):
            encoding = pb.CompressiveEncoding(
                fixed_size_list=pb.FixedSizeList(items_per_value=size, values=encoding, has_validity=valid is not None)
            )
        return encoding

    @property
    def row_bytes(self) -> int:
        """Bytes of a single value."""
        return sum(-(-bits // 8) for _, bits in self._parts)

    @property
    def has_whole_bytes(self) -> bool:
        """Whether the items of a value fill its bytes; pylance reads no other lists from full-zip pages."""
        return self._parts[-1][1] % 8 == 0

    @property
    def _parts(self) -> list[tuple[Any, int]]:
        """The buffers, and the bits per value in each."""
        parts, size = [], 1
        for dimension, valid in zip(self.dimensions, self.valid, strict=True):
            size *= dimension
            if valid is not None:
                parts.append((valid, size))
        return [*parts, (self.items, size * self.item_bits)]

    def chunks(self) -> Chunks:
        """Encode the values for a mini-block page."""
        bits = sum(bits for _, bits in self._parts)
        bounds = even_bounds(self.count, max(values_per_chunk(bits), 8))
        streams = tuple(bit_stream(data, bounds, bits) for data, bits in self._parts)
        return Chunks(self.encoding, bounds, streams)

    def rows(self) -> Any:
        """Return the values for a full-zip page, as a byte matrix with a row per value."""
        rows = [byte_rows(data, bits, self.count) for data, bits in self._parts]
        return rows[0] if len(rows) == 1 else np.hstack(rows)


def byte_rows(data: Any, bits: int, count: int) -> Any:
    """Return a row of whole bytes per value."""
    if bits % 8 == 0:
        return data[: count * (bits // 8)].reshape(count, bits // 8)
    every = np.unpackbits(data, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(every, axis=1, bitorder="little")


def aligned_bits(bitmap: Any, offset: int, count: int) -> Any:
    """Return ``count`` bits from ``offset``, shifted to the start of a byte."""
    if offset % 8 == 0:
        return bitmap[offset // 8 : offset // 8 + -(-count // 8)]
    start = offset % 8
    bits = np.unpackbits(bitmap[offset // 8 : -(-(offset + count) // 8)], bitorder="little")
    return np.packbits(bits[start : start + count], bitorder="little")


def fixed_bytes(array: pa.Array) -> tuple[Any, int]:
    """Return the bytes of fixed-width values, and their bit width; a boolean has one bit."""
    bits = array.type.bit_width
    data = array.buffers()[1]
    if data is None:
        return np.zeros(-(-len(array) * bits // 8), np.uint8), bits
    raw = np.frombuffer(data, np.uint8)
    if bits == 1:
        return aligned_bits(raw, array.offset, len(array)), 1
    width = bits // 8
    return raw[array.offset * width : (array.offset + len(array)) * width], bits
