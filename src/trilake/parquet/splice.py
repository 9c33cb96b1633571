"""Rewrite some columns of a Parquet file, and copy the bytes of the other column chunks.

Both files have the same row groups.  The new footer keeps the schema, metadata and writer, which determine how to
interpret values, but not page indexes, Bloom filters and sort orders.  Nothing is decoded, so the cost depends only on
the new columns.

Anything unexpected raises :class:`NotSpliceable`: then all columns must be re-encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, NamedTuple
from zlib import crc32

import pyarrow as pa

from trilake.parquet.files import read_footer
from trilake.parquet.thrift import (
    I32,
    NO_FIELDS,
    STRUCT,
    Struct,
    ThriftReader,
    Value,
    number,
    parse_struct,
    parse_structs,
    struct_bytes,
    struct_list,
    to_bytes,
    to_int,
)
from trilake.storage.reader import expect

_MAGIC = b"PAR1"
#: Bytes of columns to fetch at once, and the largest column to copy.
_AHEAD, _LARGEST = 64 << 20, 256 << 20
#: Known fields of a footer, row group, column chunk and its metadata: an unknown one may be a position.
_FILE, _GROUP, _CHUNK, _META = frozenset(range(1, 8)), frozenset(range(1, 8)), frozenset(range(2, 8)), range(1, 18)
_KEPT_OF_GROUP, _KEPT_OF_META = (3, 7), (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17)
#: Fields of a schema element for the storage of values, and for their meaning.
_STORED, _CONVERTED, _LOGICAL = (1, 2, 3, 7, 8, 9), 6, 10
#: Converted types with one meaning, with or without the newer logical type.
_CLEAR = frozenset(number(n, I32) for n in (0, 5, 6, 15, 16))
#: INT32 as INT_32, and INT64 as INT_64.
_INTEGERS = {(number(1, I32), number(17, I32)), (number(2, I32), number(18, I32))}


class NotSpliceable(Exception):
    """A file cannot be spliced; its rows must be rewritten."""


class Column(NamedTuple):
    """A top-level column: its schema element, and its leaf number; ``None`` for a nested one."""

    element: Struct
    leaf: int | None


@dataclass(frozen=True)
class _Chunk:
    """A column chunk and its position in the file."""

    meta: Struct
    start: int
    size: int
    #: Uncompressed bytes, and the number of values with nulls.
    plain_size: int
    values: int

    @classmethod
    def of(cls, chunk: Struct) -> _Chunk:
        if not _CHUNK.issuperset(chunk):
            raise NotSpliceable("a column is in another file, encrypted, or has unknown fields")
        meta = parse_struct(chunk[3].data)
        if not all(key in _META for key in meta):
            raise NotSpliceable("a column has unknown fields")
        # Some writers use 0 for no dictionary.
        start = min(place for key in (9, 11) if key in meta and (place := to_int(meta[key])) > 0)
        return cls(meta, start, to_int(meta.get(7)), to_int(meta.get(6)), to_int(meta.get(5)))

    def at(self, start: int) -> Struct:
        """The column chunk's footer entry at another position."""
        meta = {key: value for key, value in self.meta.items() if key in _KEPT_OF_META}
        for key in (9, 11):
            if key in meta and (place := to_int(meta[key])) > 0:
                meta[key] = number(place - self.start + start)
        return {2: number(0), 3: Value(STRUCT, struct_bytes(meta))}


class Parts:
    """The column chunks of a file, and its footer.  Raises :class:`NotSpliceable` if it has unknown fields."""

    def __init__(self, source: pa.NativeFile) -> None:
        self.source, self.size = source, source.size()
        footer = read_footer(source)
        if footer is None:
            raise NotSpliceable("the file does not end with the magic bytes of an unencrypted Parquet file")
        with damage():
            self.footer = parse_struct(footer)
            if not _FILE.issuperset(self.footer):
                raise NotSpliceable("the file is encrypted or has unknown fields")
            self.groups = parse_structs(self.footer[4])
            if not all(_GROUP.issuperset(g) for g in self.groups):
                raise NotSpliceable("a row group has unknown fields")
            self.columns = dict(_columns(parse_structs(self.footer[2])))
            self.rows = [to_int(g.get(3)) for g in self.groups]

    def chunks(self, group: int) -> list[_Chunk]:
        """The column chunks of a row group."""
        with damage():
            return [_Chunk.of(c) for c in parse_structs(self.groups[group][1])]

    def stored(self, chunks: Sequence[_Chunk]) -> Iterator[pa.Buffer]:
        """Read column chunks and check their pages."""
        ranges = [(c.start, c.size) for c in chunks]
        if any(start < len(_MAGIC) or not 0 <= size <= min(self.size - start, _LARGEST) for start, size in ranges):
            raise NotSpliceable("a column is outside the file, or very large")
        expect(self.source, ranges if sum(size for _, size in ranges) <= _AHEAD else [])
        for chunk in chunks:
            self.source.seek(chunk.start)
            data = self.source.read_buffer(chunk.size)
            with damage():
                if data.size != chunk.size:
                    raise ValueError("the file ends within a column")
                check_pages(memoryview(data).cast("B"), chunk.values)
            yield data


@contextmanager
def damage() -> Iterator[None]:
    """Convert errors of a damaged file to :class:`NotSpliceable`; decoding it reports the damage."""
    try:
        yield
    except (ValueError, IndexError, KeyError) as e:
        raise NotSpliceable(f"the file is damaged: {e}") from e


