"""``KMeans``, timestamp parsing, and validation of vector indices."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.vector_indices import partitions_for
from trilake.lance.file.errors import NotTrainedError, WrongTypeError
from trilake.lance.index import ivf_pq

Floats = npt.NDArray[np.float32]
#: Its name in pylance.
_target_partition_size_to_num_partitions = partitions_for


def sanitize_ts(ts: Any) -> dt.datetime:
    """Convert a timestamp to a naive datetime in local time.

    Raises ``InvalidArgumentError`` for an invalid string, and its subclass ``WrongTypeError``.

    >>> sanitize_ts("2024-01-02 03:04:05")
    datetime.datetime(2024, 1, 2, 3, 4, 5)
    """
    if isinstance(ts, str):
        try:
            ts = dt.datetime.fromisoformat(ts)
        except ValueError as e:
            raise InvalidArgumentError(f"Failed to parse timestamp string {ts}", help="use ISO 8601") from e
    if hasattr(ts, "to_pydatetime"):
        ts = ts.to_pydatetime()
    if not isinstance(ts, dt.datetime):
        raise WrongTypeError(
            f"Unrecognized version timestamp {ts} of type {type(ts)}", help="pass a datetime or string"
        )
    return ts if ts.tzinfo is None else ts.astimezone().replace(tzinfo=None)


def local_time(ns: int) -> dt.datetime:
    """Convert ns since the Unix epoch to a naive datetime in local time, to microseconds."""
    seconds, rest = divmod(ns, 10**9)
    return dt.datetime.fromtimestamp(seconds, dt.UTC).astimezone().replace(tzinfo=None, microsecond=rest // 1000)


def td_to_micros(td: dt.timedelta) -> int:
    """Return the microseconds of a timedelta.

    >>> td_to_micros(dt.timedelta(seconds=2))
    2000000
    """
    return round(td / dt.timedelta(microseconds=1))


def validate_vector_index(
    dataset: Any, column: str, refine_factor: int = 5, sample_size: int | None = None, pass_threshold: float = 1.0
) -> None:
    """Check that searches for stored vectors find them.

    Parameters
    ----------
    dataset: a ``LanceDataset``.
    column: the vector column.
    refine_factor: refine factor of the searches.
    sample_size: number of vectors to search for, by default all.
    pass_threshold: required fraction of successful searches.

    Null and non-finite vectors are skipped.  Raises ``InvalidArgumentError``, a ``ValueError``, if too few searches
    succeed, and ``UnknownColumnError``.

    >>> from trilake.lance import write_dataset
    >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(2048), pa.float32()), 4)
    >>> ds = write_dataset(pa.table({"v": vectors}), "memory://doc-lance-validate-index")
    >>> indexed = ds.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4, seed=1)
    >>> validate_vector_index(indexed, "v", sample_size=8, refine_factor=20)
    """
    whole = sample_size is None or sample_size >= dataset.count_rows()
    rows = dataset.to_table([column]) if whole else dataset.sample(sample_size, [column])
    vectors = [np.asarray(v, np.float64) for v in rows.column(0).to_pylist() if v is not None]
    queries = [v for v in vectors if np.isfinite(v).all()]
    nearest = {"column": column, "k": 1, "refine_factor": refine_factor}
    distances = [dataset.to_table([], nearest={**nearest, "q": q})["_distance"].to_pylist() for q in queries]
    passed = sum(bool(each) and abs(each[0]) < 1e-6 for each in distances)
    if passed < pass_threshold * len(queries):
        raise InvalidArgumentError(
            f"Vector index failed sanity check: it finds {passed} of {len(queries)} vectors",
            help="search with more nprobes or a larger refine_factor, or rebuild the index",
            column=column,
        )


class KMeans:
    """K-means clustering of float32 vectors.

    Parameters
    ----------
    k: number of clusters.
    metric_type: ``l2``, ``cosine`` or ``dot``.
    max_iters: maximum number of iterations.
    centroids: vectors that :meth:`predict` uses before :meth:`fit`, which starts from them.
    seed: random seed for the initial centroids.

    >>> model = KMeans(2)
    >>> model.fit(np.array([[0, 0], [0, 1], [9, 9], [9, 8]], np.float32))
    >>> found = model.predict(np.array([[0, 0], [9, 9]], np.float32)).to_pylist()
    >>> len(set(found))
    2
    """

    def __init__(
        self, k: int, metric_type: str = "l2", max_iters: int = 50, centroids: Any = None, *, seed: int = 0
    ) -> None:
        metric = {"euclidean": "l2"}.get(metric_type.lower(), metric_type.lower())
        if metric not in ivf_pq.METRICS:
            raise InvalidArgumentError(f"metric_type must be one of 'l2', 'dot', 'cosine', got: {metric_type}")
        self.k, self._metric_type, self._max_iters, self._seed = k, metric, max_iters, seed
        self._initial: Floats | None = None if centroids is None else _matrix(centroids)
        if self._initial is not None and len(self._initial) != k:
            raise InvalidArgumentError(f"expected {k} centroids, got {len(self._initial)}")
        self._centroids = self._initial

    def __repr__(self) -> str:
        return f"lance.KMeans(k={self.k}, metric_type={self._metric_type})"

    @property
    def centroids(self) -> pa.Array | None:
        """Centroids as a tensor array; ``None`` before :meth:`fit`."""
        return None if self._centroids is None else pa.FixedShapeTensorArray.from_numpy_ndarray(self._centroids)

    def fit(self, data: Any) -> None:
        """Train on vectors: a 2-dimensional numpy array, or a column of vectors or tensors."""
        vectors = _matrix(data)
        rng = np.random.default_rng(self._seed)
        how: dict[str, Any] = {"metric": self._metric_type, "iterations": self._max_iters}
        self._centroids = ivf_pq.kmeans(vectors, self.k, rng, **how, centroids=self._initial)

    def predict(self, data: Any) -> pa.UInt32Array:
        """Return the nearest centroid of each vector."""
        if self._centroids is None:
            raise NotTrainedError("the model is not trained", help="call fit first")
        return pa.array(ivf_pq.assign(_matrix(data), self._centroids, self._metric_type), pa.uint32())


def _matrix(data: Any) -> Floats:
    if isinstance(data, pa.FixedShapeTensorArray):
        if len(data.type.shape) != 1:
            raise InvalidArgumentError(f"Fixed shape tensor array must be a 1-D array, got {len(data.type.shape)}-D")
        data = data.storage
    if isinstance(data, pa.FixedSizeListArray):
        if data.type.value_type != pa.float32():
            raise InvalidArgumentError(f"Array must be float32 type, got: {data.type.value_type}")
        matrix: Floats = data.flatten().to_numpy(zero_copy_only=False).reshape(len(data), -1)
        return matrix
    if not isinstance(data, np.ndarray):
        raise InvalidArgumentError("Data must be a FixedSizeListArray, Tensor or numpy array")
    if data.ndim != 2:
        raise InvalidArgumentError(f"Numpy array must be a 2-D array, got {data.ndim}-D")
    if data.dtype != np.float32:
        raise InvalidArgumentError(f"Numpy array must be float32 type, got: {data.dtype}")
    return data
