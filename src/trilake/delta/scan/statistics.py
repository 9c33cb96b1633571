"""Statistics of data files from the JSON in ``add.stats``, parsed for the requested columns only.

Protocol: *Per-file Statistics*.  A value that does not fit its column's type counts as unknown.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.actions import array_of
from trilake.delta.protocol.partitions import partition_fields, typed_partitions
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.type_widening import type_changes
from trilake.errors import CorruptLogError
from trilake.expr import ColumnStats, FileStats
from trilake.expr.terms.engine import Query, QueryError

# --- JSON strings as typed columns ------------------------------------------------------------------------------------
# A value that does not fit its type is null.  Up to ``_FEW`` strings of plain values are parsed one by one, all others
# in one columnar query.

#: Up to this many strings, plain parsing beats a DuckDB query, which takes 1.5 ms to start, or 0.2 s if DuckDB is not
#: loaded yet.
_FEW = 300
#: Whole numbers that a double represents exactly.
_EXACT = 2**53
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}|\.\d{6})?")
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - both sides are without a zone


class Statistic(NamedTuple):
    """One statistic: its name in the result, its path in the JSON, and its DuckDB type."""

    name: str
    path: tuple[str, ...]
    type: str


def parsed(stats: pa.ChunkedArray, requested: Sequence[Statistic], query: Query) -> pa.Table:
    """One column per requested statistic, one row per string; null if it is missing or invalid.

    >>> from trilake.delta.engine import Engine
    >>> stats = pa.chunked_array([['{"numRecords":3}', None]])
    >>> parsed(stats, [Statistic("n", ("numRecords",), "BIGINT")], Engine().query)["n"].to_pylist()
    [3, None]
    """
    plain = _few(stats, requested) if len(stats) <= _FEW else None
    return _many(stats, requested, query) if plain is None else plain


def _many(stats: pa.ChunkedArray, requested: Sequence[Statistic], query: Query) -> pa.Table:
    places = ", ".join(f"'{_pointer(c.path)}'" for c in requested)
    select = ", ".join(f"try_cast(x[{i}] as {c.type}) as {c.name}" for i, c in enumerate(requested, 1))

    def values(json_string: str) -> pa.Table:
        # Cheaper than a struct per string (DuckDB 2.0.0): dominates a lookup of bench/logs/large_logs.py.
        values_sql = f"json_extract_string({json_string}, [{places}])"
        return query(f"select {select} from (select {values_sql} as x from t)", t=pa.table({"s": stats}))

    try:
        return values("s")
    except QueryError:  # a string is not JSON: check each one first, which is slower
        return values("case when json_valid(s) then s end")


def _pointer(path: Sequence[str]) -> str:
    """A JSON pointer (RFC 6901) within a SQL string."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path).replace("'", "''")


# --- few strings -----------------------------------------------------------------------------------------------------


class _NotPlain(Exception):
    """A value that only the query can interpret."""


def _few(stats: pa.ChunkedArray, requested: Sequence[Statistic]) -> pa.Table | None:
    """The query's result for values that need no conversion; ``None`` if any value does."""
    try:
        rows = [None if json_string is None else orjson.loads(json_string) for json_string in stats.to_pylist()]
        arrays = [_COLUMNS[c.type]([_value(row, c.path) for row in rows]) for c in requested]
    except (_NotPlain, ValueError):  # invalid JSON is a ValueError
        return None
    return pa.Table.from_arrays(arrays, names=[c.name for c in requested])


