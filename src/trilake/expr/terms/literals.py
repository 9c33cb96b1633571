"""Literals of a filter, and the strings that Spark casts to dates, times, numbers and booleans.

Dates are integer days and times integer microseconds since 1970-01-01 (UTC), since Python's ``datetime`` ends with the
year 9999, and Spark's types do not.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
import zoneinfo
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from trilake.common.text import string_literal
from trilake.errors import FilterError

MICROS_PER_DAY = 86_400_000_000


class Kind(Enum):
    """The Spark type family of a literal; the value is its name in messages."""

    NULL = "void"
    BOOLEAN = "boolean"
    INTEGER = "bigint"
    DECIMAL = "decimal"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant in a filter.

    ``value`` is ``None``, ``bool``, ``int``, ``Decimal``, ``float``, ``str`` or ``bytes`` by ``kind``; days for
    ``DATE`` and microseconds for both kinds of timestamp, as ``int``.
    """

    value: bool | int | Decimal | float | str | bytes | None
    kind: Kind

    @classmethod
    def of(cls, value: object) -> Literal:
        """The literal of a Python value; naive ``datetime`` is ``timestamp_ntz``, aware is ``timestamp``.

        >>> Literal.of(dt.date(1970, 1, 2))
        Literal(value=1, kind=<Kind.DATE: 'date'>)

        Raises :class:`FilterError` for values without a Spark type.
        """
        match value:
            case None:
                return NULL
            case bool():
                return cls(value, Kind.BOOLEAN)
            case int():
                return cls(value, Kind.INTEGER)
            case float():
                return cls(value, Kind.DOUBLE)
            case Decimal():
                if value.is_finite():
                    return cls(value, Kind.DECIMAL)
            case str():
                if not any("\ud800" <= c <= "\udfff" for c in value):
                    return cls(value, Kind.STRING)
            case bytes():
                return cls(value, Kind.BINARY)
            case dt.datetime():
                if value.tzinfo is None:
                    return cls(_micros(value), Kind.TIMESTAMP_NTZ)
                return cls(_micros(value.astimezone(dt.UTC).replace(tzinfo=None)), Kind.TIMESTAMP)
            case dt.date():
                return cls(value.toordinal() - _EPOCH, Kind.DATE)
        raise FilterError(
            f"{value!r} cannot be used as a literal in a filter",
            help="use None, bool, int, float, Decimal, str, bytes, date or datetime",
        )

    @property
    def negated(self) -> Literal | None:
        """The negated number, exactly; ``None`` for other literals.

        >>> Literal.of(Decimal("12345678901234567890123456789.1")).negated
        Literal(value=Decimal('-12345678901234567890123456789.1'), kind=<Kind.DECIMAL: 'decimal'>)
        """
        value = self.value
        if isinstance(value, Decimal):
            return Literal(value.copy_negate(), self.kind)  # the operator rounds to the context's 28 digits
        if self.kind in (Kind.INTEGER, Kind.DOUBLE) and isinstance(value, int | float):
            return Literal(-value, self.kind)
        return None

    @property
    def sql(self) -> str:
        r"""The literal in Spark SQL.

        >>> Literal.of(dt.datetime(2020, 1, 1, tzinfo=dt.UTC)).sql, Literal.of("it's").sql
        ("TIMESTAMP '2020-01-01 00:00:00Z'", "'it\\'s'")
        """
        match self.kind, self.value:
            case _, None:
                return "NULL"
            case Kind.BOOLEAN, value:
                return "TRUE" if value else "FALSE"
            case Kind.STRING, str(value):
                return string_literal(value)
            case Kind.BINARY, bytes(value):
                return f"X'{value.hex().upper()}'"
            case Kind.DATE, int(value):
                return f"DATE '{format_date(value)}'"
            case Kind.TIMESTAMP, int(value):
                return f"TIMESTAMP '{format_timestamp(value)}Z'"
            case Kind.TIMESTAMP_NTZ, int(value):
                return f"TIMESTAMP_NTZ '{format_timestamp(value)}'"
            case Kind.DOUBLE, float(value) if not math.isfinite(value):
                return f"double('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}')"
            case Kind.DOUBLE, value:
                return f"{value!r}D"
            case Kind.DECIMAL, Decimal() as value:
                # An exponent would make it a double.
                return f"{value:f}" if -100 < value.adjusted() < 100 else f"{value}BD"
        return str(self.value)


NULL = Literal(None, Kind.NULL)
TRUE = Literal(True, Kind.BOOLEAN)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_ZERO = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall clock time, to which a zone is applied later


def _micros(value: dt.datetime) -> int:
    delta = value - _ZERO
    return delta.days * MICROS_PER_DAY + delta.seconds * 1_000_000 + delta.microseconds


