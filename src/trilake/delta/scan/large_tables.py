"""Filter the file list of a very large table while its checkpoint is read.

Each piece of the version's files is filtered as it is read, and only matching files are kept.  If a file may be listed
twice, or the checkpoint is damaged, the caller reads all files instead.  :func:`outline` gives the totals that a plan
needs before it has a filter.

Protocol: *Checkpoint Format* (``stats_parsed``, ``partitionValues_parsed``), *Per-file Statistics*.  No JSON is parsed.
A row group is judged like one large file: its bounds are the least ``minValues`` and the greatest ``maxValues``, if
every file of the group has them.  In doubt the group, or the file, is kept:

* bounds of floating point columns, which exclude NaN in Parquet, are ignored for groups;
* a null partition value may be an invalid string, which only reading the file reports;
* timestamps as partition values are ignored: engines read them in their session time zone;
* bounds whose type differs from the column's, after a type change, count only if they can be converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import type_at
from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import Share, checkpoint_actions, compare, shares
from trilake.delta.log.checkpoint_selection import Bits, GroupBounds, Leaf, Selection
from trilake.delta.log.log import DeltaLog, MaybeTwiceError, live_files
from trilake.delta.log.snapshot import (
    Head,
    NewerFiles,
    PendingSnapshot,
    Snapshot,
    any_twice,
    empty_state,
    hashes,
    one_spelling,
)
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.scan.generated import derived_partition_filter
from trilake.delta.scan.scan import skip_files, stated_rows
from trilake.delta.scan.statistics import (
    bound_type,
    column_stats,
    is_float,
    leaf_with_statistics,
    max_counts_nan,
    record_counts,
)
from trilake.errors import CorruptLogError
from trilake.expr import ColumnStats, FileStats, Filter, can_match
from trilake.storage.base import Store

_RECORDS, _TAGS = ("stats_parsed", "numRecords"), ("tags",)
_KINDS = {"low": "minValues", "high": "maxValues", "nulls": "nullCount"}


@dataclass(frozen=True)
class CheckpointFilter:
    """A :class:`~trilake.delta.log.checkpoint_selection.Selection` of files that may match ``filter``."""

    filter: Filter
    schema: StructType
    partition_columns: tuple[str, ...]

    @cached_property
    def _filters(self) -> list[Filter]:
        derived = derived_partition_filter(self.filter, self.schema, self.partition_columns)
        return [self.filter] if derived is None else [self.filter, derived]

    @cached_property
    def _partitions(self) -> Mapping[str, StructField]:
        return {f.name: f for f in map(self.schema.field, self.partition_columns)}

    def leaves(self, add: pa.StructType) -> Sequence[Leaf]:
        """The fields to read; empty if the checkpoint has none for a column of the filter."""
        leaves: set[Leaf] = set()
        floats = False
        for path in {p for f in self._filters for p in f.paths}:
            partition = self._partition(path)
            if partition is not None:
                leaves.add(_partition_leaf(partition))
            elif (column := self._column(path)) is not None:
                physical, field = column
                kinds = _KINDS.values() if bound_type(field) is not None else ("nullCount",)
                leaves |= {("stats_parsed", kind, *physical) for kind in kinds}
                floats |= is_float(field)
        there = {leaf for leaf in leaves if _has_leaf(add, leaf) and not pa.types.is_nested(type_at(add, leaf))}
        if there:
            there |= {leaf for leaf in (_RECORDS, *([_TAGS] if floats else [])) if _has_leaf(add, leaf)}
        return sorted(there)

    def _partition(self, path: Sequence[str]) -> StructField | None:
        top = self.schema.find(path[0])
        return self._partitions.get(top.name) if top is not None and len(path) == 1 else None

    def _column(self, path: Sequence[str]) -> tuple[Leaf, StructField] | None:
        return leaf_with_statistics(self.schema, self.partition_columns, path)

    def _keep(
        self,
        records: pa.Array,
        of_partition: Callable[[StructField, Bits], ColumnStats | None],
        of_column: Callable[[Leaf, StructField], ColumnStats],
    ) -> Bits:
        in_doubt = np.zeros(len(records), bool)

        def column(path: Leaf) -> ColumnStats | None:
            if (partition := self._partition(path)) is not None:
                return of_partition(partition, in_doubt)
            return None if (column := self._column(path)) is None else of_column(*column)

        stats = FileStats(len(records), column, lambda: records)
        keep = np.ones(len(records), bool)
        for filter in self._filters:
            keep &= can_match(filter, stats).keep
        return keep | in_doubt

    def groups(self, files: npt.NDArray[np.int64], bounds: Mapping[Leaf, GroupBounds]) -> Bits:
        records = _records(bounds.get(_RECORDS), len(files))

        def of_partition(partition: StructField, in_doubt: Bits) -> ColumnStats | None:
            group_bounds = bounds.get(_partition_leaf(partition))
            return None if group_bounds is None else _partition_bounds(group_bounds, partition, in_doubt)

        def of_column(physical: Leaf, leaf: StructField) -> ColumnStats:
            low, high, nulls = (bounds.get(("stats_parsed", kind, *physical)) for kind in _KINDS.values())
            low_values = high_values = None
            if low is not None and high is not None and not is_float(leaf) and bound_type(leaf) is not None:
                low_values, high_values = _of_all(low, low.low), _of_all(high, high.high)
            return _column_stats(leaf, low_values, high_values, _null_counts(nulls, records), len(files))

        return self._keep(records, of_partition, of_column)

    def rows(self, adds: pa.StructArray) -> Bits:
        def values(leaf: Leaf) -> pa.Array | None:
            return pc.struct_field(adds, list(leaf)) if _has_leaf(adds.type, leaf) else None

        def of_partition(partition: StructField, in_doubt: Bits) -> ColumnStats | None:
            partition_values = values(_partition_leaf(partition))
            return None if partition_values is None else _partition_value(partition_values, partition, in_doubt)

        def of_column(physical: Leaf, leaf: StructField) -> ColumnStats:
            low, high, nulls = (values(("stats_parsed", kind, *physical)) for kind in _KINDS.values())
            tags = values(_TAGS) if is_float(leaf) else None
            return _column_stats(leaf, low, high, nulls, len(adds), tags)

        return self._keep(_as_integers(values(_RECORDS), len(adds)), of_partition, of_column)


def _has_leaf(struct: pa.DataType, leaf: Leaf) -> bool:
    """Whether these names, each of them unique, lead to a field of a struct."""
    for name in leaf:
        if not pa.types.is_struct(struct) or len(struct.get_all_field_indices(name)) != 1:
            return False
        struct = struct.field(name).type
    return True


def _partition_leaf(partition: StructField) -> Leaf:
    return ("partitionValues_parsed", partition.physical_name)


def _column_stats(
    leaf: StructField,
    low: pa.Array | None,
    high: pa.Array | None,
    nulls: pa.Array | None,
    count: int,
    tags: pa.Array | None = None,
) -> ColumnStats:
    stats = {"nulls": _as_integers(nulls, count)}
    if (type_ := bound_type(leaf)) is not None:
        stats |= {"low": _converted(low, type_, count), "high": _converted(high, type_, count)}
    counts_nan = None if tags is None else max_counts_nan(pa.chunked_array([tags]))
    return column_stats(pa.table(stats), leaf, counts_nan)


def _as_integers(values: pa.Array | None, count: int) -> pa.Array:
    return _converted(values, pa.int64(), count)


def _converted(values: pa.Array | None, type_: pa.DataType, count: int) -> pa.Array:
    """Values in another type of the same kind; all null if they cannot be converted."""
    if values is None:
        return pa.nulls(count, type_)
    if values.type == type_:
        return values
    if not _is_of_kind(values.type, type_):
        return pa.nulls(count, type_)
    try:
        return values.cast(type_, safe=not pa.types.is_floating(type_))
    except pa.ArrowException:
        return pa.nulls(count, type_)


def _is_of_kind(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(target):
        return bool(types.is_integer(source))
    if types.is_floating(target):  # this reads decimals, too
        return bool(types.is_floating(source) or types.is_decimal(source) or types.is_integer(source))
    if types.is_timestamp(target):
        same_zone = types.is_timestamp(source) and (source.tz is None) == (target.tz is None)
        return bool(same_zone or (types.is_date32(source) and target.tz is None))
    return bool(types.is_string(target) and types.is_large_string(source))


# --- statistics of a group -------------------------------------------------------------------------------------------


def _of_all(bounds: GroupBounds, values: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(bounds.nulls, 0), values, pa.scalar(None, values.type))


def _records(bounds: GroupBounds | None, count: int) -> pa.Array:
    if bounds is None:
        return pa.nulls(count, pa.int64())
    low, high = (_as_integers(_of_all(bounds, v), count) for v in (bounds.low, bounds.high))
    return pc.if_else(pc.greater_equal(low, 0), high, pa.scalar(None, pa.int64()))


def _null_counts(bounds: GroupBounds | None, records: pa.Array) -> pa.Array:
    """0 if no file of a group has a null, the number of records if all values are null, otherwise unknown."""
    count = len(records)
    if bounds is None:
        return pa.nulls(count, pa.int64())
    low, high = (_as_integers(_of_all(bounds, v), count) for v in (bounds.low, bounds.high))
    none = pc.and_(pc.equal(low, 0), pc.equal(high, 0))
    all_ = pc.and_(pc.equal(high, records), pc.equal(low, records))
    unknown = pa.scalar(None, pa.int64())
    return pc.if_else(pc.fill_null(none, False), 0, pc.if_else(pc.fill_null(all_, False), records, unknown))


def _partition_bounds(stated: GroupBounds, partition: StructField, in_doubt: Bits) -> ColumnStats | None:
    type_ = partition.type.arrow
    if not _is_certain(type_) or pa.types.is_floating(type_):
        return None
    low, high = (_partition_typed(v, type_) for v in (stated.low, stated.high))
    if low is None or high is None:
        return None
    in_doubt |= _maybe_null(pc.fill_null(pc.not_equal(stated.nulls, 0), True), low)
    return ColumnStats(min=low, max=high, null_count=pa.repeat(0, len(low)))


def _partition_value(stated: pa.Array, partition: StructField, in_doubt: Bits) -> ColumnStats | None:
    type_ = partition.type.arrow
    values = _partition_typed(stated, type_) if _is_certain(type_) else None
    if values is None:
        return None
    in_doubt |= _maybe_null(pc.is_null(values), values)
    return ColumnStats(value=values)


def _maybe_null(null: pa.Array, values: pa.Array) -> Bits:
    if pa.types.is_string(values.type):
        null = pc.or_(null, pc.fill_null(pc.equal(values, ""), True))
    mask: Bits = null.to_numpy(zero_copy_only=False)
    return mask


def _is_certain(type_: pa.DataType) -> bool:
    """Whether all engines parse partition values of this type in the same way."""
    return not (pa.types.is_timestamp(type_) or pa.types.is_binary(type_) or pa.types.is_nested(type_))


def _partition_typed(values: pa.Array, type_: pa.DataType) -> pa.Array | None:
    source, types = values.type, pa.types
    alike = (types.is_integer, types.is_decimal)
    if source != type_ and not any(is_kind(source) and is_kind(type_) for is_kind in alike):
        return None
    try:
        return values.cast(type_)
    except pa.ArrowException:
        return None


# --- The files that a filter needs ------------------------------------------------------------------------------------

T = TypeVar("T")
_SIZE, _VECTOR = ("size",), ("deletionVector", "storageType")


def snapshot_for(
    log: DeltaLog,
    opened: Snapshot | PendingSnapshot,
    filter: Filter | None,
    whole: Callable[[PendingSnapshot], Snapshot],
) -> Snapshot:
    """The version with at least the files that may hold a row for which ``filter`` is true.

    For a very large table, only these files are kept in memory, unless all are needed; then ``whole`` reads them.
    """
    if isinstance(opened, Snapshot):
        return opened
    return (None if filter is None else narrowed(log, opened, filter)) or whole(opened)


def narrowed(log: DeltaLog, pending: PendingSnapshot, filter: Filter) -> Snapshot | None:
    """The version with only the files that may match ``filter``; ``None`` if all files must be read."""
    selection = checkpoint_filter(pending, filter)
    parts = _of_each_piece(log, pending, lambda piece: possible_files(piece, filter), selection)
    return None if parts is None else with_files(pending, pa.concat_tables(parts))


def possible_files(piece: Snapshot, filter: Filter) -> pa.Table:
    """The files of a version, or of a piece of one, that may hold a row for which ``filter`` is true."""
    return piece.adds.filter(pa.array(skip_files(piece, filter).keep))


def checkpoint_filter(head: Head, filter: Filter) -> CheckpointFilter:
    """The filter on the typed statistics in a checkpoint of this version."""
    columns = tuple(head.schema.field(c).name for c in head.metadata.partition_columns)
    return CheckpointFilter(filter, head.schema, columns)


def row_count(log: DeltaLog, pending: PendingSnapshot) -> int | None:
    """The number of rows of the version from its statistics; ``None`` if one is missing, or all files must be read."""

    def rows(piece: Snapshot) -> int | None:
        return stated_rows(record_counts(piece.adds, log.engine.query), piece.adds["deletionVector"])

    parts = _of_each_piece(log, pending, rows) or [None]
    return None if None in parts else sum(n for n in parts if n is not None)


@dataclass(frozen=True)
class Outline:
    """The approximate bytes of a version's files, and those ``marked`` by a deletion vector."""

    size: int
    marked: pa.Table


