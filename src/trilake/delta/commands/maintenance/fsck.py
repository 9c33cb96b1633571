"""FSCK REPAIR TABLE: remove missing data files from the log, as one commit."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.maintenance.carried_files import missing_files
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import decoded_paths
from trilake.delta.protocol.features import check_writable


def fsck(log: DeltaLog, *, dry_run: bool = False, run: Runner = run_here) -> list[str]:
    """Remove the data files that do not exist from the newest version; return their decoded paths.

    Their rows are already lost; without the references, the table becomes readable again.  With ``dry_run``, only lists
    these files.  Raises a ``ConflictError`` if another writer has removed one of the files.
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
    missing_adds = snapshot.adds.filter(is_gone)
    plan = CommitPlan(
        operation="FSCK",
        parameters={},
        file_actions=[remove_action(a, now) for a in missing_adds.to_pylist()],
        metadata=None,
        protocol=None,
        metrics={"numRemovedFiles": len(missing)},
        read=ReadSet(removed=frozenset(missing_adds["path"].to_pylist())),
    )
    commit(log, snapshot, plan, runtime)
    return missing
