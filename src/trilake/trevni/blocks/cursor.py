"""``Cursor``: read primitive values (spec: "Primitive Values")."""

from __future__ import annotations

import struct
from typing import Any

from trilake.errors import CorruptFileError


class NeedMoreBytes(Exception):
    """The value continues after the fetched bytes.  Never leaves this package."""


class Cursor:
    """Reads primitive values from bytes; errors contain the offset in the file."""

    def __init__(self, data: bytes | memoryview, *, file: str, base: int = 0, limit: int | None = None, **context: Any):
        self._data = memoryview(data).cast("B")  # Arrow buffers have signed bytes
        self.position = 0
        self._base = base
        # Bytes after ``data`` and before this limit can be fetched.
        self._limit = len(self._data) if limit is None else limit
        self._context = {"file": file, **context}

    def about(self, **context: Any) -> None:
        """Set the context of further errors."""
        self._context.update(context)

    def fail(
        self, message: str, at: int | None = None, kind: type[CorruptFileError] = CorruptFileError
    ) -> CorruptFileError:
        """Return the error for a fault at byte ``at``, by default the current one."""
        offset = self._base + (self.position if at is None else at)
        return kind(message, **self._context, offset=offset)

    @property
    def remaining(self) -> int:
        """Bytes left until the end of the file."""
        return self._limit - self.position

    def take(self, size: int, what: str) -> memoryview:
        if size > self.remaining:
            raise self.fail(f"{what} needs {size} bytes, but the file has only {self.remaining} more")
        if self.position + size > len(self._data):
            raise NeedMoreBytes
        self.position += size
        return self._data[self.position - size : self.position]

    def fixed32(self, what: str) -> int:
        return int(struct.unpack("<i", self.take(4, what))[0])

    def fixed64(self, what: str) -> int:
        return int(struct.unpack("<q", self.take(8, what))[0])

    def varint(self, what: str, bits: int = 32) -> int:
        """Read a zig-zag ``int`` (32 bits) or ``long`` (64 bits).  Raises ``CorruptFileError`` if it is longer."""
        value = shift = 0
        start = self.position
        while True:
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= bits:
                raise self.fail(f"{what} is a varint of more than {(bits + 6) // 7} bytes", start)
        if value >> bits:
            raise self.fail(f"{what} is an integer of more than {bits} bits", start)
        return (value >> 1) ^ -(value & 1)

    def bytes_(self, what: str) -> bytes:
        start = self.position
        size = self.varint(f"the length of {what}")
        if size < 0:
            raise self.fail(f"the length of {what} is negative: {size}", start)
        return bytes(self.take(size, what))

    def string(self, what: str) -> str:
        start = self.position
        return self.decoded(self.bytes_(what), what, start)

    def decoded(self, value: bytes, what: str, at: int | None = None) -> str:
        """Decode UTF-8; ``at`` is the offset for errors."""
        try:
            return value.decode()
        except UnicodeDecodeError as e:
            raise self.fail(f"{what} is not UTF-8: {e.reason}", at) from None
