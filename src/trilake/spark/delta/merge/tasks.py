"""The tasks of a MERGE on Spark: write new rows, and return the addresses of the old rows that they replace.

An input row is a pair of matching rows, or a row of one table only.  It has the address of its target row, the number
of its clause, and the new values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from trilake.delta.commands.merge.clauses import Action, Kind
from trilake.delta.commands.rows.row_changes import RowChangeWriter, RowCounts
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.rules.row_rules import RowPipeline, RowRules
from trilake.errors import TrilakeError
from trilake.spark.delta.row_addresses import FILE, ROW, RowOrigins, old_images
from trilake.spark.session.runner import chunks
from trilake.storage.base import Store

#: The number of a source row; the number of a row's clause, or null.
SOURCE, CLAUSE = "__trilake_source", "__trilake_clause"
#: The row ID of a row that was moved before.
ROW_ID = "__trilake_row_id"


@dataclass(frozen=True)
class TaskClause:
    """A clause for tasks: it sets ``columns``, and ``rules`` apply to them; a delete has neither."""

    kind: Kind
    action: Action
    columns: tuple[str, ...] = ()
    rules: RowRules | None = None


@dataclass(frozen=True)
class MergeOutcome:
    """The files of tasks, the target rows that they replace by file number, and the matched source rows; picklable."""

    written: tuple[WrittenFiles, ...] = ()
    cdc: tuple[Mapping[str, object], ...] = ()
    old_rows: Mapping[int, BitMap64] = field(default_factory=dict)
    source_rows: BitMap64 = field(default_factory=BitMap64)
    counts: RowCounts = field(default_factory=RowCounts)
    #: A target row (file and index) that several source rows would change.
    clash: tuple[int, int] | None = None
    #: The error of a task, whose files are deleted; not raised, so that the driver can delete the files of other tasks.
    error: TrilakeError | None = None

    @classmethod
    def of(cls, parts: Sequence[MergeOutcome], *, lenient: bool) -> MergeOutcome:
        """Combine outcomes; a target row that two tasks change is also a clash, unless ``lenient``."""
        old_rows: dict[int, BitMap64] = {}
        matched, counts = BitMap64(), RowCounts()
        clash = next((p.clash for p in parts if p.clash is not None), None)
        twice = 0
        for part in parts:
            counts += part.counts
            matched |= part.source_rows
            for file, rows in part.old_rows.items():
                if file in old_rows:
                    both = old_rows[file] & rows
                    if len(both):
                        clash = clash or (file, int(both.min()))
                        twice += len(both)
                    rows = old_rows[file] | rows
                old_rows[file] = rows
        if lenient:
            clash, counts = None, replace(counts, deleted_matched=counts.deleted_matched - twice)
        return cls(
            tuple(w for p in parts for w in p.written),
            tuple(c for p in parts for c in p.cdc),
            old_rows,
            matched,
            counts,
            clash,
            next((p.error for p in parts if p.error is not None), None),
        )

    @property
    def actions(self) -> list[Mapping[str, object]]:
        adds: list[Mapping[str, object]] = [{"add": a} for w in self.written for a in w.actions]
        return [*adds, *({"cdc": c} for c in self.cdc)]


@dataclass(frozen=True)
class MergeTask:
    """The function of a merge's tasks; picklable.  ``origins`` has the IDs of rows that were never moved, ``None``
    without target rows; ``lenient`` allows several matches for a deleted row."""

    store: Store
    files: FilePlan
    clauses: tuple[TaskClause, ...]
    origins: RowOrigins | None
    feed: bool
    lenient: bool = False
    #: The table's columns before the merge, for the change feed.
    before: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch], task: int, tasks: int | None = None) -> MergeOutcome | None:
        try:
            with ClauseRunner(self, task, tasks) as runner:
                for rows in chunks(batches):
                    runner.take(rows)
                return runner.outcome()
        except TrilakeError as e:
            return MergeOutcome(error=e)


class Addresses:
    """The target rows that a task changes: :attr:`rows` by file number.  A row that is added twice becomes the
    :attr:`clash`."""

    def __init__(self, *, lenient: bool) -> None:
        self.rows: dict[int, BitMap64] = {}
        self.clash: tuple[int, int] | None = None
        self._lenient = lenient

    def note(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Add target rows; returns which of them are new."""
        files, places = rows.column(FILE).to_numpy(), rows.column(ROW).to_numpy()
        new = np.ones(len(files), bool)
        for file in np.unique(files):
            at = np.flatnonzero(files == file)
            here = places[at].astype(np.uint64)
            distinct, first = np.unique(here, return_index=True)
            old = self.rows.get(int(file), BitMap64())
            add = BitMap64(distinct)
            again = old & add
            if len(distinct) < len(here) or len(again):
                fresh = np.zeros(len(here), bool)
                fresh[first] = True
                if len(again):
                    fresh &= ~np.isin(here, np.asarray(again.to_array(), np.uint64))
                new[at] = fresh
                if not self._lenient and self.clash is None:
                    self.clash = (int(file), int(here[np.flatnonzero(~fresh)[0]]))
            self.rows[int(file)] = old | add
        return new


