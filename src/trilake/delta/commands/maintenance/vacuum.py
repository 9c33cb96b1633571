"""VACUUM: delete files that no version within the retention needs.

The steps of a vacuum::

    check retention --> compare clocks --> list files (or, lite, take them from the log)
      --> read the newest version, after the listing
      --> choose garbage (:mod:`trilake.delta.commands.maintenance.vacuum_files`)
      --> drop files that are not the table's (:mod:`trilake.storage.ownership`) --> commit VACUUM START
      --> spare files committed since --> delete files --> remove empty folders --> commit VACUUM END

These files stay: files of the newest version and of versions to keep; files in tombstones within the retention; every
file, including change files, in a commit within the retention; deletion vectors of all of these; files younger than the
retention; hidden files; unreferenced files older than the table, which it may not have written; everything behind a
symbolic link or in another table.  So each version that was current within the retention stays readable, and a process
that dies at any point leaves an intact table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import as_version
from trilake.common.display import Displayed
from trilake.common.progress import progress
from trilake.common.text import format_size, plural
from trilake.delta.commands.maintenance.vacuum_files import (
    ICEBERG_METADATA,
    LISTING,
    Folders,
    References,
    doubtful,
    from_inventory,
    garbage,
    list_files,
    list_folders,
    list_unfinished,
    listed_with_log,
    named_for_removal,
    nested_tables,
    own_files,
    partition_names,
    references,
    remove_empty,
)
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LOG, LogSegment, commit_key
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.delta.protocol.iceberg import is_uniform
from trilake.errors import (
    ConflictError,
    IllegalArgumentError,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    TrilakeError,
    VersionNotFoundError,
    masked,
)
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import Territory, agreed_time, check_own
from trilake.table.dropping import TableFiles

_log = logging.getLogger("trilake.delta")

RETENTION = "delta.deletedFileRetentionDuration"
#: Records the commit up to which all removed files are deleted; other Delta libraries read it, too.
LAST_VACUUM = f"{LOG}/_last_vacuum_info"
_BOUNDARY = "latestCommitVersionOutsideOfRetentionWindow"
_HOUR_MS = 3_600_000
#: Files per delete request.
_CHUNK = 1000


@dataclass(frozen=True)
class VacuumResult(Displayed):
    """The files that a vacuum deleted, or would delete in a dry run.

    ``files`` has the columns ``path`` (below the table), ``size`` in bytes and ``modified_ms`` (ms since the epoch; 0
    in lite mode).  ``folders`` are the empty folders that were removed.  Files written and removed before ``cutoff_ms``
    are deleted; ``version`` is the version of the VACUUM END commit.

    ``foreign`` has the columns of ``files``: unreferenced files that are older than the table or of another format.
    Vacuum keeps them; delete them yourself if you do not need them.

    >>> import trilake
    >>> _ = trilake.write({"n": [1]}, "memory://doc-vacuum-result")
    >>> _ = trilake.write({"n": [2]}, "memory://doc-vacuum-result", mode="overwrite")
    >>> listed = trilake.open("memory://doc-vacuum-result").vacuum(0, enforce_retention=False)
    >>> listed.dry_run, listed.files.column_names, listed.version
    (True, ['path', 'size', 'modified_ms'], None)
    """

    files: pa.Table
    dry_run: bool
    cutoff_ms: int
    folders: tuple[str, ...] = ()
    version: int | None = None
    foreign: pa.Table = field(default_factory=LISTING.empty_table)

    def _title(self) -> str:
        return "Vacuum: what would be deleted" if self.dry_run else "Vacuum"

    def _facts(self) -> list[tuple[str, object]]:
        what: list[tuple[str, object]] = [("version", self.version)] if self.version is not None else []
        what += [("files", self.files.num_rows), ("size", self.size), ("folders", len(self.folders))]
        return [*what, ("which", self.files), ("foreign files, kept", self.foreign)]

    @property
    def paths(self) -> list[str]:
        """Paths of the files, below the table."""
        paths: list[str] = self.files["path"].to_pylist()
        return paths

    @property
    def size(self) -> int:
        return int(pc.sum(self.files["size"]).as_py() or 0)

    def __repr__(self) -> str:
        at = "" if self.version is None else f" version {self.version}"
        what = "would be deleted" if self.dry_run else "deleted"
        foreign = f", {plural(self.foreign.num_rows, 'foreign file')} kept" if self.foreign.num_rows else ""
        return f"<VACUUM{at}: {plural(self.files.num_rows, 'file')}, {format_size(self.size)} {what}{foreign}>"


#: More hours overflow 64 bits in ms.
_MOST_HOURS = 1e12


def retention_hours_ms(hours: Any) -> int | None:
    """Convert hours to ms.  Raises ``InvalidArgumentError`` unless it is a non-negative number."""
    if hours is None:
        return None
    if not isinstance(hours, int | float) or isinstance(hours, bool) or not abs(hours) < _MOST_HOURS:
        raise InvalidArgumentError(
            f"the retention must be a number of hours, got {hours!r}", help="pass a number such as 168"
        )
    if hours < 0:
        raise InvalidArgumentError(
            "the retention for vacuum can't be less than 0",
            help="pass a number such as 168",
            retention_hours=hours,
            condition="DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE",
        )
    return round(hours * _HOUR_MS)


def vacuum(
    log: DeltaLog,
    *,
    retention_hours: float | None = None,
    dry_run: bool = False,
    lite: bool = False,
    enforce_retention: bool = True,
    keep_versions: Sequence[int] = (),
    inventory: pa.Table | None = None,
    record: bool = True,
    cached: Snapshot | None = None,
    run: Runner = run_here,
) -> VacuumResult:
    """Delete the files that no version within the retention needs.

    Parameters
    ----------
    retention_hours: how long to keep removed files; by default the table's ``delta.deletedFileRetentionDuration``.
    dry_run: list what would be deleted, and change nothing.
    lite: instead of listing files, take those that commits removed since the last vacuum from the log.  Files that no
        commit ever named stay.
    enforce_retention: reject a retention below the table's, which may delete files of active writers.
    keep_versions: older versions to keep readable as well.
    inventory: a table of files, instead of a listing; see
        :func:`trilake.delta.commands.maintenance.vacuum_files.from_inventory`.
    record: commit the entries ``VACUUM START`` and ``VACUUM END`` to the history.
    cached: a version that was read already; then only later commits are read.

    Raises ``InvalidArgumentError`` for a rejected retention, ``UnsupportedProtocolError`` for a table that trilake
    cannot write, ``ClockError`` if this machine's clock is ahead of the store's, and ``VersionNotFoundError`` if a lite
    vacuum needs commits that are no longer in the log.
    """
    head = log.snapshot() if cached is None else log.update(cached)
    scope = scope_of(log, head, retention_hours=retention_hours, enforce_retention=enforce_retention, dry_run=dry_run)
    cutoff, boundary, names = scope.cutoff, scope.boundary, scope.names
    retained = [log.snapshot(as_version(v)).adds for v in keep_versions]
    # List before reading the newest version: that version then names every listed file that was committed.
    folders = Folders(0)
    territory = Territory(log.store)
    if lite:
        listing = _removed_since_last_vacuum(log, head, cutoff, boundary)
    elif inventory is not None:
        listing = from_inventory(log.store, inventory)
    else:
        listing = list_files(log.store)
        territory = Territory(log.store, frozenset(nested_tables(listing["path"])))
    if not lite:
        folders = list_folders(log.store, listing, cutoff, names, territory)
    snapshot = log.update(head)
    # The files of the newest version, of every version current at or after the cut-off time, and of versions to keep.
    recent = log.parse(recent_commits(log, snapshot, cutoff))
    removed = recently_removed(log.tombstones(snapshot), cutoff)
    needed = references(snapshot.adds, removed, recent.add, recent.remove, recent.cdc, *retained)
    files = garbage(listing, cutoff, needed, names)
    files = own_files(log.store, files, territory, cutoff, links=folders.links)
    files, foreign = (files, LISTING.empty_table()) if lite else accounted_for(log, snapshot, files)
    if inventory is None and folders.unfinished:
        files = pa.concat_tables([files, list_unfinished(log.store, LOG if lite else "", cutoff, names)])
    if foreign.num_rows:
        warn_of_foreign(log, foreign.num_rows, str(foreign["path"][0]))
    if dry_run:
        return VacuumResult(files, True, cutoff, foreign=foreign)
    deleted: list[pa.Table] = []
    empty_folders: list[str] = []

    def delete() -> tuple[int, int]:
        # A restore or a clone may have added old files again.
        remaining = files.filter(pa.array(~committed_since(log, snapshot).name(files["path"])))
        delete_files(log.store, remaining, run)
        deleted.append(remaining)
        empty_folders.extend(remove_empty(log.store, folders))
        return remaining.num_rows, folders.count + 1

    size = int(pc.sum(files["size"]).as_py() or 0)
    if retained:  # leave these to a later vacuum
        scope = replace(scope, boundary=None)
    version = recorded(log, snapshot, scope, (files.num_rows, size), delete, record=record)
    return VacuumResult(deleted[0], False, cutoff, tuple(empty_folders), version, foreign)


@dataclass(frozen=True)
class VacuumScope:
    """The scope of a vacuum: files that were written and removed before the time ``cutoff``.

    ``boundary`` is the newest commit before it, ``names`` are possible folder names of partition columns, and
    ``parameters`` go into the history entry.
    """

    cutoff: int
    boundary: int | None
    names: list[str]
    parameters: dict[str, Any]


def scope_of(
    log: DeltaLog,
    head: Head,
    *,
    retention_hours: float | None,
    enforce_retention: bool,
    dry_run: bool,
) -> VacuumScope:
    """The scope of a vacuum of the newest version, with the parameters and errors of :func:`vacuum`."""
    head.check_writable()
    default = head.properties.duration_ms(RETENTION)
    specified = retention_hours_ms(retention_hours)
    if enforce_retention and specified is not None and specified < default:
        least = -(-default // _HOUR_MS)
        raise IllegalArgumentError(
            f"a retention of {specified / _HOUR_MS:g} hours is shorter than the table's {RETENTION} of {least} hours:"
            " concurrent writers and readers of older versions may lose their files",
            help=f"keep at least {least} hours; or, if no one else uses the table, pass enforce_retention=False (on"
            " Spark set spark.databricks.delta.retentionDurationCheck.enabled to false)",
            condition="DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
        )
    retention = default if specified is None else specified
    now = log.engine.runtime.clock_ms()
    with suppress(StorageError) if dry_run else nullcontext():  # a dry run needs no write access
        now = agreed_time(log.store, now)
    cutoff = now - retention
    names = partition_names(head.schema, head.metadata.partition_columns)
    parameters: dict[str, Any] = {"retentionCheckEnabled": enforce_retention, "defaultRetentionMillis": default}
    if specified is not None:
        parameters["specifiedRetentionMillis"] = specified
    commits = log.commits(end=head.version)
    times = _latest_times(log, commits, head)
    boundary = max((v for (v, _), t in zip(commits, times, strict=True) if t < cutoff), default=None)
    return VacuumScope(cutoff, boundary, names, parameters)


def recorded(
    log: DeltaLog,
    base: Head,
    scope: VacuumScope,
    totals: tuple[int, int],
    delete: Callable[[], tuple[int, int]],
    *,
    record: bool,
) -> int | None:
    """Call ``delete`` between two history entries that state the number and bytes of the files.

    ``delete`` returns the numbers of deleted files and folders.  Returns the version of the last entry.
    """
    if record:
        metrics = {"numFilesToDelete": totals[0], "sizeOfDataToDelete": totals[1]}
        _record(log, base, "VACUUM START", scope.parameters, metrics)
    try:
        files, folders = delete()
        if scope.boundary is not None:
            try:
                log.store.put(LAST_VACUUM, orjson.dumps({_BOUNDARY: scope.boundary}))
            except StorageError as e:  # without it, the next lite vacuum reads more commits
                _log.warning("the version up to which vacuum removed files was not recorded: %s", e)
    except BaseException:
        if record:
            with suppress(TrilakeError):  # may fail for the same reason; the first error counts
                _record_end(log, {"status": "FAILED"}, {})
        raise
    if not record:
        return None
    metrics = {"numDeletedFiles": files, "numVacuumedDirectories": folders}
    return _record_end(log, {"status": "COMPLETED"}, metrics)


def warn_of_foreign(log: DeltaLog, count: int, path: str) -> None:
    """Log a warning that foreign files stay, with ``path`` as an example."""
    _log.warning(
        "%s has %d files that are not in its log, and are older than the table or of another format, such as %s:"
        " these files are kept; remove them by hand if they are not needed",
        masked(log.store.uri),
        count,
        path,
    )


def recently_removed(tombstones: pa.Table, cutoff: int) -> pa.Table:
    """The tombstones since the cut-off time."""
    return tombstones.filter(pc.greater_equal(pc.fill_null(tombstones["deletionTimestamp"], 0), cutoff))


def recent_commits(log: DeltaLog, head: Head, cutoff: int) -> list[tuple[int, ObjectMeta]]:
    """The commits since the cut-off time.

    Tombstones are dated before their commit, and checkpoints drop them, so this checks commits, too.
    """
    commits = log.commits(end=head.version)
    times = _latest_times(log, commits, head)
    return [c for c, t in zip(commits, times, strict=True) if t >= cutoff]


def _latest_times(log: DeltaLog, commits: Sequence[tuple[int, ObjectMeta]], head: Head) -> list[int]:
    """The latest possible time of each commit, never decreasing.

    In-commit timestamps come from the writer's clock, which may be days behind; file times come from the store's clock.
    """
    commit_times = log.commit_times(commits, head.metadata)
    return list(accumulate((max(t, file.modified_ms) for t, (_, file) in zip(commit_times, commits, strict=True)), max))


def accounted_for(log: DeltaLog, snapshot: Snapshot, files: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split files into files that writers of the table may have created, and foreign files.

    An unreferenced file that is older than the table is foreign.
    """
    if not files.num_rows:
        return files, files
    suspect = doubtful(files, born(log, snapshot), snapshot.metadata.provider.lower())
    if not pc.any(suspect).as_py():
        return files, files.slice(0, 0)
    batch = log.parse(log.commits(end=snapshot.version))
    referenced = references(log.tombstones(snapshot), batch.add, batch.remove, batch.cdc)
    foreign = pc.and_(suspect, pa.chunked_array([pa.array(~referenced.name(files["path"]))]))
    return files.filter(pc.invert(foreign)), files.filter(foreign)


