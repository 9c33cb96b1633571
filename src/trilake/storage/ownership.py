"""Which files a table may delete and replace: one rule for all formats and operations.

A file is deleted or overwritten only if

1. its name is one that the format uses, in the right folder (the caller's regular expression);
2. no folder between it and the table's folder is a symbolic link;
3. it is not in another table inside this one;
4. it is old enough by the store's clock, not just by this machine's (:func:`store_time`).

Local stores also never delete or replace files behind symbolic links (:mod:`trilake.storage.local`).  When in doubt,
files stay.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice

from trilake.errors import ClockError, ForeignFilesError, StorageError, TrilakeError
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.local_writer import temporary_name
from trilake.storage.options import ALLOW_FOREIGN_FILES, allowed

_log = logging.getLogger("trilake.storage")

#: Subfolders that identify a table of Delta, Lance, Trevni jobs or Hudi; Iceberg's name is less specific.
_MARKS = ("_delta_log", "_versions", "_staged", ".hoodie", "metadata")
_ICEBERG = re.compile(r"(?:^|/)metadata/[^/]*\.metadata\.json\Z")
#: A key that identifies a folder, which it captures, as a table.
TABLE_OF = r"^(?P<folder>.+?)/(?:(?:_delta_log|_versions|_staged|\.hoodie)/.*|metadata/[^/]*\.metadata\.json)$"
_TABLE_OF = re.compile(TABLE_OF).match
#: Folders to check one by one; for more, one listing is faster.
_ASKED_MOST = 100
#: How far this machine's clock may be ahead of the store's, in ms: little compared to retentions of days.
CLOCK_TOLERANCE_MS = 5 * 60 * 1000
#: A temporary file of trilake, or a file in a temporary folder.
TEMPORARY = r"\.trilake-[0-9a-f]{24}\.tmp(?:/.+)?"


def tables_of(keys: Iterable[str]) -> frozenset[str]:
    """The folders that are tables, by the keys of their files.

    >>> sorted(tables_of(["x", "a/_delta_log/0.json", "a/b/metadata/v1.metadata.json", "a/metadata/x"]))
    ['a', 'a/b']
    """
    return frozenset(m["folder"] for m in map(_TABLE_OF, keys) if m is not None)


@dataclass
class Territory:
    """Checks which folders belong to the table: not behind a link, not in another of the ``tables``, if listed."""

    store: Store
    tables: frozenset[str] | None = None
    _own: dict[str, bool] = field(default_factory=dict)

    def foreign(self, folders: Iterable[str]) -> list[str]:
        """The folders that do not belong to the table; the root's key is empty."""
        to_check = [f for f in dict.fromkeys(folders) if f]
        above = dict.fromkeys(part for f in to_check for part in accumulate(f.split("/"), "{}/{}".format))
        unknown = [f for f in above if f not in self._own]
        if self.tables is None and len(unknown) > _ASKED_MOST and self.store.local_path("x") is None:
            self.tables = tables_of(m.key for m in self.store.list())
        self._own.update(zip(unknown, self.store.at_once([partial(self._is_own, f) for f in unknown]), strict=True))
        return [f for f in to_check if not all(self._own[p] for p in accumulate(f.split("/"), "{}/{}".format))]

    def _is_own(self, folder: str) -> bool:
        if self.store.passes_link(f"{folder}/x"):
            return False
        if self.tables is not None:
            return folder not in self.tables
        return not any(self._has(folder, mark) for mark in _MARKS)

    def _has(self, folder: str, mark: str) -> bool:
        if mark == "metadata":
            return any(_ICEBERG.search(m.key) for m in islice(self.store.list(f"{folder}/{mark}"), 1000))
        return next(iter(self.store.list(f"{folder}/{mark}")), None) is not None


