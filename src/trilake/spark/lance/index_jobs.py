"""IVF_PQ indices of Lance datasets, trained and encoded by Spark's tasks, and committed once.

::

    sample, centroids --(tasks: some pieces each)--> words --(tasks: some rows each)--> parts --(driver)--> index

The sample is drawn with a seed, so each task reads it from the dataset; only centroids, code words and file names are
sent.  Each task writes an index of the rows that it encodes, and the driver merges these by partition.  If the sample
is large, tasks also compute the centroids, each from a share of the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from trilake.delta.standard import standard_engine
from trilake.lance.commands.replan import replanned
from trilake.lance.commands.vector_indices import (
    VectorIndexPlan,
    encoded_rows,
    plan_index,
    sample_part,
    sample_ranks,
    write_index,
)
from trilake.lance.file.errors import UnsupportedIndexError
from trilake.lance.index import ivf_pq
from trilake.lance.index.vector_index import VectorIndex
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import IndexMetadata
from trilake.spark.lance.jobs import DatasetVersion, run_tasks
from trilake.spark.session.settings import session_store

#: The fewest rows that one task encodes, and the most tasks.
_ROWS, _TASKS = 1 << 16, 512
#: With at least this many numbers in the sample, tasks find the centroids.
_LARGE = 1 << 27
#: The most shares of a large sample, and the most steps over them.
_PARTS, _STEPS = 16, 20

Floats = npt.NDArray[np.float32]


def create_index(
    spark: SparkSession,
    uri: str,
    column: str,
    index_type: str = "IVF_PQ",
    name: str | None = None,
    metric: str = "L2",
    *,
    replace: bool = False,
    num_partitions: int | None = None,
    num_sub_vectors: int | None = None,
    ivf_centroids: Any = None,
    pq_codebook: Any = None,
    seed: int = 0,
    storage_options: Mapping[str, str] | None = None,
) -> Snapshot:
    """Index the live rows of a vector column, and return the version with the index.

    ``spark`` is the session, ``uri`` the dataset, ``column`` the column, ``name`` the index's name, and
    ``storage_options`` are options of its store.  The other parameters and errors are those of
    :func:`trilake.lance.commands.vector_indices.plan_index`; with the same seed the index is nearly the same, and as
    good.  Raises ``WriteFailedError`` if a task fails.

    >>> import pyarrow as pa
    >>> from trilake.lance import write_dataset
    >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array([n % 7 for n in range(1024)], pa.float32()), 4)
    >>> _ = write_dataset(pa.table({"v": vectors}), "lake/lance-index", mode="overwrite")
    >>> create_index(spark, "lake/lance-index", "v", num_partitions=2, num_sub_vectors=2).version
    2
    """
    start = Snapshot.open(session_store(spark, uri, storage_options), standard_engine().runtime)
    what = plan_index(
        start,
        column,
        index_type,
        name,
        metric,
        replace=replace,
        num_partitions=num_partitions,
        num_sub_vectors=num_sub_vectors,
        ivf_centroids=ivf_centroids,
        pq_codebook=pq_codebook,
        seed=seed,
    )
    if what.kind != "IVF_PQ":
        raise UnsupportedIndexError(
            f"Spark jobs can build only IVF_PQ indices, got {what.kind}", help="use LanceDataset.create_index"
        )

    def plan(current: Snapshot) -> op.Operation:
        what.check(current)
        model = _model(spark, current, what)
        return op.CreateIndex((_encode(spark, current, what, model),))

    return replanned(start, plan)


def _model(spark: SparkSession, snapshot: Snapshot, plan: VectorIndexPlan) -> ivf_pq.Model:
    centroids = plan.centroids
    if centroids is None:
        large = plan.sample_size(snapshot.count()) * plan.size >= _LARGE
        centroids = _centroids_by_jobs(spark, snapshot, plan) if large else _centroids(snapshot, plan)
    words = plan.words if plan.words is not None else _words(spark, snapshot, plan, centroids)
    return ivf_pq.Model(plan.metric, centroids, words, snapshot.manifest.storage_version.is_legacy, plan.numbers)


def _centroids(snapshot: Snapshot, plan: VectorIndexPlan) -> Floats:
    vectors = plan.checked_sample(sample_part(snapshot, plan, sample_ranks(snapshot, plan)))
    rng = np.random.default_rng(plan.seed)
    return ivf_pq.train_centroids(
        vectors, plan.partitions, rng, metric=plan.metric, legacy=snapshot.manifest.storage_version.is_legacy
    )


def _centroids_by_jobs(spark: SparkSession, snapshot: Snapshot, plan: VectorIndexPlan) -> Floats:
    """Centroids by k-means; each step is a sum over tasks, each of which has a share of the sample."""
    ranks = sample_ranks(snapshot, plan)
    rng = np.random.default_rng(plan.seed)
    chosen = np.sort(rng.choice(ranks, min(len(ranks), 4 * plan.partitions), replace=False))
    first = plan.checked_sample(sample_part(snapshot, plan, chosen))
    dataset, parts, legacy = DatasetVersion.of(snapshot), _PARTS, snapshot.manifest.storage_version.is_legacy

    def sums(_: Floats, centroids: Floats) -> ivf_pq.Sums:
        def job(part: int) -> ivf_pq.Sums:
            current = dataset.open()
            share = np.array_split(sample_ranks(current, plan), parts)[part]
            vectors = sample_part(current, plan, share)
            vectors = vectors[np.isfinite(vectors).all(axis=1)]
            vectors, metric = ivf_pq.step_vectors(vectors, plan.metric, legacy=legacy)
            return ivf_pq.kmeans_sums(vectors, centroids, metric)

        partial_sums = run_tasks(spark, range(parts), job)
        return np.sum([s for s, _ in partial_sums], axis=0), np.sum([counts for _, counts in partial_sums], axis=0)

    return ivf_pq.train_centroids(
        first, plan.partitions, rng, metric=plan.metric, iterations=_STEPS, legacy=legacy, sums=sums
    )


def _words(spark: SparkSession, snapshot: Snapshot, plan: VectorIndexPlan, centroids: Floats) -> Floats:
    """The code words of all pieces; a task computes some pieces."""
    dataset, legacy = DatasetVersion.of(snapshot), snapshot.manifest.storage_version.is_legacy
    # A code word needs no more vectors than a partition does, for any number of partitions.
    most = 256 * ivf_pq.WORDS
    groups = [part.tolist() for part in np.array_split(np.arange(plan.pieces), min(plan.pieces, 8))]

    def job(numbers: list[int]) -> list[Floats]:
        current = dataset.open()
        ranks = sample_ranks(current, plan)
        ranks = ranks[:: max(1, len(ranks) // most)]
        vectors = plan.checked_sample(sample_part(current, plan, ranks), least=1)
        residuals = ivf_pq.sample_residuals(vectors, centroids, plan.metric, legacy=legacy)
        return [ivf_pq.piece_words(residuals, plan.pieces, m, np.random.default_rng([plan.seed, m])) for m in numbers]

    return np.stack([words for part in run_tasks(spark, groups, job) for words in part])


def _encode(spark: SparkSession, snapshot: Snapshot, plan: VectorIndexPlan, model: ivf_pq.Model) -> IndexMetadata:
    """Write the index of all live rows, and return its manifest entry."""
    dataset, uuid = DatasetVersion.of(snapshot), UUID(snapshot.runtime.new_id())
    rows = max(_ROWS, sum(r.physical_rows for r in snapshot.readers) // _TASKS)
    pieces = [
        [reader.fragment.id, start, min(start + rows, reader.physical_rows)]
        for reader in snapshot.readers
        for start in range(0, reader.physical_rows, rows)
    ]
    tasks: list[list[list[int]]] = []
    filled = rows
    for piece in pieces:  # small fragments share a task
        size = piece[2] - piece[1]
        if filled + size > rows:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += size
    name, column, version = plan.name, plan.column, snapshot.version

    def job(task: tuple[int, list[list[int]]]) -> str:
        number, ranges = task
        current = dataset.open()
        parts = []
        for id, start, stop in ranges:
            parts.append(encoded_rows(current, column, model, current.by_id[id], start, stop))
        partition, codes, ids = (np.concatenate([p[i] for p in parts]) for i in range(3))
        part = f"_indices/{uuid}/part-{number}"
        rows = ivf_pq.by_partition(model, partition, codes, ids)
        ivf_pq.write_partitions(current.store, part, model, rows, name=name, column=column, dataset_version=version)
        return part

    results = run_tasks(spark, list(enumerate(tasks)), job)
    opened = [VectorIndex.open(snapshot.store, part) for part in results]

    def partition_of(number: int) -> tuple[ivf_pq.Codes, ivf_pq.RowIds]:
        partitions = [index.partition(number) for index in opened]
        codes = np.concatenate([np.empty((0, plan.pieces), np.uint8), *(f[0] for f in partitions)])
        return codes, np.concatenate([np.empty(0, np.uint64), *(f[1] for f in partitions)])

    entry = write_index(snapshot, column, name, model, partition_of, uuid)
    snapshot.store.delete([f"{part}/{ivf_pq.FILE}" for part in results])
    return entry
