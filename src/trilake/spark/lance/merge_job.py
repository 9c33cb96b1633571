"""``merge_insert`` of a Lance dataset as Spark jobs: one join; tasks write new rows, and mark old ones as deleted.

The source may be any DataFrame; it is computed once.  Of the dataset, only key columns and the columns in conditions
are read.  One commit makes everything visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.text import plural, quote_name, quote_parts
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.expr import parse_filter
from trilake.lance.commands.delete import mark_all
from trilake.lance.commands.fragment_writer import Target, WriteOptions, write_fragments
from trilake.lance.commands.merge_insert import MergeInsert, MergeStats, pair_schema
from trilake.lance.commands.replan import replanned_with_files
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, runs
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment
from trilake.spark.lance import ml_vectors
from trilake.spark.lance.jobs import ChangedFragments, DatasetVersion, failed_job
from trilake.spark.lance.source import TrilakeLanceDataSource
from trilake.spark.session.runner import row_outcomes
from trilake.spark.session.settings import session_options
from trilake.spark.session.sources.python_source import ensure_source
from trilake.spark.session.sources.rows_source import rows_schema
from trilake.storage import open_store

_SEVERAL = "several rows of the source match one row of the dataset"
_SOURCE, _TARGET, _UPDATES, _DELETES = "source", "target", "trilake_updates", "trilake_deletes"


def merge_insert(
    spark: SparkSession,
    uri: str,
    source: DataFrame,
    on: str | Sequence[str],
    clauses: MergeInsert | None = None,
    *,
    options: WriteOptions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> MergeStats:
    """Match the rows of a DataFrame with those of a dataset by key columns, and update, insert or delete.

    Parameters
    ----------
    spark: the session.
    uri: the dataset.
    source: a DataFrame with the columns of the dataset, in any order.
    on: key columns; a null key matches nothing.
    clauses: what happens to rows; by default matched rows are updated and others inserted.
    options: options of the written files.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``InvalidArgumentError`` if several rows of the source would replace one row, ``SchemaMismatchError``,
    ``FilterError``, ``ConflictError`` or ``WriteFailedError``.  Nothing of a failed merge is ever visible.

    >>> import trilake
    >>> _ = trilake.write({"id": [1, 2], "n": [10, 20]}, "lake/lance-merge", format="lance", mode="overwrite")
    >>> news = spark.createDataFrame([(2, 21), (3, 30)], "id bigint, n bigint")
    >>> done = merge_insert(spark, "lake/lance-merge", news, "id")
    >>> done.num_updated_rows, done.num_inserted_rows
    (1, 1)
    """
    keys = (on,) if isinstance(on, str) else tuple(on)
    clauses = clauses or MergeInsert(keys, update=True, insert=True)
    store = session_options(spark, uri, storage_options)
    start = Snapshot.open(open_store(uri, store), standard_engine().runtime)
    _check(start, source, clauses, keys)
    ensure_source(spark, TrilakeLanceDataSource)
    _, vectors = ml_vectors.plain(source.schema)
    names = source.columns
    rows = source.select(F.struct(*[F.col(quote_name(n)) for n in names]).alias(_SOURCE)).persist()
    stats = MergeStats()

    def plan(current: Snapshot, new_fragments: list[Fragment]) -> op.Operation:
        nonlocal stats
        pairs = _pairs(spark, current, rows, clauses, keys, store).persist()
        try:
            changed_fragments, removed_ids, deleted = _mark_rows(pairs, current, clauses)
            inserted, updated = _write_rows(
                pairs, current, clauses, options or WriteOptions(), tuple(vectors), new_fragments
            )
        finally:
            pairs.unpersist()
        stats = MergeStats(inserted, updated, deleted - updated)
        return op.Update(removed_ids, changed_fragments, tuple(new_fragments))

    try:
        replanned_with_files(start, plan, by_ids=start.names_ids(start.filter(clauses.delete_if)))
        return stats
    finally:
        rows.unpersist()


def _check(snapshot: Snapshot, source: DataFrame, clauses: MergeInsert, keys: Sequence[str]) -> None:
    names = snapshot.schema.names
    unknown = [k for k in keys if k not in names]
    if unknown or not keys:
        problem = f"unknown key columns {', '.join(unknown)}" if unknown else "a merge needs key columns"
        raise InvalidArgumentError(problem, help=f"columns are {', '.join(names)}")
    if sorted(source.columns) != sorted(names):
        raise SchemaMismatchError(
            f"the source has the columns {', '.join(source.columns)}, but the dataset has {', '.join(names)}",
            help="add the missing columns to the source",
        )
    clauses.check()
    snapshot.filter(clauses.delete_if)
    parse_filter(clauses.update_if, pair_schema(snapshot.schema))


def _pairs(
    spark: SparkSession,
    snapshot: Snapshot,
    rows: DataFrame,
    clauses: MergeInsert,
    keys: Sequence[str],
    store: Mapping[str, str],
) -> DataFrame:
    """The joined rows of both sides, with what happens to each."""
    needed = set(keys)
    delete_if = snapshot.filter(clauses.delete_if)
    needed |= set() if delete_if is None else delete_if.columns
    update_if = parse_filter(clauses.update_if, pair_schema(snapshot.schema))
    if update_if is not None:
        paths = update_if.paths
        whole = (_TARGET,) in paths
        needed |= {n for n in snapshot.schema.names if whole or any(p[:2] == (_TARGET, n) for p in paths)}
    schema = pa.schema([f for f in snapshot.schema if f.name in needed]).append(pa.field(ROW_ADDRESS, pa.int64()))
    reader = spark.read.format("trilake-lance").option("version", str(snapshot.version)).option("rowAddress", "true")
    for name, value in store.items():
        reader = reader.option(name, value)
    target = reader.schema(rows_schema(schema, snapshot.store.uri)).load(snapshot.store.uri)
    removed = F.lit(False)
    if clauses.delete_unmatched:
        removed = F.lit(True) if clauses.delete_if is None else F.coalesce(F.expr(clauses.delete_if), F.lit(False))
    target = target.select(
        F.struct(*[F.col(quote_name(n)) for n in schema.names]).alias(_TARGET), removed.alias("removed")
    )
    same = reduce(Column.__and__, [F.col(quote_parts((_SOURCE, k))) == F.col(quote_parts((_TARGET, k))) for k in keys])
    joined = rows.join(target, same, "full_outer" if clauses.delete_unmatched else "left")
    matched = F.col(_SOURCE).isNotNull() & F.col(_TARGET).isNotNull()
    condition = F.lit(True) if clauses.update_if is None else F.coalesce(F.expr(clauses.update_if), F.lit(False))
    updates = matched & condition if clauses.update else F.lit(False)
    deletes = F.col(_SOURCE).isNull() & F.coalesce(F.col("removed"), F.lit(False))
    deletes = deletes | updates | (matched if clauses.delete_matched else F.lit(False))
    return joined.select(
        _SOURCE, f"{_TARGET}.{ROW_ADDRESS}", matched.alias("matched"), updates.alias(_UPDATES), deletes.alias(_DELETES)
    )


def _mark_rows(
    pairs: DataFrame, snapshot: Snapshot, clauses: MergeInsert
) -> tuple[tuple[Fragment, ...], tuple[int, ...], int]:
    if clauses.fail_matched:
        count = pairs.where("matched").count()
        if count:
            raise InvalidArgumentError(f"{plural(count, 'row matches', 'rows match')}, but when_matched_fail is set")
    dataset, must_differ = DatasetVersion.of(snapshot), clauses.update

    def work(batches: Iterator[pa.RecordBatch], _: int) -> ChangedFragments | str | None:
        parts = [b.column(0).to_numpy(zero_copy_only=False).astype(np.uint64) for b in batches]
        addresses = np.concatenate([np.empty(0, np.uint64), *parts])
        unique = np.unique(addresses)
        if must_differ and len(unique) < len(addresses):
            return _SEVERAL
        if not len(unique):
            return None
        return ChangedFragments(len(unique), *mark_all(dataset.open(), dict(runs(unique))))

    # One task gets all rows of a fragment, since a fragment has one deletion file.
    deletes = pairs.where(_DELETES).select(ROW_ADDRESS)
    deletes = deletes.repartition(F.shiftright(F.col(ROW_ADDRESS), 32))
    parts = row_outcomes(deletes, work, failed_job)
    if _SEVERAL in parts:
        raise InvalidArgumentError(_SEVERAL, help="remove all but one from the source")
    done = sum(parts, ChangedFragments())
    return done.remaining, done.removed, done.rows


def _write_rows(
    pairs: DataFrame,
    snapshot: Snapshot,
    clauses: MergeInsert,
    options: WriteOptions,
    vectors: tuple[str, ...],
    new_fragments: list[Fragment],
) -> tuple[int, int]:
    """Write new rows, adding their fragments to ``new_fragments``; returns how many were inserted and updated."""
    if not (clauses.update or clauses.insert):
        return 0, 0
    schema, version = snapshot.manifest.schema, snapshot.manifest.storage_version
    uri, store, runtime = snapshot.store.uri, dict(snapshot.store.options), snapshot.runtime

    def work(batches: Iterator[pa.RecordBatch], _: int) -> tuple[int, int, list[Fragment]]:
        inserted = updated = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal inserted, updated
            for batch in batches:
                updates = batch.column(1).true_count
                inserted, updated = inserted + batch.num_rows - updates, updated + updates
                source = batch.column(0)
                columns = pa.RecordBatch.from_arrays(source.flatten(), names=[f.name for f in source.type])
                yield ml_vectors.lists_in(columns, vectors)

        target = Target(schema, version, nulls=options.nulls)
        fragments = write_fragments(open_store(uri, store), rows(), target, options, runtime)
        return inserted, updated, fragments

    inserts = F.col("matched") == F.lit(False) if clauses.insert else F.lit(False)
    new = pairs.where(F.col(_SOURCE).isNotNull() & (F.col(_UPDATES) | inserts)).select(_SOURCE, _UPDATES)
    results = row_outcomes(new, work, failed_job)
    new_fragments.extend(fragment for _, _, fragments in results for fragment in fragments)
    return sum(inserted for inserted, _, _ in results), sum(updated for _, updated, _ in results)
