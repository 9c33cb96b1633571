"""MERGE as one join of source and target; Spark evaluates all conditions and values.

::

    source, cached --keys--> files that can match --native scan with addresses--+
       |                                                                        |
       +--- small: broadcast -------------------------------------------------> join --> clause, new columns
       |                                                                                  | in tasks, through Arrow
       |                                                     rules, new files, change files, addresses of old rows
       +--- rows without a match --> clause, new columns --> rules, new files
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import ambiguous_rows, evolved, lenient_duplicates, resolve
from trilake.delta.commands.merge.commit import ForHistory, MergedRows, MergePlan, MergeResult, MergeTimes, finish_merge
from trilake.delta.commands.merge.pruning import KeyValues, Pruned, key_filter, prune, target_schema
from trilake.delta.commands.rows.removal import remove_rows
from trilake.delta.commands.rows.row_changes import RowCounts, changed_rows_plan, discard, records_changes, row_columns
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import TrilakeError
from trilake.expr import Filter
from trilake.spark.delta.merge.clause_columns import (
    Sides,
    SparkClause,
    Values,
    named_twice,
    new_rows,
    with_unmatched,
)
from trilake.spark.delta.merge.source import (
    Expr,
    KeyColumn,
    SourceRows,
    SparkMerge,
    key_columns,
    look_at_source,
    row_bytes,
)
from trilake.spark.delta.merge.tasks import CLAUSE, ROW_ID, SOURCE, MergeOutcome, MergeTask
from trilake.spark.delta.row_addresses import FILE, OLD, ROW, AddressedRows, RowOrigins, addressed_rows
from trilake.spark.delta.settings import AUTO_MERGE, row_session, session_widening
from trilake.spark.delta.storing.store_assignment import AssignmentRules, named_columns
from trilake.spark.scan.columns import as_column, read_condition
from trilake.spark.session.compat import arrow_frame, to_arrow
from trilake.spark.session.job_errors import failing_as
from trilake.spark.session.runner import SparkRunner, failed_job, run_over_rows
from trilake.spark.session.schemas import columns_of_source, from_spark
from trilake.spark.session.settings import session_flag

#: A source of up to this many bytes is broadcast, so that the target is not shuffled.
_BROADCAST_BYTES = 64 << 20
#: Up to this many rows are inserted by the driver, which is faster than a Python job.
_FEW_INSERTS = 50_000


class MergeJob:
    """A merge: its clauses, its source, and the jobs that compute and write its rows."""

    def __init__(self, spark: SparkSession, table: ArrowDeltaTable, request: SparkMerge) -> None:
        self.spark, self.table, self.request = spark, table, request
        self.snapshot, self.log, self.runtime = table.snapshot, table.log, table.log.engine.runtime
        self.started = self.runtime.clock_ms()
        self.job_id = self.runtime.new_id()
        snapshot = self.snapshot
        self.protocol, self.metadata = snapshot.protocol, snapshot.metadata
        self.evolve = evolve = request.evolve or session_flag(spark, AUTO_MERGE, False)
        there = request.source.schema
        source_schema = from_spark(there, limits=True) if evolve else columns_of_source(there)
        if evolve:
            self.protocol, self.metadata = evolved(
                self.protocol,
                self.metadata,
                source_schema,
                request.clauses,
                alias=request.alias,
                version=snapshot.version + 1,
                uri=snapshot.uri,
                new_id=self.runtime.new_id,
                widening=session_widening(spark),
            )
        target_columns, source_columns = (named_columns(spark, s) for s in (self.metadata.schema, source_schema))
        self.clauses = [
            SparkClause.of(
                i,
                resolve(c, target_columns, source_columns, alias=request.alias, evolve=evolve),
                self.metadata,
                uri=snapshot.uri,
                query=snapshot.engine.query,
                now_ms=self.started,
                session=row_session(spark),
            )
            for i, c in enumerate(request.clauses)
        ]
        self.matched, self.unmatched, self.inserts = (
            [c for c in self.clauses if c.clause.kind == kind]
            for kind in ("matched", "not_matched_by_source", "not_matched")
        )
        self.changing = bool(self.matched or self.unmatched)
        self.feed = records_changes(snapshot) and self.changing
        # The job's ID keeps Spark from sharing the cache of another merge.
        numbers = {SOURCE: F.monotonically_increasing_id(), "__trilake_job": F.lit(self.job_id)}
        self.source = request.source.withColumns(numbers)
        self.rules = AssignmentRules.of_changes(spark)

    @cached_property
    def sides(self) -> Sides:
        return Sides(self.snapshot.schema, self.metadata.schema, self.request.source.schema, self.rules, self.evolve)

    @cached_property
    def keys(self) -> tuple[tuple[KeyColumn, ...], tuple[str, ...]]:
        """Target columns that must equal source expressions, and conditions that read only the target."""
        return key_columns(self.spark, self.snapshot, self.source, self.request.condition, self.request.alias)

    def look_at_source(self, *, small: bool = True) -> SourceRows:
        """Compute the source and facts about it; with ``small``, all rows of a small source may be read."""
        return look_at_source(
            self.request.source,
            self.source,
            self.keys[0],
            self.rows_to_insert if self.inserts else None,
            files=self.snapshot.adds.num_rows,
            small=small,
        )

    def rows_to_insert(self, rows: DataFrame, carried: Sequence[str], *, chosen: bool = False) -> DataFrame:
        """The rows that insert clauses make from source rows; ``chosen`` drops source rows without a clause."""
        rows = named_twice(rows, self.sides.source_names)
        values = Values(self.sides, rows, self.inserts)
        rows = rows.withColumn(CLAUSE, values.choice())
        if chosen:
            rows = rows.where(F.col(CLAUSE).isNotNull())
        return new_rows(rows, self.metadata, values.columns_by_clause(), [CLAUSE, *carried])

    def pruned(self, keys: Sequence[KeyValues]) -> Pruned:
        others = [f for sql in self.keys[1] if (f := self._filter(sql)) is not None]
        match = key_filter(keys, others, target_schema(self.snapshot))
        return prune(self.snapshot, match, [self._filter(c.clause.condition) for c in self.unmatched])

    def _filter(self, condition: Expr | None) -> Filter | None:
        if condition is None:
            return None
        schema, alias = self.snapshot.schema, self.request.alias
        return read_condition(self.spark, condition, schema, alias=alias, settled=True).filter

    def run(self, other_reads: Callable[[], ReadSet], for_history: ForHistory) -> MergeResult:
        """Merge and commit.  ``other_reads`` returns what source and expressions read of the table, once they have been
        computed."""
        clock = self.runtime.clock_ms
        source = self.look_at_source()
        count = source.count
        loaded = clock()
        pruned = self.pruned(source.keys)
        outcomes: list[MergeOutcome] = []
        try:
            old_rows: Mapping[int, BitMap64] = {}
            matched: BitMap64 | pa.Array | None = None
            if len(pruned.numbers) and (count or self.unmatched):
                target = addressed_rows(self.spark, self.table, pruned.numbers.tolist(), row_ids=self.changing)
                if self.changing:
                    outcomes.append(self._change(target, count))
                    old_rows = target.by_file(outcomes[-1].old_rows)
                    matched = outcomes[-1].source_rows
                else:
                    joined = self.joined(target.aliased(self.request.alias), self.source, count, "inner")
                    matched = to_arrow(joined.select(self.source[SOURCE]).distinct()).column(0).combine_chunks()
            found = clock()
            if self.inserts and count:
                outcomes.append(self._insert(matched, source, feed=self.feed and bool(old_rows)))
            parts = MergeOutcome.of(outcomes, lenient=False)
            run = SparkRunner(self.spark)
            removal = remove_rows(self.log, self.snapshot, old_rows, job_id=self.job_id, run=run)
        except BaseException:
            for part in outcomes:
                discard(self.log.store, part.actions, self.job_id)
            raise
        read = pruned.read.beside(other_reads())
        on, clauses = for_history
        plan = MergePlan(on, clauses, self.metadata, self.protocol, read, self.job_id, txn=self.request.txn)
        rows = MergedRows(parts.written, parts.cdc, removal, parts.counts + RowCounts(source=count))
        return finish_merge(self.log, self.snapshot, plan, rows, MergeTimes(self.started, loaded, found))

    def _task(self, origins: RowOrigins | None, *, feed: bool) -> MergeTask:
        return MergeTask(
            self.log.store,
            changed_rows_plan(self.snapshot, self.metadata, self.job_id),
            tuple(c.task for c in self.clauses),
            origins,
            feed,
            lenient_duplicates(self.request.clauses),
            tuple(self.snapshot.schema.names),
        )

    def joined(self, target: DataFrame, source: DataFrame, count: int, how: str) -> DataFrame:
        small = count * row_bytes(self.source) <= _BROADCAST_BYTES
        return target.join(F.broadcast(source) if small else source, as_column(self.request.condition), how)

    def _change(self, addressed: AddressedRows, count: int) -> MergeOutcome:
        sides, alias = self.sides, self.request.alias
        target = named_twice(addressed.aliased(alias), sides.target_names)
        source = named_twice(self.source, sides.source_names)
        joined = self.joined(target, source, count, "left" if self.unmatched else "inner")
        matched = Values(sides, joined, self.matched)
        rows = chosen = joined.withColumn(CLAUSE, matched.choice())
        values = matched.columns_by_clause()
        carried = [FILE, ROW, CLAUSE]
        if self.unmatched:
            ids = [quote_name(f.name) for f in row_columns(self.snapshot)]
            rows, values = with_unmatched(
                rows, sides, values, self.unmatched, alias=alias, carried=[*carried, SOURCE, *ids]
            )
        if not self.inserts:
            rows = rows.where(F.col(CLAUSE).isNotNull())
        elif self.unmatched:
            rows = rows.where(F.col(CLAUSE).isNotNull() | F.col(SOURCE).isNotNull())
        task = self._task(RowOrigins.of(self.snapshot, addressed.files), feed=self.feed)
        if self.inserts:
            carried.append(SOURCE)
        if self.feed:
            carried += [f"{second} AS {OLD}{i}" for i, second in enumerate(sides.target_names.values())]
        id_column = self.snapshot.metadata.configuration.get(row_tracking.ID_COLUMN)
        if any(f.name == id_column for f in row_columns(self.snapshot)):
            carried.append(f"{quote_name(str(id_column))} AS {ROW_ID}")
        frame = new_rows(rows, self.metadata, [(c, columns) for c, columns in values if c.rules is not None], carried)
        outcomes = self._run_over(frame, task)
        if outcomes.clash is not None:
            raise self._ambiguous(chosen, target, outcomes, addressed)
        return outcomes

    def _ambiguous(
        self, rows: DataFrame, target: DataFrame, outcomes: MergeOutcome, addressed: AddressedRows
    ) -> TrilakeError:
        assert outcomes.clash is not None
        discard(self.log.store, outcomes.actions, self.job_id)
        file, row = outcomes.clash
        here = rows.where((target[FILE] == file) & (target[ROW] == row) & F.col(CLAUSE).isNotNull())
        names = self.request.source.columns
        examples = to_arrow(here.select(*(self.source[quote_name(n)] for n in names)).limit(3)).to_pylist()
        path = self.snapshot.adds["path"][int(addressed.files[file])].as_py()
        return ambiguous_rows(examples, file=path, row=row)

    def _insert(self, matched: BitMap64 | pa.Array | None, source: SourceRows, *, feed: bool) -> MergeOutcome:
        numbers = pa.array([], pa.int64())
        if isinstance(matched, BitMap64):
            numbers = pa.array(np.asarray(matched.to_array(), np.uint64).view(np.int64))
        elif matched is not None:
            numbers = matched
        remaining = source.count - len(numbers)
        if not remaining:
            return MergeOutcome()
        task = self._task(None, feed=feed)
        if source.inserts is not None:
            rows = source.inserts
            new = pc.invert(pc.is_in(rows[SOURCE], numbers))
            return self._insert_here(rows.filter(pc.and_(new, pc.is_valid(rows[CLAUSE]))).drop([SOURCE]), task)
        rest = self.source
        if len(numbers):
            seen_rows = arrow_frame(self.spark, pa.table({"__trilake_seen": numbers}))
            if len(numbers) * 8 <= _BROADCAST_BYTES:
                seen_rows = F.broadcast(seen_rows)
            rest = rest.join(seen_rows, F.col(SOURCE) == F.col("__trilake_seen"), "left_anti")
        frame = self.rows_to_insert(rest, [], chosen=True)
        if remaining > _FEW_INSERTS:
            return self._run_over(frame, task)
        failed = partial(failed_job, log=self.log, job_id=self.job_id, verb="merge")
        with failing_as(failed, AnalysisException):
            inserts = to_arrow(frame)
        return self._insert_here(inserts, task)

    def _insert_here(self, rows: pa.Table, task: MergeTask) -> MergeOutcome:
        outcome = task(iter(rows.to_batches()), 0, tasks=1)
        return self._checked([outcome] if outcome is not None else [])

    def _run_over(self, frame: DataFrame, task: MergeTask) -> MergeOutcome:
        return self._checked(run_over_rows(frame, task, self.log, self.job_id, "merge"))

    def _checked(self, parts: Sequence[MergeOutcome]) -> MergeOutcome:
        outcome = MergeOutcome.of(parts, lenient=lenient_duplicates(self.request.clauses))
        if outcome.error is not None:
            discard(self.log.store, outcome.actions, self.job_id)
            raise outcome.error
        return outcome
