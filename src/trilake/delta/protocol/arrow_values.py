"""Create Arrow values from Python's and numpy's by their buffers, for opening a table quickly.

``pa.array``, ``pa.scalar``, ``Array.to_numpy`` and Acero load pandas, where installed, at their first call, which takes
longer than opening a table.
"""

from __future__ import annotations

from struct import pack

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def text_scalar(text: str) -> pa.Scalar:
    """A string scalar."""
    data = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(pack("=ii", 0, len(data))), pa.py_buffer(data))[0]


def int64_array(numbers: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Numbers as an array, without a copy where they are contiguous."""
    data = np.ascontiguousarray(numbers, np.int64)
    return pa.Int64Array.from_buffers(pa.int64(), len(data), [None, pa.py_buffer(data)])


def as_numpy(numbers: pa.Array) -> npt.NDArray[np.signedinteger]:
    """Integers without nulls as a numpy array, without a copy.  Raises ``ValueError`` for nulls."""
    if numbers.null_count:
        raise ValueError("numbers with nulls are not an array of numpy")
    if not len(numbers):
        return np.empty(0, numbers.type.to_pandas_dtype())
    return np.frombuffer(numbers.buffers()[1], numbers.type.to_pandas_dtype())[numbers.offset :][: len(numbers)]
