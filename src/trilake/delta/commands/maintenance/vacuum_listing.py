"""The content of a table's folder as columns: files from a listing or an inventory, and folders."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.progress import progress
from trilake.delta.commands.maintenance.vacuum_files import LISTING, hidden
from trilake.delta.log.segment import LOG
from trilake.errors import InvalidArgumentError
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.local_writer import TEMP_PREFIX
from trilake.storage.ownership import TEMPORARY, Territory, old_temporaries

#: Objects of a listing per chunk.
_BATCH = 2_000
_FIELDS = attrgetter("key", "size", "modified_ms")
#: A temporary name, or a path inside a temporary folder.
_STAGED = rf"(^|/){TEMPORARY}$"


def list_files(store: Store) -> pa.Table:
    """List every file below the table, without the log."""
    with progress("list") as bar:
        return listed(store.list(), bar.advance)


def listed(objects: Iterator[ObjectMeta], advance: Callable[[int], None] = lambda _: None) -> pa.Table:
    """Objects of a table's folder as columns, without the log."""
    table = listed_with_log(objects, advance)
    return table.filter(pc.invert(pc.starts_with(table["path"], "_delta_log/")))


def listed_with_log(objects: Iterator[ObjectMeta], advance: Callable[[int], None] = lambda _: None) -> pa.Table:
    """Objects of a table's folder as columns."""
    return pa.Table.from_batches(_columns(objects, advance), schema=LISTING)


def list_unfinished(store: Store, prefix: str, cutoff_ms: int, partition_columns: Sequence[str]) -> pa.Table:
    """List the temporary data files, log files and manifests of trilake writers that died before the cut-off time."""
    temporaries = old_temporaries(store, prefix, cutoff_ms)
    table = pa.Table.from_batches(_columns(iter(temporaries), lambda _: None), schema=LISTING)
    # Temporary names are always hidden, so judge the folder of the file, or of its staging folder.
    places = pc.replace_substring_regex(table["path"], _STAGED, r"\1x")
    places = pc.replace_substring_regex(places, r"^(_delta_log/(_sidecars/)?|_symlink_format_manifest/)", "")
    return table.filter(pc.invert(hidden(places, partition_columns)))


def own_files(store: Store, files: pa.Table, territory: Territory, cutoff_ms: int, *, links: bool) -> pa.Table:
    """The files of a listing that are in the table's own folders; links only if they are old themselves.

    Without ``links``, the listing has none.
    """
    places = pc.replace_substring_regex(files["path"], r"/?[^/]*$", "")
    foreign = territory.foreign(pc.unique(places).to_pylist())
    files = files.filter(pc.invert(pc.is_in(places, pa.array(foreign, pa.string()))))
    root = _local_root(store)
    if root is None or not links:
        return files
    young = [False] * files.num_rows
    for i, path in enumerate(files["path"].to_pylist()):
        with suppress(OSError):  # deleted concurrently
            status = os.lstat(f"{root}/{path}")
            young[i] = stat.S_ISLNK(status.st_mode) and status.st_mtime_ns // 1_000_000 >= cutoff_ms
    return files.filter(pc.invert(pa.array(young, pa.bool_())))


