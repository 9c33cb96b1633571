"""Dictionary-encode pages: distinct values, and an index for each value."""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.common.unaligned import load64, read_only
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.compression import compress, general
from trilake.lance.v2.encode_miniblock import Items
from trilake.lance.v2.encode_options import Options
from trilake.lance.v2.encode_values import Strings, copy_strings, flat, variable

#: Minimum values of a page with a dictionary, and maximum entries of the dictionary.
MIN_VALUES, MAX_ITEMS = 100, 100_000
#: After this many values, give up if nearly all of them are distinct.
_PROBE = 32_768
#: 2.1 compresses dictionaries of at least this many bytes.
_LARGE = 32_768


def distinct_words(values: Any, options: Options) -> tuple[Any, Any] | None:
    """Return the distinct 64-bit values, and the index of each value; ``None`` if there are too many."""
    found = _find(find_words, len(values), options, read_only(values))
    return None if found is None else (values[found[0]], found[1])


def distinct_strings(strings: Strings, options: Options) -> tuple[Strings, Any] | None:
    """Return the distinct strings, and the index of each string; ``None`` if there are too many."""
    found = _find(find_strings, len(strings), options, strings.offsets, strings.data)
    return None if found is None else (pick(strings, found[0]), found[1])


def _find(kernel: Any, count: int, options: Options, *source: Any) -> tuple[Any, Any] | None:
    indices = np.empty(count, np.uint32)
    firsts = np.empty(max(min(count // options.dict_divisor, MAX_ITEMS), 1), np.int64)
    found = kernel(*source, indices, firsts, _PROBE)
    return None if found < 0 else (firsts[:found], indices)


def pick(strings: Strings, numbers: Any) -> Strings:
    """Return the strings with these numbers, in this order."""
    offsets = np.zeros(len(numbers) + 1, strings.offsets.dtype)
    np.cumsum(strings.offsets[numbers + 1] - strings.offsets[numbers], out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    copy_strings(strings.offsets, strings.data, numbers, offsets, data)
    return Strings(offsets, data)


def string_items(strings: Strings, options: Options, minor: int) -> Items:
    """Encode a dictionary of strings."""
    offsets, data = strings.offsets, strings.data
    # One block: offset width, start of the bytes, offsets from 0, bytes.
    head = np.array([offsets.itemsize * 8, offsets.itemsize * (2 + len(offsets))], offsets.dtype.type)
    block = b"".join((head.tobytes(), (offsets - offsets[0]).tobytes(), data[offsets[0] : offsets[-1]].tobytes()))
    return _items(block, variable(8 * offsets.itemsize), len(strings), options, minor)


def fixed_items(values: Any, bits: int, count: int, options: Options, minor: int) -> Items:
    """Encode a dictionary of fixed-width values."""
    return _items(values.tobytes(), flat(bits), count, options, minor)


def _items(data: bytes, encoding: pb.CompressiveEncoding, count: int, options: Options, minor: int) -> Items:
    scheme = options.dict_values or ("lz4" if minor >= 2 else "zstd" if len(data) >= _LARGE else "none")
    if scheme != "none":
        compressed = compress(data, scheme, options.dict_values_level)
        if len(compressed) < len(data):
            return Items(general(scheme, options.dict_values_level, encoding), compressed, count)
    return Items(encoding, data, count)


@jit
def find_words(values: Any, indices: Any, firsts: Any, probe: int) -> int:
    """Fill in the index of each value and the first row of each distinct one; return how many, -1 if too many."""
    size = 1024
    while size < 2 * len(firsts):
        size *= 2
    table = np.full(size, -1, np.int32)
    count = 0
    for i in range(len(values)):
        h = values[i] * np.uint64(0x9E3779B97F4A7C15)
        slot = np.int64((h ^ (h >> np.uint64(32))) & np.uint64(size - 1))
        while table[slot] >= 0 and values[firsts[table[slot]]] != values[i]:
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            if count == len(firsts):
                return -1
            firsts[count] = i
            table[slot] = count
            count += 1
        indices[i] = table[slot]
        if i == probe and count > probe * 15 // 16:
            return -1
    return count


@jit
def hash_string(data: Any, start: int, end: int) -> Any:
    """Hash a string to 64 bits."""
    h = np.uint64(end - start) * np.uint64(0x9E3779B97F4A7C15)
    at = start
    while at + 8 <= end:
        h = (h ^ load64(data, at)) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(32)
        at += 8
    rest = np.uint64(0)
    while at < end:
        rest = (rest << np.uint64(8)) | np.uint64(data[at])
        at += 1
    h = (h ^ rest) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(29))


@jit
def same_string(data: Any, a: int, b: int, size: int) -> bool:
    """Whether the bytes at two positions are equal."""
    at = 0
    while at + 8 <= size:
        if load64(data, a + at) != load64(data, b + at):
            return False
        at += 8
    while at < size:
        if data[a + at] != data[b + at]:
            return False
        at += 1
    return True


@jit
def find_strings(offsets: Any, data: Any, indices: Any, firsts: Any, probe: int) -> int:
    """Find distinct strings; parameters and result are those of :func:`find_words`."""
    slots = 1024
    while slots < 2 * len(firsts):
        slots *= 2
    table = np.full(slots, -1, np.int32)
    count = 0
    for i in range(len(offsets) - 1):
        start, end = offsets[i], offsets[i + 1]
        slot = np.int64(hash_string(data, start, end) & np.uint64(slots - 1))
        while table[slot] >= 0:
            first = firsts[table[slot]]
            size = offsets[first + 1] - offsets[first]
            if size == end - start and same_string(data, offsets[first], start, size):
                break
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:
            if count == len(firsts):
                return -1
            firsts[count] = i
            table[slot] = count
            count += 1
        indices[i] = table[slot]
        if i == probe and count > probe * 15 // 16:
            return -1
    return count
