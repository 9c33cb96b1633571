"""Names of Arrow types in ``arrow_cast``, such as ``FixedSizeList(4, Float32)``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

_TOKEN = re.compile(r'\s*(?:([A-Za-z]\w*)|(-?\d+)|"([^"]*)"|(\S))')
_UNITS = {"Second": "s", "Millisecond": "ms", "Microsecond": "us", "Nanosecond": "ns"}
_PLAIN: dict[str, pa.DataType] = {
    "Null": pa.null(),
    "Boolean": pa.bool_(),
    "Float16": pa.float16(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Utf8": pa.string(),
    "Utf8View": pa.string(),
    "LargeUtf8": pa.large_string(),
    "Binary": pa.binary(),
    "BinaryView": pa.binary(),
    "LargeBinary": pa.large_binary(),
    "Date32": pa.date32(),
    "Date64": pa.date64(),
    **{f"{sign}Int{bits}": getattr(pa, f"{sign.lower()}int{bits}")() for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
_WITH_PARAMETERS: dict[str, Callable[..., pa.DataType]] = {
    "FixedSizeBinary": pa.binary,
    "Decimal128": pa.decimal128,
    "Decimal256": pa.decimal256,
    "Timestamp": pa.timestamp,
    "Time32": pa.time32,
    "Time64": pa.time64,
    "Duration": pa.duration,
    "List": pa.list_,
    "LargeList": pa.large_list,
    "FixedSizeList": lambda size, item: pa.list_(item, size),
    "Dictionary": pa.dictionary,
    "Some": lambda value: value,
}


def parse_type(name: str) -> pa.DataType | None:
    """Parse the name of a type; ``None`` if it is invalid.

    >>> parse_type("FixedSizeList(4, Float32)"), parse_type('Timestamp(Nanosecond, Some("UTC"))'), parse_type("Float8")
    (FixedSizeListType(fixed_size_list<item: float>[4]), TimestampType(timestamp[ns, tz=UTC]), None)
    """
    tokens = list(_TOKEN.finditer(name))
    try:
        value = _value(tokens)
    except (KeyError, IndexError, TypeError, ValueError, RecursionError, pa.ArrowException):
        return None
    return value if isinstance(value, pa.DataType) and not tokens else None


def _value(tokens: list[re.Match[str]]) -> Any:
    """Parse and remove the first type, unit, number, string or ``None``."""
    token = tokens.pop(0)
    word, number, string, _ = token.groups()
    if number is not None:
        return int(number)
    if string is not None:
        return string
    if word in _WITH_PARAMETERS:
        arguments = [_after(tokens, "(")]
        while tokens[0][4] == ",":
            arguments.append(_after(tokens, ","))
        if tokens.pop(0)[4] != ")":
            raise ValueError(word)
        return _WITH_PARAMETERS[word](*arguments)
    return None if word == "None" else _UNITS[word] if word in _UNITS else _PLAIN[word]


def _after(tokens: list[re.Match[str]], mark: str) -> Any:
    if tokens.pop(0)[4] != mark:
        raise ValueError(mark)
    return _value(tokens)
