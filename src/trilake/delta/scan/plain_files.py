"""Versions that any Parquet reader can read, since their rows are exactly those of their Parquet files."""

from __future__ import annotations

import os
import stat

from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.storage import is_absolute
from trilake.storage.base import Store

#: Above this many files, the table's scan is used, which skips files by statistics.
MOST_FILES = 64


def plain_files(snapshot: Snapshot, store: Store) -> list[str] | None:
    """The paths of local Parquet files whose rows are exactly those of the version, or ``None``.

    ``None`` for a table with deletion vectors, partition columns or mapped names, with a file outside the table or of
    an unexpected size, or with more than ``MOST_FILES``.  The caller must still compare the files' columns with the
    table's.
    """
    metadata, files = snapshot.metadata, snapshot.adds
    if metadata.provider.lower() != "parquet" or metadata.partition_columns or metadata.column_mapping_mode != "none":
        return None
    vectors = files["deletionVector"]
    if not 0 < files.num_rows <= MOST_FILES or vectors.null_count < len(vectors):
        return None
    paths = []
    for path, size in zip(decoded_paths(files["path"]).to_pylist(), files["size"].to_pylist(), strict=True):
        odd = is_absolute(path) or not {"", ".", ".."}.isdisjoint(path.split("/"))
        place = None if odd else store.local_path(path)
        if place is None or not _is_of_size(place, size):
            return None
        paths.append(place)
    return paths


def _is_of_size(place: str, size: int) -> bool:
    try:
        status = os.stat(place)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size
