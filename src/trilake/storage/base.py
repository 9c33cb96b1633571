"""The ``Store`` interface: everything trilake needs from a file system or object store.

A store is rooted at a URI; keys are ``/``-separated paths below that root, not URI-encoded.  Each implementation keeps
these promises, and ``tests/storage/test_contract.py`` cites them by number:

1. **Whole or not at all.**  A reader sees an object entirely or not at all, however its writer dies.
2. **One winner.**  Of all ``put_if_absent`` calls on one key, ever, at most one succeeds; the others raise
   ``ObjectExistsError`` and leave the winner's bytes untouched.
3. **Durable.**  When ``put``, ``put_if_absent`` or a writer's ``close`` returns, the object survives a power failure;
   the files of a ``write_group`` do so when its ``finish`` returns.
4. **Read your writes.**  After a write returns, ``read``, ``head`` and ``list`` of any client see it.
5. **Ordered listing.**  ``list`` yields objects in ascending byte order of their keys, and with ``start_after`` only
   those greater than it.
6. **Honest failure.**  A missing object is ``ObjectNotFoundError``; a write that certainly changed nothing raises
   another ``StorageError``; one that may have landed raises ``UnknownOutcomeError``.
"""

from __future__ import annotations

import errno
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import IO, Any, Self, cast

import pyarrow as pa

from trilake.errors import InvalidArgumentError, ObjectNotFoundError, StorageError, masked


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """An object's size in bytes, and the time of its last write in ms since the Unix epoch."""

    key: str
    size: int
    modified_ms: int


def check_key(key: str) -> str:
    """Return ``key`` if it names an object below a store's root.

    Raises ``InvalidArgumentError`` for an empty key, a leading or trailing slash, and an empty part, ``.``, ``..``
    or NUL, which stores treat differently or resolve outside the root.

    >>> check_key("_delta_log/00000000000000000000.json")
    '_delta_log/00000000000000000000.json'
    """
    # Three substring searches avoid the regular expression for nearly every key; it costs as much as opening a file.
    if "/." not in key and "//" not in key and "\0" not in key and key and key[0] not in "./" and key[-1] != "/":
        return key
    if _BAD_KEY(key) is None:
        return key
    raise InvalidArgumentError(
        f"{key!r} is not a valid key",
        help="a key is a relative path below the store's root, without empty parts, '.' or '..'",
    )


_BAD_KEY = re.compile(r"\A/|\A\Z|//|/\Z|\0|(?:\A|/)\.\.?(?:/|\Z)").search


def check_prefix(prefix: str) -> str:
    """Return the folder ``prefix`` with exactly one slash at its end; the root is empty.

    >>> check_prefix("_delta_log"), check_prefix("a/b/"), check_prefix("")
    ('_delta_log/', 'a/b/', '')
    """
    folder = prefix.rstrip("/")
    return f"{check_key(folder)}/" if folder else ""


def check_range(key: str, start: int, length: int) -> None:
    """Raise ``InvalidArgumentError`` for a negative number: damaged offsets must not read from the end."""
    if start < 0 or length < 0:
        raise InvalidArgumentError("a byte range must not be negative", file=key, start=start, length=length)


