"""Compute the decompressed size of an Arrow IPC file from its headers.

Compressed buffers state their decompressed size in their first eight bytes, and Arrow's reader trusts it.  A tiny file
must not exhaust the memory, so the caller checks the size first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
#: Field numbers in Arrow's flatbuffer tables.
_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3
_MESSAGE_HEADER = 2
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 1, 2, 3
_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
_NODE = np.dtype([("length", "<i8"), ("nulls", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])


@dataclass(frozen=True)
class IpcSizes:
    """Rows of all batches of an Arrow file, and bytes of its buffers after decompression."""

    rows: int
    bytes: int


class _Table:
    """A flatbuffer table, with fields by number.  Raises ``ValueError`` for positions outside the buffer."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        vtable = at - _number(data, "<i", at)
        size = _number(data, "<H", vtable)
        self._places = [_number(data, "<H", vtable + i) for i in range(4, size, 2)]

    def _place(self, field: int) -> int:
        """The position of a field; 0 if it is absent."""
        offset = self._places[field] if field < len(self._places) else 0
        return self._at + offset if offset else 0

    def number(self, field: int) -> int:
        """A 64-bit field, 0 by default."""
        place = self._place(field)
        return _number(self._data, "<q", place) if place else 0

    def has(self, field: int) -> bool:
        return bool(self._place(field))

    def table(self, field: int) -> _Table:
        place = self._place(field)
        if not place:
            raise ValueError("an Arrow message is incomplete")
        return _Table(self._data, place + _number(self._data, "<I", place))

    def structs(self, field: int, kind: np.dtype) -> np.ndarray:
        """A vector of structs; empty if the field is absent."""
        place = self._place(field)
        if not place:
            return np.empty(0, kind)
        place += _number(self._data, "<I", place)
        count = _number(self._data, "<I", place)
        end = place + 4 + count * kind.itemsize
        if end > len(self._data):
            raise ValueError("a vector of an Arrow message lies outside the message")
        return np.frombuffer(self._data[place + 4 : end], kind)


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
    tail = len(_MAGIC) + 4
    if len(view) < tail or bytes(view[-len(_MAGIC) :]) != _MAGIC:
        raise ValueError("the file does not end with Arrow's magic bytes")
    length = _number(view, "<i", len(view) - tail)
    if not 0 < length <= len(view) - tail:
        raise ValueError("the footer lies outside the file")
    footer = _root(view[len(view) - tail - length : len(view) - tail])
    if len(footer.structs(_FOOTER_DICTIONARIES, _BLOCK)):
        raise ValueError("dictionaries are not supported")
    rows = expanded = 0
    for block in footer.structs(_FOOTER_BATCHES, _BLOCK).tolist():
        sizes = _batch_sizes(view, offset=block[0], metadata=block[1], body=block[3])
        rows, expanded = rows + sizes.rows, expanded + sizes.bytes
    return IpcSizes(rows, expanded)


def _root(data: memoryview) -> _Table:
    return _Table(data, _number(data, "<I", 0))


def _batch_sizes(view: memoryview, *, offset: int, metadata: int, body: int) -> IpcSizes:
    if offset < 0 or metadata < 8 or body < 0 or offset + metadata + body > len(view):
        raise ValueError("a batch lies outside the file")
    head = 8 if _number(view, "<I", offset) == _CONTINUATION else 4
    batch = _root(view[offset + head : offset + metadata]).table(_MESSAGE_HEADER)
    rows = batch.number(_BATCH_LENGTH)
    if rows < 0 or (batch.structs(_BATCH_NODES, _NODE)["length"] != rows).any():
        raise ValueError("a column of a batch has a different number of rows")
    expanded = 0
    inside = view[offset + metadata : offset + metadata + body]
    for start, length in batch.structs(_BATCH_BUFFERS, _BUFFER).tolist():
        if start < 0 or length < 0 or start + length > body:
            raise ValueError("a buffer lies outside its batch")
        if batch.has(_BATCH_COMPRESSION) and length:
            size = _number(inside, "<q", start)
            length = length - 8 if size == -1 else size  # -1: this buffer is not compressed
        if length < 0:
            raise ValueError("a buffer of a batch has a negative length")
        expanded += length
    return IpcSizes(rows, expanded)
