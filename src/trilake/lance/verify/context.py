"""``LanceContext``: what the checks of one dataset share, each part read once and when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trilake.common.runtime import Runtime
from trilake.errors import TrilakeError, UnsupportedProtocolError
from trilake.lance.data_files import open_data_file
from trilake.lance.file.reader import DataFileReader
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions.manifest import DataFile as Entry
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.transaction import read_manifest
from trilake.lance.versions.versions import Listing, choose_version, list_versions
from trilake.storage.base import Store
from trilake.table.findings import Depth, NotCheckedError


@dataclass(frozen=True)
class OpenFile:
    """A data file of a fragment: open, or why it is not; ``size`` as the store has it, ``None`` where it is gone."""

    fragment: Fragment
    entry: Entry
    file: DataFileReader | None = None
    size: int | None = None
    error: Exception | None = None


@dataclass
class LanceContext:
    """A dataset while it is verified.

    Parameters
    ----------
    store, runtime: where it is, and what its snapshot carries.
    wanted: the version that was asked for; the newest by default.
    depth, sample: how deep, and of how many data files the rows are read.
    """

    store: Store
    runtime: Runtime
    wanted: int | None
    depth: Depth
    sample: int | None = None
    #: Manifests that cannot be read, by version.
    bad_manifests: dict[int, Exception] = field(default_factory=dict)
    #: What several checks share, gathered by the first of them.
    pages: Any = None
    deletions: Any = None

    @cached_property
    def listing(self) -> Listing:
        """The versions there are.  Raises ``CorruptLogError`` where their files are named in two ways."""
        return list_versions(self.store)

    @cached_property
    def version(self) -> int:
        """The version that is verified.  Raises ``TableNotFoundError`` or ``VersionNotFoundError``."""
        return choose_version(self.store, self.listing, self.wanted)

    @cached_property
    def manifests(self) -> Mapping[int, Manifest]:
        """The manifests that can be read; those that cannot are in ``bad_manifests``."""
        manifests: dict[int, Manifest] = {}
        for version in self.listing.versions:
            try:
                manifests[version] = read_manifest(self.store, self.listing.key(version), version)
            except (TrilakeError, OSError, ValueError) as e:
                self.bad_manifests[version] = e
        return manifests

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the version.  Raises ``NotCheckedError`` where it cannot be read."""
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
        """The version.  Raises ``NotCheckedError``."""
        return Snapshot(self.store, self.manifest, self.runtime)

    @cached_property
    def files(self) -> list[OpenFile]:
        """Every data file of the version, opened."""
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

    @property
    def chosen(self) -> list[OpenFile]:
        """The open data files whose rows are read."""
        files = [f for f in self.files if f.file is not None]
        if self.sample is None or self.sample >= len(files):
            return files
        at = np.unique(np.linspace(0, len(files) - 1, self.sample).round().astype(int))
        return [files[i] for i in at.tolist()]
