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
    lengths, width = flat_block(of_lengths, lengths, number, "run lengths").data, length_width(of_lengths)
    values, bits = coded.data, word_width(coded.bits, "runs")
    one, counts = np.zeros(1, np.int64), np.array([count], np.int64)
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


def _uncompressed(encoding: Any, data: Bytes) -> tuple[Any, Bytes]:
    """Undo general compression."""
    while kind_of(encoding) == "general":
        data = decompressed(scheme(encoding.general.compression), data)
        encoding = encoding.general.values
    return encoding, data


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


_CODECS: dict[str, Any] = {
    "constant": _constant,
    "range": _range,
    "delta": _delta,
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
