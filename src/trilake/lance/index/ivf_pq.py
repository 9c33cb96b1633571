"""IVF_PQ: an index of vectors that is small and nearly right.

Vectors are parted by the nearest of some centroids (IVF).  What is left of a vector, its residual, is cut into pieces,
and for each piece the number of the nearest of 256 words is kept (product quantisation, PQ).  A search looks into the
partitions whose centroids are nearest to the query, and at words instead of vectors; comparing the vectors of the best
rows afterwards (refining) makes up for that.

``index.idx`` has for each partition the codes of its rows, then their row ids; behind them the centroids and words.
Everything here is a function of arrays: :func:`encode`, :func:`assign` and :func:`kmeans_sums` are made to run where
the rows are, on many machines, and :func:`write` where their results come together.  Searches are those of
:mod:`trilake.lance.index.ivf_pq_index`.
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
#: Codes of PQ and of SQ are bytes; IVF_FLAT keeps vectors.
Codes = npt.NDArray[Any]
RowIds = npt.NDArray[np.uint64]

FILE = "index.idx"
WORDS = 256
METRICS = {"l2": index_pb2.L2, "cosine": index_pb2.COSINE, "dot": index_pb2.DOT}
_BLOCK = 4096
#: The bits of each byte that are set.
_ONES = np.array([i.bit_count() for i in range(256)], np.uint8)
#: Up to so many numbers of all centroids a loop is faster than a product of matrices.
_SMALL = 1 << 14
#: k-means ends where the squares of what centroids have moved are this part of their own.
_TOLERANCE = 1e-6

#: Of the vectors nearest to each centroid: their sums (float64), and how many they are.
Sums = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class Partitioned:
    """What all indices of vectors have: a metric, and centroids by which vectors are parted."""

    metric: str
    centroids: Floats
    modern: bool

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.centroids.shape[1])

    @property
    def has_residuals(self) -> bool:
        """Whether codes are of what is left of a vector, not of the vector."""
        return not (self.modern and self.metric == "dot")

    @property
    def partition_metric(self) -> str:
        """The metric by which a prepared vector finds its partition."""
        return "l2" if self.modern and self.metric == "cosine" else self.metric

    def prepared(self, vectors: Floats) -> Floats:
        """Vectors as they are compared with centroids and words."""
        return unit(vectors) if self.modern and self.metric == "cosine" else vectors


@dataclass(frozen=True, eq=False)
class Model(Partitioned):
    """What was learnt from a sample of vectors.

    Parameters
    ----------
    metric: ``l2``, ``cosine`` or ``dot``; by it partitions are chosen and distances are given.
    centroids: of the partitions, shape (partitions, dimension).
    words: shape (pieces, 256, dimension / pieces); 16 words where a code has 4 bits.
    modern: whether the index is in files of version 2.x.  There vectors of ``cosine`` have length 1 and are compared by
        L2, and codes of ``dot`` are of vectors, not of residuals.
    numbers: numpy's name of the type of the column's numbers, which files of 2.x have, too.
    """

    metric: str
    centroids: Floats
    words: Floats
    modern: bool = False
    numbers: str = "f4"

    @property
    def bits(self) -> int:
        """Of a code."""
        return int(self.words.shape[1]).bit_length() - 1

    @property
    def kind(self) -> str:
        """``IVF_PQ``."""
        return "IVF_PQ"

    def residuals(self, vectors: Floats, partition: npt.NDArray[np.int32]) -> Floats:
        """What codes are of: prepared vectors without their centroids, where these are taken off."""
        return vectors - self.centroids[partition] if self.has_residuals else vectors

    def codes(self, vectors: Floats, partition: npt.NDArray[np.int32]) -> Codes:
        """The numbers of words, a row for each prepared vector."""
        pieces, _, width = self.words.shape
        codes = np.empty((len(vectors), pieces), np.uint8)
        residuals = self.residuals(vectors, partition).reshape(len(vectors), pieces, width)
        for m in range(pieces):
            codes[:, m] = kernels.nearest(np.ascontiguousarray(residuals[:, m]), self.words[m], np.uint8)
        return codes


@dataclass(frozen=True, eq=False)
class VectorModel(Partitioned):
    """A model of an index that keeps whole vectors: as they are, or each number as a byte.

    Parameters
    ----------
    metric, centroids, numbers: see :class:`Model`.
    bounds: what the least and the greatest byte stand for; ``None`` where vectors are kept as they are.
    """

    metric: str
    centroids: Floats
    bounds: tuple[float, float] | None = None
    modern: bool = True
    numbers: str = "f4"

    @property
    def kind(self) -> str:
        """``IVF_FLAT`` or ``IVF_SQ``."""
        return "IVF_FLAT" if self.bounds is None else "IVF_SQ"

    def codes(self, vectors: Floats, _: npt.NDArray[np.int32]) -> Codes:
        """What is kept of prepared vectors."""
        if self.bounds is None:
            return vectors.astype(self.numbers, copy=False)
        low, high = self.bounds
        codes: Codes = np.clip((vectors - low) * (255 / (high - low)), 0, 255).astype(np.uint8)
        return codes

    def vectors(self, codes: npt.NDArray[Any]) -> Floats:
        """The vectors that rows stand for."""
        if self.bounds is None:
            return np.asarray(codes, np.float32)
        low, high = self.bounds
        step = (high - low) / 255
        # Numbers were rounded down: the middle of a step is nearest to them.
        decoded: Floats = codes.astype(np.float32) * np.float32(step) + np.float32(low + step / 2)
        return decoded


def unit(vectors: Floats) -> Floats:
    """The vectors with length 1; those without a direction stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    whole: Floats = np.divide(vectors, lengths, out=vectors.copy(), where=lengths > 0)
    return whole


