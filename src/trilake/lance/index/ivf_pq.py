"""IVF_PQ: an index of vectors that is small and nearly right.

Vectors are parted by the nearest of some centroids (IVF).  What is left of a vector, its residual, is cut into pieces,
and for each piece the number of the nearest of 256 words is kept (product quantisation, PQ).  A search looks into the
partitions whose centroids are nearest to the query, and at words instead of vectors; comparing the vectors of the best
rows afterwards (refining) makes up for that.

``index.idx`` has for each partition the codes of its rows, then their row ids; behind them the centroids and words.
Everything here is a function of arrays: :func:`encode`, :func:`assign` and :func:`kmeans_sums` are made to run where
the rows are, on many machines, and :func:`write` where their results come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trilake.errors import CorruptFileError, InvalidArgumentError, UnsupportedProtocolError
from trilake.lance import framing
from trilake.lance.data_file import open_source, read_message
from trilake.lance.framing import FOOTER
from trilake.lance.pages_source import Source
from trilake.lance.proto import index_pb2
from trilake.storage.base import Store

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]
RowIds = npt.NDArray[np.uint64]

FILE = "index.idx"
WORDS = 256
METRICS = {"l2": index_pb2.L2, "cosine": index_pb2.COSINE, "dot": index_pb2.DOT}
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Model:
    """What was learnt from a sample of vectors.

    Parameters
    ----------
    metric: ``l2``, ``cosine`` or ``dot``; by it partitions are chosen and distances are given.
    centroids: of the partitions, shape (partitions, dimension).
    words: shape (pieces, 256, dimension / pieces).
    """

    metric: str
    centroids: Floats
    words: Floats

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.centroids.shape[1])


# --- learning --------------------------------------------------------------------------------------------------------


def assign(vectors: Floats, centroids: Floats, metric: str = "l2") -> npt.NDArray[np.int32]:
    """The nearest centroid of each vector.

    >>> assign(np.array([[1, 0], [0, 3]], np.float32), np.array([[0, 2], [2, 0]], np.float32)).tolist()
    [1, 0]
    """
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
    result: Floats = squares - 2 * products
    return result


def kmeans_sums(vectors: Floats, centroids: Floats, metric: str = "l2") -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """One step of k-means over some of the vectors: sums (float64) and counts of those nearest to each centroid.

    Sums and counts of several machines are added up for :func:`kmeans_update`.
    """
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


def kmeans(vectors: Floats, k: int, rng: np.random.Generator, *, metric: str = "l2", iterations: int = 20) -> Floats:
    """``k`` centroids of some vectors, shape (k, dimension).  Raises ``InvalidArgumentError`` without vectors."""
    if not len(vectors) or k < 1:
        raise InvalidArgumentError(
            f"{k} centroids of {len(vectors)} vectors", help="there must be at least one of each"
        )
    centroids = vectors[rng.choice(len(vectors), k, replace=len(vectors) < k)].astype(np.float32)
    for _ in range(iterations):
        sums, counts = kmeans_sums(vectors, centroids, metric)
        new = kmeans_update(centroids, sums, counts, rng)
        if np.array_equal(new, centroids):
            break
        centroids = new
    return centroids


def train(
    sample: Floats,
    partitions: int,
    pieces: int,
    rng: np.random.Generator,
    *,
    metric: str = "l2",
    iterations: int = 20,
) -> Model:
    """Learn centroids and words from a sample of vectors.

    Parameters
    ----------
    sample: shape (vectors, dimension); 256 vectors a partition are plenty.
    partitions: number of centroids; the square root of the number of rows is usual.
    pieces: in how many a vector is cut; must divide the dimension.
    rng: the only source of chance.

    Raises ``InvalidArgumentError``.
    """
    check(metric, sample.shape[1], pieces)
    sample = sample[np.isfinite(sample).all(axis=1)].astype(np.float32, copy=False)
    centroids = kmeans(sample, partitions, rng, metric=metric, iterations=iterations)
    residuals = sample - centroids[assign(sample, centroids, metric)]
    return Model(metric, centroids, train_words(residuals, pieces, rng, iterations=iterations))


def train_words(residuals: Floats, pieces: int, rng: np.random.Generator, *, iterations: int = 20) -> Floats:
    """The 256 words of each piece, from residuals of a sample."""
    cut = residuals.reshape(len(residuals), pieces, -1)
    return np.stack([kmeans(np.ascontiguousarray(cut[:, m]), WORDS, rng, iterations=iterations) for m in range(pieces)])


def check(metric: str, dimension: int, pieces: int) -> None:
    """Raise ``InvalidArgumentError`` unless an index can be made so."""
    if metric not in METRICS:
        raise InvalidArgumentError(f"metric {metric!r} is unknown", help=f"metrics are {', '.join(METRICS)}")
    if pieces < 1 or dimension % pieces:
        raise InvalidArgumentError(
            f"a vector of {dimension} numbers cannot be cut into {pieces} pieces", help="choose a divisor"
        )


def encode(model: Model, vectors: Floats) -> tuple[npt.NDArray[np.int32], Codes]:
    """Partition of each vector, and its codes, shape (vectors, pieces).

    Vectors with NaN or infinity have no place in an index: the caller leaves them out.
    """
    pieces = len(model.words)
    partition = assign(vectors, model.centroids, model.metric)
    codes = np.empty((len(vectors), pieces), np.uint8)
    residuals = (vectors - model.centroids[partition]).reshape(len(vectors), pieces, -1)
    for m in range(pieces):
        codes[:, m] = assign(np.ascontiguousarray(residuals[:, m]), model.words[m])
    return partition, codes


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
    order = np.argsort(partition, kind="stable")
    codes, row_ids = codes[order], row_ids[order].astype("<u8", copy=False)
    lengths = np.bincount(partition, minlength=len(model.centroids))
    ends = np.cumsum(lengths)
    pieces, _, width = model.words.shape
    offsets = (ends - lengths) * (pieces + 8)
    index = index_pb2.Index(name=name, columns=[column], dataset_version=dataset_version)
    vector = index.vector_index
    vector.spec_version, vector.dimension, vector.metric_type = 1, model.dimension, METRICS[model.metric]
    ivf = vector.stages.add().ivf
    ivf.offsets.extend(offsets.tolist())
    ivf.lengths.extend(lengths.tolist())
    ivf.centroids_tensor.CopyFrom(_tensor(model.centroids, model.centroids.shape))
    pq = vector.stages.add().pq
    pq.num_bits, pq.num_sub_vectors, pq.dimension = 8, pieces, model.dimension
    # The shape is what the format says; the numbers are in the order of pieces.
    pq.codebook_tensor.CopyFrom(_tensor(model.words, (WORDS, pieces * width)))
    with store.open_output(f"{folder}/{FILE}") as out:
        for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True):
            out.write(codes[start:end].tobytes())
            out.write(row_ids[start:end].tobytes())
        out.write(framing.frame(index) + framing.footer(len(codes) * (pieces + 8)))


def _tensor(values: Floats, shape: Sequence[int]) -> index_pb2.Tensor:
    return index_pb2.Tensor(
        data_type=index_pb2.Tensor.FLOAT32, shape=list(shape), data=values.astype("<f4", copy=False).tobytes()
    )


def _numbers(tensor: index_pb2.Tensor, old: Sequence[float], shape: tuple[int, ...], file: str) -> Floats:
    """The numbers of a tensor, or of the list that there was before; exactly as many as ``shape`` says."""
    if len(old):
        values = np.array(old, np.float32)
    elif tensor.data_type != index_pb2.Tensor.FLOAT32:
        raise UnsupportedProtocolError("the index is not of 32-bit floating point numbers", file=file)
    else:
        values = np.frombuffer(tensor.data[: len(tensor.data) // 4 * 4], "<f4")
    if len(values) != prod(shape) or not np.isfinite(values).all():
        raise CorruptFileError(f"the index has {len(values)} numbers for an array of shape {shape}", file=file)
    return values.reshape(shape)


class VectorIndex:
    """An open index; :meth:`open` reads centroids and words, a search the partitions it looks into."""

    def __init__(self, source: Source, model: Model, message: index_pb2.Index, offsets: Any, lengths: Any) -> None:
        self._source = source
        self._offsets, self._lengths = offsets, lengths
        #: What the index was made with.
        self.model = model
        #: Name of the index, and the column's.
        self.name, self.columns = message.name, tuple(message.columns)
        #: Version of the dataset that it was made of.
        self.dataset_version = int(message.dataset_version)

    @classmethod
    def open(cls, store: Store, folder: str) -> VectorIndex:
        """Open the index in a folder.

        Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for other kinds of index.
        """
        source = open_source(store, f"{folder}/{FILE}")
        file, size = source.file, source.size
        tail = source.read(max(size - FOOTER.size, 0), min(size, FOOTER.size)).to_pybytes()
        position = framing.parse_footer(tail, size, file=file, damaged=CorruptFileError)
        message = read_message(source, position, index_pb2.Index)
        vector = message.vector_index
        stages = [stage.WhichOneof("stage") for stage in vector.stages]
        metric = next((name for name, number in METRICS.items() if number == vector.metric_type), None)
        if stages != ["ivf", "pq"] or metric is None or vector.stages[1].pq.num_bits != 8:
            raise UnsupportedProtocolError(
                f"the index is none of IVF_PQ with 8 bits, but of stages {stages}", file=file
            )
        ivf, pq = vector.stages[0].ivf, vector.stages[1].pq
        dimension, pieces = vector.dimension, pq.num_sub_vectors
        if not pieces or not dimension or dimension % pieces or pq.dimension != dimension:
            raise CorruptFileError(f"an index of {pieces} pieces of {dimension} numbers cannot be", file=file)
        offsets, lengths = np.array(ivf.offsets, np.uint64), np.array(ivf.lengths, np.uint64)
        limit = np.uint64(size)
        if len(offsets) != len(lengths) or not len(offsets) or (offsets > limit).any() or (lengths > limit).any():
            raise CorruptFileError("a partition of the index is not in its file", file=file)
        if (offsets + lengths * np.uint64(pieces + 8) > limit).any():
            raise CorruptFileError("a partition of the index is not in its file", file=file)
        centroids = _numbers(ivf.centroids_tensor, ivf.centroids, (len(offsets), dimension), file)
        words = _numbers(pq.codebook_tensor, pq.codebook, (pieces, WORDS, dimension // pieces), file)
        return cls(source, Model(metric, centroids, words), message, offsets.tolist(), lengths.tolist())

    @property
    def num_rows(self) -> int:
        """Rows in the index."""
        return int(sum(self._lengths))

    def statistics(self) -> dict[str, Any]:
        """What the index is, and the sizes of its partitions."""
        return {
            "index_type": "IVF_PQ",
            "metric_type": self.model.metric,
            "num_partitions": len(self._lengths),
            "num_sub_vectors": len(self.model.words),
            "dimension": self.model.dimension,
            "num_rows": self.num_rows,
            "partition_sizes": list(self._lengths),
        }

    def partition(self, number: int) -> tuple[Codes, RowIds]:
        """Codes, shape (rows, pieces), and row ids of a partition."""
        pieces, rows, start = len(self.model.words), self._lengths[number], self._offsets[number]
        data = np.frombuffer(self._source.read(start, rows * (pieces + 8)), np.uint8)
        return data[: rows * pieces].reshape(rows, pieces), np.frombuffer(data[rows * pieces :].tobytes(), "<u8")

    def search(
        self,
        query: Floats,
        k: int,
        *,
        nprobes: int = 1,
        refine_factor: int | None = None,
        allowed: RowIds | None = None,
    ) -> tuple[RowIds, Floats]:
        """The rows whose words are nearest to a vector, nearest first, and how far they are.

        Parameters
        ----------
        query: shape (dimension,).
        k: how many; ``refine_factor`` times as many are returned, for the caller to compare their vectors.
        nprobes: partitions to look into.
        allowed: sorted ids of the rows that may be found; ``None`` for all.

        Distances are those of the vectors that the words stand for: squared L2, 1 - cosine, or the negative dot
        product.  Raises ``InvalidArgumentError``.
        """
        model = self.model
        query = np.asarray(query, np.float32)
        if query.shape != (model.dimension,) or k < 1 or nprobes < 1 or (refine_factor or 1) < 1:
            raise InvalidArgumentError(
                f"a search for {k} rows by a vector of shape {query.shape} in {nprobes} partitions cannot be",
                help=f"the index has vectors of {model.dimension} numbers; k, nprobes and refine_factor are 1 or more",
            )
        k *= refine_factor or 1
        near = centroid_distances(query[None], model.centroids, model.metric)[0]
        ids, found = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        for number in np.argsort(near, kind="stable")[:nprobes].tolist():
            codes, rows = self.partition(number)
            if allowed is not None:
                keep = np.isin(rows, allowed)
                codes, rows = codes[keep], rows[keep]
            ids.append(rows)
            found.append(code_distances(model, number, codes, query))
        all_ids, all_found = np.concatenate(ids), np.concatenate(found)
        if len(all_found) > 4 * k:
            # The k-th least first: all that are no farther are candidates, so that ties fall in one way.
            limit = np.partition(all_found, k - 1)[k - 1]
            near_enough = np.flatnonzero(all_found <= limit) if np.isfinite(limit) else np.arange(len(all_found))
            all_ids, all_found = all_ids[near_enough], all_found[near_enough]
        order = np.lexsort((all_ids, all_found))[:k]
        return all_ids[order], all_found[order]


def code_distances(model: Model, partition: int, codes: Codes, query: Floats) -> Floats:
    """The distances of a query from the rows of a partition, by their codes: one look-up a piece."""
    pieces, _, width = model.words.shape
    centroid = model.centroids[partition]
    if model.metric == "l2":
        difference = model.words - (query - centroid).reshape(pieces, 1, width)
        return _sum_of(np.einsum("mwd,mwd->mw", difference, difference), codes)
    dots: Floats = _sum_of(np.einsum("mwd,md->mw", model.words, query.reshape(pieces, width)), codes) + query @ centroid
    if model.metric == "dot":
        return np.negative(dots)
    whole = model.words + centroid.reshape(pieces, 1, width)
    norms = np.sqrt(_sum_of(np.einsum("mwd,mwd->mw", whole, whole), codes)) * np.sqrt(query @ query)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine: Floats = (1 - dots / norms).astype(np.float32)
    return cosine


def _sum_of(table: Floats, codes: Codes) -> Floats:
    """The sum over pieces of the entries of a table, shape (pieces, 256), that codes name."""
    total = np.zeros(len(codes), np.float32)
    for m in range(len(table)):
        total += table[m].take(codes[:, m])
    return total