class WriteGroup:
    """Files that are only useful together.

    Each appears when it is closed, or at the latest when the group is finished, and is durable from then on.  This
    base class syncs each file when it is closed; stores override that with something cheaper.
    """

    #: How many files to close concurrently, since closing mostly waits.
    writes_at_once: int

    def __init__(self, store: Store) -> None:
        self.store = store
        self.writes_at_once = store.writes_at_once

    def open_output(self, key: str) -> IO[bytes]:
        """Open a writable file, like :meth:`Store.open_output`; the name must be unique."""
        return self.store.open_output(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.abandon()

    def finish(self) -> None:
        """Make all closed files visible and durable.  Raises the errors of closing files."""

    def abandon(self) -> None:
        """Wait for running work; no further file appears, and files that have appeared stay."""


class Store(ABC):
    """Objects below the root :attr:`uri`.  The module's docstring has its guarantees."""

    #: Root of the store as a URI without a trailing slash, e.g. ``file:///data/t`` or ``s3://bucket/t``.
    uri: str
    #: The options to reopen it in another process.
    options: Mapping[str, str]
    #: How many writers to close concurrently, since closing mostly waits.
    writes_at_once: int = 1

    @abstractmethod
    def read(self, key: str) -> pa.Buffer:
        """Read the whole object.  Raises ``ObjectNotFoundError``."""

    @abstractmethod
    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        """Read ``length`` bytes; fewer only at the end of the object.  Raises ``ObjectNotFoundError``."""

    def read_sized(self, key: str, length: int, *, end: bool = False) -> tuple[int, pa.Buffer]:
        """The object's size and its first, or last, ``length`` bytes, if possible in one request."""
        size = self.head(key).size
        return size, self.read_range(key, max(size - length, 0) if end else 0, min(length, size))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Read several ``(start, length)`` ranges of one object; object stores coalesce and parallelise them."""
        return [self.read_range(key, start, length) for start, length in ranges]

    def read_many(self, keys: Sequence[str]) -> list[pa.Buffer]:
        """Read several whole objects, in the order of ``keys``, in parallel where that is faster."""
        return [self.read(key) for key in keys]

    def at_once(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run independent calls, in parallel where that is faster; raise the first error, in their order."""
        return [call() for call in calls]

    @abstractmethod
    def head(self, key: str) -> ObjectMeta:
        """The size and time of an object.  Raises ``ObjectNotFoundError``."""

    def find(self, key: str) -> ObjectMeta | None:
        """The size and time of an object; ``None`` if it is missing."""
        try:
            return self.head(key)
        except ObjectNotFoundError:
            return None

    @abstractmethod
    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        """List all objects below the folder ``prefix`` (recursively), in key order, after ``start_after``.

        The listing of a missing folder is empty.  ``prefix`` names a folder: ``"a"`` does not match ``ab/x``.
        """

    @abstractmethod
    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        """Write or replace an object."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        """Write an object that must not exist.  Raises ``ObjectExistsError`` if it does."""

    def put_in_order(self, new: Sequence[tuple[str, bytes]], named: Sequence[tuple[str, bytes, bool]] = ()) -> None:
        """Write ``new`` objects in any order, then ``(key, data, absent)`` one after another.

        Those with ``absent`` are written like :meth:`put_if_absent`.  Only for data that can be rebuilt: a power
        failure may lose the last objects, but never one before an object that stays.  After an error some objects are
        written, perhaps partly if ``new``; so only the others may refer to them.
        """
        self.at_once([partial(self.put, key, data) for key, data in new])
        for key, data, absent in named:
            (self.put_if_absent if absent else self.put)(key, data)

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""

    @abstractmethod
    def open_input(self, key: str) -> pa.NativeFile:
        """Open the object as a random-access Arrow file; see :func:`trilake.storage.reader.expect`."""

    @abstractmethod
    def open_output(self, key: str) -> IO[bytes]:
        """Open a writable file, whose content appears when it is closed; a block that raises discards it."""

    def write_group(self) -> WriteGroup:
        """A group of files that become durable together."""
        return WriteGroup(self)

    def unfinished(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """The temporary files of writers, which :meth:`list` hides; the writer of an old one is dead.  Object stores
        have none."""
        return iter(())

    def local_path(self, key: str) -> str | None:
        """The absolute path of a key on the local file system; ``None`` elsewhere."""
        return None

    def passes_link(self, key: str) -> bool:
        """Whether a folder between the root and the last part of ``key`` is a symbolic link (on file systems only)."""
        return False

    def like(self, other: Store) -> Store:
        """Wrap ``other`` like this store, for example with faults; by default return ``other``."""
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({masked(self.uri)!r})"

    @abstractmethod
    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call that reopens the same store."""


# --- AtomicWriter: the file object behind Store.open_output -----------------------------------------------------------
# ::
#
#                  close()
#     open ---------------------> published   the object is there, whole and durable
#      | \----------------------> failed      as the error of close() says
#      |
#      | discard(), an exception in the with block, or garbage collection
#      \------------------------> discarded   nothing is there


class AtomicWriter(io.RawIOBase):
    """A write-only binary file whose content appears as a whole when it is closed.

    Subclasses implement :meth:`_append`, :meth:`_publish` and :meth:`_discard`, which raise :mod:`trilake.errors`.
    """

    def __init__(self, key: str) -> None:
        super().__init__()
        #: Key of the future object.
        self.name = key
        self._position = 0
        self._failed = False

    @abstractmethod
    def _append(self, data: memoryview) -> None: ...

    @abstractmethod
    def _publish(self) -> None: ...

    @abstractmethod
    def _discard(self) -> None: ...

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        """Append a bytes-like object and return its size in bytes."""
        self._checkClosed()
        view = memoryview(data).cast("B")
        try:
            self._append(view)
        except BaseException:
            # The object would lack these bytes, so it must not be published.
            self._failed = True
            raise
        self._position += len(view)
        return len(view)

    def native(self) -> pa.NativeFile | None:
        """A native Arrow file to write to, if there is one; :meth:`failed_natively` translates its errors."""
        return None

    def failed_natively(self, error: OSError) -> StorageError:
        """Translate an error of the :meth:`native` file; the object is not published."""
        self._failed = True
        return StorageError(f"cannot write the file: {error.strerror or error}", file=self.name)

    def close(self) -> None:
        """Publish the object, or discard it after a failed write."""
        if self.closed:
            return
        super().close()
        if self._failed:
            self._discard()
        else:
            self._publish()

    def discard(self) -> None:
        """Discard the content; the object does not appear."""
        if not self.closed:
            super().close()
            self._discard()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # io.IOBase closes files that are collected, which would publish half an object.
        if hasattr(self, "_failed"):
            self.discard()

    def as_io(self) -> IO[bytes]:
        """This writer, typed as a binary file."""
        return cast("IO[bytes]", self)


def is_missing(error: OSError) -> bool:
    """Whether the file does not exist, or cannot exist since its name is too long."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ENAMETOOLONG


def storage_error(error: OSError, action: str, path: str, *, writing: bool = False) -> StorageError:
    """The typed error for an operating system error about ``path``."""
    code = error.errno
    if is_missing(error) and not writing:
        return ObjectNotFoundError("no such file", file=path)
    if code == errno.EISDIR and not writing:
        return ObjectNotFoundError("expected a file, got a folder", file=path)
    help = None
    if code in (errno.EACCES, errno.EPERM):
        help = "check the owner and permissions of the file and its folder"
    elif code in (errno.ENOSPC, errno.EDQUOT):
        help = "free some space, then try again: nothing was changed"
    elif code == errno.EROFS:
        help = "the file system is mounted read-only"
    elif code == errno.ENAMETOOLONG:
        help = "choose a shorter name; partition by columns with short values"
    elif code == errno.EMFILE:
        help = "raise the limit of open files (ulimit -n)"
    elif isinstance(error, (NotADirectoryError, FileExistsError)):
        help = "a parent of the path is a file, not a folder"
    return StorageError(f"cannot {action} the file: {error.strerror or error}", help=help, file=path)
