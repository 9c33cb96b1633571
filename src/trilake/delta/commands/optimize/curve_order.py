"""Sort any number of rows along a space-filling curve through some columns, in bounded memory.

Each column is divided into ranges with about equally many rows; the ranges of a row's values are its coordinates on a
Z-order or Hilbert curve.  Rows that fit in memory are sorted there.  Otherwise a sample divides the curve into
stretches with about equally many rows; rows go into a temporary file per stretch, and the files are sorted one by one::

    rows --> all in memory? --> ranges --> index --> sort --> out
               | no
               +--> sample of the columns --> stretches --> a file for each --> sort each --> out
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.rows.row_changes import gathered
from trilake.storage.staging import spilling, temporary_folder

#: Rows gathered at a time.
_SLICE_ROWS = 1 << 18
#: The most stretches of the curve; each of them is an open file while rows are sorted.
_MOST_STRETCHES = 512
#: Bytes of rows to divide at once, so that each stretch gets more than a few rows.
_DIVIDED_BYTES = 64 << 20


@dataclass(frozen=True)
class Curve:
    """A curve through columns, given as paths of names."""

    kind: Literal["zorder", "hilbert"]
    columns: tuple[tuple[str, ...], ...]

    def values(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array | pa.ChunkedArray]:
        out = []
        for path in self.columns:
            column = rows.column(path[0])
            out.append(pc.struct_field(column, list(path[1:])) if len(path) > 1 else column)
        return out

    def ranges(self, rows: pa.Table) -> tuple[Ranges, ...]:
        """The ranges of the columns, determined from these rows."""
        values = self.values(rows)
        if rows.num_rows > SAMPLE_ROWS:
            indexes = pa.array(sample_indexes(rows.num_rows, SAMPLE_ROWS))
            values = [column.take(indexes) for column in values]
        return tuple(Ranges.of(column, id_bits(len(values))) for column in values)

    def index(self, rows: pa.Table | pa.RecordBatch, ranges: Sequence[Ranges]) -> Coordinates:
        ids = [r.ids(v) for r, v in zip(ranges, self.values(rows), strict=True)]
        return (hilbert_index if self.kind == "hilbert" else interleave_bits)(ids, id_bits(len(ids)))


def in_curve_order(
    rows: Iterable[pa.RecordBatch], curve: Curve, *, count: int | None, sample: Callable[[], pa.Table], memory: int
) -> Iterator[pa.Table]:
    """Sort batches of one schema along a curve through their columns.

    ``count`` is the number of rows, if known.  ``memory`` is the number of bytes of rows to buffer; sorting takes about
    as much again.  If that does not suffice, ``sample`` returns a representative sample with the curve's columns.
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
    """The rows sorted by index (stable), in slices."""
    order = np.argsort(index, kind="stable")
    table = table.combine_chunks()
    for start in range(0, len(order), _SLICE_ROWS):
        yield table.take(pa.array(order[start : start + _SLICE_ROWS]))


def _by_stretches(
    rows: Iterator[pa.RecordBatch], curve: Curve, sample: pa.Table, stretches: int, folder: Path, memory: int
) -> Iterator[pa.Table]:
    ranges = curve.ranges(sample)
    sorted_sample = np.sort(curve.index(sample, ranges))
    ends = np.unique(sorted_sample[np.linspace(0, len(sorted_sample) - 1, stretches + 1).astype(np.int64)[1:-1]])
    writers: dict[Path, pa.RecordBatchWriter] = {}
    try:
        for stretch, table in divided(rows, curve, ranges, ends):
            with spilling():
                part = folder / f"{stretch:05d}.arrow"
                if part not in writers:
                    options = pa.ipc.IpcWriteOptions(compression="lz4")
                    writers[part] = pa.ipc.new_stream(str(part), table.schema, options=options)
                writers[part].write_table(table)
    finally:
        with spilling():
            for writer in writers.values():
                writer.close()
    for part in sorted(writers):
        # A stretch with one dominant value may be larger than the others: sort it in pieces.
        with spilling(), pa.OSFile(str(part)) as source, pa.ipc.open_stream(source) as reader:
            for batches in gathered(reader, lambda b: (b.nbytes,), (memory,)):
                table = pa.Table.from_batches(batches)
                yield from _sorted(table, curve.index(table, ranges))
        part.unlink()


