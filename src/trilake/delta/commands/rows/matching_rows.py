"""Find the rows that match a predicate, for DELETE and overwrite by predicate.

Files whose rows all provably match by statistics are not read; of other files, only the predicate's columns are.
:mod:`trilake.delta.commands.rows.row_changes` removes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from trilake.common.progress import track
from trilake.delta.commands.rows.row_changes import (
    ChangedFile,
    Runner,
    change_file_plan,
    changed_files,
    in_packs,
    run_here,
    with_change_type,
)
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.scan.read import Positions, RowsOfFiles, read_task, read_together
from trilake.delta.scan.scan import FileTask, ReadPlan, read_plan, skip_files
from trilake.expr import Filter
from trilake.storage.base import Store

#: Bytes and rows per evaluation of a predicate, whose fixed cost equals that of about 50,000 rows.
_PIECE_BYTES, _PIECE_ROWS = 16 << 20, 1 << 19


@dataclass(frozen=True)
class FoundRows:
    """The matching rows: indexes by position of their file in ``snapshot.adds``, and the files whose rows all match.

    ``looked_into`` are the positions of all files that may have matching rows, including ``whole``.
    """

    rows: Mapping[int, BitMap64]
    whole: tuple[int, ...]
    looked_into: tuple[int, ...]

    def paths(self, snapshot: Snapshot) -> frozenset[str]:
        """The paths of ``looked_into``, as the log spells them."""
        return frozenset(snapshot.adds["path"].take(pa.array(self.looked_into, pa.int64())).to_pylist())


def candidates(snapshot: Snapshot, filter: Filter) -> tuple[list[int], list[int]]:
    """Positions of the files to search, and of those whose rows all match according to their statistics."""
    skipped = skip_files(snapshot, filter)
    keep, every = skipped.keep, skipped.all_rows
    assert keep is not None
    assert every is not None
    return np.flatnonzero(keep & ~every).tolist(), np.flatnonzero(keep & every).tolist()


def find_rows(log: DeltaLog, snapshot: Snapshot, filter: Filter, *, run: Runner = run_here) -> FoundRows:
    """Find the live rows for which ``filter`` is true, in tasks."""
    maybe, whole = candidates(snapshot, filter)
    plan = read_plan(snapshot, sorted(filter.columns), filter)
    tasks = in_packs(changed_files(snapshot, maybe))
    results = run(_FindMatching(log.store, plan, filter), tasks)
    tracked = track(results, "looking for rows", len(tasks), unit="tasks")
    rows = {number: BitMap64.deserialize(data) for indexes in tracked for number, data in indexes.items()}
    return FoundRows(rows, tuple(whole), tuple(sorted([*maybe, *whole])))


@dataclass(frozen=True)
class _FindMatching:
    store: Store
    plan: ReadPlan
    filter: Filter

    def __call__(self, sources: Sequence[ChangedFile]) -> dict[int, bytes]:
        indexes = matching_rows(self.store, sources, self.plan, self.filter)
        return {number: as_bitmap(positions).serialize() for number, positions in indexes.items()}


def as_bitmap(positions: Positions) -> BitMap64:
    """Row indexes as a bitmap."""
    return BitMap64(positions.astype(np.uint64))


def matching_rows(store: Store, sources: Sequence[ChangedFile], plan: ReadPlan, filter: Filter) -> dict[int, Positions]:
    """Indexes of the live rows of some files for which ``filter`` is true, by file number.

    Leaves out files without such rows.  ``plan`` reads the filter's columns.
    """
    matching: list[RowsOfFiles] = []
    for some in in_large_pieces(read_together(store, [s.file for s in sources], plan)):
        mask = filter.mask(some.rows)
        if mask.true_count:
            hit = mask.to_numpy(zero_copy_only=False)
            matching.append(RowsOfFiles(some.files[hit], some.positions[hit], some.rows.slice(0, 0)))
    if not matching:
        return {}
    files = np.concatenate([m.files for m in matching])
    positions = np.concatenate([m.positions for m in matching])
    numbers, starts = np.unique(files, return_index=True)
    pieces = np.split(positions, starts[1:])
    return {sources[n].number: piece for n, piece in zip(numbers.tolist(), pieces, strict=True)}


def in_large_pieces(batches: Iterable[RowsOfFiles]) -> Iterator[RowsOfFiles]:
    """The same rows in fewer batches."""
    waiting, size, rows = list[RowsOfFiles](), 0, 0
    for some in batches:
        waiting.append(some)
        size, rows = size + some.rows.nbytes, rows + some.rows.num_rows
        if size >= _PIECE_BYTES or rows >= _PIECE_ROWS:
            yield _together(waiting)
            waiting, size, rows = [], 0, 0
    if waiting:
        yield _together(waiting)


def _together(batches: Sequence[RowsOfFiles]) -> RowsOfFiles:
    if len(batches) == 1:
        return batches[0]
    files, positions, rows = zip(*batches, strict=True)
    return RowsOfFiles(np.concatenate(files), np.concatenate(positions), pa.concat_batches(rows))


def write_inserts(store: Store, snapshot_plan: ReadPlan, files: FilePlan, tasks: Sequence[FileTask]) -> list[Any]:
    """Write change files for the inserts of a commit that has change files."""
    with TaskWriter(store, change_file_plan(files), 0, files.engine.runtime) as feed:
        for task in tasks:
            for batch in read_task(store, task, snapshot_plan):
                feed.write(with_change_type(batch, "insert"))
        return [{"cdc": a} for a in feed.close()]
