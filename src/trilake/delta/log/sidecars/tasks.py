"""Write the sidecars of a v2 checkpoint in Spark tasks, so that the driver reads no file of the older checkpoint.

Protocol: *Sidecar Files*, *Action Reconciliation*.  Each task reads a part of the older checkpoint, drops expired
tombstones and files that later commits touched, and writes sidecars.  The totals of what the tasks read must match
those that the log states for the older checkpoint.  The files of the later commits go to the smallest task; if there
are many, the driver writes them.

A retried task writes new sidecars, and the checkpoint names only those of one attempt; log cleanup deletes the rest.  A
file that is listed twice is found by its path; another writer's checkpoint gets a separate job for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import FILE_BYTES, KEY_FIELDS, Share, checkpoint_actions, compare, shares
from trilake.delta.log.checkpoint_parts import FileColumns, Unexpired
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import Touched, one_spelling, refuse_twice, twice_error
from trilake.delta.log.sidecars.reuse import Reuse, again, is_ours
from trilake.delta.log.sidecars.writing import SidecarWriter, Written
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.expr.terms.engine import Query
from trilake.storage.base import Store

#: Above this many actions of later commits, this process writes them.
_SENT = 100_000


@dataclass(frozen=True)
class Part:
    """The input of one task: shares of the older checkpoint, and actions of later commits."""

    shares: tuple[Share, ...] = ()
    #: Approximate number of actions.
    expected: int = 0
    adds: pa.Table | None = None
    removes: pa.Table | None = None


@dataclass(frozen=True)
class PartWritten:
    """The sidecars of a part, the totals of the files read for it, and the path of a duplicate file."""

    written: Written
    read: FileTotals
    twice: str | None


@dataclass(frozen=True)
class PartWriter:
    """Writes the sidecars of a part, in any process; ``added`` are the paths of files that later commits add."""

    store: Store
    query: Query
    runtime: Runtime
    columns: FileColumns
    most: int
    touched: Touched
    unexpired: Unexpired
    added: pa.ChunkedArray
    uri: str

    def __call__(self, part: Part) -> PartWritten:
        read = FileTotals()
        twice: list[str] = []

        def pieces() -> Iterator[tuple[str, pa.Table]]:
            nonlocal read
            for share in part.shares:
                for piece in share.pieces(self.store, self.query):
                    read += FileTotals.of(piece)
                    remaining = self.touched.left_of(piece)
                    if (path := again(remaining, self.added, self.uri)) is not None:
                        twice.append(path)
                    yield "add", remaining
            if part.adds is not None:
                yield "add", part.adds
            for share in part.shares:
                for piece in share.pieces(self.store, self.query, "remove"):
                    yield "remove", self.unexpired(self.touched.left_of(piece))
            if part.removes is not None:
                yield "remove", self.unexpired(part.removes)

        writer = SidecarWriter(
            self.store, self.runtime, self.columns, most=self.most, expected=part.expected, mixed=False
        )
        sidecar_files = writer.write(pieces())
        return PartWritten(sidecar_files, read, twice[0] if twice else None)


@dataclass(frozen=True)
class _StayingPaths:
    """The paths in a share that later commits do not touch."""

    store: Store
    query: Query
    touched: Touched
    uri: str

    def __call__(self, share: Share) -> Iterator[pa.ChunkedArray]:
        for piece in share.pieces(self.store, self.query, only=KEY_FIELDS):
            yield one_spelling(self.touched.left_of(piece), self.uri)


def write_by_tasks(
    log: DeltaLog,
    version: PendingSnapshot,
    columns: FileColumns,
    jobs: Jobs,
    runtime: Runtime,
    *,
    most: int,
    reuse: Reuse | None,
) -> Written:
    """Write the sidecars of a version's checkpoint, except those that ``reuse`` keeps.

    Raises ``CorruptLogError`` if the older checkpoint is damaged, differs from its totals, or lists a file twice.  If a
    job fails, deletes the sidecars of the tasks that have finished.
    """
    store, segment = log.store, version.segment
    rare = checkpoint_actions(store, segment) if reuse is None else reuse.rare
    older = shares(segment, rare, most * FILE_BYTES) if reuse is None else reuse.rewritten
    new_paths = one_spelling(version.newer.adds, version.uri)
    refuse_twice(new_paths, version.uri, version.version)
    if not is_ours(rare):
        path = jobs.repeated(_StayingPaths(store, version.engine.query, version.touched, version.uri), older)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
    unexpired = Unexpired.of(version, runtime.clock_ms())
    write = PartWriter(
        store, version.engine.query, runtime, columns, most, version.touched, unexpired, new_paths, version.uri
    )
    sent, local = parts(older, version.newer.adds, version.newer.removes, most)
    results: list[PartWritten] = []
    try:
        results += jobs.run(write, sent) if sent else ()
        results += map(write, local)
        path = next((p.twice for p in results if p.twice is not None), None)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
        reused = () if reuse is None else reuse.kept
        totals = sum((p.read for p in results), sum((s.files for s in reused), FileTotals()))
        compare(store, segment, totals.num_files, totals.size_in_bytes, rare)
    except BaseException:
        sum((p.written for p in results), Written()).take_back(store)
        raise
    return sum((p.written for p in results), Written())


def parts(older: Sequence[Share], adds: pa.Table, removes: pa.Table, most: int) -> tuple[list[Part], list[Part]]:
    """Split the work into parts for tasks and parts for this process, each of about one sidecar or one share."""
    sent: list[Part] = []
    for share in older:
        place = next((i for i, p in enumerate(sent) if p.expected + share.expected <= most), None)
        if place is None:
            sent.append(Part((share,), share.expected))
        else:
            part = sent[place]
            sent[place] = replace(part, shares=(*part.shares, share), expected=part.expected + share.expected)
    count = adds.num_rows + removes.num_rows
    fresh = Part((), count, adds, removes)
    if not count:
        return sent, []
    if count > _SENT:
        return sent, [fresh]
    least = min(range(len(sent)), key=lambda i: sent[i].expected, default=None)
    if least is None or sent[least].expected + count > most:
        return [*sent, fresh], []
    sent[least] = replace(fresh, shares=sent[least].shares, expected=sent[least].expected + count)
    return sent, []
