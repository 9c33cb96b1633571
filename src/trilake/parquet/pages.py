"""Check a column chunk page by page before it is copied, so that damage is not copied silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from trilake.parquet.files import ThriftReader

_NOTHING: Mapping[int, Any] = {}
#: Fields of a ``PageHeader``: type, sizes before and after compression, checksum, and the number of values.
_PAGE = {1: _NOTHING, 2: _NOTHING, 3: _NOTHING, 4: _NOTHING, 5: {1: _NOTHING}, 8: {1: _NOTHING}}
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3


def check_pages(chunk: memoryview, values: int) -> None:
    """Check that pages are contiguous up to the end of a column chunk, have ``values`` values in total, and match
    their checksums.

    Raises ``ValueError`` or ``IndexError`` where they do not.
    """
    walk = ThriftReader(chunk)
    at, seen, size = 0, 0, len(chunk)
    while at < size:
        start = at
        at, head = walk.struct(at, _PAGE, 0)
        kind, stored = head.get(1), head.get(3)
        if not isinstance(stored, int) or not 0 <= stored <= size - at:
            raise ValueError("a page extends past its column")
        checksum = head.get(4)
        if checksum is not None and crc32(chunk[at : at + stored]) != checksum & 0xFFFFFFFF:
            raise ValueError("a page has not the checksum that it states")
        if kind in (_DATA, _DATA_2):
            inner = head.get(5 if kind == _DATA else 8)
            count = inner.get(1) if isinstance(inner, dict) else None
            if not isinstance(count, int) or count < 0:
                raise ValueError("a page states no number of values")
            seen += count
        elif kind != _DICTIONARY or start:
            raise ValueError("a page has an unknown type, or a dictionary is not the first page")
        at += stored
    if seen != values:
        raise ValueError(f"the pages have {seen} values, the footer states {values}")
