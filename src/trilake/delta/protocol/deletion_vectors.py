"""Deletion vectors: descriptors, their storage inline or in files, and the bitmap inside.

Protocol: *Deletion Vectors* and *Deletion Vector Format*.  Any difference between a vector and its descriptor is an
error: a wrong vector would lose rows or bring deleted ones back.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from trilake.errors import DeletionVectorError, InvalidArgumentError, MissingFileError, ObjectNotFoundError
from trilake.storage.base import Store, check_key
from trilake.storage.opening import open_sibling
from trilake.storage.uri import is_absolute, split_absolute

MAGIC = 1681511377
_FORMAT_VERSION = 1
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_DECODE = np.full(256, 255, dtype=np.uint8)
_Z85_DECODE[np.frombuffer(_Z85, dtype=np.uint8)] = np.arange(85, dtype=np.uint8)
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.uint64)


def z85_decode(encoded: str) -> bytes:
    """Decode Z85: five characters for four bytes.  Raises ``ValueError`` for anything else.

    Some writers do not pad the last group with zero bytes but mark it with one to three leading ``#``, with which no
    valid group starts: their number is the number of padding bytes.

    >>> z85_decode("HelloWorld").hex(), z85_decode("##093").hex()
    ('864fd26fb559f75b', '0300')
    """
    padding = len(encoded[-5:]) - len(encoded[-5:].lstrip("#"))
    if padding > 3:
        raise ValueError("not Z85: a group with only padding")
    if padding:
        encoded = encoded[:-5] + "0" * padding + encoded[-5 + padding :]
    raw = np.frombuffer(encoded.encode("ascii"), dtype=np.uint8)
    digits = _Z85_DECODE[raw]
    if len(digits) % 5 or (digits == 255).any():
        raise ValueError("not Z85: wrong length or a character outside the alphabet")
    words = (digits.reshape(-1, 5).astype(np.uint64) * _POWERS).sum(axis=1)
    if len(words) and words.max() > 0xFFFFFFFF:
        raise ValueError("not Z85: a group exceeds 32 bits")
    data: bytes = words.astype(">u4").tobytes()
    return data[:-4] + data[-4 + padding :] if padding else data


def z85_encode(data: bytes) -> str:
    """Encode in Z85, zero-padded to a multiple of four bytes."""
    padded = data + b"\0" * (-len(data) % 4)
    words = np.frombuffer(padded, dtype=">u4").astype(np.uint64)
    digits = (words[:, None] // _POWERS) % 85
    return np.frombuffer(_Z85, dtype=np.uint8)[digits.astype(np.intp)].tobytes().decode()


@dataclass(frozen=True)
class DeletionVectorDescriptor:
    """Where a vector is and what it must contain: ``size_in_bytes`` of the bitmap, ``cardinality`` in rows."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any] | None) -> DeletionVectorDescriptor | None:
        """Parse the action's field; ``None`` if there is no vector."""
        if data is None or data.get("storageType") is None:
            return None
        return DeletionVectorDescriptor(
            str(data["storageType"]),
            str(data.get("pathOrInlineDv") or ""),
            int(data.get("sizeInBytes") or 0),
            int(data.get("cardinality") or 0),
            data.get("offset"),
        )

    @property
    def unique_id(self) -> str:
        """The identity of a vector among all vectors of a file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"

    def relative_path(self) -> str:
        """The file's path below the table, for storage type ``u``."""
        text = self.path_or_inline_dv
        if len(text) < 20:
            raise self._error("path is shorter than the 20 characters of a uuid")
        prefix, encoded = text[:-20], text[-20:]
        try:
            name = f"deletion_vector_{uuid.UUID(bytes=z85_decode(encoded))}.bin"
        except ValueError as e:
            raise self._error(str(e)) from e
        return f"{prefix}/{name}" if prefix else name

    def _error(self, why: str, file: str | None = None) -> DeletionVectorError:
        message = f"the deletion vector is damaged: {why}"
        help = "restore its file, or read a version without this vector"
        return DeletionVectorError(message, help=help, file=file, vector=self.unique_id[:80])

    def load(self, store: Store, rows: int | None = None) -> BitMap64:
        """Load the indexes of deleted rows; ``rows`` is the number of rows of the data file, if known.

        Raises ``DeletionVectorError`` for a damaged or different vector, ``MissingFileError`` for a missing file.
        """
        bitmap = self.stored(store)
        if len(bitmap) != self.cardinality:
            raise self._error(
                f"it deletes {len(bitmap)} rows, but its cardinality in the log is {self.cardinality}",
                self._place(store),
            )
        if rows is not None:
            self.check_fits(bitmap, rows)
        return bitmap

    def _place(self, store: Store) -> str:
        if self.storage_type == "u":
            return f"{store.uri}/{self.relative_path()}"
        return self.path_or_inline_dv if self.storage_type == "p" else store.uri

    def check_fits(self, bitmap: BitMap64, rows: int, file: str | None = None) -> None:
        """Raise ``DeletionVectorError`` if the bitmap deletes a row beyond the ``rows`` rows of a data file."""
        if len(bitmap) and bitmap.max() >= rows:
            raise self._error(
                f"it deletes {len(bitmap)} rows, among them row {bitmap.max()} of a file with {rows} rows", file
            )

    def stored(self, store: Store) -> BitMap64:
        """The compressed bitmap, even if it deletes billions of rows.  Raises the errors of :meth:`load`."""
        try:
            return self._stored(store)
        except DeletionVectorError as e:
            e.context.setdefault("file", store.uri)
            raise

    def _stored(self, store: Store) -> BitMap64:
        if self.storage_type == "i":
            return self._load_inline()
        if self.storage_type == "u":
            return self._load_file(store, self.relative_path())
        if self.storage_type == "p":
            path = self.path_or_inline_dv
            if not is_absolute(path):
                raise self._error(f"path {path!r} is not absolute")
            try:
                root, key = split_absolute(path)
            except InvalidArgumentError as e:
                raise self._error(e.message) from e
            return self._load_file(open_sibling(store, root), key)
        raise self._error(f"storage type {self.storage_type!r} is unknown")

    def _load_inline(self) -> BitMap64:
        try:
            data = z85_decode(self.path_or_inline_dv)
        except ValueError as e:
            raise self._error(str(e)) from e
        if not 0 < self.size_in_bytes <= len(data) < self.size_in_bytes + 4:
            raise self._error(f"{len(data)} bytes inline do not fit the stated size of {self.size_in_bytes}")
        return self._bitmap(data[: self.size_in_bytes], None)

    def _load_file(self, store: Store, key: str) -> BitMap64:
        where = f"{store.uri}/{key}"
        try:
            check_key(key)
        except InvalidArgumentError as e:
            raise self._error(e.message, where) from e
        # The head of the file is its version; a vector without an offset starts right after it.
        start = 1 if self.offset is None else self.offset
        if start < 1:
            raise self._error(f"offset must be at least 1, got {start}", where)
        if not self.size_in_bytes >= 4:
            raise self._error(f"size {self.size_in_bytes} is too small for a vector", where)
        try:
            # If version and vector are close, read both in one request; a truncated file shows in the length.
            parts = store.read_ranges(key, [(0, 1), (start, self.size_in_bytes + 8)])
            version, frame = (bytes(part) for part in parts)
            if len(frame) < self.size_in_bytes + 8:
                raise self._error(f"its file of {store.head(key).size} bytes ends before the vector does", where)
        except ObjectNotFoundError as e:
            raise MissingFileError("a deletion vector file is missing", file=where) from e
        if version[0] != _FORMAT_VERSION:
            raise self._error(f"expected file format version {_FORMAT_VERSION}, got {version[0]}", where)
        frame_size, checksum = struct.unpack(">i", frame[:4])[0], struct.unpack(">I", frame[-4:])[0]
        data = frame[4:-4]
        if frame_size != self.size_in_bytes:
            raise self._error(f"its file says {frame_size} bytes, but the log says {self.size_in_bytes}", where)
        if zlib.crc32(data) != checksum:
            raise self._error("the CRC does not match", where)
        return self._bitmap(data, where)

    def _bitmap(self, data: bytes, where: str | None) -> BitMap64:
        data = _from_older(data)
        if len(data) < 12 or struct.unpack("<I", data[:4])[0] != MAGIC:
            raise self._error("wrong magic number", where)
        # Every bucket holds at least one row and takes at least 12 bytes: a larger count is wrong.
        if struct.unpack("<Q", data[4:12])[0] > len(data) // 12:
            raise self._error("the bucket count exceeds the data", where)
        try:
            return BitMap64.deserialize(data[4:])
        except ValueError as e:
            raise self._error(f"the bitmap is damaged ({e})", where) from e


