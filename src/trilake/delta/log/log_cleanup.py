"""Log cleanup: delete the log files that no readable version within the retention needs.

Protocol: *Metadata Cleanup*.  The steps of a cleanup::

    midnight (UTC) of now - delta.logRetentionDuration = cut-off time
      --> cut-off commit: the newest one up to that time
      --> base: the newest complete checkpoint not after the cut-off commit (or one made there)
      --> delete every log file of a version before the base, oldest first
      --> list the log again: a checkpoint written concurrently may name old sidecars
      --> delete sidecars that no checkpoint names, once they are a day old, and temporary files

All versions from the base on stay readable, even if the process dies midway.  A cleanup deletes nothing if the log is
damaged or may belong to another table (:mod:`trilake.storage.ownership`), or if this machine's clock is ahead of the
store's.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trilake.common.display import Displayed
from trilake.common.runtime import Runtime
from trilake.delta.log.checkpoint import checkpoint_pieces, read_checkpoint_rare, sidecar_keys
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.commit_times import monotonic
from trilake.delta.log.log import DeltaLog, check_untouched
from trilake.delta.log.segment import (
    LOG,
    SIDECARS,
    LogListing,
    LogSegment,
    choose_segment,
    first_version,
    may_name_sidecars,
    sort_listing,
)
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.features import MAX_WRITER, REGISTRY, writer_features
from trilake.delta.protocol.table_features.in_commit_timestamp import FIELD, in_commit_timestamps_from
from trilake.errors import (
    CorruptLogError,
    InvalidArgumentError,
    LogGapError,
    ObjectNotFoundError,
    TrilakeError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from trilake.storage.base import ObjectMeta
from trilake.storage.ownership import agreed_time, old_temporaries, own_keys

_log = logging.getLogger("trilake.delta")

DAY_MS = 24 * 3600 * 1000
_PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"
#: The pattern of sidecar keys; the protocol lets writers choose the rest of the name.
_SIDECAR = rf"{SIDECARS}/[^/]+\.parquet"
#: Keys per delete request.
_BATCH = 500
#: How often to list the log while other processes delete from it.
_LOOKS = 3


@dataclass(frozen=True)
class CleanupResult(Displayed):
    """What a cleanup deleted, or would delete: log files, oldest first, then sidecars, then temporary files.

    ``oldest_version`` stays readable; ``None`` if nothing was deleted.  ``cutoff_ms`` is the cut-off time.
    """

    keys: tuple[str, ...]
    oldest_version: int | None
    cutoff_ms: int


def cutoff_time(now_ms: int, retention_ms: int) -> int:
    """The cut-off time: midnight (UTC) of the day ``retention_ms`` before ``now_ms``, in ms since the epoch.

    >>> cutoff_time(10 * DAY_MS + 5, 2 * DAY_MS) == 8 * DAY_MS
    True
    """
    return (now_ms - retention_ms) // DAY_MS * DAY_MS


def cleanup_log(
    log: DeltaLog, runtime: Runtime, *, dry_run: bool = False, retention_ms: int | None = None
) -> CleanupResult:
    """Delete the log files that no version within the retention needs; with ``dry_run``, only list them.

    ``retention_ms`` is by default the table's ``delta.logRetentionDuration`` (30 days);
    ``delta.enableExpiredLogCleanup`` only concerns automatic cleanup.  Raises ``UnsupportedProtocolError`` for an
    unknown table feature, ``InvalidArgumentError`` for an invalid retention, ``ClockError`` if this machine's clock is
    ahead of the store's, and ``MetadataChangedError`` if the table was replaced or the end of its log has changed.
    """
    head = log.head(past_damage=False)
    _check_known(head)
    if retention_ms is None:
        retention_ms = _retention(head)
    if retention_ms < 0:
        raise InvalidArgumentError("the retention must not be negative", retention_ms=retention_ms)
    now = runtime.clock_ms() if dry_run else agreed_time(log.store, runtime.clock_ms())
    cutoff = cutoff_time(now, retention_ms)
    objects, base = _listed(log, head, cutoff, runtime, dry_run=dry_run)
    keys: list[str] = []
    spared: set[str] | None = set()
    if base is not None:
        keys = own_keys(log.store, _before(objects, base), rf"{LOG}/\d{{20}}\.[^/]+", what="log cleanup")
        if retention_ms < _retention(head):
            # A checkpoint being written relies on the table's retention, not on ``retention_ms``, and may reuse these.
            going = set(keys)
            spared = _named(log, [o for o in objects if o.key in going])
        if not dry_run:
            check_untouched(log, head)
            _delete(log, keys)
    old = cutoff_time(now, DAY_MS)
    orphans = [] if spared is None else [k for k in _orphans(log, objects, set(keys), old) if k not in spared]
    orphans += [m.key for m in old_temporaries(log.store, LOG, old)]
    if not dry_run:
        _delete(log, orphans)
    return CleanupResult((*keys, *orphans), base, cutoff)


def _listed(
    log: DeltaLog, head: Head, cutoff: int, runtime: Runtime, *, dry_run: bool
) -> tuple[list[ObjectMeta], int | None]:
    """List the log and find the base, if any; again if a concurrent cleanup deletes a commit in between."""
    for _ in range(_LOOKS):
        objects = list(log.store.list(LOG))
        try:
            return objects, _base(log, head, sort_listing(objects), cutoff, runtime, dry_run=dry_run)
        except ObjectNotFoundError as e:
            _log.info("a log file of %s disappeared: %s", head.uri, e)
    return objects, None


def _check_known(head: Head) -> None:
    """Reject a table with an unsupported feature, which may forbid cleanup."""
    names = [n for n in writer_features(head.protocol) if n not in REGISTRY]
    if names or head.protocol.min_writer_version > MAX_WRITER:
        raise UnsupportedProtocolError(
            f"the log cannot be cleaned up: unsupported writer version {head.protocol.min_writer_version}"
            + (f" with the unknown features {', '.join(names)}" if names else ""),
            help="use a newer trilake, or the engine that set the features",
            file=head.uri,
            version=head.version,
        )


def _retention(head: Head) -> int:
    return head.properties.duration_ms("delta.logRetentionDuration")


def expired(log: DeltaLog, head: Head, runtime: Runtime) -> bool:
    """Whether the oldest commit of the log is older than the retention; reads the first page of the listing."""
    cutoff = cutoff_time(runtime.clock_ms(), _retention(head))
    for o in log.store.list(LOG):
        listing = sort_listing([o])
        for version in listing.commits:
            try:
                return _time(log, head, version, o) <= cutoff
            except ObjectNotFoundError:
                return False
    return False


def _time(log: DeltaLog, head: Head, version: int, file: ObjectMeta) -> int:
    since = in_commit_timestamps_from(head.metadata)
    if since is None or version < since:
        return file.modified_ms
    time = log.commit_info(version).get(FIELD)
    if not isinstance(time, int):
        message = "the commit has no inCommitTimestamp, although the table has in-commit timestamps"
        raise CorruptLogError(message, file=f"{log.store.uri}/{file.key}", version=version)
    return time


def cutoff_commit(log: DeltaLog, head: Head, commits: Mapping[int, ObjectMeta], cutoff: int) -> int | None:
    """Find the newest commit up to the cut-off time."""
    versions = sorted(commits)
    since = in_commit_timestamps_from(head.metadata)
    timed_versions = [] if since is None else [v for v in versions if v >= since]

    def time(version: int) -> int:
        return _time(log, head, version, commits[version])

    if timed_versions and time(timed_versions[0]) <= cutoff:
        # In-commit timestamps only grow: a binary search need not read the commits in between.
        return timed_versions[bisect_right(timed_versions, cutoff, 1, key=time) - 1]
    by_file = versions[: len(versions) - len(timed_versions)]
    times = monotonic([commits[v].modified_ms for v in by_file])
    return max((v for v, t in zip(by_file, times, strict=True) if t <= cutoff), default=None)


def _base(
    log: DeltaLog, head: Head, listing: LogListing, cutoff: int, runtime: Runtime, *, dry_run: bool
) -> int | None:
    newest_old = cutoff_commit(log, head, listing.commits, cutoff)
    if newest_old is None or newest_old > head.version:
        return None
    protected = head.metadata.configuration.get(_PROTECTED_BEFORE)
    try:
        # Log files before a protected version are deleted all together or not at all.
        floor = int(protected) if protected is not None else 0
        segment = choose_segment(listing, uri=head.uri, version=newest_old)
        choose_segment(listing, uri=head.uri, version=head.version)
    except (LogGapError, VersionNotFoundError, ValueError) as e:
        _log.warning("log cleanup of %s was skipped: %s", head.uri, e)
        return None
    base = segment.checkpoint_version
    if _pays(head, listing, base, newest_old) and newest_old >= floor:
        if dry_run:
            return newest_old
        try:
            write_checkpoint(log, log.opened(newest_old), runtime)
            # The checkpoint may be another writer's, or reuse older sidecars.
            return newest_old if _sound(log, log.segment(newest_old)) else None
        except TrilakeError as e:
            _log.warning(
                "no checkpoint of version %d of %s was written before log cleanup: %s", newest_old, head.uri, e
            )
    return base if base is not None and base >= floor and _sound(log, segment) else None


def _pays(head: Head, listing: LogListing, base: int | None, cutoff_version: int) -> bool:
    """Whether a checkpoint at the cut-off commit would free at least one checkpoint interval of commits."""
    interval = head.properties.number("delta.checkpointInterval")
    start = base if base is not None else min(listing.commits)
    return interval > 0 and cutoff_version - start >= interval


def _sound(log: DeltaLog, segment: LogSegment) -> bool:
    """Whether the base checkpoint can be read completely, piece by piece."""
    if segment.checkpoint_version is None:
        return False
    try:
        state = read_checkpoint_rare(log.store, segment)
        for kind in "add", "remove":
            for _ in checkpoint_pieces(log.store, segment, log.engine.query, kind):
                pass
    except TrilakeError as e:
        _log.warning("log cleanup of %s was skipped: %s", log.store.uri, e)
        return False
    return state.protocol is not None and state.metadata is not None


def _before(objects: Sequence[ObjectMeta], base: int) -> list[str]:
    """The log files of versions before ``base``, oldest first, and compactions that start at ``base``, now useless."""
    by_version = []
    for o in objects:
        version = first_version(o.key)
        if version is not None and (version < base or (version == base and o.key.endswith(".compacted.json"))):
            by_version.append((version, o.key))
    return [key for _, key in sorted(by_version)]


def _orphans(log: DeltaLog, objects: Sequence[ObjectMeta], deleted: set[str], old_ms: int) -> list[str]:
    """Sidecars that no checkpoint names, and that are too old to belong to a checkpoint being written.

    Such a checkpoint may reuse sidecars of an older one, and its writer checks at the end that the older one still
    exists.  So a listing before or after the deletions shows one of the two, unless this cleanup deleted the older
    one; then the second listing shows the new one.
    """
    old = [o.key for o in objects if o.key.startswith(f"{SIDECARS}/") and o.modified_ms < old_ms]
    if not old:
        return []
    now = {o.key: o for o in (*objects, *log.store.list(LOG))}
    in_use = _named(log, [o for o in now.values() if o.key not in deleted])
    if in_use is None:
        return []
    return own_keys(log.store, [key for key in old if key not in in_use], _SIDECAR, what="log cleanup")


def _named(log: DeltaLog, objects: Sequence[ObjectMeta]) -> set[str] | None:
    names: set[str] = set()
    for o in objects:
        version = first_version(o.key)
        if version is None or not may_name_sidecars(o.key) or o.size == 0:
            continue
        try:
            names.update(sidecar_keys(log.store, LogSegment(version, version, (o,), ())))
        except TrilakeError as e:
            _log.warning("cleanup of the sidecars of %s was skipped: %s", log.store.uri, e)
            return None
    return names


def _delete(log: DeltaLog, keys: Sequence[str]) -> None:
    for start in range(0, len(keys), _BATCH):
        log.store.delete(keys[start : start + _BATCH])
