"""Dictionary-encode pages: distinct values, and an index for each value."""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_blocks import variable_block
from trilake.lance.v2.encode_chunks import flat
from trilake.lance.v2.encode_general import compress, general
from trilake.lance.v2.encode_miniblock import Items
from trilake.lance.v2.encode_options import Options
from trilake.lance.v2.encode_strings import Strings, variable
from trilake.lance.v2.unaligned import load64, read_only

#: Minimum values of a page with a dictionary, and maximum entries of the dictionary.
MIN_VALUES, MAX_ITEMS = 100, 100_000
#: After this many values, give up if nearly all of them are distinct.
_PROBE = 32_768
#: 2.1 compresses dictionaries of at least this many bytes.
_LARGE = 32_768


def distinct_words(values: Any, options: Options) -> tuple[Any, Any] | None:
    """Return the distinct 64-bit values, and the index of each value; ``None`` if there are too many."""
    limit = _limit(len(values), options)
    indices, firsts = np.empty(len(values), np.uint32), np.empty(limit, np.int64)
    count = find_words(read_only(values), indices, firsts, _PROBE)
    return None if count < 0 else (values[firsts[:count]], indices)


def distinct_strings(strings: Strings, options: Options) -> tuple[Strings, Any] | None:
    """Return the distinct strings, and the index of each string; ``None`` if there are too many."""
    limit = _limit(len(strings), options)
    indices, firsts = np.empty(len(strings), np.uint32), np.empty(limit, np.int64)
    count = find_strings(strings.offsets, strings.data, indices, firsts, _PROBE)
    if count < 0:
        return None
    return pick(strings, firsts[:count]), indices


def pick(strings: Strings, numbers: Any) -> Strings:
    """Return the strings with these numbers, in this order."""
    offsets = np.zeros(len(numbers) + 1, strings.offsets.dtype)
    np.cumsum(strings.offsets[numbers + 1] - strings.offsets[numbers], out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    copy_strings(strings.offsets, strings.data, numbers, offsets, data)
    return Strings(offsets, data)


def string_items(strings: Strings, options: Options, minor: int) -> Items:
    """Encode a dictionary of strings."""
    encoding = variable(8 * strings.offsets.itemsize)
    return _items(variable_block(strings.offsets, strings.data), encoding, len(strings), options, minor)


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


def _limit(count: int, options: Options) -> int:
    return max(min(count // options.dict_divisor, MAX_ITEMS), 1)


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
            if offsets[first + 1] - offsets[first] == end - start and same_string(
                data, offsets[first], start, end - start
            ):
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


@jit
def copy_strings(offsets: Any, data: Any, numbers: Any, places: Any, target: Any) -> None:
    """Copy the strings with these numbers, each to its position in ``target``."""
    for i in range(len(numbers)):
        start = offsets[numbers[i]]
        size = offsets[numbers[i] + 1] - start
        target[places[i] : places[i] + size] = data[start : start + size]
