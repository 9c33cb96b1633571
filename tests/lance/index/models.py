"""Models of IVF_PQ, trained on vectors, for tests of indices."""

from __future__ import annotations

import numpy as np

from trilake.lance.index import ivf_pq
from trilake.lance.index.ivf_pq import Floats


def train(
    vectors: Floats,
    partitions: int,
    pieces: int,
    seed: int,
    *,
    metric: str = "l2",
    iterations: int = 20,
    legacy: bool = True,
) -> ivf_pq.Model:
    rng = np.random.default_rng(seed)
    ivf_pq.check(metric, vectors.shape[1], pieces)
    centroids = ivf_pq.train_centroids(vectors, partitions, rng, metric=metric, iterations=iterations, legacy=legacy)
    residuals = ivf_pq.sample_residuals(vectors, centroids, metric, legacy=legacy)
    return ivf_pq.Model(metric, centroids, ivf_pq.train_words(residuals, pieces, rng, iterations=iterations), legacy)
