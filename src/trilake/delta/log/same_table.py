"""Check that the table which a commit or log maintenance is based on is still the one at its location.

If a table is dropped or recreated while a writer is at work, the writer's commit would corrupt the new log, and its
checkpoint, compaction or cleanup would apply to the wrong commits.  So each of these checks right before the decisive
call.
"""

from __future__ import annotations

from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import same_file
from trilake.delta.log.snapshot import Head
from trilake.errors import MetadataChangedError, ObjectNotFoundError, TableNotFoundError
from trilake.storage.base import ObjectMeta


def check_same_table(log: DeltaLog, base: Head) -> None:
    """Raise ``MetadataChangedError`` where the location no longer holds the table that was read.

    One request if the newest log file is unchanged; otherwise, as after a cleanup, compare the table's id.
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
    """Like :func:`check_same_table`, but raise also where the newest log file changed.

    A checkpoint damaged since may be the one that replaces what is about to be deleted.
    """
    file = base.segment.newest_file
    if file is None:
        check_same_table(log, base)
    else:
        check_same_file(log, file)


def check_same_file(log: DeltaLog, file: ObjectMeta) -> None:
    """Raise ``MetadataChangedError`` where a log file changed since it was listed."""
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
