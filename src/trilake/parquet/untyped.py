"""Parquet columns without a type (logical type ``UNKNOWN``), which contain only nulls.

Arrow writes them for arrays of type null, stored as integers.  Spark reads integers, and rejects the file if the column
has another type in the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from trilake.common.arrow_types import types_in
from trilake.parquet.files import TAIL, footer_length
from trilake.parquet.thrift import parse_struct, parse_structs

#: Bytes to read at the end of a file: most footers are smaller.
_END = 1 << 16
#: Fields of the footer, of a schema element, and of a logical type.
_SCHEMA, _LOGICAL, _UNKNOWN = 2, 10, 11
#: The encoded logical type ``UNKNOWN``: field 11, an empty struct, the end.
_SPELLED = bytes([_UNKNOWN << 4 | 12, 0, 0])


def has_untyped(schema: pa.Schema) -> bool:
    """Whether a column, or a part of one, has no type in Arrow.

    >>> has_untyped(pa.schema([("a", pa.list_(pa.null()))])), has_untyped(pa.schema([("a", pa.int64())]))
    (True, False)
    """
    return any(pa.types.is_null(t) for f in schema for t in types_in(f.type))


def footer_has_untyped(footer: bytes) -> bool:
    """Whether a footer has a column without a type; false for damaged footers."""
    if _SPELLED not in footer:
        return False
    try:
        elements = parse_structs(parse_struct(footer)[_SCHEMA])
        return any(_UNKNOWN in parse_struct(e[_LOGICAL].data) for e in elements if _LOGICAL in e)
    except (ValueError, IndexError, KeyError):
        return False


def first_untyped(paths: Iterable[str]) -> str | None:
    """The first local file with a column without a type, by cached footers; missing or damaged files are ignored."""
    return next((path for path in paths if _untyped(path)), None)


def _untyped(path: str) -> bool:
    try:
        stat = os.stat(path)
        return _of_file(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, ValueError):  # for a path with a null byte
        return False


@lru_cache(maxsize=1 << 16)
def _of_file(path: str, size: int, modified: int) -> bool:
    with open(path, "rb", buffering=0) as file:
        end = _read_end(file.fileno(), size, _END)
        length = footer_length(end[-TAIL:], size)
        if length is None:
            return False
        if length + TAIL > len(end):
            end = _read_end(file.fileno(), size, length + TAIL)
        return footer_has_untyped(end[-TAIL - length : -TAIL])


def _read_end(file: int, size: int, length: int) -> bytes:
    start = max(0, size - length)
    return os.pread(file, size - start, start)
