"""Parse and write Thrift's compact protocol, one level at a time.

Unparsed fields stay bytes, so a footer only changes where intended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trilake.parquet.files import ThriftReader

TRUE, FALSE, I32, I64, TEXT, LIST, STRUCT = 1, 2, 5, 6, 8, 9, 12
_INTEGERS = (4, I32, I64)


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
    if value is None or value.kind not in _INTEGERS:
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
