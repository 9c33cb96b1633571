"""Loops over values, to decode and encode blocks (spec: "Primitive Values", "Column Metadata").

Numba compiles these functions and caches the result on disk.  With ``TRILAKE_NUMBA=0``, or without numba, plain columns
use numpy, and array columns run the same functions in Python.  So the functions must work both ways: ``0 + buf[i]``
widens a byte.

Compiled code does not check bounds.  A decoder never reads beyond ``end`` and never writes beyond its targets, whatever
the block contains: their sizes follow from that of the block and its number of values.  Its first result is a status of
:mod:`~trilake.trevni.blocks.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from trilake.common.jit import COMPILED, jit
from trilake.trevni.blocks.kinds import (
    KIND_BOOLEAN,
    KIND_BYTES,
    KIND_FIXED,
    KIND_NULL,
    KIND_VARINT,
    MAX_RUN,
    NEGATIVE,
    OK,
    OVERLONG,
    RUN,
    TOO_BIG,
    TRUNCATED,
)

F = TypeVar("F", bound=Callable[..., Any])
Array = np.ndarray[Any, Any]
Bytes = Any  # numpy uint8 array, or bytes when interpreted: indexing must give an int

MAX64 = 0x7FFFFFFFFFFFFFFF

if COMPILED:
    import numba
    from llvmlite import ir  # type: ignore[import-untyped]  # no types published
    from numba.extending import intrinsic


_inline: Callable[[F], F] = (
    cast(Any, numba.njit(nogil=True, inline="always")) if COMPILED else lambda function: function
)


def readable(data: Any) -> Bytes:
    """Convert bytes to the type of the kernels' parameters."""
    return np.frombuffer(data, np.uint8) if COMPILED else bytes(data)


