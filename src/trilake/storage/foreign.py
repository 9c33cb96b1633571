"""Whether a new table may be created in a folder: not where other files lie.

Readers of the new table would no longer see these files, and its clean-up would delete them.  Allowed are:

* hidden files, whose names or folders start with ``.`` or ``_`` (``_SUCCESS``, ``.crc`` files, ``_temporary``):
  all formats ignore them;
* files of a trilake write that is active or failed recently, so that a failed creation can be repeated;
* other tables in folders of their own.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import islice

from trilake.errors import ForeignFilesError
from trilake.storage.base import Store
from trilake.storage.options import ALLOW_FOREIGN_FILES, allowed
from trilake.storage.ownership import Territory

#: How long, in ms, a file with a trilake name may belong to an active or repeated creation.
AT_WORK_MS = 3600 * 1000
#: A path part that readers ignore.  Folders of partition columns may start this way, and change files are read.
_HIDDEN = re.compile(r"(?:^|/)(?:\.|_(?![^/]*=[^/]*/))(?!change_data/)")
#: The rest of a log without commits: the table was damaged, and its rows may be here.
_REMAINS = re.compile(
    r"_delta_log/(?:_last_checkpoint|\d{20}\.(?:crc|checkpoint\..*|\d{20}\.compacted\.json)|_sidecars/.+\.parquet)"
)
_SHOWN = 3


def check_no_foreign_files(
    store: Store, *, own: re.Pattern[str], referenced: Container[str] = (), now_ms: int | None = None
) -> None:
    """Check that a new table may be created at the root of ``store``.

    Parameters
    ----------
    own: matches whole keys as writers of the format name them.
    referenced: keys that the new table references.
    now_ms: the time to tell old trilake files from those of an active write; ``None`` to ignore their age.

    The storage option ``allow_foreign_files`` allows all.  Raises ``ForeignFilesError``.
    """
    if allowed(store.options, ALLOW_FOREIGN_FILES):
        return
    foreign = list(islice(_foreign(store, own, referenced, now_ms), _SHOWN + 1))
    if not foreign:
        return
    names = ", ".join(foreign[:_SHOWN]) + (", ..." if len(foreign) > _SHOWN else "")
    if all(own.fullmatch(key) or _REMAINS.fullmatch(key) for key in foreign):
        what = "files of a table whose log is gone, or of a write that died long ago"
    else:
        what = "files that are of no table of this format"
    raise ForeignFilesError(
        f"a new table cannot be made here, among {what}: {names}",
        help="readers of the new table would not see their rows, and vacuum might delete them: write to another folder,"
        " make a table of Parquet files with convert_to_delta (CONVERT TO DELTA), or remove the files; to make the"
        f" table among them all the same pass allow_foreign_files=True (option {ALLOW_FOREIGN_FILES}, on Spark too)",
        file=store.uri,
    )


def _foreign(store: Store, own: re.Pattern[str], referenced: Container[str], now_ms: int | None) -> Iterator[str]:
    territory = Territory(store)
    for meta in store.list():
        key = meta.key
        if key in referenced or (_HIDDEN.search(key) and not _REMAINS.fullmatch(key)):
            continue
        if own.fullmatch(key) and (now_ms is None or now_ms - meta.modified_ms <= AT_WORK_MS):
            continue
        # Another table inside this folder stays readable, and clean-ups ignore it.
        if not _REMAINS.fullmatch(key) and not store.passes_link(key) and territory.foreign([key.rpartition("/")[0]]):
            continue
        yield key
