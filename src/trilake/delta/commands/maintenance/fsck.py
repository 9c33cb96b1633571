"""FSCK REPAIR TABLE: data files that are gone are taken out of the log, as one commit."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.maintenance.carried_files import missing_files
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.commit.transaction import commit, remove_action
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import decoded_paths
from trilake.delta.protocol.features import check_writable


def fsck(log: DeltaLog, *, dry_run: bool = False, run: Runner = run_here) -> list[str]:
    """Take the data files out of the newest version that the store does not have; their paths, decoded.

    Parameters
    ----------
    log: the table's log.
    dry_run: only say which files these are.
    run: who asks the store for many files.

    Rows of such files cannot be read any more, before or after: the table is one that can be read again.  Raises a
    ``ConflictError`` where another writer removed one of them in the meantime.
    """
    snapshot = log.snapshot()
    check_writable(snapshot.protocol, snapshot.metadata, uri=snapshot.uri, version=snapshot.version)
    paths = decoded_paths(snapshot.adds["path"])
    absent = pa.array(missing_files(log.store, snapshot.adds, run), pa.string())
    is_gone = pc.is_in(paths, absent)
    missing: list[str] = paths.filter(is_gone).to_pylist()
    if not missing or dry_run:
        return missing
    runtime = log.engine.runtime
    now = runtime.clock_ms()
    removed = snapshot.adds.filter(is_gone)
    plan = CommitPlan(
        operation="FSCK",
        parameters={},
        file_actions=[remove_action(a, now) for a in removed.to_pylist()],
        metadata=None,
        protocol=None,
        metrics={"numRemovedFiles": len(missing)},
        read=ReadSet(removed=frozenset(removed["path"].to_pylist())),
    )
    commit(log, snapshot, plan, runtime)
    return missing
