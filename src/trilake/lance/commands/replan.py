"""Retry changes: after a conflict, plan and commit again on the newest version."""

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

#: Default number of retries.
REPLANS = 10
#: Minimum assumed duration of an attempt, and maximum wait before the next, in seconds.
_SHORTEST, _LONGEST_WAIT = 0.01, 5.0


@dataclass(frozen=True)
class Retries:
    """Limits of retries after conflicts on the same rows: number and time in seconds."""

    times: int = REPLANS
    timeout: float = math.inf

    @classmethod
    def of(cls, conflict_retries: Any = None, retry_timeout: Any = None) -> Retries:
        times = REPLANS
        if conflict_retries is not None:
            times = count("conflict_retries", conflict_retries, other_type=WrongTypeError)
        if retry_timeout is None:
            return cls(times)
        if not isinstance(retry_timeout, timedelta):
            raise WrongTypeError(f"retry_timeout must be a timedelta, got {type(retry_timeout).__name__}")
        return cls(times, retry_timeout.total_seconds())


#: Default limits: :data:`REPLANS` retries without a time limit.
USUAL = Retries()


def replanned(
    snapshot: Snapshot, plan: Callable[[Snapshot], Operation | None], retries: Retries = USUAL, *, by_ids: bool = False
) -> Snapshot:
    """Commit the plan for a snapshot; after a conflict, plan again for the newest version.

    Parameters
    ----------
    plan: returns the operation, or ``None`` if there is nothing to do.
    retries: limits of retries.
    by_ids: whether the plan selects rows by id; if so, do not retry after rows were moved or replaced, as their ids may
        now belong to other rows.

    Raises the ``ConflictError`` of the last attempt.
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
    """Whether the row ids of a version are still valid in a later one for rows that still exist."""
    files = {f.id: f.files[:1] for f in after.fragments}
    return all(files.get(f.id) == f.files[:1] for f in before.fragments)


def _wait(runtime: Runtime, seconds: float, attempt: int) -> None:
    """Wait for a random time, so that the same writers do not collide again.

    The limit starts with the duration of an attempt and doubles with each attempt.
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
    """Commit a plan that writes files; remove the files if the commit fails."""
    written: list[Fragment] = []

    def plan_again(current: Snapshot) -> Operation:
        discard(current.store, written)
        written.clear()
        return plan(current, written)

    with discarded_on_failure(snapshot.store, written):
        return replanned(snapshot, plan_again, retries, by_ids=by_ids)
