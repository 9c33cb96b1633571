"""DELETE: remove the rows for which a predicate is true.

Files whose rows all match by partition values or statistics are removed without being read; for others see
:mod:`trilake.delta.commands.rows.row_changes`.  :class:`Deletion` starts and finishes the command, so that another
engine can find the rows in between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import orjson

from trilake.delta.commands.rows.change_result import ChangeResult
from trilake.delta.commands.rows.removal import remove_rows
from trilake.delta.commands.rows.row_changes import (
    FoundRows,
    Runner,
    check_changeable,
    commit_changes,
    find_rows,
    run_here,
)
from trilake.delta.commit.conflicts import NOTHING_READ, PartitionPredicate, ReadSet
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.expr import Filter


class Stopwatch:
    """Milliseconds since it was started, and since the last lap."""

    def __init__(self) -> None:
        self._start = self._lap_start = time.monotonic()

    def lap(self) -> int:
        now, before = time.monotonic(), self._lap_start
        self._lap_start = now
        return int((now - before) * 1000)

    @property
    def total(self) -> int:
        return int((time.monotonic() - self._start) * 1000)


@dataclass(frozen=True)
class Deletion:
    """A DELETE on one snapshot.

    ``predicate`` is for the history; ``filter`` is the same as a filter, to skip files; with ``None`` every file counts
    as read.  ``txn`` is an application id and its transaction version, which is committed even if no row is deleted.
    """

    log: DeltaLog
    snapshot: Snapshot
    predicate: str
    filter: Filter | None
    watch: Stopwatch = field(default_factory=Stopwatch)
    txn: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        check_changeable(self.snapshot, "DELETE")

    def finish(
        self,
        rows_to_delete: FoundRows,
        run: Runner = run_here,
        user_metadata: str | None = None,
        *,
        other_reads: ReadSet = NOTHING_READ,
    ) -> ChangeResult:
        """Remove the rows and commit.  ``other_reads`` are reads of other rows by subqueries in the predicate.

        Raises a ``ConflictError`` if another commit conflicts.
        """
        snapshot, scanned = self.snapshot, self.watch.lap()
        job_id = self.log.engine.runtime.new_id()
        removal = remove_rows(
            self.log,
            snapshot,
            rows_to_delete.rows,
            whole=rows_to_delete.whole,
            job_id=job_id,
            change_type="delete",
            run=run,
        )
        rows = {} if removal.rows is None else {"numDeletedRows": removal.rows}
        times = {"scanTimeMs": scanned, "rewriteTimeMs": self.watch.lap(), "executionTimeMs": self.watch.total}
        metrics = {**rows, **removal.metrics, **times}
        if not removal.actions and self.txn is None:
            return ChangeResult("DELETE", snapshot.version, metrics, committed=False)
        version = commit_changes(
            self.log,
            snapshot,
            "DELETE",
            {"predicate": orjson.dumps([self.predicate]).decode()},
            removal.actions,
            read_set(snapshot, self.filter, rows_to_delete, removal.removed).beside(other_reads),
            metrics,
            job_id=job_id,
            user_metadata=user_metadata,
            txn=self.txn,
        )
        assert version is not None
        return ChangeResult("DELETE", version, {**metrics, "executionTimeMs": self.watch.total})


def read_set(snapshot: Snapshot, filter: Filter | None, matching: FoundRows, removed: frozenset[str]) -> ReadSet:
    """The reads of a command with ``filter``; without a filter, the whole table."""
    if filter is None:
        return ReadSet(whole_table=True, removed=removed)
    predicates = (PartitionPredicate.of(snapshot, filter),)
    return ReadSet(predicates=predicates, files=matching.paths(snapshot) | removed, removed=removed)


def every_row(snapshot: Snapshot) -> FoundRows:
    """All rows of a snapshot, without reading them."""
    every = tuple(range(snapshot.adds.num_rows))
    return FoundRows({}, every, every)


def delete_rows(
    log: DeltaLog, snapshot: Snapshot, filter: Filter | None = None, *, user_metadata: str | None = None
) -> ChangeResult:
    """Delete the rows of a table for which ``filter`` is true; all rows without a filter.

    If no row matches, nothing is committed.  Raises ``InvalidArgumentError`` for an append-only table, ``FilterError``
    if the predicate fails on a row, and a ``ConflictError`` if another commit conflicts.
    """
    predicate = "true" if filter is None else filter.sql
    command = Deletion(log, snapshot, predicate, filter)
    rows = every_row(snapshot) if filter is None else find_rows(log, snapshot, filter)
    return command.finish(rows, user_metadata=user_metadata)
