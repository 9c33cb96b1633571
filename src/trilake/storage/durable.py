"""Sync files, folders and file systems to disk."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache


def sync(fd: int) -> None:
    """Sync a file's content and size to disk."""
    if sys.platform == "darwin":
        import fcntl

        # fsync only reaches the drive's cache there; not every file system supports the full one.
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_folder(path: str) -> None:
    """Sync the names in a folder to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as e:
        # Some network and FUSE file systems cannot sync a folder, and need not.
        if e.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)


#: Folders that this process has synced, with device and inode, as another folder may get the same name.
_DURABLE: dict[str, tuple[int, int]] = {}
_DURABLE_MOST = 1 << 14


def make_folder(path: str) -> None:
    """Create a folder and its parents, durably.

    Another process may have created it and died before syncing it, so each process syncs each folder once.
    """
    group = FolderGroup()
    group.make(path)
    group.force()


#: File systems on which ``syncfs`` syncs contents and names, and reports errors since the file was opened.
_IN_MEMORY = 0x01021994  # tmpfs
_WHOLE = frozenset({0xEF53, 0x58465342, 0x9123683E, _IN_MEMORY})  # ext4, XFS, Btrfs
#: The first kernel whose ``syncfs`` reports write errors.
_REPORTS_SINCE = (5, 8)
#: Most bytes of other writers to wait for, per file that is not synced separately.
_ELSEWHERE = 256 << 10
_UNWRITTEN = re.compile(rb"^(?:Dirty|Writeback): +(\d+) kB$", re.MULTILINE)


class FileSystem:
    """Sync a whole file system, about as fast as one file; open it before writing, as it reports only later errors."""

    def __init__(self, fd: int, device: int, kind: int) -> None:
        self._fd, self.device, self._kind = fd, device, kind

    @classmethod
    def of(cls, folder: str) -> FileSystem | None:
        """The file system of a folder; ``None`` if ``syncfs`` is missing, reports no errors, or may miss files."""
        if not _syncs_file_systems():
            return None
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        with suppress(OSError):
            kind, device = _kind(fd), os.fstat(fd).st_dev
            if kind in _WHOLE:
                return cls(fd, device, kind)
        os.close(fd)
        return None

    def is_quick(self, files: int) -> bool:
        """Whether syncing everything is faster than syncing this many files one by one."""
        return self._kind == _IN_MEMORY or _unwritten() <= files * _ELSEWHERE

    def force(self) -> None:
        """Sync everything that was written to it."""
        sync_file_system(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sync_file_system(fd: int) -> None:
    """Sync the file system of an open file.  Raises ``OSError``."""
    if _library().syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def write_contents(files: Sequence[int]) -> bool:
    """Write contents to disk before any later renames, on file systems that order changes in a journal.

    Returns ``False`` elsewhere and on failure: then each file needs :func:`sync`, which also writes the journal.
    """
    if sys.platform != "linux" or not hasattr(_library(), "sync_file_range"):
        return False
    if len({os.fstat(fd).st_dev for fd in files}) != 1 or _kind(files[0]) not in _ORDERED:
        return False
    # Start all before waiting for the first.
    return all(_flush(fd, _BEGIN) for fd in files) and all(_flush(fd, _AND_WAIT) for fd in files)


def _flush(fd: int, flags: int) -> bool:
    everything = ctypes.c_int64(0)
    return bool(_library().sync_file_range(fd, everything, everything, flags) == 0)


#: ext4 and XFS journal a file's size and its later name in order.
_ORDERED, _AND_WAIT = frozenset({0xEF53, 0x58465342, _IN_MEMORY}), 7
#: The flag of ``sync_file_range`` that does not wait.
_BEGIN = 2


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _syncs_file_systems() -> bool:
    if sys.platform != "linux" or not all(hasattr(_library(), name) for name in ("syncfs", "fstatfs")):
        return False
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _REPORTS_SINCE


def _kind(fd: int) -> int:
    """The type of a file system, the first field of ``fstatfs``; 0 if unknown."""
    buffer = (ctypes.c_ulong * 64)()
    return int(buffer[0]) & 0xFFFFFFFF if _library().fstatfs(fd, buffer) == 0 else 0


def _unwritten() -> int:
    try:
        fd = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return sum(int(kb) << 10 for kb in _UNWRITTEN.findall(os.read(fd, 1 << 14)))
        finally:
            os.close(fd)
    except OSError:
        return sys.maxsize


class FolderGroup:
    """Create folders and sync them together, each parent once."""

    def __init__(self) -> None:
        self._new: dict[str, tuple[int, int]] = {}
        #: Parent folders, and whether this group created a folder in them.
        self._above: dict[str, bool] = {}

    def make(self, path: str, *, again: bool = False) -> None:
        """Create a folder and missing parents; ``again`` if one may have been deleted since."""
        if path in self._new and not again:
            return
        parent = os.path.dirname(path)
        created = False
        try:
            status = os.stat(path)
        except FileNotFoundError:
            created = True
        else:
            if (status.st_dev, status.st_ino) in (_DURABLE.get(path), self._new.get(path)):
                return
        if parent != path:
            self.make(parent, again=again)
            if created:
                with suppress(FileExistsError):
                    os.mkdir(path)
                status = os.stat(path)
            self._above[parent] = self._above.get(parent, False) or created
        self._new[path] = (status.st_dev, status.st_ino)

    def device(self, path: str) -> int:
        """The device number of a folder; -1 if unknown."""
        identity = self._new.get(path) or _DURABLE.get(path)
        try:
            return identity[0] if identity else os.stat(path).st_dev
        except OSError:
            return -1

    def force(
        self,
        more: Iterable[str] = (),
        each: Callable[[Callable[[str], None], list[str]], object] = lambda call, folders: list(map(call, folders)),
        system: FileSystem | None = None,
    ) -> None:
        """Sync the names in these folders and ``more``; ``each`` calls a function for each, except on ``system``."""
        folders = set(more).union(self._above)
        if system is not None:
            system.force()
            folders = {f for f in folders if self.device(f) != system.device}
        each(self._force_one, sorted(folders))
        if len(_DURABLE) >= _DURABLE_MOST:
            _DURABLE.clear()
        _DURABLE.update(self._new)
        self._new, self._above = {}, {}

    def _force_one(self, path: str) -> None:
        try:
            sync_folder(path)
        except PermissionError:
            if self._above.get(path, True):
                raise
