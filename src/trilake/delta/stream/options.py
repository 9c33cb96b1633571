"""What a stream that reads a table may be asked for: the options of Delta's streaming source, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trilake.common.option_values import MAX_FILES, flag, positive, starting_version
from trilake.common.timestamps import timestamp_ms
from trilake.delta.protocol.property_values import size_bytes
from trilake.delta.stream.offset import Limit
from trilake.errors import InvalidArgumentError, stating

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
    "withEventTimeOrder",
    "beyondNewest",
    # What these are for needs no option here: a stream goes on past other columns when it is loaded again.
    "schemaTrackingLocation",
    "schemaLocation",
    "streamingSourceTrackingId",
    "allowSourceColumnRename",
    "allowSourceColumnDrop",
    "allowSourceColumnTypeChange",
)


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
    whole_snapshot: read the rows that the table has at the beginning in one batch, whatever the limits: a watermark
        moves between batches, and so none of them is late (``withEventTimeOrder``).
    beyond_newest: whether the stream may begin after the newest commit: with the commits that are not there yet.
    """

    starting_version: int | Literal["latest"] | None = None
    starting_timestamp_ms: int | None = None
    max_files: int | None = MAX_FILES
    max_bytes: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    read_change_feed: bool = False
    exclude: str | None = None
    fail_on_data_loss: bool = True
    whole_snapshot: bool = False
    beyond_newest: bool = False

    @property
    def limit(self) -> Limit:
        """How much a batch takes."""
        return Limit(self.max_files, self.max_bytes)

    @staticmethod
    @stating({None: "DELTA_ILLEGAL_OPTION"})
    def parse(texts: Mapping[str, str]) -> StreamOptions:
        """From strings by name, of the names in :data:`STREAM_READ_OPTIONS`.  Raises ``InvalidArgumentError``.

        >>> StreamOptions.parse({"startingVersion": "latest", "maxBytesPerTrigger": "10m"}).max_bytes
        10485760
        """
        if "startingVersion" in texts and "startingTimestamp" in texts:
            raise InvalidArgumentError(
                "options startingVersion and startingTimestamp exclude each other",
                help="pass one of them",
                condition="DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
            )

        def is_on(name: str, *, default: bool = False) -> bool:
            return flag(name, texts.get(name), default=default)

        timestamp, max_bytes = texts.get("startingTimestamp"), texts.get("maxBytesPerTrigger")
        files = positive("maxFilesPerTrigger", texts.get("maxFilesPerTrigger"))
        # A limit of bytes alone is meant to be the only one.
        default = None if max_bytes is not None else MAX_FILES
        return StreamOptions(
            starting_version=starting_version(texts.get("startingVersion")),
            starting_timestamp_ms=None if timestamp is None else timestamp_ms(timestamp),
            max_files=default if files is None else files,
            max_bytes=None if max_bytes is None else size_bytes(max_bytes),
            ignore_deletes=is_on("ignoreDeletes") or is_on("ignoreFileDeletion"),
            ignore_changes=is_on("ignoreChanges"),
            skip_change_commits=is_on("skipChangeCommits"),
            read_change_feed=is_on("readChangeFeed") or is_on("readChangeData"),
            exclude=texts.get("excludeRegex"),
            fail_on_data_loss=is_on("failOnDataLoss", default=True),
            whole_snapshot=is_on("withEventTimeOrder"),
            beyond_newest=is_on("beyondNewest"),
        )
