"""Is the table that a commit, or the upkeep of its log, stands on still the one at its place?

Whoever drops a table while a writer is at work, and perhaps makes another one there, leaves the writer with a version
that never was one of the table there.  Its commit would leave a log with a gap, or name files that went with the old
table; its checkpoint or compaction would stand for commits of the new one, and its clean-up would take them.  So each
of these asks right before the one call that counts.
"""

from __future__ import annotations

from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import same_file
from trilake.delta.log.snapshot import Head
from trilake.errors import MetadataChangedError, ObjectNotFoundError, TableNotFoundError
from trilake.storage.base import ObjectMeta


def check_same_table(log: DeltaLog, base: Head) -> None:
    """Raise ``MetadataChangedError`` where another table, or none, is at the place of the one that was read.

    One request to the store where the newest file of the log that was read is as it was.  Else, as after a clean-up,
    the log says by the table's id.
    """
    file = base.segment.newest_file
    if file is not None and _is_there(log, file):
        return
    try:
        there = log.head()
    except TableNotFoundError as e:
        raise _gone(base, "was dropped while this command was using it", "make it again, and repeat the write") from e
    if there.metadata.id != base.metadata.id or there.version < base.version:
        raise _gone(
            base,
            f"was replaced by another one while this command was using it: its id was {base.metadata.id},"
            f" and that of the table there is {there.metadata.id}",
            "read the table again and repeat the write",
        )


def check_untouched(log: DeltaLog, base: Head) -> None:
    """As :func:`check_same_table`, for what relies on the log that was read: raise also where its newest file changed.

    A checkpoint that was damaged since may have been the one that stands for what is about to go.
    """
    file = base.segment.newest_file
    if file is None:
        check_same_table(log, base)
    else:
        check_same_file(log, file)


def check_same_file(log: DeltaLog, file: ObjectMeta) -> None:
    """Raise ``MetadataChangedError`` where a file of the log is not there any more as it was listed."""
    if not _is_there(log, file):
        raise MetadataChangedError(
            "the log of the table was cleaned up or replaced while this command was using it",
            help="read the table again and repeat the command",
            file=f"{log.store.uri}/{file.key}",
        )


def _is_there(log: DeltaLog, file: ObjectMeta) -> bool:
    try:
        return same_file(log.store.head(file.key), file)
    except ObjectNotFoundError:
        return False


def _gone(base: Head, what: str, help: str) -> MetadataChangedError:
    return MetadataChangedError(
        f"the table {what}",
        help=help,
        file=base.uri,
        version=base.version,
        condition="DELTA_TABLE_ID_MISMATCH",
    )
