"""A checksum of rows that is independent of row order, batches, file format and engine.

It consists of the number of rows and two sums of 64-bit row hashes, modulo 2^64; the second sum is over hashes that are
mixed once more.  So checksums of parts add up.  It detects accidents, not attacks.

Values are hashed, not their Arrow representation, so a value has the same hash in every type:

==========================  ===========================================================================================
null                        the same for all types
integers, decimals          the value; a decimal with a scale: unscaled value and scale
floats                      as double; all NaN are equal, and -0.0 equals 0.0
booleans
strings, binaries           their bytes; a string never equals a binary
dates                       days
times, durations            nanoseconds
timestamps                  seconds and nanoseconds; one with a zone never equals one without
lists, vectors              their elements in order
structs                     their fields by name, in any order
maps                        their entries in any order
dictionaries, run-ends      their values
extension types             their storage
unions                      the name of the branch and its value
==========================  ===========================================================================================

Columns are matched by name, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import elements_of, is_binary, is_list, is_string
from trilake.common.jit import COMPILED, jit
from trilake.errors import InvalidArgumentError

ty = pa.types

_MASK = (1 << 64) - 1
#: Bytes of rows hashed at once.
_PART = 1 << 20
#: Odd constants without a pattern.
_ROW, _ORDER = 0xD1B54A32D192ED03, 0xA0761D6478BD642F


@dataclass(frozen=True)
class Checksum:
    """The number of rows, and two sums of their hashes.

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
    """Compute the checksum of rows.  Raises ``InvalidArgumentError`` for an unsupported type."""
    if isinstance(data, pa.RecordBatch | pa.Table):
        data = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
    total = Checksum()
    for batch in data:
        for part in _parts(batch):
            hashes = row_hashes(part)
            total += Checksum(len(hashes), _total(hashes), _total(mixed(hashes ^ np.uint64(_ROW))))
    return total


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, int(batch.num_rows * _PART / max(batch.nbytes, 1)))
    if step >= batch.num_rows:
        yield batch
        return
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _total(hashes: Hashes) -> int:
    return int(np.add.reduce(hashes, dtype=np.uint64))


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """A hash of each row."""
    hashes_of_rows = np.full(batch.num_rows, _ROW, np.uint64)
    for one, column in zip(batch.schema, batch.columns, strict=True):
        hashes = value_hashes(column, one.name)
        hashes ^= np.uint64(salt(one.name))
        hashes_of_rows += mixed(hashes)
    return mixed(hashes_of_rows)


def value_hashes(array: pa.Array, path: str) -> Hashes:
    """A hash of each value of an array; the caller owns the result.  ``path`` is the column, for errors."""
    hashes = _hashes(array, path)
    if array.null_count and not ty.is_null(array.type):
        hashes[np.asarray(pc.is_null(array))] = null_hash()
    return hashes


def _hashes(array: pa.Array, path: str) -> Hashes:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return value_hashes(array.storage, path)
    if ty.is_null(kind):
        return np.full(len(array), null_hash(), np.uint64)
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
    if is_list(kind):
        return _of_list(array, path)
    if is_string(kind) or is_binary(kind):
        return _of_bytes(array)
    return _of_fixed(array, path)


def _numbers(array: pa.Array, storage: pa.DataType) -> npt.NDArray[Any]:
    """View a fixed-width array as numbers of type ``storage``; arbitrary for nulls."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), storage.to_pandas_dtype())
    raw = np.frombuffer(data, storage.to_pandas_dtype(), array.offset + len(array))
    return raw[array.offset :]


def _of_fixed(array: pa.Array, path: str) -> Hashes:
    kind = array.type
    if ty.is_boolean(kind):
        plain = array.cast(pa.uint8()).fill_null(0)
        return salted(np.asarray(plain).astype(np.uint64), "boolean")
    if ty.is_integer(kind):
        raw = _numbers(array, kind)
        if not ty.is_uint64(kind):
            return salted(raw.astype(np.int64).view(np.uint64), "number")
        return _wide([raw.copy(), np.zeros(len(raw), np.uint64)])
    if ty.is_floating(kind):
        values = _numbers(array, kind).astype(np.float64)
        values += 0.0  # turns -0.0 into 0.0
        nan = values != values
        if nan.any():
            values[nan] = np.nan
        return salted(values.view(np.uint64), "float")
    if ty.is_decimal(kind):
        scale, bits = kind.scale, max(kind.bit_width, 128)
        wide = array if bits == kind.bit_width else array.cast(pa.decimal128(kind.precision, scale))
        hashes = _wide(_words(wide, bits // 64))
        return salted(hashes, f"scale {scale}") if scale else hashes
    if ty.is_date32(kind):
        return salted(_numbers(array, pa.int32()).astype(np.int64).view(np.uint64), "date")
    if ty.is_date64(kind):
        return salted((_numbers(array, pa.int64()) // 86_400_000).view(np.uint64), "date")
    if ty.is_time(kind) or ty.is_duration(kind):
        storage = pa.int32() if ty.is_time32(kind) else pa.int64()
        return _of_time(array, storage, "time" if ty.is_time(kind) else "duration")
    if ty.is_timestamp(kind):
        return _of_time(array, pa.int64(), "local time" if kind.tz is None else "instant")
    if kind == pa.month_day_nano_interval():
        first, second = _words(array, 2)
        return mixed(salted(first.copy(), "interval") + second)
    raise InvalidArgumentError(
        f"checksums do not support values of type {kind}", help="leave the column out", column=path
    )


def _of_time(array: pa.Array, storage: pa.DataType, kind: str) -> Hashes:
    """Hash seconds and nanoseconds, so that no unit overflows."""
    steps = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    values = _numbers(array, storage).astype(np.int64)
    seconds = np.floor_divide(values, steps)
    rest = (values - seconds * steps) * (10**9 // steps)
    hashes = salted(seconds.view(np.uint64), kind)
    hashes += rest.view(np.uint64)
    return mixed(hashes)


def _words(array: pa.Array, count: int) -> list[Hashes]:
    """The ``count`` 64-bit words of each value, least significant first."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return [np.zeros(len(array), np.uint64)] * count
    raw = np.frombuffer(data, "<u8", count * (array.offset + len(array))).reshape(-1, count)[array.offset :]
    return [raw[:, i].astype(np.uint64) for i in range(count)]


