"""The steps that must reach the disk: content of files, names in folders, new folders.

Several of them share the disk's own steps where they are forced at the same time.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress


def sync(fd: int) -> None:
    """Force a file's content and size to disk."""
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # fsync stops at the drive's cache there; not every file system knows the full one
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_folder(path: str) -> None:
    """Force the names in a folder to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as e:
        # Some network and FUSE file systems have no way to sync a folder, and need none.
        if e.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)


#: Folders whose names this process has forced to disk, with device and inode: a folder of the same name may be new.
_DURABLE: dict[str, tuple[int, int]] = {}
_DURABLE_MOST = 1 << 14


def make_folder(path: str) -> None:
    """Create a folder and those above it, durably.

    A folder that exists may have been made just now by a process that has not forced it to disk, and may not live to
    do it: the first time that this process meets a folder, it does so itself.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    if status is not None and _DURABLE.get(path) == (status.st_dev, status.st_ino):
        return
    parent = os.path.dirname(path)
    if parent != path:
        make_folder(parent)
        if status is None:
            with suppress(FileExistsError):  # made by another writer meanwhile; if it is a file, the next step says so
                os.mkdir(path)
        try:
            sync_folder(parent)
        except PermissionError:
            # A folder that may not be read cannot be forced to disk; whoever made it ours had more rights.
            if status is None:
                raise
        status = os.stat(path)
    assert status is not None
    _remember(path, (status.st_dev, status.st_ino))


def _remember(path: str, identity: tuple[int, int]) -> None:
    if len(_DURABLE) >= _DURABLE_MOST:
        _DURABLE.clear()
    _DURABLE[path] = identity


class FolderGroup:
    """Folders that are made one by one and forced to disk together: each that holds some of them once."""

    def __init__(self) -> None:
        self._new: dict[str, tuple[int, int]] = {}
        #: The folders that hold them, and whether one in it was made here.
        self._above: dict[str, bool] = {}

    def make(self, path: str) -> None:
        """Create a folder and those above it, where they are not there."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            status = None
        if status is not None and (status.st_dev, status.st_ino) in (_DURABLE.get(path), self._new.get(path)):
            return
        parent = os.path.dirname(path)
        if parent != path:
            self.make(parent)
            if status is None:
                with suppress(FileExistsError):  # as above
                    os.mkdir(path)
            self._above[parent] = self._above.get(parent, False) or status is None
            status = os.stat(path)
        assert status is not None
        self._new[path] = (status.st_dev, status.st_ino)

    def force(self, more: Iterable[str], each: Callable[[Callable[[str], None], list[str]], None]) -> None:
        """Force the names of these folders to disk, and those in ``more`` folders.

        ``each`` calls a function for each item of a list, in any order.
        """
        folders = set(more)
        each(self._force_one, sorted(folders.union(self._above)))
        for path, identity in self._new.items():
            _remember(path, identity)
        self._new, self._above = {}, {}

    def _force_one(self, path: str) -> None:
        try:
            sync_folder(path)
        except PermissionError:
            if self._above.get(path, True):
                raise
