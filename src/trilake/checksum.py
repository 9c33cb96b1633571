"""A checksum of rows that does not depend on their order, on batches, or on the format and engine they come from.

Each row has a hash of 64 bits; the checksum of rows is the number of them, the sum of their hashes, and the sum of the
hashes mixed once more, both modulo 2^64.  So the checksums of parts add up to that of the whole, and 128 bits tell
different rows apart.  It finds accidents; it is no signature.

What is hashed are values, not how Arrow holds them, so that a value is the same in every type that can hold it:

==========================  ===========================================================================================
null                        one and the same, of whatever type
integers, decimals          by their value; a decimal with digits behind the point, by unscaled value and scale
floats                      as double; all NaN are one, and -0.0 is 0.0
booleans
texts, binaries             their bytes; a text is never a binary
dates                       days
times, durations            in nanoseconds
timestamps                  seconds and nanoseconds; an instant (with a zone) is never a local time, whatever the zone
lists, vectors              their elements in order
structs                     their fields by name, in any order
maps                        their entries in any order
dictionaries, run-ends      their values
extension types             their storage
unions                      the name of the branch and its value
==========================  ===========================================================================================

Columns count by name, in any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import InvalidArgumentError

Hashes = npt.NDArray[np.uint64]
ty = pa.types

COMPILED = False
if os.environ.get("TRILAKE_NUMBA", "1") != "0":
    try:
        import numba

        COMPILED = True
    except ImportError:  # numba lags behind new Python and numpy releases
        pass

_MASK = (1 << 64) - 1
#: Bytes of rows that are hashed at once.
_PART = 1 << 20
#: Odd numbers without a pattern.
_K1, _K2, _K3 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ROW, _ORDER = 0xD1B54A32D192ED03, 0xA0761D6478BD642F


@dataclass(frozen=True)
class Checksum:
    """Number of rows, and two sums of their hashes.

    >>> a, b = pa.table({"n": [1, 2]}), pa.table({"n": pa.array([2, 1], pa.int8())})
    >>> checksum(a) == checksum(b)
    True
    >>> checksum(a) == checksum(a.slice(0, 1)) + checksum(a.slice(1))
    True
    """

    rows: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, (self.low + other.low) & _MASK, (self.high + other.high) & _MASK)

    def __str__(self) -> str:
        return f"{self.rows}:{self.high:016x}{self.low:016x}"


def checksum(data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]) -> Checksum:
    """The checksum of rows.  Raises ``InvalidArgumentError`` for a type that it does not know."""
    if isinstance(data, pa.RecordBatch):
        data = [data]
    elif isinstance(data, pa.Table):
        data = data.to_batches()
    total = Checksum()
    for batch in data:
        for part in _parts(batch):
            hashes = row_hashes(part)
            total += Checksum(len(hashes), _total(hashes), _total(_mixed(hashes ^ np.uint64(_ROW))))
    return total


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that stay in the processor's cache while they are hashed."""
    rows = batch.num_rows
    step = max(1, int(rows * _PART / max(batch.nbytes, 1)))
    if step >= rows:
        yield batch
        return
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def _total(hashes: Hashes) -> int:
    return int(np.add.reduce(hashes, dtype=np.uint64))


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """A hash of each row."""
    found = np.full(batch.num_rows, _ROW, np.uint64)
    for one, column in zip(batch.schema, batch.columns, strict=True):
        hashes = value_hashes(column, one.name)
        hashes ^= np.uint64(_salt(one.name))
        found += _mixed(hashes)
    return _mixed(found)


# --- mixing ----------------------------------------------------------------------------------------------------------


def _mixed(x: Hashes) -> Hashes:
    """Spread each number over 64 bits; in place."""
    if COMPILED and len(x) and x.flags.c_contiguous:
        _mix_loop(x)
        return x
    x ^= x >> np.uint64(30)
    x *= np.uint64(_K2)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_K3)
    x ^= x >> np.uint64(31)
    return x


@lru_cache(maxsize=4096)
def _salt(text: str) -> int:
    """A number for a name or a kind of value."""
    data = np.frombuffer(text.encode(), np.uint8)
    return int(_bytes_hashes(data, np.array([0, len(data)], np.int64))[0])