def _columns(elements: Sequence[Struct]) -> Iterator[tuple[bytes, Column]]:
    columns: dict[bytes, Column | None] = {}
    at, leaf = 1, 0
    for _ in range(to_int(elements[0].get(5))):
        first, start, open_ = at, leaf, 1
        while open_:
            children = to_int(elements[at][5]) if 5 in elements[at] else 0
            leaf += not children
            open_ += children - 1
            at += 1
        name = to_bytes(elements[first].get(4))
        columns[name] = None if name in columns else Column(elements[first], start if at == first + 1 else None)
    if at != len(elements):
        raise ValueError("the schema has elements without a parent")
    for name, column in columns.items():
        if column is None:
            raise NotSpliceable(f"the file has two columns named {name!r}")
        yield name, column


def same_values(old: Struct, new: Struct) -> bool:
    """Whether two schema elements store values in the same way and with the same meaning."""
    if any(_plain(old, key) != _plain(new, key) for key in _STORED):
        return False
    (converted, logical), (other_converted, other_logical) = _meaning(old), _meaning(new)
    if logical is not None and other_logical is not None:
        return logical == other_logical and (None in (converted, other_converted) or converted == other_converted)
    return converted == other_converted and (logical == other_logical or converted in _CLEAR)


def _meaning(element: Struct) -> tuple[Value | None, Value | None]:
    """The converted and the logical type, without the default integer types."""
    converted = element.get(_CONVERTED)
    if converted is not None and (element.get(1), converted) in _INTEGERS:
        return None, None
    return converted, element.get(_LOGICAL)


def _plain(element: Struct, key: int) -> Value | None:
    """A field; a length, scale or precision of 0 is absent, as some writers use 0 for that."""
    value = element.get(key)
    return None if key in (2, 7, 8) and value is not None and to_int(value) == 0 else value


class SpliceWriter:
    """Write the file to ``sink``, row group by row group, with the other columns of ``old``."""

    def __init__(self, sink: IO[bytes], old: Parts) -> None:
        self._sink, self._old = sink, old
        self._groups: list[Struct] = []
        self.size = 0
        self._write(_MAGIC)

    def _write(self, data: bytes | pa.Buffer) -> int:
        at, view = self.size, memoryview(data).cast("B")
        self._sink.write(view)
        self.size += len(view)
        return at

    def write_group(self, new: pa.Buffer) -> None:
        """Write the next row group, with columns replaced by those of ``new``, a Parquet file of one row group.

        Raises :class:`NotSpliceable` if ``new`` has other rows, or stores values differently from the old file.
        """
        group = len(self._groups)
        parts = Parts(pa.BufferReader(new))
        if parts.rows != self._old.rows[group : group + 1]:
            raise NotSpliceable("the new columns have different row groups")
        new_chunks, replaced = parts.chunks(0), dict[int, _Chunk]()
        with damage():
            for name, column in parts.columns.items():
                old = self._old.columns.get(name)
                alike = old is not None and same_values(old.element, column.element)
                if old is None or old.leaf is None or column.leaf is None or not alike:
                    raise NotSpliceable(f"the values of column {name!r} are stored differently in the old file")
                replaced[old.leaf] = new_chunks[column.leaf]
        chunks = self._old.chunks(group)
        copied = self._old.stored([c for i, c in enumerate(chunks) if i not in replaced])
        entries, first, stored, plain = [], self.size, 0, 0
        for i, chunk in enumerate(chunks):
            if i in replaced:
                chunk = replaced[i]
                data = new.slice(chunk.start, chunk.size)
            else:
                data = next(copied)
            entries.append(chunk.at(self._write(data)))
            stored, plain = stored + chunk.size, plain + chunk.plain_size
        out = {1: struct_list(entries), 2: number(plain), 5: number(first), 6: number(stored)}
        out |= {key: value for key, value in self._old.groups[group].items() if key in _KEPT_OF_GROUP}
        self._groups.append(dict(sorted(out.items())))

    def close(self) -> int:
        """Write the footer; return the file size.  Raises :class:`NotSpliceable` for missing row groups."""
        if len(self._groups) != len(self._old.groups):
            raise NotSpliceable("row groups are missing")
        footer = struct_bytes({**self._old.footer, 4: struct_list(self._groups)})
        self._write(footer + len(footer).to_bytes(4, "little") + _MAGIC)
        return self.size


# --- Check a column chunk page by page before it is copied, so that damage is not copied silently ---------------------

#: Fields of a ``PageHeader``: type, uncompressed and compressed size, checksum, and the number of values.
_PAGE = {1: NO_FIELDS, 2: NO_FIELDS, 3: NO_FIELDS, 4: NO_FIELDS, 5: {1: NO_FIELDS}, 8: {1: NO_FIELDS}}
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3


def check_pages(chunk: memoryview, values: int) -> None:
    """Raise ``ValueError`` or ``IndexError`` unless pages are contiguous, have ``values`` values and no damage."""
    walk = ThriftReader(chunk)
    at, total_values, size = 0, 0, len(chunk)
    while at < size:
        start = at
        at, head = walk.struct(at, _PAGE, 0)
        kind, compressed_size = head.get(1), head.get(3)
        if not isinstance(compressed_size, int) or not 0 <= compressed_size <= size - at:
            raise ValueError("a page extends past the end of its column chunk")
        checksum = head.get(4)
        if checksum is not None and crc32(chunk[at : at + compressed_size]) != checksum & 0xFFFFFFFF:
            raise ValueError("a page does not match its checksum")
        if kind in (_DATA, _DATA_2):
            inner = head.get(5 if kind == _DATA else 8)
            count = inner.get(1) if isinstance(inner, dict) else None
            if not isinstance(count, int) or count < 0:
                raise ValueError("a page has no value count")
            total_values += count
        elif kind != _DICTIONARY or start:
            raise ValueError("a page has an unknown type, or a dictionary is not the first page")
        at += compressed_size
    if total_values != values:
        raise ValueError(f"the pages have {total_values} values, but the footer says {values}")
