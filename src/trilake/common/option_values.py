"""Parse string values of options, the same way for all formats."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from trilake.errors import InvalidArgumentError

#: Default number of files per batch of a stream, as in Delta.
MAX_FILES = 1000
#: Most digits of a number that fits every integer type and store.
_WHOLE = re.compile(r"\s*[0-9]{1,18}\s*")
_SIGNED = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
_TRAVEL = re.compile(r"(?is)(?P<path>.+)@(?:v(?P<version>[0-9]+)|(?P<time>[0-9]{17}))/?")


def flag(name: str, value: str | None, *, default: bool = False) -> bool:
    """Parse a boolean option.  Raises ``InvalidArgumentError``.

    >>> flag("ignoreDeletes", "TRUE"), flag("failOnDataLoss", None, default=True)
    (True, True)
    """
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"option {name} must be true or false, got {value!r:.80}")
    return value.lower() == "true"


def positive(name: str, value: str | None) -> int | None:
    """Parse a whole number of at least 1, if the option is given.  Raises ``InvalidArgumentError``.

    >>> positive("maxFilesPerTrigger", " 5 ")
    5
    """
    if value is None:
        return None
    if not _WHOLE.fullmatch(value) or int(value) < 1:
        raise InvalidArgumentError(f"option {name} must be an integer >= 1, got {value!r:.80}")
    return int(value)


def whole_number(value: str) -> int | None:
    """Parse a number of plain digits; ``None`` for any other string.

    >>> whole_number(" -3"), whole_number("1_0")  # which Python's own int() takes for 10
    (-3, None)
    """
    return int(value) if _SIGNED.fullmatch(value) else None


def stated_version(value: object) -> int:
    """Parse the version in a SQL statement.  Raises ``InvalidArgumentError``.

    >>> stated_version("3"), stated_version(0)
    (3, 0)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (number := whole_number(value)) is not None:
        return number
    raise InvalidArgumentError(
        f"{value!s:.80} is not a valid version",
        help="pass an integer",
        condition="DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
    )


class Travel(NamedTuple):
    """The version, or the time without a zone, that a path names."""

    version: int | None = None
    time: str | None = None


def split_travel(path: str) -> tuple[str, Travel] | None:
    """Split a path from a suffix ``@v3``, or ``@yyyyMMddHHmmssSSS``; ``None`` for a path without one.

    >>> split_travel("/lake/t@v3"), split_travel("/lake/t")
    (('/lake/t', Travel(version=3, time=None)), None)
    >>> split_travel("/lake/t@20240131235959123")[1].time
    '2024-01-31 23:59:59.123'
    """
    match = _TRAVEL.fullmatch(path)
    if match is None:
        return None
    if match["version"] is not None:
        return match["path"], Travel(version=int(match["version"]))
    t = match["time"]
    return match["path"], Travel(time=f"{t[:4]}-{t[4:6]}-{t[6:8]} {t[8:10]}:{t[10:12]}:{t[12:14]}.{t[14:]}")


def starting_version(value: str | None) -> int | Literal["latest"] | None:
    """Parse the option ``startingVersion``.  Raises ``InvalidArgumentError``.

    >>> starting_version("3"), starting_version("Latest")
    (3, 'latest')
    """
    if value is None:
        return None
    if value.strip().lower() == "latest":
        return "latest"
    if not _WHOLE.fullmatch(value):
        raise InvalidArgumentError(f"option startingVersion must be a version >= 0 or latest, got {value!r:.80}")
    return int(value)
