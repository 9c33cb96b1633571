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
#: The number of rows of a block is a fixed32.
_MAX_ROWS = 0x7FFFFFFF
_NOTHING64 = np.empty(0, np.int64)
_NOTHING8 = np.empty(0, np.uint8)


class Spool:
    """The blocks of a new file: up to ``memory`` bytes in memory, then in one temporary file in ``folder``."""

    def __init__(self, memory: int, folder: str | None = None) -> None:
        self._memory, self._folder = memory, folder
        self._file: IO[bytes] | None = None
        #: Blocks, or for the first ``_spilled`` ones their places in the file.
        self._blocks: list[Any] = []
        self._spilled = self._in_memory = 0

    def append(self, data: Any) -> int:
        """Append bytes, which must not change afterwards; return their number for :meth:`read`."""
        self._blocks.append(data)
        self._in_memory += memoryview(data).nbytes
        if self._in_memory > self._memory:
            with spilling():
                self._spill()
        return len(self._blocks) - 1

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - closed by close
                dir=self._folder, prefix="trilake-", buffering=1 << 18
            )
        for number in range(self._spilled, len(self._blocks)):
            place = self._file.tell()
            self._file.write(self._blocks[number])
            self._blocks[number] = place, self._file.tell() - place
        self._file.flush()
        self._spilled, self._in_memory = len(self._blocks), 0

    def read(self, number: int) -> Any:
        """Return the bytes that :meth:`append` stored as ``number``."""
        if self._file is None or number >= self._spilled:
            return self._blocks[number]
        place, size = self._blocks[number]
        self._file.seek(place)
        return self._file.read(size)

    def close(self) -> None:
        """Discard all blocks."""
        self._blocks = []
        if self._file is not None:
            self._file.close()


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
        self._spool = spool
        #: The numbers of finished blocks in the spool, and their bytes.
        self._blocks: list[int] = []
        self._stored = 0
        self._descriptors: list[bytes] = []
        # The open block is out[:end].
        self._out = _NOTHING8
        self._end = self._rows = 0
        # Count and value of the pending run of lengths; used bits of the last byte.
        self._state = np.array([0, -1, 0], np.int64)

    @property
    def size(self) -> int:
        """Bytes of all blocks so far, the open one uncompressed."""
        return self._stored + self._end

    def prefill(self, rows: int, slots: int) -> None:
        """Start a null array column with ``rows`` rows and, in total, ``slots`` slots of length 1."""
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
                self._block_size,
                self._state,
            )
            self._rows += row - before
            if row < rows:
                self._close_block()

    def finish(self) -> None:
        """Close the last block."""
        self._close_block()
        self._out = _NOTHING8

    @property
    def stored_size(self) -> int:
        """Bytes of the finished column."""
        return 4 + sum(map(len, self._descriptors)) + self._stored

    def copy_to(self, sink: IO[bytes]) -> None:
        """Write the finished column to ``sink``: its block count, descriptors and blocks."""
        sink.write(struct.pack("<i", len(self._descriptors)) + b"".join(self._descriptors))
        for number in self._blocks:
            sink.write(self._spool.read(number))

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
            full = self._block_size
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
        if size > len(self._out):
            out = np.empty(size, np.uint8)
            out[: self._end] = self._out[: self._end]
            self._out = out

    def _close_block(self) -> None:
        if not self._rows:
            return
        if self._state[0]:
            self._reserve(32)
        out: Any = self._out
        raw = memoryview(out)[: kernels().end_block(out, self._end, self._state)]
        stored = memoryview(codecs.compress(self._codec, raw))
        if max(raw.nbytes, stored.nbytes) > _MAX_ROWS:
            raise InvalidArgumentError("one row of a column exceeds 2 GiB, the largest size of a block")
        first = self._first_value(raw) if self.values else b""
        self._descriptors.append(struct.pack("<iii", self._rows, raw.nbytes, stored.nbytes) + first)
        self._append(stored)
        if self._checksum != "null":
            self._append(codecs.checksum_bytes(raw))
        if self._codec == "null":
            self._out = _NOTHING8  # the spool has it
        self._rows = self._end = 0

    def _append(self, data: Any) -> None:
        self._blocks.append(self._spool.append(data))
        self._stored += memoryview(data).nbytes  # the length of an Arrow buffer of a codec is its capacity

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
