"""Copy files without some of their rows, for tables without deletion vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
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
from trilake.delta.scan.parquet_rows import as_texts, rows_as_stored
from trilake.delta.scan.read import RowsOfFiles, keys_mask, packs, read_together, row_keys
from trilake.delta.scan.scan import ReadPlan
from trilake.errors import TrilakeError
from trilake.storage.base import Store

#: Most bytes of small files of a partition that are merged into one: otherwise frequent small changes would multiply
#: small files, all of which every command opens.
_TOGETHER = 8 << 20


@dataclass(frozen=True)
class _Copy:
    """A file to copy without some rows: a serialized bitmap of those, ``None`` for all of them."""

    source: TouchedFile
    taken: bytes | None


@dataclass(frozen=True)
class CopiedFiles:
    """The result of a task, whose first file is ``number``: actions, and the number of copied rows."""

    number: int
    copied: int = 0
    adds: tuple[Mapping[str, Any], ...] = ()
    cdc: tuple[Mapping[str, Any], ...] = ()
    #: The error of the task; returned, so that the files of other tasks can be deleted too.
    error: TrilakeError | None = None


@dataclass(frozen=True)
class _CopyJob:
    """The picklable parameters of every copy task."""

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
            sources = [c.source for c in task]
            every = np.array([c.taken is None for c in task])
            indexes = [row_indexes(BitMap64.deserialize(c.taken or _NONE)) for c in task]
            taken = np.concatenate([row_keys(n, rows) for n, rows in enumerate(indexes)])
            copied = 0
            for some in self._rows(sources):
                out = every[some.files] | keys_mask(some.keys, taken)
                copied += int((~out).sum())
                if not out.all():
                    rows = with_row_ids(some, sources, self.read, self.files)
                    rest.write(rows.filter(pa.array(~out)) if out.any() else rows)
                if self.feed is not None and out.any():
                    rows = some.rows.select(list(self.read.output)).filter(pa.array(out))
                    changes.write(with_change_type(as_texts(rows), self.feed))
            return CopiedFiles(number, copied, tuple(rest.close()), tuple(changes.close()))

    def _rows(self, sources: Sequence[TouchedFile]) -> Iterator[RowsOfFiles]:
        if len(sources) > 1:  # a column has one type per file, which may differ from that of one old file
            yield from read_together(self.store, [s.file for s in sources], self.read)
            return
        for positions, batch in rows_as_stored(self.store, sources[0].file, self.read):
            yield RowsOfFiles(np.zeros_like(positions), positions, batch)


_NONE = BitMap64().serialize()


def _tasks(snapshot: Snapshot, copies: Sequence[_Copy]) -> list[list[_Copy]]:
    """Assign files to tasks: small ones of a partition share one, and so do small partitions."""
    fields = partition_fields(snapshot.schema, snapshot.metadata.partition_columns)
    partitions = PartitionKeys.of_actions((c.source.file.partition_values for c in copies), fields).codes.tolist()
    groups: list[list[_Copy]] = []
    #: The open group of each partition, and its bytes.
    open_groups: dict[int, tuple[list[_Copy], int]] = {}
    for copy, partition in zip(copies, partitions, strict=True):
        file = copy.source.file
        group, size = open_groups.get(partition, ([], _TOGETHER))
        if size + file.size > _TOGETHER:
            group, size = [], 0
            groups.append(group)
        group.append(copy)
        open_groups[partition] = group, size + file.size
    share = -(-len(groups) // (os.cpu_count() or 1))
    tasks = packs(groups, lambda g: sum(c.source.file.size for c in g), share, most_bytes=_TOGETHER // 4)
    return [[copy for group in task for copy in group] for task in tasks]


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
    """Copy the remaining rows of files into new ones, merging small files of a partition.

    Parameters
    ----------
    sources: the files.
    taken: the rows to drop, by number of their file; all rows of a file that is not listed.
    job_id: part of the names of new files.
    feed: the change type of the dropped rows, which are then written into change files.
    run: runs the copying; one task for each of the results.

    Raises ``MissingFileError`` or ``CorruptFileError`` for a file that cannot be read; then no new file is left.
    """
    job = _CopyJob(store, whole_rows(snapshot), rewrite_plan(snapshot, job_id), feed)
    copies = [_Copy(s, taken[s.number].serialize() if s.number in taken else None) for s in sources]
    tasks = _tasks(snapshot, copies)
    results: list[CopiedFiles] = list(track(run(job, tasks), "copying files", len(tasks)))
    failed = next((c.error for c in results if c.error is not None), None)
    if failed is not None:
        discard(store, [{"add": a} for c in results for a in (*c.adds, *c.cdc)], job_id)
        raise failed
    return results
