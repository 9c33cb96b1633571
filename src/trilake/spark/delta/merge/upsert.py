"""MERGE whose clauses write all rows of a large source unchanged, with or without a match.

::

    source --> new files, written by Spark itself
                  |
                  +-- columns of the condition --join--> rows of the target that they replace

The source is computed once and never passes through Python; afterwards it is read from the new files.  If the condition
only compares columns for equality, this process joins the keys in a tenth of the time of a Spark job.  If the keys show
that a row has several matches, the new files are deleted, and the next strategy runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa
from py4j.protocol import Py4JError
from pyroaring import BitMap64
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import FromExpression, FromSource, Side
from trilake.delta.commands.merge.commit import MergeResult
from trilake.delta.commands.merge.pruning import Pruned
from trilake.delta.commands.rows.removal import Removal
from trilake.delta.commands.rows.row_changes import RowCounts, changed_rows_plan, discard
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.scan import FileTask, ReadPlan, metadata_plan, read_schema
from trilake.errors import TrilakeError
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.source import FEW_BYTES, SOURCE_NAME, TARGET_NAME, alias_of, condition_sql, plan_bytes
from trilake.spark.delta.merge.tasks import SOURCE, Addresses, MergeOutcome
from trilake.spark.delta.read import files_obstacle
from trilake.spark.delta.reading.native_files import task_files
from trilake.spark.delta.row_addresses import FILE, ROW, addressed_rows
from trilake.spark.scan.columns import as_column, empty_frame
from trilake.spark.scan.scan import NativeScanError, native_frame
from trilake.spark.scan.write import native_write_obstacle, write_natively
from trilake.spark.session.runner import chunks, failed_job

if TYPE_CHECKING:
    from trilake.delta.commands.merge.match import KeyJoin

#: The most bytes of source keys that this process joins.
_MOST_KEY_BYTES = 512 << 20
_SEVERAL = "a row has several matches"


class Upsert:
    """The merge whose source Spark writes unchanged, a strategy of :mod:`~trilake.spark.delta.merge.run`."""

    name = "an upsert"

    def __init__(self, job: MergeJob) -> None:
        self._job = job

    def can_run(self) -> str | None:
        """Why the merge is not a plain upsert, or Spark cannot write the source; ``None`` if it can run."""
        plan = self._plan
        return plan if isinstance(plan, str) else None

    def run(self) -> MergeResult | str:
        job, plan = self._job, self._plan
        assert isinstance(plan, _Plan)
        try:
            written = write_natively(plan.rows, job.log.store, plan.files, job.runtime)
        except (TrilakeError, AnalysisException):
            raise
        except (PySparkException, Py4JError) as e:
            raise failed_job(e, job.log, job.job_id, "merge") from None
        replaced: _Replaced | str | None = None
        try:
            replaced = _replaced(plan, written)
        except NativeScanError as e:
            replaced = str(e)
        finally:
            if not isinstance(replaced, _Replaced):
                discard(job.log.store, [{"add": a} for a in written.actions], job.job_id)
        if isinstance(replaced, str):
            return replaced
        # The history shows the caller's condition.
        return job.finish(replaced.pruned, [written], [], replaced.removed, replaced.counts, replaced.times)

    @cached_property
    def _plan(self) -> _Plan | str:
        job = self._job
        columns = _columns(job)
        if columns is None:
            return "its clauses do not write every source row unchanged"
        if job.feed or job.request.frames.columns_in([job.request.condition]):
            return "the table records changes, or the condition uses a column of toDF()"
        if plan_bytes(job.request.source) <= FEW_BYTES:
            return "the source is small"
        files = replace(changed_rows_plan(job.snapshot, job.metadata, job.job_id), rules=job.inserts[0].rules)
        rows = job.rows_to_insert(job.source, [])
        obstacle = native_write_obstacle(rows, job.log.store, files) or files_obstacle(
            job.metadata, job.snapshot.uri, job.spark, vectors=False
        )
        if obstacle is not None:
            return obstacle
        kinds = {f.name: f.dataType for f in job.sides(None).types_after.fields}
        same = {n: c for n, c in columns.items() if job.request.source.schema[c].dataType == kinds[n]}
        condition = condition_sql(job.spark, job.snapshot.schema, job.source, job.request.condition, job.request.alias)
        if condition is None or not _resolves(job, condition, list(same.values())):
            return "the condition names source columns that are not written unchanged"
        return _Plan(job, rows, files, same, condition)


@dataclass(frozen=True)
class _Plan:
    """The rows to write and how; ``columns`` maps the table's names to columns of the files."""

    job: MergeJob
    rows: DataFrame
    files: FilePlan
    columns: dict[str, str]
    condition: str

    def reading(self, written: WrittenFiles) -> MergeJob:
        job = self.job
        frame = native_frame(
            job.spark, task_files(job.log.store, job.metadata.schema, self._read_plan(None), _tasks(written))
        )
        frame = frame.select(*(F.col(quote_name(n)).alias(of) for n, of in self.columns.items()))
        source_alias = alias_of(job.request.source)
        return job.of_source(frame if source_alias is None else frame.alias(source_alias), self.condition)

    def key_join(self) -> KeyJoin | None:
        """The condition as a join of keys; ``None`` if it has other parts."""
        # Imported late, since loading the parser takes a third of a second.
        from trilake.delta.commands.merge.match import KeyJoin

        job, kinds = self.job, read_schema(self.job.metadata.schema).to_arrow_schema()
        source = pa.schema([kinds.field(n).with_name(of) for n, of in self.columns.items()])
        aliases: dict[Side, str] = {
            "target": job.request.alias or TARGET_NAME,
            "source": alias_of(job.request.source) or SOURCE_NAME,
        }
        return KeyJoin.of(job.snapshot, source, self.condition, aliases, job.snapshot.engine.runtime.now())

    def keys(self, written: WrittenFiles, join: KeyJoin) -> pa.Table:
        names = {of: n for n, of in self.columns.items()}
        key_columns = list(dict.fromkeys(source for _, source in join.columns))
        plan = self._read_plan([names[n] for n in key_columns])
        batches = list(read_tasks(self.job.log.store, _tasks(written), plan))
        rows = pa.Table.from_batches(batches, plan.schema)
        return rows.select([names[n] for n in key_columns]).rename_columns(key_columns)

    def _read_plan(self, columns: Sequence[str] | None) -> ReadPlan:
        snapshot = self.job.snapshot
        return metadata_plan(self.job.metadata, snapshot.engine, snapshot.uri, snapshot.version, columns)


