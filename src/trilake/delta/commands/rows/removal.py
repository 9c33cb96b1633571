"""The actions that remove rows from a table.

If the table has deletion vectors, they mark the rows as deleted.  Otherwise, the remaining rows of each file are copied
into a new file.  A file without remaining rows is removed.

Protocol: *Deletion Vectors*, *Add CDC File*.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from trilake.common.progress import track
from trilake.delta.commands.rows.row_changes import (
    ChangedFile,
    ChangedPart,
    Runner,
    change_file_plan,
    changed_files,
    live_rows,
    records_changes,
    rewrite_plan,
    run_here,
    successful,
    uses_vectors,
    whole_rows,
    with_change_type,
    with_row_ids,
)
from trilake.delta.commit.transaction import add_action, remove_action
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.deletion_vectors import row_indexes, store_vectors
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.scan.data_files import file_errors
from trilake.delta.scan.parquet_rows import as_strings, rows_as_stored
from trilake.delta.scan.read import RowsOfFiles, keys_mask, locate, packs, read_together, row_keys
from trilake.delta.scan.scan import FileTask, ReadPlan
from trilake.errors import TrilakeError
from trilake.storage.base import Store


@dataclass(frozen=True)
class Removal:
    """The actions that remove rows, and their totals; see :func:`remove_rows`.

    ``removed`` are the paths of all files with a ``remove`` action, as the log spells them.  ``rows`` is the number of
    removed rows, ``None`` if a removed file does not state its number of rows; ``copied`` is the number of copied rows.
    A file that only gets another vector counts only as a vector.
    """

    actions: tuple[Mapping[str, Any], ...] = ()
    removed: frozenset[str] = frozenset()
    rows: int | None = 0
    copied: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0
    vectors_removed: int = 0
    #: Whether the change feed must be read only from change files; ``actions`` then has the change files of the removed
    #: rows.
    change_files: bool = False

    @property
    def metrics(self) -> dict[str, int]:
        """Operation metrics with delta-spark's names."""
        return {
            "numRemovedFiles": self.files_removed,
            "numAddedFiles": self.files_added,
            "numCopiedRows": self.copied,
            "numDeletionVectorsAdded": self.vectors_added,
            "numDeletionVectorsUpdated": self.vectors_updated,
            "numDeletionVectorsRemoved": self.vectors_removed,
            "numAddedChangeFiles": sum("cdc" in a for a in self.actions),
            "numRemovedBytes": self.bytes_removed,
            "numAddedBytes": self.bytes_added,
        }


