"""``VectorIndex``: search a vector index.

Opening an index reads centroids and codebook; a search reads only the partitions it probes.  For each of these, the
search computes a table of distances between the query and all codebook entries.  The distance of a row is the sum of
the table entries that its codes select.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.data_files import open_if_2x
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.index import ivf_files, ivf_legacy, kernels
from trilake.lance.index.files import ReadCache
from trilake.lance.index.ivf_pq import (
    FILE,
    Codes,
    Floats,
    Model,
    RowIds,
    Rows,
    VectorModel,
    centroid_distances,
    distances,
    write_partitions,
)
from trilake.storage.base import Store

#: Returns a mask of the row ids that a search may return.
Allowed = Callable[[RowIds], npt.NDArray[np.bool_]]
#: Returns the current ids of row ids, and a mask of the rows to keep.
Move = Callable[[RowIds], tuple[RowIds, npt.NDArray[np.bool_]]]

#: Default number of cached partitions.
_KEPT = 256


class VectorIndex:
    """An open vector index.  Thread-safe.

    ``kind`` is ``IVF_PQ``, ``IVF_FLAT``, ``IVF_HNSW_SQ``, ...; graphs are ignored, as searches scan whole partitions.
    """

    def __init__(self, rows: ivf_legacy.LegacyRows | ivf_files.V2Rows, model: Model | VectorModel, kind: str) -> None:
        self._rows = rows
        #: Cache of partitions; may be shared by several indices.
        self.partitions = ReadCache(_KEPT)
        self.model, self.kind = model, kind

    @classmethod
    def open(cls, store: Store, folder: str) -> VectorIndex:
        """Open the index in a folder.

        Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for other kinds of index.
        """
        file = open_if_2x(store, f"{folder}/{FILE}")
        if file is None:
            return cls(*ivf_legacy.open_index(store, folder))
        return cls(*ivf_files.open_index(store, folder, file))

    @property
    def metric(self) -> str:
        """``l2``, ``cosine`` or ``dot``."""
        return self.model.metric

    @property
    def dimension(self) -> int:
        return self.model.dimension

    @property
    def centroids(self) -> pa.FixedSizeListArray:
        return pa.FixedSizeListArray.from_arrays(pa.array(self.model.centroids.reshape(-1)), self.dimension)

    @property
    def num_rows(self) -> int:
        return int(sum(self._rows.lengths))

    def statistics(self) -> dict[str, Any]:
        """Return statistics of the index and its partitions, with pylance's names."""
        uri = f"{self._rows.file.removeprefix('file://').rpartition('/')[0]}/{FILE}"
        numbers = {"uri": uri, "metric_type": self.metric, "num_partitions": len(self._rows.lengths)}
        sub: dict[str, Any] = {"index_type": self.kind.rpartition("_")[2], "metric_type": self.metric}
        if isinstance(self.model, Model):
            sub |= {"nbits": self.model.bits, "num_sub_vectors": len(self.model.words), "dimension": self.dimension}
            sub |= {} if self.model.legacy else {"transposed": True}
        else:
            sub["dim"] = self.dimension
            if self.model.bounds is not None:
                sub |= {"num_bits": 8, "bounds": dict(zip(("start", "end"), self.model.bounds))}
        if not self.model.legacy:
            sizes = [{"size": int(n)} for n in self._rows.lengths]
            centroids = self.model.centroids.tolist()
            more = {"partitions": sizes, "centroids": centroids, "index_file_version": "V3"}
            return {"index_type": self.kind, **numbers, "sub_index": sub, **more}
        partitions = [
            {"index": i, "length": int(n), "offset": int(at), "centroid": c.tolist()}
            for i, (n, at, c) in enumerate(zip(self._rows.lengths, self._rows.offsets, self.model.centroids))
        ]
        more = {"partitions": partitions, "index_file_version": "Legacy"}
        return {"index_type": "IVF", **numbers, "sub_index": sub, **more}

    # --- rows --------------------------------------------------------------------------------------------------------

    def partition(self, number: int) -> tuple[Codes, RowIds]:
        """Return the codes, shape (rows, sub-vectors), and the row ids of a partition."""
        return self._partitions([number])[0]

    def prewarm(self) -> None:
        """Read as many partitions as the cache can hold."""
        self._partitions(range(min(len(self._rows.lengths), self.partitions.size)))

    def _partitions(self, numbers: Sequence[int]) -> list[tuple[Codes, RowIds]]:
        file = self._rows.file
        cached = {i: self.partitions.get(file, i) for i in numbers}
        missing = [i for i, partition in cached.items() if partition is None]
        if missing:
            loaded = self._rows.read(missing)
            for i, partition in loaded.items():
                self.partitions.keep(file, i, partition)
            cached |= loaded
        return [cached[i] for i in numbers]

    def moved(self, move: Move, more: Rows | None = None) -> Rows:
        """Return the rows with their current ids, and ``more`` rows."""

        def rows(number: int) -> tuple[Codes, RowIds]:
            codes, ids = self.partition(number)
            ids, keep = move(ids)
            codes, ids = codes[keep], ids[keep]
            if more is None:
                return codes, ids
            more_codes, more_ids = more(number)
            return np.concatenate([codes, more_codes]), np.concatenate([ids, more_ids])

        return rows

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
        """Return the ``k`` nearest rows by their codes, nearest first, and their distances.

        Searches ``nprobes`` partitions, then up to ``maximum_nprobes`` until ``enough`` rows are found.  ``allowed``
        returns a mask of the row ids that may be returned.  Distances are those of the decoded vectors, see
        :func:`trilake.lance.index.ivf_pq.distances`.  Raises ``InvalidArgumentError``.
        """
        model = self.model
        query = np.asarray(query, np.float32)
        if query.shape != (model.dimension,) or k < 1 or nprobes < 1:
            raise InvalidArgumentError(
                f"invalid search: k={k}, nprobes={nprobes}, query of shape {query.shape}",
                help=f"the vectors have dimension {model.dimension}; k and nprobes must be >= 1",
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
        if model.partition_metric != model.metric:  # the cosine distance of normalized vectors is half their squared L2
            all_distances *= np.float32(0.5)
        best = nearest_first(all_distances, all_ids, k)
        return all_ids[best], all_distances[best]

    def _near_rows(
        self, query: Floats, numbers: npt.NDArray[np.int64], allowed: Allowed | None
    ) -> Iterator[tuple[RowIds, Floats]]:
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


def write_index_files(
    store: Store,
    folder: str,
    model: Model | VectorModel,
    rows: Rows,
    version: StorageVersion,
    *,
    name: str,
    column: str,
    dataset_version: int,
) -> tuple[tuple[str, int], ...]:
    """Write an index partition by partition; returns the names and sizes of its files, none in the legacy format.

    Only files of the legacy format have ``name``, ``column`` and ``dataset_version``.
    """
    if not version.is_legacy:
        return ivf_files.write_index(store, folder, model, rows, version)
    assert isinstance(model, Model)
    write_partitions(store, folder, model, rows, name=name, column=column, dataset_version=dataset_version)
    return ()


def nearest_first(distances: Floats, ids: RowIds, k: int) -> npt.NDArray[np.int64]:
    """Return the indices of the ``k`` smallest distances in order; NaN comes last, ties are sorted by row id.

    >>> nearest_first(np.array([2, 1, 1], np.float32), np.array([0, 9, 3], np.uint64), 2).tolist()
    [2, 1]
    """
    if len(distances) > 4 * k:
        limit = np.partition(distances, k - 1)[k - 1]
        # All values equal to the last one are candidates, so that the order of ties is deterministic.
        at = np.flatnonzero(distances <= limit) if limit == limit else np.arange(len(distances))
    else:
        at = np.arange(len(distances))
    return at[np.lexsort((ids[at], distances[at]))][:k].astype(np.int64)


def _least(values: Floats, k: int) -> npt.NDArray[np.int64]:
    return nearest_first(values, np.arange(len(values), dtype=np.uint64), k)


def _tables(model: Model, numbers: npt.NDArray[np.int64], query: Floats) -> Floats:
    """Return the distances between the query and all codebook entries, shape (partitions, sub-vectors, entries)."""
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
    """Return the distances of a query from the rows of a partition, by table lookups."""
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
