"""The ``Store`` interface: everything trilake asks of a file system or object store.

A store is rooted at a URI; keys are ``/``-separated paths below that root, not URI-encoded.  Each implementation keeps
these promises, and ``tests/storage/test_contract.py`` cites them by number:

1. **Whole or not at all.**  A reader sees an object entirely or does not see it, whoever writes it and however it dies.
2. **One winner.**  Of all ``put_if_absent`` calls on one key, ever, at most one succeeds; the others raise
   ``ObjectExistsError`` and leave the winner's bytes untouched.
3. **Durable.**  When ``put``, ``put_if_absent`` or a writer's ``close`` returns, the object survives a power failure;
   the files of a ``write_group`` do so when its ``finish`` returns.
4. **Read your writes.**  After a write returned, ``read``, ``head`` and ``list`` of any client see it.
5. **Ordered listing.**  ``list`` yields objects in ascending byte order of their keys, and with ``start_after`` only
   those greater than it.
6. **Honest failure.**  A missing object is ``ObjectNotFoundError``; a write that certainly changed nothing raises
   another ``StorageError``; one that may have landed raises ``UnknownOutcomeError``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError, masked


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a store knows about one object.

    ``size`` in bytes; ``modified_ms`` the time of the last write in milliseconds since the Unix epoch.
    """

    key: str
    size: int
    modified_ms: int


def check_key(key: str) -> str:
    """Return ``key`` if it names an object below a store's root.

    Raises ``InvalidArgumentError`` for an empty key, for one that starts or ends with a slash, and for one with an
    empty part, ``.``, ``..`` or NUL: those are not the same object for every store, or lie outside of it.

    >>> check_key("_delta_log/00000000000000000000.json")
    '_delta_log/00000000000000000000.json'
    """
    # Three substring searches spare nearly every key the expression below, which costs as much as opening a file.
    if "/." not in key and "//" not in key and "\0" not in key and key and key[0] not in "./" and key[-1] != "/":
        return key
    if _BAD_KEY(key) is None:
        return key
    raise InvalidArgumentError(
        f"{key!r} is not the key of an object",
        help="a key is a relative path below the store's root, without empty parts, '.' and '..'",
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
    """Raise ``InvalidArgumentError`` unless both numbers are 0 or more: damaged offsets must not read from the end."""
    if start < 0 or length < 0:
        raise InvalidArgumentError("a byte range must not be negative", file=key, start=start, length=length)


class WriteGroup:
    """Files that are written together, and of which none is of use without the others.

    Each may appear when it is closed, at the latest when the group is finished; they are durable from then on.  Here
    each is forced to disk when it is closed; a store that can do it together at less cost has a group of its own.
    """

    #: How many of its files it pays to close at the same time, since most of that is waiting.
    writes_at_once: int

    def __init__(self, store: Store) -> None:
        self.store = store
        self.writes_at_once = store.writes_at_once

    def open_output(self, key: str) -> IO[bytes]:
        """A writable file, as that of :meth:`Store.open_output`; the name must be one that no one else uses."""
        return self.store.open_output(key)

    def finish(self) -> None:
        """Make all files that were closed visible and durable.  Raises what the end of each may raise."""

    def abandon(self) -> None:
        """Wait for what is under way: no file appears any more.  Those that have appeared stay."""


class Store(ABC):
    """A place for objects, rooted at :attr:`uri`.  See the head of this module for its promises."""

    #: Root of the store as a URI without a final slash, e.g. ``file:///data/t`` or ``s3://bucket/t``.
    uri: str
    #: The options it was opened with, enough to open it again in another process.
    options: Mapping[str, str]
    #: How many writers it pays to close at the same time, since most of that is waiting.
    writes_at_once: int = 1

    @abstractmethod
    def read(self, key: str) -> pa.Buffer:
        """The whole object.  Raises ``ObjectNotFoundError``."""

    @abstractmethod
    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        """``length`` bytes from ``start``; fewer only where the object ends.  Raises ``ObjectNotFoundError``."""

    def read_sized(self, key: str, length: int, *, end: bool = False) -> tuple[int, pa.Buffer]:
        """The object's size and its first ``length`` bytes, or with ``end`` its last ones: one request where that is
        possible.

        Raises ``ObjectNotFoundError``.
        """
        size = self.head(key).size
        return size, self.read_range(key, max(size - length, 0) if end else 0, min(length, size))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Several ``(start, length)`` ranges of one object; object stores coalesce and parallelise them."""
        return [self.read_range(key, start, length) for start, length in ranges]

    def read_many(self, keys: Sequence[str]) -> list[pa.Buffer]:
        """Several whole objects, in the order of ``keys``, fetched in parallel where that pays."""
        return [self.read(key) for key in keys]

    def at_once(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """What calls return that ask this store and do not need each other; one after another where nothing is gained.

        Where some of them fail, the error is that of the first one in order; those after it may have run.
        """
        return [call() for call in calls]

    @abstractmethod
    def head(self, key: str) -> ObjectMeta:
        """Size and time of an object.  Raises ``ObjectNotFoundError``."""

    @abstractmethod
    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        """All objects below the folder ``prefix`` (recursively), in key order, from after ``start_after`` on.

        A folder that does not exist is an empty listing.  ``prefix`` names a folder: ``"a"`` does not match ``ab/x``.
        """

    @abstractmethod
    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        """Write or replace an object."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        """Write an object that must not exist.  Raises ``ObjectExistsError`` where it does."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are passed over."""

    @abstractmethod
    def open_input(self, key: str) -> pa.NativeFile:
        """The object as a random-access Arrow file.  Raises ``ObjectNotFoundError``.

        Who knows what will be read of it says so with :func:`trilake.storage.reader.expect`.
        """

    @abstractmethod
    def open_output(self, key: str) -> IO[bytes]:
        """A writable file; the object appears when it is closed without an error, and never in part.

        Used as a context manager, an exception in the block discards what was written.
        """

    def write_group(self) -> WriteGroup:
        """A group of files that become durable together."""
        return WriteGroup(self)

    def unfinished(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """What writers that died left below ``prefix``: not shown by :meth:`list`, removed by :meth:`delete`.

        A writer that is still at work looks the same: remove only what is old enough.  Object stores keep unfinished
        uploads out of sight, so there it is empty.
        """
        return iter(())

    def local_path(self, key: str) -> str | None:
        """The absolute file path of a key, where the store is the local file system; else ``None``."""
        return None

    def passes_link(self, key: str) -> bool:
        """Whether a folder between the root and the last part of ``key`` is a link, which only file systems have."""
        return False

    def like(self, other: Store) -> Store:
        """``other`` with what this store adds to the one that it stands before, such as faults; itself by default."""
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({masked(self.uri)!r})"

    @abstractmethod
    def __reduce__(self) -> tuple[Any, ...]:
        """How another process opens the same store."""
