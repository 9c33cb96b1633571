"""Conditions of a plan of Spark's, as filters that choose files.

Spark prints a condition as SQL.  It is read here only where the text certainly means what Spark means: functions of
users may have any name, and times are printed in the session's zone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from trilake.errors import FilterError
from trilake.expr import Conjunct, Filter, parse_filter
from trilake.expr.terms.predicate import renamed
from trilake.spark.scan.planning.nan_bounds import pushed
from trilake.spark.session.settings import UTC_ZONES

#: What is printed like a call of a function but is none.
_NO_CALL = re.compile(r"(?i)\b(?:AND|OR|NOT|IN)\s*\(")
_CALL = re.compile(r"[A-Za-z_0-9`]\s*\(")
_TEXTS = re.compile(r"('(?:[^'\\]|\\.)*')")
_TIME = re.compile(r"(?i)(.*\bTIMESTAMP )$", re.DOTALL)


def plan_filter(conditions: Sequence[str], schema: pa.Schema, names: Mapping[str, str], zone: str) -> Filter | None:
    """The conditions that are understood, as one filter; ``None`` where none is.

    Parameters
    ----------
    conditions: as Spark prints them.
    schema: the columns, by the names that the conditions use.
    names: the names of columns that the filter shall use.
    zone: the session's time zone.

    >>> schema = pa.schema({"col-1": pa.int64()})
    >>> condition = plan_filter(["(`col-1` > 5L)", "my_function(`col-1`)"], schema, {"col-1": "n"}, "UTC")
    >>> condition.text, condition.columns
    ('`col-1` > CAST(5 AS BIGINT)', frozenset({'n'}))
    """
    conjuncts: list[Conjunct] = []
    for text in conditions:
        readable = _readable(text, schema, zone)
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
    shown = pa.schema([f.with_name(names.get(f.name, f.name)) for f in schema])
    return Filter(" AND ".join(c.text for c in conjuncts), shown, tuple(conjuncts))


def _readable(text: str, schema: pa.Schema, zone: str) -> str | None:
    """The text with its times in UTC; ``None`` where it may mean something else here."""
    parts = _TEXTS.split(text)
    parts[::2] = [pushed(part) for part in parts[::2]]
    text = "".join(parts)
    outside = _NO_CALL.sub(" ", " ".join(parts[::2]))
    casts = re.sub(r"(?i)\bCAST\s*\(", " ", outside)
    if _CALL.search(casts):
        return None
    if zone in UTC_ZONES:
        return text
    if casts != outside and ("TIMESTAMP" in outside.upper() or any(_has_time(f.type) for f in schema)):
        return None  # casts between times and dates or strings go by the zone
    for i in range(1, len(parts), 2):
        if _TIME.fullmatch(parts[i - 1]):
            instant = _instant(parts[i][1:-1], zone)
            if instant is None:
                return None
            parts[i] = f"'{instant}'"
    return "".join(parts)


def _has_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_nested(type_))


def _instant(text: str, zone: str) -> str | None:
    """A time of a zone in UTC; ``None`` where the clock shows it twice, or no one knows the zone."""
    try:
        local = dt.datetime.fromisoformat(text)
        where = ZoneInfo(zone)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return None
    if local.tzinfo is not None:
        return None
    first, second = (local.replace(tzinfo=where, fold=f).astimezone(dt.UTC) for f in (0, 1))
    if first != second:
        return None
    return f"{first.replace(tzinfo=None).isoformat(' ')}Z"
