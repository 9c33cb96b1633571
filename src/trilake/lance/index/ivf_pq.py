"""IVF_PQ: an approximate, compact vector index.

Each vector belongs to the partition with the nearest centroid (IVF).  Its residual is split into sub-vectors, and each
sub-vector is stored as the number of its nearest codebook entry, one of 256 (product quantization, PQ).  A search scans
the partitions with the nearest centroids and compares codes; refining compares the full vectors of the best rows.

``index.idx`` has the codes and row ids of each partition, then the centroids and the codebook.  The functions here work
on arrays: :func:`encode`, :func:`assign` and :func:`kmeans_sums` can run on many machines, and
:func:`write_partitions` combines their results.  :mod:`trilake.lance.index.vector_index` searches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from trilake.errors import InvalidArgumentError
from trilake.lance.file import framing
from trilake.lance.index import kernels
from trilake.lance.proto import index_pb2
from trilake.storage.base import Store

Floats = npt.NDArray[np.float32]
#: Codes of PQ and SQ are bytes; IVF_FLAT stores vectors.
Codes = npt.NDArray[Any]
RowIds = npt.NDArray[np.uint64]
#: Returns the codes and row ids of a partition.
Rows = Callable[[int], tuple[Codes, RowIds]]

FILE = "index.idx"
WORDS = 256
METRICS = {"l2": index_pb2.L2, "cosine": index_pb2.COSINE, "dot": index_pb2.DOT}
_BLOCK = 4096
#: Number of set bits of each byte.
_ONES = np.array([i.bit_count() for i in range(256)], np.uint8)
#: Maximum total size of centroids for which a loop is faster than a matrix product.
_SMALL = 1 << 14
#: k-means stops when the squared movement of the centroids is less than this fraction of their squared norms.
_TOLERANCE = 1e-6

#: Sum (float64) and number of the vectors nearest to each centroid.
Sums = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class Partitioned:
    """Base class of vector indices: a metric and partition centroids."""

    metric: str
    centroids: Floats
    legacy: bool

    @property
    def pieces(self) -> int:
        """Number of sub-vectors."""
        return 1

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 8

    @property
    def dimension(self) -> int:
        return int(self.centroids.shape[1])

    @property
    def has_residuals(self) -> bool:
        """Whether codes encode residuals instead of vectors."""
        return self.legacy or self.metric != "dot"

    @property
    def partition_metric(self) -> str:
        """Metric for finding the partition of a prepared vector."""
        return "l2" if not self.legacy and self.metric == "cosine" else self.metric

    def prepared(self, vectors: Floats) -> Floats:
        """Normalize vectors if the metric requires it."""
        return unit(vectors) if not self.legacy and self.metric == "cosine" else vectors


@dataclass(frozen=True, eq=False)
class Model(Partitioned):
    """A trained IVF_PQ model.

    Parameters
    ----------
    centroids: shape (partitions, dimension).
    words: codebook of shape (sub-vectors, 256, dimension / sub-vectors); 16 entries for codes of 4 bits.
    legacy: whether the index has files of the legacy format.  In 2.x, ``cosine`` vectors are normalized and compared by
        L2, and ``dot`` codes encode vectors, not residuals.
    numbers: numpy type code of the column's values, which the files also use.
    """

    metric: str
    centroids: Floats
    words: Floats
    legacy: bool = True
    numbers: str = "f4"

    @property
    def pieces(self) -> int:
        return len(self.words)

    @property
    def bits(self) -> int:
        return int(self.words.shape[1]).bit_length() - 1

    @property
    def kind(self) -> str:
        return "IVF_PQ"

    def residuals(self, vectors: Floats, partition: npt.NDArray[np.int32]) -> Floats:
        """Return what codes encode: residuals, or prepared vectors."""
        return vectors - self.centroids[partition] if self.has_residuals else vectors

    def codes(self, vectors: Floats, partition: npt.NDArray[np.int32]) -> Codes:
        """Encode prepared vectors, one row of codes per vector."""
        pieces, _, width = self.words.shape
        codes = np.empty((len(vectors), pieces), np.uint8)
        residuals = self.residuals(vectors, partition).reshape(len(vectors), pieces, width)
        for m in range(pieces):
            codes[:, m] = kernels.nearest(np.ascontiguousarray(residuals[:, m]), self.words[m], np.uint8)
        return codes


@dataclass(frozen=True, eq=False)
class VectorModel(Partitioned):
    """A model of an index without PQ: full vectors (IVF_FLAT), or a byte per value between ``bounds`` (IVF_SQ)."""

    metric: str
    centroids: Floats
    bounds: tuple[float, float] | None = None
    legacy: bool = False
    numbers: str = "f4"

    @property
    def kind(self) -> str:
        return "IVF_FLAT" if self.bounds is None else "IVF_SQ"

    def codes(self, vectors: Floats, _: npt.NDArray[np.int32]) -> Codes:
        """Encode prepared vectors."""
        if self.bounds is None:
            return vectors.astype(self.numbers, copy=False)
        low, high = self.bounds
        codes: Codes = np.clip((vectors - low) * (255 / (high - low)), 0, 255).astype(np.uint8)
        return codes

    def vectors(self, codes: npt.NDArray[Any]) -> Floats:
        """Decode codes to vectors."""
        if self.bounds is None:
            return np.asarray(codes, np.float32)
        low, high = self.bounds
        step = (high - low) / 255
        # Encoding rounds down, so decode to the middle of a step.
        decoded: Floats = codes.astype(np.float32) * np.float32(step) + np.float32(low + step / 2)
        return decoded


def unit(vectors: Floats) -> Floats:
    """Normalize vectors to length 1, except zero vectors."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    whole: Floats = np.divide(vectors, lengths, out=vectors.copy(), where=lengths > 0)
    return whole


