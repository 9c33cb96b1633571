"""Parse the JSON strings of ``add.stats`` into typed columns.

Protocol: *Per-file Statistics*.  A value that does not fit its type is null.  A few strings of plain values are parsed
one by one, all others in one columnar query.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from trilake.expr.terms import engine

#: Up to this many strings, plain parsing beats a DuckDB query, which takes 1.5 ms to start, plus 0.2 s where DuckDB is
#: not loaded.
_FEW = 300
_INT64 = 2**63
#: Whole numbers that a double represents exactly.
_EXACT = 2**53
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}|\.\d{6})?")
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - both sides are without a zone


class Statistic(NamedTuple):
    """One statistic: its result name, its place in the JSON, and its DuckDB type."""

    name: str
    path: tuple[str, ...]
    type: str


def parsed(stats: pa.ChunkedArray, requested: Sequence[Statistic]) -> pa.Table:
    """One column per requested statistic, one row per string; null where it is missing or invalid.

    >>> stats = pa.chunked_array([['{"numRecords":3}', None]])
    >>> parsed(stats, [Statistic("n", ("numRecords",), "BIGINT")])["n"].to_pylist()
    [3, None]
    """
    plain = _few(stats, requested) if len(stats) <= _FEW else None
    return _many(stats, requested) if plain is None else plain


def _many(stats: pa.ChunkedArray, requested: Sequence[Statistic]) -> pa.Table:
    places = ", ".join(f"'{_pointer(c.path)}'" for c in requested)
    select = ", ".join(f"try_cast(x[{i}] as {c.type}) as {c.name}" for i, c in enumerate(requested, 1))

    def values(text: str) -> pa.Table:
        # Cheaper than a struct per string (DuckDB 2.0.0): dominates a lookup of bench/logs/large_logs.py.
        taken = f"json_extract_string({text}, [{places}])"
        return engine.query(f"select {select} from (select {taken} as x from t)", t=pa.table({"s": stats}))

    try:
        return values("s")
    except engine.QueryError:  # one is not JSON: check each first, which is slower
        return values("case when json_valid(s) then s end")


def _pointer(path: Sequence[str]) -> str:
    """A JSON pointer (RFC 6901) within an SQL string."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path).replace("'", "''")


# --- few strings -----------------------------------------------------------------------------------------------------


class _NotPlain(Exception):
    """The value needs the query, which decides its meaning."""


def _few(stats: pa.ChunkedArray, requested: Sequence[Statistic]) -> pa.Table | None:
    """The query's answer for values that need no conversion; ``None`` for any other."""
    try:
        rows = [None if text is None else orjson.loads(text) for text in stats.to_pylist()]
        arrays = [_COLUMNS[c.type]([_value(row, c.path) for row in rows]) for c in requested]
    except (_NotPlain, ValueError):  # what is not JSON is a ValueError
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


def _whole(value: Any) -> int:
    if type(value) is int and -_INT64 <= value < _INT64:
        return value
    raise _NotPlain


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
    type_: pa.DataType, numpy: type[Any], convert: Callable[[Any], float]
) -> Callable[[Sequence[Any]], pa.Array]:
    def column(values: Sequence[Any]) -> pa.Array:
        data = np.array([0 if v is None else convert(v) for v in values], numpy)
        return pa.Array.from_buffers(type_, len(values), [_validity(values), pa.py_buffer(data)])

    return column


def _texts(values: Sequence[Any]) -> pa.Array:
    if not all(v is None or (type(v) is str and "\0" not in v) for v in values):
        raise _NotPlain
    parts = [b"" if v is None else v.encode() for v in values]
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(p) for p in parts], out=offsets[1:])
    buffers = [_validity(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _validity(values: Sequence[Any]) -> pa.Buffer:
    # Not by ``pa.array``, which loads pandas with the first value.
    return pa.py_buffer(np.packbits(np.array([v is not None for v in values], bool), bitorder="little"))


_COLUMNS: dict[str, Callable[[Sequence[Any]], pa.Array]] = {
    "BIGINT": _numbers(pa.int64(), np.int64, _whole),
    "DOUBLE": _numbers(pa.float64(), np.float64, _double),
    "DATE": _numbers(pa.date32(), np.int32, _date),
    "TIMESTAMP": _numbers(pa.timestamp("us"), np.int64, _time),
    "TIMESTAMPTZ": _numbers(pa.timestamp("us", "UTC"), np.int64, _instant),
    "VARCHAR": _texts,
}
