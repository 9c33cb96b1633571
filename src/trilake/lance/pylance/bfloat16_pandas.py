""":class:`~trilake.lance.pylance.bfloat16.BFloat16` as a pandas extension type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.extras import missing
from trilake.errors import InvalidArgumentError
from trilake.lance.pylance.bfloat16 import BFloat16, BFloat16Array, bfloat16_array

try:
    from pandas.api.extensions import ExtensionArray, ExtensionDtype, register_extension_dtype
except ImportError:
    raise missing("pandas", "pandas columns") from None


@register_extension_dtype
class PandasBFloat16Type(ExtensionDtype):
    """The pandas type ``lance.bfloat16``."""

    kind = "f"
    na_value = None
    name = "lance.bfloat16"
    names = None
    type = BFloat16
    _is_numeric = True

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> PandasBFloat16Array:
        return PandasBFloat16Array(array)

    @classmethod
    def construct_array_type(cls) -> Any:
        return PandasBFloat16Array

    @classmethod
    def construct_from_string(cls, string: str) -> PandasBFloat16Type:
        """Return the type with this name.  Raises ``TypeError``, as pandas requires."""
        if string != cls.name:
            raise TypeError(f"Cannot construct a {cls.__name__!r} from {string!r}")
        return cls()


class PandasBFloat16Array(ExtensionArray):
    """A pandas array backed by an Arrow array."""

    dtype = PandasBFloat16Type()

    def __init__(self, data: pa.Array | pa.ChunkedArray) -> None:
        self.data = data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, copy: bool = False) -> PandasBFloat16Array:
        return scalars if isinstance(scalars, cls) else cls(bfloat16_array(list(scalars)))

    @classmethod
    def _from_factorized(cls, values: Any, original: Any) -> PandasBFloat16Array:
        return cls(bfloat16_array(list(values)))

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[PandasBFloat16Array]) -> PandasBFloat16Array:
        return cls(pa.concat_arrays([part.data for part in to_concat]))

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            return self.data[int(item)].as_py()
        if isinstance(item, slice):
            return self.take(np.arange(len(self))[item])
        numbers = np.asarray(item)
        if numbers.dtype == bool:
            return PandasBFloat16Array(self.data.filter(pa.array(numbers)))
        return self.take(numbers)

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> PandasBFloat16Array:
        """Return the values at some positions; with ``allow_fill``, -1 means null."""
        numbers = np.asarray(indices, np.int64)
        if fill_value is not None:
            raise InvalidArgumentError(f"fill_value must be None, got {fill_value!r}")
        if not allow_fill:
            numbers = np.where(numbers < 0, numbers + len(self), numbers)
        return PandasBFloat16Array(self.data.take(pa.array(numbers, mask=numbers < 0)))

    def __len__(self) -> int:
        return len(self.data)

    def __eq__(self, other: Any) -> Any:
        return np.array([a == b for a, b in zip(self, other)], bool)

    __hash__ = None  # type: ignore[assignment]  # not hashable

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def copy(self) -> PandasBFloat16Array:
        """Return an array that shares the values, which are immutable."""
        return PandasBFloat16Array(self.data)

    def isna(self) -> npt.NDArray[np.bool_]:
        nulls: npt.NDArray[np.bool_] = self.data.is_null().to_numpy(zero_copy_only=False)
        return nulls

    def to_numpy(self, *args: Any, **more: Any) -> npt.NDArray[Any]:
        """Convert to a numpy array with the type of the package ml_dtypes; with nulls, to Python objects."""
        if args or more or self.data.null_count:
            return np.array(self.data.to_pylist(), object)
        values: npt.NDArray[Any] = self.data.to_numpy()
        return values

    def __arrow_array__(self, type: Any = None) -> pa.Array:
        return self.data

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> PandasBFloat16Array:
        """Convert from a numpy array with the type of the package ml_dtypes."""
        return cls(BFloat16Array.from_numpy(array))
