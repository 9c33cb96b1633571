"""Options of a stream from a table, with the names of Delta's streaming source."""

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
    # Unused: a restarted stream accepts other columns anyway.
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
    starting_version: the first commit to read, or ``latest`` for only new commits.
    starting_timestamp_ms: read commits from this time on.
        Without either start option, the stream starts with all rows of the table.
    max_files, max_bytes: the limits of a batch.
    ignore_deletes: skip commits that only remove rows.
    ignore_changes: also read commits that replace files; unchanged rows may be emitted again.
    skip_change_commits: skip every commit that removes or replaces rows.
    exclude: skip files whose path matches this regular expression.
    fail_on_data_loss: whether missing commits or files end the stream.
    whole_snapshot: read the initial rows in one batch, whatever the limits.  Watermarks advance between batches,
        so none of these rows is late (``withEventTimeOrder``).
    beyond_newest: whether the stream may start after the newest commit.
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
        return Limit(self.max_files, self.max_bytes)

    @staticmethod
    @stating({None: "DELTA_ILLEGAL_OPTION"})
    def parse(values: Mapping[str, str]) -> StreamOptions:
        """Parse option strings; the names are in :data:`STREAM_READ_OPTIONS`.  Raises ``InvalidArgumentError``.

        >>> StreamOptions.parse({"startingVersion": "latest", "maxBytesPerTrigger": "10m"}).max_bytes
        10485760
        """
        if "startingVersion" in values and "startingTimestamp" in values:
            raise InvalidArgumentError(
                "options startingVersion and startingTimestamp cannot both be set",
                help="pass one of them",
                condition="DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
            )

        def is_on(name: str, *, default: bool = False) -> bool:
            return flag(name, values.get(name), default=default)

        timestamp, max_bytes = values.get("startingTimestamp"), values.get("maxBytesPerTrigger")
        files = positive("maxFilesPerTrigger", values.get("maxFilesPerTrigger"))
        # A limit in bytes replaces the default limit on files.
        default = None if max_bytes is not None else MAX_FILES
        with stating({None: "DELTA_TIMESTAMP_INVALID"}):
            starting_ms = None if timestamp is None else timestamp_ms(timestamp)
        return StreamOptions(
            starting_version=starting_version(values.get("startingVersion")),
            starting_timestamp_ms=starting_ms,
            max_files=default if files is None else files,
            max_bytes=None if max_bytes is None else size_bytes(max_bytes),
            ignore_deletes=is_on("ignoreDeletes"),
            # The older option means the same.
            ignore_changes=is_on("ignoreChanges") or is_on("ignoreFileDeletion"),
            skip_change_commits=is_on("skipChangeCommits"),
            read_change_feed=is_on("readChangeFeed") or is_on("readChangeData"),
            exclude=values.get("excludeRegex"),
            fail_on_data_loss=is_on("failOnDataLoss", default=True),
            whole_snapshot=is_on("withEventTimeOrder"),
            beyond_newest=is_on("beyondNewest"),
        )