def born(log: DeltaLog, snapshot: Head) -> int:
    """When the table was created, in ms since the epoch; if unknown, a time after that of any file."""
    commits = log.commits(end=snapshot.version)
    times = [t for t in (snapshot.metadata.created_time,) if t is not None and t > 0]
    if commits and commits[0][0] == 0:
        times.append(commits[0][1].modified_ms)
    return min(times, default=1 << 62)


def committed_since(log: DeltaLog, head: Head) -> References:
    """The files named by commits after a version."""
    batch = log.parse(log.commits(head.version + 1))
    return references(batch.add, batch.remove, batch.cdc)


def _removed_since_last_vacuum(log: DeltaLog, head: Head, cutoff: int, boundary: int | None) -> pa.Table:
    commits = log.commits(end=head.version)
    try:
        last = orjson.loads(bytes(log.store.read(LAST_VACUUM))).get(_BOUNDARY)
    except (ObjectNotFoundError, orjson.JSONDecodeError, AttributeError):
        last = None  # as if there were none: read the whole log
    start = last + 1 if isinstance(last, int) and last >= 0 else 0
    first = commits[0][0] if commits else head.version
    if boundary is None:
        return LISTING.empty_table()
    if start < first:
        raise VersionNotFoundError(
            "a lite vacuum cannot find all files to delete: commits since the last vacuum were cleaned up",
            help="run a full vacuum once (lite=False, VACUUM FULL)",
            file=head.uri,
            version=start,
            condition="DELTA_CANNOT_VACUUM_LITE",
        )
    return named_for_removal(log.parse([c for c in commits if start <= c[0] <= boundary]), cutoff)


