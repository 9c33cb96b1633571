"""Changes to a Lance dataset as Spark jobs: a task per fragment, or run of fragments, and one commit.

Tasks write data and deletion files that no version references; the driver commits them.  A change that conflicts with
another writer is planned again on the newest version, as without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

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
from trilake.lance.commands.delete import mark
from trilake.lance.commands.fragment_writer import Target, WriteOptions, write_fragments
from trilake.lance.commands.replan import replanned_with_files
from trilake.lance.proto import format_pb2 as pb
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment, fragment_message, parse_fragment
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import map_in_arrow
from trilake.spark.session.storage import session_store
from trilake.storage import open_store


def run_tasks(spark: SparkSession, tasks: Sequence[str], job: Callable[[str], str]) -> list[str]:
    """Run ``job`` on each of some texts, each in a task of its own; the results in the order of the tasks.

    Raises ``WriteFailedError`` where a task failed.
    """
    if not tasks:
        return []
    texts = list(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = batch.column(0).to_pylist()
            results = [job(texts[i]) for i in ids]
            yield pa.RecordBatch.from_arrays(
                [pa.array(ids, pa.int64()), pa.array(results, pa.string())], ["id", "done"]
            )

    rows = collected(map_in_arrow(spark.range(0, len(texts), 1, len(texts)), run, "id long, done string"))
    by_id = {row.id: row.done for row in rows}
    return [by_id[i] for i in range(len(texts))]


def collected(df: DataFrame) -> list[Row]:
    """The rows of a job that writes.  Raises ``WriteFailedError`` where a task failed."""
    try:
        return df.collect()
    except Exception as e:  # noqa: BLE001 - whatever Spark raises for a failed job: nothing was committed, and that must be said
        raise job_error_of(
            e,
            "a task failed before the commit; the dataset is unchanged",
            again="repeat the job",
            cleanup="cleanup_old_versions removes the files that tasks left",
        ) from None


@dataclass(frozen=True)
class Place:
    """A version of a dataset that a task opens."""

    uri: str
    options: Mapping[str, str] = field(repr=False)
    version: int
    runtime: Runtime

    @classmethod
    def of(cls, snapshot: Snapshot) -> Place:
        """The place of a snapshot."""
        return cls(snapshot.store.uri, dict(snapshot.store.options), snapshot.version, snapshot.runtime)

    def open(self) -> Snapshot:
        """The version."""
        return Snapshot.open(open_store(self.uri, dict(self.options)), self.runtime, self.version)


def text_of(fragment: Fragment) -> str:
    """An entry as text, on its way between tasks and driver."""
    return fragment_message(fragment).SerializeToString(deterministic=True).hex()


def fragment_of(text: str) -> Fragment:
    """The entry in a text."""
    return parse_fragment(pb.DataFragment.FromString(bytes.fromhex(text)))


# --- compaction ------------------------------------------------------------------------------------------------------


def compact(
    spark: SparkSession,
    uri: str,
    options: CompactionOptions | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> CompactionMetrics:
    """Join small fragments, and write those with many deleted rows anew, one task a run of fragments.

    Parameters
    ----------
    spark: the session.
    uri: the dataset.
    options: which fragments, and how they are written.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``ConflictError`` where somebody changed these fragments meanwhile, and ``WriteFailedError``.

    >>> import trilake
    >>> for n in range(3):
    ...     _ = trilake.write({"n": [n]}, "lake/lance-compact", format="lance", mode="append")
    >>> done = compact(spark, "lake/lance-compact")
    >>> done.fragments_removed, done.fragments_added
    (3, 1)
    """
    snapshot = Snapshot.open(session_store(spark, uri, storage_options), standard_engine().runtime)
    snapshot.manifest.check_writable(snapshot.store.uri)
    place = Place.of(snapshot)

    def job(text: str) -> str:
        return rewrite(place.open(), CompactionTask.from_json(text)).json()

    plan = plan_compaction(snapshot, options)
    results = run_tasks(spark, [task.json() for task in plan.tasks], job)
    return commit_compaction(snapshot, [RewriteResult.from_json(text) for text in results])[1]


# --- rows ------------------------------------------------------------------------------------------------------------


def delete(
    spark: SparkSession, uri: str, predicate: str, *, storage_options: Mapping[str, str] | None = None
) -> Snapshot:
    """Delete the rows for which ``predicate`` is true, one task a fragment; the version after that.

    Parameters
    ----------
    spark: the session.
    uri: the dataset.
    predicate: SQL text.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``FilterError``, ``ConflictError`` or ``WriteFailedError``.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/lance-delete", format="lance", mode="overwrite")
    >>> delete(spark, "lake/lance-delete", "n > 1").version
    2
    """
    return _changed(spark, uri, storage_options, predicate, None, WriteOptions())[0]


def update(
    spark: SparkSession,
    uri: str,
    updates: Mapping[str, str],
    where: str | None = None,
    *,
    options: WriteOptions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> updating.UpdateResult:
    """Set columns to SQL expressions where a condition is true, one task a fragment.

    Parameters
    ----------
    spark: the session.
    uri: the dataset.
    updates: SQL expressions by column.
    where: SQL text; all rows without one.
    options: of the files that are written.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``InvalidArgumentError``, ``ExpressionError``, ``FilterError``, ``ConflictError`` or ``WriteFailedError``.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/lance-update", format="lance", mode="overwrite")
    >>> update(spark, "lake/lance-update", {"n": "n * 10"}, "n > 1").num_rows_updated
    2
    """
    snapshot, count = _changed(spark, uri, storage_options, where, dict(updates), options or WriteOptions())
    return updating.UpdateResult(snapshot, count)


def _changed(
    spark: SparkSession,
    uri: str,
    storage_options: Mapping[str, str] | None,
    where: str | None,
    updates: dict[str, str] | None,
    options: WriteOptions,
) -> tuple[Snapshot, int]:
    start = Snapshot.open(session_store(spark, uri, storage_options), standard_engine().runtime)
    count = 0

    def plan(current: Snapshot, written: list[Fragment]) -> op.Operation:
        nonlocal count
        current.filter(where)  # a mistake shows here, and not in a task
        if updates is not None:
            updating.bind(current.schema, updates)
        place = Place.of(current)

        def job(text: str) -> str:
            return _change_fragment(place.open(), int(text), where, updates, options)

        results = [json.loads(t) for t in run_tasks(spark, [str(f.id) for f in current.manifest.fragments], job)]
        touched = [r for r in results if r["rows"]]
        count = sum(r["rows"] for r in touched)
        changed_fragments = tuple(fragment_of(r["left"]) for r in touched if r["left"] is not None)
        removed_ids = tuple(r["id"] for r in touched if r["left"] is None)
        written.extend(fragment_of(text) for r in touched for text in r["new"])
        if updates is None:
            return op.Delete(changed_fragments, removed_ids, str(where))
        return op.Update(removed_ids, changed_fragments, tuple(written))

    changed = replanned_with_files(start, plan, by_ids=start.names_ids(start.filter(where)))
    return changed, count


def _change_fragment(
    snapshot: Snapshot, id: int, where: str | None, updates: dict[str, str] | None, options: WriteOptions
) -> str:
    """Mark the matching rows of one fragment, and write them anew where they change; what was done, as JSON."""
    reader = snapshot.reader_of(id)
    assert reader is not None
    new: list[Fragment] = []
    if updates is None:
        rows = snapshot.matching(snapshot.filter(where), reader)
    else:
        offsets: dict[int, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
        manifest = snapshot.manifest
        target = Target(manifest.schema, manifest.storage_version, nulls=options.nulls)
        changed = updating.changed_rows(snapshot, updates, where, offsets, [reader])
        new = write_fragments(snapshot.store, changed, target, options, snapshot.runtime)
        rows = np.concatenate([*offsets.get(id, []), np.array([], np.int64)])
    rest: Fragment | None = reader.fragment
    if len(rows):
        rest = mark(reader, rows, read_version=snapshot.version, runtime=snapshot.runtime)
    return json.dumps(
        {
            "id": id,
            "rows": len(rows),
            "left": None if rest is None else text_of(rest),
            "new": [text_of(f) for f in new],
        }
    )
