"""``VectorIndex``: an IVF_PQ index that is open for searches.

Centroids and words are read when it is opened, of the rows only the partitions that a search looks into.  What codes
stand for is added up piece by piece: for each partition there is a table with the share of every word in the distance,
and a row's distance is the sum of the entries that its codes name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from trilake.errors import CorruptFileError, InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.file import framing
from trilake.lance.file.framing import FOOTER
from trilake.lance.file.sources import Source, open_source
from trilake.lance.index import kernels
from trilake.lance.index.ivf_pq import (
    FILE,
    METRICS,
    WORDS,
    Codes,
    Floats,
    Model,
    RowIds,
    centroid_distances,
    model_checksum,
    write_partitions,
)
from trilake.lance.proto import index_pb2
from trilake.lance.v1.data_file import read_message
from trilake.storage.base import Store

#: Says of row ids which may be found.
Allowed = Callable[[RowIds], npt.NDArray[np.bool_]]

REMAKE = "make the index anew: create_index(..., replace=True)"

#: Partitions that are kept where nobody says how many.
_KEPT = 256


class PartitionCache:
    """Partitions of indices that were read, those asked for last.  May be used by several threads.

    Parameters
    ----------
    size: how many are kept.
    """

    def __init__(self, size: int = _KEPT) -> None:
        self.size = size
        self._partitions: OrderedDict[tuple[str, int], tuple[Codes, RowIds]] = OrderedDict()
        self._lock = threading.Lock()
        #: Partitions that were asked for, and those among them that were here.
        self.requests = self.hits = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def resize(self, size: int) -> None:
        """Keep so many from now on."""
        with self._lock:
            self.size = size
            self._shrink()

    def find(self, file: str, numbers: Sequence[int]) -> dict[int, tuple[Codes, RowIds]]:
        """Those partitions of a file that are here."""
        with self._lock:
            cached = {i: self._partitions[file, i] for i in numbers if (file, i) in self._partitions}
            self.requests += len(numbers)
            self.hits += len(cached)
            for i in cached:
                self._partitions.move_to_end((file, i))
            return cached

    def add(self, file: str, partitions: Mapping[int, tuple[Codes, RowIds]]) -> None:
        """Keep these."""
        with self._lock:
            self._partitions.update(((file, i), partition) for i, partition in partitions.items())
            self._shrink()

    def _shrink(self) -> None:
        while len(self._partitions) > self.size:
            self._partitions.popitem(last=False)


class VectorIndex:
    """An open index.  May be used by several threads."""

    def __init__(self, source: Source, model: Model, message: index_pb2.Index, offsets: Any, lengths: Any) -> None:
        self._source = source
        self._offsets, self._lengths = offsets, lengths
        #: Where partitions that were read are kept; several indices may share one.
        self.partitions = PartitionCache()
        self._checksums = list(message.checksums.partitions)
        self._checked: set[int] = set()
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
        sizes = lengths * np.uint64(pieces + 8)
        _check_places(offsets, sizes, position, file)
        centroids = _numbers(ivf.centroids_tensor, ivf.centroids, (len(offsets), dimension), file)
        words = _numbers(pq.codebook_tensor, pq.codebook, (pieces, WORDS, dimension // pieces), file)
        if not (np.isfinite(centroids).all() and np.isfinite(words).all()):
            raise CorruptFileError("the index has centroids or words that are no numbers", file=file)
        model = Model(metric, centroids, words)
        if message.HasField("checksums") and (
            message.checksums.model != model_checksum(model, offsets.tolist(), lengths.tolist())
            or len(message.checksums.partitions) != len(offsets)
        ):
            raise CorruptFileError("the index has another checksum than it says", file=file, help=REMAKE)
        return cls(source, model, message, offsets.tolist(), lengths.tolist())

    @property
    def metric(self) -> str:
        """``l2``, ``cosine`` or ``dot``."""
        return self.model.metric

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self.model.dimension

    @property
    def num_rows(self) -> int:
        """Rows in the index."""
        return int(sum(self._lengths))

    def statistics(self) -> dict[str, Any]:
        """What the index is, under the names that users of the format know, and where its partitions are."""
        return {
            "index_type": "IVF",
            "uri": self._source.file.removeprefix("file://"),
            "metric_type": self.metric,
            "num_partitions": len(self._lengths),
            "sub_index": {
                "index_type": "PQ",
                "dimension": self.dimension,
                "metric_type": self.metric,
                "nbits": 8,
                "num_sub_vectors": len(self.model.words),
            },
            "partitions": [
                {"index": i, "length": int(n), "offset": int(at), "centroid": c.tolist()}
                for i, (n, at, c) in enumerate(zip(self._lengths, self._offsets, self.model.centroids))
            ],
        }

    # --- rows --------------------------------------------------------------------------------------------------------

    def partition(self, number: int) -> tuple[Codes, RowIds]:
        """Codes, shape (rows, pieces), and row ids of a partition."""
        return self._partitions([number])[0]

    def prewarm(self) -> None:
        """Read the partitions, as many as are kept."""
        self._partitions(range(min(len(self._lengths), self.partitions.size)))

    def _partitions(self, numbers: Sequence[int]) -> list[tuple[Codes, RowIds]]:
        partitions = self.partitions.find(self._source.file, numbers)
        ranges = [self._range(i) for i in numbers if i not in partitions]
        if ranges:
            source = self._source.window(ranges)  # one round of requests for all of them
            read = {i: self._decoded(source, i) for i in numbers if i not in partitions}
            self.partitions.add(self._source.file, read)
            partitions |= read
        return [partitions[i] for i in numbers]

    def _range(self, number: int) -> tuple[int, int]:
        return self._offsets[number], self._lengths[number] * (len(self.model.words) + 8)

    def _decoded(self, source: Source, number: int) -> tuple[Codes, RowIds]:
        pieces, rows = len(self.model.words), self._lengths[number]
        data = np.frombuffer(source.read(*self._range(number)), np.uint8)
        codes, ids = data[: rows * pieces].reshape(rows, pieces), np.frombuffer(data[rows * pieces :].tobytes(), "<u8")
        if number not in self._checked:  # once: the file does not change
            self._check(number, data, ids)
            self._checked.add(number)
        return codes, ids

    def _check(self, number: int, data: npt.NDArray[np.uint8], ids: RowIds) -> None:
        """Raise ``CorruptFileError`` unless a partition is what was written, as far as its file can tell."""
        if self._checksums:
            if crc32(data.tobytes()) != self._checksums[number]:
                raise CorruptFileError(
                    f"partition {number} of the index has another checksum than it says",
                    help=REMAKE,
                    file=self._source.file,
                )
        elif len(np.unique(ids)) < len(ids):
            raise CorruptFileError(
                f"partition {number} of the index has a row twice", help=REMAKE, file=self._source.file
            )

    def write_with(
        self,
        store: Store,
        folder: str,
        *,
        move: Callable[[RowIds], tuple[RowIds, npt.NDArray[np.bool_]]] | None = None,
        more: tuple[npt.NDArray[np.int32], Codes, RowIds] | None = None,
        dataset_version: int | None = None,
    ) -> None:
        """Write the index to another folder.

        Parameters
        ----------
        move: gives the row ids that rows have now, and says which stay.
        more: rows to add: partitions, codes and row ids.
        dataset_version: of the dataset that it covers then.
        """
        extra: dict[int, npt.NDArray[np.int64]] = {}
        if more is not None:
            order = np.argsort(more[0], kind="stable")
            numbers, starts = np.unique(more[0][order], return_index=True)
            extra = dict(zip(numbers.tolist(), np.split(order, starts[1:])))

        def rows(number: int) -> tuple[Codes, RowIds]:
            codes, ids = self.partition(number)
            if move is not None:
                ids, keep = move(ids)
                codes, ids = codes[keep], ids[keep]
            if more is not None and number in extra:
                added = extra[number]
                codes, ids = np.concatenate([codes, more[1][added]]), np.concatenate([ids, more[2][added]])
            return codes, ids

        version = self.dataset_version if dataset_version is None else dataset_version
        column = self.columns[0] if self.columns else ""
        write_partitions(store, folder, self.model, rows, name=self.name, column=column, dataset_version=version)

    # --- searching ---------------------------------------------------------------------------------------------------

    def search(
        self, query: Floats, k: int, *, nprobes: int = 1, allowed: Allowed | None = None
    ) -> tuple[RowIds, Floats]:
        """The rows whose words are nearest to a vector, nearest first, and how far they are.

        Parameters
        ----------
        query: shape (dimension,).
        k: how many.
        nprobes: partitions to look into.
        allowed: says which rows may be found; ``None`` for all.

        Distances are those of the vectors that the words stand for, see :func:`trilake.lance.scan.search.distances`.
        Raises ``InvalidArgumentError``.
        """
        model = self.model
        query = np.asarray(query, np.float32)
        if query.shape != (model.dimension,) or k < 1 or nprobes < 1:
            raise InvalidArgumentError(
                f"a search for {k} rows by a vector of shape {query.shape} in {nprobes} partitions cannot be",
                help=f"the index has vectors of {model.dimension} numbers; k and nprobes are 1 or more",
            )
        near = centroid_distances(query[None], model.centroids, model.metric)[0]
        numbers = _least(near, min(nprobes, len(near)))
        tables = _tables(model, numbers, query)
        ids, distances = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        for i, (codes, rows) in enumerate(self._partitions(numbers.tolist())):
            if allowed is not None:
                keep = allowed(rows)
                codes, rows = codes[keep], rows[keep]
            ids.append(rows)
            distances.append(_code_distances(model, int(numbers[i]), codes, query, tables[i]))
        all_ids, all_distances = np.concatenate(ids), np.concatenate(distances)
        best = nearest_first(all_distances, all_ids, k)
        return all_ids[best], all_distances[best]


def nearest_first(distances: Floats, ids: RowIds, k: int) -> npt.NDArray[np.int64]:
    """The places of the ``k`` least, in order; NaN comes last, and among equals the lower id first.

    >>> nearest_first(np.array([2, 1, 1], np.float32), np.array([0, 9, 3], np.uint64), 2).tolist()
    [2, 1]
    """
    if len(distances) > 4 * k:
        limit = np.partition(distances, k - 1)[k - 1]
        # All that equal the last one are candidates, so that ties are broken in one way.
        at = np.flatnonzero(distances <= limit) if limit == limit else np.arange(len(distances))
    else:
        at = np.arange(len(distances))
    return at[np.lexsort((ids[at], distances[at]))][:k].astype(np.int64)


def _least(values: Floats, k: int) -> npt.NDArray[np.int64]:
    return nearest_first(values, np.arange(len(values), dtype=np.uint64), k)


def _tables(model: Model, numbers: npt.NDArray[np.int64], query: Floats) -> Floats:
    """For each of some partitions what every word adds to the distance of a query, shape (partitions, pieces, 256)."""
    pieces, _, width = model.words.shape
    residuals = query - model.centroids[numbers] if model.metric == "l2" else query
    cut = np.broadcast_to(residuals, (len(numbers), model.dimension)).reshape(len(numbers), pieces, width)
    products: Floats = np.matmul(model.words, cut.transpose(1, 2, 0)).transpose(2, 0, 1)
    if model.metric == "cosine":
        return products
    if model.metric == "dot":
        return np.negative(products)
    squares = np.einsum("mwd,mwd->mw", model.words, model.words)
    lengths = np.einsum("pmd,pmd->pm", cut, cut)
    result: Floats = np.maximum(squares - 2 * products + lengths[:, :, None], 0)
    return result


def _code_distances(model: Model, partition: int, codes: Codes, query: Floats, table: Floats) -> Floats:
    """The distances of a query from the rows of a partition, by their codes: one look-up a piece."""
    total = kernels.sum_of(table, codes)
    if model.metric == "l2":
        return total
    centroid = model.centroids[partition]
    if model.metric == "dot":
        return np.asarray(total + (1 - query @ centroid), np.float32)
    pieces, _, width = model.words.shape
    whole = model.words + centroid.reshape(pieces, 1, width)
    norms = np.sqrt(kernels.sum_of(np.einsum("mwd,mwd->mw", whole, whole), codes)) * np.sqrt(query @ query)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine: Floats = (1 - (total + query @ centroid) / norms).astype(np.float32)
    return cosine


def _check_places(offsets: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], end: int, file: str) -> None:
    """Raise ``CorruptFileError`` unless partitions lie one behind the other, from the beginning up to the message.

    One that is longer or shorter than it was would take codes for row ids.
    """
    full = sizes > 0
    starts, ends = offsets[full].astype(np.int64), (offsets + sizes)[full].astype(np.int64)
    order = np.argsort(starts)
    starts, ends = starts[order], ends[order]
    if len(starts) and (starts[0] != 0 or (starts[1:] != ends[:-1]).any() or ends[-1] > end):
        raise CorruptFileError("the partitions of the index are not one behind the other", file=file, help=REMAKE)


def _numbers(tensor: index_pb2.Tensor, old: Sequence[float], shape: tuple[int, ...], file: str) -> Floats:
    """The numbers of a tensor, or of the list that there was before; exactly as many as ``shape`` says."""
    kinds: dict[int, Any] = {
        index_pb2.Tensor.FLOAT16: np.dtype("<f2"),
        index_pb2.Tensor.FLOAT32: np.dtype("<f4"),
        index_pb2.Tensor.FLOAT64: np.dtype("<f8"),
    }
    if len(old):
        values = np.array(old, np.float32)
    elif tensor.data_type not in kinds:
        raise UnsupportedProtocolError("the numbers of the index are of a type that numpy does not have", file=file)
    else:
        kind = kinds[tensor.data_type]
        whole = len(tensor.data) // kind.itemsize * kind.itemsize
        with np.errstate(over="ignore"):
            values = np.frombuffer(tensor.data[:whole], kind).astype(np.float32)
    if len(values) != prod(shape):
        raise CorruptFileError(f"the index has {len(values)} numbers for an array of shape {shape}", file=file)
    return values.reshape(shape)
