"""Deletion files: which rows of a fragment are gone.

A fragment has at most one, and it always holds the whole set: offsets of rows within the fragment, counted with the
deleted ones.  Small sets are an Arrow file with one column ``row_id``, large ones a Roaring bitmap in the portable
layout.
"""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from trilake.errors import DeletionVectorError, MissingFileError, ObjectNotFoundError
from trilake.lance.file.ipc_sizes import ipc_sizes
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import ARROW_ARRAY, BITMAP, MAX_ROWS, DeletionFile, Fragment
from trilake.storage.base import Store

#: Sets with more rows than this become bitmaps.
ARROW_LIMIT = 5000

#: Bytes of an offset in an Arrow file; padding and an unneeded bitmap of nulls may come to it.
_WIDTH, _SLACK = 5, 4096

Offsets = npt.NDArray[np.uint32]

_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def encode(rows: BitMap) -> tuple[int, bytes]:
    """The type of file that suits a set of offsets, and its content.

    >>> encode(BitMap(range(6000)))[0] == BITMAP
    True
    """
    if len(rows) > ARROW_LIMIT:
        return BITMAP, rows.serialize()
    batch = pa.record_batch([pa.array(np.asarray(rows.to_array(), np.uint32))], schema=_SCHEMA)
    out = io.BytesIO()
    with pa.ipc.new_file(out, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return ARROW_ARRAY, out.getvalue()


def write(store: Store, fragment_id: int, rows: BitMap, *, read_version: int, id: int) -> DeletionFile:
    """Write the deletion file of a fragment, and return what its manifest entry says.

    Parameters
    ----------
    rows: all deleted rows, those of earlier versions included.
    read_version: the version that the delete has read.
    id: a random number of 64 bits that tells this file from those of concurrent writers.
    """
    kind, data = encode(rows)
    file = DeletionFile(kind, read_version, id, len(rows))
    store.put(file.key(fragment_id), data)
    return file


def decode(kind: int, data: pa.Buffer, *, rows: int, file: str) -> BitMap:
    """The set of offsets in a deletion file of a fragment with ``rows`` rows.

    A file that claims more rows than that is refused before it is expanded: run-lengths and compression make much of a
    few bytes.  Raises ``DeletionVectorError`` where it is damaged.
    """
    if kind == BITMAP:
        try:
            deleted = BitMap.deserialize(data.to_pybytes())
        except (ValueError, IndexError, OverflowError, MemoryError) as e:
            raise DeletionVectorError(f"the deletion file is no Roaring bitmap: {e}", file=file) from e
    elif kind == ARROW_ARRAY:
        deleted = _decode_arrow(data, rows, file)
    else:
        raise DeletionVectorError(f"deletion files of type {kind} are unknown", file=file)
    if deleted and deleted.max() >= rows:
        raise DeletionVectorError(
            f"the deletion file names row {deleted.max()} of a fragment with {rows} rows", file=file
        )
    return deleted


def _decode_arrow(data: pa.Buffer, rows: int, file: str) -> BitMap:
    try:
        sizes = ipc_sizes(data)
        if sizes.rows > rows or sizes.bytes > _WIDTH * rows + _SLACK:
            raise DeletionVectorError(
                f"the deletion file claims {sizes.rows} rows in {sizes.bytes} bytes; its fragment has {rows}", file=file
            )
        table = pa.ipc.open_file(data).read_all()
        if table.num_columns != 1:
            raise DeletionVectorError(f"the deletion file has {table.num_columns} columns instead of one", file=file)
        column = table.column(0)
        if column.type not in (pa.uint32(), pa.int32()) or column.null_count:
            raise DeletionVectorError(f"the deletion file has {column.type} with nulls or of a wrong type", file=file)
        offsets = column.to_numpy()
    except (pa.ArrowException, OSError, MemoryError, ValueError, OverflowError) as e:  # also names that are not UTF-8
        raise DeletionVectorError(f"the deletion file is no Arrow file: {e}", file=file) from e
    if len(offsets) and offsets.min() < 0:
        raise DeletionVectorError("the deletion file holds a negative row", file=file)
    deleted = BitMap(np.ascontiguousarray(offsets, np.uint32))
    if len(deleted) != len(offsets):
        raise DeletionVectorError("the deletion file names a row twice", file=file)
    return deleted


def read(bases: Bases, fragment: Fragment, rows: int | None = None) -> BitMap:
    """The deleted rows of a fragment; empty where it has no deletion file.

    ``bases`` say where the file is, ``rows`` how many the fragment's files have, by default what its entry says.
    Raises ``MissingFileError``, and ``DeletionVectorError`` where the file is not what the manifest says.
    """
    entry = fragment.deletion_file
    if entry is None:
        return BitMap()
    store, key = bases.deletion_file(fragment.id, entry)
    try:
        data = store.read(key)
    except ObjectNotFoundError as e:
        raise MissingFileError("the deletion file is not there", file=f"{store.uri}/{key}") from e
    limit = rows if rows is not None else fragment.physical_rows or MAX_ROWS
    deleted = decode(entry.file_type, data, rows=limit, file=f"{store.uri}/{key}")
    if entry.num_deleted_rows and len(deleted) != entry.num_deleted_rows:
        raise DeletionVectorError(
            f"the deletion file has {len(deleted)} rows and the manifest says {entry.num_deleted_rows}",
            file=f"{store.uri}/{key}",
        )
    return deleted


def offsets_of(rows: BitMap) -> Offsets:
    """The offsets of a set, ascending."""
    return np.asarray(rows.to_array(), np.uint32)


def live_offsets(deleted: Offsets, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The offset of the n-th row that is not deleted, for each n in ``ranks``.

    >>> live_offsets(np.array([1, 2], np.uint32), np.array([0, 1, 2])).tolist()
    [0, 3, 4]
    """
    # Before deleted[i] there are deleted[i] - i rows that live; that many skip i of the deleted ones, and more.
    before = deleted.astype(np.int64) - np.arange(len(deleted))
    return ranks + np.searchsorted(before, ranks, side="right")
