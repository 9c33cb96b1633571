"""Codecs: decode the values and levels of chunks, and blocks: a dictionary, or the levels of a whole page.

A codec of chunks is created once, from the encoding of a page, and then decodes any number of chunks, all their entries
or single ones, with one kernel call.  A block is one buffer with a given number of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trilake.lance.file.sources import Int64s
from trilake.lance.v2.compression import SymbolTable, decompressed, scheme
from trilake.lance.v2.layers import ranges
from trilake.lance.v2.values import (
    Bytes,
    DamagedPage,
    FixedLists,
    Flat,
    Indexed,
    Nothing,
    UnsupportedPage,
    Values,
    Variable,
    allocate,
    gather,
    kernels,
    new_offsets,
)
from trilake.lance.v2.values import Rows as PackedRows

#: Maximum values without bytes in one piece: a tiny file must not exhaust the memory.
MAX_UNBACKED = 1 << 25
#: Values per byte of the densest encoding: a block of 1,024 equal values is one word.
DENSEST = 1024
_WIDTHS = (8, 16, 32, 64)


def kind_of(encoding: Any) -> str:
    """The name of a codec; empty if the message has none."""
    return encoding.WhichOneof("compression") or ""


def unsupported(encoding: Any, place: str) -> UnsupportedPage:
    """Build the error for a codec that is not allowed in ``place``."""
    return UnsupportedPage(f"the encoding {kind_of(encoding) or 'none'!r} is not supported for {place}")


def block(encoding: Any, data: Bytes, count: int) -> Values:
    """Decode ``count`` values from a buffer.  Raises ``DamagedPage``."""
    kind = kind_of(encoding)
    decode = _BLOCKS.get(kind)
    if decode is None:
        raise unsupported(encoding, "a block")
    values: Values = decode(getattr(encoding, kind), data, count)
    return values


def flat_block(encoding: Any, data: Bytes, count: int, place: str) -> Flat:
    """Decode ``count`` numbers or booleans from a buffer.  Raises ``DamagedPage``."""
    values = block(encoding, data, count)
    if isinstance(values, Indexed) and isinstance(values.items, Flat):
        values = values.decoded()
    if not isinstance(values, Flat):
        raise unsupported(encoding, place)
    return values


def words_of(data: Bytes, bits: int) -> Any:
    """View bytes as words of ``bits`` bits; copy them if they are not aligned."""
    words = data[: len(data) // (bits // 8) * (bits // 8)].view(f"<u{bits // 8}")
    if not words.flags.aligned:
        words = words.copy()
    words.flags.writeable = False
    return words


def word_width(bits: int, place: str = "bit packing") -> int:
    """Return ``bits`` if it is 8, 16, 32 or 64.  Raises ``DamagedPage`` for other widths."""
    if bits not in _WIDTHS:
        raise UnsupportedPage(f"{place} of values of {bits} bits is not supported")
    return bits


def _flat(encoding: Any, data: Bytes, count: int) -> Flat:
    if encoding.HasField("data"):
        data = decompressed(scheme(encoding.data), data)
    return _all_packed(_single(data), np.array([count], np.int64), _flat_width(encoding))


def _flat_width(encoding: Any) -> int:
    bits = int(encoding.bits_per_value)
    if bits != 1 and (bits % 8 or not bits):
        raise UnsupportedPage(f"values of {bits} bits are not supported")
    return bits


def _like_chunk(make: type[Codec]) -> Callable[[Any, Bytes, int], Values]:
    """Decode a block as the only buffer of a single chunk."""

    def decode(encoding: Any, data: Bytes, count: int) -> Values:
        if count > MAX_UNBACKED + DENSEST * len(data):
            raise DamagedPage(f"{len(data)} bytes are too few for {count} values")
        return make(encoding).all([_single(data)], np.array([count], np.int64))

    return decode


def _blocks(encoding: Any, data: Bytes, count: int) -> Flat:
    bits = word_width(encoding.uncompressed_bits_per_value)
    width = packed_width(encoding, bits)
    if count > MAX_UNBACKED + 8 * len(data):
        raise DamagedPage(f"{len(data)} bytes are too few for {count} packed values")
    out = allocate(count * bits // 8).view(f"<u{bits // 8}")
    if not kernels().unpack_blocks(words_of(data, bits), 0, len(data), width, count, out, 0):
        raise DamagedPage(f"{len(data)} bytes are too few for {count} values of {width} bits")
    return Flat(out.view(np.uint8), bits, count)


def packed_width(encoding: Any, bits: int) -> int:
    """Return the bit width of packed blocks.  Raises ``DamagedPage`` if it is not valid."""
    if kind_of(encoding.values) != "flat":
        raise unsupported(encoding.values, "packed values")
    width = int(encoding.values.flat.bits_per_value)
    if width > bits:
        raise DamagedPage(f"values of {bits} bits cannot be packed to {width}")
    return width


def _variable(encoding: Any, data: Bytes, count: int) -> Variable:
    if encoding.HasField("values"):
        raise UnsupportedPage("compressed bytes below a variable encoding are not supported")
    if len(data) < 8:
        raise DamagedPage("a block of strings or bytes is too short")
    head = data[:16].tobytes()
    bits = int.from_bytes(head[:4], "little")
    if bits not in (32, 64):  # older files begin with a byte of bits, a count and a start
        bits = head[0]
        width = bits // 8
        if bits not in (32, 64) or len(data) < 1 + 2 * width:
            raise DamagedPage("a block of strings or bytes has an invalid offset width")
        at = 1 + 2 * width
        start = int.from_bytes(data[1 + width : at].tobytes(), "little")
    else:
        width = bits // 8
        at = 2 * width
        start = int.from_bytes(head[width : 2 * width], "little")
    if at + (count + 1) * width > start or start > len(data):
        raise DamagedPage("the offsets of a block of strings or bytes are outside the block")
    offsets = np.frombuffer(data[at : at + (count + 1) * width].tobytes(), f"<i{width}")
    content = data[start:]
    if offsets[0] < 0 or (np.diff(offsets) < 0).any() or int(offsets[-1]) > len(content):
        raise DamagedPage("the offsets of a block of strings or bytes decrease, or point outside the block")
    return Variable(offsets, content)


def _fsst(encoding: Any, data: Bytes, count: int) -> Variable:
    coded = block(encoding.values, data, count)
    if not isinstance(coded, Variable):
        raise unsupported(encoding.values, "FSST")
    begin = coded.offsets[:-1].astype(np.int64)
    return SymbolTable.parse(encoding.symbol_table).decode(coded.data, begin, np.diff(coded.offsets).astype(np.int64))


def _general(encoding: Any, data: Bytes, count: int) -> Values:
    return block(encoding.values, decompressed(scheme(encoding.compression), data), count)


def _run_block(encoding: Any, data: Bytes, count: int) -> Flat:
    if not has_payload(encoding.values) and not has_payload(encoding.run_lengths):
        return runs(encoding, data[:0], data[:0], count)
    if len(data) < 8:
        raise DamagedPage("a block of runs is too short")
    size = int.from_bytes(data[:8].tobytes(), "little")
    if size > len(data) - 8:
        raise DamagedPage("a block of runs is too short")
    return runs(encoding, data[8 : 8 + size], data[8 + size :], count)


def runs(encoding: Any, values: Bytes, lengths: Bytes, count: int) -> Flat:
    """Decode one piece of runs; the values or the lengths must tell the number of runs."""
    of_values, values = _uncompressed(encoding.values, values)
    of_lengths, lengths = _uncompressed(encoding.run_lengths, lengths)
    if kind_of(of_values) == "flat":
        number = len(values) * 8 // word_width(of_values.flat.bits_per_value, "runs")
    elif kind_of(of_lengths) == "flat":
        number = len(lengths) // length_width(of_lengths)
    elif not has_payload(of_lengths):
        all_lengths = flat_block(of_lengths, lengths, count, "run lengths").typed()
        number = min(int(np.cumsum(all_lengths.astype(np.uint64)).searchsorted(count)) + 1, count)
    else:
        raise unsupported(of_lengths, "run lengths")
    coded = flat_block(of_values, values, number, "runs")
    lengths, bits = flat_block(of_lengths, lengths, number, "run lengths").data, word_width(coded.bits, "runs")
    counts = np.array([count], np.int64)
    return _expanded(_single(coded.data), _single(lengths), bits, length_width(of_lengths), counts)


def _uncompressed(encoding: Any, data: Bytes) -> tuple[Any, Bytes]:
    """Undo general compression."""
    while kind_of(encoding) == "general":
        data = decompressed(scheme(encoding.general.compression), data)
        encoding = encoding.general.values
    return encoding, data


def _expanded(values: Buffers, lengths: Buffers, bits: int, width: int, counts: Int64s) -> Flat:
    """Expand runs of values of ``bits`` bits, with lengths of ``width`` bytes."""
    total, totals = int(counts.sum()), np.empty(len(counts), np.int64)
    kernels().count_runs(lengths.data, lengths.at, lengths.size, width, totals)
    # A run of a length of one byte has at most 255 values.
    bad = bool((totals < counts).any()) or (width > 1 and total > MAX_UNBACKED + 8 * int(values.size.sum()))
    if not bad:
        out = allocate(total * bits // 8).view(f"<u{bits // 8}")
        words, at = values.words(bits)
        how = lengths.data, lengths.at, lengths.size, width, counts, out
        bad = kernels().expand_runs(words, at, values.size, *how) >= 0
    if bad:
        raise DamagedPage(f"runs are too few for {total} values")
    return Flat(out.view(np.uint8), bits, total)


def run_width(encoding: Any) -> int | None:
    """Bytes of a stored run length; ``None`` if the lengths are encoded."""
    if kind_of(encoding.run_lengths) != "flat":
        return None
    return length_width(encoding.run_lengths)


def length_width(encoding: Any) -> int:
    """Bytes of a decoded run length.  Raises ``DamagedPage``."""
    kind = kind_of(encoding)
    each: Any = getattr(encoding, kind) if kind else None
    if kind == "general":
        return length_width(each.values)
    if kind == "flat":
        bits = each.bits_per_value
    elif kind == "constant":
        bits = 8 * len(each.value)
    else:
        bits = getattr(each, "uncompressed_bits_per_value", 0)
    if bits not in (8, 16, 32):
        raise unsupported(encoding, "run lengths")
    return int(bits) // 8


def _lists(encoding: Any, data: Bytes, count: int) -> Values:
    size = encoding.items_per_value
    if encoding.has_validity:
        return interleaved_lists(encoding, data, count)
    if count and size > MAX_UNBACKED + 8 * len(data) // count:
        raise DamagedPage(f"{len(data)} bytes are too few for {count} lists of {size} items")
    return FixedLists(size, block(encoding.values, data, count * size), None, count)


def interleaved_lists(encoding: Any, data: Bytes, count: int) -> Values:
    """Decode fixed-size lists, each with the validity bits of its items in front."""
    levels = []
    items = 1
    node = encoding
    while True:
        items *= node.items_per_value
        if items > MAX_UNBACKED + 8 * len(data):
            raise DamagedPage(f"{len(data)} bytes are too few for lists of {items} items")
        levels.append((int(node.items_per_value), (items + 7) // 8 if node.has_validity else 0))
        if kind_of(node.values) != "fixed_size_list":
            break
        node = node.values.fixed_size_list
    nothing = kind_of(node.values) == "constant" and not node.values.constant.HasField("value")
    if kind_of(node.values) != "flat" and not nothing:
        raise unsupported(node.values, "items of lists of fixed size")
    bits = int(node.values.flat.bits_per_value)
    width = sum(size for _, size in levels) + (items * bits + 7) // 8
    if bool(bits) == nothing or width * count > len(data) or items * count > MAX_UNBACKED + 8 * len(data):
        raise DamagedPage(f"{len(data)} bytes are too few for {count} lists of {width} bytes")
    rows = data[: width * count].reshape(count, width)
    at = 0
    valid: list[Flat | None] = []
    per_row = 1
    for size, bitmap in levels:
        per_row *= size
        valid.append(_bits(rows[:, at : at + bitmap], per_row) if bitmap else None)
        at += bitmap
    values: Values
    if nothing:
        values = Nothing(items * count)
    elif bits == 1:
        values = _bits(rows[:, at:], items)
    else:
        values = Flat(np.ascontiguousarray(rows[:, at:]).reshape(-1), bits, items * count)
    for (size, _), nulls in zip(reversed(levels), reversed(valid), strict=True):
        items //= size or 1
        values = FixedLists(size, values, nulls, items * count)
    return values


def _bits(rows: Bytes, count: int) -> Flat:
    """Concatenate the first ``count`` bits of each row."""
    bits = np.unpackbits(np.ascontiguousarray(rows), axis=1, count=count, bitorder="little")
    return Flat(np.packbits(bits.reshape(-1), bitorder="little"), 1, bits.size)


def _dictionary(encoding: Any, data: Bytes, count: int) -> Indexed:
    if len(data) < 16:
        raise DamagedPage("a block with a dictionary is too short")
    a, b = (int(n) for n in np.frombuffer(data[:16].tobytes(), "<u8"))
    if a > len(data) - 16 or b > len(data) - 16 - a:
        raise DamagedPage("a block with a dictionary is too short")
    indices = flat_block(encoding.indices, data[16 : 16 + a], count, "indices of a dictionary")
    return Indexed(indices, block(encoding.items, data[16 + a : 16 + a + b], encoding.num_dictionary_items))


def _constant(encoding: Any, data: Bytes, count: int) -> Flat:
    del data
    value = encoding.value
    if count and len(value) not in (1, 2, 4, 8):
        raise UnsupportedPage(f"a constant of {len(value)} bytes is not supported")
    return Flat(np.frombuffer(value * _unbacked(count), np.uint8), 8 * (len(value) or 8), count)


def _range(encoding: Any, data: Bytes, count: int) -> Flat:
    del data
    bits = word_width(encoding.uncompressed_bits_per_value, "a range")
    start, step = (np.uint64(n) for n in (encoding.start, encoding.step))
    numbers = start + step * np.arange(_unbacked(count), dtype=np.uint64)  # they wrap around
    return Flat(numbers.astype(f"<u{bits // 8}").view(np.uint8), bits, count)


def _delta(encoding: Any, data: Bytes, count: int) -> Flat:
    bits = word_width(encoding.uncompressed_bits_per_value, "deltas")
    deltas = flat_block(encoding.deltas, data, max(count - 1, 0), "deltas")
    if deltas.bits != bits:
        raise DamagedPage(f"deltas of {deltas.bits} bits between values of {bits}")
    numbers = np.empty(count, f"<u{bits // 8}")
    numbers[:1] = encoding.base & ((1 << bits) - 1)
    numbers[1:] = deltas.typed()
    return Flat(np.cumsum(numbers, dtype=numbers.dtype).view(np.uint8), bits, count)


def _unbacked(count: int) -> int:
    if count > MAX_UNBACKED:
        raise DamagedPage(f"{count} values without bytes are too many")
    return count


def has_payload(encoding: Any) -> bool:
    """Whether a buffer belongs to an encoding: constants and ranges have none."""
    kind = kind_of(encoding)
    if kind in ("constant", "range"):
        return False
    if kind == "delta":
        return has_payload(encoding.delta.deltas)
    if kind == "rle":
        return has_payload(encoding.rle.values) or has_payload(encoding.rle.run_lengths)
    if kind == "dictionary":
        return has_payload(encoding.dictionary.indices) or has_payload(encoding.dictionary.items)
    return kind != "out_of_line_bitpacking" or encoding.out_of_line_bitpacking.values.flat.bits_per_value > 0


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


def _single(data: Bytes) -> Buffers:
    return Buffers(data, np.zeros(1, np.int64), np.array([len(data)], np.int64))


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
        self.bits = _flat_width(encoding)

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
        return _expanded(values, lengths, self.bits, self.width, counts)


class _CodedRuns(Codec):
    """Runs of encoded values."""

    buffers = 2

    def __init__(self, encoding: Any) -> None:
        self.encoding = encoding

    def all(self, pieces: list[Buffers], counts: Int64s) -> Flat:
        values, ends = pieces
        parts = [runs(self.encoding, values.piece(i), ends.piece(i), n) for i, n in enumerate(counts.tolist())]
        if len({part.bits for part in parts}) > 1:
            raise DamagedPage("the runs of chunks have different widths")
        return Flat(np.concatenate([part.data for part in parts]), parts[0].bits, int(counts.sum()))


def _run_codec(encoding: Any) -> Codec:
    lengths = kind_of(encoding.run_lengths)
    return _Runs(encoding) if kind_of(encoding.values) == "flat" and lengths != "general" else _CodedRuns(encoding)


class _SplitBytes(Codec):
    """Byte stream split: the first bytes of all values, then their second bytes, and so on."""

    def __init__(self, encoding: Any) -> None:
        if kind_of(encoding.values) != "flat" or encoding.values.flat.bits_per_value % 8:
            raise unsupported(encoding.values, "split bytes")
        self.width = int(encoding.values.flat.bits_per_value) // 8

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
    "rle": _run_codec,
    "byte_stream_split": _SplitBytes,
    "fixed_size_list": _FixedSizeLists,
    "packed_struct": _Structs,
    "general": _General,
}


_BLOCKS: dict[str, Any] = {
    "constant": _constant,
    "range": _range,
    "delta": _delta,
    "flat": _flat,
    "inline_bitpacking": _like_chunk(_Inline),
    "out_of_line_bitpacking": _blocks,
    "variable": _variable,
    "fsst": _fsst,
    "general": _general,
    "rle": _run_block,
    "byte_stream_split": _like_chunk(_SplitBytes),
    "fixed_size_list": _lists,
    "dictionary": _dictionary,
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
