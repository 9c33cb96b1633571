"""Vectors of Spark ML, ``VectorUDT``, as Arrow lists, and back.

Spark passes a vector as a struct: its kind and, for a sparse one, its size and indices.  A column that was written from
such vectors has a mark in its metadata, and is read as vectors again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from trilake.errors import CorruptFileError, InvalidArgumentError

#: The mark in the metadata of a column that was written from vectors.
ML_VECTOR = b"trilake:ml_vector"

_CLASSES = ("org.apache.spark.ml.linalg.VectorUDT", "org.apache.spark.mllib.linalg.VectorUDT")
_SPARSE, _DENSE = 0, 1
#: The limit on numbers in the vectors of one batch, since a sparse vector can claim any size.
_MOST = 1 << 28

#: Spark's struct for a vector.
STRUCT = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("values", pa.list_(pa.field("element", pa.float64(), nullable=False))),
    ]
)


def is_vector(kind: T.DataType) -> bool:
    """Whether a type is Spark's vector type."""
    return isinstance(kind, T.UserDefinedType) and kind.jsonValue().get("class") in _CLASSES


def plain(schema: T.StructType) -> tuple[T.StructType, dict[str, int | None]]:
    """The schema with vectors as arrays of doubles, and the vector columns with the sizes in their metadata."""
    fields, sizes = [], {}
    for field in schema.fields:
        if is_vector(field.dataType):
            attributes = (field.metadata or {}).get("ml_attr")
            count = attributes.get("num_attrs") if isinstance(attributes, dict) else None
            sizes[field.name] = count if isinstance(count, int) and count > 0 else None
            field = T.StructField(field.name, T.ArrayType(T.DoubleType()), field.nullable)
        fields.append(field)
    return T.StructType(fields), sizes


def declared(schema: T.StructType, names: Iterable[str]) -> T.StructType:
    """The schema with some columns as vectors.  Raises ``InvalidArgumentError`` for a column without numbers."""
    from pyspark.ml.linalg import VectorUDT  # late: few programs need it

    requested = set(names)
    unknown = requested - set(schema.names)
    if unknown:
        raise InvalidArgumentError(f"option mlVectors names {min(unknown)!r}, which is not a column")
    fields = []
    for field in schema.fields:
        if field.name in requested:
            numbers = isinstance(field.dataType, T.ArrayType) and isinstance(
                field.dataType.elementType, T.DoubleType | T.FloatType
            )
            if not numbers:
                raise InvalidArgumentError(f"{field.name!r} is not a vector column", column=field.name)
            field = T.StructField(field.name, VectorUDT(), field.nullable)
        fields.append(field)
    return T.StructType(fields)


def vector_columns(option: str | None, schema: pa.Schema) -> list[str]:
    """The columns to read as vectors: those in the option (``*`` for all), or by default those written from vectors."""
    if option is None:
        return [f.name for f in schema if f.metadata is not None and ML_VECTOR in f.metadata]
    if option.strip() == "*":
        return [
            f.name
            for f in schema
            if bool(pa.types.is_fixed_size_list(f.type) or pa.types.is_list(f.type) or pa.types.is_large_list(f.type))
            and pa.types.is_floating(f.type.value_type)
        ]
    return [name.strip() for name in option.split(",") if name.strip()]


def lists_in(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """A batch from Spark with its vectors as lists of doubles."""
    for name in names:
        i = batch.schema.get_field_index(name)
        batch = batch.set_column(i, pa.field(name, pa.list_(pa.float64())), as_lists(batch.column(i)))
    return batch


def as_lists(vectors: pa.StructArray) -> pa.ListArray:
    """Dense and sparse vectors as lists; null stays null.  Raises ``CorruptFileError`` for a sparse vector with an
    index outside its size."""
    valid = vectors.is_valid().to_numpy(zero_copy_only=False)
    kind, size, indices, values = (vectors.field(name) for name in ("type", "size", "indices", "values"))
    dense = (kind.fill_null(_DENSE).to_numpy(zero_copy_only=False) != _SPARSE) | ~valid
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    counts = lengths
    sizes = np.where(dense, counts, size.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    sizes[~valid] = 0
    if len(sizes) and (sizes.min() < 0 or int(sizes.sum()) > _MOST):
        raise CorruptFileError(
            f"the vectors of a batch have {int(sizes.sum())} elements in total, more than {_MOST}",
            help="read smaller batches",
        )
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    numbers = np.zeros(int(offsets[-1]))
    counts = np.where(valid, counts, 0)
    row = np.repeat(np.arange(len(sizes)), counts)
    inside = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    sparse_values = _flat(values, counts, np.float64)
    index = np.where(dense[row], inside, 0)
    sparse = np.flatnonzero(~dense[row])
    if len(sparse):
        sparse_indices = _flat(indices, np.where(dense, 0, counts), np.int64)
        if len(sparse_indices) != len(sparse):
            raise CorruptFileError("a sparse vector has different numbers of indices and values")
        index[sparse] = sparse_indices
    if len(index) and (index.min() < 0 or (index >= sizes[row]).any()):
        raise CorruptFileError("a sparse vector has an index outside its size")
    numbers[offsets[row] + index] = sparse_values
    edges = pa.array(offsets.astype(np.int32), mask=np.append(~valid, False) if not valid.all() else None)
    return pa.ListArray.from_arrays(edges, pa.array(numbers))


def _flat(lists: pa.ListArray, counts: Any, kind: Any) -> Any:
    """The items of the lists with a count above zero, concatenated."""
    chosen = lists.filter(pa.array(np.asarray(counts) > 0))
    return chosen.flatten().to_numpy(zero_copy_only=False).astype(kind)


def vectors_in(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """A batch for Spark with some of its lists as dense vectors."""
    for name in names:
        i = batch.schema.get_field_index(name)
        batch = batch.set_column(i, pa.field(name, STRUCT), as_vectors(batch.column(i)))
    return batch


def as_vectors(lists: pa.Array) -> pa.StructArray:
    """Lists of numbers as dense vectors."""
    values = lists.cast(STRUCT.field("values").type)
    rows = len(lists)
    children = [
        pa.array(np.full(rows, _DENSE, np.int8)),
        pa.nulls(rows, pa.int32()),
        pa.nulls(rows, STRUCT.field("indices").type),
        values,
    ]
    return pa.StructArray.from_arrays(children, fields=list(STRUCT), mask=lists.is_null())
