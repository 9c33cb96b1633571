"""``LocalStore``: the local file system, durable.

Each write goes to a temporary file, which is synced and renamed atomically; then the folder is synced.  A process that
dies leaves at most a temporary file::

    create .trilake-*.tmp -> write -> fsync -> link (put_if_absent) or rename (put, open_output) -> fsync folder

Files of a group are synced and renamed many at a time, and each folder is synced once.

``link`` gives ``put_if_absent`` its one winner: it fails if the name exists.  Creating the final file first would show
readers half an object, and checking before a rename would let two writers win.  Delta, Lance, Hive and Spark readers
ignore names that start with ``.``.

Reads and new files follow symbolic links to folders.  Nothing behind such a link is deleted or replaced, since it may
belong to another table.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import IO, Any, NoReturn

import pyarrow as pa

from trilake.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from trilake.storage.base import (
    ObjectMeta,
    Store,
    WriteGroup,
    check_key,
    check_prefix,
    check_range,
    is_missing,
    storage_error,
)
from trilake.storage.local_writer import (
    TEMP_PREFIX,
    LocalGroup,
    LocalWriter,
    behind_link,
    passes_link,
    write_in_order,
)

_TEMP_NAME = re.compile(r"\.trilake-[0-9a-f]{24}\.tmp")

#: Larger objects are memory-mapped, smaller ones are read.
MAP_FROM = 1 << 20
_MANY, _DELETING_THREADS = 64, 4  # from this many files on, threads delete them: the kernel takes most of the time
_SMALL = 1 << 16  # bytes per read call: most commits fit

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # do not block on a pipe
#: To traverse a folder without permission to list it.
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class LocalStore(Store):
    """The folder ``root``, an absolute path; it is created with the first write.

    Symbolic links are followed, also in listings, but nothing is deleted or replaced behind a link to a folder.  Empty
    folders stay.
    """

    #: Concurrent syncs share the disk's work.
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
                # Limited by the object's size, as a damaged footer may request any range.
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
            self._fail(e, "stat", path)
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFoundError("expected a file, got a folder or a special file", file=path)
        return ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def open_input(self, key: str) -> pa.NativeFile:
        path = self._root + check_key(key)
        try:
            # An empty file cannot be mapped.
            if not stat.S_ISREG((status := os.stat(path)).st_mode):
                raise ObjectNotFoundError("expected a file, got a folder or a special file", file=path)
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
        """Walk depth first.  A folder sorts as its name with a slash, so the order is that of whole keys.

        ``folder`` is empty or ends with a slash.  ``inside`` has the identities of the linked parent folders.
        """
        path = self._root + folder
        staged = any(_is_temporary(name) for name in folder.split("/"))  # a temporary folder
        # Do not sort 100,000 names for the last few.
        bound = after[len(folder) :] if after.isascii() and after.startswith(folder) else ""
        names, links = [], set()
        try:
            with os.scandir(path) as scan:
                for entry in scan:
                    name = entry.name
                    if bound and name < bound and not bound.startswith(name):
                        continue
                    is_folder = entry.is_dir()
                    if (staged or _is_temporary(name)) != temporary and not (temporary and is_folder):
                        continue
                    names.append(name + "/" if is_folder else name)
                    if is_folder and entry.is_symlink():
                        links.add(names[-1])
        except OSError as e:
            if is_missing(e):
                return
            self._fail(e, "list", path)
        if len(names) > 1:
            names.sort(key=None if all(map(str.isascii, names)) else os.fsencode)
        for name in names[_first_after(names, folder, after) :] if after else names:
            key = folder + name
            if name.endswith("/") and name not in links:
                yield from self._walk(key, after, temporary=temporary, inside=inside)
                continue
            try:
                status = os.stat(path + name)
            except FileNotFoundError:  # removed since, or a dangling link
                continue
            except OSError as e:
                self._fail(e, "stat", path + name)
            if stat.S_ISREG(status.st_mode):
                yield ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)
            elif name in links:
                identity = (status.st_dev, status.st_ino)
                if identity not in inside:  # otherwise a cycle of links
                    yield from self._walk(key, after, temporary=temporary, inside=(*inside, identity))

    # --- writing ---

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        with LocalWriter(self._root, check_key(key)) as writer:
            writer.write(data)

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        path = self._root + check_key(key)
        # Only saves a write: the link decides which writer wins.
        if os.path.lexists(path):
            raise ObjectExistsError("the object already exists", file=path)
        with LocalWriter(self._root, key, absent=True) as writer:
            writer.write(data)

    def put_in_order(self, new: Sequence[tuple[str, bytes]], named: Sequence[tuple[str, bytes, bool]] = ()) -> None:
        files = [*((check_key(k), data, None) for k, data in new), *((check_key(k), data, a) for k, data, a in named)]
        write_in_order(self._root, files)

    def open_output(self, key: str) -> IO[bytes]:
        return LocalWriter(self._root, check_key(key)).as_io()

    def write_group(self) -> WriteGroup:
        return LocalGroup(self, self._root)

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        if len(names) < _MANY:
            self._delete(names)
            return
        size = -(-len(names) // _DELETING_THREADS)
        with ThreadPoolExecutor(_DELETING_THREADS, "trilake-delete") as threads:
            parts = (names[i : i + size] for i in range(0, len(names), size))
            deleted = [threads.submit(self._delete, part) for part in parts]
        for future in deleted:
            future.result()

    def _delete(self, keys: Sequence[str]) -> None:
        at, fd = None, -1  # adjacent keys are usually in the same folder
        with ExitStack() as opened:
            for key in keys:
                folder, _, name = check_key(key).rpartition("/")
                try:
                    if folder != at:
                        at = None
                        opened.close()
                        fd = self._open_folder(folder)
                        opened.callback(os.close, fd)
                        at = folder
                    os.unlink(name, dir_fd=fd)
                except OSError as e:
                    if is_missing(e):
                        continue
                    raise storage_error(e, "delete", self._root + key, writing=True) from e

    def _open_folder(self, folder: str) -> int:
        """Open a folder below the root step by step, without following symbolic links, even concurrent ones."""
        fd = os.open(self._root, _WALK)
        try:
            for part in folder.split("/") if folder else ():
                below = os.open(part, _WALK | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = below
        except OSError as e:
            os.close(fd)
            if e.errno in (errno.ENOTDIR, errno.ELOOP) and self.passes_link(f"{folder}/x"):
                raise behind_link("deleted", self._root + folder) from e
            raise
        return fd

    def passes_link(self, key: str) -> bool:
        return passes_link(self._root, check_key(key))

    @staticmethod
    def _fail(error: OSError, action: str, path: str) -> NoReturn:
        raise storage_error(error, action, path) from error


# --- names ----------------------------------------------------------------------------------------------------------


def _is_temporary(name: str) -> bool:
    return name.startswith(TEMP_PREFIX) and _TEMP_NAME.fullmatch(name) is not None


def _first_after(names: Sequence[str], folder: str, after: str) -> int:
    """The index of the first of the sorted ``names`` in ``folder`` with a key greater than ``after``."""
    if not after.startswith(folder):
        return 0 if os.fsencode(folder) > os.fsencode(after) else len(names)
    rest = after[len(folder) :]
    first = bisect_right(names, os.fsencode(rest), key=os.fsencode)
    # The folder that contains ``after`` sorts just before it.
    return first - 1 if first and names[first - 1].endswith("/") and rest.startswith(names[first - 1]) else first


def _size(fd: int, path: str) -> int:
    """The size of an open file in bytes; rejects pipes and devices."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ObjectNotFoundError("expected a file, got a folder or a special file", file=path)
    return status.st_size


def _read_at(fd: int, start: int, length: int) -> bytes:
    data = os.pread(fd, length, start)
    if len(data) == length or not data:
        return data
    # One call writes at most 2 GiB, or less.
    parts = [data]
    have = len(data)
    while have < length and (data := os.pread(fd, length - have, start + have)):
        parts.append(data)
        have += len(data)
    return b"".join(parts)
