"""Filters over a table of millions of files, applied by tasks that read shares of its checkpoint.

Each task filters its share as :mod:`~trilake.delta.scan.narrowed` does and sends the matching files with the number of
files read; the sum must match the checkpoint.  This process only holds matching files, without hashes of the others, so
a file that is listed twice is only detected if both entries match.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import Choice, Share, checkpoint_actions, compare, shares
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import Touched, any_twice, empty_state, hashes, one_spelling
from trilake.delta.log.snapshot import Head, PendingSnapshot, Snapshot
from trilake.delta.scan.checkpoint_filter import CheckpointFilter
from trilake.delta.scan.narrowed import checkpoint_filter, possible_files, with_files
from trilake.errors import CorruptLogError
from trilake.expr import Filter
from trilake.storage.base import Store

#: Bytes of a checkpoint per task.
SHARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Narrowed:
    """The result of a task: matching files, the number of files read, and their bytes, where it read all."""

    files: pa.Table
    count: int
    size: int | None


@dataclass(frozen=True)
class ShareFilter:
    """Finds the files of a share that may hold a row for which a filter is true, in any process.

    ``head`` is the version without files, ``touched`` are the files that later commits touch.
    """

    store: Store
    head: Head
    touched: Touched
    filter: Filter
    selection: CheckpointFilter

    def __call__(self, share: Share) -> Narrowed:
        choice = Choice(self.selection)
        count = size = 0
        matches = [empty_state().adds]
        for piece in share.pieces(self.store, self.head.engine.query, choice=choice):
            count += piece.num_rows
            size += int(pc.sum(piece["size"]).as_py() or 0)
            remaining = with_files(self.head, self.touched.left_of(piece))
            matches.append(possible_files(remaining, self.filter))
        return Narrowed(pa.concat_tables(matches), count + choice.skipped, None if choice.skipped else size)


def narrowed_by_jobs(log: DeltaLog, pending: PendingSnapshot, filter: Filter, jobs: Jobs) -> Snapshot | None:
    """The version with only the files that may hold a row for which ``filter`` is true; ``None`` where all must be
    read.

    Raises what a failed job raises.
    """
    store, segment = log.store, pending.segment
    head = Head(pending.uri, pending.version, pending.state, segment, pending.engine.for_tasks())
    work = ShareFilter(store, head, pending.touched, filter, checkpoint_filter(pending, filter))
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
