"""What a stream that reads a table may be asked for: the options of Delta's streaming source, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trilake.delta.protocol.property_values import size_bytes
from trilake.delta.stream.offset import Limit
from trilake.errors import InvalidArgumentError
from trilake.timestamps import timestamp_ms

STREAM_READ_OPTIONS = (
    "startingVersion",
    "startingTimestamp",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "ignoreDeletes",
    "ignoreFileDeletion",
    "ignoreChanges",
    "skipChangeCommits",
    "readChangeFeed",
    "readChangeData",
    "excludeRegex",
    "failOnDataLoss",
)
#: Files of a batch where nobody says another number: Delta's own default.
DEFAULT_MAX_FILES = 1000


@dataclass(frozen=True)
class StreamOptions:
    """The options of one stream.

    Parameters
    ----------
    starting_version: the first commit to read, or ``latest`` for what is committed from now on.
    starting_timestamp_ms: read commits from this time on.
        With neither, the stream begins with all rows that the table has.
    max_files, max_bytes: how much a batch takes.
    ignore_deletes: pass over commits that only remove rows.
    ignore_changes: also take commits that replace files; rows that did not change may come again.
    skip_change_commits: pass over every commit that removes or replaces rows.
    read_change_feed: rows of the change data feed.
    exclude: leave out files whose path matches this regular expression.
    fail_on_data_loss: whether commits or files that are gone end the stream.
    """

    starting_version: int | Literal["latest"] | None = None
    starting_timestamp_ms: int | None = None
    max_files: int | None = DEFAULT_MAX_FILES
    max_bytes: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    read_change_feed: bool = False
    exclude: str | None = None
    fail_on_data_loss: bool = True

    @property
    def limit(self) -> Limit:
        """How much a batch takes."""
        return Limit(self.max_files, self.max_bytes)

    @staticmethod
    def parse(given: Mapping[str, str]) -> StreamOptions:
        """From texts by name, of the names in :data:`STREAM_READ_OPTIONS`.  Raises ``InvalidArgumentError``.

        >>> StreamOptions.parse({"startingVersion": "latest", "maxBytesPerTrigger": "10m"}).max_bytes
        10485760
        """
        if "startingVersion" in given and "startingTimestamp" in given:
            raise InvalidArgumentError(
                "options startingVersion and startingTimestamp exclude each other", help="pass one of them"
            )
        timestamp, max_bytes = given.get("startingTimestamp"), given.get("maxBytesPerTrigger")
        files = _positive(given, "maxFilesPerTrigger")
        # A limit of bytes alone is meant to be the only one.
        default = None if max_bytes is not None else DEFAULT_MAX_FILES
        return StreamOptions(
            starting_version=_version(given.get("startingVersion")),
            starting_timestamp_ms=None if timestamp is None else timestamp_ms(timestamp),
            max_files=default if files is None else files,
            max_bytes=None if max_bytes is None else size_bytes(max_bytes),
            ignore_deletes=_flag(given, "ignoreDeletes") or _flag(given, "ignoreFileDeletion"),
            ignore_changes=_flag(given, "ignoreChanges"),
            skip_change_commits=_flag(given, "skipChangeCommits"),
            read_change_feed=_flag(given, "readChangeFeed") or _flag(given, "readChangeData"),
            exclude=given.get("excludeRegex"),
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        )


def _version(text: str | None) -> int | Literal["latest"] | None:
    if text is None:
        return None
    if text.strip().lower() == "latest":
        return "latest"
    if not text.strip().isdigit():
        raise InvalidArgumentError(f"option startingVersion is {text!r}", help="it is a version from 0 on, or latest")
    return int(text)


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise InvalidArgumentError(f"option {name} is {text!r}", help="it must be a whole number from 1 on")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidArgumentError(f"option {name} is {text!r}", help="it must be true or false")
    return text == "true"