def _tasks(written: WrittenFiles) -> list[FileTask]:
    return [FileTask(unquote(str(a["path"])), int(a["size"]), {}) for a in written.actions]


def _columns(job: MergeJob) -> dict[str, str] | None:
    """The source column for each table column, if all clauses write all rows alike; otherwise ``None``."""
    if len(job.clauses) != 2 or len(job.matched) != 1 or len(job.inserts) != 1:
        return None
    changed, new = job.matched[0].clause, job.inserts[0].clause
    if changed.action != "update" or changed.condition is not None or new.condition is not None:
        return None
    names = {c.lower(): c for c in job.request.source.columns}
    source_alias = alias_of(job.request.source)
    pairs = [
        [_column(c.values[f.name], names, source_alias) for c in (changed, new)] for f in job.metadata.schema.fields
    ]
    if len(names) < len(job.request.source.columns) or any(a is None or a != b for a, b in pairs):
        return None
    return {f.name: str(a) for f, (a, _) in zip(job.metadata.schema.fields, pairs, strict=True)}


def _column(value: Any, names: dict[str, str], source_alias: str | None) -> str | None:
    match value:
        case FromSource((name,)):
            return names.get(name.lower())
        case FromExpression(str(sql)) if source_alias is not None:
            column_sql = {f"{source_alias}.{c}": c for c in names.values()}
            column_sql |= {f"{source_alias}.{quote_name(c)}": c for c in names.values()}
            return column_sql.get(sql.strip())
    return None


def _resolves(job: MergeJob, condition: str, columns: list[str]) -> bool:
    if not columns:
        return False
    source, target = job.request.source, empty_frame(job.spark, job.snapshot.schema)
    try:
        rows = source.select(*(source[quote_name(c)] for c in columns))
        aliased = target if job.request.alias is None else target.alias(job.request.alias)
        aliased.join(rows, as_column(condition)).schema  # noqa: B018 - Connect analyses here
    except (PySparkException, Py4JError):
        return False
    return True


@dataclass(frozen=True)
class _Replaced:
    pruned: Pruned
    removed: Removal
    counts: RowCounts
    times: tuple[int, int]


def _replaced(plan: _Plan, written: WrittenFiles) -> _Replaced | str:
    """Remove the matching rows from the target, or return the reason why this is not an upsert."""
    join = plan.key_join()
    if join is None or _key_bytes(join, written) > _MOST_KEY_BYTES:
        return _replaced_by_job(plan.reading(written))
    job, source_ms = plan.job, plan.job.runtime.clock_ms()
    keys = plan.keys(written, join)
    matches = join.matches(job.log.store, job.snapshot, keys)
    if matches is None:
        return _SEVERAL
    matched_ms = job.runtime.clock_ms()
    counts = RowCounts(source=keys.num_rows, updated_matched=matches.count, inserted=keys.num_rows - matches.count)
    return _Replaced(matches.pruned, job.take(matches.rows), counts, (source_ms, matched_ms))


def _key_bytes(join: KeyJoin, written: WrittenFiles) -> int:
    rows = sum(int(orjson.loads(a["stats"])["numRecords"]) for a in written.actions)
    types = [join.scope.schemas["source"].field(source).type for _, source in join.columns]
    return rows * sum(32 if pa.types.is_string(t) else 16 if pa.types.is_decimal(t) else 8 for t in types)


def _replaced_by_job(job: MergeJob) -> _Replaced | str:
    source_ms = job.runtime.clock_ms()
    source = job.look_at_source(small=False)
    pruned = job.pruned(source.keys)
    outcome = MergeOutcome()
    old_rows: dict[int, BitMap64] = {}
    if len(pruned.numbers) and source.count:
        target = addressed_rows(job.spark, job.table, pruned.numbers.tolist())
        joined = job.joined(job.named(target), source.count, "inner")
        outcome = job.run_over(joined.select(FILE, ROW, job.source[SOURCE]), _match)
        if outcome.clash is not None or len(outcome.source_rows) < outcome.counts.updated:
            return _SEVERAL
        old_rows = {int(target.files[n]): rows for n, rows in outcome.old_rows.items()}
    matched_ms = job.runtime.clock_ms()
    counts = outcome.counts + RowCounts(source=source.count, inserted=source.count - outcome.counts.updated)
    return _Replaced(pruned, job.take(old_rows), counts, (source_ms, matched_ms))


def _match(batches: Iterator[pa.RecordBatch], task: int) -> MergeOutcome | None:
    """The outcome for matching pairs: addresses of target rows, and numbers of source rows."""
    addresses, matched, count = Addresses(lenient=False), BitMap64(), 0
    for rows in chunks(batches):
        addresses.note(rows)
        matched |= BitMap64(rows.column(SOURCE).to_numpy().astype(np.uint64))
        count += rows.num_rows
    return MergeOutcome(
        old_rows=addresses.rows, source_rows=matched, clash=addresses.clash, counts=RowCounts(updated_matched=count)
    )
