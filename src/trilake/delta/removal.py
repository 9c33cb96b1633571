"""Removing the rows that match a predicate: which files go whole, which lose some of their rows, and how.

A file whose every row matches by its statistics is removed without being read.  Of any other that may hold a matching
row only the columns of the predicate are read; where some rows match, they go into a deletion vector if the table has
those, and otherwise the rest is written to a new file.  :func:`run_task` runs anywhere; the driver turns its outcomes
into actions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from trilake.delta import row_tracking
from trilake.delta.changes import CHANGE_TYPE
from trilake.delta.deletion_vectors import store_vectors
from trilake.delta.file_plan import FilePlan
from trilake.delta.log import DeltaLog, Snapshot
from trilake.delta.read import Positions, read_positions, read_task
from trilake.delta.runtime import Runtime
from trilake.delta.scan import FileTask, ReadPlan, plan_scan, read_plan, read_schema
from trilake.delta.schema import PrimitiveType, StructField
from trilake.delta.skipping import skip_files
from trilake.delta.statistics import record_counts
from trilake.delta.transaction import remove_action
from trilake.delta.write_files import TaskWriter
from trilake.expr import Filter
from trilake.storage.base import Store

CDF = "delta.enableChangeDataFeed"
VECTORS = "delta.enableDeletionVectors"


@dataclass(frozen=True)
class RemovalTask:
    """One file that may hold matching rows; ``add`` is its action, ``whole`` says that all of its rows match."""

    number: int
    file: FileTask
    base_row_id: int | None = None
    commit_version: int | None = None
    whole: bool = False


@dataclass(frozen=True)
class RemovalPlan:
    """What every task needs: how to read the predicate's columns and all columns, and how to write what stays."""

    filter: Filter
    narrow: ReadPlan
    wide: ReadPlan
    files: FilePlan
    vectors: bool
    change_feed: bool


@dataclass(frozen=True)
class RemovalOutcome:
    """What became of one file: ``vector`` is the serialized bitmap of all rows that are gone by now."""

    number: int
    matched: int
    kept: int
    vector: bytes | None = None
    adds: tuple[Mapping[str, Any], ...] = ()
    cdc: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Removal:
    """The actions that remove the rows, the paths of the files that were looked into, and what it all came to."""

    actions: tuple[Mapping[str, Any], ...]
    read: frozenset[str]
    removed: frozenset[str]
    rows: int
    copied: int
    #: Whether the change feed of the commit must come from files of its own.
    change_files: bool


#: Runs a function over tasks, in any order and place.
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


def run_here(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """A :data:`Runner` that runs tasks in threads of this process."""
    if len(tasks) <= 1:
        yield from map(function, tasks)
        return
    with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1)) as pool:
        yield from pool.map(function, tasks)


@dataclass(frozen=True)
class _Job:
    """A task with all it needs, as it travels."""

    store: Store
    plan: RemovalPlan

    def __call__(self, task: RemovalTask) -> RemovalOutcome:
        return run_task(self.store, self.plan, task)


def remove_rows(
    log: DeltaLog,
    snapshot: Snapshot,
    filter: Filter,
    job_id: str,
    *,
    runtime: Runtime,
    run: Runner = run_here,
) -> Removal:
    """Find the rows of ``snapshot`` for which ``filter`` is true, and make the actions that remove them.

    New files, vectors and change files are written; nothing is committed.
    """
    configuration = snapshot.metadata.configuration
    vectors = _on(configuration, VECTORS) and "deletionVectors" in (snapshot.protocol.writer_features or ())
    vectors = vectors and snapshot.metadata.provider.lower() == "parquet"
    feed = _on(configuration, CDF)
    skipped = skip_files(snapshot, filter)
    keep, every = skipped.keep, skipped.all_rows
    assert keep is not None
    assert every is not None
    maybe = keep & ~every
    by_file = feed and not vectors and bool(maybe.any())
    plan = RemovalPlan(
        filter,
        replace(read_plan(snapshot, sorted(filter.columns), filter), output=tuple(filter.columns)),
        _wide(snapshot),
        _rewrite_plan(snapshot, job_id),
        vectors,
        by_file,
    )
    chosen = np.flatnonzero(keep if by_file else maybe)
    tasks = _tasks(snapshot, chosen, every)
    outcomes = [o for o in run(_Job(log.store, plan), tasks) if o.matched]
    whole = np.flatnonzero(every & keep) if not by_file else np.array([], dtype=np.int64)
    return _removal(log, snapshot, outcomes, whole, chosen, runtime, by_file)


