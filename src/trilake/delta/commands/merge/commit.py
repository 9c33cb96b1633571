"""The result of a MERGE and its commit, for every engine that computes the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from trilake.delta.commands.merge.clauses import Clause, predicates
from trilake.delta.commands.rows.removal import Removal
from trilake.delta.commands.rows.row_changes import RowCounts, commit_changes, moved_on
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.files.file_plan import WrittenFiles
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.table.results import ChangeResult

#: The condition and the clauses of a merge as the history shows them.
ForHistory = tuple[str, Sequence[Clause[str]]]


@dataclass(frozen=True)
class MergeRequest:
    """The caller's request: ``on`` is the condition that joins ``target_alias`` and ``source_alias``.

    ``round_times`` truncates source times that are finer than a microsecond.
    """

    on: str
    clauses: tuple[Clause[str], ...]
    source_alias: str = "source"
    target_alias: str = "target"
    evolve: bool = False
    user_metadata: str | None = None
    round_times: bool = True
    #: An application id and its transaction version.
    txn: tuple[str, int] | None = None
    #: If it differs from the strings above.
    for_history: ForHistory | None = None
    #: What the source's query reads from the table itself.
    source_read: ReadSet = field(default_factory=ReadSet)


class MergeResult(ChangeResult):
    """The row counts of a merge, and the metrics of its commit.

    >>> result = MergeResult("MERGE", 3, {"numTargetRowsUpdated": 1, "numTargetRowsInserted": 2})
    >>> result.num_updated_rows, result.num_inserted_rows, result.num_affected_rows
    (1, 2, 3)
    """

    @property
    def num_updated_rows(self) -> int:
        """Rows of the table that were updated."""
        return self.metrics.get("numTargetRowsUpdated", 0)

    @property
    def num_deleted_rows(self) -> int:
        """Rows that were deleted."""
        return self.metrics.get("numTargetRowsDeleted", 0)

    @property
    def num_inserted_rows(self) -> int:
        """Rows that were inserted."""
        return self.metrics.get("numTargetRowsInserted", 0)

    @property
    def num_affected_rows(self) -> int:
        """Rows that were updated, deleted or inserted."""
        return self.num_updated_rows + self.num_deleted_rows + self.num_inserted_rows


@dataclass(frozen=True)
class MergePlan:
    """A merge whose rows have been written, before its commit.

    ``on`` and the clauses' conditions are strings.  ``metadata`` and ``protocol`` are those after schema evolution.
    """

    on: str
    clauses: Sequence[Clause[str]]
    metadata: Metadata
    protocol: Protocol
    read: ReadSet
    job_id: str
    user_metadata: str | None = None
    #: An application id and its transaction version.
    txn: tuple[str, int] | None = None


@dataclass(frozen=True)
class MergedRows:
    """The rows of a merge: in new files ``written``, in change files ``changes``, and removed ones."""

    written: Sequence[WrittenFiles]
    changes: Sequence[Mapping[str, Any]]
    removal: Removal
    counts: RowCounts

    @cached_property
    def adds(self) -> list[Mapping[str, Any]]:
        return [a for part in self.written for a in part.actions]


class MergeTimes(NamedTuple):
    """Times in ms since the epoch: of the start, of the loaded source, and of the rows found in the target."""

    started: int
    loaded: int
    found: int


def finish_merge(
    log: DeltaLog, snapshot: Snapshot, plan: MergePlan, rows: MergedRows, times: MergeTimes
) -> MergeResult:
    """Commit the rows of a merge: nothing if nothing changes, unless the merge records a transaction version."""
    now = log.engine.runtime.clock_ms()
    metrics = {
        **_counts(rows),
        "executionTimeMs": now - times.started,
        "materializeSourceTimeMs": times.loaded - times.started,
        "scanTimeMs": times.found - times.loaded,
        "rewriteTimeMs": now - times.found,
    }
    actions = [*rows.removal.actions, *({"add": a} for a in rows.adds), *({"cdc": c} for c in rows.changes)]
    version = commit_changes(
        log,
        snapshot,
        "MERGE",
        {
            "predicate": [plan.on],
            "matchedPredicates": predicates(plan.clauses, "matched"),
            "notMatchedPredicates": predicates(plan.clauses, "not_matched"),
            "notMatchedBySourcePredicates": predicates(plan.clauses, "not_matched_by_source"),
        },
        actions,
        replace(plan.read, removed=rows.removal.removed),
        metrics,
        job_id=plan.job_id,
        user_metadata=plan.user_metadata,
        metadata=moved_on(plan.metadata, rows.written),
        protocol=plan.protocol,
        txn=plan.txn,
    )
    if version is None:
        return MergeResult("MERGE", snapshot.version, metrics, committed=False)
    return MergeResult("MERGE", version, metrics)


def _counts(rows: MergedRows) -> dict[str, int]:
    adds, removal, counts = rows.adds, rows.removal, rows.counts
    new_rows = sum(int(orjson.loads(a["stats"])["numRecords"]) for a in adds)
    return {
        "numSourceRows": counts.source,
        "numTargetRowsInserted": counts.inserted,
        "numTargetRowsUpdated": counts.updated,
        "numTargetRowsMatchedUpdated": counts.updated_matched,
        "numTargetRowsNotMatchedBySourceUpdated": counts.updated_unmatched,
        "numTargetRowsDeleted": counts.deleted,
        "numTargetRowsMatchedDeleted": counts.deleted_matched,
        "numTargetRowsNotMatchedBySourceDeleted": counts.deleted_unmatched,
        "numTargetRowsCopied": removal.copied,
        "numOutputRows": new_rows + removal.copied,
        "numTargetFilesAdded": len(adds) + removal.files_added,
        "numTargetFilesRemoved": removal.files_removed,
        "numTargetBytesAdded": sum(int(a["size"]) for a in adds) + removal.bytes_added,
        "numTargetBytesRemoved": removal.bytes_removed,
        "numTargetChangeFilesAdded": len(rows.changes),
        "numTargetDeletionVectorsAdded": removal.vectors_added,
        "numTargetDeletionVectorsUpdated": removal.vectors_updated,
        "numTargetDeletionVectorsRemoved": removal.vectors_removed,
    }