def distances(vectors: Floats, query: Floats, metric: str) -> Floats:
    """The distance of each vector from ``query``: squared L2, 1 - cosine, 1 - the dot product, or the bits that differ.

    >>> distances(np.array([[3, 4], [0, 1]], np.float32), np.array([0, 1], np.float32), "l2").tolist()
    [18.0, 0.0]
    """
    distance: Floats
    if metric == "hamming":  # rows without a vector are NaN, and left out by the caller
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


# --- learning --------------------------------------------------------------------------------------------------------


def assign(vectors: Floats, centroids: Floats, metric: str = "l2") -> npt.NDArray[np.int32]:
    """The nearest centroid of each vector.

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
    """What orders centroids by their distance from each vector, shape (vectors, centroids); not the distance itself."""
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
    """One step of k-means over some of the vectors: sums (float64) and counts of those nearest to each centroid.

    Sums and counts of several machines are added up for :func:`kmeans_update`.
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
    """The next centroids; those that nothing is near to move beside one of the most popular."""
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
) -> Floats:
    """``k`` centroids of some vectors, shape (k, dimension).

    ``sums`` computes a step; it may add up what other machines have found, of which ``vectors`` are a sample then.
    It ends where centroids hardly move.  Raises ``InvalidArgumentError`` without vectors.
    """
    if not len(vectors) or k < 1:
        raise InvalidArgumentError(
            f"{k} centroids of {len(vectors)} vectors", help="there must be at least one of each"
        )
    centroids = vectors[rng.choice(len(vectors), k, replace=len(vectors) < k)].astype(np.float32)
    step = sums or partial(kmeans_sums, metric=metric)
    for _ in range(iterations):
        new = kmeans_update(centroids, *step(vectors, centroids), rng)
        moved, size = float(np.square(new - centroids).sum()), float(np.square(new).sum())
        centroids = new
        if moved <= _TOLERANCE * size:
            break
    return centroids


def train(
    sample: Floats,
    partitions: int,
    pieces: int,
    rng: np.random.Generator,
    *,
    metric: str = "l2",
    iterations: int = 20,
    modern: bool = False,
) -> Model:
    """Learn centroids and words from a sample of vectors.

    Parameters
    ----------
    sample: shape (vectors, dimension); 256 vectors a partition are plenty.
    partitions: number of centroids; the square root of the number of rows is usual.
    pieces: in how many a vector is cut; must divide the dimension.
    rng: the only source of chance.
    modern: see :class:`Model`.

    Raises ``InvalidArgumentError``.
    """
    check(metric, sample.shape[1], pieces)
    sample = sample[np.isfinite(sample).all(axis=1)].astype(np.float32, copy=False)
    centroids = train_centroids(sample, partitions, rng, metric=metric, iterations=iterations, modern=modern)
    residuals = sample_residuals(sample, centroids, metric, modern=modern)
    return Model(metric, centroids, train_words(residuals, pieces, rng, iterations=iterations), modern)


def train_centroids(
    vectors: Floats,
    partitions: int,
    rng: np.random.Generator,
    *,
    metric: str = "l2",
    iterations: int = 20,
    modern: bool = False,
    sums: Callable[[Floats, Floats], Sums] | None = None,
) -> Floats:
    """The centroids of the partitions of an index, see :func:`kmeans` and :class:`Model`.

    Modern ones are found among vectors of length 1, except for ``l2``, and those of ``dot`` have length 1 themselves:
    else the longest would be the nearest to most vectors.
    """
    if not modern or metric == "l2":
        return kmeans(vectors, partitions, rng, metric=metric, iterations=iterations, sums=sums)
    centroids = kmeans(unit(vectors), partitions, rng, iterations=iterations, sums=sums)
    return unit(centroids) if metric == "dot" else centroids


def step_vectors(vectors: Floats, metric: str, *, modern: bool) -> tuple[Floats, str]:
    """The vectors, and the metric, of a step of k-means that :func:`train_centroids` leaves to ``sums``."""
    return (unit(vectors), "l2") if modern and metric != "l2" else (vectors, metric)


