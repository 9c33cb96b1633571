"""Parse and validate values of table properties, and isolation levels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from trilake.errors import InvalidArgumentError

_UNITS_MS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_DURATION = re.compile(r"(\d+)\s*(microsecond|millisecond|second|minute|hour|day|week)s?")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?")


class WrongValueError(Exception):
    """An invalid value; the message states the valid ones."""


@dataclass(frozen=True)
class Property:
    """A table property.

    ``check`` normalises a value, or raises with a description of the valid ones.  ``default`` applies if the property
    is not set; it may be ``None``.  ``set_by`` names who sets a property that users cannot set.  With ``late``, commits
    that were prepared before another commit sets it stay valid after it.
    """

    name: str
    default: str | None
    check: Callable[[str], str]
    set_by: str | None = None
    late: bool = False


def boolean(value: str) -> str:
    """Check for ``true`` or ``false``."""
    if value.lower() not in ("true", "false"):
        raise WrongValueError("true or false")
    return value.lower()


def integer(least: int) -> Callable[[str], str]:
    """Check for a whole number of at least ``least``."""

    def check(value: str) -> str:
        if not re.fullmatch(r"[+-]?\d{1,18}", value) or int(value) < least:
            raise WrongValueError(f"an integer >= {least}")
        return str(int(value))

    return check


def choice(*values: str) -> Callable[[str], str]:
    """Check for one of these values, ignoring case."""

    def check(value: str) -> str:
        for v in values:
            if v.lower() == value.lower():
                return v
        raise WrongValueError(f"one of {', '.join(values)}")

    return check


def whole_number(value: str) -> int:
    """Parse a whole number.  Raises ``InvalidArgumentError``."""
    if not re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value):
        raise InvalidArgumentError(f"expected an integer, got {value!r}", help="write a number such as 10")
    return int(value)


def duration_ms(value: str) -> int:
    """Parse a duration such as ``interval 30 days``, in ms.  Raises ``InvalidArgumentError``.

    >>> duration_ms("interval 1 week"), duration_ms("2 days 1 hour")
    (604800000, 176400000)
    """
    body = value.strip().lower().removeprefix("interval").strip()
    if not body or _DURATION.sub("", body).strip(" ,"):
        raise InvalidArgumentError(f"{value!r} is not a duration", help="write one such as 'interval 30 days'")
    return int(sum(int(n) * _UNITS_MS[unit] for n, unit in _DURATION.findall(body)))


def size_bytes(value: str) -> int:
    """Parse a size such as ``128mb``, in bytes.  Raises ``InvalidArgumentError``.

    >>> size_bytes("128mb"), size_bytes("4096")
    (134217728, 4096)
    """
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None or not int(match[1]):
        raise InvalidArgumentError(f"{value!r} is not a size", help="write a number of bytes, or one such as 128mb")
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


def _parsed(parse: Callable[[str], int], expected: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            parse(value)
        except InvalidArgumentError:
            raise WrongValueError(expected) from None
        return value.strip()

    return check


#: Checks for a duration, and for a number of bytes.
duration = _parsed(duration_ms, "a duration such as 'interval 30 days', in units from microseconds to weeks")
size = _parsed(size_bytes, "a number of bytes such as 134217728, or 128mb")


def text(value: str) -> str:
    """Accept any string."""
    return value


def other_formats(value: str) -> str:
    """Accept ``iceberg``, the only other format whose metadata is written, or an empty value."""
    if value.strip().lower() not in ("", "iceberg"):
        raise WrongValueError("iceberg or empty (trilake writes no metadata of other table formats)")
    return value.strip().lower()


def column_list(value: str) -> list[str]:
    """Check for a list of columns, as in ``delta.dataSkippingStatsColumns``: commas separate them, backticks quote.

    >>> column_list("a, b.c, `d,e`.f")
    ['a', 'b.c', '`d,e`.f']
    """
    parts = re.findall(r"(?:`(?:[^`]|``)*`|[^`,])+", value)
    return [p.strip() for p in parts if p.strip()]


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Whether a property is set to ``true``, ignoring case.

    >>> is_on({"delta.appendOnly": "TRUE"}, "delta.appendOnly"), is_on({}, "delta.appendOnly")
    (True, False)
    """
    return configuration.get(key, "false").lower() == "true"


# --- Isolation levels -------------------------------------------------------------------------------------------------

#: From strict to lenient.  ``Serializable``: the order of versions is a serial order of the transactions.
#: ``WriteSerializable``: blind appends may be ordered after commits that came later.  ``SnapshotIsolation``: files that
#: others add do not matter, as for a transaction that changes no data.
IsolationLevel = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]
LEVELS: tuple[IsolationLevel, ...] = ("Serializable", "WriteSerializable", "SnapshotIsolation")
DEFAULT_LEVEL: IsolationLevel = "WriteSerializable"


def parse_level(value: str) -> IsolationLevel:
    """Parse an isolation level, ignoring case.  Raises ``InvalidArgumentError``.

    >>> parse_level("serializable")
    'Serializable'
    """
    for level in LEVELS:
        if level.lower() == value.strip().lower():
            return level
    message = f"isolation level {value!r} is unknown"
    help = f"levels are {', '.join(LEVELS)}"
    raise InvalidArgumentError(message, help=help, condition="DELTA_INVALID_ISOLATION_LEVEL")
