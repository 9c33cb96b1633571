"""Thrift's compact protocol: read requested fields, or parse and write one level at a time.

Fields that are not parsed stay bytes, so a footer only changes where intended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, TEXT, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = frozenset((I16, I32, I64))
#: Requests a value that is not a struct.
NO_FIELDS: Mapping[int, Any] = {}
_MAX_DEPTH = 32


class ThriftReader:
    """Read Thrift's compact protocol: requested fields of structs, as ``{field id: value}``."""

    def __init__(self, data: Any) -> None:  # bytes, or a memoryview
        self.data = data

    def varint(self, at: int) -> tuple[int, int]:
        """The position after a number, and the number."""
        data = self.data
        value = data[at]
        at += 1
        if value >= 0x80:
            value &= 0x7F
            shift = 7
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise ValueError("a number has more than 64 bits")
        return at, value

    def _count(self, at: int) -> tuple[int, int]:
        """The position after a number of bytes or elements, and the number."""
        at, count = self.varint(at)
        if count > len(self.data) - at:  # an element has at least one byte
            raise ValueError("a string or list extends past the end of the footer")
        return at, count

    def list_head(self, at: int) -> tuple[int, int, int]:
        """The position after the header of a list, its element type, and its length."""
        head = self.data[at]
        if head < 0xF0:
            return at + 1, head & 0x0F, head >> 4
        at, count = self._count(at + 1)
        return at, head & 0x0F, count

    def struct(self, at: int, requested: Mapping[int, Any], depth: int, *, last: int = 0) -> tuple[int, dict[int, Any]]:
        """The position after a struct, and its ``requested`` fields; ``at`` is after the field ``last``."""
        if depth > _MAX_DEPTH:
            raise ValueError("the footer is nested too deeply")
        out: dict[int, Any] = {}
        data = self.data
        while True:
            head = data[at]
            at += 1
            kind = head & 0x0F
            if kind == 0:
                return at, out
            delta = head >> 4
            if delta:
                last += delta
            else:
                at, last = self.varint(at)
                last = (last >> 1) ^ -(last & 1)
            if kind <= 2:  # a boolean is in the header
                continue
            inside = requested.get(last)
            if inside is None:
                at = self.skip(at, kind, depth)
            else:
                at, out[last] = self._value(at, kind, inside, depth)

    def _value(self, at: int, kind: int, requested: Mapping[int, Any], depth: int) -> tuple[int, Any]:
        if kind in INTEGERS:
            at, value = self.varint(at)
            return at, (value >> 1) ^ -(value & 1)
        if kind == TEXT:
            at, count = self._count(at)
            return at + count, self.data[at : at + count]
        if kind == STRUCT:
            return self.struct(at, requested, depth + 1)
        if kind == LIST:
            at, kind, count = self.list_head(at)
            out = []
            for _ in range(count):
                at, value = self._value(at, kind, requested, depth + 1)
                out.append(value)
            return at, out
        return self.skip(at, kind, depth), None

    def skip(self, at: int, kind: int, depth: int) -> int:
        """The position after a skipped value."""
        data = self.data
        if kind in INTEGERS:
            while data[at] >= 0x80:
                at += 1
            return at + 1
        if kind == TEXT:
            at, count = self._count(at)
            return at + count
        if kind == STRUCT:
            if depth > _MAX_DEPTH:
                raise ValueError("the footer is nested too deeply")
            while True:
                head = data[at]
                at += 1
                if head == 0:
                    return at
                if head < 0x10:
                    at, _ = self.varint(at)
                inner = head & 0x0F
                if inner > 2:
                    at = self.skip(at, inner, depth + 1)
                elif inner == 0:
                    raise ValueError("a struct ends within a field")
        if kind in (LIST, SET):
            at, inner, count = self.list_head(at)
            for _ in range(count):
                at = self.skip(at, inner, depth + 1)
            return at
        if kind <= 3:  # a boolean in a list, or a byte
            return at + 1
        if kind == DOUBLE:
            return at + 8
        if kind == MAP:
            at, count = self._count(at)
            if count:
                head = data[at]
                at += 1
                for _ in range(count):
                    at = self.skip(at, head >> 4, depth + 1)
                    at = self.skip(at, head & 0x0F, depth + 1)
            return at
        raise ValueError(f"type {kind} is unknown")