def _value(node: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if node is None:
            return None
        if type(node) is not dict:
            raise _NotPlain
        node = node.get(name)
    return node


def _double(value: Any) -> float:
    if (type(value) is float and abs(value) < float("inf")) or (type(value) is int and abs(value) <= _EXACT):
        return float(value)
    raise _NotPlain


def _date(value: Any) -> int:
    if type(value) is str and len(value) == 10 and value[4] == value[7] == "-":
        return dt.date.fromisoformat(value).toordinal() - _EPOCH_DAY
    raise _NotPlain


def _time(value: Any) -> int:
    if type(value) is str and _TIME.fullmatch(value):
        return (dt.datetime.fromisoformat(value) - _EPOCH) // dt.timedelta(microseconds=1)
    raise _NotPlain


def _instant(value: Any) -> int:
    if type(value) is str and value.endswith("Z"):
        return _time(value[:-1])
    raise _NotPlain


def _numbers(
    type_: pa.DataType, stored: pa.DataType, convert: Callable[[Any], float]
) -> Callable[[Sequence[Any]], pa.Array]:
    # Not with ``pa.array``, which loads pandas with the first value.
    return lambda values: array_of([None if v is None else convert(v) for v in values], stored).view(type_)


def _integers(type_: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    end = 2 ** (type_.bit_width - 1)

    def whole(value: Any) -> int:
        if type(value) is int and -end <= value < end:
            return value
        raise _NotPlain

    return _numbers(type_, type_, whole)


def _texts(values: Sequence[Any]) -> pa.Array:
    if not all(v is None or (type(v) is str and "\0" not in v) for v in values):
        raise _NotPlain
    return array_of(values, pa.string())


_COLUMNS: dict[str, Callable[[Sequence[Any]], pa.Array]] = {
    "TINYINT": _integers(pa.int8()),
    "SMALLINT": _integers(pa.int16()),
    "INTEGER": _integers(pa.int32()),
    "BIGINT": _integers(pa.int64()),
    "DOUBLE": _numbers(pa.float64(), pa.float64(), _double),
    "DATE": _numbers(pa.date32(), pa.int32(), _date),
    "TIMESTAMP": _numbers(pa.timestamp("us"), pa.int64(), _time),
    "TIMESTAMPTZ": _numbers(pa.timestamp("us", "UTC"), pa.int64(), _instant),
    "VARCHAR": _texts,
}

#: The statistics read per column, and their names in the result.
_KINDS, _NAMES = ("nullCount", "minValues", "maxValues"), ("nulls", "low", "high")
#: Tag of an ``add`` whose ``maxValues`` omits floating-point columns with a NaN, the greatest value: so the bounds that
#: exist hold for every value.  Other engines preserve the tag.
NAN_TAG = "trilake.maxCountsNaN"
#: Values of the tag: valid for the bounds inside the file, too; valid only for ``add.stats``, for another writer's
#: file.
IN_FILE, IN_STATISTICS = "true", "statistics"
#: Since 1972-01-08 all time zone offsets are whole minutes; the last exception was Africa/Monrovia, -00:44:30.
_WHOLE_MINUTES, _MINUTE = 63_676_800_000_000, 60_000_000
#: Decimal digits that a double preserves.
_SAFE_DIGITS = 15


_COUNT = Statistic("v", ("numRecords",), "BIGINT")
#: 0 and null, built from buffers: from the first Python value on, pyarrow imports pandas, which takes 0.2 s.
_ZERO = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])[0]
_NULL = pa.nulls(1, pa.int64())[0]


def record_counts(adds: pa.Table, query: Query) -> pa.ChunkedArray:
    """``numRecords`` of each file, including deleted rows; null if missing."""
    return _counts(parsed(adds["stats"], [_COUNT], query)["v"])


def _counts(stated: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.greater_equal(stated, _ZERO), stated, _NULL)