def remove_rows(
    log: DeltaLog,
    snapshot: Snapshot,
    rows: Mapping[int, BitMap64],
    *,
    whole: Iterable[int] = (),
    job_id: str,
    change_type: str | None = None,
    run: Runner = run_here,
    beside: TaskWriter | None = None,
) -> Removal:
    """Create the actions that remove rows of a snapshot.  Writes files and vectors, but does not commit.

    Parameters
    ----------
    rows: the rows to remove, by position of their file in ``snapshot.adds``: indexes of undeleted rows in the file.
        If all rows of a file are in it, the file is removed; if none is, the file stays.
    whole: positions of files whose rows are all removed.
    job_id: part of the names of new files.
    change_type: the type of these rows in the change feed.  If the feed is on and a file is rewritten, so that the
        actions do not show which rows were removed, the rows go into change files.  ``None`` if the command writes
        change files itself, or needs none.
    beside: the writer of the command's new rows, which is still open: it also gets the rows that stay, if they are few
        and it writes the same kind of files, so that a partition gets one new file instead of two.

    Raises ``MissingFileError``, ``CorruptFileError`` or ``DeletionVectorError`` for a file that cannot be read.
    """
    every = set(whole)
    numbers = sorted(every | {n for n, indexes in rows.items() if len(indexes)})
    if not numbers:
        return Removal()
    adds = snapshot.adds.take(pa.array(numbers, pa.int64()))
    live = dict(zip(numbers, live_rows(adds, snapshot.engine.query).to_pylist(), strict=True))
    partial = {n: rows[n] for n in numbers if n not in every}
    every |= {n for n, indexes in partial.items() if live[n] is not None and len(indexes) >= live[n]}
    sources = changed_files(snapshot, numbers)
    part = [s for s in sources if s.number not in every]
    counts = [live[n] if n in every else len(partial[n]) for n in numbers]
    vectors, results, feed = dict[int, tuple[Mapping[str, Any], int | None]](), list[ChangedPart](), None
    if uses_vectors(snapshot):
        unknown = {s.number for s in part if live[s.number] is None}
        vectors = _vectors(log, part, partial, unknown)
    else:
        feed = change_type if part and records_changes(snapshot) else None
        away = {n: indexes for n, indexes in partial.items() if n not in every}
        files = sources if feed else part
        job = _CopyJob(log.store, whole_rows(snapshot), rewrite_plan(snapshot, job_id), feed)
        todo = [_Copy(s, away[s.number].serialize() if s.number in away else None) for s in files]
        if todo and beside is not None and job.fits(todo, beside):
            copied = job.copy(todo, beside, None)
            results = [ChangedPart(WrittenFiles(()), replaced=tuple(s.number for s in files), copied=copied)]
        else:
            tasks = _tasks(snapshot, todo)
            results = successful(log.store, track(run(job, tasks), "copying files", len(tasks)), job_id)
    copies = {c.replaced[0]: c.actions for c in results}
    new = [a["add"] for actions in copies.values() for a in actions if "add" in a]
    now, actions, removed = log.engine.runtime.clock_ms(), list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    with_vector = []
    for number, add in zip(numbers, adds.to_pylist(), strict=True):
        actions.append(remove_action(add, now))
        if number in vectors:
            actions.append({"add": add_with_vector(add, *vectors[number])})
        else:
            removed.append(add)
        actions += copies.get(number, ())
        if add.get("deletionVector") is not None:
            with_vector.append(number)
    return Removal(
        tuple(actions),
        frozenset(adds["path"].to_pylist()),
        None if None in counts else sum(counts),
        sum(c.copied for c in results),
        files_added=len(new),
        files_removed=len(removed),
        bytes_added=sum(a["size"] for a in new),
        bytes_removed=sum(a["size"] or 0 for a in removed),
        vectors_added=len(vectors),
        vectors_updated=sum(n in vectors for n in with_vector),
        vectors_removed=len(with_vector),
        change_files=feed is not None,
    )


def _vectors(
    log: DeltaLog, files: Sequence[ChangedFile], removed_rows: Mapping[int, BitMap64], unknown: set[int]
) -> dict[int, tuple[Mapping[str, Any], int | None]]:
    """Write vectors; return the field of each by file number, and the rows of files whose statistics lack them.

    Leaves out files without remaining rows.
    """

    def joined(source: ChangedFile) -> tuple[BitMap64, int | None]:
        rows = removed_rows[source.number]
        if source.file.vector is not None:
            rows = rows | source.file.vector.load(log.store)
        return rows, physical_rows(log.store, source.file) if source.number in unknown else None

    if unknown or any(f.file.vector is not None for f in files):
        with ThreadPoolExecutor(8) as pool:
            vectors = list(pool.map(joined, files))
    else:
        vectors = list(map(joined, files))
    remaining = [(f.number, rows, n) for f, (rows, n) in zip(files, vectors, strict=True) if n is None or len(rows) < n]
    fields = store_vectors(log.store, [rows for _, rows, _ in remaining], log.engine.runtime.new_id)
    return {number: (vector, n) for (number, _, n), vector in zip(remaining, fields, strict=True)}


def physical_rows(store: Store, file: FileTask) -> int:
    """The number of rows in a Parquet file, including deleted ones, from its footer.

    Raises ``MissingFileError`` or ``CorruptFileError``.
    """
    place, key = locate(store, file.path)
    with file_errors(place, key), place.open_input(key) as source:
        return int(pq.read_metadata(source).num_rows)


