"""MERGE that writes each row of a large source as it is, where it matches and where it does not.

::

    source --> new files, written by Spark itself
                  |
                  +-- columns of the condition --join--> rows of the target that they replace

The rows are computed once and never pass through Python; new files are what the source is read from afterwards.  Where
the condition asks for equal columns and nothing else, the join is one of keys in this process, which takes a tenth of
what a job of Spark's does.  Where the join shows that a row of either table has several matches, the new files go, and
the merge is done row by row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from trilake.delta.commands.merge.clauses import FromExpression, FromSource
from trilake.delta.commands.merge.commit import MergeResult
from trilake.delta.commands.merge.names import Side
from trilake.delta.commands.merge.pruning import Pruned
from trilake.delta.commands.rows.change_commit import discard
from trilake.delta.commands.rows.row_change_writer import RowCounts
from trilake.delta.commands.rows.row_changes import changed_rows_plan
from trilake.delta.commands.rows.taken_rows import TakenRows
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.scan import FileTask, ReadPlan, metadata_plan, read_schema
from trilake.errors import TrilakeError
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.source import FEW_BYTES, plan_bytes
from trilake.spark.delta.merge.source_keys import SOURCE_NAME, TARGET_NAME, alias_of, condition_text
from trilake.spark.delta.merge.tasks import SOURCE, Addresses, MergeOutcome, TaskOutcome
from trilake.spark.delta.read import files_refusal
from trilake.spark.delta.reading.native_files import task_files
from trilake.spark.delta.row_addresses import FILE, ROW, addressed_rows
from trilake.spark.scan.columns import as_column, empty_frame
from trilake.spark.scan.scan import NativeScanError, native_frame
from trilake.spark.scan.write import native_write_refusal, write_natively
from trilake.spark.session.row_jobs import chunks, failed_job

if TYPE_CHECKING:
    from trilake.delta.commands.merge.key_join import KeyJoin

_log = logging.getLogger("trilake.spark")

#: Bytes of keys of a source that are joined in this process.
_MOST_KEY_BYTES = 512 << 20
_SEVERAL = "a row has several matches"


def upsert(job: MergeJob) -> MergeResult | None:
    """Run a merge in this way; ``None`` where it cannot be, and then nothing has changed.

    Raises what :func:`trilake.spark.delta.merge.run.merge_dataframe` does, except for ``AmbiguousMergeError``.
    """
    planned = _planned(job)
    if isinstance(planned, str):
        _log.info("%s is merged row by row: %s", job.snapshot.uri, planned)
        return None
    try:
        written = write_natively(planned.rows, job.log.store, planned.files, job.runtime)
    except (TrilakeError, AnalysisException):
        raise
    except (PySparkException, Py4JError) as e:
        raise failed_job(e, job.log, job.job_id, "merge") from None
    try:
        found: _Found | str = _replaced(planned, written)
    except NativeScanError as e:
        found = str(e)
    except BaseException:
        _discard(job, written)
        raise
    if isinstance(found, str):
        _discard(job, written)
        _log.info("%s is merged row by row: %s", job.snapshot.uri, found)
        return None
    # The merge as it was asked for: its condition is told as the caller gave it.
    return job.finish(found.pruned, [written], [], found.removed, found.counts, found.times)


def _discard(job: MergeJob, written: WrittenFiles) -> None:
    discard(job.log.store, [{"add": a} for a in written.actions], job.job_id)


# --- whether it can be -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Planned:
    """The rows to write, and how; ``columns`` are those of the source that can be read from the files, by the names
    that the table has for them."""

    job: MergeJob
    rows: DataFrame
    files: FilePlan
    columns: dict[str, str]
    condition: str

    def reading(self, written: WrittenFiles) -> MergeJob:
        job = self.job
        frame = native_frame(
            job.spark, task_files(job.log.store, job.metadata.schema, self._plan(None), _tasks(written))
        )
        frame = frame.select(*(F.col(quote_name(n)).alias(of) for n, of in self.columns.items()))
        own = alias_of(job.request.source)
        return job.of_source(frame if own is None else frame.alias(own), self.condition)

    def key_join(self) -> KeyJoin | None:
        """The condition as a join of keys; ``None`` where it is more than that."""
        from trilake.delta.commands.merge.key_join import KeyJoin  # late: the parser takes a third of a second to load

        job, kinds = self.job, read_schema(self.job.metadata.schema).to_arrow_schema()
        source = pa.schema([kinds.field(n).with_name(of) for n, of in self.columns.items()])
        aliases: dict[Side, str] = {
            "target": job.request.alias or TARGET_NAME,
            "source": alias_of(job.request.source) or SOURCE_NAME,
        }
        return KeyJoin.of(job.snapshot, source, self.condition, aliases, job.snapshot.engine.runtime.now())

    def keys(self, written: WrittenFiles, join: KeyJoin) -> pa.Table:
        names = {of: n for n, of in self.columns.items()}
        wanted = list(dict.fromkeys(source for _, source in join.columns))
        plan = self._plan([names[n] for n in wanted])
        batches = list(read_tasks(self.job.log.store, _tasks(written), plan))
        rows = pa.Table.from_batches(batches, plan.schema)
        return rows.select([names[n] for n in wanted]).rename_columns(wanted)

    def _plan(self, columns: Sequence[str] | None) -> ReadPlan:
        snapshot = self.job.snapshot
        return metadata_plan(self.job.metadata, snapshot.engine, snapshot.uri, snapshot.version, columns)


def _tasks(written: WrittenFiles) -> list[FileTask]:
    return [FileTask(unquote(str(a["path"])), int(a["size"]), {}) for a in written.actions]


def _planned(job: MergeJob) -> _Planned | str:
    """How to run it in this way, or why not."""
    columns = _columns(job)
    if columns is None:
        return "its clauses do not take each row of the source as it is"
    if job.feed or job.request.frames.asked([job.request.condition]):
        return "the table records changes, or the condition names a frame of the table"
    if plan_bytes(job.request.source) <= FEW_BYTES:
        return "the source is small"
    files = replace(changed_rows_plan(job.snapshot, job.metadata, job.job_id), rules=job.inserts[0].rules)
    rows = job.rows_to_insert(job.source, [])
    refusal = native_write_refusal(rows, job.log.store, files) or files_refusal(
        job.metadata, job.snapshot.uri, job.spark, vectors=False
    )
    if refusal is not None:
        return refusal
    kinds = {f.name: f.dataType for f in job.sides(None).types_after.fields}
    same = {n: c for n, c in columns.items() if job.request.source.schema[c].dataType == kinds[n]}
    text = condition_text(job.spark, job.snapshot.schema, job.source, job.request.condition, job.request.alias)
    if text is None or not _resolves(job, text, list(same.values())):
        return "the condition names more than the columns that the table gets as they are"
    return _Planned(job, rows, files, same, text)


def _columns(job: MergeJob) -> dict[str, str] | None:
    """The source's columns by the table's that they become, where all clauses give all rows the same; else ``None``."""
    if len(job.clauses) != 2 or len(job.matched) != 1 or len(job.inserts) != 1:
        return None
    changed, new = job.matched[0].clause, job.inserts[0].clause
    if changed.action != "update" or changed.condition is not None or new.condition is not None:
        return None
    names = {c.lower(): c for c in job.request.source.columns}
    own = alias_of(job.request.source)
    pairs = [[_column(c.values[f.name], names, own) for c in (changed, new)] for f in job.metadata.schema.fields]
    if len(names) < len(job.request.source.columns) or any(a is None or a != b for a, b in pairs):
        return None
    return {f.name: str(a) for f, (a, _) in zip(job.metadata.schema.fields, pairs, strict=True)}


def _column(value: Any, names: dict[str, str], own: str | None) -> str | None:
    match value:
        case FromSource((name,)):
            return names.get(name.lower())
        case FromExpression(str(text)) if own is not None:
            spelled = {f"{own}.{c}": c for c in names.values()} | {f"{own}.{quote_name(c)}": c for c in names.values()}
            return spelled.get(text.strip())
    return None


def _resolves(job: MergeJob, condition: str, columns: list[str]) -> bool:
    """Whether the condition names no other columns of the source."""
    if not columns:
        return False
    source, target = job.request.source, empty_frame(job.spark, job.snapshot.schema)
    try:
        rows = source.select(*(source[quote_name(c)] for c in columns))
        named = target if job.request.alias is None else target.alias(job.request.alias)
        named.join(rows, as_column(condition)).schema  # noqa: B018 - a Connect session asks only now
    except (PySparkException, Py4JError):
        return False
    return True


# --- what the rows replace -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """The rows that new ones replace, taken out of the table, and when that was."""

    pruned: Pruned
    removed: TakenRows
    counts: RowCounts
    times: tuple[int, int]


def _replaced(planned: _Planned, written: WrittenFiles) -> _Found | str:
    """Take the rows that match out of the target; or why the rows of the source are not what is to be written."""
    join = planned.key_join()
    if join is None or _key_bytes(join, written) > _MOST_KEY_BYTES:
        return _replaced_by_job(planned.reading(written))
    job, held_at = planned.job, planned.job.runtime.clock_ms()
    keys = planned.keys(written, join)
    matches = join.matches(job.log.store, job.snapshot, keys)
    if matches is None:
        return _SEVERAL
    found_at = job.runtime.clock_ms()
    counts = RowCounts(source=keys.num_rows, updated_matched=matches.count, inserted=keys.num_rows - matches.count)
    return _Found(matches.pruned, job.take(matches.rows), counts, (held_at, found_at))


def _key_bytes(join: KeyJoin, written: WrittenFiles) -> int:
    """About how many bytes the keys of the new rows are."""
    rows = sum(int(orjson.loads(a["stats"])["numRecords"]) for a in written.actions)
    types = [join.scope.schemas["source"].field(source).type for _, source in join.columns]
    return rows * sum(32 if pa.types.is_string(t) else 16 if pa.types.is_decimal(t) else 8 for t in types)


def _replaced_by_job(job: MergeJob) -> _Found | str:
    """The same, by a join of Spark's."""
    held_at = job.runtime.clock_ms()
    source = job.look_at_source(small=False)
    pruned = job.pruned(source.keys)
    outcome = MergeOutcome()
    taken: dict[int, BitMap64] = {}
    if len(pruned.numbers) and source.count:
        target = addressed_rows(job.spark, job.table, pruned.numbers.tolist())
        joined = job.joined(job.named(target), source.count, "inner")
        outcome = job.run_over(joined.select(FILE, ROW, job.source[SOURCE]), _match)
        if outcome.clash is not None or len(outcome.seen) < outcome.counts.updated:
            return _SEVERAL
        taken = {int(target.files[n]): rows for n, rows in outcome.taken.items()}
    found_at = job.runtime.clock_ms()
    counts = outcome.counts + RowCounts(source=source.count, inserted=source.count - outcome.counts.updated)
    return _Found(pruned, job.take(taken), counts, (held_at, found_at))


def _match(batches: Iterator[pa.RecordBatch], task: int) -> TaskOutcome | None:
    """What a task says of pairs that match: addresses of the target's rows, and numbers of the source's."""
    addresses, seen, count = Addresses(lenient=False), BitMap64(), 0
    for rows in chunks(batches):
        addresses.note(rows)
        seen |= BitMap64(rows.column(SOURCE).to_numpy().astype(np.uint64))
        count += rows.num_rows
    return TaskOutcome(
        taken={n: rows.serialize() for n, rows in addresses.taken.items()},
        seen=seen.serialize(),
        clash=addresses.clash,
        counts=RowCounts(updated_matched=count),
    )
