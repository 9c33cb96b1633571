"""The bytes of blobs: in data files, in side files, or at a URI."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import (
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    ObjectNotFoundError,
    UnsupportedProtocolError,
)
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.types import DEDICATED, EXTERNAL, INLINE, PACKED, side_file
from trilake.lance.versions.bases import Bases
from trilake.storage import open_store
from trilake.storage.base import Store


@dataclass(frozen=True)
class BlobLocation:
    """The location of a blob's bytes; without ``size``, the whole object."""

    store: Store
    key: str
    position: int
    size: int | None

    @cached_property
    def length(self) -> int:
        if self.size is not None:
            return self.size
        try:
            return self.store.read_sized(self.key, 0, end=True)[0]
        except ObjectNotFoundError as e:
            raise MissingFileError("the file of a blob is missing", file=f"{self.store.uri}/{self.key}") from e

    def read(self, start: int, stop: int) -> bytes:
        """Read a part of the bytes.  Raises ``MissingFileError`` and ``CorruptFileError``."""
        if stop <= start:
            return b""
        return bytes(_ranges(self.store, self.key, [(self.position + start, stop - start)])[0].to_pybytes())


#: The store and key of a data file, and the base paths of its dataset.
FileLocation = tuple[Store, str, Bases]


def locations(location: FileLocation, descriptions: pa.StructArray) -> list[BlobLocation | None]:
    """Locate the blobs of a data file from their descriptions; ``None`` for a null.

    Raises ``WrongTypeError`` for a file of the legacy format, whose rows contain the bytes.
    """
    store, key, bases = location
    if not pa.types.is_struct(descriptions.type):
        raise WrongTypeError(
            "legacy files have no blob columns",
            help="read the column itself, or migrate the dataset to 2.1 or newer",
            file=f"{store.uri}/{key}",
        )
    return [_location(store, key, bases, one) for one in descriptions.to_pylist()]


def _location(store: Store, key: str, bases: Bases, one: dict[str, Any] | None) -> BlobLocation | None:
    if one is None:
        return None
    kind, position, size = one.get("kind", INLINE), one["position"], one["size"]
    if "kind" not in one and not size and position:
        return None  # files of 2.0 store a null as no bytes at a position other than 0
    if kind == INLINE:
        return BlobLocation(store, key, position, size)
    if kind in (PACKED, DEDICATED):
        return BlobLocation(store, side_file(key, one["blob_id"]), position, size)
    if kind == EXTERNAL:
        whole = not position and not size
        if one["blob_id"]:
            target, name = bases.external_blob(one["blob_id"], one["blob_uri"])
        else:
            folder, _, name = str(one["blob_uri"]).rpartition("/")
            target = open_store(folder, dict(store.options))
        return BlobLocation(target, name, position, None if whole else size)
    raise UnsupportedProtocolError(
        f"unknown blob kind {kind}", help="read it with the library that wrote it", file=f"{store.uri}/{key}"
    )


def read(location: FileLocation, descriptions: pa.StructArray) -> pa.Array:
    """Read the blobs of a data file as an array, with one request per file."""
    blobs = locations(location, descriptions)
    values = _read_parts(blobs, [(0, 0 if location is None else location.length) for location in blobs])
    valid = np.array([value is not None for value in values], bool)
    sizes = np.array([0 if value is None else len(value) for value in values], np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    joined = pa.py_buffer(b"".join(value for value in values if value is not None))
    validity = None if valid.all() else pc.is_valid(pa.array(valid, mask=~valid)).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), len(values), [validity, pa.py_buffer(offsets), joined])


def read_parts(locations: Sequence[BlobLocation | None], parts: Sequence[tuple[int, int]]) -> list[bytes | None]:
    """Read a part of each blob, by offset and length, with one request per file; ``None`` for a null.

    Raises ``InvalidArgumentError`` for a part outside its blob.
    """
    return [None if value is None else bytes(value) for value in _read_parts(locations, parts)]


def _read_parts(
    locations: Sequence[BlobLocation | None], parts: Sequence[tuple[int, int]]
) -> list[memoryview[Any] | None]:
    by_file: dict[tuple[int, str], list[tuple[int, BlobLocation]]] = {}
    values: list[memoryview[Any] | None] = [None if location is None else memoryview(b"") for location in locations]
    for i, (location, (offset, length)) in enumerate(zip(locations, parts, strict=True)):
        check_part(offset, length, None if location is None else location.length)
        if location is not None and length:
            by_file.setdefault((id(location.store), location.key), []).append((i, location))
    for rows in by_file.values():
        _, first = rows[0]
        ranges = [(location.position + parts[i][0], parts[i][1]) for i, location in rows]
        for (i, _), buffer in zip(rows, _ranges(first.store, first.key, ranges), strict=True):
            values[i] = memoryview(buffer)
    return values


def check_part(offset: int, length: int, size: int | None) -> None:
    """Raise ``InvalidArgumentError`` for a part outside a blob of ``size`` bytes; ``None`` means a null."""
    if offset < 0 or length < 0:
        raise InvalidArgumentError(f"offset and length must be non-negative, got {offset} and {length}")
    if offset + length >= 1 << 64:
        raise InvalidArgumentError(
            f"offset + length overflowed: {offset} + {length}", help="the sum must fit in 64 bits"
        )
    if size is not None and offset + length > size:
        raise InvalidArgumentError(f"the part from {offset} to {offset + length} exceeds blob size {size}")


def _ranges(store: Store, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
    try:
        data = list(store.read_ranges(key, ranges))
    except ObjectNotFoundError as e:
        raise MissingFileError("the file of a blob is missing", file=f"{store.uri}/{key}") from e
    for (start, length), buffer in zip(ranges, data, strict=True):
        if buffer.size != length:
            raise CorruptFileError(
                f"a blob is at bytes {start} to {start + length}, beyond the end of its file", file=f"{store.uri}/{key}"
            )
    return data


class BlobFile(io.BufferedIOBase):
    """A blob as a readable file.  A read fetches at least ``buffer_size`` bytes; 0 turns buffering off."""

    def __init__(self, location: BlobLocation, buffer_size: int = 512 << 10) -> None:
        self._location, self._buffer_size = location, buffer_size
        self._at = 0
        self._ahead: tuple[int, bytes] = 0, b""

    def __repr__(self) -> str:
        return f"BlobFile({self._location.key!r}, size={self.size()})"

    def size(self) -> int:
        return self._location.length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        self._check_open()
        end = self.size()
        stop = end if size is None or size < 0 else min(self._at + size, end)
        data = self._buffered(self._at, max(stop, self._at), end)
        self._at += len(data)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(memoryview(buffer).cast("B")))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def read_range(self, offset: int, length: int) -> bytes:
        """Read a range of bytes; the position stays."""
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges; the position stays.  Raises ``ValueError`` for a range outside the blob."""
        self._check_open()
        for offset, length in ranges:
            check_part(offset, length, self.size())
        location = self._location
        nonempty = [(location.position + offset, length) for offset, length in ranges if length]
        data = iter(_ranges(location.store, location.key, nonempty) if nonempty else [])
        return [next(data).to_pybytes() if length else b"" for _, length in ranges]

    def _buffered(self, start: int, stop: int, end: int) -> bytes:
        at, data = self._ahead
        if not (at <= start and stop <= at + len(data)):
            at, ahead = start, max(stop, min(start + self._buffer_size, end))
            data = self._location.read(start, ahead)
            self._ahead = at, data
        return data[start - at : stop - at]

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
