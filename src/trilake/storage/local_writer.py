"""Write files of the local store: write to a temporary file, then rename it atomically.

::

    create .trilake-*.tmp -> write -> fsync -> link (put_if_absent) or rename (put, open_output)

The writer or its group then syncs the folder.  Many small files of a group share one sync of the file system::

    in memory --(many, or finish)--> written -> their file system is synced -> renamed     finish(): it is synced again
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, NoReturn

import pyarrow as pa

from trilake.errors import ObjectExistsError, StorageError, UnknownOutcomeError
from trilake.storage.base import AtomicWriter, Store, check_key, storage_error
from trilake.storage.durable import FileSystem, make_folder, sync, sync_folder, write_contents
from trilake.storage.landing import MOST_BYTES, LandingGroup, give_up

TEMP_PREFIX, TEMP_SUFFIX = ".trilake-", ".tmp"

_BUFFER = 1 << 18  # how much a writer buffers before it calls the kernel
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
#: From this many small files on, syncing the whole file system is faster; most files that wait for it.
_TOGETHER, _TOGETHER_MOST = 12, 2048
#: Files of a group that are synced together, and threads for it.
_GROUP_FILES, _GROUP_THREADS = 64, 16
#: Threads that create and rename small files, which takes processor time in the kernel.
_CREATING_THREADS = 2
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def temporary_name() -> str:
    """A unique name for a file or folder that listings hide."""
    return f"{TEMP_PREFIX}{os.urandom(12).hex()}{TEMP_SUFFIX}"


class LocalWriter(AtomicWriter):
    """A temporary file that is renamed when it is closed."""

    def __init__(self, root: str, key: str, *, absent: bool = False) -> None:
        self._path = root + key
        self.folder = os.path.dirname(self._path)
        self._absent = absent
        self._linked = not absent and passes_link(root, key)
        self._begin()
        super().__init__(key)

    def _begin(self) -> None:
        self._temp = f"{self.folder}/{temporary_name()}"
        try:
            self._file = self._create()
        except OSError as e:
            raise storage_error(e, "create", self._path, writing=True) from e
        self._buffer = io.BufferedWriter(self._file, _BUFFER)

    def _create(self) -> io.FileIO:
        with suppress(FileNotFoundError):
            return io.FileIO(self._temp, "xb")
        try:
            self._make_folder()
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
                f"the file was written, but its folder could not be synced: {e.strerror}", file=self._path
            ) from e

    def land(self) -> None:
        """Sync and rename the file, without syncing its folder."""
        try:
            self._buffer.flush()
            sync(self._file.fileno())
            self._file.close()
            self._keep_folder()
            _give_name(self._temp, self._path, exclusive=self._absent or self._linked)
        except OSError as e:
            self.fail(e)
        except BaseException:
            self._discard()  # an interrupt, or an unsupported file system
            raise

    def fail(self, error: OSError) -> NoReturn:
        """Remove the file after an error, and raise a typed error."""
        self._discard()
        raise _naming_error(error, self._path, absent=self._absent, linked=self._linked) from error

    def _make_folder(self) -> None:
        make_folder(self.folder)

    def _keep_folder(self) -> None:
        make_folder(self.folder)

    def _discard(self) -> None:
        # Close the raw file, without flushing the buffer.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._temp)


class GroupWriter(LocalWriter):
    """A file of a group, which syncs and renames it; a small one stays in memory until then, which is as safe."""

    def __init__(self, root: str, key: str, group: LocalGroup) -> None:
        self._group, self._path, self._absent = group, root + key, False
        self.folder = os.path.dirname(self._path)
        self._temp, self._created = "", False
        self._native: pa.NativeFile | None = None
        self._content: list[bytes] | None = []
        try:
            self._linked = group.prepare(self.folder, key)
        except OSError as e:
            raise storage_error(e, "create", self.folder, writing=True) from e
        AtomicWriter.__init__(self, key)

    @property
    def small(self) -> bool:
        return self._content is not None

    def _append(self, data: memoryview) -> None:
        if self._content is not None:
            if self._position + len(data) <= _BUFFER:
                self._content.append(bytes(data))
                return
            self._spill()
        super()._append(data)

    def _spill(self) -> None:
        content, self._content = self._content or [], None
        self._begin()
        for part in content:
            super()._append(memoryview(part))

    def native(self) -> pa.NativeFile | None:
        if self._position:
            return None
        if self.small:
            self._spill()
        try:
            self._native = pa.OSFile(os.fsencode(self._temp), "wb")
        except OSError as e:
            self.discard()
            raise self.failed_natively(e) from e
        return self._native

    def failed_natively(self, error: OSError) -> StorageError:
        self._failed = True
        code = error.errno or errno.EIO
        return storage_error(OSError(code, os.strerror(code)), "write", self._path, writing=True)

    def tell(self) -> int:
        return self._position if self._native is None or self._native.closed else self._native.tell()

    def _publish(self) -> None:
        if not self.small:
            try:
                self._buffer.flush()
                self._end_native()
            except OSError as e:
                self.fail(e)
        self._group.add_local(self)

    def _end_native(self) -> None:
        if self._native is not None and not self._native.closed:
            self._position = self._native.tell()
            self._native.close()

    def land(self) -> None:
        if self.small:
            try:
                self._spill()
            except BaseException:
                self._discard()
                raise
        super().land()

    def write_out(self) -> None:
        """Write the content to a temporary file, without syncing."""
        data, self._content = b"".join(self._content or ()), []
        self._temp = f"{self.folder}/{temporary_name()}"
        try:
            with self._create() as self._file:
                num_bytes = self._file.write(data)
                while num_bytes < len(data):  # a full disk accepts a part, and fails at the next call
                    num_bytes += self._file.write(memoryview(data)[num_bytes:])
        except OSError as e:
            self.fail(e)

    def give_name(self) -> None:
        """Rename a synced file."""
        try:
            _give_name(self._temp, self._path, exclusive=self._absent or self._linked)
        except OSError as e:
            self.fail(e)

    def _make_folder(self) -> None:
        self._group.folders.make(self.folder, again=True)

    def _keep_folder(self) -> None:
        """Do nothing, as the group syncs the folder."""

    def _create(self) -> io.FileIO:
        file = super()._create()
        self._created = True
        return file

    def _discard(self) -> None:
        with suppress(OSError):
            self._end_native()
        if self._created:
            super()._discard()

    def give_up(self) -> None:
        self._discard()


# --- groups of files ---


class LocalGroup(LandingGroup):
    """A group on local disks.  Small files wait in memory; many are synced with their file system."""

    def __init__(self, store: Store, root: str) -> None:
        super().__init__(store, files=_GROUP_FILES, threads=_GROUP_THREADS)
        self._root = root
        self._small: list[GroupWriter] = []
        self._small_bytes = 0
        #: Created folders, and whether their path has a link.
        self._prepared: dict[str, bool] = {}
        self._system: FileSystem | None = None
        self._one_by_one = False

    def open_output(self, key: str) -> IO[bytes]:
        return GroupWriter(self._root, check_key(key), self).as_io()

    def prepare(self, folder: str, key: str) -> bool:
        """Create the ``folder`` of a key; return whether its path has a symbolic link.  Raises ``OSError``."""
        linked = self._prepared.get(folder)
        if linked is None:
            self.folders.make(folder)
            linked = self._prepared[folder] = passes_link(self._root, key)
        return linked

    def add_local(self, file: GroupWriter) -> None:
        """Add a closed file."""
        if self._one_by_one or not file.small:
            self.add(file)
            return
        self._small.append(file)
        self._small_bytes += file.tell()
        if len(self._small) == _TOGETHER and self._system is None:
            self._system = FileSystem.of(file.folder)
            if self._system is None:
                self._one_by_one = True
                self._add_small()
        elif self._small_bytes >= MOST_BYTES or len(self._small) >= _TOGETHER_MOST:
            files = self._together()
            if files:
                while len(self._running) >= self._most:
                    self._settle()
                self._running.append((self._threads().submit(self._land_together, files, threads=1), files))

    def _add_small(self) -> None:
        """Treat the small files as large ones."""
        files, self._small, self._small_bytes = self._small, [], 0
        for file in files:
            self.add(file)

    def _together(self) -> list[GroupWriter]:
        """The small files that can be synced together; treat the others as large."""
        if not self._small or self._system is None or not self._system.is_quick(2 * len(self._small)):
            self._add_small()
            return []
        device = self._system.device
        together: list[GroupWriter] = []
        others: list[GroupWriter] = []
        for file in self._small:
            (together if self.folders.device(file.folder) == device else others).append(file)
        self._small = others
        self._add_small()
        return together

    def _land_together(self, files: Sequence[GroupWriter], *, threads: int) -> None:
        assert self._system is not None
        try:
            self._each(GroupWriter.write_out, files, threads)
            try:
                self._system.force()
            except OSError as e:
                files[0].fail(e)
            self._each(GroupWriter.give_name, files, threads)
            self._filled.update(file.folder for file in files)
        except BaseException:
            give_up(files)
            raise

    def finish(self) -> None:
        try:
            if self._system is not None and (files := self._together()):
                self._land_together(files, threads=_CREATING_THREADS)
            self._add_small()
            super().finish()
        finally:
            self._close()

    def _force_folders(self) -> None:
        if self._system is None and len(self._filled) >= _TOGETHER:
            self._system = FileSystem.of(next(iter(self._filled)))
        system = self._system if self._system and self._system.is_quick(len(self._filled)) else None
        self.folders.force(self._filled, self._each, system)

    def abandon(self) -> None:
        give_up(self._small)
        self._small = []
        super().abandon()
        self._close()

    def _close(self) -> None:
        if self._system is not None:
            self._system.close()
            self._system = None


# --- names ---


def _give_name(temp: str, path: str, *, exclusive: bool) -> None:
    if exclusive:
        link(temp, path)
        with suppress(OSError):  # the object exists; at worst a temporary file is left
            os.unlink(temp)
    else:
        os.rename(temp, path)


def _naming_error(error: OSError, path: str, *, absent: bool, linked: bool) -> StorageError:
    if isinstance(error, FileExistsError) and absent:
        return ObjectExistsError("the object already exists", file=path)
    if isinstance(error, FileExistsError) and linked:
        return behind_link("replaced", path)
    return storage_error(error, "write", path, writing=True)


def passes_link(root: str, key: str) -> bool:
    """Whether a folder between the root and the last part of a key is a symbolic link."""
    at = key.find("/")
    while at >= 0:
        if os.path.islink(root + key[:at]):
            return True
        at = key.find("/", at + 1)
    return False


def behind_link(action: str, path: str) -> StorageError:
    """The error for an operation that is not allowed behind a symbolic link."""
    message = f"a file behind a symbolic link to a folder cannot be {action}, because it may belong to another table"
    return StorageError(message, help="replace the symbolic link with a folder, or change the file by hand", file=path)


def link(temp: str, path: str) -> None:
    """Give the temporary file its name; raises ``FileExistsError`` if it is taken."""
    try:
        os.link(temp, path)
    except FileExistsError:
        # A network file system may repeat a request after a lost reply, and find its own link.
        if not os.path.samefile(temp, path):
            raise
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        rename_noreplace(temp, path)


def rename_noreplace(source: str, target: str) -> None:
    """Rename a file in one step unless ``target`` exists (``FileExistsError``).

    Raises ``StorageError`` if the system does not support this, otherwise ``OSError``; then nothing has changed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    code = errno.ENOSYS
    if call is not None:
        if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
        message = "this file system supports neither hard links nor renaming without replacement"
        help = "use a file system with hard links: without them, two writers could both succeed"
        raise StorageError(message, help=help, file=target)
    raise OSError(code, os.strerror(code), target)


