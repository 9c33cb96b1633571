"""Read many Trevni files as one table: list files, divide them into splits, and read splits.

A location is a file, a folder, or a glob (``*``, ``?`` and ``[…]`` within a path segment, ``**`` across segments).
Folders named ``key=value`` are partition columns, as in Hive.  Names that start with ``_`` or ``.`` are ignored.
Splits can be pickled, so one process can plan them and others can read them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import ForeignFilesError, SchemaMismatchError, StorageError, TableNotFoundError
from trilake.expr import ColumnStats, FileStats, Filter, SkipResult, can_match
from trilake.storage import ObjectMeta, Store, open_store
from trilake.storage.ownership import TEMPORARY, Territory, tables_of
from trilake.storage.uri import Location, parse_location
from trilake.table.data_files import no_columns
from trilake.table.dropping import TableFiles, as_files
from trilake.table.folders import DataFile, data_file, is_hidden, partition_value, partition_values
from trilake.table.location import check_not_below
from trilake.trevni.blocks.layout import MAGIC
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.nesting.arrow_forms import bare, filtered
from trilake.trevni.nesting.arrow_types import from_values
from trilake.trevni.nesting.assemble import Node
from trilake.trevni.nesting.columns import SORTED
from trilake.trevni.tables.jobs import RECORD, STAGING, visible

#: Target size of a split in stored bytes.
SPLIT_SIZE = 1 << 27
#: Target size of a batch in payload bytes.
BATCH_SIZE = 1 << 25

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Split:
    """The rows ``start`` to ``stop`` of a file, of about ``size`` bytes; ``uri`` and ``options`` are those of the
    store.
    """

    uri: str
    key: str
    partition: tuple[tuple[str, str | None], ...] = ()
    start: int = 0
    stop: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    trusted: bool = False
    size: int = 0

    def open(self) -> TrevniFile:
        return TrevniFile((open_store(self.uri, self.options), self.key), trusted=self.trusted)


# --- listing ---------------------------------------------------------------------------------------------------------


def find_files(
    location: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> tuple[Store, list[DataFile]]:
    """Return the store and the files of a location, in key order.  Raises ``TableNotFoundError`` if there are none."""
    parsed = parse_location(location)
    glob = _GLOB.search(parsed.path)
    # A path with glob characters may exist literally.
    literal = glob is None or next(iter(open_store(parsed.uri, options).list()), None) or _file_at(parsed, options)
    if glob is not None and not literal:
        cut = parsed.path.rfind("/", 0, glob.start()) + 1
        folder, pattern = parsed.path[:cut].rstrip("/"), parsed.path[cut:]
        store = open_store(Location(parsed.scheme, parsed.authority, folder).uri, options)
        matches = _matcher(pattern)
        files = [f for f in _list(parsed, folder, store, options) if matches(f.key)]
    else:
        store = open_store(parsed.uri, options)
        files = _list(parsed, parsed.path, store, options)
        if not files and (found := _file_at(parsed, options)) is not None:
            return found[0], [found[1]]
    if not files:
        raise TableNotFoundError("there are no Trevni files here", help="check the path", file=os.fspath(location))
    keys = {tuple(name for name, _ in f.partition) for f in files}
    if len(keys) > 1:
        raise SchemaMismatchError(
            f"files have different partition folders: {', '.join(str(list(k)) for k in sorted(keys))}",
            help="read the folders one by one",
            file=os.fspath(location),
        )
    return store, files


def _file_at(parsed: Location, options: Mapping[str, str] | None) -> tuple[Store, DataFile] | None:
    """Return the store and the file of a location that is one; its name may have glob characters."""
    folder, _, key = parsed.path.rpartition("/")
    store = open_store(Location(parsed.scheme, parsed.authority, folder).uri, options)
    meta = store.find(key) if key else None
    return None if meta is None else (store, DataFile(key, meta.size))


def list_files(store: Store) -> list[DataFile]:
    """List the visible files of a table, in key order."""
    return [data_file(meta) for meta in visible(store) if not is_hidden(meta.key)]


def check_trevni(store: Store, files: Sequence[DataFile]) -> None:
    """Check that a folder has only Trevni files, all of which belong to the table, before writing to it.

    Raises ``ForeignFilesError``, and ``StorageError`` if the staging folder is a symbolic link.
    """
    if store.passes_link(f"{STAGING}/x"):
        raise StorageError(
            f"the folder {STAGING} is a symbolic link: its files may belong to another table",
            help="replace the symbolic link with a folder",
            file=store.uri,
        )
    if not files:
        check_not_below(store)
    for file in files:
        if not file.key.endswith(".trv") and store.read_range(file.key, 0, len(MAGIC)).to_pybytes() != MAGIC:
            raise ForeignFilesError(
                f"the folder contains files of other formats: {file.key} is not a Trevni file",
                help="write to another folder, or convert the files first; a Trevni folder cannot have other files",
                file=store.uri,
            )


def _list(parsed: Location, path: str, store: Store, options: Mapping[str, str] | None) -> list[DataFile]:
    """List the files of a folder; the jobs of its table decide which files of a partition folder are visible."""
    root = path
    while "=" in root.rpartition("/")[2]:
        root = root.rpartition("/")[0]
    if root == path:
        return list_files(store)
    prefix = path[len(root) :].strip("/")
    table = open_store(Location(parsed.scheme, parsed.authority, root).uri, options)
    metas = [replace(meta, key=meta.key[len(prefix) + 1 :]) for meta in visible(table, prefix)]
    return [data_file(meta) for meta in metas if not is_hidden(meta.key)]


def split_of(store: Store, key: str) -> Split:
    """Return a split with all rows of a file."""
    file = data_file(ObjectMeta(key, 0, 0))
    return Split(store.uri, file.key, file.partition, options=dict(store.options))


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a key, or one of its folders, matches a glob."""
    parts = [None if part == "**" else re.compile(translate(part)) for part in pattern.split("/")]

    def matches(names: Sequence[str], part: int = 0) -> bool:
        if part == len(parts):
            return True
        one = parts[part]
        if one is None:
            return any(matches(names[skip:], part + 1) for skip in range(len(names) + 1))
        return bool(names) and one.match(names[0]) is not None and matches(names[1:], part + 1)

    return lambda key: matches(key.split("/"))


