"""Bases: the stores and keys of a version's files, some of which are outside the dataset.

Shallow clones and branches refer to files of their source dataset by the id of a base path; writers may put new data
files below registered base paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from trilake.errors import CorruptLogError, InvalidArgumentError
from trilake.lance.file.errors import OptionError
from trilake.lance.versions.manifest import BasePath, DataFile, DeletionFile, IndexMetadata
from trilake.storage import open_sibling
from trilake.storage.base import Store
from trilake.storage.uri import is_absolute, parse_location


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


def targets(
    store: Store, bases: Sequence[BasePath], references: Sequence[str], all_bases: bool | None
) -> tuple[int | None, ...]:
    """Return the ids of the base paths that get new data files in turn; ``None`` is the dataset itself.

    ``references`` are names, paths or URIs; ``all_bases`` selects all, if true with the dataset first.  Raises
    ``OptionError`` for an unknown reference, for both arguments, or if there are no base paths.
    """
    if all_bases is None:
        return tuple(_referenced(store, bases, one) for one in references) or (None,)
    if references:
        raise OptionError("target_all_bases and target_bases cannot be used together", help="pass only one of them")
    ids = sorted(base.id for base in bases)
    if not ids and not all_bases:
        raise OptionError(
            "target_all_bases=False needs a base path, but the dataset has none", help="add one with add_bases"
        )
    return (None, *ids) if all_bases else tuple(ids)


def _referenced(store: Store, bases: Sequence[BasePath], reference: str) -> int | None:
    where = location(reference)
    named = [b.id for b in bases if b.name == reference] or [b.id for b in bases if location(b.path) == where]
    if named:
        return named[0]
    if where == store.uri:
        return None
    raise OptionError(
        f"base {reference!r} was not found among the base paths of the dataset",
        help=f"base paths are {', '.join(b.name or b.path for b in bases) or 'none'}; add one with add_bases",
        file=store.uri,
    )


def location(uri: str) -> str:
    """One spelling of an absolute URI or path: ``file:///a/b`` for ``/a/x/../b``."""
    if is_absolute(uri):
        with suppress(InvalidArgumentError):  # of a scheme that no store has
            return parse_location(uri).uri
    return uri