def _delete(store: Store, keys: Sequence[str]) -> int:
    store.delete(keys)
    return len(keys)


def delete_files(store: Store, files: pa.Table, run: Runner) -> None:
    """Delete the files of a listing."""
    paths = files["path"]
    chunks = [paths.slice(i, _CHUNK).to_pylist() for i in range(0, len(paths), _CHUNK)]
    with progress("vacuum", len(paths)) as bar:
        for count in run(partial(_delete, store), chunks):
            bar.advance(count)


def _record(log: DeltaLog, base: Head, operation: str, parameters: dict[str, Any], metrics: dict[str, int]) -> int:
    plan = CommitPlan(operation, parameters, (), metrics=metrics, read=ReadSet(isolation="SnapshotIsolation"))
    return commit(log, base, plan)


def _record_end(log: DeltaLog, parameters: dict[str, Any], metrics: dict[str, int]) -> int | None:
    for _ in range(5):
        try:
            return _record(log, log.head(), "VACUUM END", parameters, metrics)
        except ConflictError:
            continue  # a metadata change does not affect this entry
    _log.warning("the end of the vacuum of %s was not recorded, as other writers committed first", log.store.uri)
    return None


_ALL_TIMES = 1 << 62
#: Files of the log, which vacuum ignores, and symlink manifests.
_LOG_FILE = (
    rf"^{LOG}/(?:\d{{20}}\..+|_last_checkpoint|_last_vacuum_info|_sidecars/[^/]+\.parquet"
    r"|_(?:staged_)?commits/[^/]+\.json|\.\d{20}\.json\.[^/]+\.tmp)$"
)
_COMMIT = rf"^{LOG}/\d{{20}}\.json$"
_MANIFEST = r"^_symlink_format_manifest/(?:[^/]+=[^/]*/)*manifest$"
_NONE = r"^$"
#: Hadoop's checksum file of a local file.
_CHECKSUM_OF = r"(^|/)\.([^/]+)\.crc$"


