"""Where a new Delta table may be created, and the names of the files that trilake writes there."""

from __future__ import annotations

import re
from collections.abc import Container

from trilake.errors import TableExistsError
from trilake.storage.base import Store
from trilake.storage.ownership import check_no_foreign_files
from trilake.table.location import check_not_below

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: Name prefix of a file that a clone copied.
COPY_MARK = "copy-[0-9a-f]{32}-"
#: Patterns of file names that only trilake uses.
OWN_NAME = (
    rf"(?:(?:part|cdc)-\d{{5,}}-{_UUID}-[0-9a-f]{{8}}\.c\d{{3,}}\.[a-z0-9_.]+|deletion_vector_{_UUID}\.bin"
    rf"|{COPY_MARK}[^/]+)"
)
_OWN = re.compile(rf"(?:[^/]+/)*{OWN_NAME}")


def check_new_location(store: Store, *, now_ms: int | None = None, referenced: Container[str] = ()) -> None:
    """Check that a new table may be created at its location.

    ``now_ms`` is the current time, to recognise old trilake files; ``None`` ignores their age.  ``referenced`` are keys
    that the new table references.  Raises ``TableExistsError`` for a Lance dataset, and ``ForeignFilesError`` if there
    are unrelated files or the location is inside another Delta table.
    """
    if any(meta.key.endswith(".manifest") for meta in store.list("_versions")):
        raise TableExistsError(
            "the location contains a Lance dataset",
            help='pass format="lance", or write to another location',
            file=store.uri,
        )
    check_not_below(store)
    check_no_foreign_files(store, names=_OWN, referenced=referenced, now_ms=now_ms)
