"""Filters over a table of millions of files, applied while its checkpoint is read.

Each piece of the version's files is filtered as it is read, and only matching files are kept.  If a file may be listed
twice, or the checkpoint is damaged, the caller reads all files instead.  :func:`outline` gives the totals that a plan
needs before it has a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import Choice, Share, checkpoint_actions, compare, shares
from trilake.delta.log.checkpoint_selection import Bits, GroupBounds, Leaf, Selection, has_leaf
from trilake.delta.log.live_files import MaybeTwiceError, live_files
from trilake.delta.log.log import DeltaLog
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
from trilake.delta.scan.checkpoint_filter import CheckpointFilter
from trilake.delta.scan.scan import skip_files, stated_rows
from trilake.delta.scan.statistics import record_counts
from trilake.errors import CorruptLogError
from trilake.expr import Filter
from trilake.storage.base import Store

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
    Raises what :meth:`~trilake.delta.log.log.DeltaLog.load` raises.
    """
    if isinstance(opened, Snapshot):
        return opened
    return (None if filter is None else narrowed(log, opened, filter)) or whole(opened)


def narrowed(log: DeltaLog, pending: PendingSnapshot, filter: Filter) -> Snapshot | None:
    """The version with only the files that may hold a row for which ``filter`` is true.

    ``None`` if all files must be read.  Raises what :meth:`~trilake.delta.log.log.DeltaLog.load` raises.
    """

    def possible(piece: Snapshot) -> pa.Table:
        return possible_files(piece, filter)

    parts = _of_each_piece(log, pending, possible, checkpoint_filter(pending, filter))
    return None if parts is None else with_files(pending, pa.concat_tables(parts))


def possible_files(piece: Snapshot, filter: Filter) -> pa.Table:
    """The files of a version, or of a piece of one, that may hold a row for which ``filter`` is true."""
    keep = skip_files(piece, filter).keep
    return piece.adds if keep is None else piece.adds.filter(pa.array(keep))


def checkpoint_filter(head: Head, filter: Filter) -> CheckpointFilter:
    """The filter on the typed statistics in a checkpoint of this version."""
    columns = tuple(head.schema.field(c).name for c in head.metadata.partition_columns)
    return CheckpointFilter(filter, head.schema, columns)


def row_count(log: DeltaLog, pending: PendingSnapshot) -> int | None:
    """The number of rows of the version from its statistics; ``None`` if a file has no count, or all files must be
    read.

    Raises what :meth:`~trilake.delta.log.log.DeltaLog.load` raises.
    """

    def rows(piece: Snapshot) -> int | None:
        return stated_rows(record_counts(piece.adds, log.engine.query), piece.adds["deletionVector"])

    parts = _of_each_piece(log, pending, rows) or [None]
    return None if None in parts else sum(n for n in parts if n is not None)


@dataclass(frozen=True)
class Outline:
    """Totals of the files of a version.

    ``size`` is their approximate number of bytes; ``marked`` are the files with a deletion vector.
    """

    size: int
    marked: pa.Table


def outline(log: DeltaLog, pending: PendingSnapshot) -> Outline | None:
    """The outline of a version, from the footers of its checkpoint and the files that have a deletion vector.

    ``None`` if all files must be read.  Raises what :meth:`~trilake.delta.log.log.DeltaLog.load` raises.
    """

    def marked(piece: Snapshot) -> pa.Table:
        return piece.adds.filter(pc.is_valid(piece.adds["deletionVector"]))

    footers = _Footers()
    parts = _of_each_piece(log, pending, marked, footers)
    newer = int(pc.sum(pending.newer.adds["size"]).as_py() or 0)
    return None if parts is None else Outline(footers.bytes + newer, pa.concat_tables(parts))


class _Footers:
    """A :class:`~trilake.delta.log.checkpoint_selection.Selection` of the files with a deletion vector.

    It also adds up the approximate bytes of all files.
    """

    def __init__(self) -> None:
        self.bytes, self._has_vectors = 0, True

    def leaves(self, add: pa.StructType) -> Sequence[Leaf]:
        self._has_vectors = has_leaf(add, _VECTOR)
        return [leaf for leaf in (_SIZE, _VECTOR) if has_leaf(add, leaf)]

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
    """The results of ``use`` for each piece of the version.

    ``None`` if a file may be listed twice, or the checkpoint is damaged.
    """
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
    """Finds the files of a share that may hold a row for which a filter is true, in any process.

    ``head`` is the version without files, ``newer`` are the files that later commits touch.
    """

    store: Store
    head: Head
    newer: NewerFiles
    filter: Filter
    selection: CheckpointFilter

    def __call__(self, share: Share) -> Narrowed:
        choice = Choice(self.selection)
        count = size = 0
        matches = [empty_state().adds]
        for piece in share.pieces(self.store, self.head.engine.query, choice=choice):
            count += piece.num_rows
            size += int(pc.sum(piece["size"]).as_py() or 0)
            remaining = with_files(self.head, self.newer.without_newer(piece))
            matches.append(possible_files(remaining, self.filter))
        return Narrowed(pa.concat_tables(matches), count + choice.skipped, None if choice.skipped else size)


def narrowed_by_jobs(log: DeltaLog, pending: PendingSnapshot, filter: Filter, jobs: Jobs) -> Snapshot | None:
    """The version with only the files that may hold a row for which ``filter`` is true.

    ``None`` if all files must be read.

    Raises what a failed job raises.
    """
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
