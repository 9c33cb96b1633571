"""UPDATE: assign new values to the rows that match a condition.

All columns are read for matching rows, and only the condition's columns for the others.  With deletion vectors, new
rows go into new files; otherwise files are rewritten.  New rows are checked against the table's rules and keep their
row ids.  If the change data feed is on, the rows before and after the update go into change files.

:class:`~.delete.RowCommand` starts and finishes the command, so that another engine can compute the rows in between.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from trilake.common.progress import track
from trilake.delta.commands.rows.row_changes import (
    ChangedFile,
    ChangedPart,
    FoundRows,
    RowChangeWriter,
    as_bitmap,
    candidates,
    changed_files,
    matching_rows,
    records_changes,
    rewrite_plan,
    run_here,
    uses_vectors,
    whole_rows,
    with_row_ids,
)
from trilake.delta.commands.write.assignments import Assignments, given_columns
from trilake.delta.commands.write.delete import RowCommand
from trilake.delta.commands.write.spliced_update import Splicing
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.spliced_file import OldStatistics
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.constraints import RowSession
from trilake.delta.rules.row_rules import RowPipeline, RowRules
from trilake.delta.scan.conform import as_nullable
from trilake.delta.scan.parquet_rows import as_strings, rows_as_stored, rows_at
from trilake.delta.scan.read import MERGED_FILE, Positions, RowsOfFiles, keys_mask, packs, read_together, row_keys
from trilake.delta.scan.scan import ReadPlan, read_plan
from trilake.errors import TrilakeError
from trilake.expr import Filter
from trilake.storage.base import Store
from trilake.table.results import ChangeResult

#: Rows updated together.
_CHUNK = 1 << 17


def update_rules(snapshot: Snapshot, columns: StructType, session: RowSession | None = None) -> RowRules:
    """The rules for rewritten rows with new values; ``columns`` are the columns of the rows."""
    return RowRules.of(
        snapshot.metadata,
        columns,
        uri=snapshot.uri,
        query=snapshot.engine.query,
        now_ms=snapshot.engine.runtime.clock_ms(),
        session=session,
        rewrite=True,
    )


def new_images(pipeline: RowPipeline, rows: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """Apply the table's rules to rows with new values; ``schema`` is the schema of the files."""
    arrow_schema, ruled = schema.to_arrow_schema(), pipeline.apply(rows)
    columns = [as_nullable(c, f.type) for c, f in zip(ruled.columns, arrow_schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


#: A file and its matching rows; ``None`` for all rows.
_Matching: TypeAlias = tuple[ChangedFile, Positions | None]


@dataclass(frozen=True)
class _Group:
    """Files of one task; all rows of the files in ``whole`` match."""

    number: int
    files: tuple[ChangedFile, ...]
    whole: frozenset[int]


@dataclass(frozen=True)
class _UpdateJob:
    store: Store
    filter: Filter | None
    narrow: ReadPlan
    wide: ReadPlan
    files: FilePlan
    assignments: Assignments
    rules: RowRules
    vectors: bool
    feed: bool
    #: How to rewrite files by splicing; ``None`` if that is impossible.
    splicing: Splicing | None
    #: The actions of all files.
    adds: pa.Table

    def __call__(self, group: _Group) -> ChangedPart:
        try:
            return self._update(group)
        except TrilakeError as e:
            return ChangedPart(WrittenFiles(()), error=e)

    def _update(self, group: _Group) -> ChangedPart:
        searched = [s for s in group.files if s.number not in group.whole]
        rows_by_file: dict[int, Positions] = {}
        if searched:
            assert self.filter is not None
            rows_by_file = matching_rows(self.store, searched, self.narrow, self.filter)
        found = group.whole | rows_by_file.keys()
        matches = [(s, rows_by_file.get(s.number)) for s in group.files if s.number in found]
        if self.splicing is not None and len(group.files) == 1:
            for source, matched in matches:
                fields = [self.adds[name][source.number].as_py() for name in ("stats", "tags")]
                spliced = self.splicing.update(group.number, source, matched, OldStatistics.of(*fields))
                if spliced is not None:
                    return spliced
        return self._write_again(group, matches)

    def _write_again(self, group: _Group, matches: Sequence[_Matching]) -> ChangedPart:
        copied = 0
        whole = [matched is None or not self.vectors for _, matched in matches]
        replaced = tuple(s.number for (s, _), all_of_it in zip(matches, whole, strict=True) if all_of_it)
        bitmaps = {s.number: as_bitmap(m).serialize() for s, m in matches if m is not None and self.vectors}
        #: String columns that are dictionaries in the other rows, since a column has one type per file.
        dictionaries: Collection[str] = ()
        pipeline = self.rules.start(group.number)
        with RowChangeWriter(self.store, self.files, group.number, feed=self.feed) as out:
            chunk: list[pa.RecordBatch] = []
            for rows, rest in self._rows(matches):
                if rest is not None:
                    dictionaries = [f.name for f in rest.schema if pa.types.is_dictionary(f.type)]
                    copied += rest.num_rows
                    out.copy(rest.select(list(self.wide.output)), [rest.column(f.name) for f in self.files.extra])
                chunk.append(rows)
                if sum(b.num_rows for b in chunk) >= _CHUNK:
                    self._write(out, pipeline, chunk, dictionaries)
                    chunk = []
            self._write(out, pipeline, chunk, dictionaries)
            new_files, cdc = out.close([pipeline])
        return ChangedPart(new_files, cdc, bitmaps, replaced, out.counts.updated, copied)

    def _rows(self, matches: Sequence[_Matching]) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        small = [f for f in matches if f[0].file.size <= MERGED_FILE and len(matches) > 1]
        for pack in packs(small, lambda f: f[0].file.size, len(small)):
            sources = [s for s, _ in pack]
            yield from self._parted(sources, pack, read_together(self.store, [s.file for s in sources], self.wide))
        for source, matched in matches:
            if source.file.size <= MERGED_FILE and len(matches) > 1:
                continue
            if matched is not None and self.vectors:
                rows = rows_at(self.store, source.file, self.wide, matched)
            else:
                rows = rows_as_stored(self.store, source.file, self.wide)
            some = (RowsOfFiles(np.zeros_like(positions), positions, batch) for positions, batch in rows)
            yield from self._parted([source], [(source, matched)], some)

    def _parted(
        self, sources: Sequence[ChangedFile], matches: Sequence[_Matching], rows: Iterable[RowsOfFiles]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        every = np.array([matched is None for _, matched in matches])
        keys = [row_keys(n, matched) for n, (_, matched) in enumerate(matches) if matched is not None]
        positions = np.concatenate([np.empty(0, np.int64), *keys])
        for some in rows:
            hit = every[some.files] | keys_mask(some.keys, positions)
            whole = with_row_ids(some, sources, self.wide, self.files)
            rest = None if self.vectors or hit.all() else whole.filter(pa.array(~hit))
            yield as_strings(whole.filter(pa.array(hit))), rest

    def _write(
        self,
        out: RowChangeWriter,
        pipeline: RowPipeline,
        chunk: Sequence[pa.RecordBatch],
        dictionaries: Collection[str],
    ) -> None:
        rows = [b for b in chunk if b.num_rows]
        if not rows:
            return
        old = pa.concat_batches(rows)
        assigned = self.assignments.apply(old).select(self.rules.source.names)
        new = new_images(pipeline, assigned, self.files.schema)
        ids = None if out.id_column is None else old.column(out.id_column)
        out.update(new, [old.select(self.files.schema.names)], ids, dictionaries=dictionaries)


def update_rows(
    log: DeltaLog,
    snapshot: Snapshot,
    set: Mapping[str, Any],
    filter: Filter | None = None,
    *,
    user_metadata: str | None = None,
) -> ChangeResult:
    """Give new values to the rows of a table for which ``filter`` is true; to all rows without a filter.

    ``set`` has by column (``a``, or ``a.b`` for a struct field) a SQL expression over the old row, or a value other
    than a string.  If no row matches, nothing is committed.  Raises ``InvalidArgumentError`` for an append-only table
    or columns that cannot be assigned, ``SchemaMismatchError`` for an unknown column or a value that does not fit,
    ``ConstraintViolatedError`` for a row that violates a rule of the table, ``ExpressionError`` for an expression that
    is invalid or fails on a row, and a ``ConflictError`` for a conflicting commit.
    """
    command = RowCommand("UPDATE", log, snapshot, None if filter is None else filter.sql, filter)
    assignments = Assignments.of(set, snapshot.schema, now=log.engine.runtime.now(), uri=snapshot.uri)
    returned = given_columns(snapshot.schema, {t.name: t for t in assignments.targets})
    vectors, feed = uses_vectors(snapshot), records_changes(snapshot)
    every = list(range(snapshot.adds.num_rows))
    maybe, whole = (list[int](), every) if filter is None else candidates(snapshot, filter)
    columns = [] if filter is None else sorted(filter.columns)
    wide, files = whole_rows(snapshot), rewrite_plan(snapshot, command.job_id)
    rules = update_rules(snapshot, returned)
    job = _UpdateJob(
        log.store,
        filter,
        read_plan(snapshot, columns, filter),
        wide,
        files,
        assignments,
        rules,
        vectors,
        feed,
        None if vectors else Splicing.of(log.store, wide, files, assignments, rules, feed=feed),
        snapshot.adds,
    )
    looked_into = sorted([*maybe, *whole])
    groups = _groups(changed_files(snapshot, looked_into), frozenset(whole), alone=not vectors)
    parts = track(run_here(job, groups), "update", len(groups), unit="tasks")
    return command.finish(FoundRows({}, (), tuple(looked_into)), parts, user_metadata=user_metadata)


def _groups(files: Sequence[ChangedFile], whole: frozenset[int], *, alone: bool) -> list[_Group]:
    """Assign files to tasks: large files that are rewritten get a task each; the others share, to create few files."""
    by_size = sorted(files, key=lambda f: f.file.size)
    single = [f for f in by_size if alone and f.file.size > MERGED_FILE]
    shared = by_size[: len(by_size) - len(single)]
    count = min(len(shared), os.cpu_count() or 1)
    groups = [*(shared[n::count] for n in range(count)), *([f] for f in single)]
    return [_Group(n, tuple(group), whole) for n, group in enumerate(groups)]