def own_keys(store: Store, keys: Iterable[str], names: str | re.Pattern[str], *, what: str) -> list[str]:
    """The keys that match ``names`` and that the table may delete or replace in ``what``; logs the others."""
    all_keys = list(keys)
    expression = re.compile(names)
    matching = [k for k in all_keys if expression.fullmatch(k)]
    foreign = set(Territory(store).foreign(k.rpartition("/")[0] for k in matching))
    deletable = [k for k in matching if k.rpartition("/")[0] not in foreign]
    if len(deletable) < len(all_keys):
        rest = sorted(set(all_keys) - set(deletable))
        _log.warning(
            "%s of %r skipped %d files that have other names, are behind symbolic links or belong to other tables: %s",
            what,
            store,
            len(rest),
            ", ".join(rest[:5]),
        )
    return deletable


def check_own(store: Store, keys: Sequence[str], *, what: str) -> None:
    """Raise ``StorageError`` if a file to delete or replace does not belong to the table."""
    foreign = Territory(store).foreign(k.rpartition("/")[0] for k in keys)
    if foreign:
        message = f"{what} would change files that are behind a symbolic link or in another table, below {foreign[0]!r}"
        help = "replace the symbolic link with a folder, or move the other table away"
        raise StorageError(message, help=help, file=store.uri)


def discard(store: Store, keys: Iterable[str]) -> None:
    """Remove the files of a failed write; log errors, so that the original one is raised."""
    names = list(keys)
    try:
        store.delete(names)
    except (TrilakeError, OSError) as e:
        _log.warning("%d files of a failed write remain in %r: %s", len(names), store, e)


# --- time ------------------------------------------------------------------------------------------------------------


def store_time(store: Store) -> int:
    """The time of the store's clock, in ms since the epoch, from a temporary file.  Raises ``StorageError``."""
    key = temporary_name()
    store.put(key, b"what time is it?\n")
    try:
        return store.head(key).modified_ms
    finally:
        discard(store, [key])


def agreed_time(store: Store, now_ms: int) -> int:
    """Return ``now_ms``, this machine's time, if the store's clock is not behind it.  Raises ``ClockError``.

    If this machine's clock is days ahead, files of active writers look old enough to delete; if it is behind, files
    look younger, which is safe.
    """
    time_of_store = store_time(store)
    if now_ms - time_of_store > CLOCK_TOLERANCE_MS:
        raise ClockError(
            f"this machine's clock is {(now_ms - time_of_store) / 1000:,.0f} seconds ahead of the store's, so files"
            " of active writers look old enough to be deleted",
            help="set the clock of this machine or of the store, then try again; nothing was deleted",
            file=store.uri,
            here_ms=now_ms,
            there_ms=time_of_store,
        )
    return now_ms


def old_temporaries(store: Store, prefix: str, before_ms: int) -> list[ObjectMeta]:
    """Temporary files below a folder that are older than a time, except behind symbolic links and in other tables."""
    expression = re.compile(rf"(?:.*/)?{TEMPORARY}")
    by_key = {m.key: m for m in store.unfinished(prefix)}
    if store.local_path("x") is None:  # elsewhere listings show such names
        by_key |= {m.key: m for m in store.list(prefix) if expression.fullmatch(m.key)}
    newest: dict[str, int] = {}
    for m in by_key.values():
        top = _top(m.key)
        newest[top] = max(newest.get(top, 0), m.modified_ms)
    old = [k for k in by_key if newest[_top(k)] < before_ms]
    # A temporary folder belongs to trilake with its content, except for links: check its parent.
    foreign = set(Territory(store).foreign(_top(k).rpartition("/")[0] for k in old))
    return [by_key[k] for k in old if _top(k).rpartition("/")[0] not in foreign and not store.passes_link(k)]


def _top(key: str) -> str:
    """The temporary file, or the temporary folder of a file."""
    match = re.match(r"(?:.*?/)??\.trilake-[0-9a-f]{24}\.tmp(?=/|\Z)", key)
    return key if match is None else match[0]


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
    """Raise ``ForeignFilesError`` if a new table may not be created at the root of ``store``: it has other files.

    Readers of the new table would not see these files, and a clean-up might delete them.  Allowed are hidden files,
    whose names or folders start with ``.`` or ``_`` (all formats ignore them); files of a trilake write that is active
    or failed recently, so that creating a table can be retried; other tables in subfolders; ``referenced`` keys; and
    keys with ``names`` of this format unless ``now_ms`` shows that they are old.  The storage option
    ``allow_foreign_files`` allows all.
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
