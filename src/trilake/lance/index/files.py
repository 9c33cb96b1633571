"""Index files: tables in the dataset's file format, read completely or page by page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trilake.errors import CorruptFileError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.v1.data_file import V1File
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store

#: Maximum rows per byte of a file that is read completely; real encodings are less dense.
_ROWS_PER_BYTE = 64

#: Default cache size in bytes.
CACHE_BYTES = 1 << 26


class ReadCache:
    """A thread-safe LRU cache of parts of index files, by file and number.

    ``size`` limits the sum of the sizes that :meth:`keep` is given: bytes, or 1 for each part.
    """

    def __init__(self, size: int = CACHE_BYTES) -> None:
        self.size, self._used = size, 0
        self._entries: OrderedDict[tuple[str, int], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        #: Number of lookups and of cache hits.
        self.requests = self.hits = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, file: str, number: int) -> Any:
        """Return a part, or ``None``."""
        with self._lock:
            self.requests += 1
            if (file, number) not in self._entries:
                return None
            self.hits += 1
            self._entries.move_to_end((file, number))
            return self._entries[file, number][0]

    def keep(self, file: str, number: int, part: Any, size: int = 1) -> None:
        """Add a part unless it is larger than the cache."""
        if size > self.size:
            return
        with self._lock:
            self._used += size - self._entries.pop((file, number), (None, 0))[1]
            self._entries[file, number] = part, size
            self._shrink()

    def resize(self, size: int) -> None:
        with self._lock:
            self.size = size
            self._shrink()

    def _shrink(self) -> None:
        while self._used > self.size:
            self._used -= self._entries.popitem(last=False)[1][1]


def read_whole(file: V1File | V2File) -> pa.RecordBatch:
    """Read all rows of a small file.  Raises ``CorruptFileError``."""
    if isinstance(file, V2File):
        check_rows(file)
    if not file.num_rows:
        return pa.RecordBatch.from_pylist([], file.schema.to_arrow())
    return file.read_rows(0, file.num_rows, file.schema)


def check_rows(file: V2File) -> None:
    """Raise ``CorruptFileError`` if the number of rows is implausible for the file size."""
    if file.num_rows > _ROWS_PER_BYTE * file.size:
        raise CorruptFileError(f"a file of {file.size} bytes claims {file.num_rows} rows", file=file.file)


def write_file(
    store: Store,
    key: str,
    batch: pa.RecordBatch,
    version: StorageVersion,
    metadata: Mapping[bytes, bytes] | None = None,
    buffers: Mapping[bytes, bytes] | None = None,
) -> tuple[str, int]:
    """Write a file of version 2.x, and return its name and size.

    ``buffers`` are added as global buffers; their numbers are stored in the schema metadata under the same keys.
    """
    from trilake.lance.v2.writer import V2Writer  # late: most processes only read

    schema = LanceSchema.from_arrow(batch.schema.with_metadata(dict(metadata or {}) or None))
    with V2Writer(store, key, schema, version=(version.major, version.minor)) as writer:
        for name, data in (buffers or {}).items():
            writer.add_metadata({name: str(writer.add_global_buffer(data)).encode()})
        writer.write(batch)
        size = writer.close().size
    return key.rpartition("/")[2], size
