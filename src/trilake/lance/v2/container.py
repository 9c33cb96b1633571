"""The container of 2.x files: footer, offset tables, schema, and the pages of each column.

The end of the file is read once; the pages of a column are parsed when the column is first read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add
from typing import Any, NamedTuple

import pyarrow as pa

from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.lance.file import framing
from trilake.lance.file.sources import Source
from trilake.lance.proto import DecodeError, any_pb2, encodings20_pb2, encodings21_pb2, encodings23_pb2, file2_pb2

FOOTER = struct.Struct("<QQQIIHH4s")
#: File format version by the version numbers in the footer.
VERSIONS = {(0, 3): (2, 0), (2, 0): (2, 0), (2, 1): (2, 1), (2, 2): (2, 2), (2, 3): (2, 3)}
#: Row offsets in a fragment have 32 bits.
MAX_ROWS = 1 << 32
_ENTRY = 16
#: The messages that describe pages, each with the versions of the files that have them.
_URLS: dict[str, tuple[Any, tuple[tuple[int, int], ...]]] = {
    "/lance.encodings.ArrayEncoding": (encodings20_pb2.ArrayEncoding, ((2, 0),)),
    "/lance.encodings21.PageLayout": (encodings21_pb2.PageLayout, ((2, 1), (2, 2))),
    "/lance.encodings23.PlanarLayout": (encodings23_pb2.PlanarLayout, ((2, 3),)),
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a column, with rows (or items) from ``first`` on, and buffers at pairs of position and size.

    ``encoding`` is an ``ArrayEncoding`` in files of 2.0, a ``PlanarLayout`` in those of 2.3, else a ``PageLayout``.
    """

    first: int
    length: int
    encoding: Any
    buffers: Sequence[tuple[int, int]]


class ColumnPages(NamedTuple):
    """The pages of a column, the number after its last row, and the bytes of its buffers."""

    pages: list[Page]
    end: int
    size: int


@lru_cache(maxsize=256)
def _parsed(encoding: bytes) -> tuple[str, Any]:
    """Parse the description of a page: its URL, and the message, ``None`` for an unknown URL.

    Pages of small files have few different ones.
    """
    packed = any_pb2.Any.FromString(encoding)
    known = _URLS.get(packed.type_url)
    return packed.type_url, None if known is None else known[0].FromString(packed.value)