def _from_older(data: bytes) -> bytes:
    """Convert a vector of the previous format, as in the specification's inline example: big-endian, one bucket."""
    if len(data) < 12 or struct.unpack(">3I", data[:12]) != (MAGIC - 1, 1, len(data) - 12):
        return data
    return struct.pack("<IQI", MAGIC, 1, 0) + data[12:]


def serialize(bitmap: BitMap64) -> bytes:
    """Magic number and portable bitmap: the form inside files and inline vectors."""
    return struct.pack("<I", MAGIC) + bitmap.serialize()


def file_bytes(bitmaps: list[bytes]) -> tuple[bytes, list[int]]:
    """One deletion-vector file with several serialized vectors, and the offset of each."""
    out = bytearray([_FORMAT_VERSION])
    offsets = []
    for data in bitmaps:
        offsets.append(len(out))
        out += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    return bytes(out), offsets


#: The most bytes of vectors in one file: offsets are 32-bit numbers.
_FILE_LIMIT = 1 << 30


def store_vectors(store: Store, bitmaps: Sequence[BitMap64], new_id: Callable[[], str]) -> list[dict[str, Any]]:
    """Write vectors into as few files as possible; return the ``deletionVector`` field of each ``add``."""
    out: list[dict[str, Any]] = []
    waiting: list[tuple[bytes, int]] = []
    size = 0

    def flush() -> None:
        name = uuid.UUID(new_id())
        content, offsets = file_bytes([data for data, _ in waiting])
        store.put(f"deletion_vector_{name}.bin", content)
        path = z85_encode(name.bytes)
        for (data, cardinality), offset in zip(waiting, offsets, strict=True):
            out.append(
                {
                    "storageType": "u",
                    "pathOrInlineDv": path,
                    "offset": offset,
                    "sizeInBytes": len(data),
                    "cardinality": cardinality,
                }
            )
        waiting.clear()

    for bitmap in bitmaps:
        data = serialize(bitmap)
        if waiting and size + len(data) > _FILE_LIMIT:
            flush()
            size = 0
        waiting.append((data, len(bitmap)))
        size += len(data) + 8
    if waiting:
        flush()
    return out


def row_indexes(bitmap: BitMap64) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The deleted rows of a file, ascending."""
    return np.asarray(bitmap.to_array(), dtype=np.uint64).astype(np.int64)


class RowSet:
    """The rows of a bitmap, expanded a batch at a time, since a few bytes of runs may stand for billions of rows."""

    #: Rows that are expanded at once: 8 MB.
    _AT_ONCE = 1 << 20

    def __init__(self, bitmap: BitMap64) -> None:
        self.bitmap = bitmap
        self._rows = row_indexes(bitmap) if len(bitmap) <= self._AT_ONCE else None

    def within(self, start: int, length: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows among ``length`` rows from ``start`` on, ascending."""
        if self._rows is not None:
            lo, hi = np.searchsorted(self._rows, [start, start + length])
            return self._rows[lo:hi]
        return row_indexes(self.bitmap & BitMap64(range(start, start + length)))

    def keep_mask(self, start: int, length: int) -> pa.BooleanArray | None:
        """Which of ``length`` rows from ``start`` on are not in the bitmap; ``None`` if none of them is in it."""
        rows = self.within(start, length)
        if not len(rows):
            return None
        mask = np.ones(length, dtype=bool)
        mask[rows - start] = False
        return pa.array(mask)
