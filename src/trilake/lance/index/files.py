"""Files of an index: tables in the file format of the dataset, read whole or page by page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.sources import open_source
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.v1.data_file import V1File
from trilake.lance.v2.container import FOOTER
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store

#: Rows of a file that is read whole, for each of its bytes: no encoding of distinct values has more.
_ROWS_PER_BYTE = 64
#: Rows of a page, at most.
_LARGEST_PAGE = 1 << 20


#: Bytes of pages that are kept, by default.
CACHE_BYTES = 1 << 26


class ReadCache:
    """Parts of index files that were read, by file and number; the least recently used goes first.

    May be used by several threads.
    """

    def __init__(self, size: int = CACHE_BYTES) -> None:
        self._size, self._used = size, 0
        self._entries: OrderedDict[tuple[str, int], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file: str, number: int) -> Any:
        """A part; ``None`` where it is not kept."""
        with self._lock:
            if (file, number) not in self._entries:
                return None
            self._entries.move_to_end((file, number))
            return self._entries[file, number][0]

    def keep(self, file: str, number: int, part: Any, size: int) -> None:
        """Keep a part of some bytes, unless it is larger than the cache."""
        if size > self._size:
            return
        with self._lock:
            self._used += size - self._entries.pop((file, number), (None, 0))[1]
            self._entries[file, number] = part, size
            while self._used > self._size:
                self._used -= self._entries.popitem(last=False)[1][1]


class PagedFile:
    """A file of version 2.x, whose rows are read in pages of equal size."""

    def __init__(self, file: V2File, page_rows: int) -> None:
        if not 1 <= page_rows <= _LARGEST_PAGE:
            raise CorruptFileError(f"an index cannot have pages of {page_rows} rows", file=file.file)
        self._file, self._page_rows = file, page_rows
        #: Name of the file, as errors give it.
        self.file = file.file
        #: Columns of the file.
        self.schema = file.schema
        #: Rows of the file, and pages of it.
        self.num_rows, self.num_batches = file.num_rows, -(-file.num_rows // page_rows)

    def read_batch(self, number: int) -> pa.RecordBatch:
        """The rows of a page.  Raises ``CorruptFileError``."""
        start = number * self._page_rows
        return self._file.read_rows(start, min(start + self._page_rows, self.num_rows))


def open_file(store: Store, key: str) -> V1File | V2File:
    """Open a file of either format.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for versions that are not read.
    """
    return open_if_2x(store, key) or V1File.open(store, key)


def open_if_2x(store: Store, key: str) -> V2File | None:
    """Open a file of version 2.x; ``None`` for one of another format.  Raises as :func:`open_file`."""
    try:
        return V2File.open(store, key)
    except UnsupportedProtocolError:
        return None
    except CorruptFileError:
        if open_source(store, key).size >= FOOTER.size:
            raise
        return None  # files of the first format can be so short


def read_whole(file: V1File | V2File) -> pa.RecordBatch:
    """All rows of a small file.  Raises ``CorruptFileError``."""
    if isinstance(file, V2File):
        check_rows(file)
        return file.read_rows(0, file.num_rows)
    batches = [file.read_batch(i) for i in range(file.num_batches)]
    table = pa.Table.from_batches(batches, file.schema.to_arrow()).combine_chunks().to_batches()
    return table[0] if table else pa.RecordBatch.from_pylist([], file.schema.to_arrow())


def check_rows(file: V2File) -> None:
    """Raise ``CorruptFileError`` for a file that claims far more rows than it has bytes."""
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

    ``buffers`` are written as global buffers; their numbers are metadata of the schema under these keys.
    """
    from trilake.lance.v2.writer import V2Writer  # late: most processes only read

    schema = LanceSchema.from_arrow(batch.schema.with_metadata(dict(metadata or {}) or None))
    with V2Writer(store, key, schema, version=(version.major, version.minor)) as writer:
        for name, data in (buffers or {}).items():
            writer.add_metadata({name: str(writer.add_global_buffer(data)).encode()})
        writer.write(batch)
        size = writer.close().size
    return key.rpartition("/")[2], size