def _wide(words: list[Hashes]) -> Hashes:
    """Hash numbers of several words; a number that fits into one word gets the hash of the integer."""
    sign = (words[0].view(np.int64) >> 63).view(np.uint64)
    hashes = salted(words[0].copy(), "number")
    above = np.zeros(len(hashes), bool)
    for word in words[1:]:
        above |= word != sign
    if above.any():
        # Sign-extended to the widest decimal, so that the number of words does not matter.
        top = (words[-1].view(np.int64) >> 63).view(np.uint64)
        long = hashes[above]
        for word in [*words[1:], *[top] * (4 - len(words))]:
            long += word[above]
            long = mixed(long)
        hashes[above] = long
    return hashes


def _of_bytes(array: pa.Array) -> Hashes:
    kind = array.type
    name = "text" if is_string(kind) else "binary"
    if ty.is_fixed_size_binary(kind):
        start = array.offset * kind.byte_width
        data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        offsets = start + np.arange(len(array) + 1, dtype=np.int64) * kind.byte_width
        return salted(bytes_hashes(data, offsets), name)
    if ty.is_string_view(kind) or ty.is_binary_view(kind):
        array = array.cast(pa.large_string() if ty.is_string_view(kind) else pa.large_binary())
        kind = array.type
    wide = ty.is_large_string(kind) or ty.is_large_binary(kind)
    _, where, values = array.buffers()
    if not len(array) or where is None:
        return np.zeros(len(array), np.uint64)
    raw = np.frombuffer(where, np.int64 if wide else np.int32, array.offset + len(array) + 1)[array.offset :]
    data = np.frombuffer(values or b"", np.uint8)
    return salted(bytes_hashes(data, raw.astype(np.int64, copy=False)), name)


def _of_dictionary(array: pa.DictionaryArray, path: str) -> Hashes:
    if len(array.dictionary) > len(array):
        return value_hashes(array.dictionary_decode(), path)
    values = np.append(value_hashes(array.dictionary, path), null_hash())
    last = len(values) - 1
    return cast(Hashes, values[np.asarray(pc.fill_null(array.indices.cast(pa.int64()), last))])


def _of_struct(array: pa.StructArray, path: str) -> Hashes:
    hashes_of_structs = np.full(len(array), _ORDER, np.uint64)
    for i, one in enumerate(array.type):
        hashes = value_hashes(array.field(i), f"{path}.{one.name}")
        hashes ^= np.uint64(salt(one.name))
        hashes_of_structs += mixed(hashes)
    return salted(hashes_of_structs, "struct")


def _of_list(array: pa.Array, path: str) -> Hashes:
    values, bounds = elements_of(array)
    hashes_of_lists = sums_in_order(value_hashes(values, f"{path}.element"), bounds)
    hashes_of_lists += np.diff(bounds).view(np.uint64) * np.uint64(_ORDER)
    return salted(hashes_of_lists, "list")


def _of_map(array: pa.MapArray, path: str) -> Hashes:
    entries, bounds = elements_of(array)
    hashes = value_hashes(entries.field(0), f"{path}.key")
    hashes ^= np.uint64(_ROW)
    hashes = mixed(hashes)
    hashes += value_hashes(entries.field(1), f"{path}.value")
    return salted(sums(mixed(hashes), bounds), "map")


def _of_union(array: pa.UnionArray, path: str) -> Hashes:
    kind = array.type
    if array.offset:  # pyarrow's children of a union ignore it
        array = array.take(pa.array(np.arange(len(array))))
    hashes_of_unions = np.zeros(len(array), np.uint64)
    codes = np.asarray(array.type_codes)
    for i, code in enumerate(kind.type_codes):
        rows = np.flatnonzero(codes == code)
        places = np.asarray(array.offsets)[rows] if kind.mode == "dense" else rows
        name = kind.field(i).name
        hashes = value_hashes(array.field(i).take(pa.array(places)), f"{path}.{name}")
        hashes ^= np.uint64(salt(name))
        hashes_of_unions[rows] = mixed(hashes)
    return salted(hashes_of_unions, "union")


