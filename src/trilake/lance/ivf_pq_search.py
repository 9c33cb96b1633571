"""Searching an IVF_PQ index: vectors in partitions by nearest centroid, each kept as codes of its residual.

The file is, for each partition, the codes of its rows and then their row ids; the message at its end holds centroids,
codebook and the places of partitions.  A search looks into the partitions nearest to the vector, and sums up distances
of its parts from the words that the codes name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import CorruptFileError, MissingFileError, ObjectNotFoundError, UnsupportedProtocolError
from trilake.lance import framing
from trilake.lance.proto import index_pb2 as pb
from trilake.storage.base import Store

Ids = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]
#: Says of row ids which may be found.
Allowed = Callable[[Ids], npt.NDArray[np.bool_]]

_METRICS = {pb.L2: "l2", pb.COSINE: "cosine", pb.DOT: "dot"}


@dataclass(frozen=True, eq=False)
class IvfPqIndex:
    """An open index.

    ``centroids`` is partitions x dimension, ``codebook`` parts x words x numbers of a part; ``offsets`` and ``lengths``
    are the places of partitions in the file and the rows they have.
    """

    store: Store
    key: str
    metric: str
    centroids: Floats
    codebook: Floats
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    message: pb.Index

    @classmethod
    def open(cls, store: Store, folder: str) -> IvfPqIndex:
        """The index in a folder.

        Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for other kinds of index,
        OPQ matrices among them.
        """
        key = f"{folder}/index.idx"
        file = f"{store.uri}/{key}"
        try:
            size = store.head(key).size
            tail = store.read_range(key, max(size - framing.FOOTER.size, 0), framing.FOOTER.size).to_pybytes()
            position = framing.parse_footer(tail, size, file=file, damaged=CorruptFileError)
            data = store.read_range(key, position, size - framing.FOOTER.size - position).to_pybytes()
        except ObjectNotFoundError as e:
            raise MissingFileError("the file of an index is not there", file=file) from e
        head = data[: framing.LENGTH.size]
        length = framing.message_length(head, position, size, file=file, damaged=CorruptFileError)
        body = data[framing.LENGTH.size : framing.LENGTH.size + length]
        message = framing.parse(body, pb.Index, file=file, damaged=CorruptFileError)
        return cls._of(store, key, message, size, file)

    @classmethod
    def _of(cls, store: Store, key: str, message: pb.Index, size: int, file: str) -> IvfPqIndex:
        vector = message.vector_index
        kinds = [stage.WhichOneof("stage") for stage in vector.stages]
        if kinds != ["ivf", "pq"] or vector.metric_type not in _METRICS:
            raise UnsupportedProtocolError(f"an index of the stages {kinds} cannot be searched", file=file)
        ivf, pq = vector.stages[0].ivf, vector.stages[1].pq
        parts, words, dimension = pq.num_sub_vectors, 1 << pq.num_bits, vector.dimension
        if pq.num_bits != 8 or not parts or not dimension or dimension % parts or pq.dimension != dimension:
            raise CorruptFileError(
                f"the index has {parts} parts of {pq.num_bits} bits for {dimension} dimensions", file=file
            )
        lengths, offsets = np.array(ivf.lengths, np.int64), np.array(ivf.offsets, np.uint64)
        centroids = _tensor(ivf.centroids_tensor, ivf.centroids, len(lengths) * dimension, file)
        codebook = _tensor(pq.codebook_tensor, pq.codebook, words * dimension, file)
        if len(offsets) != len(lengths) or (offsets > size).any():
            raise CorruptFileError("the partitions of the index are not in the file", file=file)
        places = offsets.astype(np.int64)
        if (places + lengths * (parts + 8) > size).any():
            raise CorruptFileError("a partition of the index ends outside of the file", file=file)
        return cls(
            store,
            key,
            _METRICS[vector.metric_type],
            centroids.reshape(-1, dimension),
            # Whatever its shape says, the words of each part lie together.
            codebook.reshape(parts, words, dimension // parts),
            places,
            lengths,
            message,
        )

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return int(self.centroids.shape[1])

    def statistics(self) -> dict[str, Any]:
        """What the index says of itself."""
        return {
            "index_type": "IVF",
            "metric_type": self.metric,
            "num_partitions": len(self.lengths),
            "sub_index": {
                "index_type": "PQ",
                "dimension": self.dimension,
                "metric_type": self.metric,
                "nbits": 8,
                "num_sub_vectors": len(self.codebook),
            },
            "partitions": [
                {"index": i, "length": int(n), "offset": int(at), "centroid": c.tolist()}
                for i, (n, at, c) in enumerate(zip(self.lengths, self.offsets, self.centroids))
            ],
        }

    def search(self, q: Floats, k: int, nprobes: int, allowed: Allowed | None = None) -> tuple[Ids, Floats]:
        """The row ids nearest to ``q`` among those allowed, and about how far each is, nearest first."""
        order = np.argsort(_to_centroids(self.centroids, q, self.metric), kind="stable")[:nprobes]
        ids, found = [np.array([], np.uint64)], [np.array([], np.float32)]
        ranges = [(int(self.offsets[p]), int(self.lengths[p]) * (len(self.codebook) + 8)) for p in order]
        for p, data in zip(order, self.store.read_ranges(self.key, ranges)):
            rows, codes = self._partition(data, int(self.lengths[p]))
            if allowed is not None:
                keep = allowed(rows)
                rows, codes = rows[keep], codes[keep]
            ids.append(rows)
            found.append(self._distances(codes, q, self.centroids[p]))
        all_ids, distance = np.concatenate(ids), np.concatenate(found)
        best = np.lexsort((all_ids, distance))[:k]
        return all_ids[best], distance[best]

    def write_moved(self, folder: str, move: Callable[[Ids], tuple[Ids, npt.NDArray[np.bool_]]]) -> None:
        """Write the index to another folder with other row ids; ``move`` gives those, and says which rows stay."""
        message = pb.Index()
        message.CopyFrom(self.message)
        ivf = message.vector_index.stages[0].ivf
        width = len(self.codebook) + 8
        with self.store.open_output(f"{folder}/index.idx") as out:
            position = 0
            for p, rows in enumerate(self.lengths.tolist()):
                data = self.store.read_range(self.key, int(self.offsets[p]), rows * width)
                ids, codes = self._partition(data, rows)
                ids, keep = move(ids)
                ivf.offsets[p], ivf.lengths[p] = position, int(keep.sum())
                position += out.write(codes[keep].tobytes())
                position += out.write(ids[keep].tobytes())
            out.write(framing.frame(message) + framing.footer(position))

    def _partition(self, data: pa.Buffer, rows: int) -> tuple[Ids, npt.NDArray[np.uint8]]:
        parts = len(self.codebook)
        if data.size != rows * (parts + 8):
            raise CorruptFileError("a partition of the index is cut off", file=f"{self.store.uri}/{self.key}")
        codes = np.frombuffer(data, np.uint8, rows * parts).reshape(rows, parts)
        return np.frombuffer(data.slice(rows * parts).to_pybytes(), np.uint64), codes

    def _distances(self, codes: npt.NDArray[np.uint8], q: Floats, centroid: Floats) -> Floats:
        """The distance of ``q`` from what each row's codes stand for: the centroid and a word for each part.

        Of a dot product, only that of the residuals is summed up, as other readers of these files do.
        """
        split = (len(self.codebook), 1, -1)
        at = np.arange(len(self.codebook))

        def summed(table: Floats) -> Floats:
            found: Floats = table[at, codes].sum(axis=1, dtype=np.float32)
            return found

        def dots(vector: Floats) -> Floats:
            parts = np.broadcast_to(vector.reshape(split), self.codebook.shape)
            found: Floats = np.einsum("pwd,pwd->pw", self.codebook, parts)
            return found

        if self.metric == "l2":
            difference = self.codebook - (q - centroid).reshape(split)
            return summed(np.einsum("pwd,pwd->pw", difference, difference))
        if self.metric == "dot":
            return -summed(dots(q - centroid))
        squares = np.einsum("pwd,pwd->pw", self.codebook, self.codebook) + 2 * dots(centroid)
        norms = np.sqrt(np.maximum(summed(squares) + centroid @ centroid, 0)) * np.sqrt(q @ q)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = 1 - (q @ centroid + summed(dots(q))) / norms
        return found


def _to_centroids(centroids: Floats, q: Floats, metric: str) -> Floats:
    found: Floats
    if metric == "l2":
        difference = centroids - q
        found = np.einsum("ij,ij->i", difference, difference)
        return found
    found = -(centroids @ q)
    if metric == "cosine":
        with np.errstate(divide="ignore", invalid="ignore"):
            found = found / np.sqrt(np.einsum("ij,ij->i", centroids, centroids))
    return found


def _tensor(tensor: pb.Tensor, floats: Any, size: int, file: str) -> Floats:
    if tensor.data:
        kinds: dict[int, Any] = {
            pb.Tensor.FLOAT16: np.float16,
            pb.Tensor.FLOAT32: np.float32,
            pb.Tensor.FLOAT64: np.float64,
        }
        kind = kinds.get(tensor.data_type)
        if kind is None:
            raise UnsupportedProtocolError("the numbers of the index are of a type that numpy does not have", file=file)
        if len(tensor.data) % np.dtype(kind).itemsize:
            raise CorruptFileError("the numbers of the index are cut off", file=file)
        found = np.frombuffer(tensor.data, kind).astype(np.float32)
    else:
        found = np.array(floats, np.float32)
    if len(found) != size:
        raise CorruptFileError(f"the index has {len(found)} numbers where {size} belong", file=file)
    return found
