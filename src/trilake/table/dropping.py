"""Delete a table's files, in an order that allows an interrupted drop to be repeated."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.display import Displayed
from trilake.common.progress import progress
from trilake.common.text import format_size, plural
from trilake.storage.base import ObjectMeta, Store

#: Columns of lists of files.
DROPPED = pa.schema([("path", pa.string()), ("size", pa.int64())])
#: Files per delete request.
_CHUNK = 1000


@dataclass(frozen=True)
class TableFiles:
    """The files in a table's folder: those of the table in the order of deletion, and ``foreign`` ones.

    Files that identify the folder as a table come last.  ``keep_root`` keeps the folder itself.
    """

    store: Store
    files: pa.Table
    foreign: pa.Table = field(default_factory=DROPPED.empty_table)
    keep_root: bool = False


@dataclass(frozen=True)
class DropResult(Displayed):
    """The files that a drop deleted, or would delete in a dry run.

    ``files`` has the columns ``path`` (below the table) and ``size`` in bytes.  ``foreign`` has the files in the
    table's folder that do not belong to it, and stay.

    >>> import trilake
    >>> _ = trilake.write({"n": [1]}, "memory://doc-drop-result")
    >>> trilake.drop("memory://doc-drop-result", dry_run=True).files.num_rows
    2
    """

    files: pa.Table
    dry_run: bool
    foreign: pa.Table

    @property
    def paths(self) -> list[str]:
        paths: list[str] = self.files["path"].to_pylist()
        return paths

    @property
    def size(self) -> int:
        return int(pc.sum(self.files["size"]).as_py() or 0)

    def __repr__(self) -> str:
        what = "would be deleted" if self.dry_run else "deleted"
        foreign = f", {plural(self.foreign.num_rows, 'foreign file')} kept" if self.foreign.num_rows else ""
        return f"<DROP: {plural(self.files.num_rows, 'file')}, {format_size(self.size)} {what}{foreign}>"


def as_files(objects: Iterable[ObjectMeta]) -> pa.Table:
    """Objects of a store with the columns of :data:`DROPPED`."""
    metas = list(objects)
    return pa.table([[m.key for m in metas], [m.size for m in metas]], schema=DROPPED)


def drop_files(files: TableFiles) -> None:
    """Delete a table's files, then empty folders."""
    paths = files.files["path"]
    with progress("drop", len(paths)) as bar:
        for start in range(0, len(paths), _CHUNK):
            chunk = paths.slice(start, _CHUNK).to_pylist()
            files.store.delete(chunk)
            bar.advance(len(chunk))
    path = files.store.local_path("x")
    if path is not None:
        _remove_empty_folders(path[: -len("/x")], paths, keep_root=files.keep_root)


def _remove_empty_folders(root: str, paths: pa.ChunkedArray, *, keep_root: bool) -> None:
    tops = pc.unique(pc.replace_substring_regex(paths, r"/.*$|^[^/]*$", "")).to_pylist()
    for top in filter(None, tops):
        for folder, _, _ in os.walk(f"{root}/{top}", topdown=False):  # does not follow links
            with suppress(OSError):  # not empty, or a link
                os.rmdir(folder)
    if not keep_root:
        with suppress(OSError):
            os.rmdir(root)
