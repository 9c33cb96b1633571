"""The files of a table's folder as columns, and which of them vacuum may delete.

A file is deleted only if it is certainly in the table's folder, is not hidden, is older than the retention, and nothing
that must stay readable references it.  Paths that cannot be compared with a listing (absolute paths, odd spellings,
damaged vectors) protect every file that they might mean.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.progress import progress
from trilake.delta.files.new_location import OWN_NAME
from trilake.delta.log.segment import LOG
from trilake.delta.log.snapshot import decoded_paths
from trilake.delta.protocol.actions import ActionBatch
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.delta.protocol.partitions import hive_directory
from trilake.delta.protocol.schema import StructType
from trilake.errors import DeletionVectorError, InvalidArgumentError
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.local_writer import TEMP_PREFIX
from trilake.storage.ownership import TABLE_OF, TEMPORARY, Territory, old_temporaries
from trilake.table.registry import data_file_rows

#: Columns of a listing.
LISTING = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified_ms", pa.int64())])

# A path that is not a plain key below the table: absolute, or with parts that stores may spell differently.
_ODD = r"^/|^[A-Za-z][A-Za-z0-9+.\-]*:/|(^|/)\.{1,2}(/|$)|//|/$|\x00|^$"
_VECTOR_FILE = r"(^|/)deletion_vector_[^/]*\.bin$"


@dataclass(frozen=True)
class References:
    """Files that must stay.

    ``keys`` are paths below the table.  ``names`` are file names of paths that cannot be compared with a listing: any
    file with such a name stays.  ``every_vector`` keeps all deletion vector files.
    """

    keys: pa.ChunkedArray
    names: pa.ChunkedArray
    every_vector: bool = False

    def name(self, paths: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of these paths below the table must stay."""
        stay = pc.is_in(paths, self.keys)
        if len(self.names):
            stay = pc.or_(stay, pc.is_in(_base_names(paths), self.names))
        if self.every_vector:
            stay = pc.or_(stay, pc.match_substring_regex(paths, _VECTOR_FILE))
        mask: np.ndarray[Any, np.dtype[np.bool_]] = stay.to_numpy()
        return mask


def references(*actions: pa.Table) -> References:
    """The files that file actions reference, including those of deletion vectors."""
    plain, names, every = [], [], False
    for table in actions:
        paths = table["path"]
        # Some writers do not encode paths, so keep the file that each path means with and without decoding.
        both = [*paths.chunks, *decoded_paths(paths).chunks]
        if "deletionVector" in table.schema.names:
            vectors, absolute, damaged = vector_files(table["deletionVector"])
            both += [*vectors.chunks, *absolute.chunks, *decoded_paths(absolute).chunks]
            every = every or damaged
        distinct = pc.unique(pa.chunked_array(both, pa.string()))
        odd = pc.match_substring_regex(distinct, _ODD)
        plain.append(distinct.filter(pc.invert(odd)))
        names.append(_base_names(distinct.filter(odd)))
    return References(pa.chunked_array(plain, pa.string()), pa.chunked_array(names, pa.string()), every)


