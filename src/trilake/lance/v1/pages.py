"""The page table: position and length of each page in a data file.

For each field id, from the lowest to the highest of the file, and each batch, it has an int64 position and an int64
length; both are 0 if the field has no page.  In files of pylance before 0.8 it begins with field 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trilake.errors import CorruptFileError
from trilake.lance.file.sources import Int64s

ENTRY = 16


class PageTable:
    """Positions and lengths of pages, by field id and batch.

    ``cells`` has the shape (fields, batches, 2); its first row is the field ``first_id``.
    """

    def __init__(self, first_id: int, cells: npt.NDArray[np.int64]) -> None:
        self.first_id = first_id
        self.cells = cells
        self._lists: dict[int, tuple[list[int], list[int]]] = {}

    @staticmethod
    def size(first_id: int, last_id: int, batches: int) -> int:
        """The size of a table in bytes.

        >>> PageTable.size(3, 4, 10)
        320
        """
        return ENTRY * (last_id - first_id + 1) * batches

    @classmethod
    def parse(cls, data: Any, first_id: int, last_id: int, batches: int) -> PageTable:
        cells = np.frombuffer(data, "<i8").astype(np.int64).reshape(last_id - first_id + 1, batches, 2)
        return cls(first_id, cells)

    def field(self, field_id: int) -> tuple[Int64s, Int64s]:
        """Positions and lengths of a field's pages, one per batch."""
        row = self.cells[field_id - self.first_id]
        return row[:, 0], row[:, 1]

    def lists(self, field_id: int) -> tuple[list[int], list[int]]:
        """:meth:`field` as lists, for access to single entries."""
        lists = self._lists.get(field_id)
        if lists is None:
            positions, lengths = self.field(field_id)
            lists = self._lists[field_id] = positions.tolist(), lengths.tolist()
        return lists

    def has(self, field_id: int) -> bool:
        """Whether the table has a row for the field."""
        return 0 <= field_id - self.first_id < len(self.cells)

    def has_pages(self, field_ids: Sequence[int]) -> bool:
        """Whether each of these fields has a page in every batch; the table must have rows for them."""
        rows = self.cells[np.array(field_ids, np.int64) - self.first_id]
        return bool(rows.any(axis=2).all())


class PageTableBuilder:
    """Collects the positions of pages as they are written."""

    def __init__(self, field_ids: Sequence[int]) -> None:
        self._first = min(field_ids, default=0)
        self._places: list[list[tuple[int, int]]] = [
            [] for _ in range(self._first, max(field_ids, default=self._first - 1) + 1)
        ]

    def add(self, field_id: int, position: int, length: int) -> None:
        """Add the page of a field in its next batch."""
        self._places[field_id - self._first].append((position, length))

    def serialise(self, batches: int) -> bytes:
        none = [(0, 0)] * batches
        return np.array([p or none for p in self._places], "<i8").tobytes()


def check_offsets(offsets: Int64s, limit: int, *, file: str, column: str, batch: int | None, what: str) -> int:
    """Check that offsets ascend, from 0 or more up to ``limit``; return the smallest difference of neighbors.

    Raises ``CorruptFileError``, with the keyword arguments in its message and context.
    """
    least = int(np.diff(offsets).min()) if len(offsets) > 1 else 1
    # Check every offset: differences of numbers far out of range would overflow.
    if least < 0 or offsets.min() < 0 or offsets.max() > limit:
        raise CorruptFileError(
            f"offsets of {what} decrease, or point outside their values", file=file, column=column, batch=batch
        )
    return least
