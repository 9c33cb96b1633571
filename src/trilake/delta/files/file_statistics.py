"""Statistics of a new Parquet file, as the ``stats`` field of an ``add`` action.

Protocol: *Per-file Statistics*.  Bounds come from the file's footer, so rows are not read again; unsound bounds are
left out.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.common.arrow_types import leaves_of, type_at, values_at
from trilake.delta.protocol.properties import TableProperties
from trilake.delta.protocol.schema import StructType, UserDefinedType
from trilake.delta.protocol.schema_edit import split_names
from trilake.delta.scan.statistics import IN_FILE, NAN_TAG

#: Length of string bounds in characters, as in delta-spark.
STRING_PREFIX = 32
_LAST_CHARACTER = "\U0010ffff"


#: A column with statistics: its leaf index in a file, its path and type, and the converter of its bounds.
StatedColumn: TypeAlias = tuple[int, tuple[str, ...], pa.DataType, Callable[[Any, bool], Any] | None]


@dataclass(frozen=True)
class StatisticsPlan:
    """Which columns of a table get statistics.

    These are the first ``count`` columns (``delta.dataSkippingNumIndexedCols``, default 32, negative for all), or those
    at the physical ``paths`` (``delta.dataSkippingStatsColumns``), where a struct stands for all its fields.
    """

    count: int = 32
    paths: tuple[tuple[str, ...], ...] | None = None
    #: Columns of variants and user-defined types; their parts are not columns of the table.
    variants: tuple[tuple[str, ...], ...] = ()
    #: Columns for which the footer's bounds do not hold for the values that are read.
    unbounded: frozenset[tuple[str, ...]] = frozenset()

    @classmethod
    def of(cls, configuration: Mapping[str, str], schema: StructType) -> StatisticsPlan:
        """The plan for a table's properties; an invalid value counts as the default."""
        variants = tuple(_variants(schema, ()))
        value = configuration.get("delta.dataSkippingStatsColumns", "").strip()
        if value:
            columns = (schema.along(column) for column in split_names(value))
            paths = tuple(tuple(f.physical_name for f in fields) for fields in columns if fields)
            return cls(paths=paths, variants=variants)
        return cls(TableProperties(configuration).indexed_columns(), variants=variants)

    def indexed(self, schema: pa.Schema) -> list[tuple[str, ...] | None]:
        """For each Parquet leaf column of a file, its path if it gets statistics, otherwise ``None``."""
        out: list[tuple[str, ...] | None] = []
        for number, column in enumerate(leaves_of(schema)):
            for path in column:
                if self.paths is not None:
                    inside = path is not None and any(path[: len(n)] == n for n in self.paths)
                else:
                    inside = self.count < 0 or number < self.count
                if path is not None and any(path[: len(v)] == v for v in self.variants):
                    inside = False
                out.append(path if inside else None)
        return out

    def tags(self, schema: pa.Schema) -> dict[str, str]:
        """The tags of a file of ``schema``: how NaN counts in its statistics."""
        paths = [p for p in self.indexed(schema) if p is not None]
        return {NAN_TAG: IN_FILE} if any(pa.types.is_floating(type_at(schema, p)) for p in paths) else {}


