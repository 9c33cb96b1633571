"""Sort any number of rows along a space-filling curve through some columns, with bounded memory.

Rows that fit into memory are sorted there.  Otherwise a sample determines stretches of the curve with about equally
many rows; rows go into a temporary file per stretch, and the files are sorted one by one::

    rows --> all in memory? --> ranges --> index --> sort --> out
               | no
               +--> sample of the columns --> stretches --> a file for each --> sort each --> out
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.optimize.curves import Coordinates, hilbert_index, interleave_bits
from trilake.delta.commands.optimize.range_ids import Ranges, id_bits, sampled
from trilake.storage.spill import spilling, temporary_folder

#: Rows gathered at once.
_SLICE_ROWS = 1 << 18
#: Most stretches of the curve, each of which is an open file while rows are sorted.
_MOST_STRETCHES = 512
#: Bytes of rows that are divided at once, so that each stretch gets more than a few.
_DIVIDED_BYTES = 64 << 20


@dataclass(frozen=True)
class Curve:
    """A curve through columns, given as paths of names."""

    kind: Literal["zorder", "hilbert"]
    columns: tuple[tuple[str, ...], ...]

    @property
    def bits(self) -> int:
        """Bits of each column's range id."""
        return id_bits(len(self.columns))

    def values(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array | pa.ChunkedArray]:
        """The curve's columns of some rows."""
        out = []
        for path in self.columns:
            column = rows.column(path[0])
            out.append(pc.struct_field(column, list(path[1:])) if len(path) > 1 else column)
        return out

    def ranges(self, rows: pa.Table) -> tuple[Ranges, ...]:
        """Ranges of the columns by these rows."""
        return sampled(self.values(rows), self.bits)

    def index(self, rows: pa.Table | pa.RecordBatch, ranges: Sequence[Ranges]) -> Coordinates:
        """The position of each row on the curve."""
        ids = [r.ids(v) for r, v in zip(ranges, self.values(rows), strict=True)]
        return (hilbert_index if self.kind == "hilbert" else interleave_bits)(ids, self.bits)


def in_curve_order(
    rows: Iterable[pa.RecordBatch],
    curve: Curve,
    *,
    count: int | None,
    sample: Callable[[], pa.Table],
    memory: int,
) -> Iterator[pa.Table]:
    """Sort rows along a curve.

    Parameters
    ----------
    rows: batches of one schema.
    curve: whose columns the batches have.
    count: the number of rows, if known.
    sample: returns a representative sample with the curve's columns; only called where memory does not suffice.
    memory: bytes of rows to buffer; sorting takes about as much again.
    """
    source, buffered, size = iter(rows), list[pa.RecordBatch](), 0
    for batch in source:
        if batch.num_rows:
            buffered.append(batch)
            size += batch.nbytes
        if size > memory:
            break
    else:
        if buffered:
            table = pa.Table.from_batches(buffered)
            yield from _sorted(table, curve.index(table, curve.ranges(table)))
        return
    so_far = sum(b.num_rows for b in buffered)
    factor = max(2.0, (count or 16 * so_far) / so_far)
    stretches = int(min(_MOST_STRETCHES, np.ceil(2 * factor * size / memory)))
    with temporary_folder("trilake-sort-") as folder:
        yield from _by_stretches(chain(buffered, source), curve, sample(), stretches, folder, memory)


def _sorted(table: pa.Table, index: Coordinates) -> Iterator[pa.Table]:
    """The rows sorted by index (stable); the next slice is gathered while one is used."""
    order = np.argsort(index, kind="stable")
    table = table.combine_chunks()
    waiting: deque[Future[pa.Table]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, len(order), _SLICE_ROWS):
            waiting.append(pool.submit(table.take, pa.array(order[start : start + _SLICE_ROWS])))
            if len(waiting) > 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _by_stretches(
    rows: Iterator[pa.RecordBatch], curve: Curve, sample: pa.Table, stretches: int, folder: Path, memory: int
) -> Iterator[pa.Table]:
    ranges = curve.ranges(sample)
    places = np.sort(curve.index(sample, ranges))
    ends = np.unique(places[np.linspace(0, len(places) - 1, stretches + 1).astype(np.int64)[1:-1]])
    parts = _Parts(folder, len(ends) + 1)
    try:
        for stretch, table in divided(rows, curve, ranges, ends):
            parts.add(stretch, table)
    finally:
        parts.close()
    for part in parts.files:
        # A stretch with one dominant value may be larger than the others: sort it in pieces.
        for table in _pieces(part, memory):
            yield from _sorted(table, curve.index(table, ranges))
        part.unlink()


def divided(
    rows: Iterable[pa.RecordBatch], curve: Curve, ranges: Sequence[Ranges], ends: Coordinates
) -> Iterator[tuple[int, pa.Table]]:
    """Divide rows by stretch of the curve; ``ends`` are the first positions of all stretches except the first."""
    for table in gathered(rows, _DIVIDED_BYTES):
        stretch = np.searchsorted(ends, curve.index(table, ranges), side="right")
        ordered = table.combine_chunks().take(pa.array(np.argsort(stretch, kind="stable")))
        counts = np.bincount(stretch, minlength=len(ends) + 1)
        starts = np.concatenate([[0], np.cumsum(counts)])
        for number in map(int, np.flatnonzero(counts)):
            yield number, ordered.slice(starts[number], counts[number])


def gathered(rows: Iterable[pa.RecordBatch], size_of_each: int) -> Iterator[pa.Table]:
    """The same rows in tables of at least so many bytes, except for the last."""
    buffered, size = list[pa.RecordBatch](), 0
    for batch in rows:
        buffered.append(batch)
        size += batch.nbytes
        if size >= size_of_each:
            yield pa.Table.from_batches(buffered)
            buffered, size = [], 0
    if buffered:
        yield pa.Table.from_batches(buffered)


class _Parts:
    """A temporary file of rows per stretch, created on demand."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.writers: list[pa.RecordBatchWriter | None] = [None] * count

    def add(self, number: int, table: pa.Table) -> None:
        with spilling():
            writer = self.writers[number]
            if writer is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                writer = pa.ipc.new_stream(str(self._file(number)), table.schema, options=options)
                self.writers[number] = writer
            writer.write_table(table)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.arrow"

    @property
    def files(self) -> list[Path]:
        """The files with rows, along the curve."""
        return [self._file(n) for n, w in enumerate(self.writers) if w is not None]

    def close(self) -> None:
        with spilling():
            for writer in self.writers:
                if writer is not None:
                    writer.close()


def _pieces(file: Path, memory: int) -> Iterator[pa.Table]:
    buffered, size = list[pa.RecordBatch](), 0
    with spilling(), pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            buffered.append(batch)
            size += batch.nbytes
            if size > memory:
                yield pa.Table.from_batches(buffered)
                buffered, size = [], 0
    if buffered:
        yield pa.Table.from_batches(buffered)
