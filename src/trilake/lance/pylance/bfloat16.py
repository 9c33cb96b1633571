"""``BFloat16``: 16-bit floats with the range of 32-bit floats, as an Arrow extension type.

A value is stored in two bytes, the upper half of the 32-bit float, under the extension name ``lance.bfloat16``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import total_ordering
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.extras import load
from trilake.errors import InvalidArgumentError


def _rounded(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the upper halves of 32-bit floats, rounded to the nearest value, ties to even."""
    bits = values.view(np.uint32)
    up = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: npt.NDArray[np.uint16] = ((bits + np.uint32(0x7FFF) + up) >> np.uint32(16)).astype(np.uint16)
    rounded[np.isnan(values)] = 0x7FC0
    return rounded


@total_ordering
class BFloat16:
    """A bfloat16 number.

    >>> BFloat16(1.1), BFloat16(1.1) == BFloat16(1.1015625), BFloat16.from_bytes(bytes([128, 63]))
    (1.1015625, True, 1)
    """

    __slots__ = ("_value",)

    def __init__(self, value: float) -> None:
        bits = _rounded(np.array([value], np.float32)).astype(np.uint32) << np.uint32(16)
        self._value = float(bits.view(np.float32)[0])

    @classmethod
    def from_bytes(cls, data: bytes) -> BFloat16:
        """Create a number from its two bytes.  Raises ``InvalidArgumentError`` for another length."""
        if len(data) != 2:
            raise InvalidArgumentError(f"expected 2 bytes, got {len(data)}")
        return cls(float(np.frombuffer(bytes(2) + bytes(data), "<f4")[0]))

    def as_float(self) -> float:
        """Convert to a Python float."""
        return self._value

    def __float__(self) -> float:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat16) and self._value == other._value

    def __lt__(self, other: BFloat16) -> bool:
        return self._value < other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return np.format_float_positional(np.float32(self._value), trim="-") if self._value == self._value else "NaN"

    def __reduce__(self) -> tuple[Any, ...]:
        return BFloat16, (self._value,)


class BFloat16Type(pa.ExtensionType):
    """The Arrow type of :class:`BFloat16`."""

    def __init__(self) -> None:
        super().__init__(pa.binary(2), "lance.bfloat16")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> BFloat16Type:
        return cls()

    def __arrow_ext_class__(self) -> type[BFloat16Array]:
        return BFloat16Array

    def __arrow_ext_scalar_class__(self) -> type[BFloat16Scalar]:
        return BFloat16Scalar

    def to_pandas_dtype(self) -> Any:
        """Return the pandas type.  Raises ``MissingDependencyError`` without pandas."""
        return load("pandas", "pandas columns").api.types.pandas_dtype("lance.bfloat16")


class BFloat16Scalar(pa.ExtensionScalar):
    """A value of a :class:`BFloat16Array`, equal to :class:`BFloat16` and ml_dtypes scalars of the same value."""

    def as_py(self, **more: Any) -> BFloat16 | None:
        return None if self.value is None else BFloat16.from_bytes(self.value.as_py())

    def __eq__(self, other: Any) -> bool:
        if type(other).__name__ == "bfloat16":  # ml_dtypes need not be installed
            other = BFloat16(float(other))
        return bool(self.as_py() == (other.as_py() if isinstance(other, BFloat16Scalar) else other))

    def __hash__(self) -> int:
        return hash(self.as_py())


