"""``TrevniFile``: read a file as rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.trevni.blocks import order
from trilake.trevni.blocks.decode import MAX_UNBACKED, Budget
from trilake.trevni.file.column_file import ColumnFile
from trilake.trevni.nesting.arrow_forms import from_plain, from_plain_chunks, max_rows, plain_type, to_plain
from trilake.trevni.nesting.arrow_types import to_values
from trilake.trevni.nesting.assemble import SCHEMA, Assembler, Node, plain_nodes, schema_nodes


class TrevniFile(ColumnFile):
    """A Trevni file.

    Parameters
    ----------
    file: a path or URI, a pair ``(store, key)``, bytes, or an object with ``read`` and ``seek``.
    trusted: do not limit decompressed bytes and elements without bytes; the limits protect against hostile files.

    Raises ``ObjectNotFoundError``, ``CorruptFileError`` with ``file`` and, if applicable, ``column``, ``block`` and
    ``offset``, and ``UnsupportedProtocolError`` for unknown versions, codecs and checksums.

    >>> from io import BytesIO
    >>> from trilake.trevni import ColumnOptions, write
    >>> sink = BytesIO()
    >>> rows = {"id": [10, 20, 30], "s": ["a", "b", "c"]}
    >>> _ = write(rows, sink, columns={"id": ColumnOptions(values=True)})
    >>> file = TrevniFile(sink.getvalue())
    >>> file.row_count, file.seek("id", 15), file.read(["s"], rows=[2, 0]).to_pydict()
    (3, 1, {'s': ['c', 'a']})
    >>> [batch.to_pydict() for batch in file.batches(["id"], start=1)]
    [{'id': [20, 30]}]
    >>> list(file.pieces(file.nodes, 0, 3)), file.batch(file.select(["id"]), 0, 2).to_pydict()
    ([(0, 3)], {'id': [10, 20]})
    >>> file.number("s"), len(file.blocks("s")), file.column("s").values.to_pylist(), file.where(1).column
    (1, 1, ['a', 'b', 'c'], 's')
    >>> file.cut([0], 1, 3)[0].values.to_pylist(), [block.slots for block in file.payloads(0, 0, 1, [3])]
    ([20, 30], [3])
    """

    _schema_metadata: dict[bytes, bytes] | None = None

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The top-level fields with their columns.  Raises ``CorruptFileError``, see :attr:`schema`."""
        if SCHEMA not in self.metadata:
            return tuple(plain_nodes(self.header))
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(self.metadata[SCHEMA]))
            # Arrow decodes names on access, so invalid ones raise only now.
            for one in schema:
                _check_names(one)
        except (pa.ArrowException, OSError, ValueError, TypeError) as e:
            raise CorruptFileError(f"the Arrow schema in the file cannot be read: {e}", file=self.uri) from e
        self._schema_metadata = schema.metadata
        return tuple(schema_nodes(schema, self.header, self.uri))

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows.  Raises ``CorruptFileError`` if it does not match the columns."""
        nodes = self.nodes
        return pa.schema([node.field for node in nodes], metadata=self._schema_metadata)

    def select(self, columns: Sequence[str] | None) -> tuple[Node, ...]:
        """Return the nodes of the top-level fields ``columns``, in this order.  Raises ``InvalidArgumentError``."""
        if columns is None:
            return self.nodes
        if isinstance(columns, str):
            raise InvalidArgumentError(f"columns must be a sequence of names, got the string {columns!r}")
        by_name = {node.field.name: node for node in self.nodes}
        unknown = [name for name in columns if name not in by_name]
        if unknown:
            raise InvalidArgumentError(
                f"fields not found in the file: {', '.join(map(repr, unknown))}",
                help="the fields are " + (", ".join(list(by_name)[:50]) or "none"),
                file=self.uri,
            )
        return tuple(by_name[name] for name in columns)

    def read(self, columns: Sequence[str] | None = None, rows: Any = None) -> pa.Table:
        """Read rows into an Arrow table.

        Parameters
        ----------
        columns: names of top-level fields; ``None`` for all.
        rows: a ``slice``, a ``range``, or row numbers in any order; ``None`` for all.

        Raises ``CorruptFileError``, and ``InvalidArgumentError`` for unknown fields or rows.
        """
        nodes = self.select(columns)
        schema = pa.schema([node.field for node in nodes], metadata=self._schema_metadata)
        spans, order = self._spans(rows, nodes)
        budget = self._budget()
        pieces = (piece for start, stop in spans for piece in self.pieces(nodes, start, stop))
        batches = [self._plain(nodes, a, b, budget) for a, b in pieces]
        if not nodes:
            # A table without columns gets its number of rows from a placeholder column.
            count = sum(stop - start for start, stop in spans) if order is None else len(order)
            return pa.table({"rows": pa.nulls(count)}).select([])
        table = pa.Table.from_batches(batches, schema=_plain_schema(nodes))
        table = table if order is None else table.take(pa.array(order))
        forms = [self._formed(from_plain_chunks, table.column(i), node.field) for i, node in enumerate(nodes)]
        return pa.Table.from_arrays(forms, schema=schema)

    def batches(
        self, columns: Sequence[str] | None = None, start: int = 0, stop: int | None = None, size: int = 1 << 25
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows ``start`` to ``stop`` as batches of about ``size`` bytes, with all or some ``columns``."""
        nodes = self.select(columns)
        for a, b in self.pieces(nodes, start, self.row_count if stop is None else stop, size):
            yield self.batch(nodes, a, b)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dictionaries of Python values."""
        for batch in self.batches(size=1 << 20):
            yield from batch.to_pylist()

    def __len__(self) -> int:
        return self.row_count

    def batch(self, nodes: Sequence[Node], start: int, stop: int) -> pa.RecordBatch:
        """Read the rows ``start`` to ``stop`` of the fields ``nodes`` as one batch."""
        plain = self._plain(nodes, start, stop, self._budget())
        if not nodes:
            return plain
        arrays = [self._formed(from_plain, plain.column(i), node.field) for i, node in enumerate(nodes)]
        schema = pa.schema([node.field for node in nodes], metadata=self._schema_metadata)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _plain(self, nodes: Sequence[Node], start: int, stop: int, budget: Budget) -> pa.RecordBatch:
        cuts = self.cut([c for node in nodes for c in node.columns()], start, stop, budget)
        build = Assembler(cuts, self.header.columns, self.uri, budget)
        if not nodes:
            return pa.RecordBatch.from_arrays([pa.nulls(stop - start)], ["rows"]).select([])
        arrays = [build.array(node, stop - start) for node in nodes]
        return pa.RecordBatch.from_arrays(arrays, schema=_plain_schema(nodes))

    def _formed(self, convert: Callable[[Any, pa.DataType], Any], values: Any, field: pa.Field) -> Any:
        try:
            return convert(values, field.type)
        except (pa.ArrowException, ValueError, OverflowError) as e:
            raise CorruptFileError(
                f"the values do not match the type {field.type}: {e}", file=self.uri, column=field.name
            ) from e

    def pieces(self, nodes: Sequence[Node], start: int, stop: int, size: int = 1 << 30) -> Iterator[tuple[int, int]]:
        """Divide the rows ``start`` to ``stop`` into ranges of about ``size`` bytes of payload, but at least one row.

        ``nodes`` are the fields whose payload counts.  The strings of a column in a range fit 32-bit offsets.
        """
        numbers = [c for node in nodes for c in node.columns()]
        tables = [self.blocks(c) for c in numbers]
        raw = sum(int(t.raw_sizes.sum()) for t in tables)
        # Rows without bytes count as well.
        step = max(1, min(self.row_count * size // max(raw, 1), max(size // 16, 1 << 16)))
        # A range must not exceed the budget of elements without bytes.
        arrays = sum(self.header.columns[c].array for c in numbers)
        step = min(step, max(1, MAX_UNBACKED // arrays)) if arrays else step
        step = min([step, *(max_rows(node.field.type) for node in nodes)])
        while start < stop:
            end = min(stop, start + step)
            while end - start > 1 and any(t.raw_bytes(start, end) > max(size, 1 << 26) for t in tables):
                end = start + (end - start) // 2
            yield start, end
            start = end

    def seek(self, column: str | int, value: Any) -> int:
        """Return the first row with at least ``value`` in the sorted ``values`` column ``column``, or the row count.

        Reads at most one block.  The order is that of :mod:`trilake.trevni.blocks.order`.  Raises
        ``InvalidArgumentError`` for a column without first values or order, and for a value of another type.
        """
        number = self.number(column)
        descriptor, table = self.header.columns[number], self.blocks(number)
        if table.first_values is None:
            raise InvalidArgumentError(
                f"column {descriptor.label!r} has no first values in its block descriptors",
                help="write it with the option values=True to seek in it",
                file=self.uri,
            )
        key = order.key(descriptor.type)
        try:
            leaf = next((n for n in self.nodes if n.kind == "leaf" and n.column == number), None)
            if leaf is not None and value is not None and not isinstance(value, int):
                value = to_values(to_plain(pa.array([value], leaf.field.type)))[0].as_py()
            target = key(value)
            firsts = list(map(key, table.first_values.to_pylist()))
            block = bisect_left(firsts, target)
        except (pa.ArrowException, ValueError, TypeError, AttributeError) as e:
            raise InvalidArgumentError(
                f"{value!r} is not a valid value for column {descriptor.label!r} of type {descriptor.type.value}",
                file=self.uri,
            ) from e
        if any(a > b for a, b in pairwise(firsts)):
            raise InvalidArgumentError(f"column {descriptor.label!r} is not sorted, which seek requires", file=self.uri)
        if block == 0:
            return 0
        start, stop = int(table.row_starts[block - 1]), int(table.row_starts[block])
        # The previous block starts below the value and may contain it.
        keys = map(key, self.cut([number], start, stop)[number].values.to_pylist())
        for row, one in enumerate(keys, start):
            if row == start and one != firsts[block - 1]:
                location = self.where(number).at(block - 1, int(table.offsets[block - 1]))
                raise location.fail("the first value differs from the one in the block descriptor")
            if one >= target:
                return row
        return stop

    def _spans(self, rows: Any, nodes: Sequence[Node]) -> tuple[list[tuple[int, int]], Any]:
        """Return the row ranges to read, and the positions of the requested rows in them (``None``: in order)."""
        count = self.row_count
        if rows is None:
            return [(0, count)], None
        if isinstance(rows, slice):
            rows = range(*rows.indices(count))
        if isinstance(rows, range) and rows.step == 1:
            if len(rows) and not 0 <= rows.start <= rows.stop <= count:
                raise InvalidArgumentError(f"rows {rows} are out of range: the file has {count} rows", file=self.uri)
            return [(rows.start, rows.stop)] if len(rows) else [(0, 0)], None
        numbers = np.asarray(rows, dtype=np.int64).reshape(-1)
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise InvalidArgumentError(f"row numbers must be from 0 to {count - 1}", file=self.uri)
        if not numbers.size:
            return [(0, 0)], numbers
        sorted_rows = np.unique(numbers)
        # Read rows in the same or adjacent blocks together.
        tables = [self.blocks(c) for node in nodes for c in node.columns()]
        gap = min((count // max(len(t), 1) for t in tables), default=count)
        breaks = np.flatnonzero(np.diff(sorted_rows) > gap)
        starts = sorted_rows[np.concatenate(([0], breaks + 1))]
        stops = sorted_rows[np.concatenate((breaks, [len(sorted_rows) - 1]))] + 1
        before = np.concatenate(([0], np.cumsum(stops - starts)))
        span = np.searchsorted(starts, numbers, side="right") - 1
        places = before[span] + numbers - starts[span]
        return list(zip(starts.tolist(), stops.tolist(), strict=True)), places


def _check_names(field: pa.Field) -> None:
    """Raise ``UnicodeDecodeError`` for a name in a schema, at any depth, that is not UTF-8."""
    str(field.name)
    for i in range(field.type.num_fields):
        _check_names(field.type.field(i))


def _plain_schema(nodes: Sequence[Node]) -> pa.Schema:
    return pa.schema([node.field.with_type(plain_type(node.field.type)) for node in nodes])
