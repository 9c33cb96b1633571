"""Spark's filters for data sources, objects of the JVM, as SQL for trilake's readers."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from trilake.errors import FilterError
from trilake.expr.build import Term, and_, compare, in_, is_null, not_, or_, starts_with, to_filter

#: Comparisons by the name of Spark's class.
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")


def filter_text(filters: Sequence[Any], schema: pa.Schema) -> str | None:
    """The conjunction of the filters that can be translated; ``None`` if there are none.

    Spark applies all filters again, so omitting one costs time, never rows.
    """
    terms = []
    for f in filters:
        term = _term(f, schema)
        if term is None:
            continue
        try:
            to_filter(term, schema)
        except FilterError:
            continue  # a literal that cannot be compared with the column
        terms.append(term)
    return to_filter(and_(*terms), schema).text if terms else None


def _term(f: Any, schema: pa.Schema) -> Term | None:
    kind = str(f.getClass().getSimpleName())
    if kind in ("And", "Or"):
        sides = [_term(f.left(), schema), _term(f.right(), schema)]
        if None in sides:
            return None
        return (and_ if kind == "And" else or_)(*(s for s in sides if s is not None))
    if kind == "Not":
        inner = _term(f.child(), schema)
        return None if inner is None else not_(inner)
    column = _column(str(f.attribute()), schema) if hasattr(f, "attribute") else None
    if column is None:
        return None
    if kind in ("IsNull", "IsNotNull"):
        return is_null(column) if kind == "IsNull" else not_(is_null(column))
    try:
        if kind in _COMPARISONS:
            return compare(column, _COMPARISONS[kind], _value(f.value()))
        if kind == "In":
            return in_(column, [_value(v) for v in f.values()])
        if kind == "StringStartsWith":
            return starts_with(column, str(f.value()))
    except (_UnknownValueError, FilterError):
        pass
    return None


def _column(name: str, schema: pa.Schema) -> str | None:
    """The column of a filter; ``None`` for a nested field."""
    quoted = _QUOTED.fullmatch(name)
    plain = name if quoted is None else quoted[1].replace("``", "`")
    return plain if plain in schema.names else None


class _UnknownValueError(Exception):
    """A JVM value without a counterpart in Python."""


def _value(value: Any) -> object:
    """A JVM value in Python."""
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray | decimal.Decimal):
        return bytes(value) if isinstance(value, bytearray) else value
    kind = str(value.getClass().getName())
    if kind in ("java.sql.Date", "java.time.LocalDate"):
        return dt.date.fromisoformat(str(value.toString()))
    if kind == "java.sql.Timestamp":
        seconds, nanos = divmod(int(value.getTime()), 1000)[0], int(value.getNanos())
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds, microseconds=nanos // 1000)
    if kind == "java.time.LocalDateTime":
        return dt.datetime.fromisoformat(str(value.toString()))
    raise _UnknownValueError(kind)
