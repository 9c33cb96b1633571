"""The Trevni type of each Arrow type, and conversions between their values.

========================================  ==========  ================================================================
Arrow                                     Trevni      stored as
========================================  ==========  ================================================================
null, bool, float, double                 the same
int8/16/32, uint8/16                      int
int64, uint32                             long
uint64                                    fixed64     its bits
halffloat                                 int         its bits
string, large_string, string_view         string
binary, large_…, …_view, fixed_size_…     bytes
date32, time32                            int         days; seconds or milliseconds
date64, time64, timestamp, duration       long        in the unit of the type
decimal, precision <= 9                   int         unscaled
decimal, precision <= 18                  long        unscaled
decimal, precision above                  bytes       unscaled, 4 to 32 bytes, two's complement, big-endian
month_day_nano_interval                   bytes       the 16 bytes of Arrow
dictionary, run_end_encoded               as the values
extension                                 as the storage
union                                     as a struct of lists of 0 or 1 values, a list for each branch
========================================  ==========  ================================================================

An int may be stored as fixed32 and a long as fixed64, and vice versa; readers accept both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.arrow_types import is_binary, is_string
from trilake.errors import InvalidArgumentError
from trilake.trevni.blocks.layout import ValueType

T = pa.types


def value_type(type_: pa.DataType) -> ValueType | None:
    """Return the Trevni type of a bare Arrow type; ``None`` for lists, structs and maps.

    >>> value_type(pa.timestamp("us")), value_type(pa.decimal128(38, 2))
    (<ValueType.LONG: 'long'>, <ValueType.BYTES: 'bytes'>)
    """
    simple = {
        pa.null(): ValueType.NULL,
        pa.bool_(): ValueType.BOOLEAN,
        pa.uint32(): ValueType.LONG,
        pa.int64(): ValueType.LONG,
        pa.uint64(): ValueType.FIXED64,
        pa.float32(): ValueType.FLOAT,
        pa.float64(): ValueType.DOUBLE,
        pa.float16(): ValueType.INT,
        pa.month_day_nano_interval(): ValueType.BYTES,
    }.get(type_)
    if simple is not None:
        return simple
    if T.is_integer(type_) or T.is_date32(type_) or T.is_time32(type_):
        return ValueType.INT
    if T.is_date64(type_) or T.is_time64(type_) or T.is_timestamp(type_) or T.is_duration(type_):
        return ValueType.LONG
    if is_string(type_):
        return ValueType.STRING
    if is_binary(type_):
        return ValueType.BYTES
    if T.is_decimal(type_):
        return ValueType.INT if type_.precision <= 9 else ValueType.LONG if type_.precision <= 18 else ValueType.BYTES
    if T.is_nested(type_) and not T.is_union(type_):
        return None
    raise InvalidArgumentError(
        f"the Arrow type {type_} cannot be stored in a Trevni file", help="cast the column to a supported type"
    )


def to_values(array: pa.Array) -> pa.Array:
    """Convert a bare array without nulls to stored values: :attr:`ValueType.arrow`, or strings with 64-bit offsets."""
    type_ = array.type
    kind = value_type(type_)
    assert kind is not None
    count = len(array)
    if type_ in (pa.null(), pa.bool_(), kind.arrow, pa.large_string(), pa.large_binary()):
        return array
    if kind is ValueType.STRING:
        return array.cast(pa.large_string())
    if T.is_decimal(type_):
        return _from_decimals(array, kind)
    if T.is_binary_view(type_) or T.is_fixed_size_binary(type_):
        return array.cast(pa.large_binary())
    if type_ == pa.month_day_nano_interval():
        return _fixed_bytes(_raw(array, 16), count, 16)
    if type_ == pa.float16():
        return array.view(pa.int16()).cast(pa.int32())
    return array.view(kind.arrow) if type_ == pa.uint64() or T.is_temporal(type_) else array.cast(kind.arrow)


def filled(array: pa.Array) -> pa.Array:
    """Replace the nulls of a bare leaf array with zeros or empty strings."""
    type_ = array.type
    if T.is_boolean(type_):
        return array.fill_null(False)
    if is_string(type_):
        return array.fill_null("")
    if is_binary(type_) and not T.is_fixed_size_binary(type_):
        return array.fill_null(b"")
    # The bits of a null are arbitrary and must not go into a file.
    raw = _raw(array, type_.bit_width // 8).copy()
    raw[np.asarray(array.is_null().cast(pa.uint8())).view(bool)] = 0
    return pa.Array.from_buffers(type_, len(array), [None, pa.py_buffer(raw)])


def from_values(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert stored values to an Arrow type.  Raises ``ValueError`` for values out of the type's range."""
    kind = value_type(type_)
    assert kind is not None
    if type_ == values.type:
        return values
    if T.is_decimal(type_):
        return _to_decimals(values, type_)
    if T.is_fixed_size_binary(type_) or type_ == pa.month_day_nano_interval():
        data = _equal_sizes(values, type_.bit_width // 8)
        return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(data)])
    if type_ == pa.float16():
        return values.cast(pa.int16()).view(type_)
    return values.view(type_) if type_ == pa.uint64() or T.is_temporal(type_) else values.cast(type_)


def _raw(array: pa.Array, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a fixed-width array, one row per value."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.empty((0, width), np.uint8)
    return np.frombuffer(data, np.uint8)[array.offset * width :][: len(array) * width].reshape(len(array), width)


def _fixed_bytes(raw: np.ndarray[Any, np.dtype[np.uint8]], count: int, width: int) -> pa.Array:
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(raw))]
    )


def _equal_sizes(values: pa.Array, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of values with ``width`` bytes each.  Raises ``ValueError`` for other sizes."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    if (np.diff(offsets) != width).any():
        raise ValueError(f"expected values of {width} bytes")
    data = values.buffers()[2]
    if data is None or not len(values):
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def _from_decimals(array: pa.Array, kind: ValueType) -> pa.Array:
    width = array.type.bit_width // 8
    raw = _raw(array, width)
    if kind is ValueType.BYTES:
        return _fixed_bytes(raw[:, ::-1], len(array), width)
    # The unscaled value fits in the lowest bytes.
    size = kind.arrow.bit_width // 8
    if width < size:
        return pa.array(np.ascontiguousarray(raw).view(f"<i{width}").ravel().astype(f"<i{size}"))
    return pa.array(np.ascontiguousarray(raw[:, :size]).view(f"<i{size}").ravel())


def _to_decimals(values: pa.Array, type_: pa.DataType) -> pa.Array:
    width = type_.bit_width // 8
    if T.is_binary(values.type):
        raw = np.ascontiguousarray(_equal_sizes(values, width).reshape(len(values), width)[:, ::-1])
        decimals = pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(raw)])
        decimals.validate(full=True)
        return decimals
    ints = np.asarray(values)
    limit = 10**type_.precision
    if ints.size and (int(ints.max()) >= limit or int(ints.min()) <= -limit):
        raise ValueError(f"a value has more than {type_.precision} digits")
    word = min(width, 8)
    words = np.empty((len(ints), width // word), f"<i{word}")
    words[:, 0] = ints
    words[:, 1:] = (ints.astype(np.int64, copy=False) >> 63)[:, None]  # sign extension
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(words)])
