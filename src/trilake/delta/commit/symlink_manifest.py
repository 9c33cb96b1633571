"""Symlink manifests: lists of a table's files for engines that read Parquet but not the Delta log.

``_symlink_format_manifest/<partition folders>/manifest`` lists the full paths of one partition's files, one per line.
Such engines support neither deletion vectors nor column mapping, so tables with those get no manifest.

With the table property ``delta.compatibility.symlinkFormatManifest.enabled`` every commit updates the manifests of the
partitions it touched.  If that fails, the commit stands and the writer gets an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.display import Displayed
from trilake.common.progress import track
from trilake.delta.commit.transaction import CommitEvent
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.protocol.property_values import is_on
from trilake.errors import InvalidArgumentError, PostCommitHookError, StorageError, TrilakeError
from trilake.storage.base import Store
from trilake.storage.uri import parse_location

MODE = "symlink_format_manifest"
FOLDER = "_symlink_format_manifest"
ENABLED = "delta.compatibility.symlinkFormatManifest.enabled"


@dataclass(frozen=True)
class ManifestResult(Displayed):
    """The partition folders whose manifests were written, and those whose manifests were deleted.

    An empty string stands for the only manifest of a table without partitions.

    >>> import trilake
    >>> _ = trilake.write({"n": [1]}, "memory://doc-manifest-result")
    >>> result = trilake.open("memory://doc-manifest-result").generate("symlink_format_manifest")
    >>> result.written, result.deleted
    (('',), ())
    """

    written: tuple[str, ...]
    deleted: tuple[str, ...]


def check_mode(mode: object) -> None:
    """Raise ``InvalidArgumentError`` unless ``mode`` is ``symlink_format_manifest``, in any case."""
    if not isinstance(mode, str) or mode.lower() != MODE:
        raise InvalidArgumentError(
            f"mode {mode!r} is not supported", help=f"pass {MODE!r}", condition="DELTA_MODE_NOT_SUPPORTED"
        )


def generate_manifests(log: DeltaLog) -> ManifestResult:
    """Write the manifests of all partitions of the newest version; delete all others.

    Raises ``InvalidArgumentError`` for tables with deletion vectors or column mapping.
    """
    return _bring_up_to_date(log, log.snapshot(), None)


def update_manifests(event: CommitEvent) -> None:
    """Update the manifests after a commit if the table enables them.

    Raises ``PostCommitHookError``, which says that the commit stands.
    """
    log, base, metadata, actions = event.log, event.base, event.metadata, event.plan.file_actions
    if not is_on(metadata.configuration, ENABLED):
        return
    try:
        # Use the newest version, not the committed one: a late hook must not bring older files back.
        snapshot = log.update(base) if isinstance(base, Snapshot) else log.snapshot()
        partitions: set[str] | None = {""}  # unknown if a file states no partition values
        if metadata.partition_columns:
            files = [a[kind] for a in actions for kind in ("add", "remove") if kind in a]
            values = [f.get("partitionValues") for f in files]
            fields = partition_fields(metadata.schema, metadata.partition_columns)
            partitions = None if None in values else set(PartitionKeys.of_actions(values, fields).folders)
        repartitioned = base is not None and base.metadata.partition_columns != metadata.partition_columns
        if actions or repartitioned or not any(_existing(log.store)):
            _bring_up_to_date(log, snapshot, None if repartitioned else partitions)
    except (TrilakeError, pa.ArrowException, OSError) as e:
        raise PostCommitHookError(
            f"the commit of version {event.version} succeeded, but the update of symlink manifests failed: {e}",
            help=f"do not repeat the write; generate the manifests again, or set the table property {ENABLED} to false",
            file=log.store.uri,
            version=event.version,
        ) from e


def _bring_up_to_date(log: DeltaLog, snapshot: Snapshot, changed: set[str] | None) -> ManifestResult:
    """Update the manifests of some partition folders, or of all.

    Another writer may commit and write its manifests first, which this call then overwrites.  So it checks the log
    again until the log matches the manifests.
    """
    manifests_by_folder: dict[str, pa.Array | None] = {}
    while True:
        manifests = _manifests(snapshot)
        existing = set(_existing(log.store))
        folders = changed
        # If a manifest is missing, or its folder spells its value differently, write all.
        if folders is None or not existing or not existing <= manifests.keys() | folders:
            folders = manifests.keys() | existing
        news = {
            f: manifests.get(f)
            for f in sorted(folders)
            if f not in manifests_by_folder or manifests_by_folder[f] != manifests.get(f)
        }
        _put(log.store, news)
        manifests_by_folder.update(news)
        newest = log.update(snapshot) if news else snapshot
        if newest.version == snapshot.version:
            deleted = {f for f, m in manifests_by_folder.items() if m is None}
            return ManifestResult(tuple(sorted(manifests_by_folder.keys() - deleted)), tuple(sorted(deleted)))
        snapshot = newest


def _manifests(snapshot: Snapshot) -> dict[str, pa.Array]:
    _check_readable_by_others(snapshot)
    root = format_path(snapshot.uri)
    paths = decoded_paths(snapshot.adds["path"])
    if pc.any(pc.match_substring_regex(paths, "[\r\n]")).as_py():
        raise InvalidArgumentError(
            "a path in the table has a line break, which manifests do not support", file=snapshot.uri
        )
    absolute = pc.match_substring_regex(paths, "^/|^[A-Za-z][A-Za-z0-9+.-]*:/")
    lines = pc.if_else(absolute, paths, pc.binary_join_element_wise(root, paths, "/"))
    fields = partition_fields(snapshot.schema, snapshot.metadata.partition_columns)
    if not fields:
        return {"": lines}
    keys = PartitionKeys.of(snapshot.adds["partitionValues"], fields)
    ordered = lines.take(pa.array(np.argsort(keys.codes, kind="stable"))).combine_chunks()
    counts = np.bincount(keys.codes)
    starts = np.cumsum(counts) - counts
    return {f: ordered.slice(s, n) for f, s, n in zip(keys.folders, starts, counts, strict=True)}


def _check_readable_by_others(snapshot: Snapshot) -> None:
    if snapshot.adds["deletionVector"].null_count < snapshot.adds.num_rows:
        raise InvalidArgumentError(
            "manifests cannot be generated for a table with deletion vectors: other engines would read deleted rows",
            help="set delta.enableDeletionVectors to false, then rewrite the files that have deletion vectors"
            " (optimize with purge, REORG TABLE ... APPLY (PURGE))",
            file=snapshot.uri,
            condition="DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS",
        )
    if snapshot.metadata.column_mapping_mode != "none":
        raise InvalidArgumentError(
            "manifests cannot be generated for a table with column mapping: other engines would not find its columns",
            help="set delta.columnMapping.mode to 'none' first, which rewrites the files",
            file=snapshot.uri,
            condition="DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING",
        )


def format_path(uri: str) -> str:
    """A location as other engines write it: not encoded, and with one slash after ``file:``.

    >>> format_path("file:///data/a%20b"), format_path("s3://bucket/t")
    ('file:/data/a b', 's3://bucket/t')
    """
    place = parse_location(uri)
    root = "file:" if place.scheme == "file" else f"{place.scheme}://{place.authority}"
    return f"{root}/{place.path}" if place.path else root


#: Keys of manifests: in partition folders of any partition columns.
_MANIFEST = re.compile(rf"{FOLDER}/(?:[^/=]+=[^/]*/)*manifest")


def _existing(store: Store) -> list[str]:
    return [
        o.key.removeprefix(FOLDER).removeprefix("/").removesuffix("manifest").removesuffix("/")
        for o in store.list(FOLDER)
        if _MANIFEST.fullmatch(o.key)
    ]


def _key(folder: str) -> str:
    return f"{FOLDER}/{folder}/manifest" if folder else f"{FOLDER}/manifest"


def _put(store: Store, manifests: Mapping[str, pa.Array | None]) -> None:
    """Write manifests by folder; delete those that are ``None``."""
    linked = [f for f in manifests if store.passes_link(_key(f).removesuffix("manifest") + "_")]
    if linked:
        raise StorageError(
            f"the folder {_key(linked[0]).rpartition('/')[0]} is a symbolic link, or inside one: its manifests may"
            " belong to another table",
            help="replace the symbolic link with a folder",
            file=store.uri,
        )
    new = {folder: lines for folder, lines in manifests.items() if lines is not None}
    for folder, lines in track(new.items(), "manifests", len(new), unit="partitions"):
        store.put(_key(folder), "".join(f"{line}\n" for line in lines.to_pylist()).encode())
    store.delete([_key(f) for f, lines in manifests.items() if lines is None])