def table_files(log: DeltaLog) -> TableFiles:
    """List the files of a table.

    Raises ``UnsupportedProtocolError`` if trilake cannot write it, and ``StorageError`` for a log behind a link.
    """
    store = log.store
    # List before reading the newest version: that version then names every listed file that was committed.
    listing = listed_with_log(store.list())
    segment = log.segment()
    snapshot = log.snapshot(segment.version)
    snapshot.check_writable()
    metadata = ICEBERG_METADATA if is_uniform(snapshot.metadata.configuration) else _NONE
    names = partition_names(snapshot.schema, snapshot.metadata.partition_columns)
    territory = Territory(store, frozenset(nested_tables(listing["path"])))
    log_files = listing.filter(pc.match_substring_regex(listing["path"], _LOG_FILE))
    check_own(store, log_files["path"].to_pylist(), what="drop")
    data = garbage(listing, _ALL_TIMES, references(), names)
    data, _ = accounted_for(log, snapshot, own_files(store, data, territory, _ALL_TIMES, links=False))
    manifests = listing.filter(pc.match_substring_regex(listing["path"], f"{_MANIFEST}|{metadata}"))
    manifests = own_files(store, manifests, territory, _ALL_TIMES, links=False)
    files = pa.concat_tables([data, manifests, list_unfinished(store, "", _ALL_TIMES, names)])
    files = pa.concat_tables([_checksums(listing, files, log_files), files, _ordered(log_files, segment)])
    foreign = listing.filter(pc.invert(pc.is_in(listing["path"], files["path"])))
    return TableFiles(store, files.select(["path", "size"]), foreign.select(["path", "size"]))


