"""DELETE, and the steps that it shares with UPDATE.

Files whose rows all match by partition values or statistics are removed without being read; for others see
:mod:`trilake.delta.commands.rows.row_changes`.  A :class:`RowCommand` starts and commits the change; in between, any
engine can find the rows and compute new ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import orjson
from pyroaring import BitMap64

from trilake.delta.commands.rows.removal import remove_rows
from trilake.delta.commands.rows.row_changes import (
    ChangedPart,
    FoundRows,
    Runner,
    check_changeable,
    commit_changes,
    discard,
    find_rows,
    moved_on,
    run_here,
    successful,
)
from trilake.delta.commit.conflicts import NOTHING_READ, PartitionPredicate, ReadSet
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.errors import TrilakeError
from trilake.expr import Filter
from trilake.table.results import ChangeResult


@dataclass(frozen=True)
class RowCommand:
    """A DELETE or UPDATE on one snapshot.

    ``predicate`` is for the history, ``None`` for all rows; ``filter`` is the same as a filter, to skip files; with
    ``None`` every file counts as read.  ``txn`` is an application id and its transaction version, which is committed
    even if no row changes.
    """

    operation: Literal["DELETE", "UPDATE"]
    log: DeltaLog
    snapshot: Snapshot
    predicate: str | None
    filter: Filter | None
    txn: tuple[str, int] | None = None
    job_id: str = field(init=False)
    started: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        check_changeable(self.snapshot, self.operation)
        object.__setattr__(self, "job_id", self.log.engine.runtime.new_id())

    def finish(
        self,
        found: FoundRows,
        parts: Iterable[ChangedPart] = (),
        run: Runner = run_here,
        user_metadata: str | None = None,
        *,
        other_reads: ReadSet = NOTHING_READ,
    ) -> ChangeResult:
        """Remove the rows ``found``, and those that the new rows in ``parts`` replace, and commit.

        ``other_reads`` are reads of other rows by subqueries.  Raises the error of a part that failed, and a
        ``ConflictError`` if another commit conflicts; in both cases, deletes the new files.
        """
        snapshot, parts = self.snapshot, successful(self.log.store, parts, self.job_id)
        deletes = self.operation == "DELETE"
        new = [a for p in parts for a in p.actions]
        scanned = time.monotonic()
        rows = dict(found.rows)
        for number, data in (item for p in parts for item in p.removed_rows.items()):
            rows[number] = rows.get(number, BitMap64()) | BitMap64.deserialize(data)
        whole = [*found.whole, *(n for p in parts for n in p.replaced)]
        change_type = "delete" if deletes else None
        try:
            removal = remove_rows(
                self.log, snapshot, rows, whole=whole, job_id=self.job_id, change_type=change_type, run=run
            )
        except TrilakeError:
            discard(self.log.store, new, self.job_id)
            raise
        adds = [a["add"] for a in new if "add" in a]
        rewritten = time.monotonic()
        times = {
            "scanTimeMs": int((scanned - self.started) * 1000),
            "rewriteTimeMs": int((rewritten - scanned) * 1000),
            "executionTimeMs": int((rewritten - self.started) * 1000),
        }
        metrics = removal.metrics
        metrics["numCopiedRows"] += sum(p.copied for p in parts)
        metrics["numAddedFiles"] += len(adds)
        metrics["numAddedBytes"] += sum(int(a["size"]) for a in adds)
        metrics["numAddedChangeFiles"] += len(new) - len(adds)
        count = removal.rows if deletes else sum(p.updated for p in parts)
        counts = {} if count is None else {"numDeletedRows" if deletes else "numUpdatedRows": count}
        metrics = {**counts, **metrics, **times}
        version = commit_changes(
            self.log,
            snapshot,
            self.operation,
            {"predicate": orjson.dumps([] if self.predicate is None else [self.predicate]).decode()},
            [*removal.actions, *new],
            self._read_set(found, removal.removed).beside(other_reads),
            metrics,
            job_id=self.job_id,
            user_metadata=user_metadata,
            metadata=moved_on(snapshot.metadata, [p.written for p in parts]),
            txn=self.txn,
        )
        if version is None:
            return ChangeResult(self.operation, snapshot.version, metrics, committed=False)
        metrics["executionTimeMs"] = int((time.monotonic() - self.started) * 1000)
        return ChangeResult(self.operation, version, metrics)

    def _read_set(self, found: FoundRows, removed: frozenset[str]) -> ReadSet:
        if self.filter is None:
            return ReadSet(whole_table=True, removed=removed)
        predicates = (PartitionPredicate.of(self.snapshot, self.filter),)
        return ReadSet(predicates=predicates, files=found.paths(self.snapshot) | removed, removed=removed)


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
    command = RowCommand("DELETE", log, snapshot, "true" if filter is None else filter.sql, filter)
    rows = every_row(snapshot) if filter is None else find_rows(log, snapshot, filter)
    return command.finish(rows, user_metadata=user_metadata)