class BFloat16Array(pa.ExtensionArray):
    """An array of bfloat16 numbers."""

    def __repr__(self) -> str:
        return f"<lance.arrow.BFloat16Array object at 0x{id(self):016x}>\n{self}"

    def __str__(self) -> str:
        return "[\n" + ",\n".join(f"  {value!r}" for value in self.to_pylist()) + "\n]"

    def cast(self, target_type: Any, *args: Any, **options: Any) -> pa.Array:
        """Cast to a type that 32-bit floats can be cast to."""
        return cast(self, target_type, *args, **options)

    def to_numpy(self, zero_copy_only: bool = False, **more: Any) -> npt.NDArray[Any]:
        """Convert to a numpy array with the type of ml_dtypes.  Raises ``InvalidArgumentError`` for nulls."""
        if self.null_count:
            raise InvalidArgumentError("numpy arrays of bfloat16 cannot have nulls", help="fill the nulls first")
        bfloat16 = load("ml_dtypes", "numpy arrays of bfloat16").bfloat16
        data = self.storage.buffers()[1]
        return np.frombuffer(data, bfloat16, len(self), 2 * self.offset)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> BFloat16Array:
        """Convert from a numpy array with the type of ml_dtypes.  Raises ``InvalidArgumentError`` for other types."""
        if array.dtype.name != "bfloat16":
            raise InvalidArgumentError(f"expected a numpy array of bfloat16, got {array.dtype}")
        storage = pa.Array.from_buffers(pa.binary(2), len(array), [None, pa.py_buffer(array.tobytes())])
        converted: BFloat16Array = pa.ExtensionArray.from_storage(BFloat16Type(), storage)
        return converted


def bfloat16_array(values: Iterable[float | BFloat16 | None]) -> BFloat16Array:
    """Create an array of rounded numbers; ``None`` is null.

    >>> bfloat16_array([1.1, None]).to_pylist()
    [1.1015625, None]
    """
    floats = [v.as_float() if isinstance(v, BFloat16) else v for v in values]
    numbers = np.array([np.nan if v is None else v for v in floats], np.float32)
    data = pa.py_buffer(_rounded(numbers).astype("<u2").tobytes())
    plain = pa.Array.from_buffers(pa.binary(2), len(floats), [None, data])
    missing = np.array([v is None for v in floats], bool)
    storage = plain.take(pa.array(np.arange(len(floats)), mask=missing)) if missing.any() else plain
    array: BFloat16Array = pa.ExtensionArray.from_storage(BFloat16Type(), storage)
    return array


def cast(array: pa.Array, target_type: Any, *args: Any, **options: Any) -> pa.Array:
    """Cast an array as Arrow does, and also from and to :class:`BFloat16Type`, including in fixed-size lists.

    Parameters
    ----------
    array: the array.
    target_type: the type, or its name: one of Arrow's names or ``"bfloat16"``.
    args, options: those of Arrow's ``cast``.

    >>> cast(pa.array([1.1, None]), "bfloat16").to_pylist(), cast(bfloat16_array([1.1]), pa.float32()).to_pylist()
    ([1.1015625, None], [1.1015625])
    """
    target = BFloat16Type() if target_type in ("bfloat16", "bf16") else target_type
    is_bfloat16 = pa.types.is_fixed_size_list(array.type) and isinstance(array.type.value_type, BFloat16Type)
    if isinstance(target, pa.FixedSizeListType) and (is_bfloat16 or isinstance(target.value_type, BFloat16Type)):
        if not pa.types.is_fixed_size_list(array.type) or array.type.list_size != target.list_size:
            raise InvalidArgumentError(f"{array.type} cannot be cast to {target}", help="the sizes must be the same")
        start = array.offset * target.list_size
        values = cast(array.values.slice(start, len(array) * target.list_size), target.value_type, *args, **options)
        mask = array.is_null() if array.null_count else None
        return pa.FixedSizeListArray.from_arrays(values, type=target, mask=mask)
    if isinstance(array, BFloat16Array) and not isinstance(target, BFloat16Type):
        return _floats(array).cast(target, *args, **options)
    if isinstance(target, BFloat16Type) and not isinstance(array, BFloat16Array):
        floats = array.cast(pa.float32(), *args, **options)
        return bfloat16_array(floats.to_pylist())
    return array if isinstance(array, BFloat16Array) else array.cast(target, *args, **options)


def _floats(array: BFloat16Array) -> pa.FloatArray:
    data = np.frombuffer(array.storage.buffers()[1] or b"", "<u2", len(array), 2 * array.offset)
    values = (data.astype(np.uint32) << np.uint32(16)).view(np.float32)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(values, pa.float32(), mask=mask)
