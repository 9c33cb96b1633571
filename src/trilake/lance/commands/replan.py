"""Commits of changes that are planned again, on the newest version, after another writer has changed the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trilake.common.arguments import count
from trilake.common.runtime import Runtime
from trilake.errors import ConflictError
from trilake.lance.commands.fragment_writer import discard, discarded_on_failure
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.operations import Operation

#: Times that a change is planned anew after others have changed the same rows.
REPLANS = 10
#: Seconds that an attempt is taken to last at least, and that any new plan waits at most.
_SHORTEST, _LONGEST_WAIT = 0.01, 5.0


@dataclass(frozen=True)
class Retries:
    """How often, and for how many seconds, a change is planned anew after others have changed the same rows."""

    times: int = REPLANS
    timeout: float = math.inf

    @classmethod
    def of(cls, conflict_retries: Any = None, retry_timeout: Any = None) -> Retries:
        """What users of the format say.  Raises ``WrongTypeError``."""
        times = REPLANS
        if conflict_retries is not None:
            times = count("conflict_retries", conflict_retries, other_type=WrongTypeError)
        if retry_timeout is None:
            return cls(times)
        if not isinstance(retry_timeout, timedelta):
            raise WrongTypeError(f"the timeout must be a timedelta, got {type(retry_timeout)}")
        return cls(times, retry_timeout.total_seconds())


#: As often as anybody needs it.
USUAL = Retries()


def replanned(
    snapshot: Snapshot,
    plan: Callable[[Snapshot], Operation | None],
    retries: Retries = USUAL,
    *,
    by_ids: bool = False,
) -> Snapshot:
    """Commit what ``plan`` makes of a snapshot; after a conflict, of the newest one.

    Parameters
    ----------
    plan: gives ``None`` where nothing is to be done.
    retries: how often it is made anew, and for how long.
    by_ids: whether the plan names rows by their ids: it is not made anew where others have moved rows, or replaced
        them, whose ids may then be those of other rows.

    Raises ``ConflictError`` of the last attempt.
    """
    snapshot.manifest.check_writable(snapshot.store.uri)
    first = snapshot.runtime.clock_ns()
    for attempt in range(retries.times + 1):
        began = snapshot.runtime.clock_ns()
        operation = plan(snapshot)
        if operation is None:
            return snapshot
        try:
            return snapshot.commit(operation)
        except ConflictError:
            now = snapshot.runtime.clock_ns()
            if attempt == retries.times or (now - first) / 1e9 >= retries.timeout:
                raise
            _wait(snapshot.runtime, (now - began) / 1e9, attempt)
            newest = transaction.load(snapshot.store)
            if by_ids and not _keeps_ids(snapshot.manifest, newest):
                raise
            snapshot = snapshot.at(newest)
            snapshot.manifest.check_writable(snapshot.store.uri)
    raise AssertionError("not reached")


def _keeps_ids(before: Manifest, after: Manifest) -> bool:
    """Whether the row ids of a version name the same rows in a later one, where these are still there."""
    files = {f.id: f.files[:1] for f in after.fragments}
    return all(files.get(f.id) == f.files[:1] for f in before.fragments)


def _wait(runtime: Runtime, seconds: float, attempt: int) -> None:
    """Wait for a random part of a time that doubles from what the attempt took.

    Whoever plans anew at once meets the same writers again: of two that change the same rows, one works for nothing.
    """
    longest = min(max(seconds, _SHORTEST) * 2**attempt, _LONGEST_WAIT)
    runtime.sleep(longest * runtime.new_number() / 2**64)


def replanned_with_files(
    snapshot: Snapshot,
    plan: Callable[[Snapshot, list[Fragment]], Operation],
    retries: Retries = USUAL,
    *,
    by_ids: bool = False,
) -> Snapshot:
    """Commit what ``plan`` makes, which lists the files it writes; they are removed where their commit fails."""
    written: list[Fragment] = []

    def planned_anew(current: Snapshot) -> Operation:
        discard(current.store, written)
        written.clear()
        return plan(current, written)

    with discarded_on_failure(snapshot.store, written):
        return replanned(snapshot, planned_anew, retries, by_ids=by_ids)
