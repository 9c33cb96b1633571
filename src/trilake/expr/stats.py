"""Statistics of files, and what data skipping may conclude from them.

The rules of :mod:`trilake.expr.skip` follow from these:

* ``min`` and ``max`` enclose all values that are neither null nor NaN.  They may not be values of the file: strings
  are truncated, timestamps widened, and deleted rows count.
* NaN is the greatest value in Spark and absent from ``max``, so ``x > 5`` skips no files for a floating point column,
  unless the writer omits ``max`` for columns with NaN (``max_counts_nan``).
* A ``null_count`` of 0 means that no row is null, one equal to ``num_records`` that all are.  Other values imply
  nothing, so the same rules serve statistics that are not tight.
* A partition value is exact for every row of its file; a null one is null in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.datatypes import Path, normalise
from trilake.expr.terms.evaluate import cast_for

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of one column in each file: arrays with one entry per file, in which null means unknown.

    Either ``value`` (a partition column: the one value of all rows, null if they are null) or the others.  ``min``,
    ``max`` and ``value`` are of the column's type.  ``exact`` promises that bounds are values of the file, which
    lets ``min = max`` prove that all rows are equal also for strings, binaries and timestamps.  ``max_counts_nan``
    is true for files in which a ``max`` means that the column holds no NaN.
    """

    min: pa.Array | pa.ChunkedArray | None = None
    max: pa.Array | pa.ChunkedArray | None = None
    null_count: pa.Array | pa.ChunkedArray | None = None
    value: pa.Array | pa.ChunkedArray | None = None
    exact: bool = False
    max_counts_nan: pa.Array | pa.ChunkedArray | None = None


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class FileStats:
    """Statistics of ``num_files`` files, fetched only for the columns that a filter reads.

    ``column`` returns the statistics of a column by its path in the table's schema, or ``None``.
    ``num_records`` returns the number of rows of each file, including deleted ones; null means unknown.  Each
    callable is called at most once per path and filter.
    """

    num_files: int
    column: Callable[[Path], ColumnStats | None]
    num_records: Callable[[], pa.Array | pa.ChunkedArray | None] = field(default=_nothing)

    @classmethod
    def of(
        cls,
        num_files: int,
        columns: Mapping[Path, ColumnStats],
        num_records: pa.Array | None = None,
    ) -> FileStats:
        """Statistics in memory."""
        return cls(num_files, columns.get, partial(_same, num_records))


def _same(array: pa.Array | None) -> pa.Array | None:
    return array


class CheckedColumn:
    """The checked statistics of a column."""

    def __init__(self, stats: ColumnStats, num_files: int, records: pa.Array | None) -> None:
        self.min, self.max = flat(stats.min, num_files), flat(stats.max, num_files)
        for bound in (self.min, self.max):
            if bound is not None and not types.is_ordered(bound.type):
                self.min = self.max = None
        if self.min is not None and types.is_float(self.min.type):
            self.min = _without_nan(self.min)
        if self.max is not None and types.is_float(self.max.type):
            self.max = _without_nan(self.max)
        if self.min is not None and self.max is not None:
            if self.min.type != self.max.type:
                self.min = self.max = None
            else:
                # Bounds that cross are wrong, or use another order.
                crossed = pc.fill_null(pc.greater(self.min, self.max), False)
                if pc.any(crossed).as_py():
                    self.min, self.max = _blank(self.min, crossed), _blank(self.max, crossed)
        self.exact = stats.exact
        self.can_be_nan = np.ones(num_files, bool)
        nan_counted = flat(stats.max_counts_nan, num_files)
        if nan_counted is not None and self.max is not None:
            self.can_be_nan = ~(to_bits(nan_counted, False) & to_bits(pc.is_valid(self.max), False))
        nulls = flat(stats.null_count, num_files)
        self.can_be_null = np.ones(num_files, bool)
        self.can_be_value = np.ones(num_files, bool)
        if nulls is not None:
            self.can_be_null = ~to_bits(pc.equal(nulls, 0), False)
            if records is not None:
                self.can_be_value = ~to_bits(pc.equal(nulls, records), False)
                # More nulls than records: trust neither number.
                wrong = to_bits(pc.greater(nulls, records), False) | to_bits(pc.less(nulls, 0), False)
                self.can_be_null |= wrong
                self.can_be_value |= wrong
                empty = to_bits(pc.equal(records, 0), False)
                self.can_be_null |= empty
                self.can_be_value |= empty


def flat(array: pa.Array | pa.ChunkedArray | None, num_files: int) -> pa.Array | None:
    """Statistics as one array.  Raises :class:`InvalidArgumentError` if they are not of ``num_files`` files."""
    if array is None:
        return None
    if len(array) != num_files:
        raise InvalidArgumentError(f"statistics of {num_files} files have {len(array)} entries")
    array = normalise(array)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def to_bits(array: pa.Array, null: bool) -> Bits:
    """Convert a boolean array to numpy, with ``null`` for nulls."""
    bits: Bits = pc.fill_null(array, null).to_numpy(zero_copy_only=False)
    return bits


def holds(kernel: Any, bound: pa.Array | None, literal: pa.Scalar, n: int) -> Bits:
    """Compare bounds with a literal; true for unknown bounds."""
    return np.ones(n, bool) if bound is None else to_bits(kernel(bound, literal), True)


def _without_nan(array: pa.Array) -> pa.Array:
    return _blank(array, pc.fill_null(pc.is_nan(array), False))


def _blank(array: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(None, array.type), array)


def is_widened(t: pa.DataType) -> bool:
    """Whether bounds of a type may be truncated or rounded."""
    return types.is_string(t) or types.is_bytes(t) or pa.types.is_timestamp(t)


def bound_as(bound: pa.Array | None, t: pa.DataType, direction: int) -> pa.Array | None:
    """Cast a lower (``direction=-1``) or upper bound for comparison; ``None`` if that is unsafe."""
    if bound is None or bound.type == t:
        return bound
    source = bound.type
    numbers = pa.types.is_integer(source) or pa.types.is_decimal(source)
    try:
        if types.is_float(t) and (numbers or types.is_float(source)):
            values = cast_for(bound, t).to_numpy(zero_copy_only=False)
            # Casts may round the last digit differently, so widen by one step.
            outwards = np.nextafter(values, np.array(direction * np.inf, values.dtype))
            return pa.array(outwards, t, mask=to_bits(pc.is_null(bound), True))
        same = (types.is_string, types.is_bytes, pa.types.is_timestamp)
        if any(kind(source) and kind(t) for kind in same) or (
            numbers and (pa.types.is_integer(t) or pa.types.is_decimal(t))
        ):
            return bound.cast(t)
    except (pa.ArrowException, FilterError):
        pass  # does not fit: treat the bound as unknown
    return None