def sample_residuals(vectors: Floats, centroids: Floats, metric: str, *, modern: bool = False) -> Floats:
    """What the words of an index are learned from."""
    model = Model(metric, centroids, np.empty((0, 0, 0), np.float32), modern)
    vectors = model.prepared(vectors)
    if not model.has_residuals:
        return vectors
    return model.residuals(vectors, assign(vectors, centroids, model.partition_metric))


def train_words(residuals: Floats, pieces: int, rng: np.random.Generator, *, iterations: int = 20) -> Floats:
    """The 256 words of each piece, from residuals of a sample; threads share the pieces."""
    chances = rng.spawn(pieces)

    def train(piece: int) -> Floats:
        return piece_words(residuals, pieces, piece, chances[piece], iterations=iterations)

    with ThreadPoolExecutor(min(pieces, os.cpu_count() or 1), thread_name_prefix="lance") as pool:
        return np.stack(list(pool.map(train, range(pieces))))


def piece_words(
    residuals: Floats, pieces: int, piece: int, rng: np.random.Generator, *, iterations: int = 20
) -> Floats:
    """The 256 words of one piece.  Raises ``InvalidArgumentError`` without vectors."""
    vectors = np.ascontiguousarray(residuals.reshape(len(residuals), pieces, -1)[:, piece])
    return kmeans(vectors, WORDS, rng, iterations=iterations)


def check(metric: str, dimension: int, pieces: int) -> None:
    """Raise ``InvalidArgumentError`` unless an index can be made so."""
    if metric not in METRICS:
        raise InvalidArgumentError(f"metric {metric!r} is unknown", help=f"metrics are {', '.join(METRICS)}")
    if pieces < 1 or dimension % pieces:
        raise InvalidArgumentError(
            f"dimension ({dimension}) must be divisible by num_sub_vectors ({pieces})", help="choose a divisor"
        )


def encode(model: Model | VectorModel, vectors: Floats) -> tuple[npt.NDArray[np.int32], Codes]:
    """Partition of each vector, and its codes, a row each.

    Vectors with NaN or infinity have no place in an index: the caller leaves them out.
    """
    vectors = model.prepared(vectors)
    partition = assign(vectors, model.centroids, model.partition_metric)
    return partition, model.codes(vectors, partition)


# --- the file --------------------------------------------------------------------------------------------------------


def write(
    store: Store,
    folder: str,
    model: Model,
    partition: npt.NDArray[np.int32],
    codes: Codes,
    row_ids: RowIds,
    *,
    name: str,
    column: str,
    dataset_version: int,
) -> None:
    """Write the index of encoded rows, in any order, to ``folder``: ``_indices/<uuid>``."""
    rows = by_partition(model, partition, codes, row_ids)
    write_partitions(store, folder, model, rows, name=name, column=column, dataset_version=dataset_version)


def by_partition(
    model: Partitioned, partition: npt.NDArray[np.int32], codes: Codes, row_ids: RowIds
) -> Callable[[int], tuple[Codes, RowIds]]:
    """The codes and ids of encoded rows, in any order, by the number of their partition."""
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
    rows: Callable[[int], tuple[Codes, RowIds]],
    *,
    name: str,
    column: str,
    dataset_version: int,
) -> None:
    """Write an index of rows that are asked for by the number of their partition, one partition after another."""
    pieces, _, width = model.words.shape
    index = index_pb2.Index(name=name, columns=[column], dataset_version=dataset_version)
    vector = index.vector_index
    vector.spec_version, vector.dimension, vector.metric_type = 1, model.dimension, METRICS[model.metric]
    ivf = vector.stages.add().ivf
    ivf.centroids_tensor.CopyFrom(tensor(model.centroids, model.centroids.shape))
    pq = vector.stages.add().pq
    pq.num_bits, pq.num_sub_vectors, pq.dimension = 8, pieces, model.dimension
    # The shape is what the format says; the numbers are in the order of pieces.
    pq.codebook_tensor.CopyFrom(tensor(model.words, (WORDS, pieces * width)))
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
    """The checksum of all that a file says besides its partitions."""
    checksum = crc32(f"{model.metric} {model.centroids.shape} {model.words.shape}".encode())
    for values in (model.centroids, model.words):
        checksum = crc32(values.astype("<f4", copy=False).tobytes(), checksum)
    return crc32(np.array([offsets, lengths], "<u8").tobytes(), checksum)


#: The types of numbers in messages, by numpy's names.
NUMBERS = {"f2": index_pb2.Tensor.FLOAT16, "f4": index_pb2.Tensor.FLOAT32, "f8": index_pb2.Tensor.FLOAT64}


def tensor(values: Floats, shape: Sequence[int], numbers: str = "f4") -> index_pb2.Tensor:
    """The message of an array, which may say another shape."""
    data = values.astype(f"<{numbers}", copy=False).tobytes()
    return index_pb2.Tensor(data_type=NUMBERS[numbers], shape=list(shape), data=data)
