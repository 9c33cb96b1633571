"""``Source``: random access to the bytes of one Trevni file.

Readers fetch ranges, never the whole file, so that a projection reads only its columns.
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError, StorageError
from trilake.storage import Store, open_store
from trilake.storage.uri import Location, parse_location

#: Bytes to fetch together with the size of an object: the header, and all of a small file.
BEGIN = 1 << 16


class Source:
    """Random access to the bytes of one file of ``size`` bytes, which errors call ``name``."""

    def __init__(self, name: str, file: pa.NativeFile) -> None:
        self.name, self.size, self._file = name, int(file.size()), file

    def read(self, start: int, length: int) -> pa.Buffer:
        """Read ``length`` bytes from ``start``, within ``size``."""
        try:
            self._file.seek(start)
            data = self._file.read_buffer(length)
        except (OSError, ValueError) as e:
            raise StorageError(f"cannot read the file: {e}", file=self.name, offset=start) from e
        return self._whole(data, start, length)

    def _whole(self, data: pa.Buffer, start: int, length: int) -> pa.Buffer:
        if data.size != length:
            raise CorruptFileError(
                f"expected {length} bytes, got {data.size}: the file was truncated while it was read",
                file=self.name,
                offset=start,
            )
        return data


class RemoteSource(Source):
    """An object in a store, read by range."""

    def __init__(self, store: Store, key: str) -> None:
        self.name = f"{store.uri}/{key}"
        self._store, self._key = store, key
        self.size, self._begin = store.read_sized(key, BEGIN)

    def read(self, start: int, length: int) -> pa.Buffer:
        if start + length <= self._begin.size:
            return self._begin.slice(start, length)
        return self._whole(self._store.read_range(self._key, start, length), start, length)


def locate(path: str | os.PathLike[str]) -> tuple[Store, str]:
    """Return the store and the key of a file.

    >>> store, key = locate("/data/t/part-0.trv")
    >>> store.uri, key
    ('file:///data/t', 'part-0.trv')
    """
    place = parse_location(path)
    folder, _, key = place.path.rpartition("/")
    if not key:
        raise InvalidArgumentError(f"expected the path of a file, got {os.fspath(path)!r}")
    return open_store(Location(place.scheme, place.authority, folder).uri), key


def open_source(file: Any) -> Source:
    """Open a path or URI, a pair ``(store, key)``, a buffer, or an object with ``read``, ``seek`` and ``tell``.
    Raises ``ObjectNotFoundError`` for a missing file and ``InvalidArgumentError`` for other objects.
    """
    if isinstance(file, Source):
        return file
    if isinstance(file, str | os.PathLike):
        file = locate(file)
    if isinstance(file, tuple) and len(file) == 2 and isinstance(file[0], Store):
        store, key = file
        path = store.local_path(key)
        return RemoteSource(store, key) if path is None else Source(path, store.open_input(key))
    if isinstance(file, pa.Buffer | bytes | bytearray | memoryview):
        return Source("<memory>", pa.BufferReader(file))
    if hasattr(file, "read") and hasattr(file, "seek"):
        name = getattr(file, "name", None)
        name = name if isinstance(name, str) else f"<{type(file).__name__}>"
        try:
            return Source(name, pa.PythonFile(file, mode="r"))  # the reader does not close it
        except (OSError, ValueError, AttributeError) as e:
            raise StorageError(f"the file object does not support random access: {e}", file=name) from e
    raise InvalidArgumentError(
        f"expected a file, got {type(file).__name__}",
        help="pass a path, a URI, (store, key), bytes, or an object with read and seek",
    )
