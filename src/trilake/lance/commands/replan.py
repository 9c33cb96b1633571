"""Commits of changes that are planned again, on the newest version, after another writer has changed the same rows."""

from __future__ import annotations

from collections.abc import Callable

from trilake.errors import ConflictError
from trilake.lance.commands.fragment_writer import discard, discarded_on_failure
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.operations import Operation

#: Times that a change is planned anew after others have changed the same rows.
REPLANS = 10


def replanned(snapshot: Snapshot, plan: Callable[[Snapshot], Operation], *, replans: int = REPLANS) -> Snapshot:
    """Commit what ``plan`` makes of a snapshot; after a conflict, of the newest one."""
    snapshot.manifest.check_writable(snapshot.store.uri)
    for attempt in range(replans + 1):
        operation = plan(snapshot)
        try:
            return snapshot.commit(operation)
        except ConflictError:
            if attempt == replans:
                raise
            snapshot = snapshot.at(transaction.load(snapshot.store))
            snapshot.manifest.check_writable(snapshot.store.uri)
    raise AssertionError("not reached")


def replanned_with_files(
    snapshot: Snapshot, plan: Callable[[Snapshot, list[Fragment]], Operation], *, replans: int = REPLANS
) -> Snapshot:
    """Commit what ``plan`` makes, which lists the files it writes; they are removed where their commit fails."""
    written: list[Fragment] = []

    def planned_anew(current: Snapshot) -> Operation:
        discard(current.store, written)
        written.clear()
        return plan(current, written)

    with discarded_on_failure(snapshot.store, written):
        return replanned(snapshot, planned_anew, replans=replans)
