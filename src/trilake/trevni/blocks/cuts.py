"""Read rows of columns: fetch and decode only the blocks that contain them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from trilake.trevni.blocks.codecs import Place
from trilake.trevni.blocks.decode import Block, Budget, Slots, decode
from trilake.trevni.blocks.layout import BlockTable, Header


class ColumnBlocks(Protocol):
    """The parts of a file that a request needs."""

    @property
    def header(self) -> Header:
        """The parsed header."""

    def blocks(self, number: int) -> BlockTable:
        """Return the block table of a column."""

    def where(self, number: int) -> Place:
        """Return the place of a column for errors."""

    def payloads(self, number: int, first: int, last: int, slots: Sequence[int]) -> Iterator[Block]:
        """Yield the blocks of a column from ``first`` to ``last`` (exclusive)."""


class Request:
    """Rows ``start`` to ``stop`` of some columns: the blocks to read and the parts to return.

    Blocks contain whole rows.  Decoding the blocks of a child needs the lengths of its parent for all rows in them, so
    these rows of the parent are read as well.
    """

    def __init__(self, file: ColumnBlocks, columns: Sequence[int], start: int, stop: int, budget: Budget) -> None:
        self._file, self._start, self._stop, self._budget = file, start, stop, budget
        self._columns = file.header.columns
        self._numbers = sorted(set(columns) | self._ancestors(columns))
        self._ranges = self._block_ranges()
        # For array columns with children: the first value of each row in the blocks read.
        self._row_values: dict[int, np.ndarray[Any, np.dtype[np.int64]]] = {}

    def _ancestors(self, columns: Sequence[int]) -> set[int]:
        ancestors: set[int] = set()
        for number in columns:
            parent = self._columns[number].parent
            while parent is not None and parent not in ancestors:
                ancestors.add(parent)
                parent = self._columns[parent].parent
        return ancestors

    def _block_ranges(self) -> dict[int, tuple[int, int]]:
        """Return the blocks to read of each column.  Children come after their parents, so go backwards."""
        need = dict.fromkeys(self._numbers, (self._start, self._stop))
        ranges: dict[int, tuple[int, int]] = {}
        for number in reversed(self._numbers):
            table = self._file.blocks(number)
            first, last = table.covering(*need[number])
            ranges[number] = first, last
            parent = self._columns[number].parent
            if parent is not None and first < last:
                low, high = need[parent]
                rows = table.row_starts
                need[parent] = min(low, int(rows[first])), max(high, int(rows[last]))
        return ranges

    def cuts(self) -> dict[int, Slots]:
        return {number: self._cut(number) for number in self._numbers}

    def _rows(self, number: int) -> tuple[int, int]:
        """Return the rows in the blocks read of a column."""
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
        place = self._file.where(number)
        first, last = self._ranges[number]
        table = self._file.blocks(number)
        bounds = [self._slots_before(number, int(row)) for row in table.row_starts[first : last + 1]]
        slots = [b - a for a, b in pairwise(bounds)]
        raw_bytes = int(table.raw_sizes[first:last].sum())
        total = sum(slots)
        begin = place.at(first, int(table.offsets[first]))
        if column.codec != "null":
            self._budget.inflate(int(table.stored_sizes[first:last].sum()), raw_bytes, begin)
        if column.array:
            self._budget.spend(total, raw_bytes, begin)
        decoded = decode(
            column.type,
            column.array,
            self._file.payloads(number, first, last, slots),
            total,
            place,
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
            rows = self._all_row_slots(number, row_start, row_stop)
            self._row_values[number] = ends[rows]
        first_value, end = int(ends[low]), int(ends[high])
        return Slots(decoded.lengths[low:high], decoded.values.slice(first_value, end - first_value))

    def _all_row_slots(self, number: int, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        parent = self._columns[number].parent
        if parent is None:
            return np.arange(stop - start + 1, dtype=np.int64)
        first = self._rows(parent)[0]
        values = self._row_values[parent][start - first : stop - first + 1]
        begins: np.ndarray[Any, np.dtype[np.int64]] = values - values[0]
        return begins
