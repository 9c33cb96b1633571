"""A checkpoint of version 2 whose sidecars are written by tasks: this process holds no file of the older checkpoint.

Protocol: *Sidecar Files*, *Action Reconciliation*.  Each task reads a part of the older checkpoint, leaves out what the
commits since decide about and the tombstones that have expired, and writes sidecars under names of its own.  It says
what these come to, and what it read, which together must be what is known of the older checkpoint.  The commits since
are in memory here; their files go to the task that has the fewest, or are written here where they are many.

A task that is done again writes other sidecars, and only those of one attempt are named.  What a failed job leaves is
named by no one, and goes with log cleanup.

A file that is there twice is found as elsewhere, by its path: tasks compare what stays with what is new; among the
files of a checkpoint that is not of this library, whose writer may not have looked, a job of its own does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import FILE_BYTES, KEY_FIELDS, Share, checkpoint_actions, compare, shares
from trilake.delta.log.checkpoint_content import Unexpired
from trilake.delta.log.checkpoint_parts import FileColumns
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import Touched, one_spelling, refuse_twice, twice_error
from trilake.delta.log.sidecars.reuse import Reuse, again, is_ours
from trilake.delta.log.sidecars.writing import SidecarWriter, Written
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.storage.base import Store

#: More actions of the commits since are written by this process, which has them.
_SENT = 100_000


@dataclass(frozen=True)
class Part:
    """What one task makes sidecars of: shares of the older checkpoint, and actions of the commits since."""

    shares: tuple[Share, ...] = ()
    #: About how many actions it is.
    expected: int = 0
    adds: pa.Table | None = None
    removes: pa.Table | None = None


@dataclass(frozen=True)
class PartWritten:
    """The sidecars of a part, what the files come to that were read for it, and the path of one that is there twice."""

    written: Written
    read: FileTotals
    twice: str | None


@dataclass(frozen=True)
class PartWriter:
    """Writes the sidecars of a part, in any process; ``added`` are the paths of the files that the commits added."""

    store: Store
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
                for piece in share.pieces(self.store):
                    read += FileTotals.of(piece)
                    left = self.touched.left_of(piece)
                    if (path := again(left, self.added, self.uri)) is not None:
                        twice.append(path)
                    yield "add", left
            if part.adds is not None:
                yield "add", part.adds
            for share in part.shares:
                for piece in share.pieces(self.store, "remove"):
                    yield "remove", self.unexpired(self.touched.left_of(piece))
            if part.removes is not None:
                yield "remove", self.unexpired(part.removes)

        writer = SidecarWriter(
            self.store, self.runtime, self.columns, most=self.most, expected=part.expected, mixed=False
        )
        written = writer.write(pieces())
        return PartWritten(written, read, twice[0] if twice else None)


@dataclass(frozen=True)
class _StayingPaths:
    """The paths of the files of a share that the commits since leave."""

    store: Store
    touched: Touched
    uri: str

    def __call__(self, share: Share) -> Iterator[pa.ChunkedArray]:
        for piece in share.pieces(self.store, only=KEY_FIELDS):
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
    """Write the sidecars of a version's checkpoint, all of them or those that ``reuse`` does not name again.

    Raises ``CorruptLogError`` where the older checkpoint is damaged, not what is known of it, or has a file twice, and
    what a job raises that fails; then no sidecar stays that this process knows of.
    """
    store, segment = log.store, version.segment
    rare = checkpoint_actions(store, segment) if reuse is None else reuse.rare
    older = shares(segment, rare, most * FILE_BYTES) if reuse is None else reuse.rewritten
    added = one_spelling(version.newer.adds, version.uri)
    refuse_twice(added, version.uri, version.version)
    if not is_ours(rare):
        path = jobs.repeated(_StayingPaths(store, version.touched, version.uri), older)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
    unexpired = Unexpired.of(version, runtime.clock_ms())
    write = PartWriter(store, runtime, columns, most, version.touched, unexpired, added, version.uri)
    sent, own = parts(older, version.newer.adds, version.newer.removes, most)
    done: list[PartWritten] = []
    try:
        done += jobs.run(write, sent) if sent else ()
        done += map(write, own)
        path = next((p.twice for p in done if p.twice is not None), None)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
        kept = () if reuse is None else reuse.kept
        known = sum((p.read for p in done), sum((s.files for s in kept), FileTotals()))
        compare(store, segment, known.num_files, known.size_in_bytes, rare)
    except BaseException:
        sum((p.written for p in done), Written()).take_back(store)
        raise
    return sum((p.written for p in done), Written())


def parts(older: Sequence[Share], adds: pa.Table, removes: pa.Table, most: int) -> tuple[list[Part], list[Part]]:
    """What tasks write, and what this process does: each about as much as one sidecar holds, or one share."""
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