def days_from_civil(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar; ``None`` for an invalid date.

    >>> days_from_civil(1970, 1, 2), days_from_civil(2023, 2, 29), days_from_civil(10000, 1, 1)
    (1, None, 2932897)
    """
    # The calendar repeats every 400 years of 146,097 days.
    cycles, within = divmod(year, 400)
    if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(within + 400, month)[1]:
        return None
    return dt.date(within + 400, month, day).toordinal() - _EPOCH + (cycles - 1) * 146_097


def civil_from_days(days: int) -> tuple[int, int, int]:
    """The inverse of :func:`days_from_civil`.

    >>> civil_from_days(1), civil_from_days(2932897)
    ((1970, 1, 2), (10000, 1, 1))
    """
    cycles, within = divmod(days + _EPOCH - dt.date(400, 1, 1).toordinal(), 146_097)
    date = dt.date.fromordinal(within + dt.date(400, 1, 1).toordinal())
    return date.year + (cycles * 400), date.month, date.day


def format_date(days: int) -> str:
    """A number of days as ``yyyy-mm-dd``; years beyond 9999 have a sign, as Spark prints them."""
    year, month, day = civil_from_days(days)
    return f"{'+' if year > 9999 else '-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"


def format_timestamp(micros: int) -> str:
    """Microseconds as ``yyyy-mm-dd hh:mm:ss[.ffffff]``, without trailing zeros of the fraction."""
    days, rest = divmod(micros, MICROS_PER_DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    string = f"{format_date(days)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{string}.{fraction:06d}".rstrip("0") if fraction else string


_DATE = re.compile(r"\s*([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    r"\s*([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*([A-Za-z+-][A-Za-z0-9_/:+-]*)?)?)?)?\s*",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)
_INTEGER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_DOUBLE = re.compile(
    r"\s*[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?[df]?|\.\d+(?:e[+-]?\d+)?[df]?|inf|infinity|nan)\s*", re.ASCII | re.IGNORECASE
)


def parse_date(string: str) -> int | None:
    """Days of a string that Spark can cast to ``date``: ``yyyy``, ``yyyy-m``, ``yyyy-m-d`` and anything after a space
    or ``T``; else ``None``.

    >>> parse_date("1970-1-2"), parse_date("1970-01-02 23:59:59"), parse_date("1970"), parse_date("2/1/1970")
    (1, 1, 0, None)
    >>> parse_date("+5881580-07-11"), parse_date("+5881580-07-12")  # the last day that a date can be
    (2147483647, None)
    """
    match = _DATE.fullmatch(string)
    if match is None:
        return None
    days = days_from_civil(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    return None if days is None or not -(2**31) <= days < 2**31 else days


def parse_timestamp(string: str, *, with_zone: bool) -> int | None:
    """Microseconds of a string that Spark can cast to a timestamp; else ``None``.

    A string without a zone is UTC.  ``with_zone=False`` reads a ``timestamp_ntz``, for which Spark ignores the zone.

    >>> parse_timestamp("1970-01-01 00:00:00.5", with_zone=True)
    500000
    >>> parse_timestamp("1970-01-01T01:00:00+01:00", with_zone=True)
    0
    """
    match = _TIMESTAMP.fullmatch(string)
    if match is None:
        return None
    days = days_from_civil(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    hour, minute, second = (int(match[i] or 0) for i in (4, 5, 6))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((match[7] or "")[:6].ljust(6, "0"))
    micros = days * MICROS_PER_DAY + (hour * 3600 + minute * 60 + second) * 1_000_000 + fraction
    if match[8] is None:
        return micros
    offset = _offset_micros(match[8], micros)
    if offset is None:
        return None
    return micros - offset if with_zone else micros


def _offset_micros(zone: str, local_micros: int) -> int | None:
    """A zone's offset from UTC at a local time; ``None`` for an unknown zone."""
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is not None:
        seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
        return (-1 if match[1] == "-" else 1) * seconds * 1_000_000 if seconds <= 18 * 3600 else None
    try:
        local = _ZERO + dt.timedelta(microseconds=local_micros)
        offset = local.replace(tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OverflowError, OSError):
        return None
    return None if offset is None else round(offset.total_seconds()) * 1_000_000


def parse_integer(string: str) -> int | None:
    """Cast a string to an integer as in Spark's ANSI mode; ``None`` for an error."""
    return int(string) if len(string) <= 100 and _INTEGER.fullmatch(string) else None


def parse_double(string: str) -> float | None:
    """Cast a string to a double as in Spark's ANSI mode; ``None`` for an error.

    >>> parse_double(" 1e3 "), parse_double("inf"), parse_double("1.5d"), parse_double("one")
    (1000.0, inf, 1.5, None)
    """
    if not _DOUBLE.fullmatch(string):
        return None
    string = string.strip().lower()
    return float(string.rstrip("df") if string[-1] in "df" and "inf" not in string else string)


def parse_boolean(string: str) -> bool | None:
    """Cast a string to a boolean as in Spark's ANSI mode; ``None`` for an error."""
    string = string.strip().lower()
    if string in ("t", "true", "y", "yes", "1"):
        return True
    return False if string in ("f", "false", "n", "no", "0") else None
