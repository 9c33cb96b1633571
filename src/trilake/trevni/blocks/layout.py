"""The parts of a Trevni file: value types, column and block descriptors, header (spec: "File Format").

:mod:`trilake.trevni.blocks.header_bytes` parses and serializes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

MAGIC = b"Trv"
#: Avro 1.7.3 and 1.7.4 wrote version 1, which differs only in that it has no negative run lengths.
VERSIONS = (1, 2)

#: Maximum nesting of arrays: enough for real data, and too few to exhaust the stack.
MAX_DEPTH = 100

CODEC, CHECKSUM = "trevni.codec", "trevni.checksum"
NAME, TYPE, VALUES, ARRAY, PARENT = "trevni.name", "trevni.type", "trevni.values", "trevni.array", "trevni.parent"
RESERVED = "trevni."

Metadata = Mapping[str, bytes]


class ValueType(Enum):
    """The type names of the specification."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FIXED32 = "fixed32"
    FIXED64 = "fixed64"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"

    @property
    def width(self) -> int | None:
        """Bytes per value, or ``None`` if values have different sizes."""
        return _WIDTHS.get(self)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values."""
        return _ARROW[self]

    def wrong_sizes(self, values: Any, sizes: Any) -> Any:
        """Compare arrays of value counts and byte sizes; returns a mask of the pairs that are impossible."""
        if self is ValueType.BOOLEAN:
            return sizes != (values + 7) // 8
        if self is ValueType.NULL or self.width is not None:
            return sizes != values * (self.width or 0)
        least = sizes < values
        if self in (ValueType.STRING, ValueType.BYTES):
            return least | ((values == 0) & (sizes > 0))
        return least | (sizes > values * (5 if self is ValueType.INT else 10))


_WIDTHS = {ValueType.FIXED32: 4, ValueType.FIXED64: 8, ValueType.FLOAT: 4, ValueType.DOUBLE: 8}
_ARROW = {
    ValueType.NULL: pa.null(),
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.INT: pa.int32(),
    ValueType.LONG: pa.int64(),
    ValueType.FIXED32: pa.int32(),
    ValueType.FIXED64: pa.int64(),
    ValueType.FLOAT: pa.float32(),
    ValueType.DOUBLE: pa.float64(),
    ValueType.STRING: pa.string(),
    ValueType.BYTES: pa.binary(),
}


@dataclass(frozen=True, slots=True)
class BlockDescriptor:
    """One block of a column (spec: "block descriptor").

    ``row`` is its first row in the file and ``rows`` its number of rows; ``raw_size`` and ``stored_size`` are its bytes
    before and after compression, without the checksum; ``offset`` is its position in the file; ``first_value`` is the
    first value as stored in the descriptor, for columns with ``values``.
    """

    row: int
    rows: int
    raw_size: int
    stored_size: int
    offset: int
    first_value: Any = None


@dataclass(frozen=True, eq=False)
class BlockTable:
    """All block descriptors of a column, as int64 arrays of equal length.

    ``row_starts`` and ``offsets`` have one more entry: the row and the byte after the last block.
    """

    row_starts: np.ndarray[Any, np.dtype[np.int64]]
    raw_sizes: np.ndarray[Any, np.dtype[np.int64]]
    stored_sizes: np.ndarray[Any, np.dtype[np.int64]]
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    first_values: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.raw_sizes)

    @property
    def rows(self) -> int:
        """Number of rows in all blocks."""
        return int(self.row_starts[-1])

    def covering(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of blocks that contain the rows ``start`` to ``stop``."""
        if start >= stop:
            return 0, 0
        first = int(np.searchsorted(self.row_starts, start, side="right")) - 1
        last = int(np.searchsorted(self.row_starts, stop, side="left"))
        return first, last

    def raw_bytes(self, start: int, stop: int) -> int:
        """Return the payload bytes of the blocks that contain the rows ``start`` to ``stop``."""
        first, last = self.covering(start, stop)
        return int(self.raw_sizes[first:last].sum())

    def __iter__(self) -> Iterator[BlockDescriptor]:
        first = self.first_values.to_pylist() if self.first_values is not None else [None] * len(self)
        return map(
            BlockDescriptor,
            self.row_starts[:-1].tolist(),
            np.diff(self.row_starts).tolist(),
            self.raw_sizes.tolist(),
            self.stored_sizes.tolist(),
            self.offsets[:-1].tolist(),
            first,
        )


@dataclass(frozen=True)
class ColumnDescriptor:
    """A column as described in the header (spec: "column metadata").

    ``name`` is ``None`` if the file has none (the specification requires one, readers accept its absence).  With
    ``array``, each row, or each element of the parent, has a sequence of values.  ``parent`` is the number of the
    parent, an array column.  With ``values``, block descriptors store first values.  ``codec`` and ``checksum`` are
    those in effect for this column.  ``metadata`` has all properties in file order.
    """

    number: int
    name: str | None
    type: ValueType
    array: bool = False
    parent: int | None = None
    values: bool = False
    codec: str = "null"
    checksum: str = "null"
    metadata: Metadata = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name, or the number of a column without a name."""
        return self.name if self.name is not None else f"column {self.number}"


@dataclass(frozen=True)
class Header:
    """The header of a file: everything before its columns.

    ``starts`` are the file offsets of the columns, ``size`` is the length of the header.
    """

    version: int
    row_count: int
    metadata: Metadata
    columns: tuple[ColumnDescriptor, ...]
    starts: tuple[int, ...]
    size: int

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the child columns of each column."""
        children: list[list[int]] = [[] for _ in self.columns]
        for column in self.columns:
            if column.parent is not None:
                children[column.parent].append(column.number)
        return tuple(map(tuple, children))
