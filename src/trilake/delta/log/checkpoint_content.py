"""The content of a checkpoint: the state of a version, whole or, for a large table, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.log.checkpoint import FILE_BYTES, checkpoint_pieces
from trilake.delta.log.live_files import live_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LARGE_FILES, LogSegment
from trilake.delta.log.snapshot import Head, PendingSnapshot, Snapshot
from trilake.errors import InvalidArgumentError

#: File actions of one kind (``add`` or ``remove``).
FilePieces = Iterator[tuple[str, pa.Table]]
#: Files of a piece of an in-memory list.
_PIECE_ROWS = 256 * 1024


@dataclass(frozen=True)
class Content:
    """The file actions of a version; can be read repeatedly.

    ``expected`` is the approximate number of actions; ``num_adds`` the exact number of files, where known in
    advance.
    """

    head: Head
    pieces: Callable[[], FilePieces]
    expected: int
    num_adds: int | None


def content_of(log: DeltaLog, version: Snapshot | PendingSnapshot, now_ms: int) -> Content:
    """The content of a version's checkpoint, without tombstones older than ``delta.deletedFileRetentionDuration``.

    The pieces of a :class:`PendingSnapshot` raise ``MaybeTwiceError`` after the last one, where a file may be
    listed twice.
    """
    kept = Unexpired.of(version, now_ms)
    if isinstance(version, PendingSnapshot):
        expected = counted(version.segment) + version.actions.add.num_rows + version.actions.remove.num_rows
        return Content(version, lambda: _streamed(log, version, kept), expected, None)
    removes = kept(log.tombstones(version))
    adds = version.adds

    def whole() -> FilePieces:
        for kind, files in (("add", adds), ("remove", removes)):
            for start in range(0, files.num_rows, _PIECE_ROWS):
                yield kind, files.slice(start, _PIECE_ROWS)

    return Content(version, whole, adds.num_rows + removes.num_rows, adds.num_rows)


@dataclass(frozen=True)
class Unexpired:
    """Drops tombstones older than ``delta.deletedFileRetentionDuration``."""

    now_ms: int
    retention_ms: int | None

    @staticmethod
    def of(version: Head, now_ms: int) -> Unexpired:
        return Unexpired(now_ms, _retention_ms(version))

    def __call__(self, removes: pa.Table) -> pa.Table:
        if self.retention_ms is None:
            return removes
        deleted = pc.fill_null(removes["deletionTimestamp"], 0)
        return removes.filter(pc.greater(deleted, self.now_ms - self.retention_ms))


def counted(segment: LogSegment) -> int:
    """The approximate number of files in a large checkpoint."""
    if segment.hint is not None and segment.hint.num_add_files is not None:
        return segment.hint.num_add_files
    return max(LARGE_FILES, sum(f.size for f in segment.checkpoint_files) // FILE_BYTES)


def _retention_ms(version: Head) -> int | None:
    """How long tombstones stay; ``None`` (for ever) where that is uncertain, since extra tombstones do no harm."""
    try:
        return version.properties.duration_ms("delta.deletedFileRetentionDuration")
    except InvalidArgumentError:
        return None


def _streamed(log: DeltaLog, pending: PendingSnapshot, kept: Callable[[pa.Table], pa.Table]) -> FilePieces:
    for files in live_files(log, pending):
        yield "add", files
    older = map(pending.touched.left_of, checkpoint_pieces(log.store, pending.segment, log.engine.query, "remove"))
    for removes in chain(older, [pending.newer.removes]):
        yield "remove", kept(removes)
