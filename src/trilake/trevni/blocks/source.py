"""``Source``: where the bytes of one Trevni file come from.

The reader asks for ranges only and never for the whole, so that a projection costs its own columns.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError, StorageError
from trilake.storage import Store, open_store
from trilake.storage.uri import Location, parse_location

#: Bytes that are fetched with an object's size: the header and, of a small file, much of the rest.
BEGIN = 1 << 16


class Source(ABC):
    """Random access to the bytes of one file.

    ``name`` says in errors which file it is; ``size`` is its length in bytes.
    """

    name: str
    size: int

    @abstractmethod
    def read(self, start: int, length: int) -> pa.Buffer:
        """``length`` bytes from ``start``; the caller has checked both against ``size``."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Several ``(start, length)`` ranges, in the order given."""
        return [self.read(start, length) for start, length in ranges]

    def _whole(self, data: pa.Buffer, start: int, length: int) -> pa.Buffer:
        if data.size != length:
            raise CorruptFileError(
                f"{length} bytes were requested, got {data.size}: the file was truncated while it was read",
                file=self.name,
                offset=start,
            )
        return data


class BufferSource(Source):
    """A file that is in memory already."""

    def __init__(self, data: pa.Buffer, name: str = "<memory>") -> None:
        self.name = name
        self.size = data.size
        self._data = data

    def read(self, start: int, length: int) -> pa.Buffer:
        return self._data.slice(start, length)


class StoreSource(Source):
    """An object of a :class:`trilake.storage.Store`; local files are mapped, others are read by ranges."""

    def __init__(self, store: Store, key: str) -> None:
        self.name = store.local_path(key) or f"{store.uri}/{key}"
        self._store, self._key = store, key
        self._file = store.open_input(key) if store.local_path(key) is not None else None
        self._begin = pa.py_buffer(b"")
        if self._file is not None:
            self.size = self._file.size()
        else:
            self.size, self._begin = store.read_sized(key, BEGIN)

    def read(self, start: int, length: int) -> pa.Buffer:
        if self._file is None:
            if start + length <= self._begin.size:
                return self._begin.slice(start, length)
            return self.read_ranges([(start, length)])[0]
        self._file.seek(start)
        return self._whole(self._file.read_buffer(length), start, length)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        if self._file is not None:
            return super().read_ranges(ranges)
        buffers = self._store.read_ranges(self._key, ranges)
        return [self._whole(data, start, length) for data, (start, length) in zip(buffers, ranges, strict=True)]


class FileSource(Source):
    """An object with ``read`` and ``seek``, opened for reading bytes; it is not closed by the reader."""

    def __init__(self, file: Any) -> None:
        name = getattr(file, "name", None)
        self.name = name if isinstance(name, str) else f"<{type(file).__name__}>"
        self._file = file
        try:
            file.seek(0, io.SEEK_END)
            self.size = int(file.tell())
        except (OSError, ValueError, AttributeError) as e:
            raise StorageError(f"the file object cannot be read at random: {e}", file=self.name) from e

    def read(self, start: int, length: int) -> pa.Buffer:
        try:
            self._file.seek(start)
            data = self._file.read(length)
        except (OSError, ValueError) as e:
            raise StorageError(f"cannot read the file object: {e}", file=self.name, offset=start) from e
        return self._whole(pa.py_buffer(data), start, length)


def locate(path: str | os.PathLike[str]) -> tuple[Store, str]:
    """The store and key of one file.

    >>> store, key = locate("/data/t/part-0.trv")
    >>> store.uri, key
    ('file:///data/t', 'part-0.trv')
    """
    place = parse_location(path)
    folder, _, key = place.path.rpartition("/")
    if not key:
        raise InvalidArgumentError(f"{os.fspath(path)!r} names no file")
    return open_store(Location(place.scheme, place.authority, folder).uri), key


def open_source(file: Any) -> Source:
    """The source behind what a caller may pass for a file.

    Parameters
    ----------
    file: a path or URI, a pair ``(store, key)``, bytes (any buffer), or an object with ``read``, ``seek`` and ``tell``.

    Raises ``ObjectNotFoundError`` where there is no such file and ``InvalidArgumentError`` for anything else.
    """
    if isinstance(file, Source):
        return file
    if isinstance(file, str | os.PathLike):
        return StoreSource(*locate(file))
    if isinstance(file, tuple) and len(file) == 2 and isinstance(file[0], Store):
        return StoreSource(*file)
    if isinstance(file, pa.Buffer):
        return BufferSource(file)
    if isinstance(file, bytes | bytearray | memoryview):
        return BufferSource(pa.py_buffer(file))
    if hasattr(file, "read") and hasattr(file, "seek"):
        return FileSource(file)
    raise InvalidArgumentError(
        f"a {type(file).__name__} is not a file",
        help="pass a path, a URI, (store, key), bytes, or an object with read and seek",
    )
