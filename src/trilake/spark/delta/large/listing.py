"""List the old files of a table's folder in Spark tasks, one per folder of the first level.

A nested table is recognised by its files, so each folder is listed as a whole.  A table whose files are all in one
folder is listed by one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.maintenance.vacuum_files import LISTING, References, garbage, nested_tables
from trilake.delta.commands.maintenance.vacuum_listing import listed, own_files
from trilake.delta.log.segment import LOG
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.ownership import Territory

#: With more files than this in the table's own folder, one task lists the whole table.
_LOOSE = 10_000
#: Sorts after everything inside a folder.
_LAST = "\U0010ffff"
_NOTHING = References(pa.chunked_array([], pa.string()), pa.chunked_array([], pa.string()))
#: Columns of the rows; a row without a path has the number of folders as its size.
OLD_FILES = "path string, size long, modified_ms long"


def parts(store: Store) -> list[str]:
    """The parts for tasks: first-level folders, and ``""`` for the files next to them; ``["/"]`` for everything."""
    folders: list[str] = []
    loose = 0
    for entry in first_level(store):
        if isinstance(entry, str):
            folders.append(entry)
        else:
            loose += 1
            if loose > _LOOSE:
                return ["/"]
    return [*folders, *([""] if loose else [])]


def first_level(store: Store) -> Iterator[str | ObjectMeta]:
    """The folders and files directly below the table, except the log; one request per folder."""
    after: str | None = None
    while True:
        folder = None
        for meta in store.list(start_after=after):
            name, slash, _ = meta.key.partition("/")
            if slash:
                folder = name
                break
            yield meta
        if folder is None:
            return
        if folder != LOG:
            yield folder
        after = f"{folder}/{_LAST}"


@dataclass(frozen=True)
class OldFiles:
    """Lists a part of a table: its own files that are older than the cut-off time and not hidden.

    ``links``: there may be links to files.
    """

    store: Store
    cutoff: int
    names: tuple[str, ...]
    links: bool

    def __call__(self, part: str) -> Iterator[pa.RecordBatch]:
        if part:
            objects = self.store.list("" if part == "/" else part)
        else:
            objects = (entry for entry in first_level(self.store) if not isinstance(entry, str))
        listing = listed(objects)
        territory = Territory(self.store, frozenset(nested_tables(listing["path"])))
        parents = pc.unique(pc.replace_substring_regex(listing["path"], r"/?[^/]*$", "")).to_pylist()
        old = garbage(listing, self.cutoff, _NOTHING, self.names)
        files = own_files(self.store, old, territory, self.cutoff, links=self.links)
        count = pa.array([len([p for p in parents if p])], pa.int64())
        nothing = [pa.nulls(1, pa.string()), count, pa.nulls(1, pa.int64())]
        yield pa.RecordBatch.from_arrays(nothing, schema=LISTING)
        yield from files.to_batches(max_chunksize=64 * 1024)