@lru_cache(maxsize=64)
def _null() -> np.uint64:
    return np.uint64(_salt("null value"))


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    if not COMPILED:
        return function
    try:
        return cast(Callable[..., Any], numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no folder to cache in: neither the package's nor the user's can be written
        return cast(Callable[..., Any], numba.njit(nogil=True)(function))


@_jit
def _mix_loop(x: Any) -> None:
    for i in range(len(x)):
        h = x[i]
        h ^= h >> np.uint64(30)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(27)
        h *= np.uint64(0x94D049BB133111EB)
        x[i] = h ^ (h >> np.uint64(31))


@_jit
def _bytes_loop(data: Any, offsets: Any, out: Any) -> None:
    """A hash of each stretch of bytes, by words of 8 bytes, the last one filled up with zeros."""
    for i in range(len(out)):
        at, end = offsets[i], offsets[i + 1]
        h = np.uint64(end - at) * np.uint64(0x9E3779B97F4A7C15)
        while at < end:
            word = np.uint64(0)
            stop = min(at + 8, end)
            shift = np.uint64(0)
            while at < stop:
                word |= np.uint64(data[at]) << shift
                shift += np.uint64(8)
                at += 1
            h = (h ^ word) * np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(29)
        out[i] = h


@_jit
def _list_loop(hashes: Any, bounds: Any, out: Any) -> None:
    """The sum of the hashes of each list's elements, each mixed with its place."""
    for i in range(len(out)):
        total = np.uint64(0)
        for at in range(bounds[i], bounds[i + 1]):
            h = hashes[at] + np.uint64(at - bounds[i]) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(30)
            h *= np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(27)
            h *= np.uint64(0x94D049BB133111EB)
            total += h ^ (h >> np.uint64(31))
        out[i] = total


@_jit
def _salt_loop(words: Any, salt: Any) -> None:
    for i in range(len(words)):
        h = words[i] ^ salt
        h ^= h >> np.uint64(30)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(27)
        h *= np.uint64(0x94D049BB133111EB)
        words[i] = h ^ (h >> np.uint64(31))


def _bytes_steps(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: Hashes) -> None:
    """The same with numpy: word by word, for the stretches that are long enough to have it."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    at, left = offsets[:-1].copy(), np.diff(offsets)
    out[:] = left.astype(np.uint64) * np.uint64(_K1)
    rows = np.flatnonzero(left > 0)
    while len(rows):
        words = padded[at[rows, None] + np.arange(8)].view("<u8").ravel().astype(np.uint64)
        missing = np.uint64(8) * (8 - np.minimum(left[rows], 8)).astype(np.uint64)
        words = (words << missing) >> missing
        h = (out[rows] ^ words) * np.uint64(_K2)
        out[rows] = h ^ (h >> np.uint64(29))
        at[rows] += 8
        left[rows] -= 8
        rows = rows[left[rows] > 0]


def _bytes_hashes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Hashes:
    out = np.empty(len(offsets) - 1, np.uint64)
    if COMPILED:
        _bytes_loop(data, offsets, out)
    else:
        _bytes_steps(data, offsets, out)
    return _mixed(out)


# --- values ----------------------------------------------------------------------------------------------------------


def value_hashes(array: pa.Array, path: str = "") -> Hashes:
    """A hash of each value of an array, of which the caller may do what it wants.

    ``path`` is the column that an error names.
    """
    found = _hashes(array, path)
    if array.null_count and not ty.is_null(array.type):
        found[np.asarray(pc.is_null(array))] = _null()
    return found


def _hashes(array: pa.Array, path: str) -> Hashes:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return value_hashes(array.storage, path)
    if ty.is_null(kind):
        return np.full(len(array), _null(), np.uint64)
    if ty.is_dictionary(kind):
        return _of_dictionary(array, path)
    if ty.is_run_end_encoded(kind):
        return value_hashes(pc.run_end_decode(array), path)
    if ty.is_struct(kind):
        return _of_struct(array, path)
    if ty.is_map(kind):
        return _of_map(array, path)
    if ty.is_union(kind):
        return _of_union(array, path)
    if _is_list(kind):
        return _of_list(array, path)
    if _is_bytes(kind):
        return _of_bytes(array)
    return _of_fixed(array, path)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        ty.is_list(kind)
        or ty.is_large_list(kind)
        or ty.is_fixed_size_list(kind)
        or ty.is_list_view(kind)
        or ty.is_large_list_view(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(ty.is_string(kind) or ty.is_large_string(kind) or ty.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    binary = ty.is_binary(kind) or ty.is_large_binary(kind) or ty.is_binary_view(kind) or ty.is_fixed_size_binary(kind)
    return bool(binary or _is_text(kind))


def _salted(words: Hashes, kind: str) -> Hashes:
    if COMPILED and words.flags.c_contiguous:
        _salt_loop(words, np.uint64(_salt(kind)))
        return words
    words ^= np.uint64(_salt(kind))
    return _mixed(words)


def _filled(array: pa.Array, storage: pa.DataType) -> npt.NDArray[Any]:
    """The numbers of an array of fixed width, as another type of that width; of nulls, whatever is there."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), storage.to_pandas_dtype())
    raw = np.frombuffer(data, storage.to_pandas_dtype(), array.offset + len(array))
    return raw[array.offset :]


def _of_fixed(array: pa.Array, path: str) -> Hashes:
    kind = array.type
    if ty.is_boolean(kind):
        plain = array.cast(pa.uint8()).fill_null(0)
        return _salted(np.asarray(plain).astype(np.uint64), "boolean")
    if ty.is_integer(kind):
        raw = _filled(array, kind)
        if not ty.is_uint64(kind):
            return _salted(raw.astype(np.int64).view(np.uint64), "number")
        return _wide([raw.copy(), np.zeros(len(raw), np.uint64)])
    if ty.is_floating(kind):
        values = _filled(array, kind).astype(np.float64)
        values += 0.0  # which makes 0.0 of -0.0
        nan = values != values
        if nan.any():
            values[nan] = np.nan
        return _salted(values.view(np.uint64), "float")
    if ty.is_decimal(kind):
        return _of_decimal(array)
    if ty.is_date32(kind):
        return _salted(_filled(array, pa.int32()).astype(np.int64).view(np.uint64), "date")
    if ty.is_date64(kind):
        return _salted((_filled(array, pa.int64()) // 86_400_000).view(np.uint64), "date")
    if ty.is_time(kind) or ty.is_duration(kind):
        stored = pa.int32() if ty.is_time32(kind) else pa.int64()
        return _of_time(array, stored, "time" if ty.is_time(kind) else "duration")
    if ty.is_timestamp(kind):
        return _of_time(array, pa.int64(), "local time" if kind.tz is None else "instant")
    if kind == pa.month_day_nano_interval():
        words = _filled_words(array, 2)
        return _chained(words, "interval")
    raise InvalidArgumentError(f"values of type {kind} have no checksum", help="leave the column out", column=path)


def _of_time(array: pa.Array, stored: pa.DataType, kind: str) -> Hashes:
    """By seconds and nanoseconds, so that no unit overflows."""
    steps = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    values = _filled(array, stored).astype(np.int64)
    seconds = np.floor_divide(values, steps)
    rest = (values - seconds * steps) * (10**9 // steps)
    found = _salted(seconds.view(np.uint64), kind)
    found += rest.view(np.uint64)
    return _mixed(found)


def _filled_words(array: pa.Array, count: int) -> list[Hashes]:
    """The words of values that have ``count`` of 64 bits each, least significant first."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return [np.zeros(len(array), np.uint64)] * count
    raw = np.frombuffer(data, "<u8", count * (array.offset + len(array))).reshape(-1, count)[array.offset :]
    return [raw[:, i].astype(np.uint64) for i in range(count)]


def _of_decimal(array: pa.Array) -> Hashes:
    scale, bits = array.type.scale, array.type.bit_width
    if bits < 128:
        array = array.cast(pa.decimal128(array.type.precision, scale))
    found = _wide(_filled_words(array, max(bits, 128) // 64))
    return found if not scale else _salted(found, f"scale {scale}")


def _wide(words: list[Hashes]) -> Hashes:
    """Numbers of several words: those that fit into one as any integer that does."""
    sign = (words[0].view(np.int64) >> 63).view(np.uint64)
    found = _salted(words[0].copy(), "number")
    above = np.zeros(len(found), bool)
    for word in words[1:]:
        above |= word != sign
    if above.any():
        # Sign-extended to the widest decimal: the number of words must not show.
        top = (words[-1].view(np.int64) >> 63).view(np.uint64)
        more = [*words[1:], *[top] * (4 - len(words))]
        long = found[above]
        for word in more:
            long += word[above]
            long = _mixed(long)
        found[above] = long
    return found


def _chained(words: list[Hashes], kind: str) -> Hashes:
    found = _salted(words[0].copy(), kind)
    for word in words[1:]:
        found += word
        found = _mixed(found)
    return found


def _of_bytes(array: pa.Array) -> Hashes:
    kind = array.type
    text = _is_text(kind)
    if ty.is_fixed_size_binary(kind):
        start = array.offset * kind.byte_width
        data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        offsets = start + np.arange(len(array) + 1, dtype=np.int64) * kind.byte_width
        return _salted(_bytes_hashes(data, offsets), "binary")
    if ty.is_string_view(kind) or ty.is_binary_view(kind):
        array = array.cast(pa.large_string() if text else pa.large_binary())
        kind = array.type
    wide = ty.is_large_string(kind) or ty.is_large_binary(kind)
    _, where, values = array.buffers()
    if not len(array) or where is None:
        return np.zeros(len(array), np.uint64)
    raw = np.frombuffer(where, np.int64 if wide else np.int32, array.offset + len(array) + 1)[array.offset :]
    data = np.frombuffer(values or b"", np.uint8)
    return _salted(_bytes_hashes(data, raw.astype(np.int64, copy=False)), "text" if text else "binary")


# --- nested values ---------------------------------------------------------------------------------------------------


def _of_dictionary(array: pa.DictionaryArray, path: str) -> Hashes:
    if len(array.dictionary) > len(array):
        return value_hashes(array.dictionary_decode(), path)
    values = np.append(value_hashes(array.dictionary, path), _null())
    last = len(values) - 1
    return cast(Hashes, values[np.asarray(pc.fill_null(array.indices.cast(pa.int64()), last))])


def _of_struct(array: pa.StructArray, path: str) -> Hashes:
    found = np.full(len(array), _ORDER, np.uint64)
    for i, one in enumerate(array.type):
        hashes = value_hashes(array.field(i), f"{path}.{one.name}")
        hashes ^= np.uint64(_salt(one.name))
        found += _mixed(hashes)
    return _salted(found, "struct")


def _elements(array: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The elements of lists or the entries of maps, and where those of each list begin and end."""
    kind = array.type
    if ty.is_fixed_size_list(kind):
        size = kind.list_size
        return array.values.slice(array.offset * size, len(array) * size), np.arange(len(array) + 1) * size
    if ty.is_list_view(kind) or ty.is_large_list_view(kind):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
        return array.flatten(), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    bounds = np.asarray(array.offsets).astype(np.int64)
    if not len(bounds):
        return array.values.slice(0, 0), np.zeros(1, np.int64)
    return array.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0])), bounds - bounds[0]


def _summed(hashes: Hashes, bounds: npt.NDArray[np.int64]) -> Hashes:
    """The sum of the hashes of each list."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return cast(Hashes, sums[bounds[1:]] - sums[bounds[:-1]])


def _of_list(array: pa.Array, path: str) -> Hashes:
    values, bounds = _elements(array)
    hashes = value_hashes(values, f"{path}.element")
    lengths = np.diff(bounds)
    if COMPILED:
        found = np.empty(len(lengths), np.uint64)
        _list_loop(hashes, bounds, found)
    else:
        place = np.arange(len(hashes), dtype=np.int64) - np.repeat(bounds[:-1], lengths)
        hashes += place.view(np.uint64) * np.uint64(_K1)
        found = _summed(_mixed(hashes), bounds)
    found += lengths.view(np.uint64) * np.uint64(_ORDER)
    return _salted(found, "list")


def _of_map(array: pa.MapArray, path: str) -> Hashes:
    entries, bounds = _elements(array)
    hashes = value_hashes(entries.field(0), f"{path}.key")
    hashes ^= np.uint64(_ROW)
    hashes = _mixed(hashes)
    hashes += value_hashes(entries.field(1), f"{path}.value")
    return _salted(_summed(_mixed(hashes), bounds), "map")


def _of_union(array: pa.UnionArray, path: str) -> Hashes:
    kind = array.type
    if array.offset:  # of which pyarrow's parts of a union know nothing
        array = array.take(pa.array(np.arange(len(array))))
    found = np.zeros(len(array), np.uint64)
    codes = np.asarray(array.type_codes)
    for i, code in enumerate(kind.type_codes):
        rows = np.flatnonzero(codes == code)
        places = np.asarray(array.offsets)[rows] if kind.mode == "dense" else rows
        name = kind.field(i).name
        hashes = value_hashes(array.field(i).take(pa.array(places)), f"{path}.{name}")
        hashes ^= np.uint64(_salt(name))
        found[rows] = _mixed(hashes)
    return _salted(found, "union")
