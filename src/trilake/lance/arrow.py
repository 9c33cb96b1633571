"""Arrow extension types of pylance: 16-bit floats and images.

Importing this module registers them, unless another library has registered the names.  Images are URIs, encoded images,
or tensors of one shape; decoding and encoding need Pillow, TensorFlow, or a user function.
"""

from __future__ import annotations

import io
import json
import os
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as fs

from trilake.common.extras import load
from trilake.errors import InvalidArgumentError, MissingDependencyError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance.bfloat16 import (
    BFloat16,
    BFloat16Array,
    BFloat16Scalar,
    BFloat16Type,
    bfloat16_array,
    cast,
)

if TYPE_CHECKING:
    from trilake.lance.pylance.bfloat16_pandas import PandasBFloat16Array, PandasBFloat16Type

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


#: Default storage types.
_STRING, _BINARY = pa.string(), pa.binary()


def _check_storage(storage_type: pa.DataType, expected: Sequence[pa.DataType]) -> None:
    if storage_type not in expected:
        raise InvalidArgumentError(f"storage_type must be {' or '.join(map(str, expected))}, got {storage_type}")


class _ImageType(pa.ExtensionType):
    """Base class of image types whose only parameter is the storage type."""

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        return cls(storage_type)

    def __arrow_ext_class__(self) -> type[ImageArray]:
        return _CLASSES[type(self)][0]

    def __arrow_ext_scalar_class__(self) -> type[ImageScalar]:
        return _CLASSES[type(self)][1]


class ImageURIType(_ImageType):
    """Image URIs, in strings or large strings."""

    def __init__(self, storage_type: pa.DataType = _STRING) -> None:
        _check_storage(storage_type, (pa.string(), pa.large_string()))
        super().__init__(storage_type, "lance.arrow.image_uri")


class EncodedImageType(_ImageType):
    """Images as the bytes of their files, in binary or large binary."""

    def __init__(self, storage_type: pa.DataType = _BINARY) -> None:
        _check_storage(storage_type, (pa.binary(), pa.large_binary()))
        super().__init__(storage_type, "lance.arrow.encoded_image")


class FixedShapeImageTensorType(_ImageType):
    """Images as tensors of one shape: rows x columns x channels."""

    def __init__(self, arrow_type: pa.DataType, shape: Sequence[int]) -> None:
        if not len(shape):
            raise InvalidArgumentError("the shape of a tensor must have at least one dimension")
        self.arrow_type, self.shape = arrow_type, tuple(int(n) for n in shape)
        super().__init__(pa.list_(arrow_type, int(np.prod(self.shape))), "lance.arrow.fixed_shape_image_tensor")

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"shape": self.shape}).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        return cls(storage_type.value_type, json.loads(serialized.decode())["shape"])


class ImageScalar(pa.ExtensionScalar):
    """Base class of single images; ``as_py`` returns the stored value: a string, bytes, or a list of numbers."""


class ImageURIScalar(ImageScalar):
    """The URI of an image."""


class EncodedImageScalar(ImageScalar):
    """An image as the bytes of its file."""


class FixedShapeImageTensorScalar(ImageScalar):
    """The pixels of an image."""


def _array(kind: pa.ExtensionType, storage: pa.Array) -> Any:
    return pa.ExtensionArray.from_storage(kind, storage)


class ImageArray(pa.ExtensionArray):
    """Base class of image arrays."""

    def __repr__(self) -> str:
        return f"<lance.arrow.{type(self).__name__} object at 0x{id(self):016x}>\n{self.to_pylist()!r}"

    @classmethod
    def from_array(cls, images: Any) -> Any:
        """Create an array from image URIs (strings), encoded images (bytes) or tensors.  Raises ``WrongTypeError``."""
        if isinstance(images, ImageArray):
            return images
        if isinstance(images, pa.StringArray | pa.LargeStringArray):
            return _array(ImageURIType(images.type), images)
        if isinstance(images, pa.BinaryArray | pa.LargeBinaryArray):
            return _array(EncodedImageType(images.type), images)
        if isinstance(images, pa.FixedShapeTensorArray):
            return _array(FixedShapeImageTensorType(images.type.value_type, images.type.shape), images.storage)
        if isinstance(images, Iterable) and not isinstance(images, str | bytes):
            return _array(ImageURIType(), pa.array(images, pa.string()))
        raise WrongTypeError(f"Cannot build a ImageArray from {type(images)}")


