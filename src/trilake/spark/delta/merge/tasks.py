"""What a task of a MERGE on Spark does with its rows: it writes new ones, and tells which old ones they replace.

A row that comes in is a pair of rows that match, or a row of one table alone.  It says where the target's row is, which
clause it got, and what that makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from trilake.delta.commands.merge.clauses import Action, Kind
from trilake.delta.commands.rows.row_change_writer import RowChangeWriter, RowCounts
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.rules.row_rules import RowPipeline, RowRules
from trilake.errors import TrilakeError
from trilake.spark.delta.row_addresses import FILE, ROW, RowOrigins, old_images
from trilake.spark.session.row_jobs import chunks
from trilake.storage.base import Store

#: The number of a row of the source, and the number of the clause that a row gets, null for none.
SOURCE, CLAUSE = "__trilake_source", "__trilake_clause"
#: The id of a row that has moved before.
ROW_ID = "__trilake_row_id"


@dataclass(frozen=True)
class TaskClause:
    """A clause as tasks need it: ``columns`` are those of the table that it gives, ``rules`` what they go through."""

    kind: Kind
    action: Action
    columns: tuple[str, ...] = ()
    rules: RowRules | None = None


@dataclass(frozen=True)
class TaskOutcome:
    """What a task did: files, the rows they replace by number of the file in the scan, and the source rows that have
    a match, both as serialized bitmaps."""

    written: WrittenFiles = field(default_factory=lambda: WrittenFiles(()))
    cdc: tuple[Mapping[str, object], ...] = ()
    taken: Mapping[int, bytes] = field(default_factory=dict)
    seen: bytes | None = None
    counts: RowCounts = field(default_factory=RowCounts)
    #: A row of the target, by file and index, that several source rows would change.
    clash: tuple[int, int] | None = None
    #: Why the task failed; its files are gone then.  Told and not raised, so that the files of others can go too.
    error: TrilakeError | None = None


@dataclass(frozen=True)
class MergeTask:
    """What tasks of a merge do, as it travels.

    ``origins`` say the ids of rows that never moved, ``None`` where the rows of the target are not in it; ``lenient``
    allows several matches of a row that is deleted.
    """

    store: Store
    files: FilePlan
    clauses: tuple[TaskClause, ...]
    origins: RowOrigins | None
    feed: bool
    lenient: bool = False
    #: The names of the table's columns before the merge, which the change feed wants as they were.
    before: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch], task: int, tasks: int | None = None) -> TaskOutcome | None:
        """Take all rows of a task; ``None`` where there were none."""
        try:
            with ClauseRunner(self, task, tasks) as runner:
                for rows in chunks(batches):
                    runner.take(rows)
                return runner.outcome()
        except TrilakeError as e:
            return TaskOutcome(error=e)


class Addresses:
    """The rows of the target that a task is to change: :attr:`taken` by number of the file in the scan.

    A row that it was given twice is a :attr:`clash`.
    """

    def __init__(self, *, lenient: bool) -> None:
        self.taken: dict[int, BitMap64] = {}
        self.clash: tuple[int, int] | None = None
        self._lenient = lenient

    def note(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Note the rows of the target that are changed; which of them were not noted before."""
        files, places = rows.column(FILE).to_numpy(), rows.column(ROW).to_numpy()
        new = np.ones(len(files), bool)
        for file in np.unique(files):
            at = np.flatnonzero(files == file)
            here = places[at].astype(np.uint64)
            distinct, first = np.unique(here, return_index=True)
            old = self.taken.get(int(file), BitMap64())
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
            self.taken[int(file)] = old | add
        return new