def _load_store(context: Any, target: Any, t: Any, source: Any, s: Any) -> Any:
    """Generate the code of :data:`_copy16`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 16).as_pointer()
        target_type, _, source_type, _ = signature.args
        to = context.make_array(target_type)(context, builder, args[0]).data
        of = context.make_array(source_type)(context, builder, args[2]).data
        loaded = builder.load(builder.bitcast(builder.gep(of, [args[3]]), vector))
        loaded.align = 1
        stored = builder.store(loaded, builder.bitcast(builder.gep(to, [args[1]]), vector))
        stored.align = 1
        return context.get_dummy_value()

    return numba.void(target, numba.intp, source, numba.intp), generate


def _copy16_interpreted(target: Array, t: int, source: Bytes, s: int) -> None:
    target[t : t + 16] = np.frombuffer(source, np.uint8, 16, s)


_copy16: Any = intrinsic(_load_store) if COMPILED else _copy16_interpreted
#: Copies 16 bytes between uint8 arrays, from index ``s`` to index ``t``, with one load and one store.


@_inline
def _copy(target: Array, t: int, source: Bytes, s: int, size: int) -> None:
    """Copy ``size`` bytes; the next 15 bytes of the target may be overwritten."""
    # Most strings are so short that a call of memcpy takes longer than the copy.
    if size + 15 <= len(source) - s and size + 15 <= len(target) - t:
        for j in range(0, size, 16):
            _copy16(target, t + j, source, s + j)
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
                return OVERLONG, 0, position
            # The last byte has 4 of the 32 bits, or 1 of the 64.
            if byte > (15 if most == 5 else 1):
                return TOO_BIG, 0, position
        value |= (byte & 127) << shift
        if byte < 128:
            return OK, ((value >> 1) & MAX64) ^ -(value & 1), position
        shift += 7
    return TRUNCATED, 0, position


# --- decoding --------------------------------------------------------------------------------------------------------


@jit
def _decode_varints(buf: Bytes, position: int, end: int, most: int, out: Array, at: int, count: int) -> tuple[int, int]:
    for i in range(at, at + count):
        if position < end and buf[position] < 128:
            byte = 0 + buf[position]
            out[i] = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            status, value, position = read_varint(buf, position, end, most)
            if status != OK:
                return status, position
            out[i] = value
    return OK, position


@jit
def _decode_strings(
    buf: Bytes, position: int, end: int, offsets: Array, at: int, count: int, data: Array, filled: int
) -> tuple[int, int, int]:
    for i in range(at, at + count):
        if position < end and buf[position] < 128:
            byte = 0 + buf[position]
            size = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            status, size, position = read_varint(buf, position, end, 5)
            if status != OK:
                return status, position, filled
        if size < 0:
            return NEGATIVE, position, filled
        # Leave a byte for the length of each remaining value: ``data`` has room for all other bytes.
        if size > end - position - (at + count - 1 - i):
            return TRUNCATED, position, filled
        _copy(data, filled, buf, position, size)
        position += size
        filled += size
        offsets[i + 1] = filled
    return OK, position, filled


@jit
def decode_array(
    buf: Bytes,
    position: int,
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
    slot = 0
    count = 0
    filled = 0
    while slot < slots:
        status, size, position = read_varint(buf, position, end, 5)
        if status != OK:
            return status, position, count, filled
        run = 1
        if size < 0:
            run = ((1 - size) >> 1) + 1
            size = (size + 1) & 1
            if run > slots - slot:
                return RUN, position, count, filled
        # In a run, the booleans of each element start at a new byte.
        if kind == KIND_NULL or size == 0:
            for i in range(run):
                lengths[at + slot + i] = size
            count += run * size
        else:
            for i in range(run):
                lengths[at + slot + i] = size
                if kind == KIND_VARINT:
                    for _ in range(size):
                        status, value, position = read_varint(buf, position, end, width)
                        if status != OK:
                            return status, position, count, filled
                        ints[count] = value
                        count += 1
                elif kind == KIND_FIXED:
                    if size > (end - position) // width:
                        return TRUNCATED, position, count, filled
                    _copy(data, filled, buf, position, size * width)
                    position += size * width
                    filled += size * width
                    count += size
                elif kind == KIND_BOOLEAN:
                    if size > (end - position) * 8:
                        return TRUNCATED, position, count, filled
                    for j in range(size):
                        data[filled + j] = (0 + buf[position + (j >> 3)] >> (j & 7)) & 1
                    position += (size + 7) >> 3
                    filled += size
                    count += size
                else:
                    for _ in range(size):
                        status, length, position = read_varint(buf, position, end, 5)
                        if status != OK:
                            return status, position, count, filled
                        if length < 0:
                            return NEGATIVE, position, count, filled
                        if length > end - position:
                            return TRUNCATED, position, count, filled
                        _copy(data, filled, buf, position, length)
                        position += length
                        filled += length
                        count += 1
                        offsets[count] = filled
        slot += run
    return OK, position, count, filled


def _decode_varints_numpy(
    buf: Bytes, position: int, end: int, most: int, out: Array, at: int, count: int
) -> tuple[int, int]:
    raw = np.frombuffer(buf, np.uint8)[position:end]
    ends = np.flatnonzero(raw < 128)[:count]
    sizes = np.diff(ends, prepend=-1)
    if sizes.size and sizes.max() > most:
        return OVERLONG, position
    if len(ends) < count:
        # The last value is too long or truncated.
        return (OVERLONG if len(raw) - (int(ends[-1]) + 1 if len(ends) else 0) >= most else TRUNCATED), position
    if not count:
        return OK, position
    if (raw[ends[sizes == most]] > (15 if most == 5 else 1)).any():
        return TOO_BIG, position
    used = raw[: ends[-1] + 1]
    starts = ends - sizes + 1
    place = np.arange(len(used)) - np.repeat(starts, sizes)
    bits = (used & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
    value = np.bitwise_or.reduceat(bits, starts)
    one = np.uint64(1)
    out[at : at + count] = (value >> one).view(np.int64) ^ -((value & one).view(np.int64))
    return OK, position + len(used)


decode_varints = _decode_varints if COMPILED else _decode_varints_numpy
#: Decode ``count`` integers to ``out`` from index ``at``; returns status and position.

decode_strings = _decode_strings
#: Decode ``count`` byte strings: ends to ``offsets`` from index ``at + 1``, bytes to ``data`` from index ``filled``.
#: Returns status, position and end of the data.


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
def _encode_varints(values: Array, at: int, out: Array, position: int, full: int) -> tuple[int, int]:
    count = len(values)
    while at < count and position < full:
        value = values[at]
        raw = (value << 1) ^ (value >> 63)
        if 0 <= raw < 128:
            out[position] = raw
            position += 1
        else:
            position = write_varint(out, position, value)
        at += 1
    return at, position


@jit
def _encode_strings(
    offsets: Array, data: Bytes, at: int, end: int, out: Array, position: int, full: int
) -> tuple[int, int]:
    while at < end and position < full:
        start = offsets[at]
        size = offsets[at + 1] - start
        if size < 64:
            out[position] = size << 1
            position += 1
        else:
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
                if size == state[1] and state[0] < MAX_RUN:
                    state[0] += 1
                else:
                    position = _flush_run(out, position, state)
                    if size <= 1:
                        state[0] = 1
                        state[1] = size
                    else:
                        state[2] = 0
                        position = write_varint(out, position, size)
                if kind != KIND_NULL and size > 0:
                    # The pending length comes before its values.
                    position = _flush_run(out, position, state)
            if kind == KIND_VARINT:
                for i in range(first, last):
                    position = write_varint(out, position, ints[i])
            elif kind == KIND_FIXED:
                _copy(out, position, data, first * width, (last - first) * width)
                position += (last - first) * width
            elif kind == KIND_BOOLEAN:
                for i in range(first, last):
                    bit = state[2]
                    if bit == 0:
                        out[position] = 0
                        position += 1
                    if data[i] != 0:
                        out[position - 1] |= 1 << bit
                    state[2] = (bit + 1) & 7
            elif kind == KIND_BYTES:
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


def _varint_bytes(values: Array) -> tuple[Array, Array]:
    """Encode integers; returns all bytes, and the size of each value."""
    raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.ones(len(raw), np.int64)
    for bits in range(7, 64, 7):
        sizes += raw >= np.uint64(1 << bits)
    starts = np.cumsum(sizes) - sizes
    place = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
    out = (np.repeat(raw, sizes) >> (7 * place).astype(np.uint64)).astype(np.uint8) & 127
    last = np.cumsum(sizes) - 1
    more = np.full(len(out), 128, np.uint8)
    more[last] = 0
    return out | more, sizes


def _cut(sizes: Array, position: int, full: int) -> int:
    """Return how many rows of these sizes fit a block with ``position`` bytes that is closed at ``full`` bytes."""
    if position >= full:
        return 0
    return min(int(np.searchsorted(np.cumsum(sizes), full - position, side="left")) + 1, len(sizes))


def _encode_varints_numpy(values: Array, at: int, out: Array, position: int, full: int) -> tuple[int, int]:
    # A value takes at least one byte, so these fill the block.
    encoded, sizes = _varint_bytes(values[at : at + max(full - position, 0)].astype(np.int64))
    count = _cut(sizes, position, full)
    used = int(sizes[:count].sum())
    out[position : position + used] = encoded[:used]
    return at + count, position + used


def _encode_strings_numpy(
    offsets: Array, data: Bytes, at: int, end: int, out: Array, position: int, full: int
) -> tuple[int, int]:
    ends = offsets[at : min(end, at + max(full - position, 0)) + 1].astype(np.int64)
    prefix, prefix_sizes = _varint_bytes(np.diff(ends))
    sizes = np.diff(ends) + prefix_sizes
    count = _cut(sizes, position, full)
    sizes, prefix_sizes, ends = sizes[:count], prefix_sizes[:count], ends[: count + 1]
    used = int(sizes.sum())
    starts = np.cumsum(sizes) - sizes
    place = np.arange(used) - np.repeat(starts, sizes)
    is_prefix = place < np.repeat(prefix_sizes, sizes)
    block = np.empty(used, np.uint8)
    block[is_prefix] = prefix[: int(prefix_sizes.sum())]
    block[~is_prefix] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if count else 0
    out[position : position + used] = block
    return at + count, position + used


encode_varints = _encode_varints if COMPILED else _encode_varints_numpy
#: Encode integers from ``at`` to ``out`` until ``position`` reaches ``full``; returns next value and next position.

encode_strings = _encode_strings if COMPILED else _encode_strings_numpy
#: Encode byte strings ``at`` to ``end`` with their lengths; limits and results are those of :data:`encode_varints`.