def _base_names(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.replace_substring_regex(paths, r"^.*/", "")


def vector_files(vectors: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray, bool]:
    """The files of deletion vectors: those below the table, absolute references, and whether one is damaged."""
    kind = pc.struct_field(vectors, "storageType")
    path = pc.struct_field(vectors, "pathOrInlineDv")
    there = pc.is_valid(kind)
    if not pc.any(there).as_py():
        return pa.chunked_array([], pa.string()), pa.chunked_array([], pa.string()), False
    absolute = path.filter(pc.fill_null(pc.equal(kind, "p"), False))
    relative = pc.unique(path.filter(pc.fill_null(pc.equal(kind, "u"), False)))
    unknown = pc.any(pc.and_(there, pc.invert(pc.is_in(kind, pa.array(["u", "p", "i"]))))).as_py()
    damaged = bool(unknown or absolute.null_count or relative.null_count)
    files = []
    for written in relative.drop_null().to_pylist():
        try:
            files.append(DeletionVectorDescriptor("u", written, 0, 0).relative_path())
        except DeletionVectorError:
            damaged = True
    return pa.chunked_array([files], pa.string()), absolute.drop_null(), damaged


#: Iceberg metadata of a Delta table, by any writer.
ICEBERG_METADATA = r"^metadata/(version-hint\.text|[^/]+\.metadata\.json|[^/]+\.avro|[^/]+\.stats)$"


def hidden(paths: pa.Array | pa.ChunkedArray, names: Iterable[str]) -> pa.Array | pa.ChunkedArray:
    """Which paths vacuum ignores: those with a part that starts with ``_`` or ``.``.

    Folders of partition columns (``names``) and of the change data feed are not ignored.
    """
    plain = pc.replace_substring_regex(paths, r"^_change_data/", "x/")
    odd = sorted({hive_directory({n: "x"})[:-1] for n in names if n[:1] in ("_", ".")})
    if odd:
        pattern = "(^|/)(" + "|".join(re.escape(n) for n in odd) + ")"
        plain = pc.replace_substring_regex(plain, pattern, r"\1x=")
    # The file name itself gets no exception.
    return pc.or_(pc.match_substring_regex(plain, r"(^|/)[._]"), pc.match_substring_regex(paths, r"(^|/)[._][^/]*$"))


def partition_names(schema: StructType, columns: Sequence[str]) -> list[str]:
    """Possible folder names of partition columns: the column's name or its physical name."""
    fields = [schema.field(c) for c in columns]
    return [name for f in fields for name in (f.name, f.physical_name)]


def nested_tables(paths: pa.ChunkedArray) -> list[str]:
    """The folders below the table that are tables themselves, of any format."""
    marks = paths.filter(pc.match_substring_regex(paths, TABLE_OF))
    folders = pc.struct_field(pc.extract_regex(marks, TABLE_OF), "folder") if len(marks) else marks
    return sorted(set(folders.to_pylist()))


def doubtful(files: pa.Table, born_ms: int, provider: str) -> pa.ChunkedArray:
    """Which files cannot come from a writer of a table created at ``born_ms``.

    Such a file is older and has a generic name, or its format is not that of the table's data files.
    """
    older = pc.less(files["modified_ms"], born_ms)
    # Names that only trilake or writers of change files use.
    certain = pc.match_substring_regex(files["path"], rf"(^|/){OWN_NAME}$|^_change_data/(.*/)?cdc-[^/]*$")
    doubtful_files = pc.and_(older, pc.invert(certain))
    for suffix in (row.data_suffix for row in data_file_rows() if row.name != provider):
        doubtful_files = pc.or_(doubtful_files, pc.ends_with(files["path"], suffix))
    return doubtful_files


def garbage(listing: pa.Table, cutoff_ms: int, stay: References, partition_columns: Iterable[str]) -> pa.Table:
    """The files of a listing that may be deleted, without Iceberg metadata and files of nested tables."""
    old = listing.filter(pc.less(listing["modified_ms"], cutoff_ms))
    for folder in nested_tables(listing["path"]):
        old = old.filter(pc.invert(pc.starts_with(old["path"], f"{folder}/")))
    other = pc.match_substring_regex(old["path"], ICEBERG_METADATA)
    visible = old.filter(pc.invert(pc.or_(hidden(old["path"], partition_columns), other)))
    return visible.filter(pa.array(~stay.name(visible["path"])))


def named_for_removal(batch: ActionBatch, cutoff_ms: int) -> pa.Table:
    """The files that commits removed before the cut-off time, and change files, as a listing.

    Leaves out paths other than plain ones below the table.
    """
    tombstones = batch.remove.filter(pc.less(pc.fill_null(batch.remove["deletionTimestamp"], 0), cutoff_ms))
    vectors, _, _ = vector_files(tombstones["deletionVector"])
    paths = [decoded_paths(tombstones["path"]), vectors, decoded_paths(batch.cdc["path"])]
    sizes = [tombstones["size"], pa.chunked_array([pa.nulls(len(vectors), pa.int64())]), batch.cdc["size"]]
    table = pa.table(
        {
            "path": pa.chunked_array([c for p in paths for c in p.chunks], pa.string()),
            "size": pc.fill_null(pa.chunked_array([c for s in sizes for c in s.chunks], pa.int64()), 0),
        }
    )
    table = table.filter(pc.invert(pc.match_substring_regex(table["path"], _ODD)))
    table = table.group_by("path", use_threads=False).aggregate([("size", "max")]).select(["path", "size_max"])
    columns = [table["path"], table["size_max"], pa.chunked_array([pa.array(np.zeros(table.num_rows, np.int64))])]
    return pa.Table.from_arrays(columns, schema=LISTING)


# --- The content of a table's folder as columns: files from a listing or an inventory, and folders --------------------


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
    paths = pc.replace_substring_regex(table["path"], _STAGED, r"\1x")
    paths = pc.replace_substring_regex(paths, r"^(_delta_log/(_sidecars/)?|_symlink_format_manifest/)", "")
    return table.filter(pc.invert(hidden(paths, partition_columns)))


def own_files(store: Store, files: pa.Table, territory: Territory, cutoff_ms: int, *, links: bool) -> pa.Table:
    """The files of a listing that are in the table's own folders; links only if they are old themselves.

    Without ``links``, the listing has none.
    """
    folders = pc.replace_substring_regex(files["path"], r"/?[^/]*$", "")
    foreign = territory.foreign(pc.unique(folders).to_pylist())
    files = files.filter(pc.invert(pc.is_in(folders, pa.array(foreign, pa.string()))))
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
            rows = [row for row in zip(keys, sizes, times, strict=True) if _is_text(row[0])]
            keys, sizes, times = zip(*rows, strict=True) if rows else ((), (), ())
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
    paths = pc.binary_join_element_wise(pc.replace_substring_regex(strings, _STAGED, r"\1x"), "x", "/")
    visible = strings.filter(pc.invert(hidden(paths, partition_columns)))
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