class ClauseRunner:
    """Does with the rows of one task what their clauses say, and keeps what is to be said of it."""

    def __init__(self, job: MergeTask, task: int, tasks: int | None) -> None:
        self.job = job
        self.writer = RowChangeWriter(job.store, job.files, task, feed=job.feed)
        count = len(job.clauses)
        # Clauses of one task must not make up the same identity values, nor those of other tasks.
        self.pipelines: list[RowPipeline | None] = [
            None
            if c.rules is None
            else c.rules.start(task * count + i, tasks=1 if count == 1 and tasks == 1 else tasks and tasks * count)
            for i, c in enumerate(job.clauses)
        ]
        self.addresses = Addresses(lenient=job.lenient)
        self.seen = BitMap64()
        self.rows = 0

    def __enter__(self) -> ClauseRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.writer.abort()

    def take(self, rows: pa.RecordBatch) -> None:
        """Do what the clauses say of some rows."""
        self.rows += rows.num_rows
        names = rows.schema.names
        if SOURCE in names:
            numbers = pc.drop_null(rows.column(SOURCE)).to_numpy()
            self.seen |= BitMap64(numbers.astype(np.uint64))
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
            return  # nothing of this will be committed
        changes_row = self.job.feed and clause.action != "insert"
        old = [old_images(rows, self.job.before, self.job.files.schema)] if changes_row else []
        if pipeline is None:
            self.writer.delete(rows.num_rows, old, matched=matched)
            return
        inputs = pipeline.rules.present | {e.name for e in pipeline.rules.needs_spark}
        wanted = [n for n in rows.schema.names if n in inputs]
        new = pipeline.apply(rows.select(wanted or [CLAUSE]))
        if clause.action == "insert":
            self.writer.insert(new, feed=True)
            return
        origins = self.job.origins if self.writer.id_column is not None else None
        self.writer.update(new, old, None if origins is None else origins.kept_ids(rows, ROW_ID), matched=matched)

    def outcome(self) -> TaskOutcome | None:
        """Close all files."""
        if not self.rows:
            return None
        if self.addresses.clash is not None:
            self.writer.abort()
            return TaskOutcome(clash=self.addresses.clash)
        written, changes = self.writer.close(self.pipelines)
        return TaskOutcome(
            written,
            changes,
            {n: rows.serialize() for n, rows in self.addresses.taken.items()},
            self.seen.serialize() if len(self.seen) else None,
            self.writer.counts,
        )


@dataclass(frozen=True)
class MergeOutcome:
    """What all tasks did together."""

    written: tuple[WrittenFiles, ...] = ()
    cdc: tuple[Mapping[str, object], ...] = ()
    taken: Mapping[int, BitMap64] = field(default_factory=dict)
    seen: BitMap64 = field(default_factory=BitMap64)
    counts: RowCounts = field(default_factory=RowCounts)
    clash: tuple[int, int] | None = None
    error: TrilakeError | None = None

    @classmethod
    def of(cls, parts: Sequence[TaskOutcome], *, lenient: bool) -> MergeOutcome:
        """Put together; a row of the target that two tasks changed is a clash too, unless ``lenient``."""
        taken: dict[int, BitMap64] = {}
        seen, counts = BitMap64(), RowCounts()
        clash = next((p.clash for p in parts if p.clash is not None), None)
        twice = 0
        for part in parts:
            counts += part.counts
            if part.seen is not None:
                seen |= BitMap64.deserialize(part.seen)
            for file, data in part.taken.items():
                rows = BitMap64.deserialize(data)
                if file in taken:
                    both = taken[file] & rows
                    if len(both):
                        clash = clash or (file, int(both.min()))
                        twice += len(both)
                    rows = taken[file] | rows
                taken[file] = rows
        if lenient:
            clash, counts = None, replace(counts, deleted_matched=counts.deleted_matched - twice)
        return cls(
            tuple(p.written for p in parts),
            tuple(c for p in parts for c in p.cdc),
            taken,
            seen,
            counts,
            clash,
            next((p.error for p in parts if p.error is not None), None),
        )

    @property
    def actions(self) -> list[Mapping[str, object]]:
        """The actions of all new files."""
        adds: list[Mapping[str, object]] = [{"add": a} for w in self.written for a in w.actions]
        return [*adds, *({"cdc": c} for c in self.cdc)]