def distances(vectors: Floats, query: Floats, metric: str) -> Floats:
    """Return the distance of each vector from ``query``: squared L2, 1 - cosine, 1 - dot product, or Hamming.

    >>> distances(np.array([[3, 4], [0, 1]], np.float32), np.array([0, 1], np.float32), "l2").tolist()
    [18.0, 0.0]
    """
    distance: Floats
    if metric == "hamming":  # null vectors have NaN distances, which the caller drops
        bits = _ONES[np.nan_to_num(vectors).astype(np.uint8) ^ query.astype(np.uint8)]
        distance = bits.sum(axis=1, dtype=np.float32)
        return distance
    if metric == "l2":
        difference = vectors - query
        distance = np.einsum("ij,ij->i", difference, difference)
        return distance
    product = vectors @ query
    if metric == "cosine":
        with np.errstate(divide="ignore", invalid="ignore"):
            product = product / (np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) * np.sqrt(query @ query))
    distance = 1 - product
    return distance


# --- training --------------------------------------------------------------------------------------------------------


def assign(vectors: Floats, centroids: Floats, metric: str = "l2") -> npt.NDArray[np.int32]:
    """Return the index of the nearest centroid for each vector.

    >>> assign(np.array([[1, 0], [0, 3]], np.float32), np.array([[0, 2], [2, 0]], np.float32)).tolist()
    [1, 0]
    """
    if metric == "l2" and centroids.size <= _SMALL:
        return kernels.nearest(np.ascontiguousarray(vectors), centroids)
    parts = [
        centroid_distances(vectors[i : i + _BLOCK], centroids, metric).argmin(1) for i in range(0, len(vectors), _BLOCK)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int32)


def centroid_distances(vectors: Floats, centroids: Floats, metric: str) -> Floats:
    """Return scores of shape (vectors, centroids) that are smaller for nearer centroids, but are not distances."""
    products: Floats = vectors @ centroids.T
    if metric == "dot":
        return np.negative(products)
    squares: Floats = np.einsum("ij,ij->i", centroids, centroids)
    if metric == "cosine":
        products /= np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
        return np.negative(products)
    products *= -2
    products += squares
    return products


def kmeans_sums(vectors: Floats, centroids: Floats, metric: str = "l2") -> Sums:
    """Do one k-means step: sums (float64) and counts of the vectors nearest to each centroid.

    The results of several machines can be added up for :func:`kmeans_update`.
    """
    if metric == "l2" and centroids.size <= _SMALL:
        return kernels.word_sums(np.ascontiguousarray(vectors), centroids)
    nearest = assign(vectors, centroids, metric)
    counts = np.bincount(nearest, minlength=len(centroids))
    order = np.argsort(nearest, kind="stable")
    sums = np.zeros(centroids.shape, np.float64)
    present = np.flatnonzero(counts)
    if len(present):
        starts = (np.cumsum(counts) - counts)[present]
        sums[present] = np.add.reduceat(vectors[order].astype(np.float64), starts, axis=0)
    return sums, counts


