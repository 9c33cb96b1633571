"""``KMeans``: k-means clustering with PyTorch, on any device.

Needs torch (``pip install "trilake[torch]"``); :class:`trilake.lance.util.KMeans` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.extras import load
from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import NotTrainedError, WrongTypeError
from trilake.lance.torch.distance import cosine_distance, dot_distance, l2_distance

_DISTANCES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "l2": l2_distance,
    "euclidean": l2_distance,
    "cosine": cosine_distance,
    "dot": dot_distance,
}
#: Number of vectors to process at a time.
_STEP = 1 << 16


def preferred_device(device: Any = None) -> Any:
    """Return a device by name, or the default: a GPU if available, else the CPU."""
    if device is not None:
        return _torch().device(device) if isinstance(device, str) else device
    if _torch().cuda.is_available():
        return _torch().device("cuda")
    return _torch().device("mps" if _torch().backends.mps.is_available() else "cpu")


class KMeans:
    """K-means clustering of vectors.

    Parameters
    ----------
    k: number of clusters.
    metric: ``l2`` (or ``euclidean``), ``cosine`` or ``dot``.
    init: initialization of the centroids; only ``random``.
    max_iters: maximum number of iterations.
    tolerance: relative change of the total distance at which to stop.
    centroids: initial centroids.
    seed: random seed for the initial centroids.
    device: device to compute on, see :func:`preferred_device`.
    """

    def __init__(
        self,
        k: int,
        *,
        metric: str = "l2",
        init: str = "random",
        max_iters: int = 50,
        tolerance: float = 1e-4,
        centroids: Any = None,
        seed: int | None = None,
        device: Any = None,
    ) -> None:
        if metric.lower() not in _DISTANCES:
            raise InvalidArgumentError(f"Only l2/cosine/dot is supported as metric type, got: {metric}")
        if init != "random":
            raise InvalidArgumentError(f'init must be "random", got {init!r}')
        if k < 1:
            raise InvalidArgumentError(f"k must be >= 1, got {k}")
        self.k, self.metric, self.init = k, metric.lower(), init
        self.max_iters, self.tolerance, self.seed = max_iters, tolerance, seed
        self.device = preferred_device(device)
        self.centroids = centroids
        self.total_distance = 0.0

    def __repr__(self) -> str:
        return f"KMeans(k={self.k}, metric={self.metric}, device={self.device})"

    def fit(self, data: Any) -> None:
        """Train the centroids.

        Parameters
        ----------
        data: a 2-dimensional array or tensor, a column of vectors, or an iterable of batches of these; an iterable is
            read once per iteration and needs initial ``centroids``.
        """
        if isinstance(data, np.ndarray | pa.FixedSizeListArray | pa.ChunkedArray | _torch().Tensor):
            vectors = self._tensor(data)
            if not len(vectors):
                raise InvalidArgumentError("there are no vectors to train on")
            if self.centroids is None:
                rng = np.random.default_rng(self.seed)
                indices = rng.choice(len(vectors), self.k, replace=len(vectors) < self.k)
                self.centroids = vectors[_torch().from_numpy(indices).to(self.device)]
            data = [vectors[i : i + _STEP] for i in range(0, len(vectors), _STEP)]
        if self.centroids is None:
            raise InvalidArgumentError("batches of vectors need initial centroids", help="pass centroids=")
        self.centroids = self._tensor(self.centroids)
        self.total_distance = 0.0
        for _ in range(self.max_iters):
            total, sums, counts = self._sums(data)
            if abs(total - self.total_distance) <= self.tolerance * abs(total):
                break
            self.total_distance = total
            self.centroids = _centres(sums, counts)

    def transform(self, data: Any) -> Any:
        """Return the nearest centroid of each vector."""
        if self.centroids is None:
            raise NotTrainedError("the model is not trained", help="call fit first")
        return _DISTANCES[self.metric](self._tensor(data), self._tensor(self.centroids))[0]

    def _sums(self, batches: Any) -> tuple[float, Any, Any]:
        """Return the total distance, and the sum and the number of the vectors nearest to each centroid."""
        total, sums = 0.0, _torch().zeros_like(self.centroids)
        counts = _torch().zeros(len(self.centroids), device=self.device)
        for batch in batches:
            vectors = self._tensor(batch)
            ids, distances = _DISTANCES[self.metric](vectors, self.centroids)
            total += float(distances.sum())
            sums.index_add_(0, ids, vectors)
            counts.index_add_(0, ids, _torch().ones(len(ids), device=self.device))
        return total, sums, counts

    def _tensor(self, data: Any) -> Any:
        """Convert vectors to a float32 tensor on the device.  Raises ``WrongTypeError``."""
        if isinstance(data, pa.ChunkedArray):
            data = data.combine_chunks()
        if isinstance(data, pa.FixedSizeListArray):
            if data.null_count:
                raise InvalidArgumentError("vectors must not be null", help="drop the rows without a vector")
            data = data.flatten().to_numpy(zero_copy_only=False).reshape(len(data), -1)
        if isinstance(data, np.ndarray):
            # Copy if needed: torch warns about read-only memory such as Arrow's.
            data = _torch().from_numpy(np.require(data, requirements=["C", "W"]))
        if not isinstance(data, _torch().Tensor):
            raise WrongTypeError(f"vectors must be a FixedSizeListArray, np.ndarray or torch.Tensor, got: {type(data)}")
        return data.to(self.device).float()


def _centres(sums: Any, counts: Any) -> Any:
    """Return the mean of each cluster; an empty cluster gets half of the largest one, slightly offset."""
    for i in _torch().nonzero(counts == 0).reshape(-1).tolist():
        largest = int(counts.argmax())
        half = counts[largest] / 2
        sums[i], sums[largest] = sums[largest] / 2 * 1.05, sums[largest] / 2 / 1.05
        counts[i] = counts[largest] = half
    return sums / counts[:, None]


def _torch() -> Any:
    return load("torch", "k-means of tensors")