class Container:
    """The metadata of a file: version, schema, and positions of columns and global buffers."""

    def __init__(self, source: Source) -> None:
        self.source = source
        size = source.size
        if size < FOOTER.size:
            raise self.fail(f"the file has {size} bytes, too few for a footer")
        tail = source.read(size - FOOTER.size, FOOTER.size).to_pybytes()
        columns, tables, globals_at, globals_, count, major, minor, magic = FOOTER.unpack(tail)
        if magic != framing.MAGIC:
            raise self.fail(
                "the file does not end with the Lance magic bytes",
                help="the file may be truncated: restore it from a backup",
            )
        if (major, minor) not in VERSIONS:
            raise UnsupportedProtocolError(
                f"Lance file version {major}.{minor} is not supported, expected 2.0 to 2.3",
                help='write the file again with data_storage_version="2.2"',
                file=source.file,
            )
        self.version: tuple[int, int] = VERSIONS[major, minor]
        #: The version in the footer.
        self.footer_version: tuple[int, int] = major, minor
        if columns > size or tables > size - _ENTRY * count or globals_at > size - _ENTRY * globals_:
            raise self.fail("the footer points outside the file")
        self.source = source = source.with_end(columns)  # the metadata of all columns with one request
        #: Position and size of each column's metadata, and of each global buffer; the first of these is the schema.
        self.column_places = self._table(tables, count)
        self.global_places = self._table(globals_at, globals_)
        if not self.global_places:
            raise self.fail("the file has no schema")
        descriptor = self._parse(file2_pb2.FileDescriptor, *self.global_places[0])
        self.schema: file2_pb2.Schema = descriptor.schema
        self.length: int | None = descriptor.length or None
        self._pages: dict[int, ColumnPages] = {}

    def global_buffer(self, number: int) -> pa.Buffer:
        """Return the bytes of a global buffer.  Raises ``CorruptFileError`` if the file does not have it."""
        if not 0 <= number < len(self.global_places):
            raise self.fail(f"the file has {len(self.global_places)} global buffers, none with number {number}")
        return self.source.read(*self.global_places[number])

    def column(self, number: int) -> ColumnPages:
        """Return the pages of a column."""
        cached = self._pages.get(number)
        if cached is None:
            cached = self._pages[number] = self.pages(number)
        return cached

    def pages(self, number: int, first: int = 0, start: int = 0) -> ColumnPages:
        """Parse the pages of a column, whose rows are counted from ``first`` on.

        ``start`` is the position of the file in the source of its pages.
        """
        if not 0 <= number < len(self.column_places):
            raise self.fail(f"the file has {len(self.column_places)} columns, none with number {number}")
        message = self._parse(file2_pb2.ColumnMetadata, *self.column_places[number])
        pages, total = [], 0
        for page in message.pages:
            positions, sizes = list(page.buffer_offsets), list(page.buffer_sizes)
            if len(positions) != len(sizes):
                counts = f"{len(positions)} positions of buffers and {len(sizes)} sizes"
                raise self.fail(f"a page has {counts}", column=number)
            end = max(map(add, positions, sizes), default=0)
            if end > self.source.size:
                message = f"a page ends at byte {end}, but the file has only {self.source.size} bytes"
                raise self.fail(message, column=number)
            buffers = list(zip([at + start for at in positions] if start else positions, sizes, strict=True))
            pages.append(Page(first, page.length, self._encoding(page.encoding, number), buffers))
            first += page.length
            total += sum(sizes)
        return ColumnPages(pages, first, total)

    def fail(self, message: str, *, help: str | None = None, **context: Any) -> CorruptFileError:
        return CorruptFileError(message, help=help, file=self.source.file, **context)

    def _table(self, position: int, count: int) -> list[tuple[int, int]]:
        entries = list(struct.iter_unpack("<QQ", self.source.read(position, _ENTRY * count)))
        if any(start + size > self.source.size for start, size in entries):
            raise self.fail("an offset table points outside the file")
        return entries

    def _parse(self, kind: Any, position: int, size: int) -> Any:
        data = self.source.read(position, size).to_pybytes()
        return framing.parse(data, kind, file=self.source.file, damaged=CorruptFileError)

    def _encoding(self, encoding: file2_pb2.Encoding, number: int) -> Any:
        if encoding.WhichOneof("location") != "direct":
            raise self._unsupported(f"an encoding stored outside the page ({encoding.WhichOneof('location')})", number)
        try:
            url, message = _parsed(encoding.direct.encoding)
        except DecodeError as e:
            raise self.fail(f"the encoding of a page cannot be parsed: {e}", column=number) from e
        if message is None:
            raise self._unsupported(f"the encoding {url!r}", number)
        if self.version not in _URLS[url][1]:  # drafts of 2.1 have the same version number, but the pages of 2.0
            version = f"{self.version[0]}.{self.version[1]}"
            raise self._unsupported(f"pages of {url!r} in a file of {version}", number)
        return message

    def _unsupported(self, what: str, number: int) -> TrilakeError:
        return UnsupportedProtocolError(
            f"{what} is not supported",
            help="a prerelease of Lance wrote the file: write it again with a stable release",
            file=self.source.file,
            column=number,
        )


class JoinedColumns:
    """The pages of several files of one layout, whose rows follow each other.

    ``source`` has the content of all files, ``starts`` says where that of each begins, and ``rows`` is the number of
    rows of each.
    """

    def __init__(self, parts: Sequence[Container], source: Source, starts: Sequence[int], rows: Sequence[int]) -> None:
        self.source = source
        self.length: int | None = sum(rows)
        self._parts = list(zip(parts, starts, rows, strict=True))
        self._pages: dict[int, ColumnPages] = {}

    def column(self, number: int) -> ColumnPages:
        """Return the pages of a column; see :meth:`Container.column`."""
        cached = self._pages.get(number)
        if cached is not None:
            return cached
        pages: list[Page] = []
        first, size, widths = 0, 0, set()
        for part, start, rows in self._parts:
            own = part.pages(number, first, start)
            pages += own.pages
            size += own.size
            widths.add((own.end - first) / rows)
            first = own.end
        if len(widths) > 1:  # the rows of one file would be read as those of another
            raise self.fail("the columns of a file have different numbers of rows", column=number)
        self._pages[number] = joined = ColumnPages(pages, first, size)
        return joined

    def fail(self, message: str, **context: Any) -> CorruptFileError:
        return CorruptFileError(message, file=self.source.file, **context)
