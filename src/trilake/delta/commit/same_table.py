"""Is the table that a transaction stands on still the one at its place?

Whoever drops a table while a writer is at work, and perhaps makes another one there, leaves the writer with a version
that never was one of the table there: its commit would leave a log with a gap, or name files that went with the old
table, and nobody could read the new one.
"""

from __future__ import annotations

from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import same_file
from trilake.delta.log.snapshot import Head
from trilake.errors import MetadataChangedError, ObjectNotFoundError, TableNotFoundError


def check_same_table(log: DeltaLog, base: Head) -> None:
    """Raise ``MetadataChangedError`` where another table, or none, is at the place of the one that was read.

    One request to the store where the newest file of the log that was read is as it was.  Else, as after a clean-up,
    the log says by the table's id.
    """
    file = base.segment.newest_file
    try:
        if file is not None and same_file(log.store.head(file.key), file):
            return
    except ObjectNotFoundError:
        pass
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


def _gone(base: Head, what: str, help: str) -> MetadataChangedError:
    return MetadataChangedError(
        f"the table {what}",
        help=help,
        file=base.uri,
        version=base.version,
        condition="DELTA_TABLE_ID_MISMATCH",
    )
