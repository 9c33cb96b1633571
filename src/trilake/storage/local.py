"""``LocalStore``: the local file system, durable.

Every write goes to a temporary file in the folder of its key first, is forced to disk, and gets its name in one atomic
step; then the folder is forced to disk.  A process that dies in between leaves a temporary file at most::

    create .trilake-*.tmp -> write -> fsync -> link (put_if_absent) or rename (put, open_output) -> fsync folder

The files of a group go the same way, many at a time, and each folder is forced once: :mod:`trilake.storage.landing`.

The step before the last is where ``put_if_absent`` has its one winner: ``link`` fails where the name exists, whoever
made it.  Creating the name first and writing through it would show readers half an object, and looking before a rename
lets two writers both win.  Names that start with ``.`` are passed over by Delta, Lance, Hive and Spark readers.

Links to folders are followed by whoever reads and by whoever makes a new file.  Nothing is deleted or replaced behind
one: what lies there may be anybody's.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, NoReturn

import pyarrow as pa

from trilake.errors import ObjectExistsError, ObjectNotFoundError, StorageError, UnknownOutcomeError
from trilake.storage.base import ObjectMeta, Store, WriteGroup, check_key, check_prefix, check_range
from trilake.storage.durable import make_folder, sync, sync_folder
from trilake.storage.landing import LandingGroup
from trilake.storage.renameat import rename_noreplace
from trilake.storage.writer import AtomicWriter

TEMP_PREFIX, TEMP_SUFFIX = ".trilake-", ".tmp"
_TEMP_NAME = re.compile(r"\.trilake-[0-9a-f]{24}\.tmp")

#: Objects of at least this many bytes are mapped, smaller ones are read.
MAP_FROM = 1 << 20
_SMALL = 1 << 16  # what one read call takes: most commits fit
_BUFFER = 1 << 18  # how much a writer collects before it calls the kernel

#: Files of a group that are forced to disk together, and threads that do it.
_GROUP_FILES, _GROUP_THREADS = 64, 16

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait for its other end
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_MISSING = (FileNotFoundError, NotADirectoryError)
#: A folder that is only walked through needs no right to list it.
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def temporary_name() -> str:
    """A name that nobody else has, for a file or folder that listings do not show."""
    return f"{TEMP_PREFIX}{os.urandom(12).hex()}{TEMP_SUFFIX}"


class LocalStore(Store):
    """The folder ``root``, an absolute path; it is created with the first write.

    Links to files and folders are followed, in listings too, but nothing is deleted or replaced behind a link to a
    folder.  Deleting removes files; empty folders stay.
    """

    #: Files that are forced to disk together share the disk's own steps.
    writes_at_once = 8

    def __init__(self, uri: str, root: str, options: Mapping[str, str] | None = None) -> None:
        self.uri = uri
        self.options = dict(options or {})
        self._root = root if root.endswith("/") else root + "/"

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStore, (self.uri, self._root, dict(self.options))

    def local_path(self, key: str) -> str:
        return self._root + check_key(key)

    # --- reading ---

    def read(self, key: str) -> pa.Buffer:
        path = self._root + check_key(key)
        try:
            fd = os.open(path, _READ)
            try:
                data = os.read(fd, _SMALL)
                if 0 < len(data) < _SMALL and not os.read(fd, 1):
                    return pa.py_buffer(data)
                size = _size(fd, path)
                if size < MAP_FROM:
                    return pa.py_buffer(_read_at(fd, 0, size))
            finally:
                os.close(fd)
        except StorageError:
            raise
        except OSError as e:
            self._fail(e, "read", path)
        with self.open_input(key) as file:
            return file.read_buffer()

    def read_many(self, keys: Sequence[str]) -> list[pa.Buffer]:
        # One thread: from the page cache, threads cost more than they give.
        return [self.read(key) for key in keys]

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        return self.read_ranges(key, [(start, length)])[0]

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        path = self._root + check_key(key)
        for start, length in ranges:
            check_range(key, start, length)
        try:
            fd = os.open(path, _READ)
            try:
                size = _size(fd, path)
                # The object's end bounds the memory, whatever a damaged footer asks for.
                return [pa.py_buffer(_read_at(fd, min(s, size), min(n, max(size - s, 0)))) for s, n in ranges]
            finally:
                os.close(fd)
        except StorageError:
            raise
        except OSError as e:
            self._fail(e, "read", path)

    def head(self, key: str) -> ObjectMeta:
        path = self._root + check_key(key)
        try:
            status = os.stat(path)
        except OSError as e:
            self._fail(e, "look at", path)
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFoundError("this is a folder or a special file, not an object", file=path)
        return ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def open_input(self, key: str) -> pa.NativeFile:
        path = self._root + check_key(key)
        try:
            # An empty file cannot be mapped.
            if not stat.S_ISREG((status := os.stat(path)).st_mode):
                raise ObjectNotFoundError("this is a folder or a special file, not an object", file=path)
            if status.st_size == 0:
                return pa.BufferReader(b"")
            with suppress(OSError):  # some file systems cannot map; a missing file is reported below
                return pa.memory_map(os.fsencode(path), "r")
            return pa.OSFile(os.fsencode(path), "r")
        except StorageError:
            raise
        except OSError as e:
            self._fail(e, "open", path)

    # --- listing ---

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        return self._walk(check_prefix(prefix), start_after or "", temporary=False, inside=())

    def unfinished(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return self._walk(check_prefix(prefix), "", temporary=True, inside=())

    def _walk(
        self, folder: str, after: str, *, temporary: bool, inside: tuple[tuple[int, int], ...]
    ) -> Iterator[ObjectMeta]:
        """Depth first.  A folder sorts as its name with a slash, which makes the order that of the whole keys.

        ``folder`` is empty or ends with a slash.  ``inside`` holds the identities of the linked folders on the way.
        """
        path = self._root + folder
        staged = any(_is_temporary(name) for name in folder.split("/"))  # all that lies in such a folder is unfinished
        # Of a folder of 100,000 names, of which the last are wanted, the others need not be sorted.
        bound = after[len(folder) :] if after.isascii() and after.startswith(folder) else ""
        try:
            with os.scandir(path) as scan:
                names = [
                    entry.name + "/" if entry.is_dir() else entry.name
                    for entry in scan
                    if (entry.name >= bound or bound.startswith(entry.name))
                    and ((staged or _is_temporary(entry.name)) == temporary or (temporary and entry.is_dir()))
                ]
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except _MISSING:
            return
        except OSError as e:
            self._fail(e, "list", path)
        try:
            names.sort(key=None if all(map(str.isascii, names)) else os.fsencode)
            for name in names[_first_after(names, folder, after) :]:
                key = folder + name
                try:
                    # By the open folder: the kernel does not walk the whole path again for each name.
                    status = os.stat(name, dir_fd=fd)
                    linked = name.endswith("/") and os.path.islink(path + name[:-1])
                except FileNotFoundError:  # removed since, or a link to nowhere
                    continue
                except OSError as e:
                    self._fail(e, "look at", path + name)
                if stat.S_ISREG(status.st_mode):
                    yield ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)
                elif name.endswith("/"):
                    below = (*inside, (status.st_dev, status.st_ino)) if linked else inside
                    if not linked or below[-1] not in inside:  # else a circle of links
                        yield from self._walk(key, after, temporary=temporary, inside=below)
        finally:
            os.close(fd)

    # --- writing ---

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        with _LocalWriter(self._root, check_key(key)) as writer:
            writer.write(data)

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        path = self._root + check_key(key)
        # Only spares the loser a write: who wins is decided by the link.
        if os.path.lexists(path):
            raise ObjectExistsError("an object with this key exists already", file=path)
        with _LocalWriter(self._root, key, absent=True) as writer:
            writer.write(data)

    def open_output(self, key: str) -> IO[bytes]:
        return _LocalWriter(self._root, check_key(key)).as_io()

    def write_group(self) -> WriteGroup:
        def start(key: str, group: LandingGroup) -> IO[bytes]:
            return _GroupWriter(self._root, check_key(key), group).as_io()

        return LandingGroup(self, start, files=_GROUP_FILES, threads=_GROUP_THREADS)

    def delete(self, keys: Iterable[str]) -> None:
        at, fd = None, -1  # keys of one folder mostly come together
        try:
            for key in keys:
                folder, _, name = check_key(key).rpartition("/")
                try:
                    if folder != at:
                        if fd >= 0:
                            os.close(fd)
                        at, fd = None, -1
                        fd = self._open_folder(folder)
                        at = folder
                    os.unlink(name, dir_fd=fd)
                except _MISSING:
                    continue
                except OSError as e:
                    raise storage_error(e, "delete", self._root + key, writing=True) from e
        finally:
            if fd >= 0:
                os.close(fd)

    def _open_folder(self, folder: str) -> int:
        """A folder below the root, opened step by step: a link, even one that is put there now, is never followed."""
        fd = os.open(self._root, _WALK)
        try:
            for part in folder.split("/") if folder else ():
                below = os.open(part, _WALK | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = below
        except OSError as e:
            os.close(fd)
            if e.errno in (errno.ENOTDIR, errno.ELOOP) and self.passes_link(f"{folder}/x"):
                raise _behind_link("deleted", self._root + folder) from e
            raise
        return fd

    def passes_link(self, key: str) -> bool:
        return _passes_link(self._root, check_key(key))

    @staticmethod
    def _fail(error: OSError, action: str, path: str) -> NoReturn:
        raise storage_error(error, action, path) from error


class _LocalWriter(AtomicWriter):
    """A temporary file that gets its name when it is closed."""

    def __init__(self, root: str, key: str, *, absent: bool = False) -> None:
        self._path = root + key
        self.folder = os.path.dirname(self._path)
        self._temp = f"{self.folder}/{temporary_name()}"
        self._absent = absent
        self._linked = not absent and _passes_link(root, key)
        try:
            self._file = self._create()
        except OSError as e:
            raise storage_error(e, "create", self._path, writing=True) from e
        self._buffer = io.BufferedWriter(self._file, _BUFFER)
        super().__init__(key)

    def _create(self) -> io.FileIO:
        with suppress(FileNotFoundError):
            return io.FileIO(self._temp, "xb")
        try:
            make_folder(self.folder)
            return io.FileIO(self._temp, "xb")
        except OSError as e:
            raise storage_error(e, "create", self.folder, writing=True) from e

    def _append(self, data: memoryview) -> None:
        try:
            self._buffer.write(data)
        except OSError as e:
            raise storage_error(e, "write", self._path, writing=True) from e

    def _publish(self) -> None:
        self.land()
        try:
            sync_folder(self.folder)
        except OSError as e:
            raise UnknownOutcomeError(
                f"the file is there, but its folder could not be forced to disk: {e.strerror}", file=self._path
            ) from e

    def land(self) -> None:
        """Force the content to disk, and give the file its name, which is not forced to disk yet."""
        try:
            self._buffer.flush()
            sync(self._file.fileno())
            self._file.close()
            self._keep_folder()
            if self._absent or self._linked:
                _link(self._temp, self._path)
                with suppress(OSError):  # the object is there; at worst a temporary file is left
                    os.unlink(self._temp)
            else:
                os.rename(self._temp, self._path)
        except OSError as e:
            self._discard()
            if self._absent and isinstance(e, FileExistsError):
                raise ObjectExistsError("an object with this key exists already", file=self._path) from None
            if self._linked and isinstance(e, FileExistsError):
                raise _behind_link("replaced", self._path) from e
            raise storage_error(e, "write", self._path, writing=True) from e
        except BaseException:
            self._discard()  # an interrupt, or a file system that cannot do it
            raise

    def _keep_folder(self) -> None:
        make_folder(self.folder)

    def _discard(self) -> None:
        # The buffer is thrown away, so it must not flush into a file that is gone: close the file below it.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._temp)


class _GroupWriter(_LocalWriter):
    """A file of a group, which gives it its name and forces it and its folder to disk."""

    def __init__(self, root: str, key: str, group: LandingGroup) -> None:
        self._group = group
        super().__init__(root, key)

    def _create(self) -> io.FileIO:
        try:
            self._group.folders.make(self.folder)
        except OSError as e:
            raise storage_error(e, "create", self.folder, writing=True) from e
        return io.FileIO(self._temp, "xb")

    def _publish(self) -> None:
        try:
            self._buffer.flush()
        except OSError as e:
            self._discard()
            raise storage_error(e, "write", self._path, writing=True) from e
        self._group.add(self)

    def _keep_folder(self) -> None:
        """Done by the group."""

    def give_up(self) -> None:
        """Remove what was written."""
        self._discard()


# --- names ----------------------------------------------------------------------------------------------------------


def _is_temporary(name: str) -> bool:
    return name.startswith(TEMP_PREFIX) and _TEMP_NAME.fullmatch(name) is not None


def _passes_link(root: str, key: str) -> bool:
    """Whether a folder between the root and the last part of a key is a link."""
    at = key.find("/")
    while at >= 0:
        if os.path.islink(root + key[:at]):
            return True
        at = key.find("/", at + 1)
    return False


def _behind_link(action: str, path: str) -> StorageError:
    return StorageError(
        f"nothing is {action} behind a link to a folder: what lies there may belong to others",
        help="put a folder in the place of the link, or do it by hand",
        file=path,
    )


def _first_after(names: Sequence[str], folder: str, after: str) -> int:
    """Index of the first of the sorted ``names`` in ``folder`` that is, or holds, a key greater than ``after``."""
    if not after.startswith(folder):
        return 0 if os.fsencode(folder) > os.fsencode(after) else len(names)
    rest = after[len(folder) :]
    first = bisect_right(names, os.fsencode(rest), key=os.fsencode)
    # The folder that ``after`` lies in sorts just before it.
    return first - 1 if first and names[first - 1].endswith("/") and rest.startswith(names[first - 1]) else first


def _link(temp: str, path: str) -> None:
    """Give the temporary file its name, unless that exists: then ``FileExistsError``."""
    try:
        os.link(temp, path)
    except FileExistsError:
        # A network file system may repeat a request whose reply was lost, and then meet its own link.
        if not os.path.samefile(temp, path):
            raise
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        rename_noreplace(temp, path)


def _size(fd: int, path: str) -> int:
    """Size of an open file in bytes; pipes and devices are no objects."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ObjectNotFoundError("this is a folder or a special file, not an object", file=path)
    return status.st_size


