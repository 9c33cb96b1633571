"""The sort order of ``values`` columns, which is that of the reference.

Strings are compared by UTF-16 code units, and bytes as signed bytes.  Among floating-point numbers -0.0 is less than
0.0, and NaN, with any bits, is greater than all others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.trevni.blocks.layout import ValueType

_SIGNED = bytes(i ^ 0x80 for i in range(256))


def _float_key(value: float) -> int:
    if value != value:
        return 1 << 64
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits) if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF) - 1


_KEYS: dict[ValueType, Callable[[Any], Any]] = {
    ValueType.NULL: lambda value: 0,
    ValueType.STRING: lambda value: value.encode("utf-16-be", "surrogatepass"),
    ValueType.BYTES: lambda value: value.translate(_SIGNED),
    ValueType.FLOAT: _float_key,
    ValueType.DOUBLE: _float_key,
}


def key(type_: ValueType) -> Callable[[Any], Any]:
    """Return a sort key function for the order of the reference.

    >>> k = key(ValueType.DOUBLE)
    >>> k(float("-inf")) < k(-0.0) < k(0.0) < k(5e-324) < k(float("inf")) < k(float("nan"))
    True
    """
    return _KEYS.get(type_, lambda value: value)


def is_sorted(values: pa.Array, type_: ValueType) -> bool:
    """Whether values without nulls ascend; strings also by their bytes, the order of filters."""
    if len(values) < 2 or type_ is ValueType.NULL:
        return True
    if type_ not in (ValueType.STRING, ValueType.BYTES):
        ordered = sort_keys(values, type_)
        return bool((ordered[:-1] <= ordered[1:]).all())
    plain = values.cast(pa.large_binary())
    if not pc.all(pc.less_equal(plain[:-1], plain[1:])).as_py():
        return False
    # The orders differ for characters of two UTF-16 units, and for negative bytes.
    data = np.frombuffer(plain.buffers()[2] or b"", np.uint8)
    if not data.size or data.max() < (0xF0 if type_ is ValueType.STRING else 0x80):
        return True
    keys = list(map(key(type_), values.to_pylist()))
    return all(a <= b for a, b in pairwise(keys))


def sort_keys(values: pa.Array, type_: ValueType) -> np.ndarray[Any, Any]:
    """Return numbers whose order is that of the reference; not for strings and bytes."""
    if type_ is ValueType.BOOLEAN:
        return np.asarray(values.cast(pa.uint8()))
    array = np.asarray(values)
    if array.dtype.kind != "f":
        return array
    wide = array.astype(np.float64)
    bits = wide.view(np.int64)
    ordered = np.where(bits >= 0, bits, -(bits & 0x7FFFFFFFFFFFFFFF) - 1)
    return np.where(np.isnan(wide), np.iinfo(np.int64).max, ordered)