def add_with_vector(add: Mapping[str, Any], vector: Mapping[str, Any], records: int | None = None) -> dict[str, Any]:
    """The ``add`` action of a file with a new vector: its bounds are not tight any more.

    ``records`` is the file's number of rows, if its statistics lack it: a file with a vector must state it.
    """
    stats = orjson.loads(add.get("stats") or "{}")
    if records is not None:
        stats["numRecords"] = records
    json_string = orjson.dumps({**stats, "tightBounds": False}).decode() if stats else add.get("stats")
    action: dict[str, Any] = add_action(add, stats=json_string, dataChange=True, deletionVector=vector)["add"]
    return action


#: Up to this many bytes of small files in a partition are merged into one.  Otherwise, frequent small changes would
#: multiply small files, all of which every command opens.
_TOGETHER = 8 << 20


@dataclass(frozen=True)
class _Copy:
    """A file to copy without some rows: a serialized bitmap of these, ``None`` for all rows."""

    source: ChangedFile
    removed_rows: bytes | None


@dataclass(frozen=True)
class _CopyJob:
    """Copies the remaining rows of files into one; with the change type ``feed``, dropped rows go into change files."""

    store: Store
    read: ReadPlan
    files: FilePlan
    feed: str | None

    def __call__(self, task: Sequence[_Copy]) -> ChangedPart:
        try:
            return self._copy(task)
        except TrilakeError as e:
            return ChangedPart(WrittenFiles(()), error=e)

    def _copy(self, task: Sequence[_Copy]) -> ChangedPart:
        number = task[0].source.number
        with (
            TaskWriter(self.store, self.files, number) as rest,
            TaskWriter(self.store, change_file_plan(self.files), number) as changes,
        ):
            copied = self.copy(task, rest, changes)
            replaced = tuple(c.source.number for c in task)
            written, cdc = WrittenFiles(tuple(rest.close())), tuple(changes.close())
            return ChangedPart(written, cdc, replaced=replaced, copied=copied)

    def fits(self, copies: Sequence[_Copy], writer: TaskWriter) -> bool:
        """Whether the open writer of a command's new rows can take the remaining rows of these files, too."""
        small = sum(c.source.file.size for c in copies) <= _TOGETHER
        return small and self.feed is None and writer.plan == self.files

    def copy(self, task: Sequence[_Copy], rest: TaskWriter, changes: TaskWriter | None) -> int:
        """Write the remaining rows of files, and to ``changes`` the dropped ones; return the number of the former.

        Without ``changes``, ``rest`` also has other rows.
        """
        sources = [c.source for c in task]
        every = np.array([c.removed_rows is None for c in task])
        indexes = [row_indexes(BitMap64.deserialize(c.removed_rows or _NONE)) for c in task]
        removed_keys = np.concatenate([row_keys(n, rows) for n, rows in enumerate(indexes)])
        copied = 0
        for some in self._rows(sources, as_stored=len(sources) == 1 and changes is not None):
            out = every[some.files] | keys_mask(some.keys, removed_keys)
            copied += int((~out).sum())
            if not out.all():
                rows = with_row_ids(some, sources, self.read, self.files)
                rest.write(rows.filter(pa.array(~out)) if out.any() else rows)
            if changes is not None and self.feed is not None and out.any():
                rows = some.rows.select(list(self.read.output)).filter(pa.array(out))
                changes.write(with_change_type(as_strings(rows), self.feed))
        return copied

    def _rows(self, sources: Sequence[ChangedFile], *, as_stored: bool) -> Iterator[RowsOfFiles]:
        if not as_stored:  # a column has one type per file, which may differ from its type in an old file
            yield from read_together(self.store, [s.file for s in sources], self.read)
            return
        for positions, batch in rows_as_stored(self.store, sources[0].file, self.read):
            yield RowsOfFiles(np.zeros_like(positions), positions, batch)


_NONE = BitMap64().serialize()


def _tasks(snapshot: Snapshot, copies: Sequence[_Copy]) -> list[list[_Copy]]:
    """Assign files to tasks: small files of a partition share a task, and so do small partitions."""
    fields = partition_fields(snapshot.schema, snapshot.metadata.partition_columns)
    partitions = PartitionKeys.of_actions((c.source.file.partition_values for c in copies), fields).codes.tolist()
    groups: list[list[_Copy]] = []
    #: The open group of each partition, and its size in bytes.
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