def kmeans_update(
    centroids: Floats, sums: npt.NDArray[Any], counts: npt.NDArray[Any], rng: np.random.Generator
) -> Floats:
    """Return the next centroids; a centroid without vectors moves next to a popular one."""
    new = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centroids).astype(np.float32)
    empty = np.flatnonzero(counts == 0)
    if len(empty) and len(empty) < len(centroids):
        donors = rng.choice(len(centroids), len(empty), p=counts / counts.sum())
        new[empty] = new[donors] * (1 + rng.normal(0, 1e-3, (len(empty), centroids.shape[1]))).astype(np.float32)
    return new


def kmeans(
    vectors: Floats,
    k: int,
    rng: np.random.Generator,
    *,
    metric: str = "l2",
    iterations: int = 20,
    sums: Callable[[Floats, Floats], Sums] | None = None,
    centroids: Floats | None = None,
) -> Floats:
    """Compute ``k`` centroids of shape (k, dimension), from initial ``centroids`` or random vectors.

    ``sums`` computes a step, possibly distributed; then ``vectors`` may be a sample.  Stops when the centroids hardly
    move.  Raises ``InvalidArgumentError`` without vectors.
    """
    if not len(vectors) or k < 1:
        raise InvalidArgumentError(
            f"cannot compute {k} centroids from {len(vectors)} vectors", help="both numbers must be at least 1"
        )
    if centroids is None:
        centroids = vectors[rng.choice(len(vectors), k, replace=len(vectors) < k)].astype(np.float32)
    step = sums or partial(kmeans_sums, metric=metric)
    for _ in range(iterations):
        new = kmeans_update(centroids, *step(vectors, centroids), rng)
        moved, size = float(np.square(new - centroids).sum()), float(np.square(new).sum())
        centroids = new
        if moved <= _TOLERANCE * size:
            break
    return centroids


def train_centroids(
    vectors: Floats,
    partitions: int,
    rng: np.random.Generator,
    *,
    metric: str = "l2",
    iterations: int = 20,
    legacy: bool = True,
    sums: Callable[[Floats, Floats], Sums] | None = None,
) -> Floats:
    """Train the partition centroids, see :func:`kmeans` and :class:`Model`.

    In files of 2.x, vectors are normalized for training, except for ``l2``.  For ``dot`` the centroids are also
    normalized, because long centroids would attract most vectors.
    """
    if legacy or metric == "l2":
        return kmeans(vectors, partitions, rng, metric=metric, iterations=iterations, sums=sums)
    centroids = kmeans(unit(vectors), partitions, rng, iterations=iterations, sums=sums)
    return unit(centroids) if metric == "dot" else centroids


def step_vectors(vectors: Floats, metric: str, *, legacy: bool) -> tuple[Floats, str]:
    """Return the vectors and the metric for one distributed k-means step of :func:`train_centroids`."""
    return (unit(vectors), "l2") if not legacy and metric != "l2" else (vectors, metric)


def sample_residuals(vectors: Floats, centroids: Floats, metric: str, *, legacy: bool) -> Floats:
    """Return the training data of the codebook."""
    model = Model(metric, centroids, np.empty((0, 0, 0), np.float32), legacy)
    vectors = model.prepared(vectors)
    if not model.has_residuals:
        return vectors
    return model.residuals(vectors, assign(vectors, centroids, model.partition_metric))


def train_words(
    residuals: Floats, pieces: int, rng: np.random.Generator, *, iterations: int = 20, bits: int = 8
) -> Floats:
    """Train the codebook for codes of ``bits`` bits on residuals of a sample; one thread per sub-vector."""
    chances = rng.spawn(pieces)

    def train(piece: int) -> Floats:
        return piece_words(residuals, pieces, piece, chances[piece], iterations=iterations, bits=bits)

    with ThreadPoolExecutor(min(pieces, os.cpu_count() or 1), thread_name_prefix="lance") as pool:
        return np.stack(list(pool.map(train, range(pieces))))


def piece_words(
    residuals: Floats, pieces: int, piece: int, rng: np.random.Generator, *, iterations: int = 20, bits: int = 8
) -> Floats:
    """Train the codebook of one sub-vector.  Raises ``InvalidArgumentError`` without vectors."""
    vectors = np.ascontiguousarray(residuals.reshape(len(residuals), pieces, -1)[:, piece])
    return kmeans(vectors, 1 << bits, rng, iterations=iterations)


