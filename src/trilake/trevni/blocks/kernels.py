"""The loops that run once a value: decoding and encoding blocks (spec: "Primitive Values", "Column Metadata").

Compiled by numba, which caches the result on disk; with ``TRILAKE_NUMBA=0``, or where numba cannot be loaded, plain
columns go through numpy and array columns through the same functions, interpreted.  Everything below the decorator is
therefore Python and numba at once: buffers are read as ``0 + buf[i]`` to leave the 8-bit type behind.

A decoder never takes a value from beyond ``end``, and returns a status of :mod:`~trilake.trevni.blocks.kinds` first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

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

COMPILED = False
if os.environ.get("TRILAKE_NUMBA", "1") != "0":
    try:
        import numba
        from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
        from numba.extending import intrinsic

        COMPILED = True
    except ImportError:  # numba lags behind new Python and numpy releases
        pass


def _interpreted(function: F) -> F:
    return function


def _compiled(function: F) -> F:
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no folder to cache in: neither the package's nor the user's can be written
        return cast(F, numba.njit(nogil=True)(function))


_jit: Callable[[F], F] = _compiled if COMPILED else _interpreted
_inline: Callable[[F], F] = cast(Any, numba.njit(nogil=True, inline="always")) if COMPILED else _interpreted


def readable(data: Any) -> Bytes:
    """The bytes as the kernels want them."""
    return np.frombuffer(data, np.uint8) if COMPILED else bytes(data)


def _load_store(context: Any, target: Any, t: Any, source: Any, s: Any) -> Any:
    """The code of :data:`_copy16`."""

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
#: Copies 16 bytes of a uint8 array from ``s`` on to ``t`` on in another, in one load and one store.


@_inline
def _copy(target: Array, t: int, source: Bytes, s: int, size: int) -> None:
    """Copy ``size`` bytes; up to 15 bytes behind them in the target are undefined afterwards."""
    # Most texts are short: a call of memcpy for each would take longer than the copy.
    if size + 15 <= len(source) - s and size + 15 <= len(target) - t:
        for j in range(0, size, 16):
            _copy16(target, t + j, source, s + j)
    else:
        for j in range(size):
            target[t + j] = source[s + j]


@_jit
def read_varint(buf: Bytes, p: int, end: int, most: int) -> tuple[int, int, int]:
    """A zig-zag integer of at most ``most`` bytes (5 or 10): status, value, position behind it."""
    value = 0
    shift = 0
    last = 7 * (most - 1)
    while p < end:
        byte = 0 + buf[p]
        p += 1
        if shift == last:
            if byte >= 128:
                return OVERLONG, 0, p
            # 4 bits are left of 32, one of 64.
            if byte > (15 if most == 5 else 1):
                return TOO_BIG, 0, p
        value |= (byte & 127) << shift
        if byte < 128:
            return OK, ((value >> 1) & MAX64) ^ -(value & 1), p
        shift += 7
    return TRUNCATED, 0, p


# --- decoding --------------------------------------------------------------------------------------------------------


@_jit
def _decode_varints(buf: Bytes, p: int, end: int, most: int, out: Array, at: int, count: int) -> tuple[int, int]:
    for i in range(at, at + count):
        if p < end and buf[p] < 128:
            byte = 0 + buf[p]
            out[i] = (byte >> 1) ^ -(byte & 1)
            p += 1
        else:
            status, value, p = read_varint(buf, p, end, most)
            if status != OK:
                return status, p
            out[i] = value
    return OK, p


@_jit
def _decode_strings(
    buf: Bytes, p: int, end: int, offsets: Array, at: int, count: int, data: Array, d: int
) -> tuple[int, int, int]:
    for i in range(at, at + count):
        if p < end and buf[p] < 128:
            byte = 0 + buf[p]
            size = (byte >> 1) ^ -(byte & 1)
            p += 1
        else:
            status, size, p = read_varint(buf, p, end, 5)
            if status != OK:
                return status, p, d
        if size < 0:
            return NEGATIVE, p, d
        if size > end - p:
            return TRUNCATED, p, d
        _copy(data, d, buf, p, size)
        p += size
        d += size
        offsets[i + 1] = d
    return OK, p, d


@_jit
def decode_array(
    buf: Bytes,
    p: int,
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
    """An array column's block: ``slots`` times a length and so many values.

    ``width`` is the most bytes of a varint or the bytes of a fixed value.  Lengths go to ``lengths`` from ``at`` on;
    integers to ``ints``; strings to ``data`` with ``offsets``; fixed values to ``data``; booleans to ``data``, a byte
    each.  Those arrays are as long as the block, which is enough: no value but null takes less than a bit.

    Returns status, position, number of values, bytes put into ``data``.
    """
    slot = 0
    n = 0
    d = 0
    while slot < slots:
        status, size, p = read_varint(buf, p, end, 5)
        if status != OK:
            return status, p, n, d
        run = 1
        if size < 0:
            run = ((1 - size) >> 1) + 1
            size = (size + 1) & 1
            if run > slots - slot:
                return RUN, p, n, d
        # One kind of loop inside; each element of a run begins a new byte of booleans.
        if kind == KIND_NULL or size == 0:
            for i in range(run):
                lengths[at + slot + i] = size
            n += run * size
        else:
            for i in range(run):
                lengths[at + slot + i] = size
                if kind == KIND_VARINT:
                    for _ in range(size):
                        status, value, p = read_varint(buf, p, end, width)
                        if status != OK:
                            return status, p, n, d
                        ints[n] = value
                        n += 1
                elif kind == KIND_FIXED:
                    if size > (end - p) // width:
                        return TRUNCATED, p, n, d
                    _copy(data, d, buf, p, size * width)
                    p += size * width
                    d += size * width
                    n += size
                elif kind == KIND_BOOLEAN:
                    if size > (end - p) * 8:
                        return TRUNCATED, p, n, d
                    for j in range(size):
                        data[d + j] = (0 + buf[p + (j >> 3)] >> (j & 7)) & 1
                    p += (size + 7) >> 3
                    d += size
                    n += size
                else:
                    for _ in range(size):
                        status, length, p = read_varint(buf, p, end, 5)
                        if status != OK:
                            return status, p, n, d
                        if length < 0:
                            return NEGATIVE, p, n, d
                        if length > end - p:
                            return TRUNCATED, p, n, d
                        _copy(data, d, buf, p, length)
                        p += length
                        d += length
                        n += 1
                        offsets[n] = d
        slot += run
    return OK, p, n, d


def _decode_varints_numpy(buf: Bytes, p: int, end: int, most: int, out: Array, at: int, count: int) -> tuple[int, int]:
    raw = np.frombuffer(buf, np.uint8)[p:end]
    ends = np.flatnonzero(raw < 128)[:count]
    sizes = np.diff(ends, prepend=-1)
    if sizes.size and sizes.max() > most:
        return OVERLONG, p
    if len(ends) < count:
        # The rest has no end: too long already, or cut off.
        return (OVERLONG if len(raw) - (int(ends[-1]) + 1 if len(ends) else 0) >= most else TRUNCATED), p
    if not count:
        return OK, p
    if (raw[ends[sizes == most]] > (15 if most == 5 else 1)).any():
        return TOO_BIG, p
    used = raw[: ends[-1] + 1]
    starts = ends - sizes + 1
    place = np.arange(len(used)) - np.repeat(starts, sizes)
    bits = (used & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
    value = np.bitwise_or.reduceat(bits, starts)
    one = np.uint64(1)
    out[at : at + count] = (value >> one).view(np.int64) ^ -((value & one).view(np.int64))
    return OK, p + len(used)


decode_varints = _decode_varints if COMPILED else _decode_varints_numpy
#: ``count`` integers into ``out`` from ``at`` on: status, position.

decode_strings = _decode_strings
#: ``count`` byte strings, their ends into ``offsets`` from ``at + 1`` on, their bytes into ``data`` from ``d`` on:
#: status, position, end of the data.


# --- encoding --------------------------------------------------------------------------------------------------------


@_jit
def write_varint(out: Array, p: int, value: int) -> int:
    """A zig-zag integer at ``p``; returns the position behind it."""
    raw = (value << 1) ^ (value >> 63)
    # The first step shifts logically, after which the sign bit is clear.
    if raw < 0 or raw > 127:
        out[p] = (raw & 127) | 128
        p += 1
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
        while raw > 127:
            out[p] = (raw & 127) | 128
            p += 1
            raw >>= 7
    out[p] = raw
    return p + 1


@_jit
def _encode_varints(values: Array, i: int, out: Array, p: int, full: int) -> tuple[int, int]:
    n = len(values)
    while i < n and p < full:
        value = values[i]
        raw = (value << 1) ^ (value >> 63)
        if 0 <= raw < 128:
            out[p] = raw
            p += 1
        else:
            p = write_varint(out, p, value)
        i += 1
    return i, p


@_jit
def _encode_strings(offsets: Array, data: Bytes, i: int, n: int, out: Array, p: int, full: int) -> tuple[int, int]:
    while i < n and p < full:
        start = offsets[i]
        size = offsets[i + 1] - start
        if size < 64:
            out[p] = size << 1
            p += 1
        else:
            p = write_varint(out, p, size)
        _copy(out, p, data, start, size)
        p += size
        i += 1
    return i, p


@_jit
def _flush_run(out: Array, p: int, state: Array) -> int:
    run, value = state[0], state[1]
    state[0] = 0
    state[1] = -1
    if run == 0:
        return p
    state[2] = 0
    return write_varint(out, p, value if run == 1 else (3 - value) - 2 * run)


@_jit
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
    p: int,
    full: int,
    state: Array,
) -> tuple[int, int]:
    """Rows from ``row`` on into ``out`` until ``p`` reaches ``full`` before a row; returns the next row and ``p``.

    Row ``r`` has the slots ``row_slots[r]`` to ``row_slots[r + 1]``, slot ``s`` of an array column the values
    ``slot_values[s]`` to ``slot_values[s + 1]``.  ``state`` goes from call to call within a block: length and value of
    the pending run of lengths, number of bits in use of the last byte of booleans.
    """
    while row < rows and p < full:
        for slot in range(row_slots[row], row_slots[row + 1]):
            first, last = slot, slot + 1
            if array:
                first, last = slot_values[slot], slot_values[slot + 1]
                size = last - first
                if size == state[1] and state[0] < MAX_RUN:
                    state[0] += 1
                else:
                    p = _flush_run(out, p, state)
                    if size <= 1:
                        state[0] = 1
                        state[1] = size
                    else:
                        state[2] = 0
                        p = write_varint(out, p, size)
                if kind != KIND_NULL and size > 0:
                    # Bytes of values come next, and the pending length must stand before them.
                    p = _flush_run(out, p, state)
            if kind == KIND_VARINT:
                for i in range(first, last):
                    p = write_varint(out, p, ints[i])
            elif kind == KIND_FIXED:
                _copy(out, p, data, first * width, (last - first) * width)
                p += (last - first) * width
            elif kind == KIND_BOOLEAN:
                for i in range(first, last):
                    bit = state[2]
                    if bit == 0:
                        out[p] = 0
                        p += 1
                    if data[i] != 0:
                        out[p - 1] |= 1 << bit
                    state[2] = (bit + 1) & 7
            elif kind == KIND_BYTES:
                for i in range(first, last):
                    start, stop = offsets[i], offsets[i + 1]
                    p = write_varint(out, p, stop - start)
                    _copy(out, p, data, start, stop - start)
                    p += stop - start
        row += 1
    return row, p


@_jit
def end_block(out: Array, p: int, state: Array) -> int:
    """Write the pending run, forget the block's bits; returns the block's size."""
    p = _flush_run(out, p, state)
    state[2] = 0
    return p


def _varint_bytes(values: Array) -> tuple[Array, Array]:
    """The bytes of many integers and the size of each."""
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


def _cut(sizes: Array, p: int, full: int) -> int:
    """How many of the rows of these sizes go into a block that has ``p`` bytes and is closed at ``full``."""
    if p >= full:
        return 0
    return min(int(np.searchsorted(np.cumsum(sizes), full - p, side="left")) + 1, len(sizes))


def _encode_varints_numpy(values: Array, i: int, out: Array, p: int, full: int) -> tuple[int, int]:
    # A value has one byte at least, so these are enough to fill the block.
    encoded, sizes = _varint_bytes(values[i : i + max(full - p, 0)].astype(np.int64))
    count = _cut(sizes, p, full)
    used = int(sizes[:count].sum())
    out[p : p + used] = encoded[:used]
    return i + count, p + used


def _encode_strings_numpy(
    offsets: Array, data: Bytes, i: int, n: int, out: Array, p: int, full: int
) -> tuple[int, int]:
    ends = offsets[i : min(n, i + max(full - p, 0)) + 1].astype(np.int64)
    prefix, prefix_sizes = _varint_bytes(np.diff(ends))
    sizes = np.diff(ends) + prefix_sizes
    count = _cut(sizes, p, full)
    sizes, prefix_sizes, ends = sizes[:count], prefix_sizes[:count], ends[: count + 1]
    used = int(sizes.sum())
    starts = np.cumsum(sizes) - sizes
    place = np.arange(used) - np.repeat(starts, sizes)
    is_prefix = place < np.repeat(prefix_sizes, sizes)
    block = np.empty(used, np.uint8)
    block[is_prefix] = prefix[: int(prefix_sizes.sum())]
    block[~is_prefix] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if count else 0
    out[p : p + used] = block
    return i + count, p + used


encode_varints = _encode_varints if COMPILED else _encode_varints_numpy
#: Integers from ``i`` on into ``out`` until ``p`` reaches ``full``: next value, next position.

encode_strings = _encode_strings if COMPILED else _encode_strings_numpy
#: Byte strings ``i`` to ``n``, each with its length, into ``out`` until ``p`` reaches ``full``: next value, position.
