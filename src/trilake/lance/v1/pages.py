"""Pages of the legacy format: their layout by type, and the page table with their positions and lengths.

For each field id, from the lowest to the highest of the file, and each batch, the table has an int64 position and an
int64 length; both are 0 if the field has no page.  In files of pylance before 0.8 it begins with field 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow.types as pt

from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.expr.terms.datatypes import Path
from trilake.lance.file import types
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.sources import Int64s, Source
from trilake.lance.file.storage_version import LEGACY


class PageKind(Enum):
    """The content of a field's page; its children have separate pages."""

    #: packed values of a whole number of bytes
    FIXED = "fixed"
    #: packed bits, least significant first
    BITS = "bits"
    #: bytes of all n values, then n + 1 int64 file positions
    VARIABLE = "variable"
    #: n + 1 offsets for n lists
    OFFSETS = "offsets"
    #: packed keys; the values are stored elsewhere
    KEYS = "keys"
    #: nothing: a struct's values are those of its children
    STRUCT = "struct"
    #: nothing: there are only nulls
    NULL = "null"


@dataclass(frozen=True)
class Layout:
    """The page layout of a field: its kind, and the bits of one value, offset or key (0 if it has no pages)."""

    kind: PageKind
    bits: int

    def page_bytes(self, rows: int) -> int:
        """The size of a page of ``rows`` rows, in bytes; for strings and binaries, only of the offsets.

        >>> Layout(PageKind.BITS, 1).page_bytes(9), Layout(PageKind.VARIABLE, 64).page_bytes(2)
        (2, 24)
        """
        more = self.kind in (PageKind.VARIABLE, PageKind.OFFSETS)
        return -(-(rows + more) * self.bits // 8)


def layout_of(field: Field) -> Layout:
    """The layout of a field's pages.  Raises ``UnsupportedProtocolError`` if the legacy format has none."""
    return layout(field.logical_type)


def outside_lists(schema: LanceSchema) -> list[tuple[Path, Field]]:
    """The top-level fields and those in structs, with their paths."""
    return [
        (tuple(schema.path_of(field)), field)
        for field in schema.walk()
        if all(layout_of(parent).kind is PageKind.STRUCT for parent in schema.above(field))
    ]


@lru_cache(maxsize=4096)
def layout(logical_type: str) -> Layout:
    """The layout of the pages of a type; see :func:`layout_of`."""
    if logical_type == "struct":
        return Layout(PageKind.STRUCT, 0)
    if logical_type in types.LISTS:
        return Layout(PageKind.OFFSETS, 64 if logical_type.startswith("large") else 32)
    if logical_type in ("map", "json") or types.is_struct_vector(logical_type):
        raise _unsupported(logical_type)
    arrow = types.arrow_type(logical_type)
    if pt.is_null(arrow):
        return Layout(PageKind.NULL, 0)
    if types.is_variable(arrow):
        return Layout(PageKind.VARIABLE, 64)
    if pt.is_dictionary(arrow):
        if not (types.is_variable(arrow.value_type) or pt.is_integer(arrow.value_type)):
            raise _unsupported(logical_type)
        return Layout(PageKind.KEYS, arrow.index_type.bit_width)
    if pt.is_fixed_size_list(arrow):
        if not types.is_flat(arrow.value_type):
            raise _unsupported(logical_type)
        bits = arrow.list_size * arrow.value_type.bit_width
        return Layout(PageKind.BITS if pt.is_boolean(arrow.value_type) else PageKind.FIXED, bits)
    return Layout(PageKind.BITS if pt.is_boolean(arrow) else PageKind.FIXED, arrow.bit_width)


def _unsupported(logical_type: str) -> UnsupportedProtocolError:
    return UnsupportedProtocolError(
        f"files of Lance {LEGACY} cannot store type {logical_type!r}",
        help="the manifest does not fit its data files, or is damaged",
        logical_type=logical_type,
    )


ENTRY = 16


class PageTable:
    """Positions and lengths of pages: ``cells`` is (fields, batches, 2), and its first row the field ``first_id``."""

    def __init__(self, first_id: int, cells: npt.NDArray[np.int64]) -> None:
        self.first_id = first_id
        self.cells = cells
        self._lists: dict[int, tuple[list[int], list[int]]] = {}

    @staticmethod
    def size(first_id: int, last_id: int, batches: int) -> int:
        """The size of a table in bytes."""
        return ENTRY * (last_id - first_id + 1) * batches

    @classmethod
    def read(cls, source: Source, position: int, first_id: int, last_id: int, batches: int) -> PageTable:
        """Read a table.  Raises ``CorruptFileError`` if it is not inside the file."""
        size = cls.size(first_id, last_id, batches)
        if first_id < 0 or size > source.size:
            raise CorruptFileError(
                f"the page table for fields {first_id} to {last_id} in {batches} batches is outside the file",
                file=source.file,
            )
        cells = np.frombuffer(source.read(position, size), "<i8").astype(np.int64)
        return cls(first_id, cells.reshape(last_id - first_id + 1, batches, 2))

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
        last = max(field_ids, default=self._first - 1)
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(self._first, last + 1)]

    def add(self, field_id: int, position: int, length: int) -> None:
        """Add the page of a field in its next batch."""
        self._places[field_id - self._first].append((position, length))

    def serialise(self, batches: int) -> bytes:
        none = [(0, 0)] * batches
        return np.array([p or none for p in self._places], "<i8").tobytes()


def check_offsets(offsets: Int64s, limit: int, *, file: str, column: str, batch: int | None, what: str) -> int:
    """Check that offsets ascend from 0 or more up to ``limit``; return the smallest difference of neighbors."""
    least = int(np.diff(offsets).min()) if len(offsets) > 1 else 1
    # Check every offset: differences of numbers far out of range would overflow.
    if least < 0 or offsets.min() < 0 or offsets.max() > limit:
        raise CorruptFileError(
            f"offsets of {what} decrease, or point outside their values", file=file, column=column, batch=batch
        )
    return least
