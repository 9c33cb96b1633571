"""Writers of files beside data files, with blobs, and the columns that say where in them each blob is.

A program writes such a file, then a data file with the column, and commits both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.lance.file.blobs import DEDICATED, PACKED, side_file
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import BLOB_V2
from trilake.lance.file.types import EXTENSION_NAME
from trilake.storage.base import Store

#: What a column of prepared blobs holds: bytes or a URI of blobs that are still to be written, or where they are.
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
    """Where a blob is: ``"Packed"`` in a file with others, ``"Dedicated"`` in one of its own, or ``"Null"``."""

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
        """The descriptor as a value of a column."""
        if self.kind == "Null":
            return None
        kind = PACKED if self.kind == "Packed" else DEDICATED
        place = self.offset if self.kind == "Packed" else None
        return {"kind": kind, "blob_id": self.blob_id, "blob_size": self.size, "position": place}


NULL = BlobDescriptor("Null")


def prepared_field(name: str, *, nullable: bool = True) -> pa.Field:
    """The field of a column of prepared blobs."""
    return pa.field(name, PREPARED, nullable, {EXTENSION_NAME: BLOB_V2})


class BlobDescriptorArrayBuilder:
    """Collects descriptors into a column of a data file.

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
        """The field of the column."""
        return prepared_field(self._column)

    def push(self, descriptor: BlobDescriptor) -> None:
        """Add the descriptor of the next row."""
        if not isinstance(descriptor, BlobDescriptor):
            raise WrongTypeError(f"expected a BlobDescriptor, got {descriptor!r}")
        self._descriptors.append(descriptor)

    def extend(self, descriptors: Iterable[BlobDescriptor]) -> None:
        """Add the descriptors of the next rows."""
        for descriptor in descriptors:
            self.push(descriptor)

    def push_null(self) -> None:
        """Let the next row be null."""
        self.push(NULL)

    def finish(self) -> pa.StructArray:
        """The column; the builder is empty then."""
        parts, self._descriptors = [d.parts for d in self._descriptors], []
        return pa.array(parts, PREPARED)


class _SideFile:
    """A new file beside a data file, which appears when it is closed; it is begun by the first bytes."""

    def __init__(self, store: Store, data_file: str, blob_id: int) -> None:
        self.blob_id = count("blob_id", blob_id, least=1)
        self._store, self._key = store, side_file(data_file, blob_id)
        self._file: IO[bytes] | None = None
        self._size = 0

    @property
    def path(self) -> str:
        """Where the file is."""
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
    """Writes a file with several blobs of a data file, which appears when the writer is finished.

    Parameters
    ----------
    store: with the data file.
    data_file: its path.
    blob_id: the number of the new file among those of the data file, from 1 on.
    """

    def __init__(self, store: Store, data_file: str, blob_id: int) -> None:
        super().__init__(store, data_file, blob_id)
        self._descriptors: list[BlobDescriptor] = []
        self._field: pa.Field | None = None

    @property
    def field(self) -> pa.Field:
        """The field of the column.  Raises ``InvalidArgumentError`` before :meth:`finish_array`."""
        if self._field is None:
            raise InvalidArgumentError("the field is available after finish_array")
        return self._field

    def write_blob(self, data: Any) -> BlobDescriptor:
        """Write one blob: bytes, or whole numbers from 0 to 255."""
        blob = bytes(data)
        descriptor = BlobDescriptor("Packed", self.blob_id, self._size, len(blob))
        self._append(blob)
        self._descriptors.append(descriptor)
        return descriptor

    def write_blobs(self, data: pa.Array | pa.ChunkedArray) -> None:
        """Write the blobs of a column of bytes; its nulls stay null.

        Raises ``InvalidArgumentError`` for anything else, and for offsets that do not ascend.
        """
        if not isinstance(data, pa.Array | pa.ChunkedArray):
            raise InvalidArgumentError(f"expected an Arrow array of Binary or LargeBinary, got {type(data).__name__}")
        chunks = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
        parts = []
        for number, chunk in enumerate(chunks):
            named = "array" if isinstance(data, pa.Array) else f"chunk {number}"
            parts.append(_offsets(storage_array(chunk), f"Packed blob payload {named}"))
        for chunk, offsets in zip(chunks, parts, strict=True):
            self._write_chunk(storage_array(chunk), offsets)

    def _write_chunk(self, chunk: pa.Array, offsets: np.ndarray[Any, Any]) -> None:
        source = memoryview(chunk.buffers()[2] or b"")
        valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], valid.astype(np.int8), [0]))))
        sizes = np.where(valid, np.diff(offsets), 0)
        places = self._size + np.cumsum(sizes) - sizes
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):  # runs without a null
            self._append(source[int(offsets[start]) : int(offsets[stop])])
        self._descriptors += [
            BlobDescriptor("Packed", self.blob_id, place, size) if there else NULL
            for place, size, there in zip(places.tolist(), sizes.tolist(), valid.tolist(), strict=True)
        ]

    def finish(self) -> list[BlobDescriptor]:
        """Finish the file; the descriptors of its blobs, in order."""
        self._close()
        return list(self._descriptors)

    def finish_array(self, column: str) -> pa.StructArray:
        """Finish the file; the descriptors as the column of a data file, of which :attr:`field` is the field then."""
        builder = BlobDescriptorArrayBuilder(column)
        builder.extend(self.finish())
        self._field = builder.field
        return builder.finish()


class DedicatedBlobWriter(_SideFile):
    """Writes the file of one blob of a data file; parameters are those of :class:`PackedBlobWriter`."""

    def write(self, data: Any) -> None:
        """Write more bytes of the blob."""
        self._append(data)

    def finish(self) -> BlobDescriptor:
        """Finish the file; the descriptor of the blob."""
        self._close()
        return BlobDescriptor("Dedicated", self.blob_id, 0, self._size)


def _offsets(chunk: pa.Array, named: str) -> np.ndarray[Any, Any]:
    kinds = {pa.binary(): "<i4", pa.large_binary(): "<i8"}
    if chunk.type not in kinds:
        raise InvalidArgumentError(f"{named} must be of Binary or LargeBinary, got {chunk.type}")
    kind = np.dtype(kinds[chunk.type])
    buffer = chunk.buffers()[1]
    if buffer is None or not len(chunk):
        return np.zeros(len(chunk) + 1, np.int64)
    offsets = np.frombuffer(buffer, kind, len(chunk) + 1, chunk.offset * kind.itemsize).astype(np.int64)
    if (np.diff(offsets) < 0).any():
        raise InvalidArgumentError(f"{named} has invalid Arrow data: a non-monotonic offset")
    return offsets
