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
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.storage import Store
from trilake.trevni.blocks import codecs, order
from trilake.trevni.blocks.cuts import Cut, Request
from trilake.trevni.blocks.decode import MAX_UNBACKED, Block, Budget, Where
from trilake.trevni.blocks.layout import (
    BlockDescriptor,
    BlockTable,
    ColumnDescriptor,
    Header,
    Metadata,
    NeedMoreBytes,
    parse_blocks,
    parse_header,
)
from trilake.trevni.blocks.source import Source, open_source
from trilake.trevni.nesting.arrow_forms import from_plain, from_plain_chunks, max_rows, plain_type, to_plain
from trilake.trevni.nesting.arrow_types import to_values
from trilake.trevni.nesting.assemble import SCHEMA, Assembler, Node, plain_nodes, schema_nodes

_HEADER_GUESS = 1 << 16
_DESCRIPTORS_GUESS = 1 << 12
#: Stored bytes fetched with one read.
_READ_SIZE = 1 << 22
#: A file may claim so many rows beyond those that its bytes could hold; above that, rows without bytes are refused.
_MAX_FREE_ROWS = 1 << 25
#: Blocks are 64 KiB unless one row is larger.  Blocks of more than ``_LARGE`` bytes that grow more than ``_MAX_RATIO``
#: times over are taken for inflation bombs when they come to more than ``_MAX_INFLATED`` bytes together.
_LARGE, _MAX_RATIO, _MAX_INFLATED = 1 << 20, 64, 1 << 24


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
    """The raw content of one column.

    ``lengths`` is numpy int32, ``None`` without ``array``; ``values`` a flat Arrow array.
    """

    name: str | None
    type: str
    lengths: np.ndarray[Any, np.dtype[np.int32]] | None
    values: pa.Array


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
        self._schema_metadata: dict[bytes, bytes] | None = None
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

    def cut(self, columns: Sequence[int], start: int, stop: int, budget: Budget | None = None) -> dict[int, Cut]:
        """The rows ``start`` to ``stop`` of the columns given by number, and of all their ancestors.

        Only blocks that hold such rows are read.
        """
        return Request(self, columns, start, stop, budget or self._budget()).cuts()

    def _budget(self) -> Budget:
        return Budget.of(self.size, limited=not self._trusted)

    # --- rows ---

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The fields of the rows and the columns that hold them.  Raises ``CorruptFileError``, see :attr:`schema`."""
        if SCHEMA not in self.metadata:
            return tuple(plain_nodes(self._header, self.children))
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(self.metadata[SCHEMA]))
            # Arrow decodes names when they are asked for.
            for one in schema:
                _check_names(one)
        except (pa.ArrowException, OSError, ValueError, TypeError) as e:
            raise CorruptFileError(f"the Arrow schema in the file cannot be read: {e}", file=self.uri) from e
        self._schema_metadata = schema.metadata
        return tuple(schema_nodes(schema, self._header, self.children, self.uri))

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows.

        Raises ``CorruptFileError`` where the file states a schema that is not that of its columns.
        """
        nodes = self.nodes
        return pa.schema([node.field for node in nodes], metadata=self._schema_metadata)

    def select(self, columns: Sequence[str] | None) -> tuple[Node, ...]:
        """The nodes of some top-level fields, in the order asked for.  Raises ``InvalidArgumentError``."""
        if columns is None:
            return self.nodes
        if isinstance(columns, str):
            raise InvalidArgumentError(f"columns must be a sequence of names, not the text {columns!r}")
        by_name = {node.field.name: node for node in self.nodes}
        unknown = [name for name in columns if name not in by_name]
        if unknown:
            raise InvalidArgumentError(
                f"the file has no field {', '.join(map(repr, unknown))}",
                help="it has " + (", ".join(list(by_name)[:50]) or "none"),
                file=self.uri,
            )
        return tuple(by_name[name] for name in columns)

    def read(self, columns: Sequence[str] | None = None, rows: Any = None) -> pa.Table:
        """Rows as an Arrow table.

        Parameters
        ----------
        columns: names of top-level fields; ``None`` for all.
        rows: ``None`` for all, a ``slice``, a ``range``, or row numbers in any order.

        Raises ``CorruptFileError``, and ``InvalidArgumentError`` for fields or rows that the file does not have.
        """
        nodes = self.select(columns)
        schema = pa.schema([node.field for node in nodes], metadata=self._schema_metadata)
        spans, order = self._spans(rows, nodes)
        budget = self._budget()
        pieces = (piece for start, stop in spans for piece in self.pieces(nodes, start, stop))
        batches = [self._plain(nodes, a, b, budget) for a, b in pieces]
        if not nodes:
            # Arrow needs a column to know how many rows there are.
            count = sum(stop - start for start, stop in spans) if order is None else len(order)
            return pa.table({"rows": pa.nulls(count)}).select([])
        table = pa.Table.from_batches(batches, schema=_plain_schema(nodes))
        table = table if order is None else table.take(pa.array(order))
        forms = [self._formed(from_plain_chunks, table.column(i), node.field) for i, node in enumerate(nodes)]
        return pa.Table.from_arrays(forms, schema=schema)

    def batches(
        self, columns: Sequence[str] | None = None, start: int = 0, stop: int | None = None, size: int = 1 << 25
    ) -> Iterator[pa.RecordBatch]:
        """The rows ``start`` to ``stop`` as a stream of batches of about ``size`` bytes."""
        nodes = self.select(columns)
        for a, b in self.pieces(nodes, start, self.row_count if stop is None else stop, size):
            yield self.batch(nodes, a, b)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows one after another, each as a dictionary of Python values."""
        for batch in self.batches(size=1 << 20):
            yield from batch.to_pylist()

    def __len__(self) -> int:
        return self.row_count

    def batch(self, nodes: Sequence[Node], start: int, stop: int) -> pa.RecordBatch:
        """The rows ``start`` to ``stop`` of some fields as one batch."""
        plain = self._plain(nodes, start, stop, self._budget())
        if not nodes:
            return plain
        arrays = [self._formed(from_plain, plain.column(i), node.field) for i, node in enumerate(nodes)]
        schema = pa.schema([node.field for node in nodes], metadata=self._schema_metadata)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _plain(self, nodes: Sequence[Node], start: int, stop: int, budget: Budget) -> pa.RecordBatch:
        cuts = self.cut([c for node in nodes for c in node.columns()], start, stop, budget)
        build = Assembler(cuts, self._header.columns, self.uri, budget)
        if not nodes:
            return pa.RecordBatch.from_arrays([pa.nulls(stop - start)], ["rows"]).select([])
        arrays = [build.array(node, stop - start) for node in nodes]
        return pa.RecordBatch.from_arrays(arrays, schema=_plain_schema(nodes))

    def _formed(self, convert: Callable[[Any, pa.DataType], Any], values: Any, field: pa.Field) -> Any:
        try:
            return convert(values, field.type)
        except (pa.ArrowException, ValueError, OverflowError) as e:
            raise CorruptFileError(
                f"the values are not those of the type {field.type}: {e}", file=self.uri, column=field.name
            ) from e

    def pieces(self, nodes: Sequence[Node], start: int, stop: int, size: int = 1 << 30) -> Iterator[tuple[int, int]]:
        """The rows ``start`` to ``stop`` in pieces that take about ``size`` bytes of payload, each of one row at least.

        No piece has so much text in a column that 32-bit offsets do not reach.
        """
        numbers = [c for node in nodes for c in node.columns()]
        tables = [self.blocks(c) for c in numbers]
        raw = sum(int(t.raw_sizes.sum()) for t in tables)
        # Rows without bytes count too.
        step = max(1, min(self.row_count * size // max(raw, 1), max(size // 16, 1 << 16)))
        # A request must not ask for more lengths than any file may give it for nothing.
        arrays = sum(self._header.columns[c].array for c in numbers)
        step = min(step, max(1, MAX_UNBACKED // arrays)) if arrays else step
        step = min([step, *(max_rows(node.field.type) for node in nodes)])
        while start < stop:
            end = min(stop, start + step)
            while end - start > 1 and any(t.raw_bytes(start, end) > max(size, 1 << 26) for t in tables):
                end = start + (end - start) // 2
            yield start, end
            start = end

    def seek(self, column: str | int, value: Any) -> int:
        """The first row whose value in a sorted ``values`` column is not below ``value``; the row count if none is.

        At most one block is read.  Values compare as :mod:`trilake.trevni.blocks.order` says.

        Raises ``InvalidArgumentError`` for a column without first values or not in order, or a value of another type.
        """
        number = self.number(column)
        descriptor, table = self._header.columns[number], self.blocks(number)
        if table.first_values is None:
            raise InvalidArgumentError(
                f"column {descriptor.label!r} has no first values in its block descriptors",
                help="write it with the option values=True to seek in it",
                file=self.uri,
            )
        key = order.key(descriptor.type)
        try:
            wanted = key(self._stored_value(number, value))
            firsts = list(map(key, table.first_values.to_pylist()))
            block = bisect_left(firsts, wanted)
        except (pa.ArrowException, ValueError, TypeError, AttributeError) as e:
            raise InvalidArgumentError(
                f"{value!r} is no value of column {descriptor.label!r} of type {descriptor.type.value}", file=self.uri
            ) from e
        if any(a > b for a, b in pairwise(firsts)):
            raise InvalidArgumentError(
                f"column {descriptor.label!r} is not in order, so there is nothing to seek in", file=self.uri
            )
        if block == 0:
            return 0
        start, stop = int(table.row_starts[block - 1]), int(table.row_starts[block])
        # The block before begins below the value and may reach it.
        found = map(key, self.cut([number], start, stop)[number].values.to_pylist())
        for row, one in enumerate(found, start):
            if row == start and one != firsts[block - 1]:
                raise CorruptFileError(
                    "the first value is not that of the block descriptor",
                    file=self.uri,
                    column=descriptor.label,
                    block=block - 1,
                    offset=int(table.offsets[block - 1]),
                )
            if one >= wanted:
                return row
        return stop

    def _stored_value(self, number: int, value: Any) -> Any:
        """What the file has for a value of a field."""
        leaf = next((n for n in self.nodes if n.kind == "leaf" and n.column == number), None)
        if leaf is None or isinstance(value, int) or value is None:
            return value
        return to_values(to_plain(pa.array([value], leaf.field.type)))[0].as_py()

    def _spans(self, rows: Any, nodes: Sequence[Node]) -> tuple[list[tuple[int, int]], Any]:
        """The row ranges to read, and where in what was read the rows asked for are (``None``: in order)."""
        count = self.row_count
        if rows is None:
            return [(0, count)], None
        if isinstance(rows, slice):
            rows = range(*rows.indices(count))
        if isinstance(rows, range) and rows.step == 1:
            if len(rows) and not 0 <= rows.start <= rows.stop <= count:
                raise InvalidArgumentError(f"the rows {rows} are not all in the file's {count}", file=self.uri)
            return [(rows.start, rows.stop)] if len(rows) else [(0, 0)], None
        wanted = np.asarray(rows, dtype=np.int64).reshape(-1)
        if wanted.size and not 0 <= int(wanted.min()) <= int(wanted.max()) < count:
            raise InvalidArgumentError(f"a row number is not in 0 to {count - 1}", file=self.uri)
        if not wanted.size:
            return [(0, 0)], []
        sorted_rows = np.unique(wanted)
        # Rows whose blocks are the same or next to each other are read together.
        tables = [self.blocks(c) for node in nodes for c in node.columns()]
        gap = min((count // max(len(t), 1) for t in tables), default=count)
        breaks = np.flatnonzero(np.diff(sorted_rows) > gap)
        starts = sorted_rows[np.concatenate(([0], breaks + 1))]
        stops = sorted_rows[np.concatenate((breaks, [len(sorted_rows) - 1]))] + 1
        before = np.concatenate(([0], np.cumsum(stops - starts)))
        span = np.searchsorted(starts, wanted, side="right") - 1
        places = before[span] + wanted - starts[span]
        return list(zip(starts.tolist(), stops.tolist(), strict=True)), places

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
        """The blocks ``first`` to ``last`` of a column, decompressed and verified; fetched a few MB at a time.

        ``slots`` says how many slots each of them has; sizes that so many values cannot have are refused unread.
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
            for i in range(i, stop):  # noqa: B020 - the outer loop goes on where this one ends
                at, end = offsets[i] - base, offsets[i] - base + stored_sizes[i]
                place = codecs.Place(self.uri, column.label, first + i, offsets[i])
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
        # A run of lengths may stand for any number of them, but not for any in no bytes.
        wrong = (slots > 0) & (sizes == 0) if column.array else type_.wrong_sizes(slots, sizes)
        if wrong.any():
            i = int(np.argmax(wrong))
            what = "lengths" if column.array else f"values of type {type_.value}"
            raise self.where(column.number).fail(
                f"{slots[i]} {what} cannot take {sizes[i]} bytes", first + i, int(table.offsets[first + i])
            )
        stored = table.stored_sizes[first : first + len(slots)]
        inflated = np.where((sizes > _LARGE) & (sizes > _MAX_RATIO * stored), sizes, 0)
        if not self._trusted and inflated.sum() > _MAX_INFLATED:
            i = int(np.argmax(inflated))
            raise CorruptFileError(
                f"the block states that {stored[i]} bytes of {column.codec} hold {sizes[i]} bytes",
                help="if the file is to be trusted, open it with trusted=True; or read fewer rows at a time",
                file=self.uri,
                column=column.label,
                block=first + i,
                offset=int(table.offsets[first + i]),
            )


def _check_names(field: pa.Field) -> None:
    """Raises ``UnicodeDecodeError`` where a name in a schema is not UTF-8, at whatever depth."""
    str(field.name)
    for i in range(field.type.num_fields):
        _check_names(field.type.field(i))


def _plain_schema(nodes: Sequence[Node]) -> pa.Schema:
    return pa.schema([node.field.with_type(plain_type(node.field.type)) for node in nodes])
