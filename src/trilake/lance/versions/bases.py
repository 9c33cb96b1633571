"""Bases: the stores and keys of a version's files, some of which are outside the dataset.

Shallow clones and branches refer to files of the dataset that they began from, by the id of a base path.
"""

from __future__ import annotations

from collections.abc import Iterable

from trilake.errors import CorruptLogError
from trilake.lance.versions.manifest import BasePath, DataFile, DeletionFile, IndexMetadata
from trilake.storage import open_sibling
from trilake.storage.base import Store


class Bases:
    """The locations of a version's files: in its store or at ``base_paths``.  Can be shared between threads."""

    def __init__(self, store: Store, base_paths: Iterable[BasePath] = ()) -> None:
        self.store = store
        self._paths = {path.id: path for path in base_paths}
        self._stores: dict[int, Store] = {}

    def data_file(self, entry: DataFile) -> tuple[Store, str]:
        """The store and key of a data file.  Raises ``CorruptLogError`` for an unknown base path."""
        return self._place(entry.base_id, "data", entry.path)

    def deletion_file(self, fragment_id: int, entry: DeletionFile) -> tuple[Store, str]:
        """The store and key of a fragment's deletion file."""
        folder, _, name = entry.key(fragment_id).partition("/")
        return self._place(entry.base_id, folder, name)

    def index_folder(self, entry: IndexMetadata) -> tuple[Store, str]:
        """The store and key of an index's folder."""
        return self._place(entry.base_id, "_indices", str(entry.uuid))

    def external_blob(self, base_id: int, path: str) -> tuple[Store, str]:
        """The store and key of a blob below a base path.  Raises ``CorruptLogError`` for an unknown base path."""
        return self._base(base_id)[1], path

    def _place(self, base_id: int | None, folder: str, name: str) -> tuple[Store, str]:
        if base_id is None:
            return self.store, f"{folder}/{name}"
        base, store = self._base(base_id)
        return store, f"{folder}/{name}" if base.is_dataset_root else name

    def _base(self, base_id: int) -> tuple[BasePath, Store]:
        base = self._paths.get(base_id)
        if base is None:
            raise CorruptLogError(f"the manifest has no base path {base_id}", file=self.store.uri)
        store = self._stores.get(base_id)
        if store is None:  # if two threads open it, one store stays
            store = self._stores.setdefault(base_id, open_sibling(self.store, base.path))
        return base, store
