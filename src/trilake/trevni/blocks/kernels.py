"""Loops over values, to decode and encode blocks (spec: "Primitive Values", "Column Metadata").

Numba compiles these functions and caches the result on disk.  With ``TRILAKE_NUMBA=0``, or without numba, they run in
Python.  So they must work both ways: ``0 + buf[i]`` widens a byte.

Compiled code does not check bounds.  A decoder never reads beyond ``end`` and never writes beyond its targets, whatever
the block contains: their sizes follow from that of the block and its number of values.  Its first result is a status of
:mod:`~trilake.trevni.blocks.layout`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from trilake.common.jit import COMPILED, jit
from trilake.common.unaligned import load64, store64
from trilake.trevni.blocks import layout as k

F = TypeVar("F", bound=Callable[..., Any])
Array = np.ndarray[Any, Any]
Bytes = Any  # numpy uint8 array, or bytes when interpreted: indexing must give an int

MAX64 = 0x7FFFFFFFFFFFFFFF

if COMPILED:
    import numba


_inline: Callable[[F], F] = cast(Any, numba.njit(nogil=True, inline="always")) if COMPILED else lambda f: f


def readable(data: Any) -> Bytes:
    """Convert bytes to the type of the kernels' parameters."""
    return np.frombuffer(data, np.uint8) if COMPILED else bytes(data)


@_inline
def _copy(target: Array, t: int, source: Bytes, s: int, size: int) -> None:
    """Copy ``size`` bytes; the next 15 bytes of the target may be overwritten."""
    # Most strings are so short that a call of memcpy takes longer than the copy.
    if COMPILED and size + 15 <= len(source) - s and size + 15 <= len(target) - t:
        for j in range(0, size, 16):
            low, high = load64(source, s + j), load64(source, s + j + 8)
            store64(target, t + j, low)
            store64(target, t + j + 8, high)
    else:
        for j in range(size):
            target[t + j] = source[s + j]


@jit
def read_varint(buf: Bytes, position: int, end: int, most: int) -> tuple[int, int, int]:
    """Read a zig-zag integer of at most ``most`` bytes (5 or 10); returns status, value and next position."""
    value = 0
    shift = 0
    last = 7 * (most - 1)
    while position < end:
        byte = 0 + buf[position]
        position += 1
        if shift == last:
            if byte >= 128:
                return k.OVERLONG, 0, position
            # The last byte has 4 of the 32 bits, or 1 of the 64.
            if byte > (15 if most == 5 else 1):
                return k.TOO_BIG, 0, position
        value |= (byte & 127) << shift
        if byte < 128:
            return k.OK, ((value >> 1) & MAX64) ^ -(value & 1), position
        shift += 7
    return k.TRUNCATED, 0, position


# --- decoding --------------------------------------------------------------------------------------------------------


@jit
def decode_varints(buf: Bytes, end: int, most: int, out: Array, at: int, count: int) -> tuple[int, int]:
    """Decode ``count`` integers to ``out`` from index ``at``; returns status and position."""
    position = 0
    for i in range(at, at + count):
        status, value, position = read_varint(buf, position, end, most)
        if status != k.OK:
            return status, position
        out[i] = value
    return k.OK, position


@jit
def decode_strings(
    buf: Bytes, end: int, offsets: Array, at: int, count: int, data: Array, filled: int
) -> tuple[int, int, int]:
    """Decode ``count`` byte strings: ends to ``offsets`` from ``at + 1``, bytes to ``data`` from ``filled``.
    Returns status, position and end of the data.
    """
    position = 0
    for i in range(at, at + count):
        status, size, position = read_varint(buf, position, end, 5)
        if status != k.OK:
            return status, position, filled
        if size < 0:
            return k.NEGATIVE, position, filled
        # Leave a byte for the length of each remaining value: ``data`` has room for all other bytes.
        if size > end - position - (at + count - 1 - i):
            return k.TRUNCATED, position, filled
        _copy(data, filled, buf, position, size)
        position += size
        filled += size
        offsets[i + 1] = filled
    return k.OK, position, filled


@jit
def decode_array(
    buf: Bytes,
    end: int,
    kind: int,
    width: int,
    slots: int,
    lengths: Array,
    at: int,
    ints: Array,
    offsets: Array,
    data: Array,
) -> tuple[int, int, int, int]:
    """Decode a block of an array column: for each of ``slots`` slots a length and that many values.

    ``width`` is the maximum size of a varint, or the size of a fixed value.  Lengths go to ``lengths`` from index
    ``at``, integers to ``ints``, strings to ``data`` with ``offsets``, fixed values to ``data``, and booleans to
    ``data``, one byte each.  These arrays are as long as the block, which suffices: all values except nulls take at
    least a bit.

    Returns status, position, number of values, and bytes written to ``data``.
    """
    position = 0
    slot = 0
    count = 0
    filled = 0
    while slot < slots:
        status, size, position = read_varint(buf, position, end, 5)
        if status != k.OK:
            return status, position, count, filled
        run = 1
        if size < 0:
            run = ((1 - size) >> 1) + 1
            size = (size + 1) & 1
            if run > slots - slot:
                return k.RUN, position, count, filled
        # In a run, the booleans of each element start at a new byte.
        if kind == k.KIND_NULL or size == 0:
            for i in range(run):
                lengths[at + slot + i] = size
            count += run * size
        else:
            for i in range(run):
                lengths[at + slot + i] = size
                if kind == k.KIND_VARINT:
                    for _ in range(size):
                        status, value, position = read_varint(buf, position, end, width)
                        if status != k.OK:
                            return status, position, count, filled
                        ints[count] = value
                        count += 1
                elif kind == k.KIND_FIXED:
                    if size > (end - position) // width:
                        return k.TRUNCATED, position, count, filled
                    _copy(data, filled, buf, position, size * width)
                    position += size * width
                    filled += size * width
                    count += size
                elif kind == k.KIND_BOOL:
                    if size > (end - position) * 8:
                        return k.TRUNCATED, position, count, filled
                    for j in range(size):
                        data[filled + j] = (0 + buf[position + (j >> 3)] >> (j & 7)) & 1
                    position += (size + 7) >> 3
                    filled += size
                    count += size
                else:
                    for _ in range(size):
                        status, length, position = read_varint(buf, position, end, 5)
                        if status != k.OK:
                            return status, position, count, filled
                        if length < 0:
                            return k.NEGATIVE, position, count, filled
                        if length > end - position:
                            return k.TRUNCATED, position, count, filled
                        _copy(data, filled, buf, position, length)
                        position += length
                        filled += length
                        count += 1
                        offsets[count] = filled
        slot += run
    return k.OK, position, count, filled


