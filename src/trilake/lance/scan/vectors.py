"""Vectors of columns, of lists in columns, and of queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import columns_help
from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import UnknownColumnError, WrongTypeError
from trilake.lance.file.extensions import storage_array
from trilake.lance.index.ivf_pq import distances
from trilake.lance.scan.snapshot import Snapshot

Floats = npt.NDArray[np.float32]


def vector_type(snapshot: Snapshot, column: str, *, bytes_too: bool = False, lists_too: bool = False) -> pa.DataType:
    """The type of a vector column: of floating point numbers or, with ``bytes_too``, of bytes.

    With ``lists_too``, the column may also have lists of such vectors.
    Raises ``UnknownColumnError``, and ``WrongTypeError`` for any other column.
    """
    field = snapshot.view.schema.find(column)
    if field is None:
        raise UnknownColumnError(f"{column} not found in schema", help=columns_help(column, snapshot.schema.names))
    kind = field.arrow_type
    vector = kind.value_type if lists_too and pa.types.is_list(kind) else kind
    is_vector = pa.types.is_fixed_size_list(vector) and vector.list_size
    if not is_vector or not (
        pa.types.is_floating(vector.value_type) or (bytes_too and vector.value_type == pa.uint8())
    ):
        raise WrongTypeError(
            f"the column must be a vector column, got type {kind}",
            help="vectors are fixed-size lists of floating point numbers",
            column=column,
        )
    return kind


def vectors_in(q: Any) -> tuple[Floats, bool]:
    """Convert one query vector or several to float32 rows; also return whether it is a single vector.

    Raises ``InvalidArgumentError``, or ``WrongTypeError`` if it is not a vector.
    """
    if isinstance(q, pa.Scalar):
        q = q.as_py()
    if hasattr(q, "to_pylist"):
        q = q.to_pylist()
    if isinstance(q, str | bytes):
        raise WrongTypeError(f"query vector must be list-like, got {type(q).__name__}")
    if isinstance(q, list | tuple):
        lengths = sorted({len(one) for one in q if hasattr(one, "__len__")})
        if len(lengths) > 1:
            raise WrongTypeError(f"All query vectors must have the same length, got {lengths[0]} and {lengths[-1]}")
    try:
        vectors = np.asarray(q, np.float32)
    except (ValueError, TypeError) as e:
        raise WrongTypeError(f"Query vectors should be an array of floats: {e}") from e
    if q is None or not vectors.ndim:
        raise WrongTypeError(f"Query vectors should be an array of floats, got {type(q).__name__}")
    if vectors.ndim not in (1, 2):
        raise InvalidArgumentError(
            f"expected one query vector or a list of them, got an array of {vectors.ndim} dimensions"
        )
    if vectors.ndim == 2 and not len(vectors):
        raise InvalidArgumentError("expected at least one query vector, got none", help="pass a vector")
    return (vectors[None], True) if vectors.ndim == 1 else (vectors, False)


def vector_leaf(column: pa.Array) -> pa.Array:
    """The vectors of a column, or of the only field at each level of structs."""
    column = storage_array(column)
    while pa.types.is_struct(column.type):
        column = storage_array(pc.struct_field(column, 0))
    return column


def vectors_of(column: pa.Array, size: int) -> Floats:
    """The vectors of a column, shape (rows, size); a null is NaN, which is near nothing."""
    values = column.flatten().to_numpy(zero_copy_only=False)  # without the items of nulls
    vectors: Floats = values.reshape(-1, size).astype(np.float32, copy=False)
    if not column.null_count:
        return vectors
    whole = np.full((len(column), size), np.nan, np.float32)
    whole[valid_rows(column)] = vectors
    return whole


def valid_rows(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values of a column are not null."""
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def vectors_and_rows(column: pa.Array, size: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The vectors of a column of vectors or lists of vectors, and the row of each."""
    if not pa.types.is_list(column.type):
        return vectors_of(column, size), np.arange(len(column))
    return vectors_of(column.flatten(), size), np.repeat(np.arange(len(column)), _lengths(column))


def list_distances(column: pa.Array, queries: Floats, metric: str) -> Floats:
    """The distance of each list of vectors: the sum of the distances from each query vector to its nearest vector.

    A list without vectors is NaN, which is near nothing.

    >>> lists = pa.array([[[0, 1], [3, 4]], []], pa.list_(pa.list_(pa.float32(), 2)))
    >>> list_distances(lists, np.array([[0, 0], [3, 3]], np.float32), "l2").tolist()
    [2.0, nan]
    """
    lengths = _lengths(column)
    total = np.full(len(column), np.nan, np.float32)
    present = lengths > 0
    if present.any():
        items = column.flatten()
        vectors, valid = vectors_of(items, queries.shape[1]), valid_rows(items)
        starts = (np.cumsum(lengths) - lengths)[present]
        each = (np.where(valid, distances(vectors, q, metric), np.float32(np.nan)) for q in queries)
        total[present] = sum(np.fmin.reduceat(one, starts) for one in each)
    return total


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths
