"""Clean-up: delete old versions, and the files that only they reference; or drop a whole dataset.

Manifests are deleted last, so that a failed clean-up can be repeated.  An unreferenced file may belong to a write in
progress, so it is kept until it is a week old, regardless of the requested age.  Only files with the names and folders
of a dataset are deleted, never through symbolic links or in other tables (:mod:`trilake.storage.ownership`), and
nothing is deleted while the local clock is ahead of the store's.  Before the last check for new references, a notice
lists the versions to delete (:mod:`trilake.lance.versions.holds`).

A dataset may be configured to be cleaned up after commits: ``lance.auto_cleanup.interval`` is a number of versions,
``lance.auto_cleanup.older_than`` a minimum age such as ``"14d"`` or ``"30m"``, and
``lance.auto_cleanup.retain_versions`` the number of newest versions to keep.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from trilake.common.arguments import count
from trilake.common.display import Displayed
from trilake.common.runtime import Runtime
from trilake.errors import CorruptLogError, InvalidArgumentError, ObjectNotFoundError, TrilakeError
from trilake.lance.file.errors import DatasetNotFoundError, TaggedVersionError, WrongTypeError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions.branches import BRANCHES, TREE, branch_points, root_store
from trilake.lance.versions.holds import HOLDS, REMOVALS, Notice, notices, post
from trilake.lance.versions.manifest import ExternalFile, Manifest
from trilake.lance.versions.transaction import load, read_manifest, read_manifests
from trilake.lance.versions.versions import LATEST, Listing, list_versions, read_tags
from trilake.storage import open_store
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import Territory, agreed_time, discard, old_temporaries, own_keys, tables_of
from trilake.table.dropping import TableFiles, as_files, drop_files

_log = logging.getLogger("trilake.lance")

#: Minimum age of unreferenced files to delete, in ms.
UNVERIFIED_MS = 7 * 24 * 3600 * 1000
_FOLDERS = ("data", "_deletions", "_indices", "_transactions")
#: Names of the files that a clean-up may delete.
_NAMES = (
    r"data/[^/]+\.lance|data/[^/]+/[01]{32}\.blob|_deletions/[0-9]+-[0-9]+-[0-9]+\.(?:arrow|bin)|_transactions/[^/]+\.txn"
    r"|_indices/[0-9a-fA-F-]{36}/(?:[^/]+/)?[^/]+|_versions/[0-9]+\.manifest"
)


@dataclass(frozen=True)
class CleanupStats(Displayed):
    """Counts of deleted versions and files."""

    bytes_removed: int
    old_versions: int
    data_files_removed: int = 0
    transaction_files_removed: int = 0
    index_files_removed: int = 0
    deletion_files_removed: int = 0


@dataclass(frozen=True)
class CleanupCandidateFile(Displayed):
    """A file that a clean-up would delete."""

    path: str
    kind: str
    size_bytes: int


@dataclass(frozen=True)
class CleanupExplanation(Displayed):
    """What a clean-up would delete, and some of the files."""

    read_version: int
    stats: CleanupStats
    candidate_files: list[CleanupCandidateFile]
    candidate_files_truncated: bool


#: Kinds of files by folder.
FILE_KINDS = {
    "data": "data file",
    "_transactions": "transaction file",
    "_indices": "index file",
    "_deletions": "deletion file",
    "_versions": "manifest",
}


@dataclass(frozen=True)
class CleanupPlan:
    """What to delete: files, unfinished uploads, and manifests, which are deleted last."""

    files: tuple[ObjectMeta, ...] = ()
    unfinished: tuple[ObjectMeta, ...] = ()
    manifests: tuple[ObjectMeta, ...] = ()
    old_versions: tuple[int, ...] = ()

    @property
    def stats(self) -> CleanupStats:
        folders = Counter(m.key.partition("/")[0] for m in self.files)
        counts = [folders[folder] for folder in ("data", "_transactions", "_indices", "_deletions")]
        size = sum(m.size for m in (*self.files, *self.manifests))
        return CleanupStats(size, len(self.old_versions), *counts)

    def explanation(self, read_version: int, limit: int) -> CleanupExplanation:
        """Describe the plan, with up to ``limit`` of its files."""
        metas = (*self.files, *self.manifests)
        files = [CleanupCandidateFile(m.key, FILE_KINDS[m.key.partition("/")[0]], m.size) for m in metas[:limit]]
        return CleanupExplanation(read_version, self.stats, files, 0 < limit < len(metas))


def files_of(manifest: Manifest) -> set[str]:
    """Return the keys of all files that a version references; for an index, its folder with a slash.

    Files below base paths belong to other datasets and are omitted.
    """
    keys = {f.key for fragment in manifest.fragments for f in fragment.files if f.base_id is None}
    for fragment in manifest.fragments:
        deletion = fragment.deletion_file
        if deletion is not None and deletion.base_id is None:
            keys.add(deletion.key(fragment.id))
        placed = (fragment.row_ids, fragment.created, fragment.last_updated)
        keys |= {one.path for one in placed if isinstance(one, ExternalFile)}
    keys |= {f"_indices/{i.uuid}/" for i in manifest.indices if i.base_id is None}
    if manifest.transaction_file:
        keys.add(f"_transactions/{manifest.transaction_file}")
    return keys


def cleanup(
    store: Store,
    older_than_ms: int,
    runtime: Runtime,
    *,
    retain: int = 1,
    delete_unverified: bool = False,
    error_if_tagged: bool = True,
    dry_run: bool = False,
) -> CleanupPlan:
    """Delete old versions and the files that no remaining version references; returns what was deleted.

    The newest version, and versions from which branches were created, are always kept.

    Parameters
    ----------
    older_than_ms: minimum age of versions to delete.
    retain: number of newest versions to keep regardless of age.
    delete_unverified: delete unreferenced files regardless of age.  Unsafe while other writers are active: they would
        lose their files.
    error_if_tagged: whether a tag on an old version is an error; otherwise the version is kept.
    dry_run: only return what would be deleted.

    Raises ``InvalidArgumentError`` for tagged versions and a negative age, ``CorruptLogError`` for an unreadable
    manifest and an unknown parent version of a branch, and ``ClockError`` if the local clock is ahead of the store's;
    then nothing is deleted.  Raises ``DatasetNotFoundError`` if the dataset is dropped or recreated concurrently.
    """
    if older_than_ms < 0:  # would delete everything
        raise InvalidArgumentError(
            f"older_than must not be negative, got {older_than_ms / 1000:g} seconds",
            help="pass an age such as datetime.timedelta(days=14)",
        )
    candidates = _candidates(
        store, older_than_ms, runtime, retain=retain, unverified=delete_unverified, error_if_tagged=error_if_tagged
    )
    if dry_run:
        return _unneeded(store, candidates)
    notice = post(store, REMOVALS, candidates.plan.old_versions, runtime) if candidates.plan.old_versions else None
    try:
        removal = _unneeded(store, candidates)
        _check_same_dataset(store, candidates)
    except Exception:
        if notice is not None:
            discard(store, [notice])  # nothing was removed
        raise
    _delete(store, [*removal.files, *removal.unfinished])
    if removal.manifests:
        _check_same_dataset(store, candidates)
    _delete(store, removal.manifests)
    if candidates.listing.versions:
        _withdraw(store, notice, candidates, removal.old_versions)
    return removal


@dataclass(frozen=True)
class _Candidates:
    """Files and versions to delete unless they are still needed."""

    listing: Listing
    newest: Manifest | None = None
    now_ms: int = 0
    plan: CleanupPlan = CleanupPlan()


def _candidates(
    store: Store, older_than_ms: int, runtime: Runtime, *, retain: int, unverified: bool, error_if_tagged: bool
) -> _Candidates:
    listing = list_versions(store)
    if not listing.versions:
        return _Candidates(listing)
    now_ms = agreed_time(store, runtime.clock_ms())
    branch = read_manifest(store, listing.key(listing.latest), listing.latest).branch
    tagged = _tagged(store, branch)
    needed = _branched(store, listing, branch).union(listing.versions[-retain:])
    keep = _named_by(store, listing, listing.detached)
    old_files: set[str] = set()
    old: list[int] = []
    manifest: Manifest | None = None
    for version, manifest in zip(listing.versions, read_manifests(store, listing, listing.versions), strict=True):
        if manifest is None:  # deleted by a concurrent clean-up
            continue
        age = now_ms - manifest.timestamp_ns // 10**6
        if version not in needed and age >= older_than_ms:
            if version not in tagged:
                old.append(version)
                old_files |= files_of(manifest)
                continue
            if error_if_tagged:
                raise TaggedVersionError(
                    f"version {version} is old enough to be deleted, but has the tag {tagged[version]!r}",
                    help="delete the tag, or pass error_if_tagged_old_versions=False to keep tagged versions",
                    file=store.uri,
                )
        keep |= files_of(manifest)
    limit = 0 if unverified else UNVERIFIED_MS
    removable = [
        m
        for folder in _FOLDERS
        for m in store.list(folder)
        if _named(m.key, old_files) or now_ms - m.modified_ms >= limit  # enough if no version references it
    ]
    unfinished = old_temporaries(store, "", now_ms - limit + 1)
    old_keys = {listing.key(v) for v in old}
    manifests = [m for m in store.list("_versions") if m.key in old_keys]
    keys = [m.key for m in (*removable, *manifests) if not _named(m.key, keep)]
    keys_to_delete = set(own_keys(store, keys, _NAMES, what="clean-up"))
    files, manifests = ([m for m in metas if m.key in keys_to_delete] for metas in (removable, manifests))
    plan = CleanupPlan(tuple(files), tuple(unfinished), tuple(manifests), tuple(old))
    return _Candidates(listing, manifest, now_ms, plan)


def _unneeded(store: Store, candidates: _Candidates) -> CleanupPlan:
    """Return the candidates that are still not needed.

    A concurrent writer may have referenced an unreferenced file, or restored or tagged an old version, so check the
    newest versions, tags and branches again.  Writers after this check see the notice of removal.
    """
    if not candidates.listing.versions:
        return CleanupPlan()
    active = [hold for hold in notices(store, HOLDS) if not hold.forgotten(candidates.now_ms)]
    branch = None if candidates.newest is None else candidates.newest.branch
    needed = {*_tagged(store, branch), *_branched(store, candidates.listing, branch)}
    needed_versions = [*list_versions(store).detached]
    needed_versions += [v for v in candidates.plan.old_versions if v in needed or any(hold.names(v) for hold in active)]
    newer = _named_since(store, candidates.listing.latest) | _named_by(store, candidates.listing, needed_versions)
    files, manifests = (
        tuple(m for m in metas if not _named(m.key, newer))
        for metas in (candidates.plan.files, candidates.plan.manifests)
    )
    going = {m.key for m in manifests}
    gone = tuple(v for v in candidates.plan.old_versions if candidates.listing.key(v) in going)
    return CleanupPlan(files, candidates.plan.unfinished, manifests, gone)


def _tagged(store: Store, branch: str | None) -> dict[int, str]:
    """Return the tagged versions of a branch, each with one of its tags."""
    tags = read_tags(root_store(store, branch))
    return {tag.version: name for name, tag in tags.items() if tag.branch == branch}


def _branched(store: Store, listing: Listing, branch: str | None) -> set[int]:
    """Return the versions from which branches were created.

    Raises ``CorruptLogError`` if one is missing, because then the files of its branch are unknown.
    """
    branches = branch_points(root_store(store, branch), branch)
    for version, name in branches.items():
        if version not in listing.versions and version <= listing.latest:
            raise CorruptLogError(
                f"the branch {name!r} was created from version {version}, which is missing",
                help="delete the branch, or clean up with the library that created it",
                file=store.uri,
                version=version,
            )
    return set(branches)


def _check_same_dataset(store: Store, candidates: _Candidates) -> None:
    """Raise ``DatasetNotFoundError`` if the dataset was dropped or replaced.

    A new dataset reuses version numbers, so compare the newest manifest, which clean-ups never delete while it is
    newest.
    """
    latest = candidates.listing.latest
    if not latest:
        return
    try:
        there = read_manifest(store, candidates.listing.key(latest), latest)
        same = candidates.newest is not None and there.identity == candidates.newest.identity
    except ObjectNotFoundError:
        same = list_versions(store).latest > latest
    if not same:
        raise DatasetNotFoundError(
            "the dataset was dropped or replaced during the cleanup",
            help="clean up the new dataset",
            file=store.uri,
            version=latest,
        )


def _withdraw(store: Store, notice: str | None, candidates: _Candidates, gone: Iterable[int]) -> None:
    """Delete the notice of a finished removal, and those of crashed processes."""
    remaining = set(candidates.listing.versions).difference(gone)
    outdated = [] if notice is None else [notice]
    try:
        outdated += [hold.key for hold in notices(store, HOLDS) if hold.forgotten(candidates.now_ms)]
        outdated += [
            removal.key for removal in notices(store, REMOVALS) if _over(store, removal, candidates, remaining)
        ]
    except TrilakeError as e:
        _log.warning("cannot delete the markers of crashed cleanups in %r: %s", store, e)
    discard(store, set(outdated))


def _over(store: Store, removal: Notice, candidates: _Candidates, remaining: set[int]) -> bool:
    """Whether a removal is finished, or its clean-up crashed before it started."""
    # Versions after this listing belong to other clean-ups.
    going = [v for v in removal.versions or () if v in remaining or v > candidates.listing.latest]
    if removal.versions and not going:
        return True
    return removal.forgotten(candidates.now_ms) and all(_whole(store, candidates.listing, v) for v in going)


def _whole(store: Store, listing: Listing, version: int) -> bool:
    try:
        for name in files_of(read_manifest(store, listing.key(version), version)):
            if not name.endswith("/"):
                store.head(name)
            elif next(iter(store.list(name)), None) is None:
                return False
    except ObjectNotFoundError:
        return False
    return True


def _named_since(store: Store, version: int) -> set[str]:
    newest = list_versions(store)
    later = [v for v in newest.versions if v > version]
    return set().union(*(files_of(read_manifest(store, newest.key(v), v)) for v in later))


def _named_by(store: Store, listing: Listing, versions: Iterable[int]) -> set[str]:
    """Return the manifests of some versions, and the files they reference."""
    named: set[str] = set()
    for manifest in read_manifests(store, listing, versions):
        if manifest is not None:  # else deleted by a concurrent clean-up, which did not see the tag
            named |= {listing.key(manifest.version), *files_of(manifest)}
    return named


def _named(key: str, names: set[str]) -> bool:
    if key.startswith("_indices/"):
        return "/".join(key.split("/")[:2]) + "/" in names
    folder, _, name = key.rpartition("/")
    if name.endswith(".blob"):  # belongs to a data file
        key = f"{folder}.lance"
    return key in names


def _delete(store: Store, metas: Iterable[ObjectMeta]) -> None:
    keys = [m.key for m in metas]
    if keys:
        store.delete(keys)


def drop(store: Store) -> None:
    """Delete all files of a dataset, manifests last, so that a failed drop can be repeated.

    Other files and their folders are kept.  Raises ``DatasetNotFoundError`` and ``CorruptLogError``.
    """
    drop_files(table_files(store))


def table_files(store: Store) -> TableFiles:
    """Return the files of a dataset, manifests last.

    Raises ``DatasetNotFoundError`` if there is no dataset, and ``CorruptLogError`` if its newest manifest is
    unreadable.
    """
    load(store)
    objects = list(store.list())
    inner = frozenset(f for f in tables_of(m.key for m in objects) if not f.startswith(f"{TREE}/"))
    territory = Territory(store, inner)
    trees = [TREE] if next(iter(store.list(f"{BRANCHES}/")), None) is not None else []
    folders = [*_FOLDERS, *trees, "_refs", "_versions"]
    inside = [m for m in (*objects, *store.unfinished()) if m.key.partition("/")[0] in folders and "/" in m.key]
    foreign = set(territory.foreign(m.key.rpartition("/")[0] for m in inside))
    dataset_files = [m for m in inside if m.key.rpartition("/")[0] not in foreign]
    dataset_files.sort(key=lambda m: folders.index(m.key.partition("/")[0]))
    dataset_files += [m for m in objects if m.key == LATEST]
    names = {m.key for m in dataset_files}
    return TableFiles(store, as_files(dataset_files), as_files(m for m in objects if m.key not in names))


def cleanup_partial_writes(dataset_uri: str | os.PathLike[str], objects: list[tuple[str, str]]) -> None:
    """Delete data files by their paths below ``data``; missing files are ignored.

    Unfinished multipart uploads are not files; the object store expires them.
    """
    store = open_store(dataset_uri)
    store.delete(own_keys(store, [f"data/{path}" for path, _ in objects], _NAMES, what="clean-up"))


# --- automatic clean-ups ---------------------------------------------------------------------------------------------

_PREFIX = "lance.auto_cleanup."
INTERVAL, OLDER_THAN, RETAIN = f"{_PREFIX}interval", f"{_PREFIX}older_than", f"{_PREFIX}retain_versions"
#: Minimum number of versions to keep: the newest, and the one on which it is based.
_LEAST = 2
#: Units of durations, in milliseconds.
_UNITS = {
    **dict.fromkeys(["ms", "msec", "millis"], 1),
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], 1000),
    **dict.fromkeys(["m", "min", "mins", "minute", "minutes"], 60_000),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    **dict.fromkeys(["d", "day", "days"], 86_400_000),
    **dict.fromkeys(["w", "week", "weeks"], 604_800_000),
}


class AutoCleanupConfig(TypedDict):
    """Number of versions between clean-ups, and the minimum age in seconds of versions to delete."""

    interval: int
    older_than_seconds: int


def config_of(options: Any) -> dict[str, str]:
    """Return the configuration entries of an :class:`AutoCleanupConfig`; there are none for ``None``.

    Raises ``WrongTypeError`` and ``InvalidArgumentError``.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or set(options) - set(AutoCleanupConfig.__annotations__):
        raise WrongTypeError(f"auto_cleanup_options must have interval and older_than_seconds, got {options!r}")
    numbers = {name: count(name, value, other_type=WrongTypeError) for name, value in options.items()}
    entries = {INTERVAL: str(numbers.get("interval", 20))}
    return {**entries, OLDER_THAN: f"{numbers.get('older_than_seconds', 14 * 86_400)}s"}