@dataclass
class StatisticsReader:
    """Statistics of the files of a table, fetched by column."""

    adds: pa.Table
    schema: StructType
    partition_columns: tuple[str, ...]
    query: Query
    #: Whether to assume that no file holds a NaN, to find the files that are kept only because of that.
    without_nan: bool = False
    _partitions: dict[str, pa.ChunkedArray] | None = field(default=None, repr=False)
    _counts: pa.ChunkedArray | None = field(default=None, repr=False)
    _read: dict[tuple[str, ...], pa.Table] = field(default_factory=dict, repr=False)

    def file_stats(self) -> FileStats:
        """The statistics provider for data skipping."""
        return FileStats(self.adds.num_rows, self.column, self.record_counts)

    def read(self, paths: Iterable[tuple[str, ...]]) -> None:
        """Parse the statistics of all these columns (display paths) at once, for one call of :meth:`column` each."""
        leaf_columns = (self._leaf(p) for p in paths)
        leaves = [r for r in leaf_columns if r is not None and r[0] not in self._read]
        columns = [] if self._counts is not None else [_COUNT]
        for i, (path, leaf) in enumerate(leaves):
            sql = _sql_type(leaf.type)
            types = ("BIGINT",) if sql is None else ("BIGINT", sql, sql)
            columns += [Statistic(n + str(i), (k, *path), t) for k, n, t in zip(_KINDS, _NAMES, types, strict=False)]
        if not columns:
            return
        values = parsed(self.adds["stats"], columns, self.query)
        if self._counts is None:
            self._counts = _counts(values["v"])
        for i, (path, _) in enumerate(leaves):
            stats = {n: values[n + str(i)] for n in _NAMES if n + str(i) in values.column_names}
            self._read[path] = pa.table(stats)

    def record_counts(self) -> pa.ChunkedArray:
        if self._counts is None:
            self._counts = record_counts(self.adds, self.query)
        return self._counts

    def column(self, path: tuple[str, ...]) -> ColumnStats | None:
        """Statistics or partition values of one column, by its display path."""
        top = self.schema.find(path[0])
        if top is None:
            return None
        if top.name in self.partition_columns:
            return self._partition(top) if len(path) == 1 else None
        leaf_column = self._leaf(path)
        if leaf_column is None:
            return None
        physical, leaf = leaf_column
        if physical not in self._read:
            self.read([path])
        return column_stats(self._read.pop(physical), leaf, self._max_counts_nan(leaf))

    def _leaf(self, path: tuple[str, ...]) -> tuple[tuple[str, ...], StructField] | None:
        return leaf_with_statistics(self.schema, self.partition_columns, path)

    def _partition(self, f: StructField) -> ColumnStats | None:
        if self._partitions is None:
            try:
                self._partitions = typed_partitions(self.adds, partition_fields(self.schema, self.partition_columns))
            except CorruptLogError:
                self._partitions = {}  # reading the file reports a bad value, planning does not
        value = self._partitions.get(f.name)
        return None if value is None else ColumnStats(value=value)

    def _max_counts_nan(self, leaf: StructField) -> pa.ChunkedArray | None:
        if not is_float(leaf):
            return None
        if self.without_nan:
            return pa.chunked_array([pa.repeat(True, self.adds.num_rows)])
        return max_counts_nan(self.adds["tags"]) if "tags" in self.adds.column_names else None


def leaf_with_statistics(
    schema: StructType, partition_columns: Sequence[str], path: Sequence[str]
) -> tuple[tuple[str, ...], StructField] | None:
    """Physical path and field of a column with statistics, by its display path."""
    fields = schema.along(path)
    if not fields or not isinstance(fields[-1].type, PrimitiveType) or fields[0].name in partition_columns:
        return None
    return tuple(f.physical_name for f in fields), fields[-1]


def is_float(leaf: StructField) -> bool:
    """Whether a column may hold NaN."""
    return isinstance(leaf.type, PrimitiveType) and leaf.type.name in ("float", "double")