def check(metric: str, dimension: int, pieces: int) -> None:
    """Raise ``InvalidArgumentError`` for invalid parameters of an index."""
    if metric not in METRICS:
        raise InvalidArgumentError(f"unknown metric {metric!r}", help=f"metrics are {', '.join(METRICS)}")
    if pieces < 1 or dimension % pieces:
        raise InvalidArgumentError(
            f"dimension ({dimension}) must be divisible by num_sub_vectors ({pieces})",
            help="pass a num_sub_vectors that divides the dimension",
        )


def encode(model: Model | VectorModel, vectors: Floats) -> tuple[npt.NDArray[np.int32], Codes]:
    """Return the partition and the codes of each vector.  The caller must drop vectors with NaN or infinity."""
    vectors = model.prepared(vectors)
    partition = assign(vectors, model.centroids, model.partition_metric)
    return partition, model.codes(vectors, partition)


# --- writing ---------------------------------------------------------------------------------------------------------


def by_partition(model: Partitioned, partition: npt.NDArray[np.int32], codes: Codes, row_ids: RowIds) -> Rows:
    """Group encoded rows by partition."""
    order = np.argsort(partition, kind="stable")
    codes, row_ids = codes[order], row_ids[order].astype("<u8", copy=False)
    lengths = np.bincount(partition, minlength=len(model.centroids))
    ends = np.cumsum(lengths)

    def rows(number: int) -> tuple[Codes, RowIds]:
        part = slice(int(ends[number] - lengths[number]), int(ends[number]))
        return codes[part], row_ids[part]

    return rows


def write_partitions(
    store: Store,
    folder: str,
    model: Model,
    rows: Rows,
    *,
    name: str,
    column: str,
    dataset_version: int,
) -> None:
    """Write an index; ``rows`` is called for one partition after another."""
    pieces, _, width = model.words.shape
    index = index_pb2.Index(name=name, columns=[column], dataset_version=dataset_version)
    vector = index.vector_index
    vector.spec_version, vector.dimension, vector.metric_type = 1, model.dimension, METRICS[model.metric]
    ivf = vector.stages.add().ivf
    ivf.centroids_tensor.CopyFrom(tensor(model.centroids, model.centroids.shape, model.numbers))
    pq = vector.stages.add().pq
    pq.num_bits, pq.num_sub_vectors, pq.dimension = 8, pieces, model.dimension
    # The shape follows the specification, although the numbers are grouped by sub-vector.
    pq.codebook_tensor.CopyFrom(tensor(model.words, (WORDS, pieces * width), model.numbers))
    position = 0
    with store.open_output(f"{folder}/{FILE}") as out:
        for number in range(len(model.centroids)):
            codes, ids = rows(number)
            ivf.offsets.append(position)
            ivf.lengths.append(len(ids))
            data = codes.tobytes() + ids.astype("<u8", copy=False).tobytes()
            out.write(data)
            index.checksums.partitions.append(crc32(data))
            position += len(ids) * (pieces + 8)
        index.checksums.model = model_checksum(model, ivf.offsets, ivf.lengths)
        out.write(framing.frame(index) + framing.footer(position))


def model_checksum(model: Model, offsets: Sequence[int], lengths: Sequence[int]) -> int:
    """Return the checksum of the file except for its partitions."""
    checksum = crc32(f"{model.metric} {model.centroids.shape} {model.words.shape}".encode())
    for values in (model.centroids, model.words):
        stored = values.astype(f"<{model.numbers}", copy=False)
        checksum = crc32(stored.astype("<f4", copy=False).tobytes(), checksum)
    return crc32(np.array([offsets, lengths], "<u8").tobytes(), checksum)


#: Tensor types by numpy type code.
NUMBERS = {"f2": index_pb2.Tensor.FLOAT16, "f4": index_pb2.Tensor.FLOAT32, "f8": index_pb2.Tensor.FLOAT64}


def tensor(values: Floats, shape: Sequence[int], numbers: str = "f4") -> index_pb2.Tensor:
    """Convert an array to a message, with the given shape."""
    data = values.astype(f"<{numbers}", copy=False).tobytes()
    return index_pb2.Tensor(data_type=NUMBERS[numbers], shape=list(shape), data=data)


def type_code(tensor: index_pb2.Tensor) -> str:
    """Return the numpy type code of a message's numbers; ``f4`` for types that trilake does not write."""
    return next((code for code, kind in NUMBERS.items() if kind == tensor.data_type), "f4")
