"""Convert between JSON strings and JSONB, the storage form of JSON columns.

A value is a four-byte header with its kind and number of parts, a four-byte entry with kind and size for each part, and
the parts.  In an object all keys come first, sorted; numbers are big-endian.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any

import pyarrow as pa

from trilake.errors import CorruptFileError
from trilake.lance.file.errors import RowsDoNotFitError

_ARRAY, _OBJECT, _SCALAR = 0x80000000, 0x40000000, 0x20000000
_COUNT = 0x1FFFFFFF
_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER = (kind << 28 for kind in range(6))
_SIZE = 0x0FFFFFFF
_ZERO, _NAN, _INFINITY, _LEAST, _SIGNED, _UNSIGNED, _FLOAT = (kind << 4 for kind in range(7))
#: Maximum levels of nesting.
_MAX_DEPTH = 128
_U32 = struct.Struct(">I")
_FLOAT64 = struct.Struct(">d")
_EXPONENT = re.compile(r"e([+-])0*(\d+)\Z")


def encode(array: pa.Array) -> pa.Array:
    """Encode JSON strings.  Raises ``RowsDoNotFitError`` for invalid JSON."""
    return pa.array([None if value is None else _encoded(value) for value in array.to_pylist()], pa.large_binary())


def decode(array: pa.Array) -> pa.Array:
    """Decode JSONB to JSON strings.  Raises ``CorruptFileError``."""
    try:
        strings = [None if value is None else _decoded(value) for value in array.to_pylist()]
    except (struct.error, ValueError, IndexError, RecursionError) as e:
        raise CorruptFileError(f"a value is not valid JSONB: {e}") from e
    return pa.array(strings, pa.string())


# --- writing ---------------------------------------------------------------------------------------------------------


def _encoded(value: str) -> bytes:
    try:
        parsed = json.loads(value, object_pairs_hook=_object, parse_constant=_no_constant)
        return _value(parsed)
    except (ValueError, RecursionError) as e:
        raise RowsDoNotFitError(f"a value is not JSON: {e}: {value[:100]!r}", help="write valid JSON") from e


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("an object has a duplicate key")
    return result


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _value(value: Any) -> bytes:
    if isinstance(value, dict):
        pairs = sorted((key.encode(), part) for key, part in value.items())
        parts = [(_STRING, key) for key, _ in pairs] + [_part(part) for _, part in pairs]
        return _joined(_OBJECT | len(pairs), parts)
    if isinstance(value, list):
        return _joined(_ARRAY | len(value), [_part(part) for part in value])
    return _joined(_SCALAR, [_part(value)])


def _joined(header: int, parts: list[tuple[int, bytes]]) -> bytes:
    entries = [_U32.pack(kind | len(data)) for kind, data in parts]
    return _U32.pack(header) + b"".join(entries) + b"".join(data for _, data in parts)


def _part(value: Any) -> tuple[int, bytes]:
    match value:
        case None:
            return _NULL, b""
        case True:
            return _TRUE, b""
        case False:
            return _FALSE, b""
        case str():
            return _STRING, value.encode()
        case int() if -(1 << 63) <= value < 1 << 64:
            return _NUMBER, _integer(value)
        case int() | float():
            return _NUMBER, _floating(float(value))
    return _CONTAINER, _value(value)


def _integer(value: int) -> bytes:
    if not value:
        return bytes([_ZERO])
    for size in (1, 2, 4, 8):
        if value > 0 and value < 1 << 8 * size:
            return bytes([_UNSIGNED]) + value.to_bytes(size, "big")
        if value < 0 and value >= -(1 << 8 * size - 1):
            return bytes([_SIGNED]) + value.to_bytes(size, "big", signed=True)
    raise AssertionError("not reached")


def _floating(value: float) -> bytes:
    if math.isinf(value):
        return bytes([_INFINITY if value > 0 else _LEAST])
    return bytes([_FLOAT]) + _FLOAT64.pack(value)


# --- reading ---------------------------------------------------------------------------------------------------------


def _decoded(data: bytes) -> str:
    out: list[str] = []
    _write(data, 0, out, 0)
    return "".join(out)


def _write(data: bytes, at: int, out: list[str], depth: int) -> None:
    """Append the JSON of the value at a position."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"values are nested more than {_MAX_DEPTH} levels deep")
    (header,) = _U32.unpack_from(data, at)
    kind, count = header & ~_COUNT, header & _COUNT
    if kind == _SCALAR:
        (entry,) = _U32.unpack_from(data, at + 4)
        _write_part(data, at + 8, entry, out, depth)
        return
    if kind not in (_ARRAY, _OBJECT):
        raise ValueError(f"invalid header {header:#x}")
    keys = count if kind == _OBJECT else 0
    if 4 * (count + keys) > len(data) - at:
        raise ValueError(f"a value claims {count} parts in {len(data)} bytes")
    entries = struct.unpack_from(f">{count + keys}I", data, at + 4)
    place = at + 4 + 4 * len(entries)
    names = []
    for entry in entries[:keys]:
        names.append(_string(data, place, entry & _SIZE))
        place += entry & _SIZE
    out.append("[" if kind == _ARRAY else "{")
    for i, entry in enumerate(entries[keys:]):
        if i:
            out.append(",")
        if names:
            out += (_quoted(names[i]), ":")
        _write_part(data, place, entry, out, depth)
        place += entry & _SIZE
    out.append("]" if kind == _ARRAY else "}")


def _write_part(data: bytes, at: int, entry: int, out: list[str], depth: int) -> None:
    kind, size = entry & ~_SIZE, entry & _SIZE
    if at + size > len(data):
        raise ValueError(f"a JSONB entry of {size} bytes starts at {at}, but there are only {len(data)} bytes")
    if kind == _CONTAINER:
        _write(data, at, out, depth + 1)
    elif kind == _STRING:
        out.append(_quoted(_string(data, at, size)))
    elif kind == _NUMBER:
        out.append(_number(data[at : at + size]))
    elif kind in (_NULL, _TRUE, _FALSE):
        out.append({_NULL: "null", _TRUE: "true", _FALSE: "false"}[kind])
    else:
        raise ValueError(f"unknown JSONB entry type {kind >> 28}")


def _string(data: bytes, at: int, size: int) -> str:
    if at + size > len(data):
        raise ValueError(f"a string of {size} bytes begins at {at} of {len(data)}")
    return data[at : at + size].decode()


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(data: bytes) -> str:
    kind, rest = data[0] & 0xF0, data[1:]
    if kind == _ZERO:
        return "0"
    if kind in (_NAN, _INFINITY, _LEAST):
        return "null"
    if kind in (_SIGNED, _UNSIGNED) and len(rest) in (1, 2, 4, 8):
        return str(int.from_bytes(rest, "big", signed=kind == _SIGNED))
    if kind == _FLOAT:
        return _shortest(_FLOAT64.unpack(rest)[0])
    raise ValueError(f"invalid number of kind {kind >> 4} in {len(data)} bytes")


def _shortest(value: float) -> str:
    """The shortest string that parses to the same number, without leading zeros in the exponent."""
    digits = repr(value)
    match = _EXPONENT.search(digits)
    if match is None:
        return digits
    if match[1] == "-" and int(match[2]) <= 5:
        return f"{value:.{len(digits)}f}".rstrip("0")
    sign = "-" if match[1] == "-" else "+"
    return f"{digits[: match.start()]}e{sign}{match[2]}"
