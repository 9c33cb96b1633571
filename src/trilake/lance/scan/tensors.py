"""Convert batches to numpy arrays, for tensor libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError


def batch_to_numpy(batch: pa.RecordBatch, *, uint64_as_int64: bool = True) -> dict[str, npt.NDArray[Any]]:
    """Convert the columns of a batch to arrays: numbers and booleans, vectors and tensors of numbers.

    Parameters
    ----------
    batch: without nulls.
    uint64_as_int64: whether to convert uint64 to int64, which all libraries have; row ids fit.

    Raises ``WrongTypeError`` for columns of other types, and ``InvalidArgumentError`` for nulls and numbers above 2^63.

    >>> arrays = batch_to_numpy(pa.record_batch({"a": pa.array([1, 2], pa.uint64())}))
    >>> arrays["a"].dtype, arrays["a"].tolist()
    (dtype('int64'), [1, 2])
    """
    return {name: _column(name, column, uint64_as_int64) for name, column in zip(batch.schema.names, batch.columns)}


def _column(name: str, column: pa.Array, uint64_as_int64: bool) -> npt.NDArray[Any]:
    if column.null_count:
        raise InvalidArgumentError(
            "the column has nulls, which tensors cannot represent",
            help="filter them out: column IS NOT NULL",
            column=name,
        )
    if isinstance(column, pa.FixedShapeTensorArray):
        return np.asarray(column.to_numpy_ndarray())
    if pt.is_fixed_size_list(column.type) and _is_number(column.type.value_type):
        return _numbers(name, column.flatten(), uint64_as_int64).reshape(len(column), column.type.list_size)
    if not _is_number(column.type):
        raise WrongTypeError(
            f"the column is of type {column.type}",
            help="tensors are made of numbers, booleans, and fixed-size lists of them",
            column=name,
        )
    return _numbers(name, column, uint64_as_int64)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def _numbers(name: str, column: pa.Array, uint64_as_int64: bool) -> npt.NDArray[Any]:
    if column.null_count:
        raise InvalidArgumentError("a vector in the column contains nulls, which tensors cannot represent", column=name)
    if pt.is_uint64(column.type) and uint64_as_int64:
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid as e:
            raise InvalidArgumentError(f"a number does not fit int64: {e}", column=name) from e
    numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers
