"""``Staging``: a folder on the store's own disk for files of a program that does not know the store.

Spark writes Parquet to folders, under names of its own choice.  Listings hide a staging folder like temporary files;
:meth:`Store.unfinished` finds those of writers that died.  Published files are durable before their names appear::

    .trilake-*.tmp/files/part-0 -> fsync -> rename to its key -> fsync folder
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType

from trilake.errors import StorageError
from trilake.storage.base import Store, check_key
from trilake.storage.durable import make_folder, sync, sync_folder
from trilake.storage.local_writer import storage_error, temporary_name

#: Files that are synced concurrently.
_SYNCS = 8


class Staging:
    """A staging folder, which is deleted when its block ends.

    ``path`` is the absolute path of a folder that does not exist yet; the program creates it.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._top = f"{root}{temporary_name()}"
        self.path = f"{self._top}/files"

    def __enter__(self) -> Staging:
        try:
            make_folder(self._root.rstrip("/"))
            os.mkdir(self._top)
        except OSError as e:
            raise storage_error(e, "create", self._top, writing=True) from e
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._top, ignore_errors=True)  # at worst it is left for a clean-up

    def names(self) -> list[str]:
        """The names of the files in the folder."""
        try:
            return sorted(os.listdir(self.path))
        except OSError as e:
            raise storage_error(e, "list", self.path) from e

    def size(self, name: str) -> int:
        """The bytes of a file."""
        try:
            return os.stat(f"{self.path}/{name}").st_size
        except OSError as e:
            raise storage_error(e, "look at", f"{self.path}/{name}") from e

    def publish(self, keys: Mapping[str, str]) -> None:
        """Move files to their keys: ``keys`` by file name.

        The keys must be unique.  Raises ``StorageError``; then no file was published.
        """
        moves = [(f"{self.path}/{name}", self._root + check_key(key)) for name, key in keys.items()]
        with ThreadPoolExecutor(_SYNCS) as pool:
            list(pool.map(_make_durable, [source for source, _ in moves]))
        moved: list[str] = []
        try:
            for source, target in moves:
                make_folder(os.path.dirname(target))
                os.rename(source, target)
                moved.append(target)
            for folder in sorted({os.path.dirname(target) for target in moved}):
                sync_folder(folder)
        except OSError as e:
            for target in moved:
                with suppress(OSError):  # no commit references it: at worst vacuum removes it
                    os.unlink(target)
            raise storage_error(e, "publish files in", self._root, writing=True) from e


def _make_durable(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(fd)
        finally:
            os.close(fd)
    except OSError as e:
        raise storage_error(e, "force to disk", path, writing=True) from e


def staging(store: Store) -> Staging | None:
    """A staging folder of a store whose objects are files, or ``None``."""
    place = store.local_path("x")
    return None if place is None else Staging(place[:-1])


#: Bytes per request when an object is copied.
_PART = 16 << 20


def move(store: Store, source: str, target: str) -> None:
    """Move a file to another key; in object stores it is copied and ``source`` stays.

    The content of ``source`` must have been synced; :func:`sync_names` syncs the new name.  Raises
    ``StorageError``, also where a file behind a link would be replaced.
    """
    from_path, to_path = store.local_path(source), store.local_path(target)
    if from_path is None or to_path is None:
        size, part = store.read_sized(source, _PART)
        with store.open_output(target) as written:
            copied = written.write(part)
            while copied < size:
                part = store.read_range(source, copied, _PART)
                if not part.size:
                    raise StorageError("the file became shorter while it was copied", file=f"{store.uri}/{source}")
                copied += written.write(part)
        return
    if os.path.lexists(to_path) and store.passes_link(target):
        raise StorageError("a file behind a link would be replaced", help="put a folder there", file=to_path)
    try:
        make_folder(os.path.dirname(to_path))
        os.rename(from_path, to_path)
    except OSError as e:
        raise storage_error(e, "move a file to", to_path, writing=True) from e


def sync_names(store: Store, keys: Iterable[str]) -> None:
    """Sync the names in the folders of some keys, on the local file system."""
    for folder in {os.path.dirname(path) for path in map(store.local_path, keys) if path is not None}:
        with suppress(FileNotFoundError):
            sync_folder(folder)


def remove_folder(store: Store, folder: str) -> None:
    """Remove a folder of staged files with its content, on file systems; never a link or anything behind one."""
    path = store.local_path(folder)
    if path is not None and not store.passes_link(f"{folder}/x"):
        shutil.rmtree(path, ignore_errors=True)


def remove_empty_folder(store: Store, folder: str) -> None:
    """Remove a folder if it is empty, on file systems; never a link or anything behind one."""
    path = store.local_path(folder)
    if path is not None and not store.passes_link(f"{folder}/x"):
        with suppress(OSError):  # not empty, or already deleted
            os.rmdir(path)
