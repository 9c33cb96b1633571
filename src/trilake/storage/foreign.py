"""Reject a new table in a folder that contains other files.

Readers of the new table would not see these files, and a clean-up might delete them.  Allowed are:

* hidden files, whose names or folders start with ``.`` or ``_`` (``_SUCCESS``, ``.crc`` files, ``_temporary``):
  all formats ignore them;
* files of a trilake write that is active or failed recently, so that creating a table can be retried;
* other tables in subfolders.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import islice

from trilake.errors import ForeignFilesError
from trilake.storage.base import Store
from trilake.storage.options import ALLOW_FOREIGN_FILES, allowed
from trilake.storage.ownership import Territory

#: How long, in ms, a file with a trilake name may belong to an active or repeated write.
AT_WORK_MS = 3600 * 1000
#: A path part that readers ignore, except for partition folders and change files.
_HIDDEN = re.compile(r"(?:^|/)(?:\.|_(?![^/]*=[^/]*/))(?!change_data/)")
#: Remains of a log without commits: the files may have a damaged table's rows.
_REMAINS = re.compile(
    r"_delta_log/(?:_last_checkpoint|\d{20}\.(?:crc|checkpoint\..*|\d{20}\.compacted\.json)|_sidecars/.+\.parquet)"
)
_LISTED = 3


def check_no_foreign_files(
    store: Store, *, names: re.Pattern[str], referenced: Container[str] = (), now_ms: int | None = None
) -> None:
    """Raise ``ForeignFilesError`` if a new table may not be created at the root of ``store``.

    Allowed are ``referenced`` keys, and keys with ``names`` of this format unless ``now_ms`` shows that they are old.
    The storage option ``allow_foreign_files`` allows all.
    """
    if allowed(store.options, ALLOW_FOREIGN_FILES):
        return
    foreign = list(islice(_foreign(store, names, referenced, now_ms), _LISTED + 1))
    if not foreign:
        return
    examples = ", ".join(foreign[:_LISTED]) + (", ..." if len(foreign) > _LISTED else "")
    if all(names.fullmatch(key) or _REMAINS.fullmatch(key) for key in foreign):
        what = "files of a table without a log, or of an old failed write"
    else:
        what = "files that do not belong to a table of this format"
    raise ForeignFilesError(
        f"cannot create a table in a folder that contains {what}: {examples}",
        help="readers of the new table would not see their rows, and vacuum might delete them: write to another folder,"
        " convert Parquet files with convert_to_delta (CONVERT TO DELTA), or remove the files; to create the table"
        f" anyway, pass allow_foreign_files=True (option {ALLOW_FOREIGN_FILES}, on Spark too)",
        file=store.uri,
    )


def _foreign(store: Store, names: re.Pattern[str], referenced: Container[str], now_ms: int | None) -> Iterator[str]:
    territory = Territory(store)
    for meta in store.list():
        key = meta.key
        if key in referenced or (_HIDDEN.search(key) and not _REMAINS.fullmatch(key)):
            continue
        if names.fullmatch(key) and (now_ms is None or now_ms - meta.modified_ms <= AT_WORK_MS):
            continue
        # A table in a subfolder stays readable, and clean-ups ignore it.
        if not _REMAINS.fullmatch(key) and not store.passes_link(key) and territory.foreign([key.rpartition("/")[0]]):
            continue
        yield key