def _read_at(fd: int, start: int, length: int) -> bytes:
    data = os.pread(fd, length, start)
    if len(data) == length or not data:
        return data
    # One call takes 2 GiB at most and may be cut short.
    parts = [data]
    have = len(data)
    while have < length and (data := os.pread(fd, length - have, start + have)):
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def storage_error(error: OSError, action: str, path: str, *, writing: bool = False) -> StorageError:
    """The typed error for what the operating system said about ``path``."""
    code = error.errno
    if isinstance(error, _MISSING) and not writing:
        return ObjectNotFoundError("no such file", file=path)
    if code == errno.EISDIR and not writing:
        return ObjectNotFoundError("this is a folder, not an object", file=path)
    help = None
    if code in (errno.EACCES, errno.EPERM):
        help = "check the owner and the permissions of the file and of its folder"
    elif code in (errno.ENOSPC, errno.EDQUOT):
        help = "free some space, then try again: nothing was changed"
    elif code == errno.EROFS:
        help = "the file system is mounted read-only"
    elif code == errno.EMFILE:
        help = "raise the limit of open files (ulimit -n)"
    elif isinstance(error, (NotADirectoryError, FileExistsError)):
        help = "a part of the path that must be a folder is a file"
    return StorageError(f"cannot {action} the file: {error.strerror or error}", help=help, file=path)