class ClauseRunner:
    """Applies clauses to the rows of a task."""

    def __init__(self, job: MergeTask, task: int, tasks: int | None) -> None:
        self.job = job
        self.writer = RowChangeWriter(job.store, job.files, task, feed=job.feed)
        count = len(job.clauses)
        # Identity values must be distinct across clauses and tasks.
        self.pipelines: list[RowPipeline | None] = [
            None
            if c.rules is None
            else c.rules.start(task * count + i, tasks=1 if count == 1 and tasks == 1 else tasks and tasks * count)
            for i, c in enumerate(job.clauses)
        ]
        self.addresses = Addresses(lenient=job.lenient)
        self.source_rows = BitMap64()
        self.rows = 0

    def __enter__(self) -> ClauseRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.writer.abort()

    def take(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        names = rows.schema.names
        if SOURCE in names:
            numbers = pc.drop_null(rows.column(SOURCE)).to_numpy()
            self.source_rows |= BitMap64(numbers.astype(np.uint64))
        chosen = pc.fill_null(rows.column(CLAUSE), -1).to_numpy()
        if FILE in names:
            keep = chosen >= 0
            if not keep.all():
                rows, chosen = rows.filter(pa.array(keep)), chosen[keep]
            new = self.addresses.note(rows)
            if not new.all():
                rows, chosen = rows.filter(pa.array(new)), chosen[new]
        for number, (clause, pipeline) in enumerate(zip(self.job.clauses, self.pipelines, strict=True)):
            which = np.flatnonzero(chosen == number)
            if len(which):
                clause_rows = rows if len(which) == rows.num_rows else rows.take(pa.array(which))
                self._apply(clause, pipeline, clause_rows)

    def _apply(self, clause: TaskClause, pipeline: RowPipeline | None, rows: pa.RecordBatch) -> None:
        matched = clause.kind == "matched"
        if self.addresses.clash is not None:
            return  # nothing will be committed
        changes_row = self.job.feed and clause.action != "insert"
        old = [old_images(rows, self.job.before, self.job.files.schema)] if changes_row else []
        if clause.action == "delete":
            self.writer.delete(rows.num_rows, old, matched=matched)
            return
        assert pipeline is not None
        inputs = pipeline.rules.present | {e.name for e in pipeline.rules.needs_spark}
        input_columns = [n for n in rows.schema.names if n in inputs]
        new = pipeline.apply(rows.select(input_columns or [CLAUSE]))
        if clause.action == "insert":
            self.writer.insert(new, feed=True)
            return
        origins = self.job.origins if self.writer.id_column is not None else None
        self.writer.update(new, old, None if origins is None else origins.kept_ids(rows, ROW_ID), matched=matched)

    def outcome(self) -> MergeOutcome | None:
        if not self.rows:
            return None
        if self.addresses.clash is not None:
            self.writer.abort()
            return MergeOutcome(clash=self.addresses.clash)
        written, changes = self.writer.close(self.pipelines)
        return MergeOutcome((written,), changes, self.addresses.rows, self.source_rows, self.writer.counts)
