"""Convert columns of Python values to Arrow, and refuse those that Arrow would silently change.

Arrow infers a column's type from its values.  For mixed values it drops the time of day of a datetime among dates, and
assumes UTC for naive times among aware ones; it drops the nanoseconds of pandas timestamps, the zone of a time of day,
and the mask of a numpy array.  A string among bytes becomes bytes.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from trilake.common.text import plural
from trilake.errors import SchemaMismatchError

_HELP = "give all values of a column one type, and all columns the same length"
#: What pyarrow raises for values that it cannot convert, in different versions.
_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def columns_table(columns: Mapping[Any, Any]) -> pa.Table:
    """A table of columns by name; other names become strings, as in pandas.

    Raises ``SchemaMismatchError`` for columns of mixed types, and for values that Arrow would change.

    >>> columns_table({"n": [1, None]}).to_pydict()
    {'n': [1, None]}
    >>> columns_table({"d": [dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3)]})
    Traceback (most recent call last):
    trilake.errors.SchemaMismatchError: [SCHEMA_MISMATCH] column d has dates and times of day (column: d). Help: ...
    """
    by_name = {str(name): values for name, values in columns.items()}
    if len(by_name) < len(columns):
        twice = [name for name in by_name if sum(str(c) == name for c in columns) > 1]
        raise SchemaMismatchError(f"two columns are named {twice[0]!r}", help="rename one of them", column=twice[0])
    return checked(lambda: pa.table(by_name), lambda: iter(by_name.items()))


def checked(
    make: Callable[[], Any], columns: Callable[[], Iterator[tuple[str, Any]]], *, from_pandas: bool = False
) -> Any:
    """Call ``make`` to convert ``columns``; its result has a ``schema``.

    Raises ``SchemaMismatchError`` for the wrong column, as :func:`columns_table` does.
    """
    try:
        result = make()
    except _REFUSALS as e:
        for name, values in columns():
            try:
                pa.array(values, from_pandas=from_pandas or None)
            except _REFUSALS:
                if not isinstance(values, Iterable):
                    raise SchemaMismatchError(
                        f"a column must be a list of values, got {values!r:.80}", help="write [value]", column=name
                    ) from e
                raise _refused(e, name) from e
        raise _refused(e) from e
    for field, (name, values) in zip(result.schema, columns(), strict=False):
        if _is_python(values):
            _check(name, values, field.type)
    return result


def _refused(cause: Exception, column: str | None = None) -> SchemaMismatchError:
    what = cause.args[0] if len(cause.args) == 2 else cause  # for a frame the second argument is the column's name
    if lengths := re.fullmatch(r"Column \d+ named (.*) expected length (\d+) but got length (\d+)", str(what)):
        what = f"column {lengths[1]} has {plural(int(lengths[3]), 'value')}, and others have {int(lengths[2]):,}"
    return SchemaMismatchError(f"Arrow cannot convert the values: {what}", help=_HELP, column=column)


def _is_python(values: Any) -> bool:
    """Whether values are Python objects, whose type Arrow infers."""
    return isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object"


def _check(column: str, values: Collection[Any], kind: pa.DataType) -> None:
    """Raise ``SchemaMismatchError`` where the inferred type changes values."""
    if pa.types.is_struct(kind):
        rows = [v for v in values if isinstance(v, Mapping)]
        for field in kind:
            _check(f"{column}.{field.name}", [row.get(field.name) for row in rows], field.type)
    elif pa.types.is_list(kind):
        if any(v.mask.any() for v in _named(values, "MaskedArray")):
            raise _changed(column, "arrays with a mask", "pass lists with None where the mask is")
        if _has_changes(kind.value_type):
            _check(f"{column}.element", list(chain.from_iterable(v for v in values if v is not None)), kind.value_type)
    elif pa.types.is_binary(kind):
        if _of_kind(values, str):
            raise _changed(column, "strings and bytes", "make all of them strings, or all of them bytes")
    elif pa.types.is_time(kind):
        if any(v.tzinfo is not None for v in _of_kind(values, dt.time)):
            raise _changed(column, "times of day with a zone", "keep the zone in a column of its own")
    elif pa.types.is_date(kind):
        if any(v.time() != dt.time.min for v in _of_kind(values, dt.datetime)):
            raise _changed(column, "dates and times of day", "make all of them dates, or all of them times")
    elif pa.types.is_timestamp(kind):
        times = _of_kind(values, dt.datetime)
        if len({v.tzinfo is None for v in times}) > 1:
            raise _changed(column, "times with a zone and times without one", "give all of them a zone, or none")
        if any(getattr(v, "nanosecond", 0) for v in times):
            raise _changed(column, "nanoseconds", "make it a column of type datetime64[ns]")
    elif pa.types.is_duration(kind) and any(getattr(v, "nanoseconds", 0) for v in _of_kind(values, dt.timedelta)):
        raise _changed(column, "nanoseconds", "make it a column of type timedelta64[ns]")


def _has_changes(kind: pa.DataType) -> bool:
    """Whether values of a type may be changed; numbers and strings never are."""
    return bool(pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_binary(kind))


def _named(values: Collection[Any], name: str) -> list[Any]:
    kinds = {k for k in set(map(type, values)) if k.__name__ == name}
    return [v for v in values if type(v) in kinds] if kinds else []


def _of_kind(values: Collection[Any], kind: type) -> list[Any]:
    """The values of a class, except pandas' ``NaT``, which belongs to all of them."""
    kinds = {k for k in set(map(type, values)) if issubclass(k, kind) and k.__name__ != "NaTType"}
    return [v for v in values if type(v) in kinds] if kinds else []


def _changed(column: str, what: str, remedy: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"column {column} has {what}", help=remedy, column=column)
