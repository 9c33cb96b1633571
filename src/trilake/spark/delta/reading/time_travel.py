"""The version of a read: from options, or from a suffix of the path, ``@v3`` or a timestamp."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, stating
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import Options
from trilake.storage import open_store

_IN_PATH = re.compile(r"(?s)(?P<path>.+)@(?:v(?P<version>\d+)|(?P<time>\d{17}))/?")


@dataclass(frozen=True)
class Place:
    """A table's path without its suffix, and the version or time that the suffix names, if any."""

    path: str
    version: int | None = None
    time: str | None = None

    @property
    def is_travel(self) -> bool:
        """Whether the path names a version."""
        return self.version is not None or self.time is not None


def split_place(path: str, store: Mapping[str, str]) -> Place:
    """Split a path from its suffix.  A path that exists has no suffix, whatever it looks like.

    >>> split_place("/no/such/table@v12", {})
    Place(path='/no/such/table', version=12, time=None)
    >>> split_place("/no/such/table@20240131235959123", {}).time
    '2024-01-31T23:59:59.123'
    """
    match = _IN_PATH.fullmatch(path)
    if match is None or os.path.exists(path) or DeltaLog(open_store(path, dict(store)), spark_engine()).exists():
        return Place(path)
    if match["version"] is not None:
        return Place(match["path"], version=int(match["version"]))
    t = match["time"]
    return Place(match["path"], time=f"{t[:4]}-{t[4:6]}-{t[6:8]}T{t[8:10]}:{t[10:12]}:{t[12:14]}.{t[14:]}")


@stating({None: "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE"})
def version_of(log: DeltaLog, options: Options, place: Place, to_ms: Callable[[str], int]) -> int | None:
    """The version that options or a path name; ``None`` for the newest.

    ``to_ms`` parses a timestamp.  Raises ``InvalidArgumentError`` if both name one, or for an invalid timestamp, and
    ``VersionNotFoundError``, also for a timestamp after the last commit.
    """
    options.one_of("versionAsOf", "timestampAsOf", condition="DELTA_ONEOF_IN_TIMETRAVEL")
    timestamp = options.get("timestampAsOf")
    if place.is_travel and (timestamp is not None or options.get("versionAsOf") is not None):
        raise InvalidArgumentError(
            "the path and an option both name a version",
            help="leave one of them out",
            file=log.store.uri,
            condition="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS",
        )
    time = place.time or timestamp
    if time is not None:
        return log.version_at(to_ms(time), reached=True)
    return options.integer("versionAsOf") if place.version is None else place.version
