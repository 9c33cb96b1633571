"""Differences between the two calendars: what to add to a date or an instant to keep its local date and time.

The old calendar is Java's ``GregorianCalendar``; its time zones use today's standard offset for everything before 1900.
The new one is proleptic Gregorian, with local mean time before standard time was introduced.  The results equal
Spark's.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_DAY = 86_400
#: Dates at which the difference in days changes; earlier dates use the first.
_DAYS = (
    *(-719164, -682945, -646420, -609895, -536845, -500320, -463795),
    *(-390745, -354220, -317695, -244645, -208120, -171595, -141427),
)
_DAYS_BETWEEN = (*range(2, -11, -1), 0)
#: 1900-01-01T00:00Z: from then on old and new zones agree.
_KNOWN_OFFSETS = -2_208_988_800
_FIXED = re.compile(r"(?:UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?)?|Z")


class Switches(NamedTuple):
    """Add ``add`` from each of ``at`` on, in days or seconds; before the first, add its value."""

    at: Numbers
    add: Numbers

    @property
    def last(self) -> int:
        """From here on nothing changes."""
        return int(self.at[-1])

    def rebased(self, values: npt.NDArray[np.signedinteger], per_unit: int = 1) -> npt.NDArray[np.signedinteger]:
        """The same local dates and times in the current calendar; ``per_unit`` is what a day or second is in
        ``values``.
        """
        places = np.maximum(np.searchsorted(self.at * per_unit, values, side="right") - 1, 0)
        return (values + (self.add * per_unit)[places]).astype(values.dtype)


#: The difference between two dates.
DAYS = Switches(np.array(_DAYS, np.int64), np.array(_DAYS_BETWEEN, np.int64))


@cache
def of_zone(name: str) -> Switches:
    """The differences of a time zone.  Raises ``ValueError`` for an unknown zone."""
    switches = _zones().get(name)
    if switches is not None:
        standard, mean, later = switches
    elif (fixed := _FIXED.fullmatch(name)) is not None:
        sign, *parts = fixed.groups(default="0")
        standard = sum(int(p) * unit for p, unit in zip(parts, (3600, 60, 1), strict=True)) * (-1 if sign == "-" else 1)
        mean, later = standard, ()
    else:
        standard, mean, later = _of_system(name)
    at = [*(day * _DAY - standard for day in DAYS.at.tolist()), *(moment for moment, _ in later)]
    add = [*(days * _DAY + standard - mean for days in DAYS.add.tolist()), *(seconds for _, seconds in later)]
    return Switches(np.array(at, np.int64), np.array(add, np.int64))


#: Standard time and local mean time in seconds east of Greenwich, then changes at later times.
_Zone = tuple[int, int, tuple[tuple[int, int], ...]]


@cache
def _zones() -> dict[str, _Zone]:
    zones: dict[str, _Zone] = {}
    for line in files(__package__).joinpath("zones.tsv").read_text("ascii").splitlines():
        standard, mean, later, names = line.split("\t")
        pairs = (pair.split(":") for pair in later.split())
        zone = int(standard), int(mean), tuple((int(moment), int(seconds)) for moment, seconds in pairs)
        zones.update(dict.fromkeys(names.split(), zone))
    return zones


def _of_system(name: str) -> _Zone:
    """A zone that trilake's list lacks, from the system."""
    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise ValueError(f"the time zone {name!r} of its timestamps is unknown") from e
    months = [dt.datetime(2020, month, 1, tzinfo=zone).utcoffset() for month in range(1, 13)]
    mean = dt.datetime(1582, 1, 1, tzinfo=zone).utcoffset()
    seconds = [int(offset.total_seconds()) for offset in (*months, mean) if offset is not None]
    return min(seconds[:-1]), seconds[-1], ((_KNOWN_OFFSETS, 0),)
