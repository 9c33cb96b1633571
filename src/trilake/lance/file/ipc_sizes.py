"""Compute the decompressed size of an Arrow IPC file from its headers.

Compressed buffers state their decompressed size in their first eight bytes, and Arrow's reader trusts it.  A tiny file
must not exhaust the memory, so the caller checks the size first.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
#: Field numbers in Arrow's flatbuffer tables.
_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3
_MESSAGE_HEADER = 2
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 1, 2, 3
#: Formats of a block (offset, bytes of metadata, bytes of the body), of a node (rows, nulls) and of a buffer.
_BLOCK, _PAIR = "<qi4xq", "<qq"


class IpcSizes(NamedTuple):
    """Rows of all batches of an Arrow file, and bytes of its buffers after decompression."""

    rows: int
    bytes: int


class _Table:
    """A flatbuffer table, with fields by number.  Raises ``ValueError`` for positions outside the buffer."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        vtable = at - _number(data, "<i", at)
        self._offsets = [_number(data, "<H", vtable + i) for i in range(4, _number(data, "<H", vtable), 2)]

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, _number(data, "<I", 0))

    def position(self, field: int) -> int:
        """The position of a field; 0 if it is absent."""
        offset = self._offsets[field] if field < len(self._offsets) else 0
        return self._at + offset if offset else 0

    def table(self, field: int) -> _Table:
        position = self.position(field)
        if not position:
            raise ValueError("an Arrow message is incomplete")
        return _Table(self._data, position + _number(self._data, "<I", position))

    def structs(self, field: int, kind: str) -> list[tuple[int, ...]]:
        """A vector of structs; empty if the field is absent."""
        position = self.position(field)
        if not position:
            return []
        position += _number(self._data, "<I", position)
        end = position + 4 + _number(self._data, "<I", position) * struct.calcsize(kind)
        if end > len(self._data):
            raise ValueError("a vector of an Arrow message is outside the message")
        return list(struct.iter_unpack(kind, self._data[position + 4 : end]))


def _number(data: memoryview, kind: str, at: int) -> int:
    if at < 0 or at + struct.calcsize(kind) > len(data):
        raise ValueError("an Arrow message is truncated")
    return int(struct.unpack_from(kind, data, at)[0])


def ipc_sizes(data: pa.Buffer) -> IpcSizes:
    """Compute the sizes of an Arrow file from its headers.

    Raises ``ValueError`` if the headers are inconsistent, and for files with dictionaries.

    >>> out = pa.BufferOutputStream()
    >>> with pa.ipc.new_file(out, pa.schema({"a": pa.uint32()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": pa.array([1, 2, 3], pa.uint32())}))
    >>> ipc_sizes(out.getvalue())
    IpcSizes(rows=3, bytes=12)
    """
    view = memoryview(data)
    tail = len(view) - len(_MAGIC) - 4
    if tail < 0 or bytes(view[-len(_MAGIC) :]) != _MAGIC:
        raise ValueError("the file does not end with Arrow's magic bytes")
    length = _number(view, "<i", tail)
    if not 0 < length <= tail:
        raise ValueError("the footer is outside the file")
    footer = _Table.root(view[tail - length : tail])
    if footer.structs(_FOOTER_DICTIONARIES, _BLOCK):
        raise ValueError("dictionaries are not supported")
    sizes = [_batch_sizes(view, *block) for block in footer.structs(_FOOTER_BATCHES, _BLOCK)]
    return IpcSizes(sum(s.rows for s in sizes), sum(s.bytes for s in sizes))


def _batch_sizes(view: memoryview, offset: int, metadata: int, body: int) -> IpcSizes:
    if offset < 0 or metadata < 8 or body < 0 or offset + metadata + body > len(view):
        raise ValueError("a batch is outside the file")
    head = 8 if _number(view, "<I", offset) == _CONTINUATION else 4
    batch = _Table.root(view[offset + head : offset + metadata]).table(_MESSAGE_HEADER)
    position = batch.position(_BATCH_LENGTH)
    rows = _number(view[offset + head : offset + metadata], "<q", position) if position else 0
    if rows < 0 or any(length != rows for length, _ in batch.structs(_BATCH_NODES, _PAIR)):
        raise ValueError("a column of a batch has a different number of rows")
    expanded = 0
    inside = view[offset + metadata : offset + metadata + body]
    for start, length in batch.structs(_BATCH_BUFFERS, _PAIR):
        if start < 0 or length < 0 or start + length > body:
            raise ValueError("a buffer is outside its batch")
        if batch.position(_BATCH_COMPRESSION) and length:
            size = _number(inside, "<q", start)
            length = length - 8 if size == -1 else size  # -1: this buffer is not compressed
        if length < 0:
            raise ValueError("a buffer of a batch has a negative length")
        expanded += length
    return IpcSizes(rows, expanded)
