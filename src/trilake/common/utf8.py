"""Check that the bytes of a string column are UTF-8, as Arrow requires."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt


def is_utf8(offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8]) -> bool:
    """Whether every string between ``offsets`` is UTF-8; offsets ascend and lie within ``data``.

    >>> data = np.frombuffer("aé".encode(), np.uint8)
    >>> is_utf8(np.array([0, 1, 3]), data), is_utf8(np.array([0, 2, 3]), data)
    (True, False)
    """
    first, last = int(offsets[0]), int(offsets[-1])
    data, starts = data[first:last], offsets[:-1] - offsets[0]
    if not len(data) or data.max() < 128:
        return True
    # Check all bytes as one string first: fast, and enough unless an offset splits a character.
    ends = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return not ((data[starts[starts < len(data)]] & 0xC0) == 0x80).any()


def strings_are_utf8(array: pa.Array) -> bool:
    """Whether the strings of an array are UTF-8, including those in dictionaries and structs.

    True for other types; values under nulls are ignored.

    >>> strings_are_utf8(pa.array(["a", None]))
    True
    """
    kind = array.type
    if pt.is_dictionary(kind):
        return strings_are_utf8(array.dictionary)
    if pt.is_struct(kind):
        return all(strings_are_utf8(array.field(number)) for number in range(kind.num_fields))
    if not (pt.is_string(kind) or pt.is_large_string(kind)) or not len(array):
        return True
    _, offsets, data = array.buffers()
    width = np.dtype(np.int64 if pt.is_large_string(kind) else np.int32)
    starts = np.frombuffer(offsets, width, len(array) + 1, array.offset * width.itemsize)
    if starts[0] == starts[-1] or is_utf8(starts, np.frombuffer(data, np.uint8)):
        return True
    return bool(array.null_count) and strings_are_utf8(array.drop_null())