def _variants(schema: StructType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for f in schema.fields:
        name = (*path, f.physical_name)
        if isinstance(f.type, StructType):
            yield from _variants(f.type, name)
        elif isinstance(f.type, UserDefinedType) or str(f.type) == "variant":
            yield name


def file_statistics(
    metadata: pq.FileMetaData, columns: Iterable[StatedColumn], with_nan: frozenset[tuple[str, ...]]
) -> str:
    """Compute the JSON of a file's statistics from its footer.

    ``columns`` are the result of :func:`stated_columns` for the schema with which the file was written, ``with_nan``
    the paths of columns with a NaN.
    """
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    rows = [g.num_rows for g in groups]
    stats = _Stats(metadata.num_rows)
    for index, path, kind, convert in columns:
        statistics = [g.column(index).statistics for g in groups]
        null_count, bounds = _summed(statistics, rows, kind, bounded=convert is not None)
        stats.add(path, null_count, convert, bounds, with_upper=path not in with_nan)
    return stats.json()


class _Stats:
    """The ``stats`` of a file, column by column."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.lows, self.highs, self.nulls = dict[str, Any](), dict[str, Any](), dict[str, Any]()

    def add(
        self,
        path: tuple[str, ...],
        null_count: int | None,
        convert: Callable[[Any, bool], Any] | None,
        bounds: tuple[Any, Any] | None,
        *,
        with_upper: bool,
    ) -> None:
        low = high = None
        if bounds is not None and convert is not None:
            with suppress(ValueError, OverflowError, TypeError):  # outside Python's range, such as the year 10000
                low, high = convert(bounds[0], False), convert(bounds[1], True)
        for tree, value in ((self.nulls, null_count), (self.lows, low), (self.highs, high if with_upper else None)):
            if value is not None:
                put_at(tree, path, value)

    def json(self) -> str:
        stats = {"numRecords": self.rows, "minValues": self.lows, "maxValues": self.highs, "nullCount": self.nulls}
        return orjson.dumps(stats).decode()


def _summed(
    statistics: Sequence[pq.Statistics | None], rows: Sequence[int], kind: pa.DataType, *, bounded: bool
) -> tuple[int | None, tuple[Any, Any] | None]:
    nulls: int | None = 0
    low = high = None
    for s, count in zip(statistics, rows, strict=True):
        if s is None:
            return None, None
        if s.has_null_count:
            of_group = s.null_count
            nulls = None if nulls is None else nulls + of_group
            if of_group >= count:
                continue
        else:
            nulls = None
        if not bounded:
            continue
        bounded = s.has_min_max
        if bounded:
            try:
                least, greatest = stored_bounds(s, kind)
                low = least if low is None or least < low else low
                high = greatest if high is None or greatest > high else high
            except (ValueError, OverflowError, TypeError):
                bounded = False  # outside Python's range
    return nulls, (low, high) if bounded and low is not None else None


@lru_cache(maxsize=32)
def stated_columns(schema: pa.Schema, which: StatisticsPlan) -> tuple[StatedColumn, ...]:
    """The columns with statistics, computed once for all files of a write or a conversion."""
    kinds = ((i, path, type_at(schema, path)) for i, path in enumerate(which.indexed(schema)) if path is not None)
    return tuple((i, path, kind, None if path in which.unbounded else bound_converter(kind)) for i, path, kind in kinds)


def stored_bounds(statistics: pq.Statistics, kind: pa.DataType) -> tuple[Any, Any]:
    """The least and greatest value of a column in one row group, from the footer."""
    try:
        return statistics.min, statistics.max
    except pa.ArrowNotImplementedError:
        # pyarrow before 23 does not decode decimals that are stored as integers.
        if not pa.types.is_decimal(kind) or not isinstance(statistics.min_raw, int):
            raise
        low, high = decimal.Decimal(statistics.min_raw), decimal.Decimal(statistics.max_raw)
        return low.scaleb(-kind.scale), high.scaleb(-kind.scale)


def put_at(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Put a value at a path of nested objects."""
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def bound_converter(t: pa.DataType) -> Callable[[Any, bool], Any] | None:
    """A function from a value to its lower or (``True``) upper bound in the log; ``None`` for types without bounds."""
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


def _string_bound(value: str | bytes, up: bool) -> str:
    """A prefix of the value; as an upper bound, no string with the same prefix exceeds it."""
    if isinstance(value, bytes):  # from a column that the file marks as JSON
        value = value.decode()
    if len(value) <= STRING_PREFIX:
        return value
    end = STRING_PREFIX
    if not up:
        return value[:end]
    while end < len(value) and value[end] == _LAST_CHARACTER:
        end += 1
    return value if end == len(value) else value[:end] + _LAST_CHARACTER


def _timestamp_bound(value: dt.datetime, up: bool, instant: bool) -> str:
    """The time in ms; an upper bound is rounded up, so that it holds for every reader."""
    rest = value.microsecond % 1000
    value -= dt.timedelta(microseconds=rest)
    if up and rest:
        value += dt.timedelta(milliseconds=1)
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return value.isoformat(timespec="milliseconds") + ("Z" if instant else "")


# --- Files without a footer: computed while their rows are written ----------------------------------------------------
# The results equal those of a Parquet file with the same rows.


@dataclass
class _Column:
    type: pa.DataType
    nulls: int = 0
    low: Any = None
    high: Any = None
    #: Whether a value has no order or is outside Python's range: the column then gets no bounds.
    unknown: bool = False
    with_nan: bool = False

    def add(self, values: pa.ChunkedArray) -> None:
        self.nulls += values.null_count
        if self.unknown or values.null_count == len(values):
            return
        if pa.types.is_floating(self.type):
            nan = pc.is_nan(values)
            if pc.any(nan).as_py():
                self.with_nan = True
                values = values.filter(pc.invert(nan))
                if values.null_count == len(values):
                    return
        try:
            bounds = pc.min_max(values)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
        except (pa.ArrowNotImplementedError, ValueError, OverflowError):  # such as the year 10000
            self.unknown = True
            return
        self.low = low if self.low is None else min(low, self.low)
        self.high = high if self.high is None else max(high, self.high)


@dataclass
class RowStatistics:
    """The statistics of one file, computed while rows with the ``schema`` of the file are written.

    >>> statistics = RowStatistics(pa.schema({"n": pa.int64()}), StatisticsPlan())
    >>> statistics.add(pa.table({"n": [3, None, 1]}))
    >>> statistics.json()
    '{"numRecords":3,"minValues":{"n":1},"maxValues":{"n":3},"nullCount":{"n":1}}'
    """

    schema: pa.Schema
    which: StatisticsPlan
    rows: int = 0
    _columns: dict[tuple[str, ...], _Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in filter(None, self.which.indexed(self.schema)):
            type_ = type_at(self.schema, path)
            self._columns[path] = _Column(type_, unknown=bound_converter(type_) is None)

    def add(self, table: pa.Table) -> None:
        """Add rows with the columns of the schema."""
        self.rows += table.num_rows
        for path, column in self._columns.items():
            column.add(values_at(table, path))

    def json(self) -> str:
        stats = _Stats(self.rows)
        for path, c in self._columns.items():
            bounds = None if c.unknown or c.low is None else (c.low, c.high)
            stats.add(path, c.nulls, bound_converter(c.type), bounds, with_upper=not c.with_nan)
        return stats.json()
