"""Writers of blob files for a data file, and builders of the columns that refer to them.

Write the blob file, then a data file with the column, and commit both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import BLOB_V2
from trilake.lance.file.types import DEDICATED, EXTENSION_NAME, PACKED, side_file
from trilake.storage.base import Store

#: Type of a column of prepared blobs: inline bytes, a URI to copy from, or a reference to a blob file.
PREPARED = pa.struct(
    [
        pa.field("kind", pa.uint8()),
        pa.field("data", pa.large_binary()),
        pa.field("uri", pa.string()),
        pa.field("blob_id", pa.uint32()),
        pa.field("blob_size", pa.uint64()),
        pa.field("position", pa.uint64()),
    ]
)


@dataclass(frozen=True)
class BlobDescriptor:
    """A reference to a blob: ``"Packed"`` (in a shared file), ``"Dedicated"`` (in its own file), or ``"Null"``."""

    kind: str
    blob_id: int = 0
    offset: int = 0
    size: int = 0

    def __repr__(self) -> str:
        if self.kind == "Null":
            return "Null"
        offset = f"offset: {self.offset}, " if self.kind == "Packed" else ""
        return f"{self.kind} {{ blob_id: {self.blob_id}, {offset}size: {self.size} }}"

    @property
    def parts(self) -> dict[str, Any] | None:
        """Return the value to store in the column."""
        if self.kind == "Null":
            return None
        kind = PACKED if self.kind == "Packed" else DEDICATED
        position = self.offset if self.kind == "Packed" else None
        return {"kind": kind, "blob_id": self.blob_id, "blob_size": self.size, "position": position}


NULL = BlobDescriptor("Null")


class BlobDescriptorArrayBuilder:
    """Build a column of blob descriptors for a data file.

    >>> builder = BlobDescriptorArrayBuilder("image")
    >>> builder.extend([BlobDescriptor("Packed", 1, 0, 5), NULL])
    >>> [blob and blob["blob_size"] for blob in builder.finish().to_pylist()]
    [5, None]
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._descriptors: list[BlobDescriptor] = []

    @property
    def field(self) -> pa.Field:
        return pa.field(self._column, PREPARED, metadata={EXTENSION_NAME: BLOB_V2})

    def push(self, descriptor: BlobDescriptor) -> None:
        if not isinstance(descriptor, BlobDescriptor):
            raise WrongTypeError(f"expected a BlobDescriptor, got {descriptor!r}")
        self._descriptors.append(descriptor)

    def extend(self, descriptors: Iterable[BlobDescriptor]) -> None:
        for descriptor in descriptors:
            self.push(descriptor)

    def push_null(self) -> None:
        self.push(NULL)

    def finish(self) -> pa.StructArray:
        """Return the column and reset the builder."""
        parts, self._descriptors = [d.parts for d in self._descriptors], []
        return pa.array(parts, PREPARED)


class _SideFile:
    """A file next to a data file; the first write creates it, and closing makes it visible."""

    def __init__(self, store: Store, data_file: str, blob_id: int) -> None:
        self.blob_id = count("blob_id", blob_id, least=1)
        self._store, self._key = store, side_file(data_file, blob_id)
        self._file: IO[bytes] | None = None
        self._size = 0

    @property
    def path(self) -> str:
        return f"{self._store.uri.removesuffix('/')}/{self._key}"

    def _append(self, data: Any) -> None:
        if self._file is None:
            self._file = self._store.open_output(self._key)
        self._file.write(data)
        self._size += memoryview(data).nbytes

    def _close(self) -> None:
        self._append(b"")
        if self._file is not None:
            self._file.close()


class PackedBlobWriter(_SideFile):
    """Write several blobs of a data file to one file, which becomes visible when the writer finishes.

    Parameters
    ----------
    store: store of the data file.
    data_file: path of the data file.
    blob_id: number of this blob file: at least 1, and unique within the data file.
    """

    def __init__(self, store: Store, data_file: str, blob_id: int) -> None:
        super().__init__(store, data_file, blob_id)
        self._descriptors: list[BlobDescriptor] = []
        self._field: pa.Field | None = None

    @property
    def field(self) -> pa.Field:
        """Arrow field of the column.  Raises ``InvalidArgumentError`` before :meth:`finish_array`."""
        if self._field is None:
            raise InvalidArgumentError("the field is available after finish_array")
        return self._field

    def write_blob(self, data: Any) -> BlobDescriptor:
        """Write one blob, given as bytes or as integers from 0 to 255."""
        blob = bytes(data)
        descriptor = BlobDescriptor("Packed", self.blob_id, self._size, len(blob))
        self._append(blob)
        self._descriptors.append(descriptor)
        return descriptor

    def write_blobs(self, data: pa.Array | pa.ChunkedArray) -> None:
        """Write the blobs of a binary column; nulls stay null.

        Raises ``InvalidArgumentError`` for other types and for decreasing offsets.
        """
        if not isinstance(data, pa.Array | pa.ChunkedArray):
            raise InvalidArgumentError(f"expected an Arrow array of Binary or LargeBinary, got {type(data).__name__}")
        chunks = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
        for number, chunk in enumerate(chunks):
            label = "array" if isinstance(data, pa.Array) else f"chunk {number}"
            _check_binary(storage_array(chunk), f"Packed blob payload {label}")
        for value in (value for chunk in chunks for value in storage_array(chunk)):
            if value.is_valid:
                self.write_blob(value.as_buffer())
            else:
                self._descriptors.append(NULL)

    def finish(self) -> list[BlobDescriptor]:
        """Finish the file and return the descriptors in order."""
        self._close()
        return list(self._descriptors)

    def finish_array(self, column: str) -> pa.StructArray:
        """Finish the file and return the descriptors as a column; sets :attr:`field`."""
        builder = BlobDescriptorArrayBuilder(column)
        builder.extend(self.finish())
        self._field = builder.field
        return builder.finish()


class DedicatedBlobWriter(_SideFile):
    """Write one blob of a data file to its own file; parameters are those of :class:`PackedBlobWriter`."""

    def write(self, data: Any) -> None:
        """Append bytes to the blob."""
        self._append(data)

    def finish(self) -> BlobDescriptor:
        """Finish the file and return the descriptor."""
        self._close()
        return BlobDescriptor("Dedicated", self.blob_id, 0, self._size)


def _check_binary(chunk: pa.Array, label: str) -> None:
    if chunk.type not in (pa.binary(), pa.large_binary()):
        raise InvalidArgumentError(f"{label} must be of Binary or LargeBinary, got {chunk.type}")
    try:
        chunk.validate(full=True)
    except pa.ArrowInvalid as e:
        raise InvalidArgumentError(f"{label} has invalid Arrow data: {e}") from e
