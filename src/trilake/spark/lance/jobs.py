"""Changes to a Lance dataset as Spark jobs: a task for adjacent fragments, and one commit.

Tasks write data and deletion files that no version references; the driver commits them.  A change that conflicts with
another writer is planned again on the newest version, as without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from pyspark.sql import SparkSession

from trilake.common.runtime import Runtime
from trilake.delta.standard import standard_engine
from trilake.lance.commands import update as updating
from trilake.lance.commands.compaction import (
    CompactionMetrics,
    CompactionOptions,
    CompactionTask,
    RewriteResult,
    commit_compaction,
    plan_compaction,
    rewrite,
)
from trilake.lance.commands.delete import mark_all
from trilake.lance.commands.fragment_writer import Target, WriteOptions, write_fragments
from trilake.lance.commands.replan import replanned_with_files
from trilake.lance.scan.fragment_reader import runs
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment
from trilake.spark.lance.source import fragment_bytes
from trilake.spark.session.job_errors import failing_as, job_error_of
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.settings import session_store
from trilake.spark.session.sources.rows_source import adjacent_files
from trilake.storage import open_store

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, tasks: Sequence[T], job: Callable[[T], R]) -> list[R]:
    """Run ``job`` for each of ``tasks`` in a separate Spark task; returns the results in the order of the tasks.
    Raises ``WriteFailedError`` if a task fails."""

    def numbered(task: tuple[int, T]) -> tuple[int, R]:
        return task[0], job(task[1])

    with failing_as(failed_job):
        results = dict(SparkRunner(spark, width=1, least=1)(numbered, list(enumerate(tasks))) if tasks else ())
    return [results[i] for i in range(len(tasks))]


def failed_job(cause: Exception) -> Exception:
    """The error for a job that failed before its commit."""
    return job_error_of(
        cause,
        "a task failed before the commit; the dataset is unchanged",
        again="repeat the job",
        cleanup="cleanup_old_versions removes the files that tasks left",
    )


@dataclass(frozen=True)
class DatasetVersion:
    """A version of a dataset that a task opens."""

    uri: str
    options: Mapping[str, str] = field(repr=False)
    version: int
    runtime: Runtime

    @classmethod
    def of(cls, snapshot: Snapshot) -> DatasetVersion:
        return cls(snapshot.store.uri, dict(snapshot.store.options), snapshot.version, snapshot.runtime)

    def open(self) -> Snapshot:
        return Snapshot.open(open_store(self.uri, dict(self.options)), self.runtime, self.version)


@dataclass(frozen=True)
class ChangedFragments:
    """What tasks changed: how many rows, what remains of fragments, the IDs of those of which nothing remains, and new
    fragments."""

    rows: int = 0
    remaining: tuple[Fragment, ...] = ()
    removed: tuple[int, ...] = ()
    new: tuple[Fragment, ...] = ()

    def __add__(self, other: ChangedFragments) -> ChangedFragments:
        remaining, removed = self.remaining + other.remaining, self.removed + other.removed
        return ChangedFragments(self.rows + other.rows, remaining, removed, self.new + other.new)


def compact(
    spark: SparkSession,
    uri: str,
    options: CompactionOptions | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> CompactionMetrics:
    """Join small fragments, and rewrite those with many deleted rows, one task per run of fragments.

    Parameters
    ----------
    spark: the session.
    uri: the dataset.
    options: which fragments to rewrite, and how.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``ConflictError`` if another writer changed these fragments, and ``WriteFailedError`` if a task fails.

    >>> import trilake
    >>> for n in range(3):
    ...     _ = trilake.write({"n": [n]}, "lake/lance-compact", format="lance", mode="append")
    >>> done = compact(spark, "lake/lance-compact")
    >>> done.fragments_removed, done.fragments_added
    (3, 1)
    """
    snapshot = Snapshot.open(session_store(spark, uri, storage_options), standard_engine().runtime)
    snapshot.manifest.check_writable(snapshot.store.uri)
    dataset = DatasetVersion.of(snapshot)

    def job(task: CompactionTask) -> RewriteResult:
        return rewrite(dataset.open(), task)

    return commit_compaction(snapshot, run_tasks(spark, plan_compaction(snapshot, options).tasks, job))[1]


def delete(
    spark: SparkSession, uri: str, predicate: str, *, storage_options: Mapping[str, str] | None = None
) -> Snapshot:
    """Delete the rows for which ``predicate`` is true, a task for some fragments; returns the new version.

    Parameters
    ----------
    spark: the session.
    uri: the dataset.
    predicate: a SQL condition.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``FilterError``, ``ConflictError`` or ``WriteFailedError``.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/lance-delete", format="lance", mode="overwrite")
    >>> delete(spark, "lake/lance-delete", "n > 1").version
    2
    """
    return _change_rows(spark, uri, storage_options, predicate, None, WriteOptions())[0]


def update(
    spark: SparkSession,
    uri: str,
    updates: Mapping[str, str],
    where: str | None = None,
    *,
    options: WriteOptions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> updating.UpdateResult:
    """Set columns to SQL expressions where a condition is true, a task for some fragments.

    Parameters
    ----------
    spark: the session.
    uri: the dataset.
    updates: SQL expressions by column.
    where: a SQL condition; all rows without one.
    options: options of the written files.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``InvalidArgumentError``, ``ExpressionError``, ``FilterError``, ``ConflictError`` or ``WriteFailedError``.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/lance-update", format="lance", mode="overwrite")
    >>> update(spark, "lake/lance-update", {"n": "n * 10"}, "n > 1").num_rows_updated
    2
    """
    snapshot, count = _change_rows(spark, uri, storage_options, where, dict(updates), options or WriteOptions())
    return updating.UpdateResult(snapshot, count)


def _change_rows(
    spark: SparkSession,
    uri: str,
    storage_options: Mapping[str, str] | None,
    where: str | None,
    updates: dict[str, str] | None,
    options: WriteOptions,
) -> tuple[Snapshot, int]:
    start = Snapshot.open(session_store(spark, uri, storage_options), standard_engine().runtime)
    count = 0

    def plan(current: Snapshot, new_fragments: list[Fragment]) -> op.Operation:
        nonlocal count
        current.filter(where)  # raises here instead of in a task
        if updates is not None:
            updating.bind(current.schema, updates)
        dataset = DatasetVersion.of(current)

        def job(ids: list[int]) -> ChangedFragments:
            return _change_fragments(dataset.open(), ids, where, updates, options)

        groups = adjacent_files(current.manifest.fragments, fragment_bytes)
        done = sum(run_tasks(spark, [[f.id for f in group] for group in groups], job), ChangedFragments())
        count = done.rows
        new_fragments.extend(done.new)
        if updates is None:
            return op.Delete(done.remaining, done.removed, str(where))
        return op.Update(done.removed, done.remaining, done.new)

    changed = replanned_with_files(start, plan, by_ids=start.names_ids(start.filter(where)))
    return changed, count


def _change_fragments(
    snapshot: Snapshot, ids: list[int], where: str | None, updates: dict[str, str] | None, options: WriteOptions
) -> ChangedFragments:
    """Mark the matching rows of some fragments as deleted, and write their new versions for an update."""
    readers = [snapshot.by_id[id] for id in ids]
    new: list[Fragment] = []
    if updates is None:
        places = [snapshot.matching(snapshot.filter(where), readers)]
    else:
        places = [np.empty(0, np.uint64)]
        manifest = snapshot.manifest
        target = Target(manifest.schema, manifest.storage_version, nulls=options.nulls)
        changed = updating.changed_rows(snapshot, updates, where, places, readers)
        new = write_fragments(snapshot.store, changed, target, options, snapshot.runtime)
    addresses = np.concatenate(places)
    return ChangedFragments(len(addresses), *mark_all(snapshot, dict(runs(addresses))), tuple(new))
