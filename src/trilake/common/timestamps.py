"""Parse timestamps from users, the same way for every format."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from trilake.errors import InvalidArgumentError

#: A point in time: an ISO string (UTC unless it has a zone), a datetime, or seconds since the epoch.
TimestampLike = str | dt.datetime | int | float
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: Digits after the microseconds, which Python's datetime drops.
_NANOSECONDS = re.compile(r"[.,][0-9]{6}([0-9]{1,3})")
#: A day, then a separator and the rest: Python accepts any character as separator, such as the 2 in ``20231114221320``.
_DAY_FIRST = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}|[0-9]{4}-?W[0-9]{2}(?:-?[0-9])?)(?:[Tt ].*)?")
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def timestamp_ms(value: TimestampLike) -> int:
    """A point in time in ms since the epoch; a string or datetime without a zone is UTC.

    Raises ``InvalidArgumentError`` for an invalid timestamp.

    >>> timestamp_ms("1970-01-01T00:00:01Z")
    1000
    """
    return _since_epoch(value, 1000)


def timestamp_ns(value: TimestampLike) -> int:
    """Like :func:`timestamp_ms`, in ns; the digits of a float are those of its ``repr``.

    >>> timestamp_ns(1700000000.123)
    1700000000123000000
    >>> timestamp_ns("1970-01-01T00:00:00.123456789Z")
    123456789
    """
    return _since_epoch(value, 1_000_000_000)


def iso(ms: int) -> str:
    """Format a point in time as an ISO string with its zone.

    >>> iso(1000)
    '1970-01-01T00:00:01+00:00'
    """
    return (_EPOCH + dt.timedelta(milliseconds=ms)).isoformat()


def _since_epoch(value: TimestampLike, parts: int) -> int:
    """A point in time in ``parts`` of a second: numbers are rounded, strings and datetimes truncated."""
    nanoseconds = 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not _FIRST_MS <= value * 1000 <= _LAST_MS:  # excludes NaN, too
            raise InvalidArgumentError(
                f"{value!r} seconds since the epoch are outside the years 1 to 9999",
                help="pass seconds, not milliseconds",
            )
        return round(Decimal(str(value)) * parts)
    if isinstance(value, str):
        try:
            digits = _NANOSECONDS.search(value)
            nanoseconds = 0 if digits is None else int(digits[1].ljust(3, "0"))
            string = value.strip()
            if not _DAY_FIRST.fullmatch(string):
                raise ValueError(string)
            value = dt.datetime.fromisoformat(string)
        except ValueError as e:
            raise InvalidArgumentError(
                f"{value!r} is not a valid timestamp",
                help="write it like 2024-05-01T12:30:00 or 2024-05-01T12:30:00+02:00",
            ) from e
    if not isinstance(value, dt.datetime) or value != value:  # pandas' NaT does not equal itself
        raise InvalidArgumentError(
            f"expected a timestamp, got {type(value).__name__}",
            help="pass an ISO 8601 string, a datetime, or seconds since the epoch",
        )
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    # In integers: as a float, the exact time of a commit would round to that of the previous one.
    micros = (value - _EPOCH) // dt.timedelta(microseconds=1)
    nanoseconds = getattr(value, "nanosecond", nanoseconds)  # pandas has them, too
    return int(micros * 1000 + nanoseconds) * parts // 1_000_000_000
