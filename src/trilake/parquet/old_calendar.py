"""Rebase dates and timestamps of files that use the old calendar: Julian up to 1582-10-04, Gregorian from 1582-10-15.

Spark records its release and the calendar in each footer; releases before 3.0 (3.1 for INT96) used the old calendar.
Files without a release are not rebased.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.arrow_types import parts, rebuilt
from trilake.common.compute import pc

if TYPE_CHECKING:
    import pyarrow.parquet as pq

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
    """The difference between the calendars: ``add[i]`` from ``at[i]`` on, in days or seconds; ``add[0]`` before."""

    at: Numbers
    add: Numbers

    @property
    def last(self) -> int:
        """When the difference changes for the last time."""
        return int(self.at[-1])

    def rebased(self, values: npt.NDArray[np.signedinteger], per_unit: int = 1) -> npt.NDArray[np.signedinteger]:
        """The same local dates and times in the current calendar; ``values`` count ``per_unit`` per day or second."""
        places = np.maximum(np.searchsorted(self.at * per_unit, values, side="right") - 1, 0)
        return (values + (self.add * per_unit)[places]).astype(values.dtype)


#: The difference between two dates.
DAYS = Switches(np.array(_DAYS, np.int64), np.array(_DAYS_BETWEEN, np.int64))


@cache
def of_zone(name: str) -> Switches:
    """The differences between the calendars in a time zone.  Raises ``ValueError`` for an unknown zone."""
    switches = _zones().get(name)
    if switches is not None:
        standard, mean, later = switches
    elif (fixed := _FIXED.fullmatch(name)) is not None:
        sign, *numbers = fixed.groups(default="0")
        standard = sum(int(p) * unit for p, unit in zip(numbers, (3600, 60, 1), strict=True)) * (
            -1 if sign == "-" else 1
        )
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
    from importlib.resources import files

    zones: dict[str, _Zone] = {}
    for line in files(__package__).joinpath("old_calendar_zones.tsv").read_text("ascii").splitlines():
        standard, mean, later, names = line.split("\t")
        pairs = (pair.split(":") for pair in later.split())
        zone = int(standard), int(mean), tuple((int(moment), int(seconds)) for moment, seconds in pairs)
        zones.update(dict.fromkeys(names.split(), zone))
    return zones


def _of_system(name: str) -> _Zone:
    """Look up a time zone in the system's database, since trilake's list lacks it."""
    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise ValueError(f"the file has the unknown time zone {name!r}") from e
    months = [dt.datetime(2020, month, 1, tzinfo=zone).utcoffset() for month in range(1, 13)]
    mean = dt.datetime(1582, 1, 1, tzinfo=zone).utcoffset()
    seconds = [int(offset.total_seconds()) for offset in (*months, mean) if offset is not None]
    return min(seconds[:-1]), seconds[-1], ((_KNOWN_OFFSETS, 0),)


_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_LEGACY, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
#: The first releases with the current calendar; Spark compares strings.
_FIRST, _FIRST_INT96 = b"3.0.0", b"3.1.0"
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}

_Change = Callable[[pa.Array], pa.Array]


def old_values(notes: Mapping[bytes, bytes] | None) -> tuple[bool, bool]:
    """Whether dates and timestamps of a file use the old calendar, and whether its INT96 values do.

    >>> old_values({b"org.apache.spark.version": b"2.4.8"}), old_values({b"org.apache.spark.version": b"3.0.1"})
    ((True, True), (False, True))
    """
    version = (notes or {}).get(_VERSION)
    if notes is None or version is None:
        return False, False
    return version < _FIRST or _LEGACY in notes, version < _FIRST_INT96 or _LEGACY_INT96 in notes


def rebasing_of(file: pq.ParquetFile) -> Rebasing | None:
    """How to rebase the rows of a file; ``None`` if they need no change.  Raises ``ValueError`` for an unknown zone."""
    notes = file.metadata.metadata
    old, old_int96 = old_values(notes)
    if not old and not old_int96:
        return None
    schema = file.metadata.schema
    leaves = [schema.column(i).physical_type for i in range(file.metadata.num_columns)]
    return _Leaves(old, old_int96, notes.get(_ZONE, b"UTC").decode(), enumerate(leaves)).rebasing(file.schema_arrow)


def rebasing_of_orc(schema: pa.Schema) -> Rebasing | None:
    """Like :func:`rebasing_of` for an ORC file, in which Spark still uses the old calendar for dates."""
    if _VERSION not in (schema.metadata or {}):
        return None
    return _Leaves(True, False, "UTC", ((i, "") for i in count())).rebasing(schema)


@dataclass(frozen=True)
class Rebasing:
    """How the columns of one file change; ``leaves`` are the footer's columns with their last switch, if known."""

    changes: Mapping[str, _Change]
    leaves: Mapping[int, int | None]

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rebase rows of the file to the current calendar."""
        if self.changes.keys().isdisjoint(batch.schema.names):
            return batch
        pairs = zip(batch.schema.names, batch.columns, strict=True)
        columns = [self.changes[name](column) if name in self.changes else column for name, column in pairs]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def doubtful(self, metadata: pq.FileMetaData) -> list[int]:
        """The columns of a checked footer whose bounds may be in the old calendar."""
        groups = range(metadata.num_row_groups)
        return [i for i, last in self.leaves.items() if any(_before(metadata, g, i, last) for g in groups)]


def _before(metadata: pq.FileMetaData, group: int, leaf: int, last: int | None) -> bool:
    """Whether a row group may have a bound before the last switch."""
    statistics = metadata.row_group(group).column(leaf).statistics
    if statistics is None or not statistics.has_min_max:
        return False
    return last is None or statistics.min_raw < last


@dataclass(frozen=True)
class _Leaves:
    """Traverse the types of a file's columns together with the leaf columns of its footer."""

    old: bool
    old_int96: bool
    zone: str
    physical: Iterator[tuple[int, str]]
    switches: dict[int, int | None] = field(default_factory=dict)

    def rebasing(self, schema: pa.Schema) -> Rebasing | None:
        changes = self._changes(schema)
        return Rebasing(changes, self.switches) if changes else None

    def _changes(self, fields: Iterable[pa.Field]) -> dict[str, _Change]:
        return {f.name: change for f in fields if (change := self.change(f.type)) is not None}

    def change(self, t: pa.DataType) -> _Change | None:
        """How values of a type change; ``None`` if they do not."""
        is_ = pa.types
        if is_.is_nested(t):
            changes = self._changes(parts(t))
            return None if not changes else lambda array: _nested(array, changes)
        leaf, physical = next(self.physical)
        if is_.is_date32(t) and self.old:
            self.switches[leaf] = DAYS.last
            return lambda array: _rebased(array, DAYS, 1, np.dtype(np.int32))
        is_int96 = physical == "INT96"
        # Spark never wrote timestamps without a zone in the old calendar.
        if not is_.is_timestamp(t) or not (self.old_int96 if is_int96 else self.old and t.tz is not None):
            return None
        per_second = _PER_SECOND.get(t.unit)
        if per_second is None:  # Spark does not write nanoseconds
            return None
        switches = of_zone(self.zone)
        self.switches[leaf] = None if is_int96 else switches.last * per_second
        return lambda array: _rebased(array, switches, per_second, np.dtype(np.int64))


def _rebased(array: pa.Array, switches: Switches, per_unit: int, stored: np.dtype[np.signedinteger]) -> pa.Array:
    """Rebase dates or timestamps; values under nulls are arbitrary."""
    least = pc.min(array.view(pa.from_numpy_dtype(stored))).as_py()
    if least is None or least >= switches.last * per_unit:
        return array
    validity, data = array.buffers()
    start, end = array.offset, array.offset + len(array)
    values = np.zeros(end, stored)
    values[start:] = switches.rebased(np.frombuffer(data, stored, end)[start:], per_unit)
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(values)], array.null_count, start)


def _nested(array: pa.Array, changes: Mapping[str, _Change]) -> pa.Array:
    """Match parts by name, since a checkpoint is read with some fields of its structs."""
    return rebuilt(array, array.type, lambda part, f: changes[f.name](part) if f.name in changes else part)
