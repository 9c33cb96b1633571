"""Vector indices in files of version 2.x, compatible with pylance 14; IVF_PQ, IVF_FLAT and IVF_SQ can be written.

``auxiliary.idx`` has the rows by partition: ``_rowid``, and ``flat`` (vectors), ``__pq_code`` or ``__sq_code``; PQ
codes are stored column by column within a partition.  Global buffers contain the partition offsets and the PQ codebook.
``index.idx`` has the centroids and, for HNSW, the graphs, which are ignored: a search scans whole partitions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.index.files import write_file
from trilake.lance.index.ivf_legacy import REMAKE, end_of, numbers_of
from trilake.lance.index.ivf_pq import FILE, METRICS, Codes, Model, RowIds, Rows, VectorModel, tensor, type_code
from trilake.lance.proto import DecodeError, UnknownFieldSet, empty_pb2, index_pb2, varint
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store

ROWS_FILE = "auxiliary.idx"
_IVF, _INDEX, _FLAT = b"lance:ivf", b"lance:index", b"lance:flat"
_METRIC, _STORAGE = b"distance_type", b"storage_metadata"
_CODES = {"flat": "FLAT", "__pq_code": "PQ", "__sq_code": "SQ"}
#: Maximum compression ratio of codes.
_MOST_PACKED = 64


class V2Rows:
    """The partitions in ``auxiliary.idx``; ``bits`` are those of a PQ code, ``None`` for other codes."""

    def __init__(self, file: V2File, offsets: list[int], lengths: list[int], bits: int | None) -> None:
        self._file, self._bits = file, bits
        #: Name of the file.
        self.file = file.file
        self.offsets, self.lengths = offsets, lengths

    def read(self, numbers: Sequence[int]) -> dict[int, tuple[Codes, RowIds]]:
        """Read the codes and row ids of some partitions.  Raises ``CorruptFileError``."""
        ranges = [(self.offsets[i], self.offsets[i] + self.lengths[i]) for i in numbers]
        return {i: self._decoded(i, self._file.read_rows(*each)) for i, each in zip(numbers, ranges, strict=True)}

    def _decoded(self, number: int, batch: pa.RecordBatch) -> tuple[Codes, RowIds]:
        values = batch.column(1).flatten()
        if batch.column(0).null_count or batch.column(1).null_count or values.null_count:
            raise CorruptFileError(f"partition {number} of the index has nulls", file=self.file, help=REMAKE)
        ids = batch.column(0).to_numpy()
        width = batch.schema.field(1).type.list_size
        codes = values.to_numpy(zero_copy_only=False)
        if self._bits is None:
            return codes.reshape(len(ids), width), ids
        codes = codes.reshape(width, len(ids)).T
        if self._bits == 4:
            codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(ids), 2 * width)
        return np.ascontiguousarray(codes), ids


def open_index(store: Store, folder: str, index: V2File) -> tuple[V2Rows, Model | VectorModel, str]:
    """Open the index in a folder, given its open ``index.idx``; returns its rows, model and kind.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for other kinds.
    """
    rows = V2File.open(store, f"{folder}/{ROWS_FILE}")
    names = rows.schema.names
    metric = rows.schema.metadata.get(_METRIC, b"").decode("utf-8", "replace")
    kind = _json(index, _INDEX).get("type", "")
    if len(names) != 2 or names[0] != "_rowid" or names[1] not in _CODES or metric not in METRICS:
        raise UnsupportedProtocolError(
            f"an index of kind {kind!r} with columns {names} and metric {metric!r} is not supported", file=rows.file
        )
    codes = rows.schema.fields[1].arrow_type
    value_types = {pa.float16(), pa.float32(), pa.float64()} if names[1] == "flat" else {pa.uint8()}
    if rows.schema.fields[0].arrow_type != pa.uint64() or not pa.types.is_fixed_size_list(codes):
        types = rows.schema.to_arrow().types
        raise CorruptFileError(f"expected row ids and codes, got columns of types {types}", file=rows.file)
    if codes.value_type not in value_types:
        raise UnsupportedProtocolError(f"codes of type {codes} are not supported", file=rows.file)
    if codes.list_size * codes.value_type.bit_width // 8 * rows.num_rows > _MOST_PACKED * rows.size:
        raise CorruptFileError(f"a file of {rows.size} bytes claims {rows.num_rows} rows", file=rows.file)
    places, ivf = _message(rows, _IVF, index_pb2.IVF), _message(index, _IVF, index_pb2.IVF)
    offsets, lengths = np.array(places.offsets, np.uint64), np.array(places.lengths, np.uint64)
    if not len(offsets) or len(offsets) != len(lengths) or max(offsets.max(), lengths.max()) > rows.num_rows:
        raise CorruptFileError("a partition of the index is outside its file", file=rows.file, help=REMAKE)
    if end_of(offsets, lengths) != rows.num_rows:
        raise CorruptFileError("the partitions of the index are not contiguous", file=rows.file, help=REMAKE)
    model, bits = _model(rows, ivf, len(offsets), metric, names[1], codes.list_size)
    return V2Rows(rows, offsets.tolist(), lengths.tolist(), bits), model, kind or f"IVF_{_CODES[names[1]]}"


def _model(
    rows: V2File, ivf: index_pb2.IVF, partitions: int, metric: str, column: str, width: int
) -> tuple[Model | VectorModel, int | None]:
    storage, bits = _json(rows, _STORAGE), None
    try:
        if column == "__pq_code":
            bits, pieces, dimension = (int(storage[name]) for name in ("nbits", "num_sub_vectors", "dimension"))
            if bits not in (4, 8) or not storage.get("transposed", True):
                raise UnsupportedProtocolError(f"codes of {bits} bits in this layout are not supported", file=rows.file)
            if pieces < 1 or dimension < 1 or dimension % pieces or width * 8 != pieces * bits:
                raise ValueError(f"{pieces} sub-vectors of dimension {dimension} in codes of {width} bytes")
            tensor = _parsed(rows, int(storage["codebook_position"]), index_pb2.Tensor)
            words = numbers_of(tensor, (), (pieces, 1 << bits, dimension // pieces), rows.file)
        else:
            dimension, words = width, None
            bounds = storage.get("bounds") if column == "__sq_code" else None
            limits = None if bounds is None else (float(bounds["start"]), float(bounds["end"]))
            if column == "__sq_code" and (limits is None or not np.isfinite(limits).all()):
                raise ValueError(f"bounds {bounds}")
    except (KeyError, TypeError, ValueError, OverflowError) as e:
        raise CorruptFileError(f"invalid description of the codes: {e!r}", file=rows.file, help=REMAKE) from e
    centroids = numbers_of(ivf.centroids_tensor, ivf.centroids, (partitions, dimension), rows.file)
    if not np.isfinite(centroids).all() or (words is not None and not np.isfinite(words).all()):
        raise CorruptFileError("the index has non-finite centroids or codebook entries", file=rows.file)
    numbers = type_code(ivf.centroids_tensor)
    if words is None:
        return VectorModel(metric, centroids, limits, numbers=numbers), None
    return Model(metric, centroids, words, legacy=False, numbers=numbers), bits


def _json(file: V2File, key: bytes) -> dict[str, Any]:
    """Parse a JSON object in the metadata of a file, or in the first string of a list."""
    try:
        parsed = json.loads(file.schema.metadata.get(key, b"{}"))
        parsed = json.loads(parsed[0]) if isinstance(parsed, list) else parsed
    except (ValueError, TypeError, IndexError, RecursionError) as e:
        raise CorruptFileError(f"the metadata {key.decode()} is damaged: {e}", file=file.file, help=REMAKE) from e
    if not isinstance(parsed, dict):
        raise CorruptFileError(f"the metadata {key.decode()} is not an object", file=file.file, help=REMAKE)
    return parsed


def _message(file: V2File, key: bytes, kind: Any) -> Any:
    header = file.schema.metadata.get(key, b"")
    if not header.isdigit():
        raise CorruptFileError(f"the metadata {key.decode()} is {header!r}, not a number", file=file.file, help=REMAKE)
    return _parsed(file, int(header[:10]), kind)


def _parsed(file: V2File, number: int, kind: Any) -> Any:
    try:
        return kind.FromString(file.container.global_buffer(number).to_pybytes())
    except DecodeError as e:
        raise CorruptFileError(f"global buffer {number} cannot be parsed: {e}", file=file.file, help=REMAKE) from e


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Details:
    """The details of a vector index in the manifest: its metric, its kind, and the codes of an ``IVF_PQ``."""

    metric: str
    kind: str
    pieces: int = 1
    bits: int = 8

    @classmethod
    def of(cls, model: Model | VectorModel) -> Details:
        return cls(model.metric, model.kind, model.pieces, model.bits)

    def serialized(self) -> bytes:
        metric = METRICS[self.metric]
        header = b"\x08" + bytes(varint(metric)) if metric else b""
        if self.kind == "IVF_PQ":
            pq = b"\x08" + bytes(varint(self.bits)) + b"\x10" + bytes(varint(self.pieces))
            return header + b"\x22" + bytes(varint(len(pq))) + pq
        return header + (b"\x42\x00" if self.kind == "IVF_FLAT" else b"\x2a\x02\x08\x08")

    @classmethod
    def parse(cls, value: bytes) -> Details | None:
        """Parse details; ``None`` for an unknown metric or kind."""
        try:
            fields = _fields(value)
            codes = {"PQ": 4, "SQ": 5, "FLAT": 8}
            code = next((name for name, number in codes.items() if number in fields), None)
            pq = _fields(fields.get(4, b""))
        except DecodeError:
            return None
        metric = next((name for name, number in METRICS.items() if number == fields.get(1, 0)), None)
        if code is None or metric is None:
            return None
        return cls(metric, f"IVF_HNSW_{code}" if 3 in fields else f"IVF_{code}", pq.get(2, 1), pq.get(1, 8))


def _fields(message: bytes) -> dict[int, Any]:
    fields: Any = UnknownFieldSet(empty_pb2.Empty.FromString(message))
    return {field.field_number: field.data for field in fields}


def write_index(
    store: Store,
    folder: str,
    model: Model | VectorModel,
    rows: Rows,
    version: StorageVersion,
) -> tuple[tuple[str, int], ...]:
    """Write an index; ``rows`` returns the codes and row ids of a partition.

    Returns the names and sizes of its files.
    """
    from trilake.lance.v2.writer import V2Writer  # late: most processes only read

    codes_field = _codes_field(model)
    schema = pa.schema([pa.field("_rowid", pa.uint64()), codes_field])
    places, position = index_pb2.IVF(), 0
    key = f"{folder}/{ROWS_FILE}"
    with V2Writer(store, key, LanceSchema.from_arrow(schema), version=(version.major, version.minor)) as writer:
        for number in range(len(model.centroids)):
            codes, ids = rows(number)
            places.offsets.append(position)
            places.lengths.append(len(ids))
            position += len(ids)
            if len(ids):
                columns = [pa.array(ids, pa.uint64()), _codes_array(model, codes, codes_field.type)]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        number = writer.add_global_buffer(places.SerializeToString())
        storage: dict[str, Any] = {"dim": model.dimension}
        if isinstance(model, Model):
            pieces, count, width = model.words.shape
            codebook = tensor(model.words, (count, pieces * width), model.numbers).SerializeToString()
            storage = {
                "codebook_position": writer.add_global_buffer(codebook),
                "nbits": model.bits,
                "num_sub_vectors": pieces,
                "dimension": model.dimension,
                "codebook_tensor": [],
                "transposed": True,
            }
        elif model.bounds is not None:
            storage |= {"num_bits": 8, "bounds": {"start": model.bounds[0], "end": model.bounds[1]}}
        metadata = {_METRIC: model.metric, _IVF: str(number), _STORAGE: json.dumps([json.dumps(storage)])}
        writer.add_metadata({name: value.encode() for name, value in metadata.items()})
        size = writer.close().size
    partitions = len(model.centroids)
    ivf = index_pb2.IVF(offsets=[0] * partitions, lengths=[0] * partitions)
    ivf.centroids_tensor.CopyFrom(tensor(model.centroids, model.centroids.shape, model.numbers))
    empty = pa.RecordBatch.from_pylist([], pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)]))
    header = {
        _INDEX: json.dumps({"type": model.kind, "distance_type": model.metric}).encode(),
        _FLAT: json.dumps([""] * partitions).encode(),
    }
    buffers = {_IVF: ivf.SerializeToString()}
    return (ROWS_FILE, size), write_file(store, f"{folder}/{FILE}", empty, version, header, buffers)


def _codes_field(model: Model | VectorModel) -> pa.Field:
    if isinstance(model, Model):
        return pa.field("__pq_code", pa.list_(pa.uint8(), len(model.words) * model.bits // 8))
    if model.bounds is not None:
        return pa.field("__sq_code", pa.list_(pa.uint8(), model.dimension))
    return pa.field("flat", pa.list_(pa.from_numpy_dtype(np.dtype(model.numbers)), model.dimension), nullable=False)


def _codes_array(model: Model | VectorModel, codes: Codes, kind: pa.DataType) -> pa.Array:
    if isinstance(model, Model):
        codes = (codes[:, ::2] | (codes[:, 1::2] << 4) if model.bits == 4 else codes).T
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(codes).ravel()), type=kind)
