"""Options of the Spark adapters, by the names that Delta's users know.

Spark lower-cases option names on their way to a Python source, so they are matched without regard to case.  An unknown
name is an error: a mistyped option must not change what is read or written.  Options of Spark's own readers and writers
that mean nothing here are ignored with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trilake.common.option_values import whole_number
from trilake.common.spark_options import says_nothing, warn_ignored
from trilake.common.timestamps import timestamp_ms
from trilake.delta.log.log import DeltaLog
from trilake.errors import (
    IllegalArgumentError,
    InvalidArgumentError,
    UnknownOptionError,
    VersionNotFoundError,
    stating,
)
from trilake.spark.session.engine import spark_engine
from trilake.storage import is_storage_option, open_store

_IGNORED = {"path", "serialization.format"}


class Options:
    """Options of one read or write, checked against the names it knows; ``reading`` says that rows are read."""

    def __init__(
        self, options: Mapping[str, str], known: Iterable[str], *, properties: bool = False, reading: bool = False
    ) -> None:
        names = {k.lower(): k for k in known}
        self.values: dict[str, str] = {}
        self.store: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        unknown, ignored = [], []
        for key, value in options.items():
            lowered = key.lower()
            if lowered == "pushfilters":
                raise UnknownOptionError(
                    "the option pushFilters is gone: it gave wrong rows where a DataFrame was used twice",
                    help="leave it out: conditions of where() choose files and row groups by themselves",
                )
            if lowered in names:
                self.values[names[lowered]] = value
            elif is_storage_option(key):
                self.store[key] = value
            elif properties and lowered.startswith("delta."):
                self.properties[key] = value
            elif says_nothing(key, value, reading=reading):
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
        """The option's text, if it was given."""
        return self.values.get(name)

    def flag(self, name: str) -> bool:
        """A true/false option; raises ``InvalidArgumentError`` for any other text."""
        text = self.values.get(name, "false").lower()
        if text not in ("true", "false"):
            raise InvalidArgumentError(f"option {name} is {text!r}", help="it must be true or false")
        return text == "true"

    def integer(self, name: str) -> int | None:
        """A whole number; raises ``InvalidArgumentError`` for any other text."""
        text = self.values.get(name)
        if text is None:
            return None
        number = whole_number(text)
        if number is None:
            raise InvalidArgumentError(f"option {name} is {text!r:.80}", help="it must be a whole number")
        return number

    def positive(self, name: str, unit: str) -> int | None:
        """A whole number of ``unit`` above 0; raises ``InvalidArgumentError`` for any other text."""
        number = self.integer(name)
        if number is not None and number < 1:
            raise InvalidArgumentError(f"option {name} is {number}", help=f"it must be a number of {unit} above 0")
        return number

    def one_of(self, *names: str, condition: str | None = None) -> None:
        """Refuse options that exclude each other."""
        stated = [n for n in names if n in self.values]
        if len(stated) > 1:
            raise InvalidArgumentError(
                f"options {' and '.join(stated)} exclude each other", help="pass one of them", condition=condition
            )


def table_path(options: Mapping[str, str]) -> str:
    """The ``path`` of a load or save; raises ``InvalidArgumentError`` where there is none."""
    path = options.get("path")
    if not path:
        raise IllegalArgumentError("no path was given", help='write .load("/path/to/table") or .save("/path/to/table")')
    return path


def open_log(options: Mapping[str, str], store: Mapping[str, str]) -> DeltaLog:
    """The log of the table that the options name."""
    return DeltaLog(open_store(table_path(options), dict(store)), spark_engine())


@stating({None: "DELTA_ILLEGAL_OPTION"})
def wanted_version(log: DeltaLog, options: Options) -> int | None:
    """The version of ``versionAsOf`` or ``timestampAsOf``; ``None`` for the newest."""
    options.one_of("versionAsOf", "timestampAsOf", condition="DELTA_ONEOF_IN_TIMETRAVEL")
    timestamp = options.get("timestampAsOf")
    if timestamp is not None:
        return log.version_at(timestamp_ms(timestamp), reached=True)
    return options.integer("versionAsOf")


@dataclass(frozen=True)
class ChangeRange:
    """The versions of a change feed, both included; ``end`` is ``None`` for the newest.

    ``is_empty`` where nothing was committed in it: its times lie between two commits, or it begins after the newest
    version and the session says that such a feed has no rows.
    """

    start: int
    end: int | None
    is_empty: bool = False


@stating({None: "DELTA_ILLEGAL_OPTION"})
def change_range(
    log: DeltaLog, options: Options, to_ms: Callable[[str], int] = timestamp_ms, *, beyond: bool = False
) -> ChangeRange:
    """The range of a change feed, as its options say.

    A starting timestamp means the first commit at or after it, an ending one the last at or before it; ``to_ms`` says
    what a string means.  A range may begin or end after the newest commit where ``beyond`` is true.

    Raises ``InvalidArgumentError`` for options that contradict each other, and ``VersionNotFoundError`` for a time
    that no commit has reached.
    """
    if options.get("filter") is not None:
        raise InvalidArgumentError(
            "the option filter chooses rows of one version, and not of a change feed",
            help="use where() on the frame: its conditions choose files too",
            file=log.store.uri,
        )
    options.one_of("startingVersion", "startingTimestamp", condition="DELTA_MULTIPLE_CDC_BOUNDARY")
    options.one_of("endingVersion", "endingTimestamp", condition="DELTA_MULTIPLE_CDC_BOUNDARY")
    first, last = (_time(options, name, to_ms) for name in ("startingTimestamp", "endingTimestamp"))
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
            "a change feed needs a start",
            help="pass startingVersion or startingTimestamp",
            condition="DELTA_NO_START_FOR_CDC_READ",
        )
    between = first is not None and last is not None and first <= last and end == start - 1
    return ChangeRange(start, end, between or (newest is not None and start > newest))


def _time(options: Options, name: str, to_ms: Callable[[str], int]) -> int | None:
    text = options.get(name)
    return None if text is None else to_ms(text)
