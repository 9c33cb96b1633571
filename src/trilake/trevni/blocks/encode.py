"""Encode values into the blocks of one column, byte for byte like the reference writer (spec: "Block").

A block is closed before the next row when its payload reaches the block size (64 KiB); a pending run of lengths does
not count.  Finished blocks go to a :class:`Spool`, which spills to disk, because the header comes first in the file but
needs the sizes of all columns, and a file may be larger than memory (technique 2 of the specification's notes).
"""

from __future__ import annotations

import struct
import tempfile
from typing import IO, Any

import numpy as np
import pyarrow as pa

from trilake.common.utf8 import is_utf8
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.storage.staging import spilling
from trilake.trevni.blocks import codecs
from trilake.trevni.blocks.decode import KINDS, kernels
from trilake.trevni.blocks.layout import KIND_BOOL, KIND_BYTES, KIND_FIXED, KIND_NULL, KIND_VARINT, MAX_RUN, ValueType

Int64s = np.ndarray[Any, np.dtype[np.int64]]

BLOCK_SIZE = 1 << 16
#: Size of the buffers in which uncompressed blocks are built next to each other, which saves a copy.
_ARENA = 1 << 22
#: The number of rows of a block is a fixed32.
_MAX_ROWS = 0x7FFFFFFF
_NOTHING64 = np.empty(0, np.int64)
_NOTHING8 = np.empty(0, np.uint8)


class Spool:
    """Buffers the columns of a new file: up to ``memory`` bytes in memory, then in one temporary file in ``folder``."""

    def __init__(self, memory: int, folder: str | None = None) -> None:
        self._memory, self._folder = memory, folder
        self._file: IO[bytes] | None = None
        self._in_memory = 0
        self._strands: list[SpooledColumn] = []

    def strand(self) -> SpooledColumn:
        """Return a new sequence of bytes in this spool."""
        strand = SpooledColumn(self)
        self._strands.append(strand)
        return strand

    def account(self, size: int) -> None:
        """Count ``size`` more bytes, and spill everything if the limit is exceeded."""
        self._in_memory += size
        if self._in_memory > self._memory:
            with spilling():
                if self._file is None:
                    self._file = tempfile.TemporaryFile(  # noqa: SIM115
                        dir=self._folder, prefix="trilake-", buffering=1 << 18
                    )
                for strand in self._strands:
                    strand.spill(self._file)
            self._in_memory = 0

    @property
    def file(self) -> IO[bytes]:
        """Return the temporary file, flushed.  Only valid after a spill."""
        assert self._file is not None
        with spilling():
            self._file.flush()
        return self._file

    def close(self) -> None:
        """Delete all bytes."""
        if self._file is not None:
            self._file.close()
        self._strands.clear()


