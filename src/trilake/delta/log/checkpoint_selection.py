"""Read some of the files of a checkpoint: by the bounds of its row groups, then by a few of its columns.

Protocol: *Checkpoint Format*.  ``stats_parsed`` and ``partitionValues_parsed`` hold typed values, so a filter can be
checked against them.  To read only some files, pass a :class:`Selection`::

    footer --> bounds of the fields that it names --> row groups that may match
           --> those fields of these groups       --> the matching files
           --> all columns of groups with a match, only the matching rows

A checkpoint without those fields is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.arrow_types import leaf_paths, type_at
from trilake.common.compute import pc
from trilake.expr.views import without_views
from trilake.parquet.files import DAMAGE, ColumnChunk, Footer, fetched_together

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: The names that lead to a field below ``add``.
Leaf = tuple[str, ...]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GroupBounds:
    """Footer statistics of one field in some row groups: bounds without NaN, files without a value; null is unknown."""

    low: pa.Array
    high: pa.Array
    nulls: pa.Int64Array


class Selection(Protocol):
    """Selects the files of a checkpoint to read; in doubt, a file is read."""

    def leaves(self, add: pa.StructType) -> Sequence[Leaf]:
        """The fields of ``add`` that it decides by; empty if the checkpoint has none."""

    def groups(self, files: npt.NDArray[np.int64], bounds: Mapping[Leaf, GroupBounds]) -> Bits:
        """Which row groups may hold a match; ``files`` are their numbers of files."""

    def rows(self, adds: pa.StructArray) -> Bits:
        """Which files match; ``adds`` has only the columns of :meth:`leaves`."""


@dataclass(frozen=True)
class Selected:
    """The row groups of one checkpoint file with a match, with the rows to read; and the number of files in all."""

    groups: Mapping[int, Bits]
    files: int


def select(
    source: pa.NativeFile,
    file: pq.ParquetFile,
    footer: Footer,
    groups: Sequence[int],
    selection: Selection,
    batch_rows: int,
) -> Selected | None:
    """Find the matching files among the row groups ``groups``; ``None`` if all of them must be read."""
    schema = file.schema_arrow
    add = schema.field("add").type
    leaves = list(selection.leaves(add))
    numbers = _numbers(file)
    if not leaves or not groups or numbers is None:
        return None
    paths = numbers["add", "path"]
    without = [footer[g][paths].null_count for g in groups]
    if any(n is None for n in without):
        return None  # the number of skipped files must be known
    rows = [footer[g][paths].num_values for g in groups]
    files = np.array([r - (n or 0) for r, n in zip(rows, without, strict=True)], np.int64)
    bounds = {
        leaf: _bounds(file, footer, groups, numbers[("add", *leaf)], type_, files)
        for leaf in leaves
        if not pa.types.is_nested(type_ := type_at(add, leaf)) and ("add", *leaf) in numbers
    }
    possible = selection.groups(files, bounds)
    matching_groups = [g for g, p in zip(groups, possible, strict=True) if p]
    columns = [".".join(("add", *leaf)) for leaf in leaves]
    matches = {}
    for run in fetched_together(source, file, matching_groups, columns):
        for group in run:
            bits = _rows_of(file, group, columns, selection, batch_rows)
            if bits.any():
                matches[group] = bits
    return Selected(matches, int(files.sum()))


def batches(
    file: pq.ParquetFile, batch_rows: int, *, row_groups: Sequence[int], columns: Sequence[str], use_threads: bool
) -> Iterator[pa.RecordBatch]:
    """Read columns of row groups, with strings for views: Arrow cannot filter structs that hold views."""
    read = file.iter_batches(batch_rows, row_groups=list(row_groups), columns=list(columns), use_threads=use_threads)
    return map(without_views, read)


def _rows_of(file: pq.ParquetFile, group: int, columns: Sequence[str], selection: Selection, batch_rows: int) -> Bits:
    parts = []
    for batch in batches(file, batch_rows, row_groups=[group], columns=columns, use_threads=True):
        adds = batch.column(0)
        parts.append(selection.rows(adds) & pc.is_valid(adds).to_numpy(zero_copy_only=False))
    return np.concatenate([np.empty(0, bool), *parts])


def _numbers(file: pq.ParquetFile) -> dict[Leaf, int] | None:
    """The footer position of each column by its path; ``None`` if that is ambiguous."""
    paths = leaf_paths(file.schema_arrow)
    # Names may contain dots, so paths are matched by position.
    dotted = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
    plain = len(paths) == len(dotted) and all(p is None or ".".join(p) == s for p, s in zip(paths, dotted, strict=True))
    numbers = {p: i for i, p in enumerate(paths) if p is not None}
    return numbers if plain and ("add", "path") in numbers else None


def _bounds(
    file: pq.ParquetFile,
    footer: Footer,
    groups: Sequence[int],
    number: int,
    type_: pa.DataType,
    files: npt.NDArray[np.int64],
) -> GroupBounds:
    chunks = [footer[g][number] for g in groups]
    bounds = [_low_and_high(file, g, number) for g in groups]
    try:
        low, high = (pa.array([s[i] for s in bounds], type_) for i in (0, 1))
    except (*DAMAGE, TypeError):
        low, high = pa.nulls(len(groups), type_), pa.nulls(len(groups), type_)
    nulls = [_nulls(c, n) for c, n in zip(chunks, files.tolist(), strict=True)]
    return GroupBounds(low, high, pa.array(nulls, pa.int64()))


def _low_and_high(file: pq.ParquetFile, group: int, number: int) -> tuple[Any, Any]:
    # Arrow omits bounds of uncertain order: those of old writers and of INT96.
    statistics = file.metadata.row_group(group).column(number).statistics
    try:
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else (None, None)
    except (*DAMAGE, TypeError, RuntimeError):  # a string cut inside a character, a date beyond Python's range
        return None, None


def _nulls(chunk: ColumnChunk, files: int) -> int | None:
    """The number of files whose value is null: all of their rows are.  ``None`` if unknown."""
    if chunk.null_count is None:
        return None
    nulls = chunk.null_count - (chunk.num_values - files)
    return nulls if nulls >= 0 else None
