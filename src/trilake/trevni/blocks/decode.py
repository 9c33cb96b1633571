"""From the payloads of blocks to lengths and values, as Arrow arrays (spec: "Column Metadata", "Block").

A plain column has one value a row, a child column one value an element of its parent, an array column a length and so
many values for each of those.  *Slot* is the word here for what a value or length belongs to: a row, or an element of
the parent.  The number of slots of each block is known before it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.utf8 import is_utf8
from trilake.errors import CorruptFileError
from trilake.trevni.blocks import kinds as k
from trilake.trevni.blocks.codecs import Payload
from trilake.trevni.blocks.kernel_loader import kernels
from trilake.trevni.blocks.layout import ValueType

Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]

#: kind of loop and its width, see :mod:`trilake.trevni.blocks.kinds`
KINDS: dict[ValueType, tuple[int, int]] = {
    ValueType.NULL: (k.KIND_NULL, 0),
    ValueType.BOOLEAN: (k.KIND_BOOLEAN, 1),
    ValueType.INT: (k.KIND_VARINT, 5),
    ValueType.LONG: (k.KIND_VARINT, 10),
    ValueType.FIXED32: (k.KIND_FIXED, 4),
    ValueType.FIXED64: (k.KIND_FIXED, 8),
    ValueType.FLOAT: (k.KIND_FIXED, 4),
    ValueType.DOUBLE: (k.KIND_FIXED, 8),
    ValueType.STRING: (k.KIND_BYTES, 0),
    ValueType.BYTES: (k.KIND_BYTES, 0),
}

#: Elements that take no bytes (nulls, runs of lengths) may number so many, in one request, and so many more for each
#: byte of the file: beyond it, a file of a few bytes would fill the memory.
MAX_UNBACKED, UNBACKED_RATIO = 1 << 23, 64
#: The same for bytes that compressed blocks grow to.
MAX_INFLATED, INFLATED_RATIO = 1 << 27, 64


@dataclass(frozen=True)
class ColumnPlace:
    """The column that errors are about."""

    file: str
    column: str

    def fail(self, message: str, block: int | None = None, offset: int | None = None) -> CorruptFileError:
        """The error, with the block and the file offset where they are known."""
        return CorruptFileError(message, file=self.file, column=self.column, block=block, offset=offset)


@dataclass(slots=True)
class Block:
    """One block to decode: its payload, how many slots it has, its number and where it is stored."""

    payload: Payload
    slots: int
    number: int
    offset: int


@dataclass
class Budget:
    """The elements and bytes of payload that a request may still take without bytes of the file that stand for them."""

    elements: int
    inflated: int
    limited: bool = True

    @staticmethod
    def of(size: int, *, limited: bool) -> Budget:
        """The budget of one request to a file of ``size`` bytes."""
        return Budget(MAX_UNBACKED + UNBACKED_RATIO * size, MAX_INFLATED + INFLATED_RATIO * size, limited)

    def spend(self, elements: int, raw_bytes: int, where: ColumnPlace, block: Block | None = None) -> None:
        """Account for elements decoded from so many bytes.  Raises ``CorruptFileError`` when too many cost nothing."""
        free = max(0, elements - 8 * raw_bytes)
        self.elements -= free
        if self.limited and self.elements < 0:
            raise self._fail(f"{raw_bytes} bytes claim {elements} elements", where, block)

    def inflate(self, stored: int, raw: int, where: ColumnPlace, block: Block) -> None:
        """Account for compressed blocks, of which ``block`` is the first.

        Raises ``CorruptFileError`` when they grow too much.
        """
        self.inflated -= raw
        if self.limited and self.inflated < 0:
            raise self._fail(f"{stored} compressed bytes claim to be {raw}", where, block)

    def _fail(self, message: str, where: ColumnPlace, block: Block | None) -> CorruptFileError:
        return CorruptFileError(
            message,
            help="read fewer rows at a time; if the file is to be trusted, open it with trusted=True",
            file=where.file,
            column=where.column,
            block=None if block is None else block.number,
            offset=None if block is None else block.offset,
        )


@dataclass(frozen=True, eq=False)
class Decoded:
    """What some blocks of a column hold: ``lengths`` (a slot each; ``None`` without ``array``) and flat ``values``."""

    lengths: Int32s | None
    values: pa.Array


def decode(
    type_: ValueType,
    array: bool,
    blocks: Iterable[Block],
    slots: int,
    where: ColumnPlace,
    budget: Budget,
    size: int = 0,
) -> Decoded:
    """Decode consecutive blocks that have ``slots`` slots together; ``size`` is a guess of their bytes.

    Raises ``CorruptFileError`` where a block does not hold exactly what it must.
    """
    decoder = (
        _ArrayDecoder(type_, slots, where, budget) if array else _PLAIN[KINDS[type_][0]](type_, slots, where, size)
    )
    for block in blocks:
        decoder.add(block, memoryview(block.payload).nbytes)
    return decoder.finish()


def _check(status: int, position: int, size: int, block: Block, where: ColumnPlace) -> None:
    if status != k.OK:
        raise where.fail(f"{k.STATUS[status]}, at byte {position} of its payload", block.number, block.offset)
    if position != size:
        raise where.fail(f"{size - position} bytes are left after the last value", block.number, block.offset)


class _NullDecoder:
    def __init__(self, type_: ValueType, slots: int, where: ColumnPlace, size: int) -> None:
        self._slots = slots

    def add(self, block: Block, size: int) -> None:
        """Nothing to read: the payload is empty, which :func:`decode` has checked."""

    def finish(self) -> Decoded:
        return Decoded(None, pa.nulls(self._slots))


class _BooleanDecoder:
    def __init__(self, type_: ValueType, slots: int, where: ColumnPlace, size: int) -> None:
        self._parts: list[Any] = []

    def add(self, block: Block, size: int) -> None:
        bits = np.frombuffer(block.payload, np.uint8)
        self._parts.append(np.unpackbits(bits, count=block.slots, bitorder="little"))

    def finish(self) -> Decoded:
        bits = np.concatenate(self._parts) if self._parts else np.empty(0, np.uint8)
        return Decoded(None, _booleans(bits))


class _FixedDecoder:
    def __init__(self, type_: ValueType, slots: int, where: ColumnPlace, size: int) -> None:
        self._type = type_
        self._slots = slots
        self._parts: list[Payload] = []

    def add(self, block: Block, size: int) -> None:
        self._parts.append(block.payload)

    def finish(self) -> Decoded:
        width = self._type.width or 0
        out = np.empty(self._slots * width, np.uint8)
        at = 0
        for part in self._parts:
            raw = np.frombuffer(part, np.uint8)
            out[at : at + len(raw)] = raw
            at += len(raw)
        return Decoded(None, _fixed(self._type, out, self._slots))


class _VarintDecoder:
    def __init__(self, type_: ValueType, slots: int, where: ColumnPlace, size: int) -> None:
        self._where = where
        self._most = KINDS[type_][1]
        self._out = np.empty(slots, np.int32 if type_ is ValueType.INT else np.int64)
        self._at = 0

    def add(self, block: Block, size: int) -> None:
        status, position = kernels().decode_varints(
            kernels().readable(block.payload), 0, size, self._most, self._out, self._at, block.slots
        )
        _check(status, position, size, block, self._where)
        self._at += block.slots

    def finish(self) -> Decoded:
        return Decoded(None, pa.array(self._out))


class _BytesDecoder:
    """Text of all blocks in one buffer, checked to be UTF-8 as a whole."""

    def __init__(self, type_: ValueType, slots: int, where: ColumnPlace, size: int) -> None:
        self._type, self._slots, self._where = type_, slots, where
        self._offsets = np.zeros(slots + 1, np.int32)
        self._data = np.empty(min(max(size - slots, 0), 0x7FFFFFFF), np.uint8)
        self._at = self._end = 0
        self._blocks: list[tuple[int, Block]] = []

    def add(self, block: Block, size: int) -> None:
        self._blocks.append((self._at, Block(b"", block.slots, block.number, block.offset)))
        # Each value has a length of one byte at least, the rest is the most there can be of data.
        self._reserve(size - block.slots)
        status, position, end = kernels().decode_strings(
            kernels().readable(block.payload), 0, size, self._offsets, self._at, block.slots, self._data, self._end
        )
        _check(status, position, size, block, self._where)
        self._at += block.slots
        self._end = end

    def _reserve(self, more: int) -> None:
        need = self._end + more
        if need > 0x7FFFFFFF:
            raise self._where.fail("more than 2 GiB of text in one piece; read fewer rows at a time")
        if need > len(self._data):
            grown = np.empty(min(max(need, 2 * len(self._data)), 0x7FFFFFFF), np.uint8)
            grown[: self._end] = self._data[: self._end]
            self._data = grown

    def finish(self) -> Decoded:
        data = self._data[: self._end]
        if self._type is ValueType.STRING and not is_utf8(self._offsets, data):
            for at, block in self._blocks:
                if not is_utf8(self._offsets[at : at + block.slots + 1], data):
                    raise self._where.fail("a string is not UTF-8", block.number, block.offset)
        return Decoded(None, _texts(self._type, self._offsets, data))


class _ArrayDecoder:
    def __init__(self, type_: ValueType, slots: int, where: ColumnPlace, budget: Budget) -> None:
        self._type, self._where, self._budget = type_, where, budget
        self._lengths = np.empty(slots, np.int32)
        self._at = 0
        self._parts: list[pa.Array] = []
        self._nulls = 0

    def add(self, block: Block, size: int) -> None:
        kind, width = KINDS[self._type]
        ints = np.empty(size if kind == k.KIND_VARINT else 0, np.int64)
        offsets = np.zeros(size + 1 if kind == k.KIND_BYTES else 0, np.int32)
        data = np.empty(8 * size if kind == k.KIND_BOOLEAN else size, np.uint8)
        status, position, count, end = kernels().decode_array(
            kernels().readable(block.payload),
            0,
            size,
            kind,
            width,
            block.slots,
            self._lengths,
            self._at,
            ints,
            offsets,
            data,
        )
        _check(status, position, size, block, self._where)
        self._at += block.slots
        if kind == k.KIND_NULL:
            self._budget.spend(count, size, self._where, block)
            self._nulls += count
        elif kind == k.KIND_VARINT:
            self._parts.append(pa.array(ints[:count].astype(self._type.arrow.to_pandas_dtype())))
        elif kind == k.KIND_FIXED:
            self._parts.append(_fixed(self._type, data[:end].copy(), count))
        elif kind == k.KIND_BOOLEAN:
            self._parts.append(_booleans(data[:end]))
        else:
            if self._type is ValueType.STRING and not is_utf8(offsets[: count + 1], data[:end]):
                raise self._where.fail("a string is not UTF-8", block.number, block.offset)
            self._parts.append(_texts(self._type, offsets[: count + 1].copy(), data[:end].copy()))

    def finish(self) -> Decoded:
        if self._type is ValueType.NULL:
            return Decoded(self._lengths, pa.nulls(self._nulls))
        if len(self._parts) == 1:
            return Decoded(self._lengths, self._parts[0])
        empty = pa.array([], self._type.arrow)
        return Decoded(self._lengths, pa.concat_arrays(self._parts) if self._parts else empty)


_PLAIN: dict[int, Any] = {
    k.KIND_NULL: _NullDecoder,
    k.KIND_BOOLEAN: _BooleanDecoder,
    k.KIND_FIXED: _FixedDecoder,
    k.KIND_VARINT: _VarintDecoder,
    k.KIND_BYTES: _BytesDecoder,
}


def _booleans(bytes_: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    bits = pa.py_buffer(np.packbits(bytes_, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(bytes_), [None, bits])


def _fixed(type_: ValueType, data: np.ndarray[Any, np.dtype[np.uint8]], count: int) -> pa.Array:
    # The file is little-endian as every platform that Arrow supports.  Bits stay bits: NaN payloads survive.
    return pa.Array.from_buffers(type_.arrow, count, [None, pa.py_buffer(data)])


def _texts(type_: ValueType, offsets: Int32s, data: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    return pa.Array.from_buffers(type_.arrow, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
