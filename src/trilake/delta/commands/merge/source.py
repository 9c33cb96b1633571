"""The rows of the source of a MERGE: in memory or in a temporary file, and taken by index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.expr.views import in_microseconds, microseconds_schema, stream_without_views
from trilake.storage.staging import spilling, temporary_folder
from trilake.table.frames import Purpose, arrow_batches

#: A stream up to this many bytes stays in memory; a larger one goes into a memory-mapped temporary file.
_IN_MEMORY = 256 << 20


@contextmanager
def materialized(data: Any, limit: int = _IN_MEMORY, *, round_times: bool = True) -> Iterator[pa.Table]:
    """The rows of a source as a table without views and with times in microseconds, for the duration of the block.

    ``data`` is an input of :func:`~trilake.table.frames.arrow_batches`; raises ``InvalidArgumentError`` for anything
    else.  Raises ``SchemaMismatchError`` for times finer than a microsecond unless ``round_times`` is set, and
    ``StorageError`` if a stream exceeds ``limit`` and the temporary folder is full.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    schema, batches = stream_without_views(*arrow_batches(data, Purpose.MERGE))
    schema, batches = microseconds_schema(schema), map(partial(in_microseconds, round_down=round_times), batches)
    if isinstance(data, pa.Table):
        yield pa.Table.from_batches(batches, schema)
        return
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > limit:
            break
    else:
        yield pa.Table.from_batches(waiting, schema)
        return
    with temporary_folder("trilake-merge-") as folder:
        path = str(folder / "source.arrow")
        with spilling():
            sink = pa.OSFile(path, "wb")
        with sink:
            drained = (waiting.pop(0) for _ in range(len(waiting)))
            _write(sink, schema, chain(drained, batches))
        with spilling():
            mapped = pa.memory_map(path)
        with mapped:
            yield pa.ipc.open_file(mapped).read_all()


class SourceRows:
    """The rows of a source, taken by index.

    >>> rows = SourceRows(pa.concat_tables([pa.table({"a": [1, 2], "b": [0, 0]}), pa.table({"a": [3], "b": [0]})]))
    >>> rows.take(np.array([2, 0, 2]), ["a"]).to_pydict()
    {'a': [3, 1, 3]}
    """

    def __init__(self, rows: pa.Table) -> None:
        self._empty = rows.schema.empty_table()
        self._batches = rows.to_batches()
        self._starts = np.cumsum([0, *(b.num_rows for b in self._batches)])

    def take(self, which: npt.NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows in the order of their indexes, with these columns; all by default.

        Works batch by batch, because Arrow's ``take`` searches all chunks, which is ten times slower for adjacent rows
        (pyarrow 26).
        """
        names = self._empty.schema.names if columns is None else list(columns)
        ordered = bool(np.all(which[1:] >= which[:-1]))
        order = None if ordered else np.argsort(which, kind="stable")
        numbers = which if order is None else which[order]
        ends = np.searchsorted(numbers, self._starts)
        parts = [
            batch.select(names).take(pa.array(numbers[lo:hi] - start))
            for batch, start, lo, hi in zip(self._batches, self._starts, ends, ends[1:], strict=False)
            if hi > lo
        ]
        rows = pa.Table.from_batches(parts) if parts else self._empty.select(names)
        if order is None:
            return rows
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return rows.combine_chunks().take(pa.array(back))


def _write(sink: pa.NativeFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a stream to a temporary file; errors of the stream itself are raised unchanged."""
    with spilling():
        writer = pa.ipc.new_file(sink, schema)
    for batch in batches:
        with spilling():
            writer.write_batch(batch)
    with spilling():
        writer.close()
