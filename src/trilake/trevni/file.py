"""``TrevniFile``: one file opened for reading.

Opening reads the header.  A column's block descriptors are read when the column is first used, its blocks when their
rows are asked for, and no others.  What is checked, and when:

* opening: magic, version, counts and lengths of the header, column starts, names of types, parents;
* first use of a column: block count, sizes, that its rows are those of the file, that it overlaps no other column;
* reading a block: its codec, its size, its checksum, that its payload holds exactly its values; children against the
  lengths of their parents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.storage import Store
from trilake.trevni import codecs
from trilake.trevni.decode import Block, Budget, Where, decode
from trilake.trevni.layout import (
    BlockDescriptor,
    BlockTable,
    ColumnDescriptor,
    Header,
    Metadata,
    NeedMoreBytes,
    ValueType,
    parse_blocks,
    parse_header,
)
from trilake.trevni.source import Source, open_source

_HEADER_GUESS = 1 << 16
_DESCRIPTORS_GUESS = 1 << 12
#: Stored bytes fetched with one read.
_READ_SIZE = 1 << 22
#: A file may claim so many rows beyond those that its bytes could hold; above that, rows without bytes are refused.
_MAX_FREE_ROWS = 1 << 27


@dataclass(frozen=True)
class Column:
    """A column descriptor together with its block descriptors: an entry of :attr:`TrevniFile.columns`.

    ``parent`` is the parent's name here; ``values`` says that block descriptors hold first values.
    """

    number: int
    name: str | None
    type: str
    array: bool
    parent: str | None
    values: bool
    codec: str
    checksum: str
    metadata: Metadata
    blocks: tuple[BlockDescriptor, ...]


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The raw content of one column: ``lengths`` (numpy int32, ``None`` without ``array``) and flat ``values`` (Arrow)."""

    name: str | None
    type: str
    lengths: np.ndarray[Any, np.dtype[np.int32]] | None
    values: pa.Array


@dataclass(frozen=True, eq=False)
class Cut:
    """A column's part of some rows: ``lengths`` a slot each, ``values``, and how many slots there are."""

    lengths: np.ndarray[Any, np.dtype[np.int32]] | None
    values: pa.Array
    slots: int