def divided(
    rows: Iterable[pa.RecordBatch], curve: Curve, ranges: Sequence[Ranges], ends: Coordinates
) -> Iterator[tuple[int, pa.Table]]:
    """Divide rows by stretch of the curve; ``ends`` are the first positions of all stretches except the first."""
    for batches in gathered(rows, lambda b: (b.nbytes,), (_DIVIDED_BYTES,)):
        table = pa.Table.from_batches(batches)
        stretch = np.searchsorted(ends, curve.index(table, ranges), side="right")
        ordered = table.combine_chunks().take(pa.array(np.argsort(stretch, kind="stable")))
        counts = np.bincount(stretch, minlength=len(ends) + 1)
        starts = np.concatenate([[0], np.cumsum(counts)])
        for number in map(int, np.flatnonzero(counts)):
            yield number, ordered.slice(starts[number], counts[number])


# --- Space-filling curves: map points to one number so that rows close to each other stay close -----------------------
# In a file of rows in such an order, the bounds of all the columns are narrow.  Z-order interleaves the bits of the
# coordinates, and jumps.  The Hilbert curve moves to a neighbour in every step, so any run of rows is a connected
# piece. After J. Skilling, *Programming the Hilbert curve* (2004): exchange and invert low bits from the top down, then
# a Gray code.

#: Numbers from 0 to ``2 ** bits - 1``, one per row.
Coordinates = np.ndarray[Any, np.dtype[np.uint64]]
#: Most bits of an index.
INDEX_BITS = 63
#: Rows per chunk: their coordinates stay in the CPU cache.
_BLOCK = 1 << 14


def interleave_bits(coordinates: Sequence[Coordinates], bits: int) -> Coordinates:
    """The Z-order index of each point: the highest bit of every coordinate, then the next bit of every coordinate.

    ``coordinates`` are one array per dimension, of numbers of ``bits`` bits.  Raises ``ValueError`` if the index would
    have more than 63 bits.

    >>> interleave_bits([np.array([0, 0, 1, 1], "u8"), np.array([0, 1, 0, 1], "u8")], 1).tolist()
    [0, 1, 2, 3]
    """
    dimensions = len(coordinates)
    if not 0 < dimensions * bits <= INDEX_BITS:
        raise ValueError(f"{dimensions} dimensions of {bits} bits are not an index of {INDEX_BITS} bits")
    out = np.zeros(len(coordinates[0]), dtype=np.uint64)
    for bit in range(bits):
        for dimension, values in enumerate(coordinates):
            target = bit * dimensions + dimensions - 1 - dimension
            out |= ((values >> np.uint64(bit)) & np.uint64(1)) << np.uint64(target)
    return out


def hilbert_index(coordinates: Sequence[Coordinates], bits: int) -> Coordinates:
    """The position of each point on the Hilbert curve through a cube of ``2 ** bits`` points per edge.

    Parameters and errors as in :func:`interleave_bits`.

    >>> x, y = np.array([0, 0, 1, 1], "u8"), np.array([0, 1, 1, 0], "u8")
    >>> hilbert_index([x, y], 1).tolist()
    [0, 1, 2, 3]
    """
    if len(coordinates) == 1:
        return interleave_bits(coordinates, bits)
    count = len(coordinates[0])
    out = np.empty(count, dtype=np.uint64)
    for start in range(0, count, _BLOCK):
        block = [c[start : start + _BLOCK].astype(np.uint64) for c in coordinates]
        _transpose(block, bits)
        out[start : start + _BLOCK] = interleave_bits(block, bits)
    return out if count else interleave_bits(coordinates, bits)


def _transpose(x: list[Coordinates], bits: int) -> None:
    one = np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        low = np.uint64((1 << bit) - 1)
        for values in x:
            # If the bit is set, invert the first axis below it; otherwise exchange the first axis with this one.
            inverted = (values >> np.uint64(bit)) & one
            x[0] ^= low * inverted
            exchanged = (x[0] ^ values) & (low * (one - inverted))
            x[0] ^= exchanged
            if values is not x[0]:
                values ^= exchanged
    for before, values in pairwise(x):
        values ^= before
    gray = np.zeros_like(x[0])
    for bit in range(bits - 1, 0, -1):
        gray ^= np.uint64((1 << bit) - 1) * ((x[-1] >> np.uint64(bit)) & one)
    for values in x:
        values ^= gray


