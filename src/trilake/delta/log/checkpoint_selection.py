"""Reading some of the files of a checkpoint: by the bounds of its row groups, then by a few of its columns.

Protocol: *Checkpoint Format*.  A checkpoint with ``stats_parsed`` or ``partitionValues_parsed`` says of each file what
a filter asks in columns of their own types.  Who wants some of the files passes a :class:`Selection`::

    footer --> bounds of the fields that it names --> row groups that may hold such a file
           --> those fields of these groups       --> the files themselves
           --> all columns of groups with one of them, and of their rows no others

A checkpoint without those fields is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import leaf_count
from trilake.parquet.files import DAMAGE, ColumnChunk, Footer, fetched_together

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: The names that lead to a field below ``add``.
Leaf = tuple[str, ...]
Bits = npt.NDArray[np.bool_]
#: Where a writer notes the Arrow types of its columns, views among them.
_ARROW_SCHEMA = b"ARROW:schema"


@dataclass(frozen=True)
class GroupBounds:
    """What the footer says of one field in each of some row groups; null is unknown.

    ``low`` and ``high`` enclose the values of the files that have one, except for NaN.  ``nulls`` is the number of
    files that have none.
    """

    low: pa.Array
    high: pa.Array
    nulls: pa.Int64Array


class Selection(Protocol):
    """Says which files of a checkpoint are wanted; what is in doubt is."""

    def leaves(self, add: pa.StructType) -> Sequence[Leaf]:
        """The fields of ``add`` by which it can tell; none where the checkpoint has none of them."""

    def groups(self, files: npt.NDArray[np.int64], bounds: Mapping[Leaf, GroupBounds]) -> Bits:
        """The row groups, of so many files each, that may hold a file that is wanted."""

    def rows(self, adds: pa.StructArray) -> Bits:
        """The files that are wanted, of some whose :meth:`leaves` alone were read."""


@dataclass(frozen=True)
class Selected:
    """What a selection finds in one file of a checkpoint.

    ``groups`` hold a file that is wanted, each with the rows that are in question; ``files`` says of every row group
    how many files it has.
    """

    groups: Mapping[int, Bits]
    files: Mapping[int, int]


def select(
    source: pa.NativeFile,
    file: pq.ParquetFile,
    footer: Footer,
    groups: Sequence[int],
    selection: Selection,
    batch_rows: int,
) -> Selected | None:
    """Find the files that are wanted among the row groups ``groups``; ``None`` where only all of them can tell.

    Raises as reading a Parquet file does.
    """
    schema = file.schema_arrow
    add = schema.field("add").type
    leaves = list(selection.leaves(add))
    places = _places(file)
    if not leaves or not groups or places is None:
        return None
    paths = places["add", "path"]
    without = [footer[g][paths].null_count for g in groups]
    if any(n is None for n in without):
        return None  # how many files are left out must be known
    rows = [footer[g][paths].num_values for g in groups]
    files = np.array([r - (n or 0) for r, n in zip(rows, without, strict=True)], np.int64)
    bounds = {
        leaf: _bounds(file, footer, groups, places[("add", *leaf)], type_, files)
        for leaf in leaves
        if not pa.types.is_nested(type_ := _type(add, leaf)) and ("add", *leaf) in places
    }
    possible = selection.groups(files, bounds)
    chosen = [g for g, p in zip(groups, possible, strict=True) if p]
    columns = [".".join(("add", *leaf)) for leaf in leaves]
    found = {}
    for run in fetched_together(source, file, chosen, columns):
        for group in run:
            bits = _rows_of(file, group, columns, selection, batch_rows)
            if bits.any():
                found[group] = bits
    return Selected(found, dict(zip(groups, files.tolist(), strict=True)))


def batches(
    file: pq.ParquetFile, batch_rows: int, *, row_groups: Sequence[int], columns: Sequence[str], use_threads: bool
) -> Iterator[pa.RecordBatch]:
    """Columns of some row groups of a checkpoint, batch by batch.

    Strings that the writer noted as views of Arrow come as plain ones: Arrow does not filter structs that hold views.
    """
    read = file.iter_batches(batch_rows, row_groups=list(row_groups), columns=list(columns), use_threads=use_threads)
    if _ARROW_SCHEMA not in (file.metadata.metadata or ()):
        yield from read  # Parquet itself has no views
        return
    for batch in read:
        plain = pa.schema([_without_views_of(f) for f in batch.schema])
        yield batch if plain.equals(batch.schema) else batch.cast(plain)


def _without_views(t: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(t):
        return pa.string()
    if pa.types.is_binary_view(t):
        return pa.binary()
    if pa.types.is_struct(t):
        return pa.struct([_without_views_of(f) for f in t])
    if pa.types.is_map(t):
        return pa.map_(_without_views_of(t.key_field), _without_views_of(t.item_field))
    if pa.types.is_list(t):
        return pa.list_(_without_views_of(t.value_field))
    return t


def _without_views_of(f: pa.Field) -> pa.Field:
    return f.with_type(_without_views(f.type))


def _rows_of(file: pq.ParquetFile, group: int, columns: Sequence[str], selection: Selection, batch_rows: int) -> Bits:
    parts = []
    for batch in batches(file, batch_rows, row_groups=[group], columns=columns, use_threads=True):
        adds = batch.column(0)
        parts.append(selection.rows(adds) & pc.is_valid(adds).to_numpy(zero_copy_only=False))
    return np.concatenate([np.empty(0, bool), *parts])


def _type(struct: pa.DataType, leaf: Leaf) -> pa.DataType:
    for name in leaf:
        struct = struct.field(name).type
    return struct


def has_leaf(struct: pa.DataType, leaf: Leaf) -> bool:
    """Whether a struct has a field at the end of these names, each of which leads to one field."""
    for name in leaf:
        if not pa.types.is_struct(struct) or len(struct.get_all_field_indices(name)) != 1:
            return False
        struct = struct.field(name).type
    return True


def _places(file: pq.ParquetFile) -> dict[Leaf, int] | None:
    """The place of each column in the footer by the names that lead to it; ``None`` where that is not certain."""
    paths = list(_paths(file.schema_arrow, ()))
    # Names with dots are told apart by their place alone.
    stored = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
    plain = len(paths) == len(stored) and all(p is None or ".".join(p) == s for p, s in zip(paths, stored, strict=True))
    places = {p: i for i, p in enumerate(paths) if p is not None}
    return places if plain and ("add", "path") in places else None


def _paths(fields: Any, above: Leaf) -> Iterator[Leaf | None]:
    """The names that lead to each column, in the order of the columns; ``None`` below lists and maps."""
    for f in fields:
        path = (*above, f.name)
        if pa.types.is_struct(f.type):
            yield from _paths(f.type, path)
        elif pa.types.is_nested(f.type):
            yield from (None for _ in range(leaf_count(f.type)))
        else:
            yield path


def _bounds(
    file: pq.ParquetFile,
    footer: Footer,
    groups: Sequence[int],
    place: int,
    type_: pa.DataType,
    files: npt.NDArray[np.int64],
) -> GroupBounds:
    chunks = [footer[g][place] for g in groups]
    stated = [_low_and_high(file, g, place) for g in groups]
    try:
        low, high = (pa.array([s[i] for s in stated], type_) for i in (0, 1))
    except (*DAMAGE, TypeError):
        low, high = pa.nulls(len(groups), type_), pa.nulls(len(groups), type_)
    nulls = [_nulls(c, n) for c, n in zip(chunks, files.tolist(), strict=True)]
    return GroupBounds(low, high, pa.array(nulls, pa.int64()))


def _low_and_high(file: pq.ParquetFile, group: int, place: int) -> tuple[Any, Any]:
    # Arrow leaves out bounds whose order is not certain: those of old writers, and of INT96.
    statistics = file.metadata.row_group(group).column(place).statistics
    try:
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else (None, None)
    except (*DAMAGE, TypeError, RuntimeError):  # a string cut amid a letter, a date beyond Python's
        return None, None


def _nulls(chunk: ColumnChunk, files: int) -> int | None:
    """Files without a value: the rows of no file have none either."""
    if chunk.null_count is None:
        return None
    nulls = chunk.null_count - (chunk.num_values - files)
    return nulls if nulls >= 0 else None
