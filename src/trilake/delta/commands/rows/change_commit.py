"""The commit of a command that changes rows, and cleanup after a failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from trilake.common.runtime import Runtime
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.commit.transaction import Committed, commit
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.errors import ConflictError, InvalidArgumentError
from trilake.storage import ownership
from trilake.storage.base import Store


def commit_changes(
    log: DeltaLog,
    snapshot: Snapshot,
    operation: str,
    parameters: Mapping[str, Any],
    actions: Sequence[Mapping[str, Any]],
    read: ReadSet,
    metrics: Mapping[str, Any],
    *,
    job_id: str,
    runtime: Runtime,
    user_metadata: str | None = None,
    **more: Any,
) -> Committed:
    """Commit the actions of a command at the table's isolation level; ``more`` are further fields of the
    :class:`~trilake.delta.commit.transaction.CommitPlan`.

    Raises what :func:`trilake.delta.commit.transaction.commit` raises; after a conflict, the new files whose names
    contain ``job_id`` are deleted.
    """
    level = snapshot.properties.isolation_level()
    plan = CommitPlan(
        operation=operation,
        parameters=parameters,
        file_actions=actions,
        metrics=metrics,
        user_metadata=user_metadata,
        read=replace(read, isolation=level, metadata=snapshot.metadata),
        **more,
    )
    try:
        return commit(log, snapshot, plan, runtime)
    except (ConflictError, InvalidArgumentError):
        discard(log.store, actions, job_id)
        raise


def discard(store: Store, actions: Iterable[Mapping[str, Any]], job_id: str) -> None:
    """Delete the data and change files of a job whose actions will never be committed.

    Vectors stay for vacuum: an action does not show whether its vector is new.
    """
    files = [a.get("cdc") or a.get("add") for a in actions]
    ownership.discard(store, [unquote(str(f["path"])) for f in files if f is not None and job_id in f["path"]])
