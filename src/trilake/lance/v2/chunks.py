"""Mini-block codecs: decode the values and levels of chunks, all entries or single ones.

A codec is created once, from the encoding of a page, and then decodes any number of chunks with one kernel call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trilake.lance.file.sources import Int64s
from trilake.lance.v2.block import (
    MAX_UNBACKED,
    flat_block,
    has_payload,
    kind_of,
    length_width,
    packed_width,
    run_width,
    runs,
    split_width,
    unsupported,
    word_width,
    words_of,
)
from trilake.lance.v2.compression import decompressed, scheme
from trilake.lance.v2.fsst import SymbolTable
from trilake.lance.v2.kernel_loader import kernels
from trilake.lance.v2.layers import Uint16s, ranges
from trilake.lance.v2.values import (
    Bytes,
    DamagedPage,
    FixedLists,
    Flat,
    UnsupportedPage,
    Values,
    Variable,
    allocate,
    gather,
    new_offsets,
)
from trilake.lance.v2.values import Rows as PackedRows


class Buffers(NamedTuple):
    """One buffer of each chunk: piece ``i`` has ``size[i]`` bytes at ``at[i]``."""

    data: Bytes
    at: Int64s
    size: Int64s

    def piece(self, i: int) -> Bytes:
        return self.data[self.at[i] : self.at[i] + self.size[i]]

    def words(self, bits: int) -> tuple[Any, Int64s]:
        """View the data as words; also return the byte positions of the pieces in them."""
        width = bits // 8
        if not (self.at % width).any():
            return words_of(self.data, bits), self.at
        out = np.zeros(int((self.size + width).sum()), np.uint8)  # some buffers are not aligned
        stride = (self.size + width - 1) // width * width
        at = np.cumsum(stride) - stride
        for a, b, n in zip(at.tolist(), self.at.tolist(), self.size.tolist(), strict=True):
            out[a : a + n] = self.data[b : b + n]
        return words_of(out, bits), at


class Pick(NamedTuple):
    """Single entries of chunks: entry ``number[i]`` of chunk ``piece[i]``."""

    piece: Int64s
    number: Int64s

    def of(self, counts: Int64s) -> Int64s:
        """Their indices among the entries of all chunks, which have ``counts`` entries."""
        places: Int64s = (np.cumsum(counts) - counts)[self.piece] + self.number
        return places


class Codec(ABC):
    """Decodes the values of chunks.  Constructors take the encoding, and raise ``DamagedPage``."""

    #: Number of buffers in a chunk.
    buffers = 1

    def __init__(self, encoding: Any) -> None:
        del encoding

    @abstractmethod
    def all(self, pieces: list[Buffers], counts: Int64s) -> Values:
        """Decode chunks with ``counts`` values each.  Raises ``DamagedPage``."""

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> Values:
        """Decode single values of these chunks."""
        return self.all(pieces, counts).take(pick.of(counts))


def codec(encoding: Any) -> Codec:
    """Create the codec of an encoding.  Raises ``DamagedPage``."""
    kind = kind_of(encoding)
    make = _CODECS.get(kind)
    if make is None:
        raise unsupported(encoding, "mini-blocks")
    return make(getattr(encoding, kind))


def _check_widths(counts: Int64s, bits: int) -> None:
    """Reject counts whose number of bits would overflow."""
    most = int(counts.max()) if len(counts) else 0
    if most >= 1 << 40 or bits >= 1 << 31 or most * bits >= 1 << 56:
        raise UnsupportedPage(f"a chunk of {most} values of {bits} bits is not supported")


class _Packed(Codec):
    """Plain values of a fixed number of bits."""

    def __init__(self, encoding: Any) -> None:
        if encoding.HasField("data"):
            raise UnsupportedPage("compressed buffers below a flat encoding are not supported")
        self.bits = int(encoding.bits_per_value)
        if self.bits != 1 and (self.bits % 8 or not self.bits):
            raise UnsupportedPage(f"values of {self.bits} bits are not supported")

    def all(self, pieces: list[Buffers], counts: Int64s) -> Flat:
        return _all_packed(pieces[0], counts, self.bits)

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> Flat:
        return _pick_packed(pieces[0], counts, pick, self.bits)


def _packed_sizes(pieces: Buffers, counts: Int64s, bits: int) -> Int64s:
    _check_widths(counts, bits)
    size: Int64s = (counts * bits + 7) // 8
    short = size > pieces.size
    if short.any():
        i = int(np.argmax(short))
        raise DamagedPage(f"{pieces.size[i]} bytes are too few for {counts[i]} values of {bits} bits")
    return size


def _all_packed(pieces: Buffers, counts: Int64s, bits: int) -> Flat:
    size = _packed_sizes(pieces, counts, bits)
    total = int(counts.sum())
    if len(counts) == 1:
        return Flat(pieces.data[pieces.at[0] : pieces.at[0] + size[0]], bits, total)
    out = allocate(int(size.sum()))
    kernels().copy_pieces(pieces.data, pieces.at, size, out)
    if bits == 1 and (counts[:-1] % 8).any():
        ends = np.cumsum(size) * 8
        index = ranges(ends - size * 8, ends - size * 8 + counts)
        return Flat(out, 1, int(size.sum()) * 8).take(index)
    return Flat(out, bits, total)


def _pick_packed(pieces: Buffers, counts: Int64s, pick: Pick, bits: int) -> Flat:
    _packed_sizes(pieces, counts, bits)
    if bits == 1:
        at = pieces.at[pick.piece] + (pick.number >> 3)
        picked = pieces.data[at] >> (pick.number & 7).astype(np.uint8) & 1
        return Flat(np.packbits(picked, bitorder="little"), 1, len(at))
    at = pieces.at[pick.piece] + pick.number * (bits // 8)
    return Flat(gather(pieces.data, at, np.full(len(at), bits // 8)).data, bits, len(at))


class _Inline(Codec):
    """Bit-packed values; each chunk begins with their bit width."""

    def __init__(self, encoding: Any) -> None:
        self.bits = word_width(encoding.uncompressed_bits_per_value)
        self.kind = np.dtype(f"<u{self.bits // 8}")

    def all(self, pieces: list[Buffers], counts: Int64s) -> Flat:
        words, at = pieces[0].words(self.bits)
        total = int(counts.sum())
        out = allocate((total + kernels().BLOCK) * self.bits // 8).view(self.kind)
        bad = kernels().unpack_inline(words, at, pieces[0].size, counts, out)
        if bad >= 0:
            raise DamagedPage(f"{pieces[0].size[bad]} packed bytes are too few for {counts[bad]} values")
        return Flat(out[:total].view(np.uint8), self.bits, total)

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> Flat:
        first = pieces[0]
        out = np.empty(len(pick.piece), self.kind)
        bad = kernels().pick_inline(first.data, first.at, first.size, pick.piece, pick.number, out)
        if bad >= 0:
            raise DamagedPage(f"{first.size[bad]} packed bytes are too few")
        return Flat(out.view(np.uint8), self.bits, len(out))


class _Strings(Codec):
    """Strings or binaries, with offsets in front."""

    def __init__(self, encoding: Any) -> None:
        if kind_of(encoding.offsets) != "flat" or encoding.offsets.flat.bits_per_value not in (32, 64):
            raise unsupported(encoding.offsets, "offsets")
        if encoding.HasField("values"):
            raise UnsupportedPage("compressed bytes below a variable encoding are not supported")
        self.width = int(encoding.offsets.flat.bits_per_value) // 8

    def all(self, pieces: list[Buffers], counts: Int64s) -> Variable:
        first = pieces[0]
        total = int(first.size.sum())
        offsets, out = new_offsets(int(counts.sum()), total), allocate(total)
        if kernels().copy_chunks(first.data, first.at, first.size, counts, self.width, out, offsets) >= 0:
            raise DamagedPage("offsets of strings or bytes decrease, or point outside their chunk")
        return Variable(offsets, out[: int(offsets[-1])])

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> Variable:
        return gather(pieces[0].data, *self.places(pieces[0], counts, pick))

    def places(self, first: Buffers, counts: Int64s, pick: Pick) -> tuple[Int64s, Int64s]:
        """Return the positions of single values, and their bytes."""
        begin, length = np.empty((2, len(pick.piece)), np.int64)
        bad = kernels().pick_offsets(
            *(first.data, first.at, first.size, counts, self.width, pick.piece, pick.number, begin, length)
        )
        if bad >= 0:
            raise DamagedPage("offsets of strings or bytes decrease, or point outside their chunk")
        return begin, length


class _Fsst(Codec):
    def __init__(self, encoding: Any) -> None:
        if kind_of(encoding.values) != "variable":
            raise unsupported(encoding.values, "FSST")
        self.table, self.below = SymbolTable.parse(encoding.symbol_table), _Strings(encoding.values.variable)

    def all(self, pieces: list[Buffers], counts: Int64s) -> Variable:
        first = pieces[0]
        if not self.table.used:
            return self.below.all(pieces, counts)
        return self.table.decode_chunks(first.data, first.at, first.size, counts, self.below.width)

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> Variable:
        return self.table.decode(pieces[0].data, *self.below.places(pieces[0], counts, pick))


class _CodedStrings(Codec):
    """Strings or binaries of 2.3: offsets are an encoded block, in a buffer before the bytes or without one."""

    def __init__(self, encoding: Any) -> None:
        self.offsets, self.stored = encoding.offsets, has_payload(encoding.offsets)
        self.buffers = 1 + self.stored

    def all(self, pieces: list[Buffers], counts: Int64s) -> Variable:
        content = pieces[self.stored]
        begin, length = [], []
        for i, count in enumerate(counts.tolist()):
            data = pieces[0].piece(i) if self.stored else content.data[:0]
            offsets = flat_block(self.offsets, data, count + 1, "offsets").typed().astype(np.int64)
            if offsets[0] < 0 or (np.diff(offsets) < 0).any() or offsets[-1] > content.size[i]:
                raise DamagedPage("offsets of strings or bytes decrease, or point outside their chunk")
            begin.append(content.at[i] + offsets[:-1])
            length.append(np.diff(offsets))
        return gather(content.data, np.concatenate(begin), np.concatenate(length))


def _strings(encoding: Any) -> Codec:
    return _Strings(encoding) if kind_of(encoding.offsets) == "flat" else _CodedStrings(encoding)


class _Runs(Codec):
    """Run-length encoded values: a buffer of values, and one of lengths."""

    buffers = 2

    def __init__(self, encoding: Any) -> None:
        if kind_of(encoding.values) != "flat":
            raise unsupported(encoding.values, "runs")
        self.bits = word_width(encoding.values.flat.bits_per_value, "runs")
        #: Encoding of the lengths; ``None`` if they are plain.
        self.lengths = encoding.run_lengths if run_width(encoding) is None else None
        self.width = length_width(encoding.run_lengths)

    def all(self, pieces: list[Buffers], counts: Int64s) -> Flat:
        values, lengths = pieces[:2]
        if self.lengths is not None:
            numbers = enumerate((values.size // (self.bits // 8)).tolist())
            encoded = [(lengths.piece(i), n) for i, n in numbers]
            lengths = _joined([flat_block(self.lengths, d, n, "run lengths").data.tobytes() for d, n in encoded])
        total, totals = int(counts.sum()), np.empty(len(counts), np.int64)
        kernels().count_runs(lengths.data, lengths.at, lengths.size, self.width, totals)
        if (totals < counts).any() or total > MAX_UNBACKED + 8 * int(values.size.sum()):
            raise DamagedPage("runs are too few for the values of a chunk")
        out = allocate(total * self.bits // 8).view(f"<u{self.bits // 8}")
        words, at = values.words(self.bits)
        how = lengths.data, lengths.at, lengths.size, self.width, counts, out
        if kernels().expand_runs(words, at, values.size, *how) >= 0:
            raise DamagedPage("runs are too few for the values of a chunk")
        return Flat(out.view(np.uint8), self.bits, total)


class _CodedRuns(Codec):
    """Runs of encoded values."""

    buffers = 2

    def __init__(self, encoding: Any) -> None:
        self.encoding = encoding

    def all(self, pieces: list[Buffers], counts: Int64s) -> Flat:
        parts = [
            runs(self.encoding, pieces[0].piece(i), pieces[1].piece(i), count)
            for i, count in enumerate(counts.tolist())
        ]
        if len({part.bits for part in parts}) > 1:
            raise DamagedPage("the runs of chunks have different widths")
        return Flat(np.concatenate([part.data for part in parts]), parts[0].bits, int(counts.sum()))


def _runs(encoding: Any) -> Codec:
    lengths = kind_of(encoding.run_lengths)
    return _Runs(encoding) if kind_of(encoding.values) == "flat" and lengths != "general" else _CodedRuns(encoding)


class _SplitBytes(Codec):
    """Byte stream split: the first bytes of all values, then their second bytes, and so on."""

    def __init__(self, encoding: Any) -> None:
        self.width = split_width(encoding) // 8

    def all(self, pieces: list[Buffers], counts: Int64s) -> Flat:
        first, total = pieces[0], int(counts.sum())
        if (counts * self.width > first.size).any():
            raise DamagedPage("a chunk of split bytes is too short")
        out = allocate(total * self.width)
        kernels().join_bytes(first.data, first.at, counts, self.width, out)
        return Flat(out, 8 * self.width, total)


class _FixedSizeLists(Codec):
    """Fixed-size lists, possibly nested; each level with nulls has a validity buffer."""

    def __init__(self, encoding: Any) -> None:
        #: Size of each level, outermost first, and whether it has nulls.
        self.levels: list[tuple[int, bool]] = []
        while True:
            if encoding.items_per_value > MAX_UNBACKED:
                raise UnsupportedPage(f"lists of {encoding.items_per_value} items are not supported")
            self.levels.append((int(encoding.items_per_value), encoding.has_validity))
            if kind_of(encoding.values) != "fixed_size_list":
                break
            encoding = encoding.values.fixed_size_list
        self.items = codec(encoding.values)
        self.buffers = sum(nulls for _, nulls in self.levels) + self.items.buffers

    def all(self, pieces: list[Buffers], counts: Int64s) -> Values:
        total, pieces = int(counts.sum()), list(pieces)
        valid: list[Flat | None] = []
        for size, nulls in self.levels:
            counts = counts * size
            _check_widths(counts, 1)
            valid.append(_all_packed(pieces.pop(0), counts, 1) if nulls else None)
        values = self.items.all(pieces, counts)
        number = values.count
        for (size, _), flags in zip(reversed(self.levels), reversed(valid), strict=True):
            number = number // size if size else total
            values = FixedLists(size, values, flags, number)
        return values

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> Values:
        ((size, nulls), *below), items = self.levels, self.items
        if below or nulls or not isinstance(items, _Packed) or not size or size * items.bits % 8:
            return super().pick(pieces, counts, pick)
        rows = _pick_packed(pieces[0], counts, pick, size * items.bits)
        return FixedLists(size, Flat(rows.data, items.bits, rows.count * size), None, rows.count)


class _Structs(Codec):
    """Packed structs: the fields of a row are adjacent."""

    def __init__(self, encoding: Any) -> None:
        self.widths = [int(bits) for bits in encoding.bits_per_value]
        self.rows = codec(encoding.values)
        self.buffers = self.rows.buffers
        if any(bits % 8 for bits in self.widths):
            raise unsupported(encoding.values, "packed structs")

    def all(self, pieces: list[Buffers], counts: Int64s) -> PackedRows:
        return self._of(self.rows.all(pieces, counts))

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> PackedRows:
        return self._of(self.rows.pick(pieces, counts, pick))

    def _of(self, rows: Values) -> PackedRows:
        if not isinstance(rows, Flat) or rows.bits != sum(self.widths):
            raise UnsupportedPage("the fields of packed structs do not add up to the row width")
        return PackedRows(self.widths, rows)


class _General(Codec):
    """General compression of the first buffer of each chunk, around another codec."""

    def __init__(self, encoding: Any) -> None:
        self.scheme, self.below = scheme(encoding.compression), codec(encoding.values)
        self.buffers = self.below.buffers

    def all(self, pieces: list[Buffers], counts: Int64s) -> Values:
        return self.below.all(self._decompressed(pieces), counts)

    def pick(self, pieces: list[Buffers], counts: Int64s, pick: Pick) -> Values:
        return self.below.pick(self._decompressed(pieces), counts, pick)

    def _decompressed(self, pieces: list[Buffers]) -> list[Buffers]:
        first = pieces[0]
        return [_joined([decompressed(self.scheme, first.piece(i)) for i in range(len(first.at))]), *pieces[1:]]


_CODECS: dict[str, Callable[[Any], Codec]] = {
    "flat": _Packed,
    "inline_bitpacking": _Inline,
    "variable": _strings,
    "fsst": _Fsst,
    "rle": _runs,
    "byte_stream_split": _SplitBytes,
    "fixed_size_list": _FixedSizeLists,
    "packed_struct": _Structs,
    "general": _General,
}


def _joined(parts: list[Any]) -> Buffers:
    """Join pieces in new memory, where each is aligned to eight bytes."""
    size = np.array([len(part) for part in parts], np.int64)
    stride = (size + 7) // 8 * 8
    stops = np.cumsum(stride)
    padding = b"\0" * 8
    data = np.frombuffer(
        b"".join(b for part, n in zip(parts, size.tolist(), strict=True) for b in (part, padding[: -n % 8])), np.uint8
    )
    return Buffers(data, stops - stride, size)


class LevelCodec:
    """Decodes the levels of chunks."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        kind, k = kind_of(encoding), kernels()
        #: The kernels' constant for the encoding; ``None`` if each chunk is decoded on its own.
        self._mode: int | None = None
        self._width = 0
        if kind == "flat" and encoding.flat.bits_per_value == 16:
            self._mode = k.FLAT
        elif kind == "inline_bitpacking" and encoding.inline_bitpacking.uncompressed_bits_per_value == 16:
            self._mode = k.INLINE
        elif kind == "out_of_line_bitpacking" and encoding.out_of_line_bitpacking.uncompressed_bits_per_value == 16:
            self._mode, self._width = k.BLOCKS, packed_width(encoding.out_of_line_bitpacking, 16)
        elif kind == "rle" and run_width(encoding.rle) == 1 and encoding.rle.values.flat.bits_per_value == 16:
            self._mode = k.RUNS
        self._has_short_runs = kind == "rle" and run_width(encoding.rle) == 1

    def counts(self, pieces: Buffers, counts: Int64s) -> Int64s:
        """The number of levels in each chunk; for runs, the stored 16-bit number may have overflowed."""
        if not self._has_short_runs:
            return counts
        data, at = pieces.data, pieces.at
        if (pieces.size < 8).any():
            raise DamagedPage("runs of levels are too short")
        heads = data[at[:, None] + np.arange(8)].view("<u8").reshape(-1)
        if (heads > (pieces.size - 8).astype(np.uint64)).any():
            raise DamagedPage("runs of levels are too short")
        values = heads.astype(np.int64)
        totals = np.empty(len(at), np.int64)
        kernels().count_runs(data, at + 8 + values, pieces.size - 8 - values, 1, totals)
        return np.where((totals > counts) & (totals % (1 << 16) == counts), totals, counts)

    def read(self, pieces: Buffers, counts: Int64s, pick: Pick | None = None) -> Uint16s:
        """Read all levels, or single ones.  Raises ``DamagedPage``."""
        k, mode, width = kernels(), self._mode, self._width
        total = int(counts.sum())
        if total > MAX_UNBACKED + 8 * int(pieces.size.sum()):
            raise DamagedPage(f"{pieces.size.sum()} bytes are too few for {total} levels")
        if pick is not None and mode in (k.FLAT, k.INLINE, k.BLOCKS):
            out = np.empty(len(pick.piece), np.uint16)
            where = pieces.data, pieces.at, pieces.size, counts, pick.piece, pick.number
            return self._checked(k.pick_levels(mode, width, *where, out), out, pieces, counts)
        out = np.empty(total, np.uint16)
        if mode is None:
            o = 0
            for i, count in enumerate(counts.tolist()):
                levels = flat_block(self._encoding, pieces.piece(i), count, "levels")
                if levels.bits != 16:
                    raise unsupported(self._encoding, "levels")
                out[o : o + count] = levels.typed()
                o += count
        else:
            words, at = pieces.words(16)
            data = pieces.data if at is pieces.at else words.view(np.uint8)
            bad = k.decode_levels(mode, width, data, words, at, pieces.size, counts, out)
            self._checked(bad, out, pieces, counts)
        return out if pick is None else out[pick.of(counts)]

    def _checked(self, bad: int, levels: Uint16s, pieces: Buffers, counts: Int64s) -> Uint16s:
        if bad >= 0:
            raise DamagedPage(f"the levels of a chunk are damaged ({counts[bad]} in {pieces.size[bad]} bytes)")
        return levels