# --- Small files whose order survives a power failure: sync all contents, then rename in order ------------------------

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_in_order(root: str, files: Sequence[tuple[str, bytes, bool | None]]) -> None:
    """Write ``(key, data, absent)`` in order; ``absent`` is ``None`` for a new file, which gets its name at once."""
    #: Open files with their first names (``None`` for a file to change in place), and how many have final names.
    opened: list[tuple[int, str | None]] = []
    num_named, key = 0, ""
    absent: bool | None = None
    try:
        for i, (key, data, absent) in enumerate(files):
            path = root + key
            again = any(key == earlier for earlier, _, _ in files[:i])
            replaces = absent is False and not again and not passes_link(root, key)
            existing = _but_for_last_byte(path, data) if replaces else None
            if existing is not None:
                opened.append((existing, None))
                continue
            temporary = path if absent is None else f"{os.path.dirname(path)}/{temporary_name()}"
            opened.append((_created(temporary), temporary))
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(opened[-1][0], rest) :]
        new = [fd for fd, first in opened if first is not None]
        if new and not write_contents(new):
            for fd in new:
                sync(fd)
        for (key, data, absent), (fd, first) in zip(files, opened, strict=True):
            if first is None:
                os.pwrite(fd, data[-1:], len(data) - 1)
            elif absent is not None:
                make_folder(os.path.dirname(first))
                _give_name(first, root + key, exclusive=absent or passes_link(root, key))
            num_named += 1
    except OSError as e:
        raise _naming_error(e, root + key, absent=bool(absent), linked=absent is False) from e
    finally:
        for i, (fd, first) in enumerate(opened):
            os.close(fd)
            if i >= num_named and first is not None:
                with suppress(OSError):
                    os.unlink(first)


#: Longer files are replaced.
_SHORT = 64


def _but_for_last_byte(path: str, data: bytes) -> int | None:
    """Open a file that has this content but for its last byte; ``None`` if there is none.

    Changing one byte is atomic, much faster than replacing the file, and safe with concurrent writers: as they change
    nothing but the last byte either, the file always has the content that one of them wrote.
    """
    if not 0 < len(data) <= _SHORT:
        return None
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    content = os.read(fd, _SHORT + 1)
    if len(content) == len(data) and content[:-1] == data[:-1] and os.fstat(fd).st_nlink == 1:
        return fd
    os.close(fd)
    return None


def _created(path: str) -> int:
    with suppress(FileNotFoundError):
        return os.open(path, _NEW, 0o666)
    make_folder(os.path.dirname(path))
    return os.open(path, _NEW, 0o666)
