"""Read many small Parquet files as one, so that Arrow opens one file and decodes all rows in one call.

Opening a file with ten rows takes longer than reading it, and mostly holds the GIL.  So files with one schema are
concatenated in memory, with a footer that lists all row groups::

    file 1 | file 2 | ... | file n | schema, n row groups, the rest of file 1's footer | its length, "PAR1"

The new footer takes its numbers from the files' footers, which :func:`trilake.parquet.files.checked_footer` has
checked, and omits bounds and indexes.  Pages keep their checksums.  Files that differ from their neighbours or are
damaged are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.parquet.files import (
    DAMAGE,
    SMALL_FOOTER,
    TAIL,
    TYPES,
    Leaf,
    end_of_schema,
    footer_length,
    leaves_of,
    open_parquet,
)
from trilake.parquet.footer_walk import Flags, FooterTable, Groups, Int64s, names_of, walk_alike
from trilake.parquet.thrift import unsigned

#: For fewer files, reading them one by one is as fast.
FEWEST = 64
#: Fewest adjacent files to merge after parsing their footers.
_SHORTEST = 8
#: Most schemas to handle; files with others are read one by one.
_SCHEMAS = 16
#: Bytes per number in the new footer, with seven bits each.
_DIGITS = 5
_LARGEST = (1 << 7 * _DIGITS - 1) - 1
_CODECS = 8


class Run(NamedTuple):
    """Files ``start`` to ``stop`` with their rows in ``merged``; ``None`` for files to read one by one."""

    start: int
    stop: int
    merged: pa.Buffer | None = None
    rows: int = 0
    #: Uncompressed bytes of the values.
    plain_size: int = 0
    #: Rows of each file.
    counts: Int64s | None = None


def merge_files(files: Sequence[pa.Buffer]) -> Iterator[Run]:
    """Merge similar adjacent files, in order."""
    shapes: list[_Shape | None] = [None] * len(files)
    places = np.zeros(len(files), np.int64)
    for start, numbers, footers in _by_schema([_footer_of(f) for f in files]):
        leaves = _leaves(files[numbers[0]])
        if leaves is None:
            continue
        sizes = [files[n].size for n in numbers]
        table = walk_alike(footers, sizes, start, leaves)
        if not table.groups or len(table.groups[0].columns) != len(leaves):
            continue
        ends = np.asarray(sizes, np.int64) - TAIL - np.fromiter(map(len, footers), np.int64, len(footers))
        sound = table.sound & (table.group_counts == 1) & _inside(table.rows, table.groups[0], ends)
        by_rest: dict[bytes, _Shape] = {}
        for place in np.flatnonzero(sound).tolist():
            rest = table.rests[place]
            if rest not in by_rest:
                by_rest[rest] = _Shape(footers[0][:start], rest, leaves, table)
            shapes[numbers[place]] = by_rest[rest]
            places[numbers[place]] = place
    for _, group in groupby(range(len(files)), key=lambda number: id(shapes[number])):
        run = list(group)
        start, stop, shape = run[0], run[-1] + 1, shapes[run[0]]
        if shape is not None and len(run) >= _SHORTEST:
            yield shape.merged(start, files[start:stop], places[start:stop])
        else:
            yield Run(start, stop)


def _footer_of(file: pa.Buffer) -> bytes:
    size = file.size
    length = footer_length(file[max(0, size - TAIL) :].to_pybytes(), size)
    if length is None or length > SMALL_FOOTER:
        return b""
    return bytes(file[size - TAIL - length : size - TAIL].to_pybytes())


def _by_schema(footers: Sequence[bytes]) -> Iterator[tuple[int, list[int], list[bytes]]]:
    """The end of the schema, the indexes of its files, and their footers, for each frequent schema."""
    by_schema: dict[bytes, list[int]] = {}
    latest = b""
    for number, footer in enumerate(footers):
        if not (latest and footer.startswith(latest)):
            prefix = next((schema for schema in by_schema if footer.startswith(schema)), None)
            if prefix is None:
                if len(by_schema) >= _SCHEMAS or not footer or (place := end_of_schema(footer)) is None:
                    continue
                prefix = footer[:place]
                by_schema[prefix] = []
            latest = prefix
        by_schema[latest].append(number)
    for schema, numbers in by_schema.items():
        if len(numbers) >= FEWEST:
            yield len(schema), numbers, [footers[n] for n in numbers]


def _leaves(file: pa.Buffer) -> Sequence[Leaf] | None:
    """The columns of a file; ``None`` if it has none, or unsupported ones."""
    try:
        leaves = leaves_of(open_parquet(pa.BufferReader(file)).metadata.schema)
    except (*DAMAGE, OSError):
        return None
    supported = all(leaf.physical_type in TYPES and names_of(leaf.path) for leaf in leaves)
    return leaves if leaves and supported else None


def _inside(rows: Int64s, group: Groups, ends: Int64s) -> Flags:
    sound: Flags = rows == group.rows
    for column in group.columns:
        pages, dictionary = column.pages, column.dictionary
        # A column starts at a dictionary before its pages, or at the pages, as in Arrow.
        first = np.where((dictionary > 0) & (dictionary < pages), dictionary, pages)
        sound &= (first >= 4) & (first <= ends - column.stored_size)
        sound &= (column.codec >= 0) & (column.codec < _CODECS)
        for number in (column.values, column.plain_size, pages):
            sound &= number < _LARGEST
    return sound


class _Shape:
    """Files whose footers differ only in their row group."""

    def __init__(self, schema: bytes, rest: bytes, leaves: Sequence[Leaf], walked: FooterTable) -> None:
        self.schema, self.rest, self.walked = schema, rest, walked
        self.template = _Template(leaves)

    def merged(self, start: int, files: Sequence[pa.Buffer], places: Int64s) -> Run:
        sizes = np.fromiter((f.size for f in files), np.int64, len(files))
        group = self.walked.groups[0]
        rows = int(group.rows[places].sum())
        groups = self.template.filled(group, places, np.cumsum(sizes) - sizes)
        footer = b"".join(
            (
                self.schema,
                b"\x16" + unsigned(2 * rows),  # num_rows, the field after the schema
                b"\x19\xfc" + unsigned(len(files)),  # row_groups: a long list of structs
                groups,
                self.rest,
            )
        )
        merged = pa.py_buffer(b"".join((*files, footer, len(footer).to_bytes(4, "little"), b"PAR1")))
        plain = sum(int(c.plain_size[places].sum()) for c in group.columns)
        return Run(start, start + len(files), merged, rows, plain, group.rows[places])


class _Template:
    """The bytes of a row group, with fixed positions and lengths of its numbers."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._bytes = bytearray()
        #: Positions of each column's codec, and of its value count, sizes and offsets.
        self._columns: list[tuple[int, list[int]]] = []
        count = len(leaves)
        self._bytes += b"\x19" + (bytes([count << 4 | 12]) if count < 15 else b"\xfc" + unsigned(count))
        for leaf in leaves:
            names = names_of(leaf.path)
            assert names is not None
            # file_offset, which nothing reads; the header of meta_data; type; encodings, which pages state themselves
            self._bytes += b"\x26\x00\x1c\x15" + unsigned(2 * TYPES.index(leaf.physical_type)) + b"\x19\x15\x00"
            self._bytes += b"\x19" + names + b"\x15\x00"
            codec = len(self._bytes) - 1
            # num_values, the two sizes; data_page_offset and dictionary_page_offset, each two fields further
            numbers = [self._number(head) for head in (b"\x16", b"\x16", b"\x16", b"\x26", b"\x26")]
            self._bytes += b"\x00\x00"
            self._columns.append((codec, numbers))
        self._size, self._rows = self._number(b"\x16"), self._number(b"\x16")
        self._bytes += b"\x00"

    def _number(self, head: bytes) -> int:
        self._bytes += head + bytes(_DIGITS)
        return len(self._bytes) - _DIGITS

    def filled(self, group: Groups, which: Int64s, bases: Int64s) -> bytes:
        """The row groups of files whose bytes start at ``bases``."""
        out = np.tile(np.frombuffer(bytes(self._bytes), np.uint8), (len(which), 1))
        total = np.zeros(len(which), np.int64)
        for (codec, numbers), column in zip(self._columns, group.columns, strict=True):
            pages, dictionary = column.pages[which], column.dictionary[which]
            out[:, codec] = column.codec[which] * 2
            before = (dictionary > 0) & (dictionary < pages)
            values = (
                column.values[which],
                column.plain_size[which],
                column.stored_size[which],
                pages + bases,
                np.where(before, dictionary + bases, 0),
            )
            for place, value in zip(numbers, values, strict=True):
                _put(out, place, value)
            total += column.plain_size[which]
        _put(out, self._size, total)
        _put(out, self._rows, group.rows[which])
        return out.tobytes()


_SHIFTS = np.arange(_DIGITS, dtype=np.int64) * 7
_MORE = np.array([0x80] * (_DIGITS - 1) + [0], np.int64)


def _put(out: npt.NDArray[np.uint8], place: int, values: Int64s) -> None:
    """Write a number per row group, padded to a fixed number of varint bytes."""
    out[:, place : place + _DIGITS] = (values[:, None] * 2 >> _SHIFTS & 0x7F) | _MORE
