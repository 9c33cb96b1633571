"""The pylance API for blobs: columns of bytes or references to bytes.

Importing this module registers the Arrow extension type, unless another library has registered it.

>>> import pyarrow as pa
>>> column = blob_array([b"inline", "file:///tmp/x.bin", Blob.from_uri("s3://bucket/pack", 10, 5), None])
>>> [one and one["uri"] for one in column.storage.to_pylist()]
[None, 'file:///tmp/x.bin', 's3://bucket/pack', None]
>>> blob_field("image", inline_size_threshold=1024).metadata
{b'lance-encoding:blob-inline-size-threshold': b'1024'}
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.schema import BLOB_V2
from trilake.lance.pylance.blob_writers import (
    BlobDescriptor,
    BlobDescriptorArrayBuilder,
    DedicatedBlobWriter,
    PackedBlobWriter,
)
from trilake.lance.scan.blob_bytes import BlobFile

__all__ = [
    "Blob",
    "BlobArray",
    "BlobColumn",
    "BlobDescriptor",
    "BlobDescriptorArrayBuilder",
    "BlobFile",
    "BlobIterator",
    "BlobType",
    "DedicatedBlobWriter",
    "PackedBlobWriter",
    "blob_array",
    "blob_field",
]

#: Minimum read size of a :class:`BlobFile`.
DEFAULT_BLOB_BUFFER_SIZE = 512 << 10
_PARTS = (("data", pa.large_binary()), ("uri", pa.string()), ("position", pa.uint64()), ("size", pa.uint64()))
_STORAGE = pa.struct([pa.field(name, kind) for name, kind in _PARTS])


@dataclass(frozen=True)
class Blob:
    """A blob: bytes, or a URI, optionally with the range ``position`` and ``size``.

    Raises ``InvalidArgumentError`` unless exactly one of bytes and URI is given.
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.data is not None and self.uri is not None:
            raise InvalidArgumentError("Blob cannot have both data and uri", help="pass one of them")
        if self.uri == "":
            raise InvalidArgumentError("Blob uri cannot be empty", help="pass None for a null")
        parts = (self.position, self.size)
        if self.uri is None and parts != (None, None):
            raise InvalidArgumentError(
                "External packed blob must have a uri", help="position and size apply only to a URI"
            )
        if None in parts and parts != (None, None):
            raise InvalidArgumentError("External blob must set both position and size, or neither")
        if self.data is None and self.uri is None:
            raise InvalidArgumentError("Blob must set `data` or `uri`; use None for a null blob")
        if self.size == 0:
            raise InvalidArgumentError(
                "External blob range size must be greater than zero", help="use Blob.empty() for an empty blob"
            )
        if any(part is not None and part < 0 for part in parts):
            raise InvalidArgumentError("External blob position and size must be non-negative")

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Blob:
        """Create a blob from bytes."""
        return Blob(data=bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """Create a blob from a URI, or from a range of its bytes."""
        if not uri:
            raise InvalidArgumentError("Blob uri cannot be empty", help="pass None for a null")
        return Blob(uri=uri, position=position, size=size)

    @staticmethod
    def empty() -> Blob:
        """Create an empty blob, which differs from null."""
        return Blob(data=b"")


class BlobType(pa.ExtensionType):
    """The Arrow extension type of blobs to write."""

    def __init__(self, storage_type: pa.DataType = _STORAGE) -> None:
        if not pa.types.is_struct(storage_type):
            raise WrongTypeError(f"BlobType storage type must be a struct, got {storage_type}")
        if storage_type.num_fields not in (2, 4):
            raise WrongTypeError("BlobType storage struct must contain either data/uri or data/uri/position/size")
        for index, (name, kind) in enumerate(_PARTS[: storage_type.num_fields]):
            field = storage_type.field(index)
            if (field.name, field.type) != (name, kind):
                raise WrongTypeError(
                    f"BlobType storage field {index} must be {name}: {kind}, got {field.name}: {field.type}"
                )
            if index < 2 and not field.nullable:
                raise WrongTypeError(f"BlobType storage field {name} must be nullable")
        super().__init__(storage_type, BLOB_V2.decode())

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> BlobType:
        return cls(storage_type)

    def __arrow_ext_class__(self) -> type[BlobArray]:
        return BlobArray

    def __reduce__(self) -> tuple[Any, ...]:
        return BlobType, (self.storage_type,)


class BlobArray(pa.ExtensionArray):
    """An array of blobs."""

    @classmethod
    def from_pylist(cls, values: Sequence[Any]) -> BlobArray:
        """Create an array from bytes, URIs, :class:`Blob` objects and ``None``.  Raises ``WrongTypeError``."""
        blobs = [_blob(value) for value in values]
        parts = [
            pa.array([None if blob is None else getattr(blob, name) for blob in blobs], kind) for name, kind in _PARTS
        ]
        missing = pa.array([blob is None for blob in blobs], pa.bool_())
        storage = pa.StructArray.from_arrays(parts, fields=list(_STORAGE), mask=missing)
        array: BlobArray = pa.ExtensionArray.from_storage(BlobType(), storage)
        return array


def _blob(value: Any) -> Blob | None:
    if value is None or isinstance(value, Blob):
        return value
    if isinstance(value, str):
        return Blob.from_uri(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return Blob.from_bytes(value)
    raise WrongTypeError(f"BlobArray values must be bytes-like, str (URI), Blob, or None; got {type(value)}")


def blob_array(values: Sequence[Any]) -> BlobArray:
    """Create an array of blobs; see :meth:`BlobArray.from_pylist`."""
    return BlobArray.from_pylist(values)


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field:
    """Create the field of a blob column.

    Parameters
    ----------
    name, nullable: name and nullability of the field.
    inline_size_threshold: maximum size of blobs stored in the data file.
    dedicated_size_threshold: minimum size of blobs with their own file.
    pack_file_size_threshold: maximum size of a shared file.

    Raises ``WrongTypeError``, ``InvalidArgumentError``, and ``OverflowError`` for a number beyond 64 bits.
    """
    limits = {"inline": inline_size_threshold, "dedicated": dedicated_size_threshold}
    limits["pack-file"] = pack_file_size_threshold
    metadata = {}
    for limit, value in limits.items():
        if value is None:
            continue
        parameter = f"{limit.replace('-', '_')}_size_threshold"
        if isinstance(value, bool) or not isinstance(value, int):
            raise WrongTypeError(f"{parameter} must be an int, got {type(value).__name__}")
        if value < (0 if limit == "inline" else 1):
            raise InvalidArgumentError(
                f"{parameter} must be {'non-negative' if limit == 'inline' else 'positive'}, got {value}"
            )
        if value > 2 * sys.maxsize + 1:
            raise OverflowError(f"{parameter} must fit in 64 bits, got {value}")
        metadata[f"lance-encoding:blob-{limit}-size-threshold"] = str(value)
    return pa.field(name, BlobType(), nullable, metadata or None)


class BlobIterator:
    """Iterate over a binary column as file objects."""

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values

    def __iter__(self) -> BlobIterator:
        return self

    def __next__(self) -> IO[bytes] | None:
        value = next(self._values).as_py()
        return None if value is None else io.BytesIO(value)


class BlobColumn:
    """A binary column whose values are read as file objects.

    >>> import pyarrow as pa
    >>> [file.read() for file in BlobColumn(pa.array([b"a", b"bc"]))]
    [b'a', b'bc']
    """

    def __init__(self, blob_column: pa.Array | pa.ChunkedArray) -> None:
        if not isinstance(blob_column, pa.Array | pa.ChunkedArray):
            raise InvalidArgumentError(f"Expected a pyarrow.Array or pyarrow.ChunkedArray, got {type(blob_column)}")
        if not pa.types.is_large_binary(blob_column.type) and not pa.types.is_binary(blob_column.type):
            raise InvalidArgumentError(f"Expected a binary array, got {blob_column.type}")
        self.blob_column = blob_column

    def __iter__(self) -> BlobIterator:
        return BlobIterator(iter(self.blob_column))


with suppress(pa.ArrowKeyError):  # registered by another library
    pa.register_extension_type(BlobType())
