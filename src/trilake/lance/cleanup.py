"""Clean-up: old versions go, and with them the files that only they name.

What is deleted, and in which order: manifests of versions that are too old come last, so that a clean-up that dies can
be repeated.  A file that no manifest names may be of a write that is not committed yet: it stays until it is a week
old, whatever version is asked for.  Only files go that have the names of a dataset's files, where a dataset has them,
behind no link and in no other table (:mod:`trilake.storage.ownership`); and nothing goes while this machine's clock is
ahead of the store's.  Before the last look at what others need, the versions that go are announced
(:mod:`trilake.lance.versions.holds`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from trilake.common.display import Displayed
from trilake.common.runtime import Runtime
from trilake.errors import CorruptLogError, InvalidArgumentError, ObjectNotFoundError, TrilakeError
from trilake.lance.file.errors import DatasetNotFoundError, TaggedVersionError
from trilake.lance.versions.branches import BRANCHES, TREE, branch_points, root_store
from trilake.lance.versions.holds import HOLDS, REMOVALS, Notice, notices, post
from trilake.lance.versions.manifest import ExternalFile, Manifest
from trilake.lance.versions.transaction import load, read_manifest
from trilake.lance.versions.versions import LATEST, Listing, list_versions, read_tags
from trilake.storage import open_store
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import Territory, agreed_time, discard, old_temporaries, own_keys, tables_of
from trilake.table.dropping import TableFiles, as_files, drop_files

_log = logging.getLogger("trilake.lance")

#: Age in ms from which on a file that no manifest ever named is removed.
UNVERIFIED_MS = 7 * 24 * 3600 * 1000
_FOLDERS = ("data", "_deletions", "_indices", "_transactions")
#: What clean-ups remove: the names that writers of datasets give.
_NAMES = (
    r"data/[^/]+\.lance|data/[^/]+/[01]{32}\.blob|_deletions/[0-9]+-[0-9]+-[0-9]+\.(?:arrow|bin)|_transactions/[^/]+\.txn"
    r"|_indices/[0-9a-fA-F-]{36}/(?:[^/]+/)?[^/]+|_versions/[0-9]+\.manifest"
)


@dataclass(frozen=True)
class CleanupStats(Displayed):
    """What a clean-up has removed."""

    bytes_removed: int
    old_versions: int


@dataclass(frozen=True)
class CleanupPlan:
    """What a clean-up removes: files, what writers left unfinished, and the manifests of versions, which go last."""

    files: tuple[ObjectMeta, ...] = ()
    unfinished: tuple[ObjectMeta, ...] = ()
    manifests: tuple[ObjectMeta, ...] = ()
    old_versions: tuple[int, ...] = ()

    @property
    def stats(self) -> CleanupStats:
        """What the clean-up says of itself."""
        return CleanupStats(sum(m.size for m in (*self.files, *self.manifests)), len(self.old_versions))


def files_of(manifest: Manifest) -> set[str]:
    """The keys of all files of the dataset that a version needs; of an index, its folder with a slash.

    What it names of other datasets, by a base path, is theirs.
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
) -> CleanupPlan:
    """Remove versions that are older, and files that no version left needs; returns what went.

    Parameters
    ----------
    older_than_ms: age of a version from which on it goes; the newest never does.
    retain: how many of the newest stay, whatever their age.
    delete_unverified: remove files that no version names whatever their age.  Only for whoever knows that nobody
        writes: a write under way would lose its files.
    error_if_tagged: refuse where a tag names a version that would go; else those stay.

    Versions that branches come from stay, too.

    Raises ``InvalidArgumentError`` for tagged versions and for an age below 0, ``CorruptLogError`` for a manifest that
    cannot be read and for a branch whose version cannot be told or is not there, ``ClockError`` where this machine's
    clock is ahead of the store's: then nothing is removed.  Raises ``DatasetNotFoundError`` where the dataset is
    dropped or made anew meanwhile, which leaves the new one as it is.
    """
    if older_than_ms < 0:  # all that is there is older than a time to come
        raise InvalidArgumentError(
            f"older_than is {older_than_ms / 1000:g} seconds", help="it is an age, such as datetime.timedelta(days=14)"
        )
    found = _candidates(
        store, older_than_ms, runtime, retain=retain, unverified=delete_unverified, error_if_tagged=error_if_tagged
    )
    notice = post(store, REMOVALS, found.old, runtime) if found.old else None
    try:
        removal = _unneeded(store, found)
        _check_same_dataset(store, found)
    except Exception:
        if notice is not None:
            discard(store, [notice])  # nothing was removed
        raise
    _delete(store, [*removal.files, *removal.unfinished])
    if removal.manifests:
        _check_same_dataset(store, found)
    _delete(store, removal.manifests)
    if found.listing.versions:
        _withdraw(store, notice, found, removal.old_versions)
    return removal