def outline(log: DeltaLog, pending: PendingSnapshot) -> Outline | None:
    """The outline of a version, from the footers of its checkpoint; ``None`` if all files must be read."""

    def marked(piece: Snapshot) -> pa.Table:
        return piece.adds.filter(pc.is_valid(piece.adds["deletionVector"]))

    footers = _Footers()
    parts = _of_each_piece(log, pending, marked, footers)
    newer = int(pc.sum(pending.newer.adds["size"]).as_py() or 0)
    return None if parts is None else Outline(footers.bytes + newer, pa.concat_tables(parts))


class _Footers:
    """A :class:`~trilake.delta.log.checkpoint_selection.Selection` of files with vectors, which adds up all bytes."""

    def __init__(self) -> None:
        self.bytes, self._has_vectors = 0, True

    def leaves(self, add: pa.StructType) -> Sequence[Leaf]:
        self._has_vectors = _has_leaf(add, _VECTOR)
        return [leaf for leaf in (_SIZE, _VECTOR) if _has_leaf(add, leaf)]

    def groups(self, files: npt.NDArray[np.int64], bounds: Mapping[Leaf, GroupBounds]) -> Bits:
        if (sizes := bounds.get(_SIZE)) is not None:
            between = pc.add(pc.cast(sizes.low, pa.float64()), pc.cast(sizes.high, pa.float64()))
            self.bytes += int(np.nansum(pc.multiply(between, files / 2).to_numpy(zero_copy_only=False)))
        if not self._has_vectors:
            return np.zeros(len(files), bool)
        vector_bounds = bounds.get(_VECTOR)
        if vector_bounds is None:
            return np.ones(len(files), bool)
        return np.asarray(pc.fill_null(pc.less(vector_bounds.nulls, pa.array(files)), True))

    def rows(self, adds: pa.StructArray) -> Bits:
        return np.asarray(pc.is_valid(pc.struct_field(adds, list(_VECTOR))))


