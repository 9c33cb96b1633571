"""Blobs as users of the format write them: columns of bytes or of places where the bytes are.

Importing the module makes the type known to Arrow, unless another library has done so.

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

#: Bytes that a :class:`BlobFile` fetches at least where reading goes on.
DEFAULT_BLOB_BUFFER_SIZE = 512 << 10
_PARTS = (("data", pa.large_binary()), ("uri", pa.string()), ("position", pa.uint64()), ("size", pa.uint64()))
_STORAGE = pa.struct([pa.field(name, kind) for name, kind in _PARTS])


@dataclass(frozen=True)
class Blob:
    """One value: bytes, or a URI, of which ``position`` and ``size`` may say a part.

    Raises ``InvalidArgumentError`` for what is neither, or both.
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
            raise InvalidArgumentError("External packed blob must have a uri", help="position and size are of a URI")
        if None in parts and parts != (None, None):
            raise InvalidArgumentError("External blob must set both position and size, or neither")
        if self.data is None and self.uri is None:
            raise InvalidArgumentError("Blob must set `data` or `uri`; use None for a null blob")
        if self.size == 0:
            raise InvalidArgumentError("External blob range size must be greater than zero", help="use Blob.empty()")
        if any(part is not None and part < 0 for part in parts):
            raise InvalidArgumentError("External blob position and size must be non-negative")

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Blob:
        """The value of some bytes."""
        return Blob(data=bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """The value of a URI, or of a part of what is there."""
        if not uri:
            raise InvalidArgumentError("Blob uri cannot be empty", help="pass None for a null")
        return Blob(uri=uri, position=position, size=size)

    @staticmethod
    def empty() -> Blob:
        """The value of no bytes, which is not null."""
        return Blob(data=b"")


class BlobType(pa.ExtensionType):  # type: ignore[misc]
    """The Arrow type of blobs that are written."""

    def __init__(self, storage_type: pa.DataType = _STORAGE) -> None:
        _check_storage(storage_type)
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


def _check_storage(kind: pa.DataType) -> None:
    if not pa.types.is_struct(kind):
        raise WrongTypeError(f"BlobType storage type must be a struct, got {kind}")
    if kind.num_fields not in (2, 4):
        raise WrongTypeError("BlobType storage struct must contain either data/uri or data/uri/position/size")
    for index, (name, part) in enumerate(_PARTS[: kind.num_fields]):
        field = kind.field(index)
        if (field.name, field.type) != (name, part):
            raise WrongTypeError(
                f"BlobType storage field {index} must be {name}: {part}, got {field.name}: {field.type}"
            )
        if index < 2 and not field.nullable:
            raise WrongTypeError(f"BlobType storage field {name} must be nullable")


class BlobArray(pa.ExtensionArray):  # type: ignore[misc]
    """A column of blobs."""

    @classmethod
    def from_pylist(cls, values: Sequence[Any]) -> BlobArray:
        """A column of bytes, URIs, :class:`Blob`, and ``None``.  Raises ``WrongTypeError``."""
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
    """A column of blobs; see :meth:`BlobArray.from_pylist`."""
    return BlobArray.from_pylist(values)


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field:
    """The field of a column of blobs.

    Parameters
    ----------
    name, nullable: of the field.
    inline_size_threshold: bytes up to which a blob lies in the data file.
    dedicated_size_threshold: bytes from which on a blob has a file of its own.
    pack_file_size_threshold: bytes of a file that several share, at most.

    Raises ``WrongTypeError``, ``InvalidArgumentError``, and ``OverflowError`` for a number of more than 64 bits.
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
    """The values of a column of bytes, as files to read."""

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values

    def __iter__(self) -> BlobIterator:
        return self

    def __next__(self) -> IO[bytes] | None:
        value = next(self._values).as_py()
        return None if value is None else io.BytesIO(value)


class BlobColumn:
    """A column of bytes that is read value by value, each as a file.

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


with suppress(pa.ArrowKeyError):  # another library has the name
    pa.register_extension_type(BlobType())
