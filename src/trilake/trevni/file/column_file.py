"""``ColumnFile``: read a file as columns and blocks.

Opening reads the header.  The block descriptors of a column are read on first use, and only the blocks of requested
rows.  Checks:

* on opening: magic, version, counts and lengths in the header, column starts, type names, parents;
* on first use of a column: block count and sizes, number of rows, overlaps with other columns;
* on reading a block: codec, size, checksum, that the payload has exactly its values, and that the values of a child
  match the lengths of its parent.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.storage import Store
from trilake.trevni.blocks import codecs, layout
from trilake.trevni.blocks.cursor import NeedMoreBytes
from trilake.trevni.blocks.decode import TRUST_HELP, Block, Budget, Slots, decode
from trilake.trevni.blocks.source import Source, open_source

_HEADER_GUESS = 1 << 16
_DESCRIPTORS_GUESS = 1 << 12
#: Stored bytes per request.
_READ_SIZE = 1 << 22
#: Number of rows that a file may claim beyond what its bytes can hold.
_MAX_FREE_ROWS = 1 << 25
#: Writers close blocks at 64 KiB, unless a row is larger.  Blocks of more than ``_LARGE`` bytes with a compression
#: ratio above ``_MAX_RATIO`` are rejected as decompression bombs if together they exceed ``_MAX_INFLATED`` bytes.
_LARGE, _MAX_RATIO, _MAX_INFLATED = 1 << 20, 64, 1 << 24


@dataclass(frozen=True)
class Column:
    """A column descriptor with its block descriptors; see :attr:`TrevniFile.columns`.

    ``parent`` is the name of the parent.  With ``values``, block descriptors store first values.
    """

    number: int
    name: str | None
    type: str
    array: bool
    parent: str | None
    values: bool
    codec: str
    checksum: str
    metadata: layout.Metadata
    blocks: tuple[layout.BlockDescriptor, ...]


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """Lengths and values of a column.

    ``lengths`` is a numpy int32 array, ``None`` unless ``array``; ``values`` is a flat Arrow array.
    """

    name: str | None
    type: str
    lengths: np.ndarray[Any, np.dtype[np.int32]] | None
    values: pa.Array


class ColumnFile:
    """The header, columns and blocks of a file; parameters and errors are those of :class:`TrevniFile`."""

    def __init__(
        self, file: str | os.PathLike[str] | tuple[Store, str] | bytes | Any, *, trusted: bool = False
    ) -> None:
        self._source: Source = open_source(file)
        self._trusted = trusted
        #: The parsed header.
        self.header = self._read_header()
        self._tables: dict[int, layout.BlockTable] = {}
        #: File offset of the end of each column.
        self.ends = self._column_ends()
        # A compressed bit can encode a thousand values, and rows of nulls take no bytes.
        if not trusted and self.row_count > _MAX_FREE_ROWS + 8 * 1032 * self.size:
            raise CorruptFileError(
                f"a file of {self.size} bytes claims to have {self.row_count} rows",
                help="for a file that you trust, open it with trusted=True",
                file=self.uri,
                offset=4,
            )

    @property
    def uri(self) -> str:
        """Path or URI of the file."""
        return self._source.name

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._source.size

    @property
    def version(self) -> int:
        """The format version, 1 or 2."""
        return self.header.version

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.header.row_count

    @property
    def metadata(self) -> layout.Metadata:
        """File metadata in file order."""
        return self.header.metadata

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All columns with their blocks, in file order."""
        descriptors = self.header.columns
        columns = []
        for d in descriptors:
            parent = None if d.parent is None else descriptors[d.parent].name
            shown = {"type": d.type.value, "parent": parent, "blocks": tuple(self.blocks(d.number))}
            columns.append(Column(**(vars(d) | shown)))
        return tuple(columns)

    def number(self, column: str | int) -> int:
        """Return the number of a ``column``, a name (of duplicates the last) or number.  Raises
        ``InvalidArgumentError``.
        """
        if isinstance(column, int):
            if 0 <= column < len(self.header.columns):
                return column
        else:
            for descriptor in reversed(self.header.columns):
                if descriptor.name == column:
                    return descriptor.number
        raise InvalidArgumentError(
            f"column {column!r} not found in the file",
            help="the columns are " + (", ".join(c.label for c in self.header.columns[:50]) or "none"),
            file=self.uri,
        )

    def blocks(self, column: str | int) -> layout.BlockTable:
        """Return the block table of ``column``, a name or number; read on first use."""
        number = self.number(column)
        if number not in self._tables:
            self._tables[number] = self._read_blocks(number)
        return self._tables[number]

    def column(self, column: str | int) -> ColumnValues:
        """Return all lengths and values of ``column``, a name or number, flat and in file order."""
        descriptor = self.header.columns[self.number(column)]
        cut = self.cut([descriptor.number], 0, self.row_count)[descriptor.number]
        return ColumnValues(descriptor.name, descriptor.type.value, cut.lengths, cut.values)

    def cut(self, columns: Sequence[int], start: int, stop: int, budget: Budget | None = None) -> dict[int, Slots]:
        """Return the rows ``start`` to ``stop`` of ``columns``, given by number, and of their ancestors.

        Reads only their blocks.  ``budget`` limits the memory; by default it follows from the file size.
        """
        return _Request(self, columns, start, stop, budget or self._budget()).cuts()

    def _budget(self) -> Budget:
        return Budget.of(self.size, limited=not self._trusted)

    def _read_header(self) -> layout.Header:
        size = self._source.size
        length = min(_HEADER_GUESS, size)
        while True:
            data = self._source.read(0, length)
            try:
                return layout.parse_header(data, file=self.uri, file_size=size)
            except NeedMoreBytes:
                # The loop ends: the cursor fails at the end of the file.
                length = min(4 * length, size)

    def _column_ends(self) -> list[int]:
        starts = sorted(self.header.starts)
        for one, other in pairwise(starts):
            if one == other:
                number = self.header.starts.index(one)
                raise self.where(number)._replace(offset=one).fail("two columns start at the same byte")
        following = dict(zip(starts, [*starts[1:], self._source.size], strict=False))
        return [following[start] for start in self.header.starts]

    def where(self, number: int) -> codecs.BlockLocation:
        """Return the location of the column ``number`` for errors."""
        return codecs.BlockLocation(self.uri, self.header.columns[number].label)

    def _read_blocks(self, number: int) -> layout.BlockTable:
        column = self.header.columns[number]
        start, end = self.header.starts[number], self.ends[number]
        size = codecs.checksum_size(column.checksum, file=self.uri, column=column.label)
        length = min(_DESCRIPTORS_GUESS, end - start)
        while True:
            try:
                return layout.parse_blocks(
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
        """Yield the blocks ``first`` to ``last`` of the column ``number``, decompressed and verified.

        ``slots`` has the slots of each block; impossible sizes raise before any request, which reads a few MB.
        """
        column, table = self.header.columns[number], self.blocks(number)
        self._check_sizes(column, table, first, np.asarray(slots, np.int64))
        check = 0 if column.checksum == "null" else 4
        offsets = table.offsets[first : last + 1].tolist()
        stored_sizes, raw_sizes = table.stored_sizes[first:last].tolist(), table.raw_sizes[first:last].tolist()
        i = 0
        while i < last - first:
            stop = max(i + 1, bisect_left(offsets, offsets[i] + _READ_SIZE, i) - 1)
            base = offsets[i]
            data = memoryview(self._source.read(base, offsets[stop] - base)).cast("B")
            for n in range(i, stop):
                at, end = offsets[n] - base, offsets[n] - base + stored_sizes[n]
                location = self.where(number).at(first + n, offsets[n])
                raw = codecs.decompress(column.codec, data[at:end], raw_sizes[n], location)
                if check:
                    codecs.verify(column.checksum, column.codec, raw, bytes(data[end : end + check]), location)
                yield Block(raw, slots[n], first + n, offsets[n])
            i = stop

    def _check_sizes(self, column: layout.ColumnDescriptor, table: layout.BlockTable, first: int, slots: Any) -> None:
        sizes = table.raw_sizes[first : first + len(slots)]
        type_ = column.type
        # A run may encode any number of lengths, but not in 0 bytes.
        wrong = (slots > 0) & (sizes == 0) if column.array else type_.wrong_sizes(slots, sizes)
        if wrong.any():
            i = int(np.argmax(wrong))
            what = "lengths" if column.array else f"values of type {type_.value}"
            location = self.where(column.number).at(first + i, int(table.offsets[first + i]))
            raise location.fail(f"a block of {slots[i]} {what} cannot have {sizes[i]} bytes")
        stored = table.stored_sizes[first : first + len(slots)]
        inflated = np.where((sizes > _LARGE) & (sizes > _MAX_RATIO * stored), sizes, 0)
        if not self._trusted and inflated.sum() > _MAX_INFLATED:
            i = int(np.argmax(inflated))
            location = self.where(column.number).at(first + i, int(table.offsets[first + i]))
            message = f"the block claims that {stored[i]} bytes decompress to {sizes[i]} bytes with {column.codec}"
            raise location.fail(message, TRUST_HELP)


class _Request:
    """Rows ``start`` to ``stop`` of some columns: the blocks to read and the parts to return.

    Decoding the blocks of a child needs the lengths of its parent for all rows in them, which are read as well.
    """

    def __init__(self, file: ColumnFile, columns: Sequence[int], start: int, stop: int, budget: Budget) -> None:
        self._file, self._start, self._stop, self._budget = file, start, stop, budget
        self._columns = file.header.columns
        numbers = set(columns)
        for number in columns:
            above = self._columns[number].parent
            while above is not None:
                numbers.add(above)
                above = self._columns[above].parent
        self._numbers = sorted(numbers)
        # The blocks to read of each column.  Children come after their parents, so go backwards.
        self._ranges: dict[int, tuple[int, int]] = {}
        need = dict.fromkeys(self._numbers, (start, stop))
        for number in reversed(self._numbers):
            table = file.blocks(number)
            first, last = self._ranges[number] = table.covering(*need[number])
            parent = self._columns[number].parent
            if parent is not None and first < last:
                low, high = need[parent]
                need[parent] = min(low, int(table.row_starts[first])), max(high, int(table.row_starts[last]))
        # For array columns with children: the first value of each row in the blocks read.
        self._row_values: dict[int, np.ndarray[Any, np.dtype[np.int64]]] = {}

    def cuts(self) -> dict[int, Slots]:
        return {number: self._cut(number) for number in self._numbers}

    def _rows(self, number: int) -> tuple[int, int]:
        """Return the rows in the blocks of a column that were read."""
        first, last = self._ranges[number]
        rows = self._file.blocks(number).row_starts
        return (int(rows[first]), int(rows[last])) if first < last else (self._start, self._start)

    def _slots_before(self, number: int, row: int) -> int:
        first_row = self._rows(number)[0]
        parent = self._columns[number].parent
        if parent is None:
            return row - first_row
        values = self._row_values[parent]
        parent_first = self._rows(parent)[0]
        return int(values[row - parent_first] - values[first_row - parent_first])

    def _cut(self, number: int) -> Slots:
        column = self._columns[number]
        location = self._file.where(number)
        first, last = self._ranges[number]
        table = self._file.blocks(number)
        bounds = [self._slots_before(number, int(row)) for row in table.row_starts[first : last + 1]]
        slots = [b - a for a, b in pairwise(bounds)]
        raw_bytes = int(table.raw_sizes[first:last].sum())
        total = sum(slots)
        begin = location.at(first, int(table.offsets[first]))
        if column.codec != "null":
            self._budget.inflate(int(table.stored_sizes[first:last].sum()), raw_bytes, begin)
        if column.array:
            self._budget.spend(total, raw_bytes, begin)
        decoded = decode(
            column.type,
            column.array,
            self._file.payloads(number, first, last, slots),
            total,
            location,
            self._budget,
            # The sizes in descriptors are not verified yet: reserve no more than a valid file needs.
            min(raw_bytes, (1 << 24) + 16 * int(table.stored_sizes[first:last].sum())),
        )
        low, high = self._slots_before(number, self._start), self._slots_before(number, max(self._start, self._stop))
        if not column.array:
            return Slots(None, decoded.values.slice(low, high - low))
        assert decoded.lengths is not None
        ends = np.concatenate(([0], np.cumsum(decoded.lengths, dtype=np.int64)))
        if self._file.header.children[number]:
            row_start, row_stop = self._rows(number)
            parent, rows = column.parent, np.arange(row_stop - row_start + 1)
            if parent is not None:
                parent_first = self._rows(parent)[0]
                values = self._row_values[parent][row_start - parent_first : row_stop - parent_first + 1]
                rows = values - values[0]
            self._row_values[number] = ends[rows]
        first_value, end = int(ends[low]), int(ends[high])
        return Slots(decoded.lengths[low:high], decoded.values.slice(first_value, end - first_value))