class SpooledColumn:
    """The bytes of one column in a :class:`Spool`."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._chunks: list[Any] = []
        self._spilled: list[tuple[int, int]] = []
        self.size = 0

    def append(self, data: Any) -> None:
        """Append bytes, which must not change afterwards."""
        size = memoryview(data).nbytes
        self._chunks.append(data)
        self.size += size
        self._spool.account(size)

    def spill(self, file: IO[bytes]) -> None:
        """Move the bytes in memory to the end of ``file``."""
        if self._chunks:
            start = file.tell()
            file.writelines(self._chunks)
            self._spilled.append((start, file.tell() - start))
            self._chunks = []

    def copy_to(self, sink: IO[bytes]) -> None:
        """Write all bytes to ``sink``, in order."""
        for start, length in self._spilled:
            file = self._spool.file
            file.seek(start)
            while length:
                data = file.read(min(length, 1 << 20))
                sink.write(data)
                length -= len(data)
        for chunk in self._chunks:
            sink.write(chunk)


class ColumnEncoder:
    """Encodes the rows of a column to blocks.

    ``codec`` and ``checksum`` are validated names; with ``values``, descriptors store the first value of each block.  A
    block is closed before the next row at a payload of ``block_size``, or ``max_rows``; errors name ``column``.
    """

    def __init__(
        self,
        type: ValueType,
        array: bool,
        spool: Spool,
        *,
        codec: str = "null",
        checksum: str = "null",
        values: bool = False,
        block_size: int = BLOCK_SIZE,
        max_rows: int = _MAX_ROWS,
        column: str | None = None,
    ) -> None:
        self._max_rows, self._column = max_rows, column
        self.type, self.array, self.values = type, array, values
        self._codec, self._checksum = codec, checksum
        self._kind, self._width = KINDS[type]
        self._block_size = block_size
        self._strand = spool.strand()
        self._descriptors: list[bytes] = []
        # The open block is out[start:end].
        self._out = np.empty(0, np.uint8)
        self._start = self._end = 0
        self._rows = 0
        # Count and value of the pending run of lengths; used bits of the last byte.
        self._state = np.array([0, -1, 0], np.int64)

    @property
    def size(self) -> int:
        """Bytes of all blocks so far, the open one uncompressed."""
        return self._strand.size + self._end

    def prefill(self, rows: int, slots: int) -> None:
        """Start a null array column with ``rows`` rows, together ``slots`` slots of length 1."""
        assert self.array
        assert self._kind == KIND_NULL
        self._reserve(16 * (1 + slots // MAX_RUN))
        while slots > MAX_RUN:
            self._end = kernels().write_varint(self._out, self._end, 2 - 2 * MAX_RUN)
            slots -= MAX_RUN
        if slots:
            self._state[:2] = slots, 1
        self._rows = rows

    def add(
        self, rows: int, row_slots: Int64s | None, slot_values: Int64s | None, values: pa.Array | None = None
    ) -> None:
        """Add rows.  Raises ``SchemaMismatchError`` for a string that is not UTF-8, which readers would reject.

        Row ``r`` has the slots ``row_slots[r]`` to ``row_slots[r + 1]``; ``None`` means one slot per row.  In an array
        column, slot ``s`` has the values ``slot_values[s]`` to ``slot_values[s + 1]``.  ``values`` have no nulls, and
        the type :attr:`ValueType.arrow` (strings may have 64-bit offsets); ``None`` for columns of type null.
        """
        ints, offsets, data = self._operands(values)
        if row_slots is None and not self.array and self._kind != KIND_BOOL:
            self._add_plain(rows, ints, offsets, data)
            return
        if row_slots is None:
            row_slots = np.arange(rows + 1, dtype=np.int64)
        largest = self._largest_row(row_slots, slot_values, offsets)
        row = 0
        while row < rows:
            self._reserve(largest)
            full = self._start + self._block_size
            before = row
            row, self._end = kernels().encode_rows(
                row,
                min(rows, before + max(0, self._max_rows - self._rows)),
                row_slots,
                self.array,
                slot_values if slot_values is not None else _NOTHING64,
                self._kind,
                self._width,
                ints,
                offsets,
                data,
                self._out,
                self._end,
                full,
                self._state,
            )
            self._rows += row - before
            if row < rows:
                self._close_block()

    def finish(self) -> None:
        """Close the last block."""
        self._close_block()
        if self._codec == "null" and self._end:
            self._strand.append(self._out[: self._end])
        self._out = _NOTHING8

    @property
    def stored_size(self) -> int:
        """Bytes of the finished column."""
        return 4 + sum(map(len, self._descriptors)) + self._strand.size

    def copy_to(self, sink: IO[bytes]) -> None:
        """Write the finished column to ``sink``: its block count, descriptors and blocks."""
        sink.write(struct.pack("<i", len(self._descriptors)) + b"".join(self._descriptors))
        self._strand.copy_to(sink)

    def _operands(self, values: pa.Array | None) -> tuple[Any, Any, Any]:
        """Return the arrays that the kernels read: integers, string offsets, bytes."""
        if values is None or self._kind == KIND_NULL:
            return _NOTHING64, _NOTHING64, _NOTHING8
        if self._kind == KIND_VARINT:
            return np.asarray(values).astype(np.int64, copy=False), _NOTHING64, _NOTHING8
        if self._kind == KIND_FIXED:
            raw, start = values.buffers()[1], values.offset * self._width
            data = _NOTHING8 if raw is None else np.frombuffer(raw, np.uint8)
            return _NOTHING64, _NOTHING64, data[start : start + len(values) * self._width]
        if self._kind == KIND_BOOL:
            return _NOTHING64, _NOTHING64, np.asarray(values.cast(pa.uint8()))
        wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        offsets = np.frombuffer(values.buffers()[1] or bytes(8), np.int64 if wide else np.int32)
        chosen = offsets[values.offset : values.offset + len(values) + 1].astype(np.int64, copy=False)
        buffer = values.buffers()[2]
        data = _NOTHING8 if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)
        if self.type is ValueType.STRING and not is_utf8(chosen, data):
            raise SchemaMismatchError("a string is not UTF-8", help="write such values as binary", column=self._column)
        return _NOTHING64, chosen, data

    def _largest_row(self, row_slots: Int64s, slot_values: Int64s | None, offsets: Int64s) -> int:
        """Return an upper bound of the encoded size of a row."""
        if len(row_slots) < 2:
            return 16
        slots = np.diff(row_slots)
        values = row_slots if slot_values is None else slot_values[row_slots]
        size = np.diff(values) * {KIND_VARINT: 10, KIND_BYTES: 5, KIND_NULL: 0}.get(self._kind, self._width)
        if self._kind == KIND_BYTES and len(offsets):
            size = size + np.diff(offsets[values])
        if self.array:
            size = size + 10 * slots
        return int(size.max()) + 32

    def _add_plain(self, rows: int, ints: Any, offsets: Any, data: Any) -> None:
        kind, row = self._kind, 0
        largest = int(np.diff(offsets).max(initial=0)) + 5 if kind == KIND_BYTES else 16
        while row < rows:
            self._reserve(largest)
            full = self._start + self._block_size
            before, limit = row, min(rows, row + max(0, self._max_rows - self._rows))
            if kind == KIND_NULL:
                row = limit
            elif kind == KIND_FIXED:
                row = min(limit, row + max(0, -(-(full - self._end) // self._width)))
                piece = data[before * self._width : row * self._width]
                self._out[self._end : self._end + len(piece)] = piece
                self._end += len(piece)
            elif kind == KIND_VARINT:
                row, self._end = kernels().encode_varints(ints[:limit], row, self._out, self._end, full)
            else:
                row, self._end = kernels().encode_strings(offsets, data, row, limit, self._out, self._end, full)
            self._rows += row - before
            if row < rows:
                self._close_block()

    def _reserve(self, largest_row: int) -> None:
        """Make room for a full block, one large row, and the checksum."""
        size = self._block_size + largest_row + 64
        if self._start + size <= len(self._out):
            return
        block = self._out[self._start : self._end]
        if self._codec == "null" and self._start:
            self._strand.append(self._out[: self._start])
        # The arena grows with the column, so that small files do not pay for a large one.
        arena = min(_ARENA, max(4 * len(self._out), 1 << 16)) if self._codec == "null" else 0
        self._out = np.empty(max(size, arena), np.uint8)
        self._out[: len(block)] = block
        self._start, self._end = 0, len(block)

    def _close_block(self) -> None:
        if not self._rows:
            return
        if self._state[0]:
            self._reserve(32)
        self._end = kernels().end_block(self._out, self._end, self._state)
        raw: Any = self._out[self._start : self._end]
        stored: Any = codecs.compress(self._codec, memoryview(raw)) if self._codec != "null" else raw
        raw_size, stored_size = len(raw), memoryview(stored).nbytes
        if max(raw_size, stored_size) > _MAX_ROWS:
            raise InvalidArgumentError("one row of a column exceeds 2 GiB, the largest size of a block")
        first = self._first_value(raw) if self.values else b""
        self._descriptors.append(struct.pack("<iii", self._rows, raw_size, stored_size) + first)
        check = codecs.checksum_bytes(memoryview(raw)) if self._checksum != "null" else b""
        self._rows = 0
        if self._codec == "null":
            if check:
                self._reserve(32)
                self._out[self._end : self._end + 4] = np.frombuffer(check, np.uint8)
                self._end += 4
            self._start = self._end
            if self._start + self._block_size + 64 > len(self._out):
                # The next block starts a new arena.
                self._strand.append(self._out[: self._start])
                self._out = np.empty(min(_ARENA, 4 * len(self._out)), np.uint8)
                self._start = self._end = 0
        else:
            self._strand.append(stored)
            if check:
                self._strand.append(check)
            self._end = self._start

    def _first_value(self, raw: Any) -> bytes:
        if self._kind == KIND_NULL:
            return b""
        if self._kind == KIND_BOOL:
            # Like the reference, store the byte as it is after writing the first bit.
            return bytes([int(raw[0]) & 1])
        if self._kind == KIND_FIXED:
            return bytes(raw[: self._width])
        head = bytes(raw[:10])
        end = next(i for i, byte in enumerate(head) if byte < 128) + 1
        if self._kind == KIND_BYTES:
            end += sum((byte & 127) << (7 * i) for i, byte in enumerate(head[:end])) >> 1
        return bytes(raw[:end])
