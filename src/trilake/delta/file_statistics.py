"""Statistics of a Parquet file just written, as the ``stats`` field of an ``add`` action.

Protocol: *Per-file Statistics*.  Bounds come from the file's own footer, so no row is looked at twice; a bound that
cannot be stated soundly is left out, which readers take as "unknown".
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

#: Characters kept of a string bound, as the reference implementation does.
STRING_PREFIX = 32
_LAST_CHARACTER = "\U0010ffff"


def leaf_paths(schema: pa.Schema) -> list[tuple[str, ...] | None]:
    """For each Parquet leaf column of ``schema`` its path, or ``None`` inside lists and maps, which have no
    statistics."""
    return [p for f in schema for p in _leaves(f.type, (f.name,))]


def _leaves(t: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...] | None]:
    if pa.types.is_struct(t):
        for f in t:
            yield from _leaves(f.type, (*path, f.name))
    elif pa.types.is_map(t):
        yield from (None for _ in [*_leaves(t.key_type, path), *_leaves(t.item_type, path)])
    elif pa.types.is_list(t):
        yield from (None for _ in _leaves(t.value_type, path))
    else:
        yield path


def file_statistics(
    metadata: pq.FileMetaData, schema: pa.Schema, *, with_nan: frozenset[tuple[str, ...]], indexed: int
) -> str:
    """The JSON text of a file's statistics.

    ``schema`` is the one it was written with, ``with_nan`` the paths of columns that hold a NaN, ``indexed`` how many
    leaf columns get statistics (``delta.dataSkippingNumIndexedCols``; negative for all).
    """
    minimum: dict[str, Any] = {}
    maximum: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    paths = leaf_paths(schema)
    if indexed >= 0:
        paths = paths[:indexed]
    for index, path in enumerate(paths):
        if path is None:
            continue
        statistics = [g.column(index).statistics for g in groups]
        if any(s is None for s in statistics):
            continue
        if all(s.has_null_count for s in statistics):
            _put(nulls, path, sum(s.null_count for s in statistics))
        convert = _converter(_type_at(schema, path))
        valued = [s for g, s in zip(groups, statistics, strict=True) if s.null_count < g.num_rows]
        if convert is None or not valued or not all(s.has_min_max for s in valued):
            continue
        try:
            low, high = min(s.min for s in valued), max(s.max for s in valued)
            low, high = convert(low, False), convert(high, True)
        except (ValueError, OverflowError, TypeError):
            continue  # a value that Python cannot hold, such as the year 10000
        if low is not None:
            _put(minimum, path, low)
        if high is not None and path not in with_nan:
            _put(maximum, path, high)
    return orjson.dumps(
        {"numRecords": metadata.num_rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls}
    ).decode()


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    t = schema.field(path[0]).type
    for name in path[1:]:
        t = t.field(name).type
    return t


def _converter(t: pa.DataType) -> Callable[[Any, bool], Any] | None:
    if pa.types.is_integer(t):
        return lambda v, _: int(v)
    if pa.types.is_floating(t):
        return lambda v, _: v if math.isfinite(v) else None
    if pa.types.is_decimal(t):
        return lambda v, _: orjson.Fragment(format(decimal.Decimal(v), "f"))
    if pa.types.is_string(t):
        return _string_bound
    if pa.types.is_date(t):
        return lambda v, _: v.isoformat()
    if pa.types.is_timestamp(t):
        return lambda v, up: _timestamp_bound(v, up, t.tz is not None)
    return None


def _string_bound(value: str, up: bool) -> str:
    """A prefix; as an upper bound, one that no string with that prefix exceeds."""
    if len(value) <= STRING_PREFIX:
        return value
    end = STRING_PREFIX
    if not up:
        return value[:end]
    while end < len(value) and value[end] == _LAST_CHARACTER:
        end += 1
    return value if end == len(value) else value[:end] + _LAST_CHARACTER


def _timestamp_bound(value: dt.datetime, up: bool, instant: bool) -> str:
    """Cut to milliseconds; an upper bound is rounded up, so that it bounds whatever a reader makes of it."""
    rest = value.microsecond % 1000
    value -= dt.timedelta(microseconds=rest)
    if up and rest:
        value += dt.timedelta(milliseconds=1)
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return value.isoformat(timespec="milliseconds") + ("Z" if instant else "")
