"""Spark tasks that read the files to keep from parts of a checkpoint and from commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.maintenance.vacuum import recently_removed
from trilake.delta.commands.maintenance.vacuum_files import References, references
from trilake.delta.log.checkpoint import Share, shares
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import Touched
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.storage.base import ObjectMeta, Store

#: Bytes of a checkpoint, and commits, per task.
_SHARE_BYTES, _COMMITS = 64 << 20, 16
#: Columns of the rows.  ``kind`` is ``key`` for a path below the table, ``name`` for a file name to keep in any folder,
#: ``every`` to keep all deletion vectors, ``files`` for the number and bytes of a part's files.
REFERENCES = "kind string, text string, files long, bytes long"
_SCHEMA = pa.schema([("kind", pa.string()), ("text", pa.string()), ("files", pa.int64()), ("bytes", pa.int64())])


def tasks_of(
    version: PendingSnapshot, rare: Sequence[tuple[str, Any]], commits: Sequence[tuple[int, ObjectMeta]]
) -> list[Any]:
    """The tasks for a version and some commits; ``rare`` are the checkpoint's actions other than files."""
    chunks = [tuple(commits[i : i + _COMMITS]) for i in range(0, len(commits), _COMMITS)]
    return [*shares(version.segment, rare, _SHARE_BYTES), *chunks, (version.newer.adds, version.newer.removes)]


@dataclass(frozen=True)
class Named:
    """Reads the references of a task: files of the version, tombstones since the cut-off time, and commits."""

    store: Store
    touched: Touched
    cutoff: int

    def __call__(self, task: Any) -> Iterator[pa.RecordBatch]:
        log = DeltaLog(self.store)
        if isinstance(task, Share):
            files = size = 0
            for piece in task.pieces(self.store, log.engine.query, "add"):
                files += piece.num_rows
                size += int(pc.sum(piece["size"]).as_py() or 0)
                yield from _rows(references(self.touched.left_of(piece)))
            for piece in task.pieces(self.store, log.engine.query, "remove"):
                yield from _rows(references(recently_removed(self.touched.left_of(piece), self.cutoff)))
            yield _batch("files", pa.nulls(1, pa.string()), files, size)
        elif isinstance(task[0], pa.Table):
            adds, removes = task
            yield from _rows(references(adds, recently_removed(removes, self.cutoff)))
        else:
            batch = log.parse(list(task))
            yield from _rows(references(batch.add, batch.remove, batch.cdc))


def _rows(references: References) -> Iterator[pa.RecordBatch]:
    for kind, strings in (("key", references.keys), ("name", references.names)):
        for chunk in strings.chunks:
            if len(chunk):
                yield _batch(kind, chunk)
    if references.every_vector:
        yield _batch("every", pa.nulls(1, pa.string()))


def _batch(kind: str, strings: pa.Array, files: int = 0, size: int = 0) -> pa.RecordBatch:
    count = len(strings)
    numbers = [pa.repeat(pa.scalar(n, pa.int64()), count) for n in (files, size)]
    return pa.RecordBatch.from_arrays([pa.repeat(kind, count), strings, *numbers], schema=_SCHEMA)