def max_counts_nan(tags: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether, according to the tags of files, their ``maxValues`` omit columns with a NaN; see :data:`NAN_TAG`."""
    return pc.is_in(_nan_tag(tags), pa.array([IN_FILE, IN_STATISTICS]))


def files_count_nan(adds: pa.Table) -> bool:
    """Whether, according to the files' tags, the bounds inside the files take NaN into account."""
    if "tags" not in adds.column_names:
        return not adds.num_rows
    return bool(pc.all(pc.fill_null(pc.equal(_nan_tag(adds["tags"]), IN_FILE), False), min_count=0).as_py())


def _nan_tag(tags: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.map_lookup(tags, pa.scalar(NAN_TAG, pa.string()), "first")


def column_stats(stated: pa.Table, leaf: StructField, counts_nan: pa.ChunkedArray | None = None) -> ColumnStats:
    """The reliable statistics of a column, from ``nulls`` and, in the type of :func:`bound_type`, ``low`` and ``high``.

    For ``counts_nan`` see :func:`max_counts_nan`.
    """
    assert isinstance(leaf.type, PrimitiveType)
    if bound_type(leaf) is None:
        return ColumnStats(null_count=stated["nulls"])
    low, high = _typed(stated["low"], leaf.type, up=False), _typed(stated["high"], leaf.type, up=True)
    widened = leaf.type.name == "double" and any(c.get("fromType") == "float" for c in type_changes(leaf))
    if low is not None and high is not None and widened:
        # Older files may have bounds computed in 32 bits.
        low, high = _with_float_slack(low, up=False), _with_float_slack(high, up=True)
    return ColumnStats(min=low, max=high, null_count=stated["nulls"], max_counts_nan=counts_nan)


def bound_type(leaf: StructField) -> pa.DataType | None:
    """The type in which a column's bounds are read; ``None`` without bounds."""
    sql = _sql_type(leaf.type)
    return None if sql is None else pa.float64() if sql == "DOUBLE" else leaf.type.arrow


def _sql_type(type_: object) -> str | None:
    assert isinstance(type_, PrimitiveType)
    bounds = type_.traits.bounds
    return "DOUBLE" if bounds == "FLOAT" else bounds  # widened before it is rounded


def _typed(bound: pa.ChunkedArray, type_: PrimitiveType, *, up: bool) -> pa.ChunkedArray | None:
    """A bound in the column's type, widened by what its JSON form may lose."""
    target = type_.arrow
    if pa.types.is_timestamp(target):
        return _timestamp_bound(bound.cast(pa.timestamp("us", target.tz)).cast(pa.int64()), target, up)
    if pa.types.is_decimal(target):
        return _decimal_bound(bound, target, up)
    if pa.types.is_floating(target):
        bound = pc.if_else(pc.is_nan(bound), None, bound)
        return _with_float_slack(bound, up=up).cast(target, safe=False) if pa.types.is_float32(target) else bound
    return bound


def _timestamp_bound(micros: pa.ChunkedArray, target: pa.DataType, up: bool) -> pa.ChunkedArray:
    """Widen a timestamp bound.

    Writers truncate to milliseconds, some towards 1970; delta-spark 3.2 and 3.3 also drop the seconds of a zone
    offset: 10:36:24+00:25:12 becomes 10:36:24+00:25.
    """
    if up:
        micros = pc.add(micros, 1000)
    early, slack = (pc.less(micros, _WHOLE_MINUTES), _MINUTE) if target.tz else (pc.less_equal(micros, 0), 1000)
    return pc.if_else(early, (pc.add if up else pc.subtract)(micros, slack), micros).cast(target)


def _with_float_slack(bound: pa.ChunkedArray, *, up: bool) -> pa.ChunkedArray:
    """Widen a 32-bit bound to its neighbours, since JSON may state it with few digits."""
    return (pc.add if up else pc.subtract)(bound, pc.multiply(pc.abs(bound), 2.0**-22))


def _decimal_bound(bound: pa.ChunkedArray, target: pa.DataType, up: bool) -> pa.ChunkedArray | None:
    """Widen a decimal bound: JSON numbers pass through a double, which keeps 15 digits."""
    if target.precision > _SAFE_DIGITS:
        slack = pc.add(pc.multiply(pc.abs(bound), 1e-14), 10.0**-target.scale)
        bound = (pc.add if up else pc.subtract)(bound, slack)
    limit = 10.0 ** (target.precision - target.scale)
    bound = pc.if_else(pc.less(pc.abs(bound), limit), bound, None)
    try:
        return bound.cast(target, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
