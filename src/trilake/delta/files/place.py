"""Where a new Delta table may be made, and which names this library gives to the files of one."""

from __future__ import annotations

import re
from collections.abc import Container

from trilake.errors import TableExistsError
from trilake.storage.base import Store
from trilake.storage.foreign import check_no_foreign_files
from trilake.table.location import check_not_below

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: How the name of a clone's copy begins, before the name of the file that it is of.
COPY_MARK = "copy-[0-9a-f]{32}-"
#: Names that this library gives to the files of a Delta table, which no other writer gives.
OWN_NAME = (
    rf"(?:(?:part|cdc)-\d{{5,}}-{_UUID}-[0-9a-f]{{8}}\.c\d{{3,}}\.[a-z0-9_.]+|deletion_vector_{_UUID}\.bin"
    rf"|{COPY_MARK}[^/]+)"
)
_OWN = re.compile(rf"(?:[^/]+/)*{OWN_NAME}")


def check_place(store: Store, *, now_ms: int | None = None, named: Container[str] = ()) -> None:
    """See whether a new table may be where it is to be.

    Parameters
    ----------
    now_ms: by what time a trilake file is too old to be of a write at work; ``None`` for whatever its age.
    named: keys that the table itself names.

    Raises ``TableExistsError`` where a Lance dataset is, ``ForeignFilesError`` where files are that are not a table's,
    and below another Delta table.
    """
    if any(meta.key.endswith(".manifest") for meta in store.list("_versions")):
        raise TableExistsError(
            "a Lance dataset is here, and a Delta table would be mixed with it",
            help='write format="lance", or to another location',
            file=store.uri,
        )
    check_not_below(store)
    check_no_foreign_files(store, own=_OWN, named=named, now_ms=now_ms)
