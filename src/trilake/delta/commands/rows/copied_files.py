"""Files that are written again without some of their rows, where a table has no deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from trilake.common.progress import track
from trilake.delta.commands.rows.change_commit import discard
from trilake.delta.commands.rows.row_changes import (
    Runner,
    TouchedFile,
    change_file_plan,
    rewrite_plan,
    whole_rows,
    with_change_type,
    with_row_ids,
)
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.deletion_vectors import row_indexes
from trilake.delta.protocol.partition_keys import PartitionKeys
from trilake.delta.protocol.partitions import partition_fields
from trilake.delta.scan.parquet_rows import as_texts, places_mask, rows_as_stored
from trilake.delta.scan.scan import ReadPlan
from trilake.errors import TrilakeError
from trilake.storage.base import Store

#: Bytes of the files of a partition whose rows go into one file.  In a table that changes often by a few rows, small
#: files would only become more, and every command opens all of them.
_TOGETHER = 8 << 20


@dataclass(frozen=True)
class _Copy:
    """A file to copy without some rows: a serialized bitmap of those, ``None`` for all of them."""

    source: TouchedFile
    taken: bytes | None


@dataclass(frozen=True)
class CopiedFiles:
    """What became of the files of a task, of which ``number`` is the first: actions, and how many rows were copied."""

    number: int
    copied: int = 0
    adds: tuple[Mapping[str, Any], ...] = ()
    cdc: tuple[Mapping[str, Any], ...] = ()
    #: Why the files were not copied.  Told and not raised, so that the files of other tasks can be deleted too.
    error: TrilakeError | None = None


@dataclass(frozen=True)
class _CopyJob:
    """What every task of a copy needs, as it travels.  A task has files whose rows go together."""

    store: Store
    read: ReadPlan
    files: FilePlan
    feed: str | None

    def __call__(self, task: Sequence[_Copy]) -> CopiedFiles:
        number = task[0].source.number
        try:
            return self._copy(number, task)
        except TrilakeError as e:
            return CopiedFiles(number, error=e)

    def _copy(self, number: int, task: Sequence[_Copy]) -> CopiedFiles:
        runtime = self.files.engine.runtime
        with (
            TaskWriter(self.store, self.files, number, runtime) as rest,
            TaskWriter(self.store, change_file_plan(self.files), number, runtime) as changes,
        ):
            # A column has one form in a file, and each of the old files says itself which texts are dictionaries in it.
            plain = len(task) > 1
            copied = sum(self._copy_one(copy, rest, changes, plain=plain) for copy in task)
            return CopiedFiles(number, copied, tuple(rest.close()), tuple(changes.close()))

    def _copy_one(self, copy: _Copy, rest: TaskWriter, changes: TaskWriter, *, plain: bool) -> int:
        source, copied = copy.source, 0
        taken = None if copy.taken is None else row_indexes(BitMap64.deserialize(copy.taken))
        for positions, batch in rows_as_stored(self.store, source.file, self.read):
            out = np.ones(len(positions), bool) if taken is None else places_mask(positions, taken)
            copied += int((~out).sum())
            if taken is not None:
                rows = with_row_ids(as_texts(batch) if plain else batch, positions, self.read, self.files, source)
                rest.write(rows.filter(pa.array(~out)) if out.any() else rows)
            if self.feed is not None and out.any():
                rows = batch.select(list(self.read.output)).filter(pa.array(out))
                changes.write(with_change_type(as_texts(rows), self.feed))
        return copied


def _together(snapshot: Snapshot, copies: Sequence[_Copy]) -> list[list[_Copy]]:
    """The files by the tasks that copy them: small ones of a partition share one."""
    fields = partition_fields(snapshot.schema, snapshot.metadata.partition_columns)
    partitions = PartitionKeys.of_actions((c.source.file.partition_values for c in copies), fields).codes.tolist()
    tasks: list[list[_Copy]] = []
    #: The task of each partition that takes more, and its bytes.
    open_tasks: dict[int, tuple[list[_Copy], int]] = {}
    for copy, partition in zip(copies, partitions, strict=True):
        file = copy.source.file
        task, size = open_tasks.get(partition, ([], _TOGETHER))
        if size + file.size > _TOGETHER:
            task, size = [], 0
            tasks.append(task)
        task.append(copy)
        open_tasks[partition] = task, size + file.size
    return tasks


def copy_files(
    store: Store,
    snapshot: Snapshot,
    sources: Sequence[TouchedFile],
    taken: Mapping[int, BitMap64],
    *,
    job_id: str,
    feed: str | None,
    run: Runner,
) -> list[CopiedFiles]:
    """Write the rows of files that stay into new ones, of small files of a partition into one.

    Parameters
    ----------
    sources: the files.
    taken: the rows that go, by number of their file; of a file that is not there all of them.
    job_id: part of the names of new files.
    feed: what the change feed calls the rows that go, which are written into change files then.
    run: where to copy files; one task for each of the results.

    Raises ``MissingFileError`` or ``CorruptFileError`` for a file that cannot be read; no new file is left then.
    """
    job = _CopyJob(store, whole_rows(snapshot), rewrite_plan(snapshot, job_id), feed)
    copies = [_Copy(s, taken[s.number].serialize() if s.number in taken else None) for s in sources]
    tasks = _together(snapshot, copies)
    done: list[CopiedFiles] = list(track(run(job, tasks), "copying files", len(tasks)))
    failed = next((c.error for c in done if c.error is not None), None)
    if failed is not None:
        discard(store, [{"add": a} for c in done for a in (*c.adds, *c.cdc)], job_id)
        raise failed
    return done
