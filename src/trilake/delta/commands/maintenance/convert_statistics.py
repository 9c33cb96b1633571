"""Statistics of many files with the same columns, from footers that are parsed together.

The results equal those of :func:`~trilake.delta.files.file_statistics.file_statistics`, in a fraction of the time, for
types and writers with simple bounds.  For others, :func:`bulk_columns` returns ``None``, and Arrow reads the footers.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.delta.files.file_statistics import StatisticsPlan, put_at, stated_columns
from trilake.parquet.files import notes_behind_groups
from trilake.parquet.footer_walk import ABSENT, Flags, FooterTable, Int64s

#: Writers with wrong bounds of strings and INT96.  Arrow knows which versions are affected, so it reads the later ones,
#: too.
_DOUBTFUL = re.compile(rb"parquet-(mr|cpp) version (0|1\.\d)\b|(?!.* version )")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class NotInBulk(Exception):
    """A bound that only Arrow can interpret."""


@dataclass(frozen=True)
class _Column:
    index: int
    path: tuple[str, ...]
    #: The value of a bound's bytes, and its form in the log; ``None`` for types without bounds.
    decode: Callable[[bytes], Any] | None
    convert: Callable[[Any, bool], Any] | None
    with_upper: bool


def bulk_columns(
    metadata: pq.FileMetaData,
    rest: bytes,
    schema: pa.Schema,
    *,
    with_nan: frozenset[tuple[str, ...]],
    which: StatisticsPlan,
) -> list[_Column] | None:
    """The columns of files with the schema of ``metadata`` and the bytes ``rest`` after their row groups.

    The other parameters are as in ``file_statistics``.  ``None`` if Arrow must read the footers.
    """
    try:
        writer, ordered = notes_behind_groups(rest)
    except (IndexError, ValueError):
        return None
    if ordered != metadata.num_columns or _DOUBTFUL.match(writer):
        return None
    columns = []
    for index, path, kind, convert in stated_columns(schema, which):
        leaf = metadata.schema.column(index)
        if leaf.physical_type == "INT96":
            if any(metadata.row_group(g).column(index).statistics for g in range(metadata.num_row_groups)):
                return None
            continue  # they have no order, and Arrow ignores them
        try:
            decode = _decoder(leaf, kind)
        except NotInBulk:
            return None
        columns.append(_Column(index, path, decode, convert, path not in with_nan))
    return columns


def bulk_statistics(columns: Sequence[_Column], walked: FooterTable, numbers: Sequence[int]) -> Iterator[str | None]:
    """The statistics JSON of sound footers; ``None`` for those that Arrow must read."""
    which = np.asarray(numbers)
    rejected: set[int] = set()
    statistics = [_stated(walked, which, column, rejected) for column in columns]
    paths = [column.path for column in columns]
    rows = walked.rows[which].tolist()
    none: list[Any] = [()] * len(rows)
    parts = (zip(*(column[part] for column in statistics), strict=True) if statistics else none for part in range(3))
    for n, lows, highs, nulls in zip(range(len(rows)), *parts):
        if n in rejected:
            yield None
            continue
        stats = {
            "numRecords": rows[n],
            "minValues": _tree(paths, lows),
            "maxValues": _tree(paths, highs),
            "nullCount": _tree(paths, nulls),
        }
        yield orjson.dumps(stats).decode()


#: Lower bounds, upper bounds and null counts of one column, ``None`` if unknown.
_ColumnStatistics = tuple[list[Any], list[Any], list[Any]]


def _tree(paths: Sequence[tuple[str, ...]], values: Sequence[Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in zip(paths, values, strict=True):
        if value is not None:
            put_at(tree, path, value)
    return tree


def _stated(walked: FooterTable, which: Int64s, column: _Column, rejected: set[int]) -> _ColumnStatistics:
    """Statistics of a column in some footers; adds the indexes of footers that only Arrow can read to ``rejected``."""
    none: list[Any] = [None] * len(which)
    counts = walked.group_counts[which]
    has_bounds = nulls_known = complete = np.ones(len(which), np.bool_)
    bounded = ~has_bounds
    nulls = np.zeros(len(which), np.int64)
    places: list[_BoundRanges] = []
    for number, group in enumerate(walked.groups[: counts.max(initial=0)]):
        there = counts > number
        chunk = group.columns[column.index]
        missing, low, high = chunk.null_counts[which], chunk.low.start[which], chunk.high.start[which]
        valued = there & (missing < group.rows[which])
        has_bounds = has_bounds & (~there | chunk.stated[which])
        nulls_known = nulls_known & (~there | (missing != ABSENT))
        nulls += np.where(there, missing, 0)
        complete = complete & (~valued | ((low >= 0) & (high >= 0)))
        bounded |= valued
        places.append((valued, low, chunk.low.length[which], high, chunk.high.length[which]))
    sums = zip(nulls.tolist(), (has_bounds & nulls_known).tolist(), strict=True)
    null_counts = [count if is_known else None for count, is_known in sums]
    bounded &= has_bounds & complete
    if column.decode is None or column.convert is None or not bounded.any():
        return none, none, null_counts
    lows, highs = list(none), list(none)
    parts = [[part.tolist() for part in group] for group in places]
    for n in np.flatnonzero(bounded).tolist():
        try:
            lows[n], highs[n] = _bounds(walked.data, [[part[n] for part in group] for group in parts], column)
        except NotInBulk:
            rejected.add(n)
        except (ValueError, OverflowError, TypeError):
            continue  # as in file_statistics
    return lows, highs if column.with_upper else none, null_counts


#: Per row group of some footers: whether there are values, and start and length of the lower and the upper bound.
_BoundRanges = tuple[Flags, Int64s, Int64s, Int64s, Int64s]


def _bounds(data: bytes, groups: Sequence[Sequence[int]], column: _Column) -> tuple[Any, Any]:
    decode, convert = column.decode, column.convert
    assert decode is not None
    assert convert is not None
    pairs = [(decode(data[a : a + m]), decode(data[b : b + n])) for valued, a, m, b, n in groups if valued]
    low, high = pairs[0] if len(pairs) == 1 else (min(p[0] for p in pairs), max(p[1] for p in pairs))
    return convert(low, False), convert(high, True)


def _decoder(leaf: Any, kind: pa.DataType) -> Callable[[bytes], Any] | None:
    """A function that decodes a bound's bytes as Arrow does; ``None`` for types without bounds.

    Raises ``NotInBulk`` unless the type is a plain ``kind``.
    """
    physical, logical = leaf.physical_type, leaf.logical_type
    note = logical.type
    types = pa.types
    if types.is_boolean(kind) and (physical, note) == ("BOOLEAN", "NONE"):
        return None
    if types.is_binary(kind) and (physical, note) == ("BYTE_ARRAY", "NONE"):
        return None
    if types.is_string(kind) and (physical, note) == ("BYTE_ARRAY", "STRING"):
        return bytes.decode
    if types.is_floating(kind) and (physical, note) == ("DOUBLE" if types.is_float64(kind) else "FLOAT", "NONE"):
        return partial(_floating, "<d" if types.is_float64(kind) else "<f")
    if types.is_integer(kind) and physical == ("INT64" if types.is_int64(kind) else "INT32"):
        if note == "NONE" and kind.bit_width >= 32:
            return _signed
        if note == "INT" and str(logical) == f"Int(bitWidth={kind.bit_width}, isSigned=true)":
            return partial(_ranged, 1 << (kind.bit_width - 1))
    if types.is_date32(kind) and (physical, note) == ("INT32", "DATE"):
        return _date
    if types.is_timestamp(kind) and (physical, note) == ("INT64", "TIMESTAMP"):
        for unit in ("milliseconds", "microseconds"):
            if f"timeUnit={unit}" in str(logical):
                return partial(_timestamp, unit)
    if types.is_decimal(kind) and note == "DECIMAL" and leaf.scale == kind.scale:
        if physical in ("INT32", "INT64"):
            return _scaled(kind.scale, "little")
        if physical == "FIXED_LEN_BYTE_ARRAY":
            return _scaled(kind.scale, "big")
    raise NotInBulk


def _signed(bound: bytes) -> int:
    return int.from_bytes(bound, "little", signed=True)


def _ranged(limit: int, bound: bytes) -> int:
    value = _signed(bound)
    if not -limit <= value < limit:
        raise NotInBulk
    return value


def _floating(code: str, bound: bytes) -> float:
    value: float = struct.unpack(code, bound)[0]
    if value != value:
        raise NotInBulk
    return value


def _date(bound: bytes) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(_signed(bound))


def _timestamp(unit: str, bound: bytes) -> dt.datetime:
    return _EPOCH + dt.timedelta(**{unit: _signed(bound)})


def _scaled(scale: int, order: Any) -> Callable[[bytes], decimal.Decimal]:
    # From a string: the constructor then does not round to the context's precision.
    return lambda bound: decimal.Decimal(f"{int.from_bytes(bound, order, signed=True)}E-{scale}")