def _of_each_piece(
    log: DeltaLog, pending: PendingSnapshot, use: Callable[[Snapshot], T], selection: Selection | None = None
) -> list[T] | None:
    """``use`` for each piece of the version; ``None`` if a file may be listed twice, or the checkpoint is damaged."""
    try:
        return [use(with_files(pending, files)) for files in live_files(log, pending, selection)]
    except (MaybeTwiceError, CorruptLogError):
        return None


def with_files(head: Head, adds: pa.Table) -> Snapshot:
    """The version with only these files."""
    return Snapshot(head.uri, head.version, replace(head.state, adds=adds), head.segment, head.engine)


# --- With tasks that read shares of a checkpoint ----------------------------------------------------------------------
# Each task filters its share and sends the matching files with the number of files read; the sum must match the
# checkpoint.  The driver holds only matching files, without hashes of the others, so it detects a file that is listed
# twice only if both entries match.

#: Bytes of a checkpoint per task.
SHARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Narrowed:
    """The result of a task: matching files, the number of files read, and their bytes if the task read all files."""

    files: pa.Table
    count: int
    size: int | None


@dataclass(frozen=True)
class ShareFilter:
    """Finds the files of a share that may match, in any process; ``newer`` are files that later commits touch."""

    store: Store
    head: Head
    newer: NewerFiles
    filter: Filter
    selection: CheckpointFilter

    def __call__(self, share: Share) -> Narrowed:
        count = size = skipped = 0
        matches = [empty_state().adds]
        query = self.head.engine.query
        for piece, skipped_here in share.selected_pieces(self.store, query, selection=self.selection):
            count += piece.num_rows
            skipped += skipped_here
            size += int(pc.sum(piece["size"]).as_py() or 0)
            remaining = with_files(self.head, self.newer.without_newer(piece))
            matches.append(possible_files(remaining, self.filter))
        return Narrowed(pa.concat_tables(matches), count + skipped, None if skipped else size)


def narrowed_by_jobs(log: DeltaLog, pending: PendingSnapshot, filter: Filter, jobs: Jobs) -> Snapshot | None:
    """Like :func:`narrowed`, in other processes.  Raises the errors of a failed job."""
    store, segment = log.store, pending.segment
    head = Head(pending.uri, pending.version, pending.state, segment, pending.engine.for_tasks())
    work = ShareFilter(store, head, pending.newer_files, filter, checkpoint_filter(pending, filter))
    newer = possible_files(with_files(pending, pending.newer.adds), filter)
    try:
        rare = checkpoint_actions(store, segment)
        parts: list[Narrowed] = list(jobs.run(work, shares(segment, rare, SHARE_BYTES)))
        size = sum(p.size or 0 for p in parts) if all(p.size is not None for p in parts) else None
        compare(store, segment, sum(p.count for p in parts), size, rare)
    except CorruptLogError:
        return None
    files = pa.concat_tables([*(p.files for p in parts), newer])
    if any_twice(hashes(one_spelling(files, pending.uri), log.engine.query)):
        return None
    return with_files(pending, files)