def _on(configuration: Mapping[str, str], key: str) -> bool:
    return configuration.get(key, "false").lower() == "true"


def _tasks(snapshot: Snapshot, chosen: np.ndarray[Any, Any], every: np.ndarray[Any, Any]) -> list[RemovalTask]:
    files = snapshot.adds.take(pa.array(chosen))
    scan = plan_scan(replace(snapshot, state=replace(snapshot.state, adds=files)))
    ids, versions = files["baseRowId"].to_pylist(), files["defaultRowCommitVersion"].to_pylist()
    return [
        RemovalTask(int(n), file, row_id, version, bool(every[n]))
        for n, file, row_id, version in zip(chosen, scan.tasks(), ids, versions, strict=True)
    ]


def _row_columns(snapshot: Snapshot) -> tuple[StructField, ...]:
    """The columns that keep the ids of rows that move, where the table tracks its rows."""
    conf = snapshot.metadata.configuration
    if not _on(conf, row_tracking.ENABLED):
        return ()
    names = (conf.get(row_tracking.ID_COLUMN), conf.get(row_tracking.VERSION_COLUMN))
    return tuple(StructField(n, PrimitiveType("long")) for n in names if n)


def _wide(snapshot: Snapshot) -> ReadPlan:
    plan = read_plan(snapshot, None, None)
    extra = _row_columns(snapshot)
    return replace(plan, fields=(*plan.fields, *extra))


def _rewrite_plan(snapshot: Snapshot, job_id: str) -> FilePlan:
    metadata = snapshot.metadata
    return FilePlan(
        read_schema(snapshot.schema),  # as rows are read: a file may lack a column that must not be null
        tuple(snapshot.schema.field(c).name for c in metadata.partition_columns),
        job_id,
        metadata.configuration,
        provider=metadata.provider.lower(),
        extra=tuple(pa.field(f.name, pa.int64()) for f in _row_columns(snapshot)),
    )


# --- in a task -------------------------------------------------------------------------------------------------------


def run_task(store: Store, plan: RemovalPlan, task: RemovalTask) -> RemovalOutcome:
    """Look into one file, and write what the removal leaves of it."""
    if task.whole:
        gone, total = None, 0
    else:
        gone, total = _matches(store, plan, task.file)
        if not len(gone):
            return RemovalOutcome(task.number, 0, 0)
        if len(gone) == total and not plan.change_feed:
            return RemovalOutcome(task.number, len(gone), 0)
        if plan.vectors:
            bitmap = BitMap64(gone.astype(np.uint64))
            if task.file.vector is not None:
                bitmap |= task.file.vector.load(store)
            return RemovalOutcome(task.number, len(gone), total - len(gone), vector=bitmap.serialize())
    return _rewrite(store, plan, task, gone)


def _matches(store: Store, plan: RemovalPlan, file: FileTask) -> tuple[Positions, int]:
    """Indexes of the rows that match, and how many rows the file has that are not deleted."""
    found, total = [np.array([], dtype=np.int64)], 0
    # Without pruning by row group, so that the count is that of the file.
    for positions, batch in read_positions(store, file, replace(plan.narrow, filter=None)):
        found.append(positions[plan.filter.mask(batch).to_numpy(zero_copy_only=False)])
        total += batch.num_rows
    return np.concatenate(found), total


def _rewrite(store: Store, plan: RemovalPlan, task: RemovalTask, gone: Positions | None) -> RemovalOutcome:
    runtime = Runtime()
    changes = replace(plan.files, action="cdc", extra=(pa.field(CHANGE_TYPE, pa.string()),))
    matched = kept = 0
    with (
        TaskWriter(store, plan.files, task.number, runtime) as rest,
        TaskWriter(store, changes, task.number, runtime) as feed,
    ):
        for positions, batch in read_positions(store, task.file, plan.wide):
            out = np.ones(len(positions), dtype=bool) if gone is None else np.isin(positions, gone, assume_unique=True)
            matched, kept = matched + int(out.sum()), kept + int((~out).sum())
            rest.write(_with_row_ids(batch, positions, plan, task).filter(pa.array(~out)))
            if plan.change_feed:
                feed.write(with_change_type(batch.select(list(plan.wide.output)).filter(pa.array(out)), "delete"))
        return RemovalOutcome(task.number, matched, kept, None, tuple(rest.close()), tuple(feed.close()))