# --- encoding --------------------------------------------------------------------------------------------------------


@jit
def write_varint(out: Array, position: int, value: int) -> int:
    """Write a zig-zag integer at ``position``; returns the next position."""
    raw = (value << 1) ^ (value >> 63)
    # The first shift is logical: it clears the sign bit.
    if raw < 0 or raw > 127:
        out[position] = (raw & 127) | 128
        position += 1
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
        while raw > 127:
            out[position] = (raw & 127) | 128
            position += 1
            raw >>= 7
    out[position] = raw
    return position + 1


@jit
def encode_varints(values: Array, at: int, out: Array, position: int, full: int) -> tuple[int, int]:
    """Encode integers from ``at`` on until ``position`` reaches ``full``; returns next value and next position."""
    count = len(values)
    while at < count and position < full:
        position = write_varint(out, position, values[at])
        at += 1
    return at, position


@jit
def encode_strings(
    offsets: Array, data: Bytes, at: int, end: int, out: Array, position: int, full: int
) -> tuple[int, int]:
    """Encode byte strings ``at`` to ``end`` with their lengths; limits and results as in :func:`encode_varints`."""
    while at < end and position < full:
        start = offsets[at]
        size = offsets[at + 1] - start
        position = write_varint(out, position, size)
        _copy(out, position, data, start, size)
        position += size
        at += 1
    return at, position


@jit
def _flush_run(out: Array, position: int, state: Array) -> int:
    run, value = state[0], state[1]
    state[0] = 0
    state[1] = -1
    if run == 0:
        return position
    state[2] = 0
    return write_varint(out, position, value if run == 1 else (3 - value) - 2 * run)


@jit
def encode_rows(
    row: int,
    rows: int,
    row_slots: Array,
    array: bool,
    slot_values: Array,
    kind: int,
    width: int,
    ints: Array,
    offsets: Array,
    data: Bytes,
    out: Array,
    position: int,
    full: int,
    state: Array,
) -> tuple[int, int]:
    """Encode rows from ``row`` to ``out`` until ``position`` reaches ``full``; returns next row and next position.

    Row ``r`` has the slots ``row_slots[r]`` to ``row_slots[r + 1]``; in an array column, slot ``s`` has the values
    ``slot_values[s]`` to ``slot_values[s + 1]``.  ``state`` is the state within a block: count and value of the pending
    run of lengths, and the used bits of the last byte of booleans.
    """
    while row < rows and position < full:
        for slot in range(row_slots[row], row_slots[row + 1]):
            first, last = slot, slot + 1
            if array:
                first, last = slot_values[slot], slot_values[slot + 1]
                size = last - first
                if size == state[1] and state[0] < k.MAX_RUN:
                    state[0] += 1
                else:
                    position = _flush_run(out, position, state)
                    if size <= 1:
                        state[0] = 1
                        state[1] = size
                    else:
                        state[2] = 0
                        position = write_varint(out, position, size)
                if kind != k.KIND_NULL and size > 0:
                    # The pending length comes before its values.
                    position = _flush_run(out, position, state)
            if kind == k.KIND_VARINT:
                for i in range(first, last):
                    position = write_varint(out, position, ints[i])
            elif kind == k.KIND_FIXED:
                _copy(out, position, data, first * width, (last - first) * width)
                position += (last - first) * width
            elif kind == k.KIND_BOOL:
                for i in range(first, last):
                    bit = state[2]
                    if bit == 0:
                        out[position] = 0
                        position += 1
                    if data[i] != 0:
                        out[position - 1] |= 1 << bit
                    state[2] = (bit + 1) & 7
            elif kind == k.KIND_BYTES:
                for i in range(first, last):
                    start, stop = offsets[i], offsets[i + 1]
                    position = write_varint(out, position, stop - start)
                    _copy(out, position, data, start, stop - start)
                    position += stop - start
        row += 1
    return row, position


@jit
def end_block(out: Array, position: int, state: Array) -> int:
    """Write the pending run and reset ``state``; returns the next position."""
    position = _flush_run(out, position, state)
    state[2] = 0
    return position
