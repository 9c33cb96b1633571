"""Delete: write deletion files that mark the rows matching a condition.

After a conflict, the condition is evaluated again on the newest version.
"""

from __future__ import annotations

from dataclasses import replace

from pyroaring import BitMap

from trilake.errors import FilterError
from trilake.expr import Filter
from trilake.lance.commands.replan import USUAL, Retries, replanned
from trilake.lance.file.errors import DeletePredicateError
from trilake.lance.scan.fragment_reader import FragmentReader, Rows, runs
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import deletions
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment
from trilake.storage.base import WriteGroup
from trilake.table.table import FilterLike


def mark(snapshot: Snapshot, reader: FragmentReader, rows: Rows, group: WriteGroup | None = None) -> Fragment | None:
    """Write a deletion file that adds rows to the deleted ones; ``None`` if no live row remains.

    A file of a ``group`` becomes visible when the caller finishes the group.
    """
    deleted = reader.deleted_set | BitMap(rows.astype("uint32"))
    if len(deleted) >= reader.physical_rows:
        return None
    id = snapshot.runtime.new_number()
    store = group or reader.store
    entry = deletions.write(store, reader.fragment.id, deleted, read_version=snapshot.version, id=id)
    return replace(reader.fragment, deletion_file=entry, physical_rows=reader.physical_rows)


def mark_all(snapshot: Snapshot, offsets: dict[int, Rows]) -> tuple[tuple[Fragment, ...], tuple[int, ...]]:
    """Mark rows by fragment id; returns the updated fragments and the ids of those that are now empty."""
    updated: list[Fragment] = []
    removed: list[int] = []
    with snapshot.store.write_group() as group:
        for fragment_id, rows in offsets.items():
            if not len(rows):
                continue
            fragment = mark(snapshot, snapshot.by_id[fragment_id], rows, group)
            if fragment is None:
                removed.append(fragment_id)
            else:
                updated.append(fragment)
    return tuple(updated), tuple(removed)


def condition_of(snapshot: Snapshot, predicate: FilterLike) -> Filter | None:
    """Parse the condition of a delete.  Raises ``DeletePredicateError``, a ``FilterError``."""
    try:
        return snapshot.filter(predicate)
    except FilterError as e:
        raise DeletePredicateError(e.message, help=e.help, **e.context) from e


def delete(snapshot: Snapshot, predicate: FilterLike, retries: Retries = USUAL) -> tuple[Snapshot, int]:
    """Delete the rows that match ``predicate``, and return the new version and their number.

    Commits a version even if no row matches, as pylance does.  ``retries`` limits replanning after conflicts; a
    predicate on row ids is not replanned if rows have moved.  Raises ``FilterError``, ``ConflictError``,
    ``UnsupportedProtocolError`` or ``UnknownOutcomeError``.
    """
    count = 0

    def plan(current: Snapshot) -> op.Operation:
        nonlocal count
        condition = condition_of(current, predicate)
        matching = current.matching(condition)
        count = len(matching)
        updated, removed = mark_all(current, dict(runs(matching)))
        return op.Delete(updated, removed, str(predicate))

    by_ids = snapshot.names_ids(condition_of(snapshot, predicate))
    return replanned(snapshot, plan, retries, by_ids=by_ids), count
