"""Distances between vectors and centroids as PyTorch tensors, on any device.

Needs torch (``pip install "trilake[torch]"``); the import raises ``MissingDependencyError`` without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trilake.common.extras import load
from trilake.errors import InvalidArgumentError

#: Maximum number of distances to compute at a time.
_ROOM = 1 << 25


def pairwise_l2(x: Any, y: Any, y2: Any = None) -> Any:
    """Return the squared L2 distances between rows of ``x`` and ``y``; ``y2`` are the squared norms of ``y``."""
    _check(x, y)
    if y2 is None:
        y2 = (y * y).sum(1)
    return (x * x).sum(1)[:, None] + y2[None, :] - 2 * (x @ y.T)


def pairwise_cosine(x: Any, y: Any, *, y2: Any = None) -> Any:
    """Return 1 - cosine for rows of ``x`` and ``y``; ``y2`` are the norms of ``y``."""
    _check(x, y)
    if y2 is None:
        y2 = (y * y).sum(1) ** 0.5
    return 1 - (x @ y.T) / (((x * x).sum(1) ** 0.5)[:, None] * y2[None, :])


def l2_distance(vectors: Any, centroids: Any, y2: Any = None) -> tuple[Any, Any]:
    """Return the nearest centroid of each vector, and its squared L2 distance; ``y2`` as in :func:`pairwise_l2`."""
    _check(vectors, centroids)
    squares = (centroids * centroids).sum(1) if y2 is None else y2
    return _nearest(vectors, centroids, lambda part: pairwise_l2(part, centroids, squares))


def cosine_distance(vectors: Any, centroids: Any) -> tuple[Any, Any]:
    """Return the nearest centroid of each vector by cosine, and 1 - cosine."""
    _check(vectors, centroids)
    lengths = (centroids * centroids).sum(1) ** 0.5
    return _nearest(vectors, centroids, lambda part: pairwise_cosine(part, centroids, y2=lengths))


def dot_distance(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the row of ``y`` with the greatest dot product for each row of ``x``, and 1 - that product."""
    _check(x, y)
    return _nearest(x, y, lambda part: 1 - part @ y.T)


def _check(x: Any, y: Any) -> None:
    if len(x.shape) != 2 or len(y.shape) != 2:
        raise InvalidArgumentError(f"x and y must be 2-D matrix, got: x.shape={x.shape}, y.shape={y.shape}")
    if x.shape[1] != y.shape[1]:
        raise InvalidArgumentError(f"x and y must have the same dimension, got {x.shape[1]} and {y.shape[1]}")
    if not y.shape[0]:
        raise InvalidArgumentError("y must have at least one row")


def _nearest(vectors: Any, centroids: Any, distances: Callable[[Any], Any]) -> tuple[Any, Any]:
    join = load("torch", "distances of tensors").cat
    step = max(1, _ROOM // int(centroids.shape[0]))
    ids, least = [], []
    for start in range(0, max(int(vectors.shape[0]), 1), step):
        part = distances(vectors[start : start + step])
        nearest = part.argmin(1)
        ids.append(nearest)
        least.append(part.gather(1, nearest[:, None])[:, 0])
    return join(ids), join(least)
