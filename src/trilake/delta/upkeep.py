"""What follows a commit and cannot undo it: checkpoints when they are due.

Protocol: *Checkpoints*.  A commit that is in the log stands whatever happens here, so a failure is a warning and the
next commit tries again.  A commit after which nothing is due pays for a few comparisons and no request.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from trilake.delta.checkpoint_writer import write_checkpoint
from trilake.delta.log import DeltaLog, Head, Snapshot
from trilake.delta.runtime import Runtime
from trilake.errors import TrilakeError

_log = logging.getLogger("trilake.delta")


def after_commit(log: DeltaLog, base: Head | None, version: int, runtime: Runtime) -> Snapshot | None:
    """Do what is due after ``version`` was committed on top of ``base``; the snapshot of ``version`` where it was made.

    Never raises because of the upkeep itself: the commit stands.
    """
    if base is None:
        return None
    try:
        if not _checkpoint_due(base, version):
            return None
        current = log.update(base) if isinstance(base, Snapshot) else log.snapshot()
        if current.version > version:
            current = log.snapshot(version)
        write_checkpoint(log, current, runtime)
        return current
    except (TrilakeError, pa.ArrowException, OSError, ValueError) as e:
        # The next commit will try the checkpoint again.
        _log.warning("version %d of %s is committed, but its checkpoint failed: %s", version, log.store.uri, e)
        return None


def _checkpoint_due(base: Head, version: int) -> bool:
    interval = int(base.property("delta.checkpointInterval", "10"))
    # Late already when this commit began: the writer whose turn it was has failed.
    late = interval > 0 and base.version - (base.segment.checkpoint_version or 0) >= interval
    return interval > 0 and (version % interval == 0 or late)
