"""``Staging``: a folder on the store's disk for files that another program writes; and temporary folders.

Spark writes Parquet to folders, with its own file names.  Like temporary files, staging folders are hidden from
listings; :meth:`Store.unfinished` finds those of dead writers.  Files are synced before they are renamed::

    .trilake-*.tmp/files/part-0 -> fsync -> rename to its key -> fsync folder
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from trilake.errors import StorageError
from trilake.storage.base import Store, check_key, storage_error
from trilake.storage.durable import make_folder, sync, sync_folder
from trilake.storage.local_writer import behind_link, temporary_name

#: Files that are synced concurrently.
_SYNCS = 8


class Staging:
    """A staging folder, deleted at the end of its block, in which the program creates the folder ``path``."""

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
        shutil.rmtree(self._top, ignore_errors=True)  # a clean-up removes it later

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
            raise storage_error(e, "stat", f"{self.path}/{name}") from e

    def publish(self, keys: Mapping[str, str]) -> None:
        """Move files, by name, to their unique keys.  Raises ``StorageError`` without publishing any file."""
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
                with suppress(OSError):  # not referenced: vacuum removes it later
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
        raise storage_error(e, "sync", path, writing=True) from e


def staging(store: Store) -> Staging | None:
    """A staging folder, or ``None`` if the store's objects are not files."""
    path = store.local_path("x")
    return None if path is None else Staging(path[:-1])


#: Bytes per request of a copy.
_PART = 16 << 20


def move(store: Store, source: str, target: str) -> None:
    """Move a synced file to another key; in object stores it is copied and ``source`` stays.

    :func:`sync_names` syncs the new name.  Raises ``StorageError``, also for a target behind a symbolic link.
    """
    from_path, to_path = store.local_path(source), store.local_path(target)
    if from_path is None or to_path is None:
        size, part = store.read_sized(source, _PART)
        with store.open_output(target) as sink:
            copied = sink.write(part)
            while copied < size:
                part = store.read_range(source, copied, _PART)
                if not part.size:
                    raise StorageError("the file became shorter during the copy", file=f"{store.uri}/{source}")
                copied += sink.write(part)
        return
    if os.path.lexists(to_path) and store.passes_link(target):
        raise behind_link("replaced", to_path)
    try:
        make_folder(os.path.dirname(to_path))
        os.rename(from_path, to_path)
    except OSError as e:
        raise storage_error(e, "move a file to", to_path, writing=True) from e


def sync_names(store: Store, keys: Iterable[str]) -> None:
    """Sync the folders of keys, on the local file system."""
    for folder in {os.path.dirname(path) for path in map(store.local_path, keys) if path is not None}:
        with suppress(FileNotFoundError):
            sync_folder(folder)


def remove_folder(store: Store, folder: str, *, only_empty: bool = False) -> None:
    """Remove a folder on a file system; never a symbolic link or anything behind one."""
    path = store.local_path(folder)
    if path is None or store.passes_link(f"{folder}/x"):
        return
    if not only_empty:
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):  # not empty, or already deleted
        os.rmdir(path)


# --- temporary files for data that does not fit in memory ---


@contextmanager
def spilling() -> Iterator[None]:
    """A block that works with temporary files, whose errors become ``StorageError``."""
    try:
        yield
    except StorageError:
        raise
    except OSError as e:
        raise storage_error(e, "use", tempfile.gettempdir(), writing=True) from e


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder for a block.  Raises ``StorageError`` if it cannot be created."""
    with spilling():
        folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with folder as path:
        yield Path(path)
