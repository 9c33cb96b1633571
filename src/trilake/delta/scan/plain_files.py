"""Versions whose rows are those of their Parquet files as they stand there, which any reader of Parquet may read."""

from __future__ import annotations

import os
import stat

from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.snapshot import Snapshot
from trilake.storage import is_absolute
from trilake.storage.base import Store

#: More files are left to the table's own scan, which chooses among them by their statistics.
MOST_FILES = 64


def plain_files(snapshot: Snapshot, store: Store) -> list[str] | None:
    """The paths of local Parquet files whose rows, all of them, are the version's; ``None`` where there are no such.

    There are none where rows are deleted by vectors, columns are partition values or have mapped names, a file is
    elsewhere than below the table or not of the size that the log says, or where there are more than ``MOST_FILES``.
    Types and names of the files' columns remain to be compared with the table's.
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
        found = os.stat(place)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size