class ImageURIArray(ImageArray):
    """An array of URIs: local paths, HTTP, or any file system that pyarrow supports."""

    @classmethod
    def from_uris(cls, uris: Any) -> Any:
        """Create an array from URIs or paths.  Raises ``WrongTypeError``."""
        if isinstance(uris, pa.StringArray | pa.LargeStringArray):
            return _array(ImageURIType(uris.type), uris)
        if isinstance(uris, str | bytes) or not isinstance(uris, Iterable):
            raise WrongTypeError(f"Cannot build a ImageURIArray from {type(uris)}", help="pass strings or paths")
        return _array(ImageURIType(), pa.array([os.fspath(uri) for uri in uris], pa.string()))

    def read_uris(self, storage_type: pa.DataType = _BINARY) -> Any:
        """Read the images into an array of encoded images; large binary stores more than 2 GiB."""
        kind = EncodedImageType(storage_type)
        return _array(kind, pa.array([_read(uri) for uri in self.storage.to_pylist()], storage_type))


def _read(uri: str) -> bytes:
    if urllib.parse.urlparse(uri).scheme in ("http", "https"):
        with urllib.request.urlopen(uri) as response:
            return bytes(response.read())
    filesystem, path = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
    with filesystem.open_input_stream(path) as file:
        return bytes(file.read())


class EncodedImageArray(ImageArray):
    """An array of images as the bytes of their files."""

    def to_tensor(self, decoder: Callable[[pa.Array], Any] | None = None) -> Any:
        """Decode the images to tensors of one shape.

        ``decoder`` converts an array of bytes to a numpy array of shape (images, ...) or to an array of tensors.
        Without it, raises ``MissingDependencyError`` if neither Pillow nor TensorFlow is installed.
        """
        pixels = (decoder or _decoder())(self.storage)
        if isinstance(pixels, np.ndarray):
            pixels = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(pixels))
        return _array(FixedShapeImageTensorType(pixels.type.value_type, pixels.type.shape), pixels.storage)


class FixedShapeImageTensorArray(ImageArray):
    """An array of images as pixels."""

    def to_numpy(self, zero_copy_only: bool = False, **more: Any) -> npt.NDArray[Any]:
        """Convert to a numpy array of pixels, whose first axis is the image."""
        kind = pa.fixed_shape_tensor(self.storage.type.value_type, self.type.shape)
        pixels: npt.NDArray[Any] = pa.ExtensionArray.from_storage(kind, self.storage).to_numpy_ndarray()
        return pixels

    def to_encoded(
        self, encoder: Callable[[npt.NDArray[Any]], Any] | None = None, storage_type: pa.DataType = _BINARY
    ) -> Any:
        """Encode the images as PNG, or with ``encoder``, which converts the pixels to an array of bytes."""
        images = (encoder or _encoder())(self.to_numpy())
        return _array(EncodedImageType(storage_type), images.cast(storage_type))


#: The classes of arrays and of their items, by type.
_CLASSES: dict[type[_ImageType], tuple[type[ImageArray], type[ImageScalar]]] = {
    ImageURIType: (ImageURIArray, ImageURIScalar),
    EncodedImageType: (EncodedImageArray, EncodedImageScalar),
    FixedShapeImageTensorType: (FixedShapeImageTensorArray, FixedShapeImageTensorScalar),
}


def _library() -> tuple[str, Any]:
    for name in ("tensorflow", "PIL.Image"):
        try:
            return name, import_module(name)
        except ImportError:
            continue
    raise MissingDependencyError(
        "images are decoded and encoded by Pillow or TensorFlow, and neither is installed",
        help="pip install pillow, or pass a function",
    )


def _decoder() -> Callable[[pa.Array], Any]:
    name, library = _library()
    if name == "tensorflow":
        return lambda images: library.stack([library.io.decode_image(i) for i in images.to_pylist()], axis=0).numpy()
    return lambda images: np.stack([np.asarray(library.open(io.BytesIO(i))) for i in images.to_pylist()])


def _encoder() -> Callable[[npt.NDArray[Any]], Any]:
    name, library = _library()

    def encoded(pixels: npt.NDArray[Any]) -> bytes:
        if name == "tensorflow":
            return bytes(library.io.encode_png(pixels).numpy())
        out = io.BytesIO()
        library.fromarray(pixels.squeeze()).save(out, format="PNG")
        return out.getvalue()

    return lambda all_pixels: pa.array([encoded(p) for p in all_pixels], pa.binary())


for _type in (BFloat16Type(), ImageURIType(), EncodedImageType(), FixedShapeImageTensorType(pa.uint8(), (0,))):
    with suppress(pa.ArrowKeyError):  # registered by another library
        pa.register_extension_type(_type)

_pandas: ModuleType | None = None
with suppress(MissingDependencyError):  # pandas is optional
    _pandas = import_module("trilake.lance.pylance.bfloat16_pandas")


def __getattr__(name: str) -> Any:
    if name in ("PandasBFloat16Array", "PandasBFloat16Type"):
        return getattr(_pandas or load("trilake.lance.pylance.bfloat16_pandas", "pandas columns"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