class TrevniFile:
    """A Trevni file.

    Parameters
    ----------
    file: a path or URI, a pair ``(store, key)``, bytes, or an object with ``read`` and ``seek``.
    trusted: lift the limits on inflation and on elements without bytes that protect against hostile files.

    Raises ``ObjectNotFoundError``, ``CorruptFileError`` with ``file``, ``column``, ``block`` and ``offset`` as far as
    they are known, and ``UnsupportedProtocolError`` for unknown versions, codecs and checksums.
    """

    def __init__(
        self, file: str | os.PathLike[str] | tuple[Store, str] | bytes | Any, *, trusted: bool = False
    ) -> None:
        self._source: Source = open_source(file)
        self._trusted = trusted
        self._header = self._read_header()
        self._tables: dict[int, BlockTable] = {}
        self._ends = self._column_ends()
        self._check_row_count()

    # --- what the header says ---

    @property
    def uri(self) -> str:
        """The file's path or URI."""
        return self._source.name

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    @property
    def version(self) -> int:
        """The format version, 1 or 2."""
        return self._header.version

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self._header.row_count

    @property
    def metadata(self) -> Metadata:
        """File metadata: text to bytes, in file order."""
        return self._header.metadata

    @property
    def header(self) -> Header:
        """The parsed header."""
        return self._header

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All columns with their blocks, in file order."""
        descriptors = self._header.columns
        return tuple(
            Column(
                d.number,
                d.name,
                d.type.value,
                d.array,
                None if d.parent is None else descriptors[d.parent].name,
                d.values,
                d.codec,
                d.checksum,
                d.metadata,
                tuple(self.blocks(d.number)),
            )
            for d in descriptors
        )

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each column the numbers of the columns that have it as their parent."""
        found: list[list[int]] = [[] for _ in self._header.columns]
        for column in self._header.columns:
            if column.parent is not None:
                found[column.parent].append(column.number)
        return tuple(map(tuple, found))

    def number(self, column: str | int) -> int:
        """The number of a column given by name or number; of columns with one name it is the last.

        Raises ``InvalidArgumentError`` where there is no such column.
        """
        if isinstance(column, int):
            if 0 <= column < len(self._header.columns):
                return column
        else:
            for descriptor in reversed(self._header.columns):
                if descriptor.name == column:
                    return descriptor.number
        raise InvalidArgumentError(
            f"the file has no column {column!r}",
            help="it has " + (", ".join(c.label for c in self._header.columns[:50]) or "none"),
            file=self.uri,
        )

    def blocks(self, column: str | int) -> BlockTable:
        """The block table of a column; read on first use."""
        number = self.number(column)
        if number not in self._tables:
            self._tables[number] = self._read_blocks(number)
        return self._tables[number]

    # --- content ---

    def column(self, column: str | int) -> ColumnValues:
        """All lengths and values of one column, flat, as they follow each other in the file."""
        descriptor = self._header.columns[self.number(column)]
        cut = self.cut([descriptor.number], 0, self.row_count)[descriptor.number]
        return ColumnValues(descriptor.name, descriptor.type.value, cut.lengths, cut.values)

    def cut(self, columns: Sequence[int], start: int, stop: int) -> dict[int, Cut]:
        """The rows ``start`` to ``stop`` of the columns given by number, and of all their ancestors.

        Only blocks that hold such rows are read.
        """
        return _Request(self, columns, start, stop, Budget(limited=not self._trusted)).cuts()

    # --- inside ---

    def _read_header(self) -> Header:
        size = self._source.size
        length = min(_HEADER_GUESS, size)
        while True:
            data = self._source.read(0, length)
            try:
                return parse_header(data, file=self.uri, file_size=size)
            except NeedMoreBytes:
                # Only while there is more: the cursor knows the file's size.
                length = min(4 * length, size)

    def _column_ends(self) -> list[int]:
        """Where each column must end at the latest: at the next start, or the end of the file."""
        starts = sorted(self._header.starts)
        for one, other in zip(starts, starts[1:], strict=False):
            if one == other:
                number = self._header.starts.index(one)
                raise CorruptFileError(
                    "two columns start at the same byte",
                    file=self.uri,
                    column=self._header.columns[number].label,
                    offset=one,
                )
        following = dict(zip(starts, [*starts[1:], self._source.size], strict=False))
        return [following[start] for start in self._header.starts]

    def _check_row_count(self) -> None:
        # A compressed bit can stand for a thousand values, and a row of nulls takes nothing at all.
        most = _MAX_FREE_ROWS + 8 * 1032 * self._source.size
        if not self._trusted and self.row_count > most:
            raise CorruptFileError(
                f"{self._source.size} bytes claim {self.row_count} rows",
                help="if the file is to be trusted, open it with trusted=True",
                file=self.uri,
                offset=4,
            )

    def where(self, number: int) -> Where:
        """The place that errors about a column name."""
        return Where(self.uri, self._header.columns[number].label)

    def _read_blocks(self, number: int) -> BlockTable:
        column = self._header.columns[number]
        start, end = self._header.starts[number], self._ends[number]
        size = codecs.checksum_size(column.checksum, file=self.uri, column=column.label)
        length = min(_DESCRIPTORS_GUESS, end - start)
        while True:
            try:
                return parse_blocks(
                    self._source.read(start, length),
                    column,
                    start=start,
                    end=end,
                    row_count=self.row_count,
                    checksum_size=size,
                    file=self.uri,
                )
            except NeedMoreBytes:
                length = min(8 * length, end - start)

    def payloads(self, number: int, first: int, last: int, slots: Sequence[int]) -> Iterator[Block]:
        """The blocks ``first`` to ``last`` of a column, decompressed and verified; fetched a few MB at a time."""
        column, table = self._header.columns[number], self.blocks(number)
        check = 0 if column.checksum == "null" else 4
        block = first
        while block < last:
            stop = max(block + 1, int(np.searchsorted(table.offsets, table.offsets[block] + _READ_SIZE, "right")) - 1)
            stop = min(stop, last)
            base = int(table.offsets[block])
            data = memoryview(self._source.read(base, int(table.offsets[stop]) - base)).cast("B")
            for i in range(block, stop):
                at = int(table.offsets[i]) - base
                stored = int(table.stored_sizes[i])
                raw_size = int(table.raw_sizes[i])
                place: dict[str, Any] = {
                    "file": self.uri,
                    "column": column.label,
                    "block": i,
                    "offset": base + at,
                }
                self._check_raw_size(column, slots[i - first], raw_size, place)
                raw = codecs.decompress(
                    column.codec, data[at : at + stored], raw_size, strict=not self._trusted, **place
                )
                if check:
                    end = at + stored
                    codecs.verify(column.checksum, column.codec, raw, bytes(data[end : end + check]), **place)
                yield Block(raw, slots[i - first], i, base + at)
            block = stop

    @staticmethod
    def _check_raw_size(column: ColumnDescriptor, slots: int, raw_size: int, place: dict[str, Any]) -> None:
        # Before inflating: sizes that the values cannot have, and more slots than there are bits.
        if column.array:
            if raw_size == 0 and slots > 0:
                raise CorruptFileError(f"{slots} lengths cannot take 0 bytes", **place)
            return
        most = column.type.max_size(slots)
        if raw_size < column.type.min_size(slots) or (most is not None and raw_size > most):
            raise CorruptFileError(f"{slots} values of type {column.type.value} cannot take {raw_size} bytes", **place)


