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
from trilake.trevni.blocks import codecs
from trilake.trevni.blocks.cursor import NeedMoreBytes
from trilake.trevni.blocks.cuts import Request
from trilake.trevni.blocks.decode import TRUST_HELP, Block, Budget, Slots
from trilake.trevni.blocks.header_bytes import parse_blocks, parse_header
from trilake.trevni.blocks.layout import (
    BlockDescriptor,
    BlockTable,
    ColumnDescriptor,
    Header,
    Metadata,
)
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
    metadata: Metadata
    blocks: tuple[BlockDescriptor, ...]


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
        self._header = self._read_header()
        self._tables: dict[int, BlockTable] = {}
        self._ends = self._column_ends()
        self._check_row_count()

    # --- header ---

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
        return self._header.version

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self._header.row_count

    @property
    def metadata(self) -> Metadata:
        """File metadata in file order."""
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

    def number(self, column: str | int) -> int:
        """Return the number of ``column``, a name or number; the last one if several have the name.

        Raises ``InvalidArgumentError`` for an unknown column.

        >>> import io
        >>> from trilake.trevni import TrevniFile, write
        >>> sink = io.BytesIO()
        >>> _ = write({"id": [1, 2, 3], "s": ["a", "b", "c"]}, sink)
        >>> file = TrevniFile(sink.getvalue())
        >>> file.number("s")
        1
        """
        if isinstance(column, int):
            if 0 <= column < len(self._header.columns):
                return column
        else:
            for descriptor in reversed(self._header.columns):
                if descriptor.name == column:
                    return descriptor.number
        raise InvalidArgumentError(
            f"column {column!r} not found in the file",
            help="the columns are " + (", ".join(c.label for c in self._header.columns[:50]) or "none"),
            file=self.uri,
        )

    def blocks(self, column: str | int) -> BlockTable:
        """Return the block table of ``column``, a name or number; read on first use.

        >>> import io
        >>> from trilake.trevni import TrevniFile, write
        >>> sink = io.BytesIO()
        >>> _ = write({"id": [1, 2, 3], "s": ["a", "b", "c"]}, sink)
        >>> file = TrevniFile(sink.getvalue())
        >>> len(file.blocks("id"))
        1
        """
        number = self.number(column)
        if number not in self._tables:
            self._tables[number] = self._read_blocks(number)
        return self._tables[number]

    # --- content ---

    def column(self, column: str | int) -> ColumnValues:
        """Return all lengths and values of ``column``, a name or number, flat and in file order.

        >>> import io
        >>> from trilake.trevni import TrevniFile, write
        >>> sink = io.BytesIO()
        >>> _ = write({"id": [1, 2, 3], "s": ["a", "b", "c"]}, sink)
        >>> file = TrevniFile(sink.getvalue())
        >>> file.column("id").values.to_pylist()
        [1, 2, 3]
        """
        descriptor = self._header.columns[self.number(column)]
        cut = self.cut([descriptor.number], 0, self.row_count)[descriptor.number]
        return ColumnValues(descriptor.name, descriptor.type.value, cut.lengths, cut.values)

    def cut(self, columns: Sequence[int], start: int, stop: int, budget: Budget | None = None) -> dict[int, Slots]:
        """Return the rows ``start`` to ``stop`` of ``columns``, given by number, and of their ancestors.

        Reads only the blocks that contain these rows.  ``budget`` limits the memory; by default it follows from the
        file size.

        >>> import io
        >>> from trilake.trevni import TrevniFile, write
        >>> sink = io.BytesIO()
        >>> _ = write({"id": [1, 2, 3], "s": ["a", "b", "c"]}, sink)
        >>> file = TrevniFile(sink.getvalue())
        >>> file.cut([0], 1, 3)[0].values.to_pylist()
        [2, 3]
        """
        return Request(self, columns, start, stop, budget or self._budget()).cuts()

    def _budget(self) -> Budget:
        return Budget.of(self.size, limited=not self._trusted)

    def _read_header(self) -> Header:
        size = self._source.size
        length = min(_HEADER_GUESS, size)
        while True:
            data = self._source.read(0, length)
            try:
                return parse_header(data, file=self.uri, file_size=size)
            except NeedMoreBytes:
                # The loop ends: the cursor fails at the end of the file.
                length = min(4 * length, size)

    def _column_ends(self) -> list[int]:
        starts = sorted(self._header.starts)
        for one, other in pairwise(starts):
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
        # A compressed bit can encode a thousand values, and rows of nulls take no bytes.
        most = _MAX_FREE_ROWS + 8 * 1032 * self._source.size
        if not self._trusted and self.row_count > most:
            raise CorruptFileError(
                f"a file of {self._source.size} bytes claims to have {self.row_count} rows",
                help="for a file that you trust, open it with trusted=True",
                file=self.uri,
                offset=4,
            )

    def where(self, number: int) -> codecs.Place:
        """Return the place of the column ``number`` for errors.

        >>> import io
        >>> from trilake.trevni import TrevniFile, write
        >>> sink = io.BytesIO()
        >>> _ = write({"id": [1, 2, 3], "s": ["a", "b", "c"]}, sink)
        >>> file = TrevniFile(sink.getvalue())
        >>> file.where(1).column
        's'
        """
        return codecs.Place(self.uri, self._header.columns[number].label)

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
        """Yield the blocks ``first`` to ``last`` of the column ``number``, decompressed and verified.

        ``slots`` has the number of slots of each block; impossible sizes raise an error before any request.  A request
        reads a few MB.

        >>> import io
        >>> from trilake.trevni import TrevniFile, write
        >>> sink = io.BytesIO()
        >>> _ = write({"id": [1, 2, 3], "s": ["a", "b", "c"]}, sink)
        >>> file = TrevniFile(sink.getvalue())
        >>> [type(block).__name__ for block in file.payloads(0, 0, 1, [3])]
        ['Block']
        """
        column, table = self._header.columns[number], self.blocks(number)
        self._check_sizes(column, table, first, np.asarray(slots, np.int64))
        check = 0 if column.checksum == "null" else 4
        offsets = table.offsets[first : last + 1].tolist()
        stored_sizes, raw_sizes = table.stored_sizes[first:last].tolist(), table.raw_sizes[first:last].tolist()
        i = 0
        while i < last - first:
            stop = max(i + 1, bisect_left(offsets, offsets[i] + _READ_SIZE, i) - 1)
            base = offsets[i]
            data = memoryview(self._source.read(base, offsets[stop] - base)).cast("B")
            for i in range(i, stop):  # noqa: B020 - the outer loop continues where this one ends
                at, end = offsets[i] - base, offsets[i] - base + stored_sizes[i]
                place = self.where(number).at(first + i, offsets[i])
                raw = codecs.decompress(column.codec, data[at:end], raw_sizes[i], place)
                if check:
                    codecs.verify(column.checksum, column.codec, raw, bytes(data[end : end + check]), place)
                yield Block(raw, slots[i], first + i, offsets[i])
            i = stop

    def _check_sizes(
        self, column: ColumnDescriptor, table: BlockTable, first: int, slots: np.ndarray[Any, np.dtype[np.int64]]
    ) -> None:
        sizes = table.raw_sizes[first : first + len(slots)]
        type_ = column.type
        # A run may encode any number of lengths, but not in 0 bytes.
        wrong = (slots > 0) & (sizes == 0) if column.array else type_.wrong_sizes(slots, sizes)
        if wrong.any():
            i = int(np.argmax(wrong))
            what = "lengths" if column.array else f"values of type {type_.value}"
            place = self.where(column.number).at(first + i, int(table.offsets[first + i]))
            raise place.fail(f"a block of {slots[i]} {what} cannot have {sizes[i]} bytes")
        stored = table.stored_sizes[first : first + len(slots)]
        inflated = np.where((sizes > _LARGE) & (sizes > _MAX_RATIO * stored), sizes, 0)
        if not self._trusted and inflated.sum() > _MAX_INFLATED:
            i = int(np.argmax(inflated))
            raise (
                self.where(column.number)
                .at(first + i, int(table.offsets[first + i]))
                .fail(
                    f"the block claims that {stored[i]} bytes decompress to {sizes[i]} bytes with {column.codec}",
                    TRUST_HELP,
                )
            )
