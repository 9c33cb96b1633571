"""``VectorIndex``: an IVF_PQ index that is open for searches.

Centroids and words are read when it is opened, of the rows only the partitions that a search looks into.  What codes
stand for is added up piece by piece: for each partition there is a table with the share of every word in the distance,
and a row's distance is the sum of the entries that its codes name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trilake.errors import InvalidArgumentError
from trilake.lance.file.storage_version import FIRST, StorageVersion
from trilake.lance.index import ivf_files, ivf_first, kernels
from trilake.lance.index.files import open_if_2x
from trilake.lance.index.ivf_pq import (
    FILE,
    Codes,
    Floats,
    Model,
    RowIds,
    VectorModel,
    centroid_distances,
    distances,
    write_partitions,
)
from trilake.storage.base import Store

#: Says of row ids which may be found.
Allowed = Callable[[RowIds], npt.NDArray[np.bool_]]


class PartitionRows(Protocol):
    """The partitions in a file: of each where it begins and its rows."""

    file: str
    offsets: list[int]
    lengths: list[int]

    def read(self, numbers: Sequence[int]) -> dict[int, tuple[Codes, RowIds]]:
        """Codes and row ids of some partitions.  Raises ``CorruptFileError``."""


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
    """An open index.  May be used by several threads.

    Parameters
    ----------
    rows: the partitions in its file.
    model: what the index was made with.
    kind: ``IVF_PQ``, ``IVF_FLAT``, ``IVF_HNSW_SQ`` and so on; graphs are not searched, but whole partitions.
    name, columns, dataset_version: of the index, as its own file says; not in files of version 2.x.
    """

    def __init__(
        self,
        rows: PartitionRows,
        model: Model | VectorModel,
        kind: str,
        name: str = "",
        columns: tuple[str, ...] = (),
        dataset_version: int = 0,
    ) -> None:
        self._rows = rows
        #: Where partitions that were read are kept; several indices may share one.
        self.partitions = PartitionCache()
        self.model, self.kind = model, kind
        self.name, self.columns, self.dataset_version = name, columns, dataset_version

    @classmethod
    def open(cls, store: Store, folder: str) -> VectorIndex:
        """Open the index in a folder.

        Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for other kinds of index.
        """
        file = open_if_2x(store, f"{folder}/{FILE}")
        if file is None:
            rows, model, message = ivf_first.open_index(store, folder)
            return cls(rows, model, "IVF_PQ", message.name, tuple(message.columns), int(message.dataset_version))
        return cls(*ivf_files.open_index(store, folder, file))

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
        return int(sum(self._rows.lengths))

    def statistics(self) -> dict[str, Any]:
        """What the index is, under the names that users of the format know, and where its partitions are."""
        numbers = {
            "uri": f"{self._rows.file.removeprefix('file://').rpartition('/')[0]}/{FILE}",
            "metric_type": self.metric,
            "num_partitions": len(self._rows.lengths),
        }
        sub: dict[str, Any] = {"index_type": self.kind.rpartition("_")[2], "dimension": self.dimension}
        sub["metric_type"] = self.metric
        if isinstance(self.model, Model):
            sub |= {"nbits": self.model.bits, "num_sub_vectors": len(self.model.words)}
        if self.model.modern:
            sizes = [{"size": int(n)} for n in self._rows.lengths]
            centroids = self.model.centroids.tolist()
            return {"index_type": self.kind, **numbers, "sub_index": sub, "partitions": sizes, "centroids": centroids}
        partitions = [
            {"index": i, "length": int(n), "offset": int(at), "centroid": c.tolist()}
            for i, (n, at, c) in enumerate(zip(self._rows.lengths, self._rows.offsets, self.model.centroids))
        ]
        return {"index_type": "IVF", **numbers, "sub_index": sub, "partitions": partitions}

    # --- rows --------------------------------------------------------------------------------------------------------

    def partition(self, number: int) -> tuple[Codes, RowIds]:
        """Codes, shape (rows, pieces), and row ids of a partition."""
        return self._partitions([number])[0]

    def prewarm(self) -> None:
        """Read the partitions, as many as are kept."""
        self._partitions(range(min(len(self._rows.lengths), self.partitions.size)))

    def _partitions(self, numbers: Sequence[int]) -> list[tuple[Codes, RowIds]]:
        partitions = self.partitions.find(self._rows.file, numbers)
        missing = [i for i in numbers if i not in partitions]
        if missing:
            read = self._rows.read(missing)
            self.partitions.add(self._rows.file, read)
            partitions |= read
        return [partitions[i] for i in numbers]

    def write_with(
        self,
        store: Store,
        folder: str,
        *,
        move: Callable[[RowIds], tuple[RowIds, npt.NDArray[np.bool_]]] | None = None,
        more: tuple[npt.NDArray[np.int32], Codes, RowIds] | None = None,
        dataset_version: int | None = None,
        version: StorageVersion = FIRST,
    ) -> tuple[tuple[str, int], ...]:
        """Write the index, which has no graphs, to another folder; return the names and sizes of files of version 2.x.

        Parameters
        ----------
        move: gives the row ids that rows have now, and says which stay.
        more: rows to add: partitions, codes and row ids.
        dataset_version: of the dataset that it covers then.
        version: of the files; that of those that it is in.
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

        if not version.is_first:
            return ivf_files.write_index(store, folder, self.model, rows, version)
        assert isinstance(self.model, Model)
        made_of = self.dataset_version if dataset_version is None else dataset_version
        column = self.columns[0] if self.columns else ""
        write_partitions(store, folder, self.model, rows, name=self.name, column=column, dataset_version=made_of)
        return ()

    # --- searching ---------------------------------------------------------------------------------------------------

    def search(
        self,
        query: Floats,
        k: int,
        *,
        nprobes: int = 1,
        maximum_nprobes: int | None = None,
        enough: int = 1,
        allowed: Allowed | None = None,
    ) -> tuple[RowIds, Floats]:
        """The rows whose words are nearest to a vector, nearest first, and how far they are.

        Parameters
        ----------
        query: shape (dimension,).
        k: how many.
        nprobes: partitions to look into first.
        maximum_nprobes: the most to look into, the next nearest ones, until ``enough`` rows are there; ``nprobes`` by
            default.
        allowed: says which rows may be found; ``None`` for all.

        Distances are those of the vectors that the words stand for, see :func:`trilake.lance.index.ivf_pq.distances`.
        Raises ``InvalidArgumentError``.
        """
        model = self.model
        query = np.asarray(query, np.float32)
        if query.shape != (model.dimension,) or k < 1 or nprobes < 1:
            raise InvalidArgumentError(
                f"a search for {k} rows by a vector of shape {query.shape} in {nprobes} partitions cannot be",
                help=f"the index has vectors of {model.dimension} numbers; k and nprobes are 1 or more",
            )
        query = model.prepared(query[None])[0]
        near = centroid_distances(query[None], model.centroids, model.partition_metric)[0]
        most = min(maximum_nprobes or nprobes, len(near))
        numbers = _least(near, min(nprobes, most))
        ids, nearness = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        done = count = 0
        while True:
            for rows, distance in self._near_rows(query, numbers[done:], allowed):
                ids.append(rows)
                nearness.append(distance)
                count += len(rows)
            done = len(numbers)
            if done == most or count >= enough:
                break
            numbers = _least(near, min(2 * done, most))
        all_ids, all_distances = np.concatenate(ids), np.concatenate(nearness)
        if model.partition_metric != model.metric:  # of vectors of length 1, half the square is the cosine distance
            all_distances *= np.float32(0.5)
        best = nearest_first(all_distances, all_ids, k)
        return all_ids[best], all_distances[best]

    def _near_rows(
        self, query: Floats, numbers: npt.NDArray[np.int64], allowed: Allowed | None
    ) -> Iterator[tuple[RowIds, Floats]]:
        """The rows of some partitions, and how far they are from a vector."""
        model = self.model
        tables = _tables(model, numbers, query) if isinstance(model, Model) else None
        for i, (codes, rows) in enumerate(self._partitions(numbers.tolist())):
            if allowed is not None:
                keep = allowed(rows)
                codes, rows = codes[keep], rows[keep]
            if isinstance(model, Model) and tables is not None:
                yield rows, _code_distances(model, int(numbers[i]), codes, query, tables[i])
            elif isinstance(model, VectorModel):
                yield rows, distances(model.vectors(codes), query, model.partition_metric)


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
    """For each of some partitions what words add to the distance of a query, shape (partitions, pieces, words)."""
    pieces, _, width = model.words.shape
    residuals = query - model.centroids[numbers] if model.partition_metric == "l2" else query
    cut = np.broadcast_to(residuals, (len(numbers), model.dimension)).reshape(len(numbers), pieces, width)
    products: Floats = np.matmul(model.words, cut.transpose(1, 2, 0)).transpose(2, 0, 1)
    if model.partition_metric == "cosine":
        return products
    if model.partition_metric == "dot":
        return np.negative(products)
    squares = np.einsum("mwd,mwd->mw", model.words, model.words)
    lengths = np.einsum("pmd,pmd->pm", cut, cut)
    result: Floats = np.maximum(squares - 2 * products + lengths[:, :, None], 0)
    return result


def _code_distances(model: Model, partition: int, codes: Codes, query: Floats, table: Floats) -> Floats:
    """The distances of a query from the rows of a partition, by their codes: one look-up a piece."""
    total = kernels.sum_of(table, codes)
    if model.partition_metric == "l2":
        return total
    if not model.has_residuals:
        return np.asarray(total + 1, np.float32)
    centroid = model.centroids[partition]
    if model.metric == "dot":
        return np.asarray(total + (1 - query @ centroid), np.float32)
    pieces, _, width = model.words.shape
    whole = model.words + centroid.reshape(pieces, 1, width)
    norms = np.sqrt(kernels.sum_of(np.einsum("mwd,mwd->mw", whole, whole), codes)) * np.sqrt(query @ query)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine: Floats = (1 - (total + query @ centroid) / norms).astype(np.float32)
    return cosine