class Value(NamedTuple):
    """A field's type in the protocol, and its bytes; booleans have none."""

    kind: int
    data: bytes


#: Fields by id, in the order in which they were written.
Struct = dict[int, Value]


def parse_struct(data: bytes) -> Struct:
    """Parse the fields of the struct in ``data``.  Raises ``IndexError`` or ``ValueError`` for invalid bytes.

    >>> {key: to_int(value) for key, value in parse_struct(bytes([0x15, 0x0E, 0x00])).items()}
    {1: 7}
    """
    walk, at, last, out = ThriftReader(data), 0, 0, Struct()
    while True:
        head = data[at]
        at += 1
        kind, delta = head & 0x0F, head >> 4
        if kind == 0:
            break
        if delta:
            last += delta
        else:
            at, coded = walk.varint(at)
            last = _unfold(coded)
        end = at if kind in (TRUE, FALSE) else walk.skip(at, kind, 0)
        if last in out or end > len(data):
            raise ValueError("a struct has a duplicate field, or ends too early")
        out[last] = Value(kind, data[at:end])
        at = end
    if at != len(data):
        raise ValueError("unexpected bytes after a struct")
    return out


def struct_bytes(struct: Struct) -> bytes:
    """The bytes of a struct.

    >>> struct_bytes({1: number(7)}).hex()
    '160e00'
    """
    out, last = bytearray(), 0
    for key, value in struct.items():
        delta = key - last
        if 0 < delta < 16:
            out.append(delta << 4 | value.kind)
        else:
            out.append(value.kind)
            out += unsigned(zigzag(key))
        out += value.data
        last = key
    out.append(0)
    return bytes(out)


def parse_list(value: Value) -> Iterator[Value]:
    """Parse the elements of a list.  Raises ``IndexError`` or ``ValueError`` for an invalid value."""
    if value.kind != LIST:
        raise ValueError("expected a list")
    data = value.data
    walk = ThriftReader(data)
    at, kind, count = walk.list_head(0)
    for _ in range(count):
        end = walk.skip(at, kind, 0)
        yield Value(kind, data[at:end])
        at = end
    if at != len(data):
        raise ValueError("unexpected bytes after a list")


def struct_list(structs: Iterable[Struct]) -> Value:
    """Encode a list of structs."""
    parts = [struct_bytes(s) for s in structs]
    count = len(parts)
    head = bytes([count << 4 | STRUCT]) if count < 15 else bytes([0xF0 | STRUCT]) + unsigned(count)
    return Value(LIST, head + b"".join(parts))


def parse_structs(value: Value) -> list[Struct]:
    """Parse the structs of a list.  Raises ``IndexError`` or ``ValueError`` for an invalid value."""
    out = []
    for element in parse_list(value):
        if element.kind != STRUCT:
            raise ValueError("expected a struct")
        out.append(parse_struct(element.data))
    return out


def number(value: int, kind: int = I64) -> Value:
    """Encode an integer.

    >>> to_int(number(-3))
    -3
    """
    return Value(kind, unsigned(zigzag(value)))


def to_int(value: Value | None) -> int:
    """The integer of a field.  Raises ``ValueError`` if it is missing or has another type."""
    if value is None or value.kind not in INTEGERS:
        raise ValueError("expected a number")
    return _unfold(ThriftReader(value.data).varint(0)[1])


def to_bytes(value: Value | None) -> bytes:
    """The bytes of a string.  Raises ``ValueError`` if it is missing or has another type."""
    if value is None or value.kind != TEXT:
        raise ValueError("expected a string")
    at, _ = ThriftReader(value.data).varint(0)
    return value.data[at:]


def unsigned(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Zig-zag encode a 64-bit integer: small numbers of either sign stay small."""
    return (value << 1 ^ value >> 63) & (1 << 64) - 1


def _unfold(coded: int) -> int:
    return (coded >> 1) ^ -(coded & 1)