class _Request:
    """Rows ``start`` to ``stop`` of some columns: decides which blocks to read, and cuts what was decoded.

    A child's block has the elements of its rows, so its parent's lengths must be known for all of them: the rows needed
    of a parent are those of the blocks that are read of its children.
    """

    def __init__(self, file: TrevniFile, columns: Sequence[int], start: int, stop: int, budget: Budget) -> None:
        self._file, self._start, self._stop, self._budget = file, start, stop, budget
        self._columns = file.header.columns
        self._wanted = sorted(set(columns) | self._ancestors(columns))
        self._ranges = self._block_ranges()
        # For array columns with children: the value at which each row of the blocks read begins.
        self._row_values: dict[int, np.ndarray[Any, np.dtype[np.int64]]] = {}

    def _ancestors(self, columns: Sequence[int]) -> set[int]:
        found: set[int] = set()
        for number in columns:
            parent = self._columns[number].parent
            while parent is not None and parent not in found:
                found.add(parent)
                parent = self._columns[parent].parent
        return found

    def _block_ranges(self) -> dict[int, tuple[int, int]]:
        """Blocks to read of each column, children (which come after their parents) first."""
        need = {number: (self._start, self._stop) for number in self._wanted}
        ranges: dict[int, tuple[int, int]] = {}
        for number in reversed(self._wanted):
            table = self._file.blocks(number)
            first, last = table.covering(*need[number])
            ranges[number] = first, last
            parent = self._columns[number].parent
            if parent is not None and first < last:
                low, high = need[parent]
                rows = table.row_starts
                need[parent] = min(low, int(rows[first])), max(high, int(rows[last]))
        return ranges

    def cuts(self) -> dict[int, Cut]:
        return {number: self._cut(number) for number in self._wanted}

    def _rows(self, number: int) -> tuple[int, int]:
        """The rows of the blocks that are read of a column."""
        first, last = self._ranges[number]
        rows = self._file.blocks(number).row_starts
        return (int(rows[first]), int(rows[last])) if first < last else (self._start, self._start)

    def _slots_before(self, number: int, row: int) -> int:
        """How many slots the rows of the column's blocks before ``row`` have."""
        first_row = self._rows(number)[0]
        parent = self._columns[number].parent
        if parent is None:
            return row - first_row
        values = self._row_values[parent]
        parent_first = self._rows(parent)[0]
        return int(values[row - parent_first] - values[first_row - parent_first])

    def _cut(self, number: int) -> Cut:
        column = self._columns[number]
        where = self._file.where(number)
        first, last = self._ranges[number]
        table = self._file.blocks(number)
        bounds = [self._slots_before(number, int(row)) for row in table.row_starts[first : last + 1]]
        slots = [b - a for a, b in zip(bounds, bounds[1:], strict=False)]
        raw_bytes = int(table.raw_sizes[first:last].sum())
        total = sum(slots)
        if column.array or column.type is ValueType.NULL:
            self._budget.spend(total, raw_bytes if column.array else 1 << 40, where)
        found = decode(
            column.type, column.array, self._file.payloads(number, first, last, slots), total, where, self._budget
        )
        low, high = self._slots_before(number, self._start), self._slots_before(number, max(self._start, self._stop))
        if not column.array:
            return Cut(None, found.values.slice(low, high - low), high - low)
        assert found.lengths is not None
        ends = np.concatenate(([0], np.cumsum(found.lengths, dtype=np.int64)))
        if self._file.children[number]:
            row_start, row_stop = self._rows(number)
            rows = self._all_row_slots(number, row_start, row_stop)
            self._row_values[number] = ends[rows]
        begin, end = int(ends[low]), int(ends[high])
        return Cut(found.lengths[low:high], found.values.slice(begin, end - begin), high - low)

    def _all_row_slots(self, number: int, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The slot at which each row from ``start`` to ``stop`` (inclusive) begins."""
        parent = self._columns[number].parent
        if parent is None:
            return np.arange(stop - start + 1, dtype=np.int64)
        first = self._rows(parent)[0]
        values = self._row_values[parent][start - first : stop - first + 1]
        return values - values[0]


__all__ = ["BlockDescriptor", "Column", "ColumnValues", "Cut", "TrevniFile"]
