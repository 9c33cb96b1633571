"""Making a vector index: learned from a sample, then every vector becomes codes in its partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import FrozenBitMap

from trilake.errors import InvalidArgumentError
from trilake.lance import operations as op
from trilake.lance.delete import replanned
from trilake.lance.fragment_reader import ROW_ID
from trilake.lance.index import ivf_pq
from trilake.lance.manifest import IndexMetadata
from trilake.lance.runtime import Runtime
from trilake.lance.scan import one_array
from trilake.lance.search import metric_name, storage, vector_type, vectors_of
from trilake.lance.snapshot import Snapshot

#: Vectors of the sample for each partition, and at least.
SAMPLE_RATE, SAMPLE_LEAST = 256, 1 << 14

Floats = npt.NDArray[np.float32]


def create_vector_index(
    snapshot: Snapshot,
    column: str | Sequence[str],
    index_type: str = "IVF_PQ",
    name: str | None = None,
    metric: str = "L2",
    *,
    replace: bool = False,
    num_partitions: int | None = None,
    num_sub_vectors: int | None = None,
    ivf_centroids: Any = None,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> Snapshot:
    """Index the live rows of a column of vectors, and return the version that has the index.

    Parameters
    ----------
    index_type: ``IVF_PQ``.
    metric: ``L2``, ``cosine`` or ``dot``.
    replace: whether an index of the name may be replaced.
    num_partitions, num_sub_vectors: of the index; the latter divides the dimension.
    ivf_centroids: partitions x dimension, as an array or a column of vectors; learned where they are not given.
    seed: of the random choices, so that an index can be made again.

    Vectors with NaN or infinity are left out.  Raises ``InvalidArgumentError``.
    """
    runtime = runtime or Runtime()
    names = [column] if isinstance(column, str) else list(column)
    if len(names) != 1 or index_type.upper() != "IVF_PQ":
        raise InvalidArgumentError(
            f"an index of type {index_type!r} on {names} cannot be made", help="an IVF_PQ index has one column"
        )
    if not num_partitions or not num_sub_vectors or num_partitions < 1:
        raise InvalidArgumentError("an IVF_PQ index needs num_partitions and num_sub_vectors above 0")
    called = name or f"{names[0]}_idx"
    size = vector_type(snapshot, names[0]).list_size
    chosen = metric_name(metric) or "l2"
    ivf_pq.check(chosen, size, num_sub_vectors)
    centroids = None if ivf_centroids is None else _centroids(ivf_centroids, num_partitions, size)

    def plan(current: Snapshot) -> op.Operation:
        if not replace and any(i.name == called for i in current.manifest.indices):
            raise InvalidArgumentError(f"there is an index {called!r} already", help="pass replace=True")
        rng = np.random.default_rng(seed)
        sample = _sample(current, names[0], size, num_partitions, rng)
        if centroids is None:
            model = ivf_pq.train(sample, num_partitions, num_sub_vectors, rng, metric=chosen)
        else:
            residuals = sample - centroids[ivf_pq.assign(sample, centroids, chosen)]
            model = ivf_pq.Model(chosen, centroids, ivf_pq.train_words(residuals, num_sub_vectors, rng))
        return op.CreateIndex((_written(current, names[0], called, size, model, runtime),))

    return replanned(snapshot, plan, runtime)


def _sample(snapshot: Snapshot, column: str, size: int, partitions: int, rng: np.random.Generator) -> Floats:
    total = snapshot.count()
    count = min(total, max(SAMPLE_RATE * partitions, SAMPLE_LEAST))
    ranks = np.sort(rng.choice(total, count, replace=False)) if total else np.array([], np.int64)
    table = snapshot.take(ranks, snapshot.view.schema.project([column]))
    found = vectors_of(storage(one_array(table.column(0))), size) if total else np.zeros((0, size), np.float32)
    found = found[np.isfinite(found).all(axis=1)]
    if len(found) < partitions:
        raise InvalidArgumentError(
            f"{len(found)} vectors cannot be cut into {partitions} partitions", help="choose fewer", column=column
        )
    return found


def _written(
    snapshot: Snapshot, column: str, name: str, size: int, model: ivf_pq.Model, runtime: Runtime
) -> IndexMetadata:
    partitions, codes, ids = [], [], []
    for batch in snapshot.scan(snapshot.plan([column], with_row_id=True)):
        vectors = vectors_of(storage(batch.column(0)), size)
        good = np.isfinite(vectors).all(axis=1)
        partition, code = ivf_pq.encode(model, vectors[good])
        partitions.append(partition)
        codes.append(code)
        ids.append(batch.column(ROW_ID).to_numpy(zero_copy_only=False)[good])
    uuid = UUID(runtime.new_id())
    ivf_pq.write(
        snapshot.store,
        f"_indices/{uuid}",
        model,
        np.concatenate(partitions),
        np.concatenate(codes),
        np.concatenate(ids),
        name=name,
        column=column,
        dataset_version=snapshot.version,
    )
    field = snapshot.view.schema.field(column)
    covered = FrozenBitMap([f.id for f in snapshot.manifest.fragments])
    return IndexMetadata(uuid, (field.id,), name, snapshot.version, covered)


def _centroids(given: Any, partitions: int, size: int) -> Floats:
    if isinstance(given, pa.Array):
        given = vectors_of(storage(given), size)
    found: Floats = np.asarray(given, np.float32)
    if found.shape != (partitions, size):
        raise InvalidArgumentError(f"the centroids are of shape {found.shape}, not {(partitions, size)}")
    return found