def _with_row_ids(batch: pa.RecordBatch, positions: Positions, plan: RemovalPlan, task: RemovalTask) -> pa.RecordBatch:
    """The batch with the id and version of each row, where the table tracks its rows: they stay what they were."""
    rows = batch.select(list(plan.wide.output))
    if not plan.files.extra:
        return rows
    ids, versions = (f.name for f in plan.files.extra)
    fresh = pa.nulls(len(positions), pa.int64())
    if task.base_row_id is not None:
        fresh = pa.array(positions + task.base_row_id)
    version = pa.scalar(task.commit_version, pa.int64())
    rows = rows.append_column(ids, pc.coalesce(batch.column(ids), fresh))
    return rows.append_column(versions, pc.coalesce(batch.column(versions), version))


def with_change_type(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Rows as the change feed has them: with what happened to them behind the table's columns."""
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows))


def write_inserts(store: Store, snapshot_plan: ReadPlan, files: FilePlan, tasks: Sequence[FileTask]) -> list[Any]:
    """Change files that say the rows of new data files were inserted: for a commit that has change files at all."""
    changes = replace(
        files,
        schema=read_schema(files.schema),
        action="cdc",
        extra=(pa.field(CHANGE_TYPE, pa.string()),),
        rules=None,
        required=None,
    )
    with TaskWriter(store, changes, 0, Runtime()) as feed:
        for task in tasks:
            for batch in read_task(store, task, snapshot_plan):
                feed.write(with_change_type(batch, "insert"))
        return [{"cdc": a} for a in feed.close()]


# --- on the driver ---------------------------------------------------------------------------------------------------


def _removal(
    log: DeltaLog,
    snapshot: Snapshot,
    outcomes: Sequence[RemovalOutcome],
    whole: np.ndarray[Any, Any],
    looked_into: np.ndarray[Any, Any],
    runtime: Runtime,
    change_files: bool,
) -> Removal:
    now = runtime.clock_ms()
    old = snapshot.adds.take(pa.array([o.number for o in outcomes], pa.int64())).to_pylist()
    gone = snapshot.adds.take(pa.array(whole))
    counts = pc.fill_null(_live_rows(gone), 0)
    actions: list[Mapping[str, Any]] = [remove_action(a, now) for a in gone.to_pylist()]
    with_vector = [o for o in outcomes if o.vector is not None]
    bitmaps = [BitMap64.deserialize(o.vector) for o in with_vector if o.vector is not None]
    vectors = dict(zip((o.number for o in with_vector), store_vectors(log.store, bitmaps, runtime.new_id), strict=True))
    for outcome, add in zip(outcomes, old, strict=True):
        actions.append(remove_action(add, now))
        if outcome.number in vectors:
            actions.append({"add": add_with_vector(add, vectors[outcome.number])})
        actions += [{"add": a} for a in outcome.adds]
        actions += [{"cdc": c} for c in outcome.cdc]
    paths = snapshot.adds["path"]
    removed = frozenset(a["path"] for a in old) | frozenset(gone["path"].to_pylist())
    return Removal(
        tuple(actions),
        frozenset(paths.take(pa.array(looked_into)).to_pylist()) | removed,
        removed,
        sum(o.matched for o in outcomes) + int(pc.sum(counts).as_py() or 0),
        sum(o.kept for o in outcomes if o.vector is None),
        change_files and bool(outcomes),
    )


def _live_rows(adds: pa.Table) -> pa.ChunkedArray:
    deleted = pc.fill_null(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    return pc.subtract(record_counts(adds), deleted)


def add_with_vector(add: Mapping[str, Any], vector: Mapping[str, Any]) -> dict[str, Any]:
    """The ``add`` of a file that loses rows to a vector: its statistics bound what is left, no longer tightly."""
    out = {k: v for k, v in add.items() if v is not None}
    for name in ("partitionValues", "tags"):
        if name in out:
            out[name] = dict(out[name])
    if "stats" in out:
        out["stats"] = orjson.dumps({**orjson.loads(out["stats"]), "tightBounds": False}).decode()
    return {**out, "dataChange": True, "deletionVector": dict(vector)}
