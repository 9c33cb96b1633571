"""The steps that must reach the disk: content of files, names in folders, new folders.

Several of them share the disk's own steps where they are forced at the same time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache


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
            # made by another writer in the meantime; if it is a file, the next step says so
            with suppress(FileExistsError):
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


#: File systems of which one call forces all to disk, names too, and says what failed since the file was opened.
_IN_MEMORY = 0x01021994  # tmpfs
_WHOLE = frozenset({0xEF53, 0x58465342, 0x9123683E, _IN_MEMORY})  # ext4, XFS, Btrfs
#: The first kernel whose ``syncfs`` reports data that could not be written.
_REPORTS_SINCE = (5, 8)
#: Bytes of other writers that the call may have to wait for, by files that need not be forced one by one.
_ELSEWHERE = 256 << 10
_UNWRITTEN = re.compile(rb"^(?:Dirty|Writeback): +(\d+) kB$", re.MULTILINE)


class FileSystem:
    """A file system that is forced to disk as a whole, which for many small files costs little more than one of them.

    It tells what could not be written since it was opened: open it before the first file is written.
    """

    def __init__(self, fd: int, device: int, kind: int) -> None:
        self._fd, self.device, self._kind = fd, device, kind

    @classmethod
    def of(cls, folder: str) -> FileSystem | None:
        """That of a folder; ``None`` where files must be forced one by one.

        That is where the system has no such call or one that keeps errors for itself, and where it is not known to do
        all that is needed.
        """
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
        """Whether so many files would take longer one by one than all that others have written and is not on disk."""
        return self._kind == _IN_MEMORY or _unwritten() <= files * _ELSEWHERE

    def force(self) -> None:
        """Force everything that was written to it, content and names, to disk."""
        sync_file_system(self._fd)

    def close(self) -> None:
        """Needed no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sync_file_system(fd: int) -> None:
    """Force the file system of an open file to disk.  Raises ``OSError``."""
    if _library().syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


#: Seconds between two looks at a file that is written, and the flag of ``sync_file_range`` that only begins the work.
_LOOK, _BEGIN = 0.008, 2


@contextmanager
def writing_early(fd: int) -> Iterator[None]:
    """Let the disk begin with a file that is written in the block, so that forcing it there has less to wait for.

    It promises nothing: the file is forced afterwards as ever, and that reports errors of this, too.
    """
    if sys.platform != "linux" or not hasattr(_library(), "sync_file_range"):
        yield
        return
    done = threading.Event()

    def begin() -> None:
        everything = ctypes.c_int64(0)
        while not done.wait(_LOOK):
            _library().sync_file_range(fd, everything, everything, _BEGIN)

    thread = threading.Thread(target=begin, name="trilake-early", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


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
    """The number of a file system's type, which is the first field of what ``fstatfs`` tells; 0 where it does not."""
    told = (ctypes.c_ulong * 64)()
    return int(told[0]) & 0xFFFFFFFF if _library().fstatfs(fd, told) == 0 else 0


def _unwritten() -> int:
    """Bytes of all file systems that are not on disk yet."""
    try:
        fd = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return sum(int(kb) << 10 for kb in _UNWRITTEN.findall(os.read(fd, 1 << 14)))
        finally:
            os.close(fd)
    except OSError:
        return sys.maxsize


class FolderGroup:
    """Folders that are made one by one and forced to disk together: each that holds some of them once."""

    def __init__(self) -> None:
        self._new: dict[str, tuple[int, int]] = {}
        #: The folders that hold them, and whether one in it was made here.
        self._above: dict[str, bool] = {}

    def make(self, path: str, *, again: bool = False) -> None:
        """Create a folder and those above it, where they are not there; ``again`` where one of them has gone since."""
        if path in self._new and not again:
            return
        parent = os.path.dirname(path)
        made = False
        if parent in self._new and not again:  # then this one is new, too, as a rule
            with suppress(FileExistsError):
                os.mkdir(path)
                made = True
            status = os.stat(path)
        else:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                made = True
            else:
                if (status.st_dev, status.st_ino) in (_DURABLE.get(path), self._new.get(path)):
                    return
            if parent != path:
                self.make(parent, again=again)
                if made:
                    with suppress(FileExistsError):  # as above
                        os.mkdir(path)
                    status = os.stat(path)
        if parent != path:
            self._above[parent] = self._above.get(parent, False) or made
        self._new[path] = (status.st_dev, status.st_ino)

    def device(self, path: str) -> int:
        """The number of a folder's file system; -1 where it cannot be told."""
        known = self._new.get(path) or _DURABLE.get(path)
        try:
            return known[0] if known else os.stat(path).st_dev
        except OSError:
            return -1

    def force(
        self,
        more: Iterable[str],
        each: Callable[[Callable[[str], None], list[str]], None],
        system: FileSystem | None = None,
    ) -> None:
        """Force the names of these folders to disk, and those in ``more`` folders.

        ``each`` calls a function for each item of a list, in any order.  Folders on ``system`` are forced with it.
        """
        folders = set(more).union(self._above)
        if system is not None:
            system.force()
            folders = {f for f in folders if self.device(f) != system.device}
        each(self._force_one, sorted(folders))
        for path, identity in self._new.items():
            _remember(path, identity)
        self._new, self._above = {}, {}

    def _force_one(self, path: str) -> None:
        try:
            sync_folder(path)
        except PermissionError:
            if self._above.get(path, True):
                raise
