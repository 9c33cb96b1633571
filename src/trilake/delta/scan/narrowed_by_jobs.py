"""Filters over a table of millions of files, applied by tasks that read shares of its checkpoint.

Each task reads its share as :mod:`~trilake.delta.scan.narrowed` reads the whole, and sends the files that the filter
needs, with how many it has read: together these must be what is known of the checkpoint.  This process holds those
files alone, and not even a hash of the others.  So a file that is there twice is found where both of its actions may
hold matching rows, and not elsewhere.
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

#: Bytes of a checkpoint that a task reads.
SHARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Narrowed:
    """What a task found in its share: the files, how many it has read, and their bytes, where it read all."""

    files: pa.Table
    count: int
    size: int | None


@dataclass(frozen=True)
class ShareFilter:
    """Finds the files of a share that may hold a row for which a filter is true, in any process.

    ``head`` is the version without files, ``touched`` are those that later commits decide about.
    """

    store: Store
    head: Head
    touched: Touched
    filter: Filter
    selection: CheckpointFilter

    def __call__(self, share: Share) -> Narrowed:
        choice = Choice(self.selection)
        count = size = 0
        found = [empty_state().adds]
        for piece in share.pieces(self.store, choice=choice):
            count += piece.num_rows
            size += int(pc.sum(piece["size"]).as_py() or 0)
            left = with_files(self.head, self.touched.left_of(piece))
            found.append(possible_files(left, self.filter))
        return Narrowed(pa.concat_tables(found), count + choice.skipped, None if choice.skipped else size)


def narrowed_by_jobs(log: DeltaLog, pending: PendingSnapshot, filter: Filter, jobs: Jobs) -> Snapshot | None:
    """The version with those files alone that may hold a row for which ``filter`` is true; ``None`` where the whole
    list must decide.

    Raises what a job raises that fails.
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
