"""MERGE without Spark: update, delete and insert rows of a table from the rows of a source, in one commit.

The source is loaded, its keys select files of the target, and each group of files is joined with it once::

    source --keys--> files that can match --join columns--> pairs --the columns that clauses read--> new rows
       |                                                      |                                      removed rows
       +---------------- rows without a pair ---------------------------------------------------->   new rows

Protocol: *Deletion Vectors*, *Add CDC File*, *Row Tracking*.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.progress import progress
from trilake.delta.commands.merge.clauses import (
    Side,
    ambiguous_rows,
    check_clauses,
    evolved,
    insert_only,
    lenient_duplicates,
    resolve,
)
from trilake.delta.commands.merge.commit import (
    MergedRows,
    MergePlan,
    MergeRequest,
    MergeResult,
    MergeTimes,
    finish_merge,
)
from trilake.delta.commands.merge.match import Indexes, Matcher, Pairs, groups, read_fields, read_group
from trilake.delta.commands.merge.pruning import Pruned, key_filter, key_values, prune, target_schema
from trilake.delta.commands.merge.rows import RowClause, Rows, choose
from trilake.delta.commands.merge.scope import Scope
from trilake.delta.commands.merge.source import SourceRows, materialized
from trilake.delta.commands.rows.removal import Removal, remove_rows
from trilake.delta.commands.rows.row_changes import (
    ChangedFile,
    RowChangeWriter,
    RowCounts,
    as_bitmap,
    changed_files,
    changed_rows_plan,
    check_changeable,
    discard,
    records_changes,
    row_columns,
)
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.rules.row_rules import RowPipeline
from trilake.delta.rules.store_assignment import assign_batch, with_marked
from trilake.delta.scan.read import Positions, RowsOfFiles, keys_mask
from trilake.delta.scan.scan import read_schema
from trilake.errors import AmbiguousMergeError

#: Source rows inserted at a time.
_INSERT_ROWS = 1 << 17
#: Target rows updated at a time.
_CHANGED_ROWS = 1 << 20


def merge(
    log: DeltaLog,
    source: Any,
    request: MergeRequest,
    *,
    cached: Snapshot | None = None,
    started: int | None = None,
    most_pairs: int | None = None,
) -> MergeResult:
    """Merge ``source`` into the newest version of a table; see :meth:`trilake.delta.table.ArrowDeltaTable.merge`.

    ``cached`` is a version that was read already; ``started`` is the start time of the merge in ms, if before this
    call. If more than ``most_pairs`` rows match at a time, raises ``TooManyPairsError``, and nothing has changed.
    Raises the errors of :meth:`~trilake.delta.commands.merge.builder.MergeBuilder.execute`.
    """
    runtime = log.engine.runtime
    started = runtime.clock_ms() if started is None else started
    check_clauses(request.clauses)
    snapshot = log.snapshot() if cached is None else log.update(cached)
    check_changeable(snapshot, "MERGE", removes=not insert_only(request.clauses))
    with materialized(source, round_times=request.round_times) as rows:
        loaded = runtime.clock_ms()
        job = _ArrowMerge(log, snapshot, rows, request)
        pruned = job.pruned()
        return job.run(pruned, MergeTimes(started, loaded, runtime.clock_ms()), most_pairs)


def check_merge(log: DeltaLog, snapshot: Snapshot, source: pa.Schema, request: MergeRequest) -> None:
    """Check that a merge of rows with this schema is possible, before there are any rows."""
    _ArrowMerge(log, snapshot, source.empty_table(), request).pruned()


class _ArrowMerge:
    """One merge: its clauses bound to the columns of both tables, and the rows that they change."""

    def __init__(self, log: DeltaLog, snapshot: Snapshot, source: pa.Table, request: MergeRequest) -> None:
        self.log, self.snapshot, self.source, self.request = log, snapshot, source, request
        self.runtime = log.engine.runtime
        self.protocol, self.metadata = snapshot.protocol, snapshot.metadata
        source_schema, uri = with_marked(from_arrow(source.schema), snapshot.schema), snapshot.uri
        if request.evolve:
            self.protocol, self.metadata = evolved(
                self.protocol,
                self.metadata,
                source_schema,
                request.clauses,
                alias=request.target_alias,
                version=snapshot.version + 1,
                uri=uri,
                new_id=self.runtime.new_id,
            )
        now = self.runtime.now()
        aliases: dict[Side, str] = {"target": request.target_alias, "source": request.source_alias}
        self.scope = Scope.of(target_schema(snapshot), source.schema, aliases, now)
        clauses = [
            RowClause.of(
                resolve(c, self.metadata.schema, source_schema, alias=request.target_alias, evolve=request.evolve),
                self.scope,
                self.metadata,
                source_schema,
                uri=uri,
                query=log.engine.query,
                now=now,
                evolve=request.evolve,
            )
            for c in request.clauses
        ]
        self._rows = SourceRows(source)
        self.join = self.scope.join(request.on)
        self.matched, self.unmatched, self.inserts = (
            [c for c in clauses if c.clause.kind == kind]
            for kind in ("matched", "not_matched_by_source", "not_matched")
        )
        self.feed = records_changes(snapshot) and bool(self.matched or self.unmatched)
        self.lenient = lenient_duplicates(request.clauses)
        self.job_id = self.runtime.new_id()
        self.workers = os.cpu_count() or 1
        self.tracked = row_columns(snapshot)

    def pruned(self) -> Pruned:
        alone = self.scope.only("source")
        rows = Rows(self.source.num_rows, {"source": self.source})
        keys, (equal, target_only) = [], self.scope.hints(self.request.on)
        for key in equal:
            expression = alone.parse(key.source)
            values = expression.evaluate(rows.view(alone, [expression]))
            keys.append(key_values(key.column, values, key.null_safe))
        others = [f for sql in target_only if (f := self.scope.only("target").target_filter(sql)) is not None]
        match = key_filter(keys, others, self.scope.schemas["target"])
        conditions = [c.clause.condition for c in self.unmatched]
        unmatched = [None if sql is None else self.scope.only("target").target_filter(sql) for sql in conditions]
        return prune(self.snapshot, match, unmatched)

    def run(self, pruned: Pruned, times: MergeTimes, most_pairs: int | None) -> MergeResult:
        files = changed_files(self.snapshot, pruned.numbers)
        file_plan = changed_rows_plan(self.snapshot, self.metadata, self.job_id)
        removals: list[tuple[Indexes, Indexes]] = []
        matched = np.zeros(self.source.num_rows, bool)
        finding = 0
        with ExitStack() as stack:
            writer = stack.enter_context(RowChangeWriter(self.log.store, file_plan, 0, feed=self.feed))
            bar = stack.enter_context(progress("merging", total=len(files), unit="files"))
            matcher = Matcher(
                self.log.store, self.snapshot, self.scope, self.join, self.source, self.workers, most_pairs
            )
            for group in groups(files):
                before = self.runtime.clock_ms()
                pairs = matcher.match(group)
                finding += self.runtime.clock_ms() - before
                matched[pairs.source] = True
                for part in self._changed_rows(group, pairs, matcher):
                    self._write(part, removals, writer)
                bar.advance(len(group))
            pipelines = self._insert(np.flatnonzero(~matched), writer, feed=bool(removals))
            removal = self._removal(removals, writer)
            try:
                new_files, changes = writer.close(pipelines)
            except BaseException:
                discard(self.log.store, removal.actions, self.job_id)
                raise
        request = self.request
        on, clauses = request.for_history or (request.on, request.clauses)
        plan = MergePlan(
            on,
            clauses,
            self.metadata,
            self.protocol,
            pruned.read.beside(request.source_read),
            self.job_id,
            user_metadata=request.user_metadata,
            txn=request.txn,
        )
        rows = MergedRows([new_files], changes, removal, writer.counts + RowCounts(source=self.source.num_rows))
        return finish_merge(self.log, self.snapshot, plan, rows, times._replace(found=times.found + finding))

    def _removal(self, changed: Sequence[tuple[Indexes, Indexes]], writer: RowChangeWriter) -> Removal:
        """Remove rows, which are given by the position of their file in the snapshot and their index in the file.

        The ``writer`` of the new rows may get the other rows of their files.
        """
        nothing = np.empty(0, np.int64)
        numbers = np.concatenate([nothing, *(n for n, _ in changed)])
        order = np.argsort(numbers, kind="stable")
        positions = np.concatenate([nothing, *(p for _, p in changed)])[order]
        files, starts = np.unique(numbers[order], return_index=True)
        pieces = np.split(positions, starts[1:])
        rows = {n: as_bitmap(piece) for n, piece in zip(files.tolist(), pieces, strict=False)}
        return remove_rows(self.log, self.snapshot, rows, job_id=self.job_id, beside=writer.rows)

    @cached_property
    def needs(self) -> list[str]:
        """The target columns that clauses read; all columns for a change feed."""
        if self.feed:
            return self.snapshot.schema.names
        return sorted({n for c in (*self.matched, *self.unmatched) for n in c.needs})

    def _changed_rows(self, group: Sequence[ChangedFile], pairs: Pairs, matcher: Matcher) -> Iterator[_ChangedRows]:
        if not self.unmatched and not (self.matched and len(pairs)):
            return
        columns = self.needs
        updates = any(c.clause.action == "update" for c in (*self.matched, *self.unmatched))
        tracked = self.tracked if updates else ()
        if not columns and not tracked and not self.unmatched:
            # The clauses read no target column: new values come only from the source.
            yield from self._of_pairs(
                group, pairs, Rows(len(pairs), {"source": self._source(pairs.source, self.matched)}), None
            )
            return
        plan = read_fields(self.snapshot, columns or matcher.columns)
        plan = replace(plan, fields=(*plan.fields, *tracked))
        numbers = range(len(group)) if self.unmatched else np.unique(pairs.files).tolist()
        for batches in read_group(self.log.store, group, numbers, plan, self.workers):
            for some in batches:
                yield from self._of_rows(group, some, pairs)

    def _source(self, which: Indexes, clauses: Sequence[RowClause]) -> pa.Table:
        names = sorted({n for c in clauses for n in c.source_needs})
        return self._rows.take(which, names or self.source.schema.names[:1])

    def _of_rows(self, group: Sequence[ChangedFile], some: RowsOfFiles, pairs: Pairs) -> Iterator[_ChangedRows]:
        rows, keys = pa.Table.from_batches([some.rows]), some.keys
        lo, hi = np.searchsorted(pairs.keys, [keys[0], keys[-1] + 1])
        here = pairs.where(slice(int(lo), int(hi)))
        if self.matched and len(here):
            old = rows.take(pa.array(np.searchsorted(keys, here.keys)))
            both = Rows(len(here), {"target": old, "source": self._source(here.source, self.matched)})
            yield from self._of_pairs(group, here, both, old)
        if self.unmatched:
            alone = ~keys_mask(keys, here.keys)
            old = rows.filter(pa.array(alone))
            if old.num_rows:
                targets = Rows(len(old), {"target": old})
                chosen = choose(self.unmatched, targets)
                files, positions = some.files[alone], some.positions[alone]
                yield from self._of_clauses(self.unmatched, group, files, positions, targets, chosen)

    def _of_pairs(
        self, group: Sequence[ChangedFile], pairs: Pairs, rows: Rows, old: pa.Table | None
    ) -> Iterator[_ChangedRows]:
        clause_numbers = choose(self.matched, rows)
        changing = np.flatnonzero(clause_numbers >= 0)
        if len(changing) < len(clause_numbers):
            pairs, rows = pairs.where(changing), rows.take(changing)
        if pairs.repeated.any():
            if not self.lenient:
                raise self._ambiguous(group, pairs)
            first = np.flatnonzero(~pairs.repeated)
            pairs, rows = pairs.where(first), rows.take(first)
            changing = changing[first]
        clause_numbers = clause_numbers[changing]
        for lo in range(0, len(pairs), _CHANGED_ROWS):
            which = np.arange(lo, min(lo + _CHANGED_ROWS, len(pairs)))
            yield from self._of_clauses(
                self.matched, group, pairs.files[which], pairs.rows[which], rows.take(which), clause_numbers[which]
            )

    def _of_clauses(
        self,
        clauses: Sequence[RowClause],
        group: Sequence[ChangedFile],
        files: Indexes,
        positions: Positions,
        rows: Rows,
        chosen: Indexes,
    ) -> Iterator[_ChangedRows]:
        for number, clause in enumerate(clauses):
            which = np.flatnonzero(chosen == number)
            if len(which):
                some = rows.take(which)
                new = None if clause.deletes else clause.make(some, clause.pipeline())
                yield _ChangedRows(clause, group, files[which], positions[which], new, some.sides.get("target"))

    def _ambiguous(self, group: Sequence[ChangedFile], pairs: Pairs) -> AmbiguousMergeError:
        second = np.flatnonzero(pairs.repeated)[0]
        row, number = int(pairs.rows[second]), int(pairs.files[second])
        same = pairs.source[(pairs.files == number) & (pairs.rows == row)][:3]
        rows = self._rows.take(same).to_pylist()
        return ambiguous_rows(rows, file=group[number].file.path, row=row)

    def _write(self, part: _ChangedRows, changed: list[tuple[Indexes, Indexes]], writer: RowChangeWriter) -> None:
        changed.append((np.array([f.number for f in part.group], np.int64)[part.files], part.positions))
        matched = part.clause.clause.kind == "matched"
        if part.new is None:
            writer.delete(len(part.positions), self._old_images(part), matched=matched)
        else:
            writer.update(part.new, self._old_images(part), self._ids(part, writer), matched=matched)

    def _old_images(self, part: _ChangedRows) -> list[pa.RecordBatch]:
        if not self.feed:
            return []
        assert part.old is not None
        schema = read_schema(self.metadata.schema)
        return [assign_batch(batch, schema) for batch in part.old.select(self.snapshot.schema.names).to_batches()]

    def _ids(self, part: _ChangedRows, writer: RowChangeWriter) -> pa.Array | None:
        if writer.id_column is None:
            return None
        bases = pa.array([f.base_row_id for f in part.group], pa.int64()).take(pa.array(part.files))
        ids = pc.add(bases, pa.array(part.positions))
        if part.old is not None:
            ids = pc.coalesce(part.old.column(writer.id_column).combine_chunks(), ids)
        return ids

    def _insert(self, which: Indexes, writer: RowChangeWriter, *, feed: bool) -> list[RowPipeline]:
        pipelines = [c.pipeline(i, tasks=len(self.inserts)) for i, c in enumerate(self.inserts)]
        for lo in range(0, len(which) if self.inserts else 0, _INSERT_ROWS):
            part = which[lo : lo + _INSERT_ROWS]
            rows = Rows(len(part), {"source": self._source(part, self.inserts)})
            clause_numbers = choose(self.inserts, rows)
            for number, (clause, pipeline) in enumerate(zip(self.inserts, pipelines, strict=True)):
                rows_of_clause = rows.take(np.flatnonzero(clause_numbers == number))
                if rows_of_clause.count:
                    writer.insert(clause.make(rows_of_clause, pipeline), feed=feed)
        return pipelines


@dataclass(frozen=True)
class _ChangedRows:
    """Rows that one clause changes: their positions, new values (``None`` for a delete) and old values."""

    clause: RowClause
    group: Sequence[ChangedFile]
    files: Indexes
    positions: Positions
    new: pa.RecordBatch | None
    old: pa.Table | None