def plan_cleanup(
    store: Store,
    older_than_ms: int,
    runtime: Runtime,
    *,
    delete_unverified: bool = False,
    error_if_tagged: bool = True,
) -> CleanupPlan:
    """What :func:`cleanup` would remove; parameters and errors are those of it."""
    found = _candidates(store, older_than_ms, runtime, unverified=delete_unverified, error_if_tagged=error_if_tagged)
    return _unneeded(store, found)


@dataclass(frozen=True)
class _Candidates:
    """What may go unless somebody needs it who came meanwhile."""

    listing: Listing
    newest: Manifest | None = None
    now_ms: int = 0
    old: tuple[int, ...] = ()
    files: tuple[ObjectMeta, ...] = ()
    unfinished: tuple[ObjectMeta, ...] = ()
    manifests: tuple[ObjectMeta, ...] = ()


def _candidates(
    store: Store, older_than_ms: int, runtime: Runtime, *, retain: int = 1, unverified: bool, error_if_tagged: bool
) -> _Candidates:
    listing = list_versions(store)
    if not listing.versions:
        return _Candidates(listing)
    now_ms = agreed_time(store, runtime.clock_ms())
    branch = read_manifest(store, listing.key(listing.latest), listing.latest).branch
    tagged = _tagged(store, branch)
    needed = _branched(store, listing, branch).union(listing.versions[-retain:])
    keep: set[str] = set()
    old_files: set[str] = set()
    old: list[int] = []
    manifest: Manifest | None = None
    for version in listing.versions:
        key = listing.key(version)
        try:
            manifest = read_manifest(store, key, version)
        except ObjectNotFoundError:
            manifest = None  # another clean-up is at work
            continue
        age = now_ms - manifest.timestamp_ns // 10**6
        if version not in needed and age >= older_than_ms:
            if version not in tagged:
                old.append(version)
                old_files |= files_of(manifest)
                continue
            if error_if_tagged:
                raise TaggedVersionError(
                    f"version {version} is old, and tagged {tagged[version]!r}",
                    help="delete the tag, or pass error_if_tagged_old_versions=False to keep tagged versions",
                    file=store.uri,
                )
        keep |= files_of(manifest)
    limit = 0 if unverified else UNVERIFIED_MS
    removable = [m for folder in _FOLDERS for m in store.list(folder) if _removable(m, old_files, now_ms, limit)]
    unfinished = old_temporaries(store, "", now_ms - limit + 1)
    manifests = [m for m in store.list("_versions") if m.key in {listing.key(v) for v in old}]
    keys = [m.key for m in (*removable, *manifests) if not _named(m.key, keep)]
    own = set(own_keys(store, keys, _NAMES, what="clean-up"))
    files, manifests = ([m for m in metas if m.key in own] for metas in (removable, manifests))
    return _Candidates(listing, manifest, now_ms, tuple(old), tuple(files), tuple(unfinished), tuple(manifests))


def _unneeded(store: Store, found: _Candidates) -> CleanupPlan:
    """What of it nobody needs.

    A writer may have committed meanwhile on what looked forgotten, have restored a version that goes, or tagged one:
    what the newest versions name stays, too, and what has a tag, or gets one.  Who comes behind these looks sees that
    the removal was announced.
    """
    if not found.listing.versions:
        return CleanupPlan()
    held = [hold for hold in notices(store, HOLDS) if not hold.forgotten(found.now_ms)]
    branch = None if found.newest is None else found.newest.branch
    needed = {*_tagged(store, branch), *_branched(store, found.listing, branch)}
    kept = [v for v in found.old if v in needed or any(hold.names(v) for hold in held)]
    newer = _named_since(store, found.listing.latest) | _named_by(store, found.listing, kept)
    files, manifests = (tuple(m for m in metas if not _named(m.key, newer)) for metas in (found.files, found.manifests))
    going = {m.key for m in manifests}
    gone = tuple(v for v in found.old if found.listing.key(v) in going)
    return CleanupPlan(files, found.unfinished, manifests, gone)


def _tagged(store: Store, branch: str | None) -> dict[int, str]:
    """The versions of a branch that have a tag, each with one."""
    tags = read_tags(root_store(store, branch))
    return {tag.version: name for name, tag in tags.items() if tag.branch == branch}


def _branched(store: Store, listing: Listing, branch: str | None) -> set[int]:
    """The versions that branches come from.  Raises ``CorruptLogError`` where one of them is not there.

    What such a branch needs is not known then.
    """
    branches = branch_points(root_store(store, branch), branch)
    for version, name in branches.items():
        if version not in listing.versions and version <= listing.latest:
            raise CorruptLogError(
                f"the branch {name!r} began from version {version}, which is not there",
                help="delete the branch, or clean up with the library that made it",
                file=store.uri,
                version=version,
            )
    return set(branches)


