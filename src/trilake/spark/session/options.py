"""Options of the Spark adapters, with Delta's names.

Names are case-insensitive, because Spark passes them to Python data sources in lower case.  An unknown name raises,
since a typo must not change what is read or written.  Options of Spark's own readers and writers that have no meaning
for trilake are ignored with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trilake.common.option_values import Travel, flag, whole_number
from trilake.common.spark_options import has_no_effect, warn_ignored
from trilake.common.timestamps import timestamp_ms
from trilake.delta.log.log import DeltaLog
from trilake.errors import IllegalArgumentError, InvalidArgumentError, UnknownOptionError, VersionNotFoundError, stating
from trilake.storage import is_storage_option

_IGNORED = {"path", "serialization.format"}


class Options:
    """The options of a read or write, checked against the valid names; ``reading`` means that it is a read."""

    def __init__(
        self, options: Mapping[str, str], valid: Iterable[str], *, properties: bool = False, reading: bool = False
    ) -> None:
        names = {k.lower(): k for k in valid}
        self.values: dict[str, str] = {}
        self.store: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        unknown, ignored = [], []
        for key, value in options.items():
            lowered = key.lower()
            if lowered == "pushfilters":
                raise UnknownOptionError(
                    "the option pushFilters was removed: it returned wrong rows if a DataFrame was used twice",
                    help="leave it out: conditions of where() skip files and row groups anyway",
                )
            if lowered in names:
                self.values[names[lowered]] = value
            elif is_storage_option(key):
                self.store[key] = value
            elif properties and lowered.startswith("delta."):
                self.properties[key] = value
            elif has_no_effect(key, value, reading=reading):
                ignored.append(key)
            elif lowered not in _IGNORED:
                unknown.append(key)
        if unknown:
            raise UnknownOptionError(
                f"unknown option {', '.join(map(repr, sorted(unknown)))}",
                help=f"valid options are {', '.join(sorted(names.values()))}"
                + (" and delta.* properties" if properties else ""),
            )
        warn_ignored(ignored)

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def flag(self, name: str) -> bool:
        """A boolean option; raises ``InvalidArgumentError`` for other values."""
        return flag(name, self.values.get(name))

    def integer(self, name: str) -> int | None:
        """An integer option; raises ``InvalidArgumentError`` for other values."""
        value = self.values.get(name)
        if value is None:
            return None
        number = whole_number(value)
        if number is None:
            raise InvalidArgumentError(f"option {name} must be an integer, got {value!r:.80}")
        return number

    def positive(self, name: str, unit: str) -> int | None:
        """A positive number of ``unit``; raises ``InvalidArgumentError`` for other values."""
        number = self.integer(name)
        if number is not None and number < 1:
            raise InvalidArgumentError(f"option {name} must be a number of {unit} greater than 0, got {number}")
        return number

    def one_of(self, *names: str, condition: str | None = None) -> None:
        """Raise ``InvalidArgumentError`` if more than one of these options is set."""
        stated = [n for n in names if n in self.values]
        if len(stated) > 1:
            raise InvalidArgumentError(
                f"options {' and '.join(stated)} cannot be used together", help="pass one of them", condition=condition
            )


def table_path(options: Mapping[str, str]) -> str:
    """The ``path`` option; raises ``InvalidArgumentError`` if it is missing."""
    path = options.get("path")
    if not path:
        raise IllegalArgumentError(
            "a path is required", help='write .load("/path/to/table") or .save("/path/to/table")'
        )
    return path


@stating({None: "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE"})
def requested_version(
    log: DeltaLog, options: Options, in_path: Travel | None = None, to_ms: Callable[[str], int] = timestamp_ms
) -> int | None:
    """The version that options or a path name; ``None`` for the newest.  ``to_ms`` parses a timestamp.  Raises
    ``InvalidArgumentError`` if both name one, and ``VersionNotFoundError``, also for a timestamp after the last
    commit."""
    options.one_of("versionAsOf", "timestampAsOf", condition="DELTA_ONEOF_IN_TIMETRAVEL")
    timestamp = options.get("timestampAsOf")
    if in_path is not None and (timestamp is not None or options.get("versionAsOf") is not None):
        raise InvalidArgumentError(
            "the path and an option both name a version",
            help="leave one of them out",
            file=log.store.uri,
            condition="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS",
        )
    travel = in_path or Travel(options.integer("versionAsOf"), timestamp)
    return travel.version if travel.time is None else log.version_at(to_ms(travel.time), reached=True)


@dataclass(frozen=True)
class ChangeRange:
    """The versions of a change feed, both inclusive; ``end`` is ``None`` for the newest.  It is empty if its timestamps
    are between two commits, or it starts after the newest version and the session allows that."""

    start: int
    end: int | None
    is_empty: bool = False


@stating({None: "DELTA_ILLEGAL_OPTION"})
def change_range(
    log: DeltaLog, options: Options, to_ms: Callable[[str], int] = timestamp_ms, *, beyond: bool = False
) -> ChangeRange:
    """The range of a change feed from its options: from the first commit at or after a starting timestamp to the last
    one at or before an ending one.  With ``beyond``, a range may start or end after the newest commit.  Raises
    ``InvalidArgumentError`` for contradictory options, ``VersionNotFoundError`` for a timestamp after the newest
    commit."""
    if options.get("filter") is not None:
        raise InvalidArgumentError(
            "the option filter is not supported for a change feed",
            help="use where() on the DataFrame: its conditions skip files, too",
            file=log.store.uri,
        )
    options.one_of("startingVersion", "startingTimestamp", condition="DELTA_MULTIPLE_CDC_BOUNDARY")
    options.one_of("endingVersion", "endingTimestamp", condition="DELTA_MULTIPLE_CDC_BOUNDARY")
    times = (options.get(name) for name in ("startingTimestamp", "endingTimestamp"))
    first, last = (None if time is None else to_ms(time) for time in times)
    with stating({None: "DELTA_VERSION_INVALID"}):
        start, end = options.integer("startingVersion"), options.integer("endingVersion")
    newest = log.head().version if beyond else None
    if first is not None:
        try:
            start = log.version_from(first)
        except VersionNotFoundError:
            if newest is None:
                raise
            start = newest + 1
    if last is not None:
        end = log.version_at(last, reached=not beyond)
    if start is None:
        raise InvalidArgumentError(
            "a change feed needs a starting version or timestamp",
            help="pass startingVersion or startingTimestamp",
            condition="DELTA_NO_START_FOR_CDC_READ",
        )
    between = first is not None and last is not None and first <= last and end == start - 1
    return ChangeRange(start, end, between or (newest is not None and start > newest))


#: Option: the table existed when the query started, as with ``toTable``, so batches must not create it.
EXISTING = "existingTable"
STREAM_WRITE_OPTIONS = ("checkpointLocation", "queryName", EXISTING)


def checkpoint_of(options: Options) -> str:
    """The checkpoint's path.  Raises ``InvalidArgumentError`` if the options have none."""
    place = options.get("checkpointLocation")
    if not place:
        raise InvalidArgumentError(
            "the stream needs a checkpoint location",
            help='write .option("checkpointLocation", "/path/to/checkpoint"), or set'
            " spark.sql.streaming.checkpointLocation",
        )
    return place
