"""VACUUM of a table with very many files as Spark jobs.

The steps; the rules are those of :mod:`trilake.delta.commands.maintenance.vacuum`::

    check the retention --> compare clocks --> list folders, one task each: old files, kept on the executors' disks
      --> open the newest version, after the listing, without its files
      --> read references, a task for each part of the checkpoint and for some commits
      --> old files minus references, joined by path --> minus foreign files --> count
      --> commit VACUUM START --> read concurrent commits --> delete the rest in tasks
      --> remove empty folders --> commit VACUUM END

The driver holds the commits since the checkpoint, counts, and the folders of a local disk.  Results of tasks are never
recomputed: if an executor is lost, the vacuum fails and deletes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.delta.commands.maintenance.vacuum import (
    born,
    committed_since,
    delete_files,
    recent_commits,
    recently_removed,
    recorded,
    scope_of,
    warn_of_foreign,
)
from trilake.delta.commands.maintenance.vacuum_files import (
    LISTING,
    Folders,
    References,
    doubtful,
    garbage,
    list_folders,
    list_unfinished,
    listed,
    nested_tables,
    own_files,
    references,
    remove_empty,
)
from trilake.delta.commands.rows.row_changes import run_here
from trilake.delta.commit.symlink_manifest import format_path
from trilake.delta.log.checkpoint import Share, checkpoint_actions, compare, shares
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LOG
from trilake.delta.log.snapshot import NewerFiles, PendingSnapshot, Snapshot
from trilake.spark.session.compat import arrow_frame
from trilake.spark.session.optimize_settings import by_jobs
from trilake.spark.session.runner import map_rows, task_rows
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import Territory

_NAME = r"^.*/"
_VECTOR = r"(^|/)deletion_vector_[^/]*\.bin$"
_DELETED = "deleted long"
#: Files per call to the store.
_CHUNK = 1000


def is_large(spark: SparkSession, log: DeltaLog) -> bool:
    """Whether the table's newest version has more files than the session allows in this process.  Raises
    ``InvalidArgumentError`` if the setting is not a number."""
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
) -> DataFrame | None:
    """Delete the files that no version within the retention needs, like
    :func:`trilake.delta.commands.maintenance.vacuum.vacuum`.  A dry run returns their full paths instead."""
    store = log.store
    head = log.head()
    scope = scope_of(log, head, retention_hours=retention_hours, enforce_retention=enforce_retention, dry_run=dry_run)
    folders = Folders(0)
    if store.local_path("x") is not None:
        folders = list_folders(store, LISTING.empty_table(), scope.cutoff, scope.names, Territory(store))
    # List before opening the version: the version then has all files that were committed before the listing.
    read = partial(old_files, store, scope.cutoff, tuple(scope.names), folders.links)
    listing = task_rows(spark, read, parts(store), OLD_FILES).localCheckpoint(eager=True)
    version = log.opened()
    old = listing.where(F.col("path").isNotNull())
    garbage = _unreferenced(spark, log, version, old, recent_commits(log, version, scope.cutoff), scope.cutoff)
    garbage = _without_foreign(spark, log, version, garbage).localCheckpoint(eager=True)
    temporary = LISTING.empty_table()
    if folders.unfinished:
        temporary = list_unfinished(store, "", scope.cutoff, scope.names)
    count, size = _total(garbage)
    count, size = count + temporary.num_rows, size + int(pc.sum(temporary["size"]).as_py() or 0)
    if dry_run:
        paths = garbage.select("path").union(arrow_frame(spark, temporary.select(["path"])))
        return paths.select(F.concat(F.lit(format_path(store.uri) + "/"), F.col("path")).alias("path"))

    def delete() -> tuple[int, int]:
        stay = committed_since(log, version)

        def delete_in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                paths = pa.chunked_array([batch.column("path").cast(pa.string())])
                keys = paths.filter(pa.array(~stay.name(paths))).to_pylist()
                for start in range(0, len(keys), _CHUNK):
                    store.delete(keys[start : start + _CHUNK])
                yield pa.RecordBatch.from_arrays([pa.array([len(keys)], pa.int64())], ["deleted"])

        here = temporary.filter(pa.array(~stay.name(temporary["path"])))
        rows = map_rows(garbage.select("path"), delete_in_task, _DELETED).agg(F.sum("deleted")).collect()
        delete_files(store, here, run_here)
        remove_empty(store, folders)
        of_folders = listing.where(F.col("path").isNull()).agg(F.sum("size")).collect()[0][0]
        return int(rows[0][0] or 0) + here.num_rows, (folders.count or int(of_folders or 0)) + 1

    recorded(log, version, scope, (count, size), delete, record=record)
    return None


def _total(files: DataFrame) -> tuple[int, int]:
    row = files.agg(F.count("*"), F.sum("size")).collect()[0]
    return int(row[0]), int(row[1] or 0)


def _unreferenced(
    spark: SparkSession,
    log: DeltaLog,
    version: Snapshot | PendingSnapshot,
    files: DataFrame,
    commits: list[tuple[int, ObjectMeta]],
    cutoff: int,
) -> DataFrame:
    if isinstance(version, PendingSnapshot):
        rare, newer = checkpoint_actions(log.store, version.segment), version.newer_files
        chunks = [tuple(commits[i : i + _COMMITS]) for i in range(0, len(commits), _COMMITS)]
        tasks = [*shares(version.segment, rare, _SHARE_BYTES), *chunks, (version.newer.adds, version.newer.removes)]
    else:
        tasks = [(version.adds, log.tombstones(version)), *([tuple(commits)] if commits else [])]
        newer, rare = NewerFiles(), []
    read = partial(read_references, log.store, newer, cutoff)
    references = task_rows(spark, read, tasks, REFERENCES).localCheckpoint(eager=True)
    if isinstance(version, PendingSnapshot):
        row = references.where("kind = 'files'").agg(F.sum("files"), F.sum("bytes")).collect()[0]
        # A lost line of the log would make needed files look like garbage.
        compare(log.store, version.segment, int(row[0] or 0), int(row[1] or 0), rare)
    keys = references.where("kind = 'key'").select(F.col("text").alias("named_path")).distinct()
    names = references.where("kind = 'name'").select(F.col("text").alias("named_name")).distinct()
    base = F.regexp_replace("path", _NAME, "")
    unreferenced = _without_rows_of(files, keys, F.col("path") == F.col("named_path"))
    unreferenced = _without_rows_of(unreferenced, names, base == F.col("named_name"))
    if references.where("kind = 'every'").limit(1).count():
        unreferenced = unreferenced.where(~F.col("path").rlike(_VECTOR))
    return unreferenced


def _minus(files: DataFrame, others: DataFrame) -> DataFrame:
    other = others.select(F.col("path").alias("other_path"))
    return _without_rows_of(files, other, F.col("path") == F.col("other_path"))


def _without_rows_of(files: DataFrame, others: DataFrame, same: Column) -> DataFrame:
    """An anti-join by sort-merge, since Spark would broadcast checkpointed rows of any size."""
    return files.join(others.hint("merge"), same, "left_anti")


def _without_foreign(
    spark: SparkSession, log: DeltaLog, version: Snapshot | PendingSnapshot, files: DataFrame
) -> DataFrame:
    """The files that writers of this table may have written; warns of others."""
    provider, created = version.metadata.provider.lower(), born(log, version)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(LISTING)
            yield from table.append_column("doubtful", doubtful(table, created, provider)).to_batches()

    judged = map_rows(files, judge, f"{OLD_FILES}, doubtful boolean")
    judged = judged.localCheckpoint(eager=True)
    suspects = judged.where("doubtful").drop("doubtful")
    if not suspects.limit(1).count():
        return judged.drop("doubtful")
    unknown = _unreferenced(spark, log, version, suspects, log.commits(end=version.version), -(1 << 62))
    referenced = _minus(suspects, unknown)
    foreign = _total(suspects)[0] - _total(referenced)[0]
    if foreign:
        warn_of_foreign(log, foreign, str(_minus(suspects, referenced).limit(1).collect()[0].path))
    return judged.where("not doubtful").drop("doubtful").union(referenced)


# --- List the old files of a table's folder in Spark tasks, one per first-level folder --------------------------------
# A nested table is recognised by its files, so each folder is listed as a whole.  If all files of a table are in one
# folder, one task lists it.

#: With more files than this directly in the table's folder, one task lists the whole table.
_LOOSE = 10_000
#: Sorts after everything inside a folder.
_LAST = "\U0010ffff"
_NOTHING = References(pa.chunked_array([], pa.string()), pa.chunked_array([], pa.string()))
#: Columns of the rows; a row without a path has the number of folders as its size.
OLD_FILES = "path string, size long, modified_ms long"


def parts(store: Store) -> list[str]:
    """The parts for tasks: first-level folders, and ``""`` for the files beside them; ``["/"]`` for everything."""
    folders: list[str] = []
    loose = 0
    for entry in first_level(store):
        if isinstance(entry, str):
            folders.append(entry)
        else:
            loose += 1
            if loose > _LOOSE:
                return ["/"]
    return [*folders, *([""] if loose else [])]


def first_level(store: Store) -> Iterator[str | ObjectMeta]:
    """The folders and files directly below the table, except the log; one request per folder."""
    after: str | None = None
    while True:
        folder = None
        for meta in store.list(start_after=after):
            name, slash, _ = meta.key.partition("/")
            if slash:
                folder = name
                break
            yield meta
        if folder is None:
            return
        if folder != LOG:
            yield folder
        after = f"{folder}/{_LAST}"


def old_files(store: Store, cutoff: int, names: tuple[str, ...], links: bool, part: str) -> Iterator[pa.RecordBatch]:
    """List the files of a part of a table that are old and not hidden; ``links`` means that there may be symbolic
    links."""
    if part:
        objects = store.list("" if part == "/" else part)
    else:
        objects = (entry for entry in first_level(store) if not isinstance(entry, str))
    listing = listed(objects)
    territory = Territory(store, frozenset(nested_tables(listing["path"])))
    parents = pc.unique(pc.replace_substring_regex(listing["path"], r"/?[^/]*$", "")).to_pylist()
    files = own_files(store, garbage(listing, cutoff, _NOTHING, names), territory, cutoff, links=links)
    count = pa.array([len([p for p in parents if p])], pa.int64())
    nothing = [pa.nulls(1, pa.string()), count, pa.nulls(1, pa.int64())]
    yield pa.RecordBatch.from_arrays(nothing, schema=LISTING)
    yield from files.to_batches(max_chunksize=64 * 1024)


# --- Spark tasks that read from parts of a checkpoint and from commits which files to keep ----------------------------

#: Per task, bytes of a checkpoint, and commits.
_SHARE_BYTES, _COMMITS = 64 << 20, 16
#: Columns of the rows.  ``kind`` is ``key`` for a path below the table, ``name`` for a file name to keep in any folder,
#: ``every`` to keep all deletion vectors, or ``files`` for the number and bytes of a part's files.
REFERENCES = "kind string, text string, files long, bytes long"
_SCHEMA = pa.schema([("kind", pa.string()), ("text", pa.string()), ("files", pa.int64()), ("bytes", pa.int64())])


def read_references(store: Store, newer: NewerFiles, cutoff: int, task: Any) -> Iterator[pa.RecordBatch]:
    """Read the references of a task: files of the version, tombstones since the cut-off time, and commits."""
    log = DeltaLog(store)
    if isinstance(task, Share):
        files = size = 0
        for piece in task.pieces(store, log.engine.query, "add"):
            files += piece.num_rows
            size += int(pc.sum(piece["size"]).as_py() or 0)
            yield from _rows(references(newer.without_newer(piece)))
        for piece in task.pieces(store, log.engine.query, "remove"):
            yield from _rows(references(recently_removed(newer.without_newer(piece), cutoff)))
        yield _batch("files", pa.nulls(1, pa.string()), files, size)
    elif isinstance(task[0], pa.Table):
        adds, removes = task
        yield from _rows(references(adds, recently_removed(removes, cutoff)))
    else:
        batch = log.parse(list(task))
        yield from _rows(references(batch.add, batch.remove, batch.cdc))


def _rows(references: References) -> Iterator[pa.RecordBatch]:
    for kind, strings in (("key", references.keys), ("name", references.names)):
        for chunk in strings.chunks:
            if len(chunk):
                yield _batch(kind, chunk)
    if references.every_vector:
        yield _batch("every", pa.nulls(1, pa.string()))


def _batch(kind: str, strings: pa.Array, files: int = 0, size: int = 0) -> pa.RecordBatch:
    count = len(strings)
    numbers = [pa.repeat(pa.scalar(n, pa.int64()), count) for n in (files, size)]
    return pa.RecordBatch.from_arrays([pa.repeat(kind, count), strings, *numbers], schema=_SCHEMA)