def _checksums(listing: pa.Table, *files: pa.Table) -> pa.Table:
    checksums = listing.filter(pc.match_substring_regex(listing["path"], _CHECKSUM_OF))
    of = pc.replace_substring_regex(checksums["path"], _CHECKSUM_OF, r"\1\2")
    paths = pa.chunked_array([chunk for one in files for chunk in one["path"].chunks], pa.string())
    return checksums.filter(pc.is_in(of, paths))


def _ordered(log_files: pa.Table, segment: LogSegment) -> pa.Table:
    """The files of the log, in an order that keeps a version readable until the last file is deleted.

    If the log starts with version 0, its commits go last, the newest first.  Otherwise the last ones are the commits
    after the checkpoint, then the checkpoint, and finally its sidecars, without which nothing can read it.
    """
    paths = log_files["path"]
    sidecars = pc.starts_with(paths, f"{LOG}/_sidecars/")
    if pc.any(pc.equal(paths, commit_key(0))).as_py():
        commits = pc.match_substring_regex(paths, _COMMIT)
        place = pc.if_else(commits, 2, sidecars.cast(pa.int64()))
    else:
        commits = pc.is_in(paths, pa.array([file.key for _, _, file in segment.commits], pa.string()))
        checkpoint = pc.is_in(paths, pa.array([file.key for file in segment.checkpoint_files], pa.string()))
        place = pc.if_else(sidecars, 3, pc.if_else(checkpoint, 2, commits.cast(pa.int64())))
    ordered = log_files.append_column("place", place)
    return ordered.sort_by([("place", "ascending"), ("path", "descending")]).drop_columns(["place"])
