"""Files that are written again without some of their rows, where a table has no deletion vectors."""

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
    """What every task of a copy needs, as it travels.  A task has files whose rows go together, or some such groups."""

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
        if len(sources) > 1:  # a column has one form in a file, which that of one old file need not be
            yield from read_together(self.store, [s.file for s in sources], self.read)
            return
        for positions, batch in rows_as_stored(self.store, sources[0].file, self.read):
            yield RowsOfFiles(np.zeros_like(positions), positions, batch)


_NONE = BitMap64().serialize()


def _tasks(snapshot: Snapshot, copies: Sequence[_Copy]) -> list[list[_Copy]]:
    """The files by the tasks that copy them: small ones of a partition share one, and so do small partitions."""
    fields = partition_fields(snapshot.schema, snapshot.metadata.partition_columns)
    partitions = PartitionKeys.of_actions((c.source.file.partition_values for c in copies), fields).codes.tolist()
    groups: list[list[_Copy]] = []
    #: The group of each partition that takes more, and its bytes.
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
    tasks = _tasks(snapshot, copies)
    done: list[CopiedFiles] = list(track(run(job, tasks), "copying files", len(tasks)))
    failed = next((c.error for c in done if c.error is not None), None)
    if failed is not None:
        discard(store, [{"add": a} for c in done for a in (*c.adds, *c.cdc)], job_id)
        raise failed
    return done