def _check_same_dataset(store: Store, found: _Candidates) -> None:
    """Raise ``DatasetNotFoundError`` where another dataset, or none, is at the place.

    Versions of that one have the same numbers.  The newest one is told by its manifest, which no clean-up removes
    before there is a newer one.
    """
    latest = found.listing.latest
    if not latest:
        return
    try:
        there = read_manifest(store, found.listing.key(latest), latest)
        same = found.newest is not None and there.identity == found.newest.identity
    except ObjectNotFoundError:
        same = list_versions(store).latest > latest
    if not same:
        raise DatasetNotFoundError(
            "the dataset was dropped, or replaced by another one, while it was cleaned up",
            help="clean up the one that is there",
            file=store.uri,
            version=latest,
        )


def _withdraw(store: Store, notice: str | None, found: _Candidates, gone: Iterable[int]) -> None:
    """Take back the notice of a removal that is done, and those of processes that died."""
    left = set(found.listing.versions).difference(gone)
    outdated = [] if notice is None else [notice]
    try:
        outdated += [hold.key for hold in notices(store, HOLDS) if hold.forgotten(found.now_ms)]
        outdated += [removal.key for removal in notices(store, REMOVALS) if _over(store, removal, found, left)]
    except TrilakeError as e:
        _log.warning("notices of clean-ups that died are left in %r: %s", store, e)
    discard(store, set(outdated))


def _over(store: Store, removal: Notice, found: _Candidates, left: set[int]) -> bool:
    """Whether a removal is done, or its clean-up has died before it began."""
    # Versions that came behind this listing are another's to look at.
    going = [v for v in removal.versions or () if v in left or v > found.listing.latest]
    if removal.versions and not going:
        return True
    return removal.forgotten(found.now_ms) and all(_whole(store, found.listing, v) for v in going)


def _whole(store: Store, listing: Listing, version: int) -> bool:
    """Whether a version has all of its files."""
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
    """The files of all versions behind one."""
    newest = list_versions(store)
    later = [v for v in newest.versions if v > version]
    return set().union(*(files_of(read_manifest(store, newest.key(v), v)) for v in later))


def _named_by(store: Store, listing: Listing, versions: Iterable[int]) -> set[str]:
    """The manifests of some versions and the files that they name."""
    named: set[str] = set()
    for version in versions:
        key = listing.key(version)
        with suppress(ObjectNotFoundError):  # another clean-up, which did not see the tag, is at work
            named |= {key, *files_of(read_manifest(store, key, version))}
    return named


def _named(key: str, names: set[str]) -> bool:
    if key.startswith("_indices/"):
        return "/".join(key.split("/")[:2]) + "/" in names
    folder, _, name = key.rpartition("/")
    if name.endswith(".blob"):  # which goes with the data file that it is of
        key = f"{folder}.lance"
    return key in names


def _removable(meta: ObjectMeta, old: set[str], now_ms: int, limit: int) -> bool:
    """Whether a file is old enough to go if no version names it that stays."""
    return _named(meta.key, old) or now_ms - meta.modified_ms >= limit


def _delete(store: Store, metas: Iterable[ObjectMeta]) -> None:
    keys = [m.key for m in metas]
    if keys:
        store.delete(keys)


def drop(store: Store) -> None:
    """Remove a dataset: all its files, manifests last, so that a drop that dies can be repeated.

    Files in no folder of a dataset's stay, and the folders that they are in.  Raises as :func:`table_files`.
    """
    drop_files(table_files(store))


def table_files(store: Store) -> TableFiles:
    """The files of a dataset, manifests last.

    Raises ``DatasetNotFoundError`` where there is no dataset, ``CorruptLogError`` where its newest manifest cannot be
    read.
    """
    load(store)
    objects = list(store.list())
    inner = frozenset(f for f in tables_of(m.key for m in objects) if not f.startswith(f"{TREE}/"))
    territory = Territory(store, inner)
    trees = [TREE] if next(iter(store.list(f"{BRANCHES}/")), None) is not None else []
    folders = [*_FOLDERS, *trees, "_refs", "_versions"]
    inside = [m for m in (*objects, *store.unfinished()) if m.key.partition("/")[0] in folders and "/" in m.key]
    foreign = set(territory.foreign(m.key.rpartition("/")[0] for m in inside))
    own = [m for m in inside if m.key.rpartition("/")[0] not in foreign]
    own.sort(key=lambda m: folders.index(m.key.partition("/")[0]))
    own += [m for m in objects if m.key == LATEST]
    names = {m.key for m in own}
    return TableFiles(store, as_files(own), as_files(m for m in objects if m.key not in names))


def cleanup_partial_writes(dataset_uri: str | os.PathLike[str], objects: list[tuple[str, str]]) -> None:
    """Remove data files by their paths below ``data``; those that are not there are no error.

    Multipart uploads that never ended have no file: the store's own rules remove them.
    """
    store = open_store(dataset_uri)
    store.delete(own_keys(store, [f"data/{path}" for path, _ in objects], _NAMES, what="clean-up"))
