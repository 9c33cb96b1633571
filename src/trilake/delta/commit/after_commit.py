"""Post-commit maintenance: checkpoints, checksums, log compaction and log cleanup when they are due.

Protocol: *Checkpoints*, *Version Checksum File*, *Log Compaction Files*, *Metadata Cleanup*.  The commit stands
whatever happens here, so failures are only logged and a later commit tries again.  If nothing is due, this makes no
request::

    every delta.checkpointInterval versions, or when an earlier one failed --> checkpoint --> checksum --> log cleanup
    every trilake.logCompactionInterval versions (0: never)                --> compaction of those versions
    trilake.checksums = commit                                             --> checksum from the previous one
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from trilake.delta.commit.transaction import CommitEvent
from trilake.delta.log import checksum
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log, expired
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import Head, PendingSnapshot, Snapshot
from trilake.errors import TrilakeError
from trilake.storage.base import ObjectMeta

_log = logging.getLogger("trilake.delta")

#: Table property that says when to write checksum files: ``checkpoint``, with every checkpoint; ``commit``, with every
#: commit if that does not require the whole table; ``none``.
CHECKSUMS = "trilake.checksums"
#: Table property: the number of versions per compaction file; 0, the default, means never.
COMPACTION_INTERVAL = "trilake.logCompactionInterval"
#: The largest log, in bytes, that is read for a table's first checksum; a larger one waits for its checkpoint.
_LITTLE_LOG = 256 * 1024


def maintain_log(event: CommitEvent) -> None:
    """Run due log maintenance after a commit.  Never raises, since the commit stands."""
    log, base, version, runtime = event.log, event.base, event.version, event.log.engine.runtime
    if base is None:
        return
    policy = (base.properties.text(CHECKSUMS) or "checkpoint").lower()
    due = False
    with _attempt(event, "checkpoint schedule"):
        due = checkpoint_due(base, version)
    if not due:
        if policy == "commit":
            with _attempt(event, "checksum"):
                _write_next_checksum(log, base, version)
        if COMPACTION_INTERVAL in base.metadata.configuration:
            with _attempt(event, "log compaction"):
                interval = base.properties.number(COMPACTION_INTERVAL)
                if interval > 1 and (version + 1) % interval == 0:
                    compact_log(log, version + 1 - interval, version)
        return
    with _attempt(event, "checkpoint"):
        current = log.updated(base) if isinstance(base, Snapshot | PendingSnapshot) else log.opened()
        current = current if current.version <= version else log.opened(version)
        totals = write_checkpoint(log, current, runtime)
        if policy != "none":
            with _attempt(event, "checksum"):
                if totals is not None:
                    content = checksum.of_state(current.state, totals, log.commit_info(current.version))
                    checksum.write_checksum(log.store, current.version, content)
                elif isinstance(current, Snapshot):
                    write_snapshot_checksum(log, current)
        if base.properties.is_on("delta.enableExpiredLogCleanup"):
            with _attempt(event, "log cleanup"):
                if expired(log, current, runtime) and (cleaned := cleanup_log(log, runtime)).keys:
                    _log.info("cleaned up %d log files of %s", len(cleaned.keys), log.store.uri)


@contextmanager
def _attempt(event: CommitEvent, step: str) -> Iterator[None]:
    """A step after a commit: a failure is logged, and the next commit for which the step is due tries again."""
    try:
        yield
    except (TrilakeError, pa.ArrowException, OSError, ValueError) as e:
        what = "version %d of %s is committed, but its %s failed: %s"
        _log.warning(what, event.version, event.log.store.uri, step, e)


def checkpoint_due(base: Head, version: int) -> bool:
    """Whether the commit of ``version`` on top of ``base`` should write a checkpoint."""
    interval = base.properties.number("delta.checkpointInterval")
    # A checkpoint was due before: the writer that should have written it failed.
    late = interval > 0 and base.version - (base.segment.checkpoint_version or 0) >= interval
    return interval > 0 and (version % interval == 0 or late)


def write_snapshot_checksum(log: DeltaLog, snapshot: Snapshot) -> None:
    """Write the checksum file of a snapshot's version, unless it exists."""
    content = checksum.of_snapshot(snapshot, log.commit_info(snapshot.version))
    checksum.write_checksum(log.store, snapshot.version, content)


def _write_next_checksum(log: DeltaLog, base: Head, version: int) -> None:
    before = checksum.read_checksum(log.store, version - 1)
    if before is not None and (before.protocol is None or before.metadata is None):
        before = None
    if before is None and isinstance(base, Snapshot) and base.version == version - 1:
        before = checksum.of_snapshot(base, {})
    if before is not None:
        following = checksum.following(before, log.parse([(version, ObjectMeta(commit_key(version), 0, 0))]))
        if following is not None:
            checksum.write_checksum(log.store, version, following)
    else:
        files = (*base.segment.checkpoint_files, *(f for _, _, f in base.segment.commits))
        if sum(f.size for f in files) <= _LITTLE_LOG:
            write_snapshot_checksum(log, log.snapshot(version))
