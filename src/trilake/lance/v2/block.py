"""Block codecs: decode one buffer with a given number of values, such as levels or a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.lance.v2.compression import decompressed, scheme
from trilake.lance.v2.fsst import SymbolTable
from trilake.lance.v2.kernel_loader import kernels
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
)

#: Maximum values without bytes in one piece: a tiny file must not exhaust the memory.
MAX_UNBACKED = 1 << 25
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
    decode = _CODECS.get(kind)
    if decode is None:
        raise unsupported(encoding, "a block")
    values: Values = decode(getattr(encoding, kind), data, count)
    return values


def flat_block(encoding: Any, data: Bytes, count: int, place: str) -> Flat:
    """Decode ``count`` numbers or booleans from a buffer.  Raises ``DamagedPage``."""
    values = block(encoding, data, count)
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
    bits = encoding.bits_per_value
    if encoding.HasField("data"):
        data = decompressed(scheme(encoding.data), data)
    if bits != 1 and (bits % 8 or not bits):
        raise UnsupportedPage(f"values of {bits} bits are not supported")
    if count * bits > 8 * len(data):
        raise DamagedPage(f"{len(data)} bytes are too few for {count} values of {bits} bits")
    return Flat(data[: (count * bits + 7) // 8], bits, count)


def _inline(encoding: Any, data: Bytes, count: int) -> Flat:
    bits = word_width(encoding.uncompressed_bits_per_value)
    out = np.empty(kernels().BLOCK, f"<u{bits // 8}")
    at, size, counts = (np.array([n], np.int64) for n in (0, len(data), count))
    if kernels().unpack_inline(words_of(data, bits), at, size, counts, out) >= 0:
        raise DamagedPage(f"{len(data)} packed bytes are too few for {count} values")
    return Flat(out[:count].view(np.uint8), bits, count)


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
        raise DamagedPage("the offsets of a block of strings or bytes lie outside the block")
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


def _runs(encoding: Any, data: Bytes, count: int) -> Flat:
    if len(data) < 8:
        raise DamagedPage("a block of runs is too short")
    size = int.from_bytes(data[:8].tobytes(), "little")
    if size > len(data) - 8:
        raise DamagedPage("a block of runs is too short")
    return runs(encoding, data[8 : 8 + size], data[8 + size :], np.array([count], np.int64))


def runs(encoding: Any, values: Bytes, lengths: Bytes, counts: Any) -> Flat:
    """Decode one piece of runs; its values or its lengths, but not both, may be encoded blocks."""
    width, bits = run_width(encoding), None
    if kind_of(encoding.values) == "flat":
        bits = word_width(encoding.values.flat.bits_per_value, "runs")
        number = len(values) * 8 // bits
        if width is None:
            lengths = flat_block(encoding.run_lengths, lengths, number, "run lengths").data
    else:
        if width is None:
            raise unsupported(encoding.run_lengths, "run lengths")
        number = len(lengths) // width
        coded = flat_block(encoding.values, values, number, "runs")
        values, bits = coded.data, word_width(coded.bits, "runs")
    width = width or length_width(encoding.run_lengths)
    count = int(counts.sum())
    one = np.zeros(1, np.int64)
    values_size, lengths_size = (np.array([len(each)], np.int64) for each in (values, lengths))
    total = np.empty(1, np.int64)
    kernels().count_runs(lengths, one, lengths_size, width, total)
    if count > min(int(total[0]), MAX_UNBACKED + 8 * len(values)):
        raise DamagedPage(f"runs of {total[0]} values are too few for {count}")
    out = allocate(count * bits // 8).view(f"<u{bits // 8}")
    words = words_of(values, bits)
    if kernels().expand_runs(words, one, values_size, lengths, one, lengths_size, width, counts, out) >= 0:
        raise DamagedPage(f"runs are too few for {count} values")
    return Flat(out.view(np.uint8), bits, count)


def run_width(encoding: Any) -> int | None:
    """Bytes of a stored run length; ``None`` if the lengths are encoded."""
    if kind_of(encoding.run_lengths) != "flat":
        return None
    return length_width(encoding.run_lengths)


def length_width(encoding: Any) -> int:
    """Bytes of a decoded run length.  Raises ``DamagedPage``."""
    kind = kind_of(encoding)
    if kind == "general":
        return length_width(encoding.general.values)
    each = getattr(encoding, kind) if kind in ("flat", "out_of_line_bitpacking", "inline_bitpacking") else None
    bits = 0 if each is None else each.bits_per_value if kind == "flat" else each.uncompressed_bits_per_value
    if bits not in (8, 16, 32):
        raise unsupported(encoding, "run lengths")
    return int(bits) // 8


def _split(encoding: Any, data: Bytes, count: int) -> Flat:
    bits = split_width(encoding)
    if count * bits // 8 > len(data):
        raise DamagedPage(f"{len(data)} bytes are too few for {count} values of {bits} bits")
    rows = data[: count * bits // 8].reshape(bits // 8, count)
    return Flat(np.ascontiguousarray(rows.T).reshape(-1), bits, count)


def split_width(encoding: Any) -> int:
    """Bit width of values with split bytes.  Raises ``DamagedPage``."""
    if kind_of(encoding.values) != "flat" or encoding.values.flat.bits_per_value % 8:
        raise unsupported(encoding.values, "split bytes")
    return int(encoding.values.flat.bits_per_value)


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


_CODECS: dict[str, Any] = {
    "flat": _flat,
    "inline_bitpacking": _inline,
    "out_of_line_bitpacking": _blocks,
    "variable": _variable,
    "fsst": _fsst,
    "general": _general,
    "rle": _runs,
    "byte_stream_split": _split,
    "fixed_size_list": _lists,
    "dictionary": _dictionary,
}