def _columns(objects: Iterator[ObjectMeta], advance: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    while chunk := list(islice(objects, _BATCH)):
        keys, sizes, times = zip(*map(_FIELDS, chunk), strict=True)
        advance(len(chunk))
        try:
            paths = pa.array(keys, pa.string())
        except UnicodeEncodeError:  # not a valid string, so no log names it: do not judge it here
            strings = [row for row in zip(keys, sizes, times, strict=True) if _is_text(row[0])]
            keys, sizes, times = zip(*strings, strict=True) if strings else ((), (), ())
            paths = pa.array(keys, pa.string())
        arrays = [paths, pa.array(sizes, pa.int64()), pa.array(times, pa.int64())]
        yield pa.RecordBatch.from_arrays(arrays, schema=LISTING)


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


#: Columns of an inventory, as object stores report them.
INVENTORY = {"path": pa.string(), "length": pa.int64(), "isDir": pa.bool_(), "modificationTime": pa.int64()}


def from_inventory(store: Store, inventory: pa.Table) -> pa.Table:
    """The files of an inventory that are below the table.

    ``inventory`` has the columns ``path`` (absolute), ``length``, ``isDir`` and ``modificationTime`` (ms since the
    epoch).  If a file is listed twice, its newest time counts.  Raises ``InvalidArgumentError`` for other columns.
    """
    try:
        columns = {n: inventory[n].cast(t) for n, t in INVENTORY.items()}
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        expected = ", ".join(f"{n} {t}" for n, t in INVENTORY.items())
        raise InvalidArgumentError(
            f"the inventory lacks a column, or a column has a wrong type: {e}",
            help=f"pass the columns {expected}",
            condition="DELTA_INVALID_INVENTORY_SCHEMA",
        ) from e
    files = pa.table(columns).filter(pc.invert(pc.fill_null(columns["isDir"], True)))
    local = _local_root(store)
    roots = [store.uri, *([local, f"file:{local}"] if local is not None else [])]
    paths = files["path"]
    below = pa.nulls(len(paths), pa.string())
    for root in roots:
        inside = pc.starts_with(paths, f"{root}/")
        below = pc.coalesce(below, pc.if_else(inside, pc.utf8_slice_codeunits(paths, len(root) + 1), None))
    rows = pa.table({"path": below, "size": files["length"], "modified_ms": files["modificationTime"]}).drop_null()
    newest_rows = rows.group_by("path", use_threads=False).aggregate([("size", "max"), ("modified_ms", "max")])
    newest = newest_rows.select(["path", "size_max", "modified_ms_max"]).rename_columns(LISTING.names)
    return newest.filter(pc.invert(pc.starts_with(newest["path"], "_delta_log/"))).cast(LISTING)


@dataclass(frozen=True)
class Folders:
    """The folders below the table at the time of its listing.

    ``old`` are those to remove if empty, the innermost first.  ``unfinished`` and ``links`` say whether there may be
    temporary files of trilake, and links to files.
    """

    count: int
    old: tuple[str, ...] = ()
    unfinished: bool = True
    links: bool = True


def _local_root(store: Store) -> str | None:
    path = store.local_path("x")
    return None if path is None else path[: -len("/x")]


def list_folders(
    store: Store, listing: pa.Table, cutoff_ms: int, partition_columns: Sequence[str], territory: Territory
) -> Folders:
    """List the folders below the table.  Only local disks can have empty folders."""
    root = _local_root(store)
    if root is None:
        parents = pc.replace_substring_regex(listing["path"], r"/?[^/]*$", "")
        return Folders(len(pc.unique(parents.filter(pc.not_equal(parents, "")))))
    all_folders, old, waiting, unfinished, links = [], [], [""], False, False
    while waiting:
        above = waiting.pop()
        try:
            scan = os.scandir(f"{root}/{above}")
        except OSError:  # deleted concurrently, or not accessible: keep it
            continue
        with scan:
            for entry in scan:
                unfinished = unfinished or entry.name.startswith(TEMP_PREFIX)
                if not entry.is_dir():
                    links = links or entry.is_symlink()
                    continue
                folder = above + entry.name
                if folder != LOG and not folder.startswith(f"{LOG}/"):
                    all_folders.append(folder)
                if not entry.is_symlink():
                    waiting.append(f"{folder}/")
    strings = pa.array([f for f in all_folders if _is_text(f)], pa.string())
    places = pc.binary_join_element_wise(pc.replace_substring_regex(strings, _STAGED, r"\1x"), "x", "/")
    visible = strings.filter(pc.invert(hidden(places, partition_columns)))
    folders = visible.to_pylist()
    foreign = set(territory.foreign(folders))
    for folder in folders:
        with suppress(OSError):  # deleted concurrently, or cannot be removed
            if folder not in foreign and os.stat(os.path.join(root, folder)).st_mtime_ns // 1_000_000 < cutoff_ms:
                old.append(folder)
    return Folders(len(all_folders), tuple(sorted(old, key=len, reverse=True)), unfinished, links)


def remove_empty(store: Store, folders: Folders) -> tuple[str, ...]:
    """Remove the old folders that are empty, the innermost first; return those removed."""
    root, removed_folders = _local_root(store), []
    if root is None:
        return ()
    for folder in folders.old:
        try:
            os.rmdir(os.path.join(root, folder))  # rejects a folder that is not empty
        except OSError:
            continue
        removed_folders.append(folder)
    return tuple(removed_folders)
