"""``Staging``: a folder on the store's own disk into which a program that knows nothing of the store writes files.

Spark writes Parquet to folders, under names of its own choice.  A staging folder is as unlisted as temporary files, and
a writer that died leaves it to :meth:`Store.unfinished`.  What is published is durable before its name appears::

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

#: Files that are forced to disk at the same time.
_SYNCS = 8


class Staging:
    """A staging folder, which is gone when its block ends.

    ``path`` is the absolute path of a folder that does not exist yet: whoever writes makes it.
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
        shutil.rmtree(self._top, ignore_errors=True)  # at worst it is left for those who clean up

    def names(self) -> list[str]:
        """What was written: names of files in the folder."""
        try:
            return sorted(os.listdir(self.path))
        except OSError as e:
            raise storage_error(e, "list", self.path) from e

    def size(self, name: str) -> int:
        """Bytes of one of the files."""
        try:
            return os.stat(f"{self.path}/{name}").st_size
        except OSError as e:
            raise storage_error(e, "look at", f"{self.path}/{name}") from e

    def publish(self, keys: Mapping[str, str]) -> None:
        """Give files their place in the store: ``keys`` by the name of the file in the folder.

        The keys must be names that no one else uses.  Raises ``StorageError``; then none of the files has its place.
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
                with suppress(OSError):  # no commit names it: at worst vacuum removes it
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


#: Bytes of one request when an object is copied.
_PART = 16 << 20


def move(store: Store, source: str, target: str) -> None:
    """Gives a file of the store another key; where files are objects, it is copied and ``source`` stays.

    The content of ``source`` must have been forced to disk; :func:`sync_names` forces the new name there.  Raises
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
    """Force to disk which names there are in the folders of some keys, where the store is the local file system."""
    for folder in {os.path.dirname(path) for path in map(store.local_path, keys) if path is not None}:
        with suppress(FileNotFoundError):
            sync_folder(folder)


def remove_folder(store: Store, folder: str) -> None:
    """Removes a folder of staged files with all in it, where there are folders; no link, and nothing behind one."""
    path = store.local_path(folder)
    if path is not None and not store.passes_link(f"{folder}/x"):
        shutil.rmtree(path, ignore_errors=True)


def remove_empty_folder(store: Store, folder: str) -> None:
    """Removes a folder if nothing is in it, where there are folders; no link, and nothing behind one."""
    path = store.local_path(folder)
    if path is not None and not store.passes_link(f"{folder}/x"):
        with suppress(OSError):  # something is in it, or it is gone
            os.rmdir(path)
