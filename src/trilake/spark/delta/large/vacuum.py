"""VACUUM of a table with very many files as Spark jobs.

The steps, with the rules and pure functions of :mod:`trilake.delta.commands.maintenance.vacuum`::

    check the retention --> compare clocks --> list folders, one task each: old files, kept on the executors' disks
      --> open the newest version, after the listing, without its files
      --> read references, a task for each part of the checkpoint and for some commits
      --> old files minus references, joined by path --> minus foreign files --> count
      --> commit VACUUM START --> read concurrent commits --> delete the rest in tasks
      --> remove empty folders --> commit VACUUM END

The driver holds the commits since the checkpoint, counts, and the folders of a local disk.  Results of tasks are never
recomputed: if an executor is lost, the vacuum fails, and deletes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.delta.commands.maintenance.vacuum import (
    VacuumScope,
    born,
    committed_since,
    delete_files,
    recent_commits,
    recorded,
    scope_of,
    warn_of_foreign,
)
from trilake.delta.commands.maintenance.vacuum_files import LISTING, References, doubtful
from trilake.delta.commands.maintenance.vacuum_listing import Folders, list_folders, list_unfinished, remove_empty
from trilake.delta.commands.rows.row_changes import run_here
from trilake.delta.commit.symlink_manifest import path_text
from trilake.delta.log.checkpoint import checkpoint_actions, compare
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import Touched
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.spark.delta.large.listing import OLD_FILES, OldFiles, parts
from trilake.spark.delta.large.references import REFERENCES, Named, tasks_of
from trilake.spark.session.compat import arrow_frame
from trilake.spark.session.large_tables import by_jobs
from trilake.spark.session.runner import map_rows, task_rows
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import Territory

_NAME = r"^.*/"
_VECTOR = r"(^|/)deletion_vector_[^/]*\.bin$"
_DELETED = "deleted long"
#: Files per call to the store.
_CHUNK = 1000


@dataclass(frozen=True)
class LargeVacuum:
    """What a vacuum by jobs deleted, or would delete; ``paths`` are the full paths of a dry run."""

    files: int
    size: int
    foreign: int
    version: int | None = None
    paths: DataFrame | None = None


def is_large(spark: SparkSession, log: DeltaLog) -> bool:
    """Whether the table's newest version has more files than the session allows for this process.

    Raises ``InvalidArgumentError`` if the setting is not a number.
    """
    hint = log.hint()
    return hint is not None and by_jobs(spark, log.store, hint.num_add_files or 0)


def vacuum_large(
    spark: SparkSession,
    log: DeltaLog,
    *,
    retention_hours: float | None,
    dry_run: bool,
    enforce_retention: bool,
    record: bool,
) -> LargeVacuum:
    """Delete the files that no version within the retention needs.

    Parameters and errors are those of :func:`trilake.delta.commands.maintenance.vacuum.vacuum`.
    """
    runtime, store = log.engine.runtime, log.store
    head = log.head()
    scope = scope_of(
        log, head, runtime, retention_hours=retention_hours, enforce_retention=enforce_retention, dry_run=dry_run
    )
    folders = Folders(0)
    if store.local_path("x") is not None:
        folders = list_folders(store, LISTING.empty_table(), scope.cutoff, scope.names, Territory(store))
    # Materialise: files committed until now are in the version that is opened next.
    listed = _listed(spark, store, scope, links=folders.links)
    version = log.opened()
    old = listed.where(F.col("path").isNotNull())
    garbage = _without(spark, log, version, old, recent_commits(log, version, scope.cutoff), scope.cutoff)
    garbage, foreign = _accounted_for(spark, log, version, garbage)
    garbage = garbage.localCheckpoint(eager=True)
    temporary = LISTING.empty_table()
    if folders.unfinished:
        temporary = list_unfinished(store, "", scope.cutoff, scope.names)
    count, size = _total(garbage)
    count, size = count + temporary.num_rows, size + int(pc.sum(temporary["size"]).as_py() or 0)
    if dry_run:
        paths = garbage.select("path").union(arrow_frame(spark, temporary.select(["path"])))
        full = paths.select(F.concat(F.lit(path_text(store.uri) + "/"), F.col("path")).alias("path"))
        return LargeVacuum(count, size, foreign, paths=full)
    deleted: list[int] = []

    def delete() -> tuple[int, int]:
        stay = committed_since(log, version)
        here = temporary.filter(pa.array(~stay.name(temporary["path"])))
        rows = map_rows(garbage.select("path"), _Deletion(store, stay), _DELETED).agg(F.sum("deleted")).collect()
        delete_files(store, here, run_here)
        deleted.append(int(rows[0][0] or 0) + here.num_rows)
        remove_empty(store, folders)
        of_folders = listed.where(F.col("path").isNull()).agg(F.sum("size")).collect()[0][0]
        return deleted[0], (folders.count or int(of_folders or 0)) + 1

    vacuum_end = recorded(log, version, scope, (count, size), delete, runtime, record=record)
    return LargeVacuum(deleted[0], size, foreign, vacuum_end)


def _total(files: DataFrame) -> tuple[int, int]:
    row = files.agg(F.count("*"), F.sum("size")).collect()[0]
    return int(row[0]), int(row[1] or 0)


def _listed(spark: SparkSession, store: Store, scope: VacuumScope, *, links: bool) -> DataFrame:
    """The old files, and a row without a path per task with its number of folders."""
    read = OldFiles(store, scope.cutoff, tuple(scope.names), links)
    return task_rows(spark, read, parts(store), OLD_FILES).localCheckpoint(eager=True)


def _without(
    spark: SparkSession,
    log: DeltaLog,
    version: Snapshot | PendingSnapshot,
    files: DataFrame,
    commits: list[tuple[int, ObjectMeta]],
    cutoff: int,
    *,
    those: bool = False,
) -> DataFrame:
    """The files that no version needs which is current at the cut-off time or later; with ``those``, the others."""
    if isinstance(version, PendingSnapshot):
        rare = checkpoint_actions(log.store, version.segment)
        tasks, touched = tasks_of(version, rare, commits), version.touched
    else:
        tasks = [(version.adds, log.tombstones(version)), *([tuple(commits)] if commits else [])]
        touched, rare = Touched(), []
    references = task_rows(spark, Named(log.store, touched, cutoff), tasks, REFERENCES).localCheckpoint(eager=True)
    if isinstance(version, PendingSnapshot):
        row = references.where("kind = 'files'").agg(F.sum("files"), F.sum("bytes")).collect()[0]
        # A lost line of the log would turn needed files into garbage.
        compare(log.store, version.segment, int(row[0] or 0), int(row[1] or 0), rare)
    keys = references.where("kind = 'key'").select(F.col("text").alias("named_path")).distinct()
    names = references.where("kind = 'name'").select(F.col("text").alias("named_name")).distinct()
    base = F.regexp_replace("path", _NAME, "")
    unreferenced = _without_rows_of(files, keys, F.col("path") == F.col("named_path"))
    unreferenced = _without_rows_of(unreferenced, names, base == F.col("named_name"))
    if references.where("kind = 'every'").limit(1).count():
        unreferenced = unreferenced.where(~F.col("path").rlike(_VECTOR))
    return _less(files, unreferenced) if those else unreferenced


def _less(files: DataFrame, others: DataFrame) -> DataFrame:
    other = others.select(F.col("path").alias("other_path"))
    return _without_rows_of(files, other, F.col("path") == F.col("other_path"))


def _without_rows_of(files: DataFrame, others: DataFrame, same: Column) -> DataFrame:
    """The files without a match in ``others``, by a sort-merge join: Spark takes checkpointed rows for small, whatever
    their size, and would broadcast them.
    """
    return files.join(others.hint("merge"), same, "left_anti")


def _accounted_for(
    spark: SparkSession, log: DeltaLog, version: Snapshot | PendingSnapshot, files: DataFrame
) -> tuple[DataFrame, int]:
    """The files that the table or its writers can have made, and the number of others."""
    provider = version.metadata.provider.lower()
    judged = map_rows(files, _Doubtful(born(log, version), provider), f"{OLD_FILES}, doubtful boolean")
    judged = judged.localCheckpoint(eager=True)
    suspects = judged.where("doubtful").drop("doubtful")
    if not suspects.limit(1).count():
        return judged.drop("doubtful"), 0
    referenced = _without(spark, log, version, suspects, log.commits(end=version.version), -(1 << 62), those=True)
    foreign = _total(suspects)[0] - _total(referenced)[0]
    if foreign:
        warn_of_foreign(log, foreign, str(_less(suspects, referenced).limit(1).collect()[0].path))
    return judged.where("not doubtful").drop("doubtful").union(referenced), foreign


@dataclass(frozen=True)
class _Doubtful:
    """Marks files that no write of the table can have made."""

    born: int
    provider: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(LISTING)
            suspect = doubtful(table, self.born, self.provider)
            yield from table.append_column("doubtful", suspect).to_batches()


@dataclass(frozen=True)
class _Deletion:
    """Deletes files, except for those needed by the latest commits."""

    store: Store
    stay: References

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = pa.chunked_array([batch.column("path").cast(pa.string())])
            keys = paths.filter(pa.array(~self.stay.name(paths))).to_pylist()
            for start in range(0, len(keys), _CHUNK):
                self.store.delete(keys[start : start + _CHUNK])
            yield pa.RecordBatch.from_arrays([pa.array([len(keys)], pa.int64())], ["deleted"])
