"""``Tags``: names for versions of a dataset."""

from __future__ import annotations

from typing import Any

from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.versions import versions


class Tags:
    """The tags of a dataset, as they are in its store now."""

    def __init__(self, dataset: OpenDataset) -> None:
        self._store, self._runtime = dataset.snapshot.store, dataset.snapshot.runtime

    def list(self) -> dict[str, dict[str, Any]]:
        """All tags by name: ``version`` and ``manifest_size`` in bytes."""
        found = versions.read_tags(self._store)
        return {name: {"version": tag.version, "manifest_size": tag.manifest_size} for name, tag in found.items()}

    def get_version(self, tag: str) -> int:
        """The version that a tag names.  Raises ``VersionNotFoundError``."""
        return versions.read_tag(self._store, tag).version

    def create(self, tag: str, version: int) -> None:
        """Name a version.  Raises ``InvalidArgumentError`` where the tag is there, ``VersionNotFoundError``."""
        self._write(tag, version, update=False)

    def update(self, tag: str, version: int) -> None:
        """Let a tag name another version.  Raises ``VersionNotFoundError``."""
        self._write(tag, version, update=True)

    def delete(self, tag: str) -> None:
        """Remove a tag; the version stays.  Raises ``VersionNotFoundError``."""
        versions.delete_tag(self._store, tag)

    def _write(self, tag: str, version: int, *, update: bool) -> None:
        listing = versions.list_versions(self._store)
        number = versions.choose_version(self._store, listing, version)
        size = self._store.head(listing.key(number)).size
        versions.write_tag(self._store, tag, number, size=size, now_ns=self._runtime.clock_ns(), update=update)