def milliseconds(duration: str) -> int:
    """Convert a duration to milliseconds.  Raises ``InvalidArgumentError``.

    >>> milliseconds("1h 30m"), milliseconds("1ms")
    (5400000, 1)
    """
    parts = re.findall(r"(\d+)\s*([a-zA-Z]+)", duration)
    if not parts or re.sub(r"\d+\s*[a-zA-Z]+|\s+", "", duration) or any(unit not in _UNITS for _, unit in parts):
        raise InvalidArgumentError(f"{duration!r} is not a duration", help='write it like "14d" or "1h 30m"')
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def after_commit(snapshot: Snapshot) -> None:
    """Clean up after a commit, if the configuration enables it.

    The commit is final, so a failed clean-up is only logged.
    """
    config = snapshot.manifest.config
    if INTERVAL not in config:
        return
    try:
        interval = int(config[INTERVAL])
        if interval < 1 or snapshot.version % interval:
            return
        retain = max(int(config.get(RETAIN, "0")), _LEAST)
        age = milliseconds(config[OLDER_THAN]) if OLDER_THAN in config else 0 if RETAIN in config else 14 * 86_400_000
        cleanup(snapshot.store, age, snapshot.runtime, retain=retain, error_if_tagged=False)
    except (TrilakeError, ValueError) as e:
        _log.warning(
            "version %d of %s is committed, but the cleanup failed: %s", snapshot.version, snapshot.store.uri, e
        )
