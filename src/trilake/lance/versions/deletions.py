"""Deletion files: the deleted rows of a fragment.

A fragment has at most one, which always contains the whole set: offsets of rows in the fragment, counting deleted rows.
Small sets are an Arrow file with one column ``row_id``, large ones a Roaring bitmap in the portable layout.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from trilake.errors import DeletionVectorError, MissingFileError, ObjectNotFoundError
from trilake.lance.file.ipc_sizes import ipc_sizes
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import ARROW_ARRAY, BITMAP, MAX_ROWS, DeletionFile, Fragment
from trilake.storage.base import Store, WriteGroup

#: Larger sets are stored as bitmaps.
ARROW_LIMIT = 5000
#: Larger sets are compressed.
_COMPRESSED = 64

#: Maximum bytes per offset in an Arrow file, and for padding and an unneeded validity bitmap.
_WIDTH, _SLACK = 5, 4096

Offsets = npt.NDArray[np.uint32]

_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def encode(rows: BitMap) -> tuple[int, bytes]:
    """Encode a set of offsets; return the file type that suits it, and the content of the file."""
    if len(rows) > ARROW_LIMIT:
        return BITMAP, rows.serialize()
    batch = pa.record_batch([pa.array(np.asarray(rows.to_array(), np.uint32))], schema=_SCHEMA)
    out = pa.BufferOutputStream()
    # Compression makes files of fewer rows larger, and takes 50 us.
    options = pa.ipc.IpcWriteOptions(compression="zstd" if len(rows) > _COMPRESSED else None)
    with pa.ipc.new_file(out, _SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    return ARROW_ARRAY, out.getvalue().to_pybytes()


def write(store: Store | WriteGroup, fragment_id: int, rows: BitMap, *, read_version: int, id: int) -> DeletionFile:
    """Write all deleted rows of a fragment to a new file, named by ``read_version`` and the random ``id``."""
    kind, data = encode(rows)
    file = DeletionFile(kind, read_version, id, len(rows))
    with store.open_output(file.key(fragment_id)) as output:
        output.write(data)
    return file


def decode(kind: int, data: pa.Buffer, *, rows: int, file: str) -> BitMap:
    """Decode the deletion file of a fragment with ``rows`` rows.  Raises ``DeletionVectorError`` if it is damaged.

    A file that claims more rows is rejected before run lengths and compression turn a few bytes into many rows.
    """
    if kind == BITMAP:
        try:
            deleted = BitMap.deserialize(data.to_pybytes())
        except (ValueError, IndexError, OverflowError, MemoryError) as e:
            raise DeletionVectorError(f"the deletion file is not a Roaring bitmap: {e}", file=file) from e
    elif kind == ARROW_ARRAY:
        deleted = _decode_arrow(data, rows, file)
    else:
        raise DeletionVectorError(f"unknown deletion file type {kind}", file=file)
    if deleted and deleted.max() >= rows:
        raise DeletionVectorError(
            f"the deletion file has row {deleted.max()}, but its fragment has only {rows} rows", file=file
        )
    return deleted


def _decode_arrow(data: pa.Buffer, rows: int, file: str) -> BitMap:
    try:
        sizes = ipc_sizes(data)
        if sizes.rows > rows or sizes.bytes > _WIDTH * rows + _SLACK:
            raise DeletionVectorError(
                f"the deletion file claims {sizes.rows} rows in {sizes.bytes} bytes, but its fragment has {rows} rows",
                file=file,
            )
        table = pa.ipc.open_file(data).read_all()
        if table.num_columns != 1:
            raise DeletionVectorError(f"expected one column in the deletion file, got {table.num_columns}", file=file)
        column = table.column(0)
        if column.type not in (pa.uint32(), pa.int32()) or column.null_count:
            raise DeletionVectorError(
                f"expected uint32 without nulls in the deletion file, got {column.type} with {column.null_count} nulls",
                file=file,
            )
        offsets = column.to_numpy()
    except (
        pa.ArrowException,
        OSError,
        MemoryError,
        ValueError,
        OverflowError,
    ) as e:  # also for names that are not UTF-8
        raise DeletionVectorError(f"the deletion file is not an Arrow file: {e}", file=file) from e
    if len(offsets) and offsets.min() < 0:
        raise DeletionVectorError("the deletion file contains a negative row", file=file)
    deleted = BitMap(np.ascontiguousarray(offsets, np.uint32))
    if len(deleted) != len(offsets):
        raise DeletionVectorError("the deletion file contains a row twice", file=file)
    return deleted


def read(bases: Bases, fragment: Fragment, rows: int | None = None) -> BitMap:
    """Read the deleted rows of a fragment, which has ``rows`` rows if its entry does not state them.

    Raises ``MissingFileError``, and ``DeletionVectorError`` if the file does not match its entry.
    """
    entry = fragment.deletion_file
    if entry is None:
        return BitMap()
    store, key = bases.deletion_file(fragment.id, entry)
    try:
        data = store.read(key)
    except ObjectNotFoundError as e:
        raise MissingFileError("the deletion file is missing", file=f"{store.uri}/{key}") from e
    limit = rows if rows is not None else fragment.physical_rows or MAX_ROWS
    deleted = decode(entry.file_type, data, rows=limit, file=f"{store.uri}/{key}")
    if entry.num_deleted_rows and len(deleted) != entry.num_deleted_rows:
        raise DeletionVectorError(
            f"the deletion file has {len(deleted)} rows, but the manifest says {entry.num_deleted_rows}",
            file=f"{store.uri}/{key}",
        )
    return deleted


def offsets_of(rows: BitMap) -> Offsets:
    """The offsets in a set, ascending."""
    return np.asarray(rows.to_array(), np.uint32)


def live_offsets(deleted: Offsets, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offset of the n-th live row, for each n in ``ranks``.

    >>> live_offsets(np.array([1, 2], np.uint32), np.array([0, 1, 2])).tolist()
    [0, 3, 4]
    """
    # There are deleted[i] - i live rows before deleted[i], so a row of at least that rank comes after it.
    before = deleted.astype(np.int64) - np.arange(len(deleted))
    return ranks + np.searchsorted(before, ranks, side="right")
