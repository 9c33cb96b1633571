"""``V2Writer``: a data file of version 2.0, 2.1 or 2.2, batch by batch.

::

    pages, as columns have gathered enough rows | schema | metadata of each column | tables | footer

The file appears in the store as a whole when the writer is closed, or not at all.  Other threads encode pages while
this one writes earlier ones.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.interfaces import DataFileWriter, WrittenFile
from trilake.lance.file.schema import BLOB, PACKED, Field, LanceSchema
from trilake.lance.file.types import DESCRIPTION_V2, check_strings
from trilake.lance.proto import any_pb2, file2_pb2, format_pb2
from trilake.lance.v2 import encode_v20
from trilake.lance.v2.encode_miniblock import Page
from trilake.lance.v2.encode_options import Options
from trilake.lance.v2.encode_page import encode
from trilake.lance.v2.write_blobs import BlobWriter
from trilake.lance.v2.write_levels import Leaf, Levels
from trilake.storage.base import Store, WriteGroup


def shred(array: pa.Array, field: Field, levels: Levels, rows: int, minor: int) -> Iterator[Leaf]:
    """Shred nested rows into leaves.  Raises ``UnsupportedProtocolError`` for null structs without fields."""
    array = storage_array(array)
    kind = array.type
    if field.is_column:
        if pt.is_struct(kind) and not kind.num_fields and array.null_count:
            raise UnsupportedProtocolError(
                f"version 2.{minor} does not support nulls in structs without fields, got {array.null_count} nulls",
                help="add a field to the struct, or fill the nulls",
                column=field.name,
            )
        yield levels.item(array).leaf(array, rows)
    elif pt.is_struct(kind):
        inside = levels.item(array)
        for number, child in enumerate(field.children):
            yield from shred(array.field(number), child, inside, rows, minor)
    elif pt.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        yield from shred(items, field.children[0], levels.item(array).repeat(size), rows, minor)
    else:
        below, items = levels.lists(array)
        yield from shred(items, field.children[0], below, rows, minor)


#: Alignment of buffers, and the byte that fills the gaps.
ALIGN, _GAP = 64, b"\x48"
#: Bytes that a column gathers before it is encoded, and the default limit of a page.
PAGE_BYTES = 8 << 20
#: Up to this many bytes are encoded without a thread, and copied rather than written in two calls.
_FEW_BYTES = 1 << 16
#: Version numbers in the footer.
VERSIONS = {(2, 0): (0, 3), (2, 1): (2, 1), (2, 2): (2, 2)}
_PAGES = ("/lance.encodings.ArrayEncoding", "/lance.encodings21.PageLayout")
_COLUMN_ENCODING = "/lance.encodings.ColumnEncoding"


class V2Writer(DataFileWriter):
    """Write one data file.

    ``version`` is (2, 0), (2, 1) or (2, 2).  A page has rows of about ``max_page_bytes``; all columns together gather
    ``data_cache_bytes`` of rows before they are encoded, by default 8 MiB per column.

    >>> from trilake.storage.memory import MemoryStore
    >>> schema = LanceSchema.from_arrow(pa.schema({"a": pa.int64()}))
    >>> with V2Writer(MemoryStore("memory://docs"), "data/x.lance", schema) as writer:
    ...     writer.write(pa.record_batch({"a": pa.array([1, 2, 3])}))
    >>> writer.close().rows
    3
    """

    def __init__(
        self,
        store: Store | WriteGroup,
        key: str,
        schema: LanceSchema,
        *,
        version: tuple[int, int] = (2, 2),
        max_page_bytes: int = PAGE_BYTES,
        data_cache_bytes: int | None = None,
    ) -> None:
        if version not in VERSIONS:
            raise InvalidArgumentError(
                f"the version of a data file must be one of {', '.join(map(str, VERSIONS))}, got {version!r}", file=key
            )
        self._schema = schema
        self._version = version
        self._columns: list[Column] = []
        self._metadata: list[file2_pb2.ColumnMetadata] = []
        for field in schema.fields:
            column = Column(field, len(self._metadata), version[1])
            self._columns.append(column)
            for leaf in column.fields:
                encoding = _column_encoding(leaf.is_blob and version[1] == 0)
                self._metadata.append(file2_pb2.ColumnMetadata(encoding=encoding))
        whole = data_cache_bytes is None or not self._columns
        each = PAGE_BYTES if whole else (data_cache_bytes or 0) // len(self._columns)
        self._cache_bytes, self._page_bytes = max(each, 1), max(max_page_bytes, 1)
        self._blobs = BlobWriter(store, key, lambda data: self._append(data)[0], version[1])
        self._globals: list[tuple[int, int]] = []
        self._rows = 0
        self._position = 0
        self._key = key
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Column, Future[list[tuple[int, Page]]], int]] = deque()
        self._written: WrittenFile | None = None
        self._file = store.open_output(key)

    @property
    def num_rows(self) -> int:
        return self._rows

    @property
    def size(self) -> int:
        """Bytes written, plus the memory of rows that are not encoded yet."""
        waiting = sum(column.bytes for column in self._columns) + sum(size for *_, size in self._pending)
        return self._position + waiting

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch; ignore an empty one.  Raises ``SchemaMismatchError`` and ``UnsupportedProtocolError``."""
        if not batch.num_rows:
            return
        self._check(batch)
        for column, array in zip(self._columns, batch.columns, strict=True):
            column.add(self._blobs.replace(array, column.field))
            if column.bytes >= self._cache_bytes * len(column.fields):
                self._flush(column)
        self._rows += batch.num_rows

    def add_global_buffer(self, data: bytes) -> int:
        """Write a buffer that belongs to no column; return its number, from 1."""
        self._globals.append(self._append(data))
        return len(self._globals)

    def close(self) -> WrittenFile:
        """Finish the file; a second call returns the same result."""
        if self._written is not None:
            return self._written
        for column in self._columns:
            self._flush(column)
        while self._pending:
            self._write_first()
        self._stop()
        descriptor = file2_pb2.FileDescriptor(length=self._rows)
        descriptor.schema.fields.extend(self._fields())
        for key, value in self._schema.metadata_to_proto().items():
            descriptor.schema.metadata[key] = value
        buffers = [self._append(descriptor.SerializeToString()), *self._globals]
        start = self._position
        columns = [self._append(metadata.SerializeToString(), align=1) for metadata in self._metadata]
        column_table = self._append(b"".join(struct.pack("<QQ", *place) for place in columns), align=1)[0]
        buffer_table = self._append(b"".join(struct.pack("<QQ", *place) for place in buffers), align=1)[0]
        footer = (start, column_table, buffer_table, len(buffers), len(columns), *VERSIONS[self._version], b"LANC")
        self._append(struct.pack("<QQQIIHH4s", *footer), align=1)
        self._blobs.close()
        self._file.close()
        ids = tuple(leaf.id for column in self._columns for leaf in column.fields)
        self._written = WrittenFile(self._rows, ids, tuple(range(len(ids))), self._version, self._position)
        return self._written

    def discard(self) -> None:
        self._blobs.discard()
        super().discard()

    def _fields(self) -> list[format_pb2.Field]:
        """The messages of the file's fields; from 2.2 on, blobs are packed structs, whose fields have no ids."""
        messages = []
        for field in self._schema.walk():
            if field.is_blob and self._version[1] >= 2:
                metadata = {BLOB: b"true", PACKED: b"true"}
                below = LanceSchema.from_arrow(pa.schema(list(DESCRIPTION_V2))).fields
                children = tuple(replace(child, id=-1, parent_id=-1) for child in below)
                blob = replace(field, logical_type="struct", metadata=metadata, children=children)
                messages += LanceSchema((blob,)).to_proto()
            elif not (self._version[1] >= 2 and any(parent.is_blob for parent in self._schema.above(field))):
                messages.append(field.to_proto())
        return messages

    def _flush(self, column: Column) -> None:
        """Encode the gathered rows of a column, in a thread if they are many; write older pages while too many are
        pending.
        """
        for array in column.take(self._page_bytes):
            if array.nbytes <= _FEW_BYTES and not self._pending:
                self._write(column, column.pages(array))
                continue
            if self._pool is None:
                workers = min(os.cpu_count() or 1, 4)
                self._pool, self._ahead = ThreadPoolExecutor(workers, "trilake-lance-encode"), 2 * workers
            while len(self._pending) >= self._ahead:
                self._write_first()
            self._pending.append((column, self._pool.submit(column.pages, array), array.nbytes))

    def _write_first(self) -> None:
        column, future, _ = self._pending.popleft()
        self._write(column, future.result())

    def _write(self, column: Column, encoded: Sequence[tuple[int, Page]]) -> None:
        for number, page in encoded:
            pages = self._metadata[column.first + number].pages
            if pages and not page.buffers and self._version[1] == 0 and page.layout.HasField("struct"):
                pages[0].length += page.length  # readers of 2.0 expect all rows of a struct in one page
                continue
            priority = column.rows_before(number, page.rows) if self._version[1] else 0
            positions, sizes = zip(*map(self._append, page.buffers), strict=True) if page.buffers else ((), ())
            metadata = pages.add(length=page.length, priority=priority, buffer_offsets=positions, buffer_sizes=sizes)
            metadata.encoding.direct.encoding = _packed_any(_PAGES[self._version[1] > 0], page.layout)

    def _append(self, data: Any, align: int = ALIGN) -> tuple[int, int]:
        gap = -self._position % align
        size = memoryview(data).nbytes
        if gap + size <= _FEW_BYTES:
            self._file.write(b"".join((_GAP * gap, data)))
        else:
            self._file.write(_GAP * gap)
            self._file.write(memoryview(data).cast("B"))
        position = self._position + gap
        self._position = position + size
        return position, size

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class Column:
    """A top-level field: the rows that are not encoded yet, and the number of rows written per leaf."""

    def __init__(self, field: Field, first: int, minor: int) -> None:
        self.field, self.minor = field, minor
        #: The fields that are columns of the file, and the number of the first of these columns.
        self.fields = tuple(field.columns(parents=not minor))
        self.first = first
        self.bytes = 0

        self._arrays: list[pa.Array] = []
        self._written = [0] * len(self.fields)

    def add(self, array: pa.Array) -> None:
        self._arrays.append(array)
        self.bytes += array.nbytes

    def take(self, page_bytes: int) -> list[pa.Array]:
        """Remove and return the rows, in parts of about ``page_bytes``."""
        if not self._arrays:
            return []
        array = self._arrays[0] if len(self._arrays) == 1 else pa.concat_arrays(self._arrays)
        parts = min(max(round(self.bytes / page_bytes), 1), len(array))
        rows = -(-len(array) // parts)
        self._arrays, self.bytes = [], 0
        return [array.slice(start, rows) for start in range(0, len(array), rows)]

    def pages(self, array: pa.Array) -> list[tuple[int, Page]]:
        """Encode rows as pages, each with its column number."""
        if not self.minor:
            return list(encode_v20.pages(array, self.field))
        pages: list[tuple[int, Page]] = []
        leaves = shred(array, self.field, Levels(len(array)), len(array), self.minor)
        for number, (leaf, field) in enumerate(zip(leaves, self.fields, strict=True)):
            check_strings(leaf.values, field.name)
            pages += ((number, page) for page in encode(leaf, Options.of(field.metadata), self.minor))
        return pages

    def rows_before(self, leaf: int, rows: int) -> int:
        """Return the number of a page's first row, and count its rows as written."""
        before = self._written[leaf]
        self._written[leaf] += rows
        return before


@cache
def _column_encoding(blob: bool) -> file2_pb2.Encoding:
    values = file2_pb2.ColumnEncoding(values=file2_pb2.ColumnEncoding.Values())
    if blob:
        values = file2_pb2.ColumnEncoding(blob=file2_pb2.ColumnEncoding.Blob(inner=values))
    return file2_pb2.Encoding(direct=file2_pb2.Encoding.Direct(encoding=_packed_any(_COLUMN_ENCODING, values)))


def _packed_any(name: str, message: Any) -> bytes:
    """A serialized ``google.protobuf.Any``."""
    return bytes(any_pb2.Any(type_url=name, value=message.SerializeToString(deterministic=True)).SerializeToString())
