"""Conditions of a Spark plan, as filters that choose files.

Spark prints a condition as SQL.  It is parsed only if it certainly means the same as in Spark: UDFs may have any name,
and timestamps are printed in the session's time zone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyspark.sql import types as T

from trilake.errors import FilterError
from trilake.expr import Conjunct, Filter, parse_filter
from trilake.expr.terms.predicate import renamed
from trilake.spark.session.settings import UTC_ZONES

_NAME = r"(?:[A-Za-z_][A-Za-z_0-9]*|`(?:[^`]|``)*`)"
#: Spark does not compile larger projections; 333 of 1,000 columns took a third of a read.
_MOST_UNPUSHED = 100
_UNPUSHED = re.compile(rf"(?i)\bnanvl\(({_NAME}), \1\)")


def is_float(type_: T.DataType) -> bool:
    """Whether values of the type can be NaN."""
    return isinstance(type_, T.FloatType | T.DoubleType)


def trusts_no_bounds(schema: T.StructType) -> bool:
    """Whether a reader of such files must ignore all bounds: with too many :func:`unpushed` columns, or some in
    structs.

    >>> plain = T.StructType().add("d", "double")
    >>> trusts_no_bounds(plain), trusts_no_bounds(T.StructType().add("s", plain))
    (False, True)
    """
    if sum(is_float(f.dataType) for f in schema.fields) > _MOST_UNPUSHED:
        return True
    return any(isinstance(f.dataType, T.StructType) and _has_bounded_floats(f.dataType) for f in schema.fields)


def _has_bounded_floats(type_: T.DataType) -> bool:
    """Whether Parquet has bounds for floating point numbers in the type: not in lists and maps."""
    if isinstance(type_, T.StructType):
        return any(_has_bounded_floats(f.dataType) for f in type_.fields)
    return is_float(type_)


def unpushed(term: str) -> str:
    """The same value, in a form that Spark does not push down.

    >>> unpushed("`d`")
    'nanvl(`d`, `d`)'
    """
    return f"nanvl({term}, {term})"


def pushed(condition: str) -> str:
    """A condition as Spark prints it, with :func:`unpushed` undone.

    >>> pushed("((nanvl(`my d`, `my d`) > 5.0D) OR (nanvl(d, e) = d))")
    '((`my d` > 5.0D) OR (nanvl(d, e) = d))'
    """
    return _UNPUSHED.sub(r"\1", condition)


#: Keywords before a parenthesis that are not function calls.
_NO_CALL = re.compile(r"(?i)\b(?:AND|OR|NOT|IN)\s*\(")
_CALL = re.compile(r"[A-Za-z_0-9`]\s*\(")
_STRINGS = re.compile(r"('(?:[^'\\]|\\.)*')")
_TIME = re.compile(r"(?i)(.*\bTIMESTAMP )$", re.DOTALL)


def plan_filter(conditions: Sequence[str], schema: pa.Schema, names: Mapping[str, str], zone: str) -> Filter | None:
    """The conditions that can be parsed, as one filter; ``None`` if there are none.

    Parameters
    ----------
    conditions: conditions as Spark prints them.
    schema: the columns, with the names in the conditions.
    names: the columns' names in the filter, by those names.
    zone: the session's time zone.

    >>> schema = pa.schema({"col-1": pa.int64()})
    >>> condition = plan_filter(["(`col-1` > 5L)", "my_function(`col-1`)"], schema, {"col-1": "n"}, "UTC")
    >>> condition.sql, condition.columns
    ('`col-1` > CAST(5 AS BIGINT)', frozenset({'n'}))
    """
    conjuncts: list[Conjunct] = []
    for sql in conditions:
        readable = _readable(sql, schema, zone)
        if readable is None:
            continue
        try:
            parsed = parse_filter(readable, schema, case_sensitive=True)
        except FilterError:
            continue
        assert parsed is not None
        conjuncts += [replace(c, predicate=renamed(c.predicate, names)) for c in parsed.conjuncts]
    if not conjuncts:
        return None
    renamed_schema = pa.schema([f.with_name(names.get(f.name, f.name)) for f in schema])
    return Filter(" AND ".join(c.sql for c in conjuncts), renamed_schema, tuple(conjuncts))


def _readable(sql: str, schema: pa.Schema, zone: str) -> str | None:
    """The SQL with timestamps in UTC; ``None`` if its meaning here is uncertain."""
    parts = _STRINGS.split(sql)
    parts[::2] = [pushed(part) for part in parts[::2]]
    sql = "".join(parts)
    outside = _NO_CALL.sub(" ", " ".join(parts[::2]))
    casts = re.sub(r"(?i)\bCAST\s*\(", " ", outside)
    if _CALL.search(casts):
        return None
    if zone in UTC_ZONES:
        return sql
    if casts != outside and (
        "TIMESTAMP" in outside.upper()
        or any(bool(pa.types.is_timestamp(f.type) or pa.types.is_nested(f.type)) for f in schema)
    ):
        return None  # these casts depend on the time zone
    for i in range(1, len(parts), 2):
        if _TIME.fullmatch(parts[i - 1]):
            instant = _instant(parts[i][1:-1], zone)
            if instant is None:
                return None
            parts[i] = f"'{instant}'"
    return "".join(parts)


def _instant(value: str, zone: str) -> str | None:
    """A local timestamp in UTC; ``None`` if it is ambiguous or out of range, or the time zone is unknown."""
    try:
        local = dt.datetime.fromisoformat(value)
        zone_info = ZoneInfo(zone)
        first, second = (local.replace(tzinfo=zone_info, fold=f).astimezone(dt.UTC) for f in (0, 1))
    except (ValueError, OverflowError, ZoneInfoNotFoundError, OSError):
        return None
    if local.tzinfo is not None or first != second:
        return None
    return f"{first.replace(tzinfo=None).isoformat(' ')}Z"