# --- Range ids: map values of any type to small numbers in the same order ---------------------------------------------
# A sample is divided into ranges of about equally many rows; a value's id is the number of its range.  So columns of
# any type and distribution can be coordinates of a curve.

#: The most rows of a sample.
SAMPLE_ROWS = 1 << 17
#: The most bits of an id, for a single column and for one of several.
_ALONE, _AMONG = 16, 12


def id_bits(columns: int) -> int:
    """The bits of an id for a curve through this many columns.

    >>> id_bits(1), id_bits(2), id_bits(10)
    (16, 12, 6)
    """
    return max(1, min(INDEX_BITS // columns, _ALONE if columns == 1 else _AMONG))


def is_orderable(type_: pa.DataType) -> bool:
    """Whether values of the type can be ordered into ranges."""
    return not (pa.types.is_nested(type_) or pa.types.is_null(type_) or isinstance(type_, pa.ExtensionType))


@dataclass(frozen=True)
class Ranges:
    """The upper ends of the ranges of one column, ascending and distinct; null is the first range.

    Ids are multiples of ``step``, so that a column with few values has the same weight as one with many.
    """

    bounds: pa.Array
    step: int = 1

    @classmethod
    def of(cls, sample: pa.Array | pa.ChunkedArray, bits: int) -> Ranges:
        """Divide a sample into at most ``2 ** bits`` ranges of about equally many rows."""
        values = _comparable(sample).drop_null()
        values = values.take(pc.array_sort_indices(values))
        count = len(values)
        most = (1 << bits) - 2  # ids are 1 + the number of bounds passed, and 0 is null's
        if count > most:
            values = values.take(pa.array(np.linspace(0, count - 1, most).astype(np.int64)))
        bounds = pc.unique(values)
        return cls(bounds, ((1 << bits) - 1) // (len(bounds) + 1))

    def ids(self, values: pa.Array | pa.ChunkedArray) -> Coordinates:
        comparable = _comparable(values)
        if not len(self.bounds):
            return np.asarray(comparable.is_valid()).astype(np.uint64) * np.uint64(self.step)
        passed = _bounds_passed(self.bounds, comparable)
        ranges: Coordinates = pc.fill_null(pc.add(passed, 1), 0).to_numpy(zero_copy_only=False)
        return ranges.astype(np.uint64, copy=False) * np.uint64(self.step)


def _bounds_passed(bounds: pa.Array, values: pa.Array) -> pa.Array:
    """How many of the ascending bounds each value reaches; null for null."""
    if hasattr(pc, "search_sorted"):  # not in pyarrow 21
        return pc.search_sorted(bounds, values, side="right")
    # In a sorted union, a value follows the bounds that it reaches: the sort is stable, and bounds come first.
    order = pc.array_sort_indices(pa.concat_arrays([bounds, values])).to_numpy()
    range_ids = np.empty(len(order), np.uint64)
    range_ids[order] = np.cumsum(order < len(bounds))
    return pa.array(range_ids[len(bounds) :], mask=values.is_null().to_numpy(zero_copy_only=False))


def _comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values in a searchable type; the order stays, though unequal values may become equal."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_decimal(array.type):
        return array.cast(pa.float64())
    if pa.types.is_boolean(array.type):
        return array.cast(pa.uint8())
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), pa.scalar(float("inf"), array.type), array)  # the greatest value
    return array


def sample_indexes(rows: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The indexes of a sample of ``size`` of ``rows`` rows, one from each of ``size`` equal stretches.

    Deterministic, so that a repeated optimization gives the same result.
    """
    if rows <= size:
        return np.arange(rows, dtype=np.int64)
    edges = np.linspace(0, rows, size + 1)
    offsets = np.random.default_rng(rows).random(size)
    return (edges[:-1] + offsets * np.diff(edges)).astype(np.int64)
