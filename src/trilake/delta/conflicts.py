"""Conflict checking: may this transaction still commit, now that another has won?  A pure function.

The order of checks is that of the reference implementation: protocol, metadata, application ids, files added where this
transaction read, files deleted that it read, files deleted that it deletes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.actions import ActionBatch
from trilake.delta.replay import file_keys
from trilake.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConflictError,
    MetadataChangedError,
    ProtocolChangedError,
)


@dataclass(frozen=True)
class ReadSet:
    """What a transaction read and what it will change.

    ``whole_table`` says that any file counts as read; ``partitions`` that only files of these partitions do (texts of
    the log by physical column name), as a write that replaces partitions reads them.  ``removed`` are the paths it
    removes, as the log spells them.
    """

    whole_table: bool = False
    partitions: tuple[Mapping[str, str | None], ...] | None = None
    removed: frozenset[str] = frozenset()
    changes_metadata: bool = False
    app_ids: frozenset[str] = frozenset()

    @property
    def blind(self) -> bool:
        """Whether nothing of the table was read."""
        return not self.whole_table and self.partitions is None and not self.removed


@dataclass(frozen=True)
class Winner:
    """A commit that took the version this transaction wanted."""

    version: int
    actions: ActionBatch

    @property
    def info(self) -> Mapping[str, Any]:
        """Its ``commitInfo``."""
        found = self.actions.of("commitInfo")
        return found[0][1] if found else {}


def check(read: ReadSet, winner: Winner) -> ConflictError | None:
    """The reason why the transaction must not commit after ``winner``, or ``None``."""
    operation = winner.info.get("operation")

    def conflict(cls: type[ConflictError], what: str, help: str, **context: Any) -> ConflictError:
        return cls(what, help=help, version=winner.version, operation=operation, **context)

    again = "read the table again and repeat the write"
    if winner.actions.of("protocol"):
        return conflict(ProtocolChangedError, "another commit changed the table's protocol", again)
    if winner.actions.of("metaData"):
        return conflict(MetadataChangedError, "another commit changed the table's schema or properties", again)
    advanced = {str(t.get("appId")) for _, t in winner.actions.of("txn")} & read.app_ids
    if advanced:
        return conflict(
            ConcurrentTransactionError,
            f"another commit advanced the application id {', '.join(sorted(advanced))}",
            "the other writer has written this batch: do not write it again",
        )
    added, removed = winner.actions.add, winner.actions.remove
    # Under WriteSerializable a blind append may be ordered after this commit, whatever this commit read.
    blind = winner.info.get("isBlindAppend") is True and not read.changes_metadata
    touched = added.slice(0, 0) if blind else _in_read_set(read, added)
    if touched.num_rows:
        return conflict(
            ConcurrentAppendError,
            f"another commit added {touched.num_rows} files where this one read",
            again,
            files=_some(touched),
        )
    deleted = _in_read_set(read, removed)
    if deleted.num_rows:
        return conflict(
            ConcurrentDeleteReadError,
            f"another commit removed {deleted.num_rows} files that this one read",
            again,
            files=_some(deleted),
        )
    both = removed.filter(pc.is_in(removed["path"], pa.array(sorted(read.removed), pa.string())))
    if both.num_rows:
        return conflict(
            ConcurrentDeleteDeleteError,
            f"another commit removed {both.num_rows} files that this one removes too",
            again,
            files=_some(both),
        )
    return None


def _in_read_set(read: ReadSet, files: pa.Table) -> pa.Table:
    if read.whole_table or not files.num_rows:
        return files
    if read.partitions is None:
        return files.slice(0, 0)
    mask = pa.array([False] * files.num_rows)
    unknown = files["partitionValues"].is_null()
    for partition in read.partitions:
        hit = pa.array([True] * files.num_rows)
        for name, text in partition.items():
            value = pc.map_lookup(files["partitionValues"], pa.scalar(name), "first")
            same = pc.is_null(value) if text is None else pc.equal(value, text)
            hit = pc.and_(hit, pc.fill_null(same, False))
        mask = pc.or_(mask, hit)
    # A remove that does not say its partition may be in any.
    return files.filter(pc.or_(mask, unknown))


def _some(files: pa.Table) -> str:
    keys = file_keys(files).slice(0, 3).to_pylist()
    more = f" and {files.num_rows - 3} more" if files.num_rows > 3 else ""
    return ", ".join(k.split("\x00")[0] for k in keys) + more
