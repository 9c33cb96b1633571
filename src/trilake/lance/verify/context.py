"""``LanceContext``: shared state of the checks of a dataset; each part is read once on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trilake.common.runtime import Runtime
from trilake.errors import TrilakeError, UnsupportedProtocolError
from trilake.lance.data_files import open_data_file
from trilake.lance.file.interfaces import DataFileReader
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import deletions
from trilake.lance.versions.branches import branch_store
from trilake.lance.versions.manifest import MAX_ROWS, DeletionFile, Fragment, Manifest
from trilake.lance.versions.manifest import DataFile as Entry
from trilake.lance.versions.transaction import read_manifest
from trilake.lance.versions.versions import Listing, choose_version, list_versions
from trilake.storage.base import Store
from trilake.table.findings import Depth, Finding, NotCheckedError, spread

#: What to do about a broken file or manifest.
RESTORE = "restore the file from a backup, or an older version of the dataset"


@dataclass(frozen=True)
class OpenFile:
    """A data file: opened, or the error; ``size`` is the size in the store, ``None`` if the file is missing."""

    fragment: Fragment
    entry: Entry
    file: DataFileReader | None = None
    size: int | None = None
    error: Exception | None = None


@dataclass(frozen=True)
class Deleted:
    """A deletion file: number of rows and the last one, or the error."""

    key: str
    stated: int
    rows: int
    count: int = 0
    last: int = -1
    error: Exception | None = None


@dataclass
class LanceContext:
    """A dataset being verified, at the version ``requested`` or the newest; rows of ``sample`` data files are read."""

    store: Store
    runtime: Runtime
    requested: int | None
    depth: Depth
    sample: int | None = None
    #: Unreadable manifests by version.
    bad_manifests: dict[int, Exception] = field(default_factory=dict)
    #: Results of reading pages, which several checks use.
    pages: Any = None

    @cached_property
    def listing(self) -> Listing:
        """All versions.  Raises ``CorruptLogError`` if their files use two naming schemes."""
        return list_versions(self.store)

    def listing_of(self, branch: str | None) -> Listing:
        """All versions of a branch; ``None`` is the main line."""
        return self.listing if branch is None else list_versions(branch_store(self.store, branch))

    @cached_property
    def version(self) -> int:
        """The version to verify.  Raises ``TableNotFoundError`` or ``VersionNotFoundError``."""
        return choose_version(self.store, self.listing, self.requested)

    @cached_property
    def manifests(self) -> Mapping[int, Manifest]:
        """The readable manifests; the others are in ``bad_manifests``."""
        manifests: dict[int, Manifest] = {}
        for version in self.listing.versions:
            try:
                manifests[version] = read_manifest(self.store, self.listing.key(version), version)
            except (TrilakeError, OSError, ValueError) as e:
                self.bad_manifests[version] = e
        return manifests

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the version.  Raises ``NotCheckedError`` if it is unreadable."""
        manifest = self.manifests.get(self.version)
        if manifest is None:
            raise NotCheckedError(f"the manifest of version {self.version} cannot be read", file=self.store.uri)
        try:
            manifest.check_readable(self.store.uri)
        except UnsupportedProtocolError as e:
            raise NotCheckedError(e.message, file=self.store.uri) from e
        return manifest

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.store, self.manifest, self.runtime)

    @cached_property
    def files(self) -> list[OpenFile]:
        """All data files of the version, opened."""
        return [self._open(f, entry) for f in self.manifest.fragments for entry in f.files]

    def _open(self, fragment: Fragment, entry: Entry) -> OpenFile:
        try:
            store, key = self.snapshot.bases.data_file(entry)
            size = store.head(key).size
        except (TrilakeError, OSError):
            return OpenFile(fragment, entry)
        try:
            file = open_data_file(
                store, key, self.manifest.schema, entry.storage_version, entry.fields, entry.column_indices
            )
        except (TrilakeError, OSError, ValueError) as e:
            return OpenFile(fragment, entry, None, size, e)
        return OpenFile(fragment, entry, file, size)

    @cached_property
    def deletions(self) -> list[Deleted]:
        """The deletion files of the version."""
        rows = {f.fragment.id: f.file.num_rows for f in self.files if f.file is not None}
        return [
            self._deleted(f, f.deletion_file, rows.get(f.id, f.physical_rows))
            for f in self.manifest.fragments
            if f.deletion_file is not None
        ]

    def _deleted(self, fragment: Fragment, entry: DeletionFile, rows: int) -> Deleted:
        key = entry.key(fragment.id)
        try:
            store, place = self.snapshot.bases.deletion_file(fragment.id, entry)
            positions = deletions.decode(entry.file_type, store.read(place), rows=MAX_ROWS, file=key)
        except (TrilakeError, OSError) as e:
            return Deleted(key, entry.num_deleted_rows, rows, error=e)
        return Deleted(key, entry.num_deleted_rows, rows, len(positions), positions.max() if positions else -1)

    @property
    def sampled(self) -> list[OpenFile]:
        """The open data files whose rows are read."""
        files = [f for f in self.files if f.file is not None]
        return [files[i] for i in spread(len(files), self.sample)]

    def finding(self, code: str, message: str, of: OpenFile | None = None, **more: Any) -> Finding:
        """A finding about the version, or about one of its data files; ``more`` are other fields."""
        if of is not None:
            more = {"file": of.entry.key, **more, "details": {"fragment": of.fragment.id} | more.get("details", {})}
        fields: dict[str, Any] = {"help": RESTORE, "version": self.version} | more
        return Finding(f"lance.{code}", message, **fields)
