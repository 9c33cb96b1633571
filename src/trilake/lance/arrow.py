"""Arrow extension types of pylance: 16-bit floats and images.

Importing this module registers them, unless another library has registered the names.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trilake.common.extras import load
from trilake.lance.pylance.extension_types.arrow_types import (
    BFloat16,
    BFloat16Array,
    BFloat16Scalar,
    BFloat16Type,
    bfloat16_array,
    cast,
)
from trilake.lance.pylance.extension_types.images import (
    EncodedImageArray,
    EncodedImageScalar,
    EncodedImageType,
    FixedShapeImageTensorArray,
    FixedShapeImageTensorScalar,
    FixedShapeImageTensorType,
    ImageArray,
    ImageScalar,
    ImageURIArray,
    ImageURIScalar,
    ImageURIType,
)

if TYPE_CHECKING:
    from trilake.lance.pylance.extension_types.arrow_pandas import PandasBFloat16Array, PandasBFloat16Type

__all__ = [
    "BFloat16",
    "BFloat16Array",
    "BFloat16Scalar",
    "BFloat16Type",
    "EncodedImageArray",
    "EncodedImageScalar",
    "EncodedImageType",
    "FixedShapeImageTensorArray",
    "FixedShapeImageTensorScalar",
    "FixedShapeImageTensorType",
    "ImageArray",
    "ImageScalar",
    "ImageURIArray",
    "ImageURIScalar",
    "ImageURIType",
    "PandasBFloat16Array",
    "PandasBFloat16Type",
    "bfloat16_array",
    "cast",
]

for _type in (BFloat16Type(), ImageURIType(), EncodedImageType(), FixedShapeImageTensorType(pa.uint8(), (0,))):
    with suppress(pa.ArrowKeyError):  # registered by another library
        pa.register_extension_type(_type)

_pandas: ModuleType | None = None
with suppress(ImportError):  # pandas is optional
    _pandas = import_module("trilake.lance.pylance.extension_types.arrow_pandas")


def __getattr__(name: str) -> Any:
    if name in ("PandasBFloat16Array", "PandasBFloat16Type"):
        return getattr(_pandas or load("trilake.lance.pylance.extension_types.arrow_pandas", "pandas columns"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
