"""List the files to delete when a Trevni table is dropped."""

from __future__ import annotations

import re

from trilake.errors import ForeignFilesError
from trilake.storage.base import Store
from trilake.storage.ownership import TEMPORARY, Territory, tables_of
from trilake.table.dropping import TableFiles, as_files
from trilake.trevni.tables.dataset import find_files
from trilake.trevni.tables.jobs import RECORD, STAGING

#: Data files at the root or in partition folders: files in other folders may belong to other tables.
_DELETABLE = re.compile(
    rf"(?:(?!\.)[^/]*=[^/]*/)*(?![._])[^/]+\.trv|{RECORD.pattern}|{STAGING}/[^/]+/.*[^/]+\.trv|(?:.*/)?{TEMPORARY}"
)


def table_files(store: Store) -> TableFiles:
    """Return the files of a folder, or a single file.

    Raises ``TableNotFoundError``, and ``ForeignFilesError`` for several folders and for globs.
    """
    place, files = find_files(store.uri, store.options)
    if place.uri != store.uri:
        if [f"{place.uri}/{file.key}" for file in files] != [store.uri]:
            raise ForeignFilesError(
                "a glob pattern cannot be dropped as a table",
                help="drop the folder, or delete the files one by one",
                file=store.uri,
            )
        return TableFiles(place, as_files(place.head(file.key) for file in files), keep_root=True)
    objects = list(store.list())
    territory = Territory(store, tables_of(m.key for m in objects if not m.key.startswith(f"{STAGING}/")))
    matches = [m for m in (*objects, *store.unfinished()) if _DELETABLE.fullmatch(m.key)]
    foreign = set(territory.foreign(m.key.rpartition("/")[0] for m in matches))
    deletable = [m for m in matches if m.key.rpartition("/")[0] not in foreign]
    # Delete the records of jobs last, as they determine which files are visible.
    deletable.sort(key=lambda m: m.key.startswith(f"{STAGING}/"))
    keys = {m.key for m in deletable}
    return TableFiles(store, as_files(deletable), as_files(m for m in objects if m.key not in keys))
