"""Date and time functions: extract fields, truncate, and format or parse by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.terms.duckdb_sql import Sql, counted, fail

if TYPE_CHECKING:
    from trilake.expr.sql.calls import Call

_FIELDS = {
    **dict.fromkeys(["year", "y", "years", "yr", "yrs"], "year({d})"),
    **dict.fromkeys(["quarter", "qtr"], "quarter({d})"),
    **dict.fromkeys(["month", "mon", "mons", "months"], "month({d})"),
    **dict.fromkeys(["week", "w", "weeks", "weekofyear"], "weekofyear({d})"),
    **dict.fromkeys(["day", "d", "days", "dayofmonth"], "day({d})"),
    **dict.fromkeys(["dayofweek", "dow"], "(dayofweek({d}) + 1)"),
    **dict.fromkeys(["dayofweek_iso", "dow_iso"], "isodow({d})"),
    "weekday": "(isodow({d}) - 1)",
    **dict.fromkeys(["doy", "dayofyear"], "dayofyear({d})"),
    **dict.fromkeys(["hour", "h", "hours", "hr", "hrs"], "hour({t})"),
    **dict.fromkeys(["minute", "m", "min", "mins", "minutes"], "minute({t})"),
}
_UNITS = {
    **dict.fromkeys(["year", "yyyy", "yy"], "year"),
    "quarter": "quarter",
    **dict.fromkeys(["month", "mon", "mm"], "month"),
    "week": "week",
    **dict.fromkeys(["day", "dd"], "day"),
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "milliseconds",
    "microsecond": "microseconds",
}
#: Letters of Spark's patterns, and DuckDB's in ``strftime``.
_LETTERS = {
    **dict(zip(("yyyy", "yy", "MM", "M", "MMM", "MMMM"), ("%Y", "%y", "%m", "%-m", "%b", "%B"), strict=True)),
    **dict(zip(("dd", "d", "DDD", "E", "EE", "EEE", "EEEE"), ("%d", "%-d", "%j", "%a", "%a", "%a", "%A"), strict=True)),
    **dict(zip(("HH", "H", "hh", "h", "a"), ("%H", "%-H", "%I", "%-I", "%p"), strict=True)),
    **dict(zip(("mm", "m", "ss", "s", "SSS", "SSSSSS"), ("%M", "%-M", "%S", "%-S", "%g", "%f"), strict=True)),
}
#: Letters for parsing: each at most once, with exactly this many digits.
_DIGITS = {"yyyy": 4, "MM": 2, "dd": 2, "HH": 2, "mm": 2, "ss": 2}


def extract(field: str, call: Call, index: int) -> Sql:
    """``extract(field FROM source)``."""
    template = _FIELDS.get(field.lower())
    if template is None:
        raise FilterError(
            f"cannot extract the field {field!r} in a filter", help=f"supported fields are {', '.join(_FIELDS)}"
        )
    sql = template.format(t=call.timestamp(index)) if "{t}" in template else template.format(d=call.date(index))
    return counted(sql)


def truncate(call: Call, unit: int, value: int, target: str) -> Sql:
    """``trunc`` and ``date_trunc``: the start of the unit in argument ``unit``."""
    name = str(call.constant(unit)).lower()
    days = ("year", "quarter", "month", "week")
    if name not in _UNITS or (target == "DATE" and _UNITS[name] not in days):
        raise FilterError(f"cannot truncate to {name!r} in a filter", help=f"supported units are {', '.join(_UNITS)}")
    source = call.timestamp(value) if target == "TIMESTAMP" else call.date(value)
    return Sql(f"CAST(date_trunc('{_UNITS[name]}', {source}) AS {target})", target)


def _parts(pattern: str, letters: dict[str, str] | dict[str, int]) -> Iterator[tuple[str, bool]]:
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", pattern, re.DOTALL):
        part = match[0]
        if match[1] is not None:
            yield (match[1].replace("''", "'") or "'"), False
        elif match[2] is not None:
            if part not in letters:
                raise FilterError(f"date patterns in a filter cannot contain {part!r}", help=f"use {' '.join(letters)}")
            yield part, True
        elif part in "'[]{}#":
            raise FilterError(f"date patterns in a filter cannot contain {part!r}")
        else:
            yield part, False


def format_pattern(time: str, pattern: str) -> Sql:
    """Format a timestamp by a Spark pattern.  Raises :class:`FilterError` for unsupported letters."""
    parts = (_LETTERS[part] if is_letter else part.replace("%", "%%") for part, is_letter in _parts(pattern, _LETTERS))
    formatted = f"strftime({time}, {single_quoted(''.join(parts))})"
    # Outside these years Spark writes eras and signs.
    reject = fail("the year of a formatted date is not between 1 and 9999:", f"CAST({time} AS VARCHAR)")
    outside = f"{time} < TIMESTAMP '0001-01-01' OR {time} >= TIMESTAMP '10000-01-01'"
    return Sql(f"(CASE WHEN {outside} THEN {reject} ELSE {formatted} END)", "VARCHAR")


def parse_by_pattern(call: Call, target: str) -> Sql:
    """``to_date`` and ``to_timestamp`` by a pattern, with an error for strings that do not match."""
    source, pattern = call.string(0), str(call.constant(1))
    regex, groups = "", []
    for piece, is_letter in _parts(pattern, _DIGITS):
        if is_letter and piece in groups:
            raise FilterError(f"{piece!r} appears twice in the date pattern {pattern!r}")
        regex += f"([0-9]{{{_DIGITS[piece]}}})" if is_letter else re.escape(piece)
        groups += [piece] if is_letter else []
    missing = {"yyyy": "1970", "MM": "1", "dd": "1"}

    def part(letters: str) -> str:
        if letters not in groups:
            return missing.get(letters, "0")
        return f"CAST(regexp_extract({source}, {single_quoted(regex)}, {groups.index(letters) + 1}) AS BIGINT)"

    reject = fail(f"a string does not match the date pattern {pattern}:", source)
    date = f"make_date({part('yyyy')}, {part('MM')}, {part('dd')})"
    hour, minute, second = part("HH"), part("mm"), part("ss")
    seconds = f"(({hour} * 60 + {minute}) * 60 + {second})"
    bad = f"{part('yyyy')} < 1 OR {hour} > 23 OR {minute} > 59 OR {second} > 59"
    time = f"(CAST({date} AS TIMESTAMP) + to_seconds({seconds}))"
    value = f"(CASE WHEN {bad} THEN {reject} ELSE {date if target == 'DATE' else time} END)"
    matches = f"regexp_full_match({source}, {single_quoted(regex)})"
    return Sql(f"(CASE WHEN {source} IS NULL THEN NULL WHEN {matches} THEN {value} ELSE {reject} END)", target)
