"""Range ids: map values of any type to small numbers in the same order.

A sample is divided into ranges of about equally many rows; a value's id is the number of its range.  So columns of any
type and distribution can be coordinates of a curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.optimize.curves import INDEX_BITS, Coordinates

#: Most rows of a sample.
SAMPLE_ROWS = 1 << 17
#: Most bits of an id: of a single column, and of one among several.
_ALONE, _AMONG = 16, 12


def id_bits(columns: int) -> int:
    """Bits of an id for a curve through so many columns.

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
        places = _bounds_passed(self.bounds, comparable)
        ranges: Coordinates = pc.fill_null(pc.add(places, 1), 0).to_numpy(zero_copy_only=False)
        return ranges.astype(np.uint64, copy=False) * np.uint64(self.step)


def _bounds_passed(bounds: pa.Array, values: pa.Array) -> pa.Array:
    """How many of the ascending bounds each value reaches; null for null."""
    if hasattr(pc, "search_sorted"):  # not in pyarrow 21
        return pc.search_sorted(bounds, values, side="right")
    # Sorted together, a value follows the bounds that it reaches: the sort is stable, and bounds come first.
    order = pc.array_sort_indices(pa.concat_arrays([bounds, values])).to_numpy()
    passed = np.empty(len(order), np.uint64)
    passed[order] = np.cumsum(order < len(bounds))
    return pa.array(passed[len(bounds) :], mask=values.is_null().to_numpy(zero_copy_only=False))


def _comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values in a searchable type; the order is kept, though unequal values may become equal."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_decimal(array.type):
        return array.cast(pa.float64())
    if pa.types.is_boolean(array.type):
        return array.cast(pa.uint8())
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), pa.scalar(float("inf"), array.type), array)  # the greatest value
    return array


def sample_indexes(rows: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The indexes of a sample of ``size`` of ``rows`` rows, one from each of as many equal stretches.

    Deterministic, so that a repeated optimization does the same.
    """
    if rows <= size:
        return np.arange(rows, dtype=np.int64)
    edges = np.linspace(0, rows, size + 1)
    offsets = np.random.default_rng(rows).random(size)
    return (edges[:-1] + offsets * np.diff(edges)).astype(np.int64)


def sampled(columns: Sequence[pa.Array | pa.ChunkedArray], bits: int) -> tuple[Ranges, ...]:
    """The ranges of several columns of one set of rows."""
    rows = len(columns[0])
    if rows <= SAMPLE_ROWS:
        return tuple(Ranges.of(c, bits) for c in columns)
    chosen = pa.array(sample_indexes(rows, SAMPLE_ROWS))
    return tuple(Ranges.of(c.take(chosen), bits) for c in columns)
