"""Decode the payloads of blocks to lengths and values, as Arrow arrays (spec: "Column Metadata", "Block").

A plain column has one value per row, and a child column one value per element of its parent.  An array column has a
length in place of each of these values, and as many values as the lengths add up to.  A *slot* is a row, or an element
of the parent.  The number of slots of each block is known before it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.utf8 import is_utf8
from trilake.trevni.blocks.codecs import BlockLocation, Payload
from trilake.trevni.blocks.layout import KIND_BOOL, KIND_BYTES, KIND_FIXED, KIND_NULL, KIND_VARINT, STATUS, ValueType


@cache
def kernels() -> ModuleType:
    """Import the kernels when they are needed: importing numba takes a second."""
    from trilake.trevni.blocks import kernels as loaded

    return loaded


Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]

#: Kind of value and width, see ``KIND_*``.
KINDS: dict[ValueType, tuple[int, int]] = {
    **{type_: (KIND_FIXED, type_.width) for type_ in ValueType if type_.width is not None},
    **dict.fromkeys((ValueType.STRING, ValueType.BYTES), (KIND_BYTES, 0)),
    ValueType.NULL: (KIND_NULL, 0),
    ValueType.BOOLEAN: (KIND_BOOL, 1),
    ValueType.INT: (KIND_VARINT, 5),
    ValueType.LONG: (KIND_VARINT, 10),
}

#: Limit of elements without bytes (nulls, runs of lengths) per request: a constant plus a number per byte of the file.
#: Without a limit, a file of a few bytes could exhaust the memory.
MAX_UNBACKED, UNBACKED_RATIO = 1 << 23, 64
#: Limit of decompressed bytes per request.
MAX_INFLATED, INFLATED_RATIO = 1 << 27, 64
TRUST_HELP = "read fewer rows at a time; for a file that you trust, open it with trusted=True"
#: Maximum bytes of strings in an array with 32-bit offsets.
_MAX_DATA = 0x7FFFFFFF
_NO_BYTES = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Block:
    """One block to decode: payload, number of slots, block number and file offset."""

    payload: Payload
    slots: int
    number: int
    offset: int


@dataclass
class Budget:
    """The elements and bytes that a request may still decode beyond the bytes read from the file."""

    elements: int
    inflated: int
    limited: bool = True

    @staticmethod
    def of(size: int, *, limited: bool) -> Budget:
        """Return the budget of a request to a file of ``size`` bytes."""
        return Budget(MAX_UNBACKED + UNBACKED_RATIO * size, MAX_INFLATED + INFLATED_RATIO * size, limited)

    def spend(self, elements: int, raw_bytes: int, location: BlockLocation) -> None:
        """Count elements decoded from ``raw_bytes``.  Raises ``CorruptFileError`` if the budget is exceeded."""
        self.elements -= max(0, elements - 8 * raw_bytes)
        if self.limited and self.elements < 0:
            raise location.fail(f"the column claims to have {elements} elements in {raw_bytes} bytes", TRUST_HELP)

    def inflate(self, stored: int, raw: int, location: BlockLocation) -> None:
        """Count bytes of decompressed blocks.  Raises ``CorruptFileError`` if the budget is exceeded."""
        self.inflated -= raw
        if self.limited and self.inflated < 0:
            raise location.fail(f"{stored} compressed bytes claim to be {raw}", TRUST_HELP)


@dataclass(frozen=True, eq=False)
class Slots:
    """Some rows of a column: ``lengths``, one per slot (``None`` unless ``array``), and flat ``values``."""

    lengths: Int32s | None
    values: pa.Array


def decode(
    type_: ValueType,
    array: bool,
    blocks: Iterable[Block],
    slots: int,
    location: BlockLocation,
    budget: Budget,
    size: int = 0,
) -> Slots:
    """Decode consecutive blocks, in total ``slots`` slots and about ``size`` bytes.  Raises ``CorruptFileError``."""
    if array:
        return _decode_array(type_, blocks, slots, location, budget)
    kind, width = KINDS[type_]
    if kind == KIND_VARINT:
        values = _decode_varints(type_, width, blocks, slots, location)
    elif kind == KIND_BYTES:
        values = _decode_strings(type_, blocks, slots, location, size)
    elif kind == KIND_BOOL:
        bits = [np.unpackbits(np.frombuffer(b.payload, np.uint8), count=b.slots, bitorder="little") for b in blocks]
        values = _array(type_, slots, np.packbits(np.concatenate([*bits, _NO_BYTES]), bitorder="little"))
    else:
        # The reader has checked the payload sizes; nulls have empty payloads.
        raw = [np.frombuffer(b.payload, np.uint8) for b in blocks]
        values = pa.nulls(slots) if kind == KIND_NULL else _array(type_, slots, np.concatenate([*raw, _NO_BYTES]))
    return Slots(None, values)


def _check(status: int, position: int, size: int, location: BlockLocation) -> None:
    if status:
        raise location.fail(f"{STATUS[status]}, at byte {position} of its payload")
    if position != size:
        raise location.fail(f"{size - position} bytes are left after the last value")


def _decode_varints(
    type_: ValueType, width: int, blocks: Iterable[Block], slots: int, location: BlockLocation
) -> pa.Array:
    out = np.empty(slots, np.int32 if type_ is ValueType.INT else np.int64)
    at = 0
    for block in blocks:
        size, data = memoryview(block.payload).nbytes, kernels().readable(block.payload)
        status, position = kernels().decode_varints(data, size, width, out, at, block.slots)
        _check(status, position, size, location.at(block.number, block.offset))
        at += block.slots
    return pa.array(out)


def _decode_strings(
    type_: ValueType, blocks: Iterable[Block], slots: int, location: BlockLocation, size: int
) -> pa.Array:
    """Decode all values to one buffer, so that UTF-8 is validated in one pass."""
    offsets = np.zeros(slots + 1, np.int32)
    data = np.empty(min(max(size - slots, 0), _MAX_DATA), np.uint8)
    at = end = 0
    locations: list[tuple[int, int, BlockLocation]] = []
    for block in blocks:
        size = memoryview(block.payload).nbytes
        # The length of a value takes at least one byte; all other bytes may be data.
        needed = end + size - block.slots
        if needed > _MAX_DATA:
            raise location.fail("the strings exceed 2 GiB; read fewer rows at a time")
        if needed > len(data):
            grown = np.empty(min(max(needed, 2 * len(data)), _MAX_DATA), np.uint8)
            grown[:end] = data[:end]
            data = grown
        status, position, end = kernels().decode_strings(
            kernels().readable(block.payload), size, offsets, at, block.slots, data, end
        )
        locations.append((at, at + block.slots, location.at(block.number, block.offset)))
        _check(status, position, size, locations[-1][2])
        at += block.slots
    data = data[:end]
    if type_ is ValueType.STRING and not is_utf8(offsets, data):
        for first, last, block_location in locations:
            if not is_utf8(offsets[first : last + 1], data):
                raise block_location.fail("a string is not UTF-8")
    return _array(type_, slots, offsets, data)


def _decode_array(
    type_: ValueType, blocks: Iterable[Block], slots: int, location: BlockLocation, budget: Budget
) -> Slots:
    kind, width = KINDS[type_]
    lengths = np.empty(slots, np.int32)
    parts = [pa.array([], type_.arrow)]
    at = nulls = 0
    for block in blocks:
        size = memoryview(block.payload).nbytes
        block_location = location.at(block.number, block.offset)
        ints = np.empty(size if kind == KIND_VARINT else 0, np.int64)
        offsets = np.zeros(size + 1 if kind == KIND_BYTES else 0, np.int32)
        data = np.empty(8 * size if kind == KIND_BOOL else size, np.uint8)
        payload = kernels().readable(block.payload)
        status, position, count, end = kernels().decode_array(
            payload, size, kind, width, block.slots, lengths, at, ints, offsets, data
        )
        _check(status, position, size, block_location)
        at += block.slots
        if kind == KIND_NULL:
            budget.spend(count, size, block_location)
            nulls += count
        elif kind == KIND_VARINT:
            parts.append(pa.array(ints[:count].astype(type_.arrow.to_pandas_dtype())))
        elif kind == KIND_FIXED:
            parts.append(_array(type_, count, data[:end].copy()))
        elif kind == KIND_BOOL:
            parts.append(_array(type_, count, np.packbits(data[:end], bitorder="little")))
        else:
            if type_ is ValueType.STRING and not is_utf8(offsets[: count + 1], data[:end]):
                raise block_location.fail("a string is not UTF-8")
            parts.append(_array(type_, count, offsets[: count + 1].copy(), data[:end].copy()))
    if type_ is ValueType.NULL:
        return Slots(lengths, pa.nulls(nulls))
    return Slots(lengths, parts[1] if len(parts) == 2 else pa.concat_arrays(parts))


def _array(type_: ValueType, count: int, *buffers: Any) -> pa.Array:
    # Files are little-endian, like Arrow's platforms.  Bits are kept, including NaN payloads.
    return pa.Array.from_buffers(type_.arrow, count, [None, *map(pa.py_buffer, buffers)])
