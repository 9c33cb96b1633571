"""Filters over a table of millions of files, applied while its checkpoint is read.

Of each piece of the version's files, those go that the filter does not need; what is left of all pieces is the version
as far as the filter is concerned.  Where a file may be there twice, or the checkpoint is damaged, only the whole list
decides, and the caller reads that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from trilake.delta.log.checkpoint_selection import Selection
from trilake.delta.log.live_files import MaybeTwiceError, live_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.scan.checkpoint_filter import CheckpointFilter
from trilake.delta.scan.scan import stated_rows
from trilake.delta.scan.skipping import skip_files
from trilake.delta.scan.statistics import record_counts
from trilake.errors import CorruptLogError
from trilake.expr import Filter

T = TypeVar("T")


def snapshot_for(
    log: DeltaLog,
    opened: Snapshot | PendingSnapshot,
    filter: Filter | None,
    whole: Callable[[PendingSnapshot], Snapshot],
) -> Snapshot:
    """The version with those files at least that may hold a row for which ``filter`` is true: of a table that has very
    many, no others are kept in memory, unless all must decide, which ``whole`` reads.

    Raises as :meth:`~trilake.delta.log.log.DeltaLog.load` does.
    """
    if isinstance(opened, Snapshot):
        return opened
    return (None if filter is None else narrowed(log, opened, filter)) or whole(opened)


def narrowed(log: DeltaLog, pending: PendingSnapshot, filter: Filter) -> Snapshot | None:
    """The version with those files alone that may hold a row for which ``filter`` is true; ``None`` where the whole
    list must decide.

    Raises as :meth:`~trilake.delta.log.log.DeltaLog.load` does.
    """

    def possible(piece: Snapshot) -> pa.Table:
        keep = skip_files(piece, filter).keep
        return piece.adds if keep is None else piece.adds.filter(pa.array(keep))

    columns = tuple(pending.schema.field(c).name for c in pending.metadata.partition_columns)
    parts = _of_each_piece(log, pending, possible, CheckpointFilter(filter, pending.schema, columns))
    return None if parts is None else _with_files(pending, pa.concat_tables(parts))


def row_count(log: DeltaLog, pending: PendingSnapshot) -> int | None:
    """The rows of the version by its statistics; ``None`` where a file has no count, or the whole list must decide.

    Raises as :meth:`~trilake.delta.log.log.DeltaLog.load` does.
    """

    def rows(piece: Snapshot) -> int | None:
        return stated_rows(record_counts(piece.adds), piece.adds["deletionVector"])

    parts = _of_each_piece(log, pending, rows) or [None]
    return None if None in parts else sum(n for n in parts if n is not None)


def _of_each_piece(
    log: DeltaLog, pending: PendingSnapshot, use: Callable[[Snapshot], T], selection: Selection | None = None
) -> list[T] | None:
    """What ``use`` makes of each piece of the version; ``None`` where a file may be there twice, or where the
    checkpoint is damaged, in whose place commits may stand."""
    try:
        return [use(_with_files(pending, files)) for files in live_files(log, pending, selection)]
    except (MaybeTwiceError, CorruptLogError):
        return None


def _with_files(pending: PendingSnapshot, adds: pa.Table) -> Snapshot:
    state = replace(pending.state, adds=adds)
    return Snapshot(pending.uri, pending.version, state, pending.segment, pending.engine)