# --- 64-bit hash kernels, with numba where installed, otherwise with numpy; both give the same results ----------------

Hashes = npt.NDArray[np.uint64]

#: Odd constants without a pattern.
_K1, _K2, _K3 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mixed(x: Hashes) -> Hashes:
    """Mix the bits of each number; in place."""
    if COMPILED and x.flags.c_contiguous:
        _salt_loop(x, np.uint64(0))
        return x
    x ^= x >> np.uint64(30)
    x *= np.uint64(_K2)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_K3)
    x ^= x >> np.uint64(31)
    return x


@lru_cache(maxsize=4096)
def salt(string: str) -> int:
    """A salt for a name or a kind of value."""
    data = np.frombuffer(string.encode(), np.uint8)
    return int(bytes_hashes(data, np.array([0, len(data)], np.int64))[0])


@lru_cache(maxsize=64)
def null_hash() -> np.uint64:
    """The hash of a null of any type."""
    return np.uint64(salt("null value"))


@jit
def _mix(h: Any) -> Any:
    h ^= h >> np.uint64(30)
    h *= np.uint64(_K2)
    h ^= h >> np.uint64(27)
    h *= np.uint64(_K3)
    return h ^ (h >> np.uint64(31))


@jit
def _bytes_loop(data: Any, offsets: Any, out: Any) -> None:
    """Hash each byte string, by words of 8 bytes, the last one padded with zeros."""
    for i in range(len(out)):
        at, end = offsets[i], offsets[i + 1]
        h = np.uint64(end - at) * np.uint64(_K1)
        while at < end:
            word = np.uint64(0)
            stop = min(at + 8, end)
            shift = np.uint64(0)
            while at < stop:
                word |= np.uint64(data[at]) << shift
                shift += np.uint64(8)
                at += 1
            h = (h ^ word) * np.uint64(_K2)
            h ^= h >> np.uint64(29)
        out[i] = h


@jit
def _list_loop(hashes: Any, bounds: Any, out: Any) -> None:
    """Sum the hashes of each list's elements, each mixed with its index."""
    for i in range(len(out)):
        total = np.uint64(0)
        for at in range(bounds[i], bounds[i + 1]):
            total += _mix(hashes[at] + np.uint64(at - bounds[i]) * np.uint64(_K1))
        out[i] = total


@jit
def _salt_loop(words: Any, salt: Any) -> None:
    for i in range(len(words)):
        words[i] = _mix(words[i] ^ salt)


def _bytes_steps(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: Hashes) -> None:
    """Like :func:`_bytes_loop`, with numpy: word by word, for the byte strings that are long enough."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    at, remaining = offsets[:-1].copy(), np.diff(offsets)
    out[:] = remaining.astype(np.uint64) * np.uint64(_K1)
    rows = np.flatnonzero(remaining > 0)
    while len(rows):
        words = padded[at[rows, None] + np.arange(8)].view("<u8").ravel().astype(np.uint64)
        missing = np.uint64(8) * (8 - np.minimum(remaining[rows], 8)).astype(np.uint64)
        words = (words << missing) >> missing
        h = (out[rows] ^ words) * np.uint64(_K2)
        out[rows] = h ^ (h >> np.uint64(29))
        at[rows] += 8
        remaining[rows] -= 8
        rows = rows[remaining[rows] > 0]


def bytes_hashes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Hashes:
    """Hash each byte string between two offsets."""
    out = np.empty(len(offsets) - 1, np.uint64)
    if COMPILED:
        _bytes_loop(data, offsets, out)
    else:
        _bytes_steps(data, offsets, out)
    return mixed(out)


def salted(words: Hashes, kind: str) -> Hashes:
    """Mix numbers with the kind of value they stand for; in place."""
    if COMPILED and words.flags.c_contiguous:
        _salt_loop(words, np.uint64(salt(kind)))
        return words
    words ^= np.uint64(salt(kind))
    return mixed(words)


def sums(hashes: Hashes, bounds: npt.NDArray[np.int64]) -> Hashes:
    """Sum the hashes of each list."""
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return cast(Hashes, running[bounds[1:]] - running[bounds[:-1]])


def sums_in_order(hashes: Hashes, bounds: npt.NDArray[np.int64]) -> Hashes:
    """Sum the hashes of each list, each mixed with its index; ``hashes`` may be changed."""
    if COMPILED:
        sums_of_lists = np.empty(len(bounds) - 1, np.uint64)
        _list_loop(hashes, bounds, sums_of_lists)
        return sums_of_lists
    place = np.arange(len(hashes), dtype=np.int64) - np.repeat(bounds[:-1], np.diff(bounds))
    hashes += place.view(np.uint64) * np.uint64(_K1)
    return sums(mixed(hashes), bounds)
