"""Read IVF_PQ in the legacy file format, as written by :func:`trilake.lance.index.ivf_pq.write_partitions`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.lance.file import framing
from trilake.lance.file.sources import Source, open_source
from trilake.lance.index.ivf_pq import FILE, METRICS, WORDS, Codes, Floats, Model, RowIds, model_checksum, type_code
from trilake.lance.proto import index_pb2
from trilake.storage.base import Store

REMAKE = "rebuild the index: create_index(..., replace=True)"


def open_index(store: Store, folder: str) -> tuple[LegacyRows, Model, str]:
    """Open the index in a folder; returns its rows, model and kind.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for other kinds of index.
    """
    source = open_source(store, f"{folder}/{FILE}")
    file, size = source.file, source.size
    position = framing.read_footer(source)
    message = framing.read_message(source, position, index_pb2.Index)
    vector = message.vector_index
    stages = [stage.WhichOneof("stage") for stage in vector.stages]
    metric = next((name for name, number in METRICS.items() if number == vector.metric_type), None)
    if stages != ["ivf", "pq"] or metric is None or vector.stages[1].pq.num_bits != 8:
        raise UnsupportedProtocolError(f"expected an IVF_PQ index with 8 bits, got stages {stages}", file=file)
    ivf, pq = vector.stages[0].ivf, vector.stages[1].pq
    dimension, pieces = vector.dimension, pq.num_sub_vectors
    if not pieces or not dimension or dimension % pieces or pq.dimension != dimension:
        raise CorruptFileError(f"invalid index: {pieces} sub-vectors of dimension {dimension}", file=file)
    offsets, lengths = np.array(ivf.offsets, np.uint64), np.array(ivf.lengths, np.uint64)
    limit = np.uint64(size)
    if len(offsets) != len(lengths) or not len(offsets) or (offsets > limit).any() or (lengths > limit).any():
        raise CorruptFileError("a partition of the index is outside its file", file=file)
    sizes = lengths * np.uint64(pieces + 8)
    end = end_of(offsets, sizes)
    if end is None or end > position:
        raise CorruptFileError("the partitions of the index are not contiguous", file=file, help=REMAKE)
    centroids = numbers_of(ivf.centroids_tensor, ivf.centroids, (len(offsets), dimension), file)
    words = numbers_of(pq.codebook_tensor, pq.codebook, (pieces, WORDS, dimension // pieces), file)
    if not (np.isfinite(centroids).all() and np.isfinite(words).all()):
        raise CorruptFileError("the index has non-finite centroids or codebook entries", file=file)
    model = Model(metric, centroids, words, numbers=type_code(ivf.centroids_tensor))
    if message.HasField("checksums") and (
        message.checksums.model != model_checksum(model, offsets.tolist(), lengths.tolist())
        or len(message.checksums.partitions) != len(offsets)
    ):
        raise CorruptFileError("the checksum of the index does not match", file=file, help=REMAKE)
    checksums = list(message.checksums.partitions)
    return LegacyRows(source, pieces, offsets.tolist(), lengths.tolist(), checksums), model, model.kind


class LegacyRows:
    """The partitions in a file; a partition has the codes of its rows, then their ids."""

    def __init__(
        self, source: Source, pieces: int, offsets: list[int], lengths: list[int], checksums: list[int]
    ) -> None:
        self._source, self._pieces, self._checksums = source, pieces, checksums
        self._checked: set[int] = set()
        #: Name of the file.
        self.file = source.file
        #: Offset and number of rows of each partition.
        self.offsets, self.lengths = offsets, lengths

    def read(self, numbers: Sequence[int]) -> dict[int, tuple[Codes, RowIds]]:
        """Read the codes and row ids of some partitions.  Raises ``CorruptFileError``."""
        source = self._source.window([self._range(i) for i in numbers])  # one round of requests for all partitions
        return {i: self._decoded(source, i) for i in numbers}

    def _range(self, number: int) -> tuple[int, int]:
        return self.offsets[number], self.lengths[number] * (self._pieces + 8)

    def _decoded(self, source: Source, number: int) -> tuple[Codes, RowIds]:
        pieces, rows = self._pieces, self.lengths[number]
        data = np.frombuffer(source.read(*self._range(number)), np.uint8)
        codes, ids = data[: rows * pieces].reshape(rows, pieces), np.frombuffer(data[rows * pieces :].tobytes(), "<u8")
        if number not in self._checked:  # checked once, as files do not change
            self._check(number, data, ids)
            self._checked.add(number)
        return codes, ids

    def _check(self, number: int, data: npt.NDArray[np.uint8], ids: RowIds) -> None:
        if self._checksums:
            if crc32(data.tobytes()) != self._checksums[number]:
                raise CorruptFileError(
                    f"the checksum of partition {number} of the index does not match",
                    help=REMAKE,
                    file=self._source.file,
                )
        elif len(np.unique(ids)) < len(ids):
            raise CorruptFileError(
                f"partition {number} of the index has duplicate rows", help=REMAKE, file=self._source.file
            )


def end_of(offsets: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64]) -> int | None:
    """Return the end of contiguous partitions; ``None`` if they have gaps or overlap.

    If a length is wrong, codes would be read as row ids.
    """
    full = sizes > 0
    order = np.argsort(offsets[full], kind="stable")
    edges = np.concatenate(([np.uint64(0)], (offsets + sizes)[full][order]))
    return int(edges[-1]) if np.array_equal(offsets[full][order], edges[:-1]) else None


def numbers_of(tensor: index_pb2.Tensor, old: Sequence[float], shape: tuple[int, ...], file: str) -> Floats:
    """Return the numbers of a tensor, or of the older plain list; their count must match ``shape``."""
    kinds: dict[int, Any] = {
        index_pb2.Tensor.FLOAT16: np.dtype("<f2"),
        index_pb2.Tensor.FLOAT32: np.dtype("<f4"),
        index_pb2.Tensor.FLOAT64: np.dtype("<f8"),
    }
    if len(old):
        values = np.array(old, np.float32)
    elif tensor.data_type not in kinds:
        raise UnsupportedProtocolError("the index has numbers of an unsupported type", file=file)
    else:
        kind = kinds[tensor.data_type]
        whole = len(tensor.data) // kind.itemsize * kind.itemsize
        with np.errstate(over="ignore"):
            values = np.frombuffer(tensor.data[:whole], kind).astype(np.float32)
    if len(values) != prod(shape):
        raise CorruptFileError(f"the index has {len(values)} numbers for an array of shape {shape}", file=file)
    return values.reshape(shape)