# --- splits ----------------------------------------------------------------------------------------------------------


def skip_files(filter: Filter | None, files: Sequence[DataFile], fields: Sequence[pa.Field]) -> SkipResult:
    """Determine by partition values which files may have matching rows."""
    stats: dict[tuple[str, ...], ColumnStats] = {
        (name,): ColumnStats(value=values) for name, values in partition_values(files, fields).items()
    }
    return can_match(filter, FileStats.of(len(files), stats))


def split_file(store: Store, file: DataFile, *, size: int = SPLIT_SIZE, trusted: bool = False) -> list[Split]:
    """Divide a file into splits of about ``size`` stored bytes; small files are not opened."""
    whole = Split(store.uri, file.key, file.partition, options=dict(store.options), trusted=trusted, size=file.size)
    if file.size <= size + size // 2:
        return [whole]
    opened = TrevniFile((store, file.key), trusted=trusted)
    count = -(-file.size // size)
    bounds = np.linspace(0, opened.row_count, min(count, max(opened.row_count, 1)) + 1).astype(np.int64).tolist()
    part = replace(whole, size=file.size // count)
    return [replace(part, start=a, stop=b) for a, b in pairwise(bounds) if a < b]


def candidate_rows(file: TrevniFile, filter: Filter | None, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the ranges of rows from ``start`` to ``stop`` that may match, by the first values of sorted columns."""
    ranges = [(start, stop)] if start < stop else []
    if filter is None:
        return ranges
    names = {path[0] for path in filter.paths if len(path) == 1}
    for node in file.nodes:
        if node.field.name in names and node.kind == "leaf" and node.column is not None:
            descriptor = file.header.columns[node.column]
            if descriptor.values and SORTED in descriptor.metadata:
                ranges = _intersect(ranges, _kept_blocks(file, node, filter))
    return ranges


def _kept_blocks(file: TrevniFile, node: Node, filter: Filter) -> list[tuple[int, int]]:
    assert node.column is not None
    table = file.blocks(node.column)
    if not len(table) or table.first_values is None:
        return [(0, file.row_count)]
    try:
        low = from_values(table.first_values, bare(node.field.type))
    except (pa.ArrowException, ValueError, OverflowError):
        return [(0, file.row_count)]
    # The first value of the next block is an upper bound, as values ascend.  NaN, the greatest value, is not a bound.
    high = pa.concat_arrays([low[1:], pa.nulls(1, low.type)])
    if pa.types.is_floating(low.type):
        low, high = (pc.if_else(pc.is_nan(x), pa.scalar(None, x.type), x) for x in (low, high))
    rows = np.diff(table.row_starts)
    stats = ColumnStats(min=low, max=high, null_count=pa.array(np.zeros(len(table), np.int64)))
    keep = can_match(filter, FileStats.of(len(table), {(node.field.name,): stats}, pa.array(rows))).keep
    edges = np.flatnonzero(np.diff(np.concatenate(([False], keep, [False])).astype(np.int8)))
    starts = table.row_starts
    return [(int(starts[a]), int(starts[b])) for a, b in edges.reshape(-1, 2)]


def _intersect(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    ranges = []
    i = j = 0
    while i < len(some) and j < len(others):
        low, high = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if low < high:
            ranges.append((low, high))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return ranges


# --- reading ---------------------------------------------------------------------------------------------------------


def read_split(
    split: Split,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split that match ``filter``, as batches with ``columns`` of ``schema``.

    Missing columns are null.  The columns of the filter are read first, and the others only if rows match; if few
    match, only the blocks of these rows.

    Raises ``SchemaMismatchError`` if a column cannot be cast to the schema, and ``CorruptFileError``.
    """
    file = split.open()
    names = list(schema.names if columns is None else columns)
    reader = _SplitReader(file, split, schema)
    stop = file.row_count if split.stop is None else min(split.stop, file.row_count)
    needed = dict.fromkeys([*names, *(filter.columns if filter is not None else ())])
    nodes = file.select([n for n in needed if n in reader.file_columns])
    for start, end in candidate_rows(file, reader.usable_filter(filter), split.start, stop):
        for a, b in file.pieces(nodes, start, end, BATCH_SIZE):
            batch = reader.batch(names, filter, a, b)
            if batch is not None:
                yield batch


class _SplitReader:
    def __init__(self, file: TrevniFile, split: Split, schema: pa.Schema) -> None:
        self._file, self._schema = file, schema
        self._partition = dict(split.partition)
        self.file_columns = {node.field.name for node in file.nodes} - set(self._partition)

    def usable_filter(self, filter: Filter | None) -> Filter | None:
        """Return the filter if it can use first values: the columns of the file must have the types it was bound to."""
        if filter is None:
            return None
        types = {node.field.name: node.field.type for node in self._file.nodes}
        for name in filter.columns:
            if name in self.file_columns and types[name] != self._schema.field(name).type:
                return None
        return filter

    def batch(self, names: Sequence[str], filter: Filter | None, start: int, stop: int) -> pa.RecordBatch | None:
        if filter is None:
            return self._read(names, range(start, stop), stop - start)
        filter_names = sorted(filter.columns)
        filter_rows = self._read(filter_names, range(start, stop), stop - start)
        mask = filter.mask(filter_rows)
        matching = int(pc.sum(mask).as_py() or 0)
        if not matching:
            return None
        columns = dict(zip(filter_names, filter_rows.columns, strict=True))
        rest = [name for name in names if name not in columns]
        arrays = {n: filtered(columns[n], mask) for n in names if n in columns}
        if matching * 4 >= stop - start:
            every = self._read(rest, range(start, stop), stop - start)
            arrays |= {n: filtered(column, mask) for n, column in zip(rest, every.columns, strict=True)}
        else:
            rows = np.flatnonzero(np.asarray(mask.cast(pa.uint8()))) + start
            arrays |= zip(rest, self._read(rest, rows, matching).columns, strict=True)
        fields = [self._schema.field(name) for name in names]
        if not fields:
            return no_columns(matching)
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=pa.schema(fields))

    def _read(self, names: Sequence[str], rows: Any, count: int) -> pa.RecordBatch:
        """Read ``count`` rows with the types of the schema: columns of the file, partition values, nulls for others."""
        in_file = [name for name in names if name in self.file_columns]
        table = self._file.read(in_file, rows) if in_file else None
        arrays: list[pa.Array] = []
        fields = [self._schema.field(name) for name in names]
        for one in fields:
            if one.name in self._partition:
                value = partition_value(self._partition[one.name], one, self._file.uri)
                arrays.append(pa.repeat(value, count))
                continue
            if one.name not in self.file_columns or table is None:
                arrays.append(pa.nulls(count, one.type))
                continue
            chunks = table[one.name].chunks
            array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.nulls(0, table[one.name].type)])
            try:
                arrays.append(array if array.type == one.type else array.cast(one.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
                message = f"the file has {array.type} where the table has {one.type}: {e}"
                raise SchemaMismatchError(message, file=self._file.uri, column=one.name) from e
        if not fields:
            return no_columns(count)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


#: Data files at the root or in partition folders: files in other folders may belong to other tables.
_DELETABLE = re.compile(
    rf"(?:(?!\.)[^/]*=[^/]*/)*(?![._])[^/]+\.trv|{RECORD.pattern}|{STAGING}/[^/]+/.*[^/]+\.trv|(?:.*/)?{TEMPORARY}"
)


def table_files(store: Store) -> TableFiles:
    """Return the files of a folder, or a single file.  Raises ``TableNotFoundError`` and ``ForeignFilesError``."""
    folder, files = find_files(store.uri, store.options)
    if folder.uri != store.uri:
        if [f"{folder.uri}/{file.key}" for file in files] != [store.uri]:
            raise ForeignFilesError(
                "a glob pattern cannot be dropped as a table",
                help="drop the folder, or delete the files one by one",
                file=store.uri,
            )
        return TableFiles(folder, as_files(folder.head(file.key) for file in files), keep_root=True)
    objects = list(store.list())
    territory = Territory(store, tables_of(m.key for m in objects if not m.key.startswith(f"{STAGING}/")))
    matches = [m for m in (*objects, *store.unfinished()) if _DELETABLE.fullmatch(m.key)]
    foreign = set(territory.foreign(m.key.rpartition("/")[0] for m in matches))
    deletable = [m for m in matches if m.key.rpartition("/")[0] not in foreign]
    # Delete the records of jobs last, as they determine which files are visible.
    deletable.sort(key=lambda m: m.key.startswith(f"{STAGING}/"))
    keys = {m.key for m in deletable}
    return TableFiles(store, as_files(deletable), as_files(m for m in objects if m.key not in keys))
