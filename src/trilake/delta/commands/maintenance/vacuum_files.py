"""Which files vacuum may delete: pure functions over columns.

A file is deleted only if it is certainly in the table's folder, is not hidden, is older than the retention, and nothing
that must stay readable references it.  Paths that cannot be compared with a listing (absolute paths, odd spellings,
damaged vectors) protect every file that they might mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.files.place import OWN_NAME
from trilake.delta.log.snapshot import decoded_paths
from trilake.delta.protocol.actions import ActionBatch
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.delta.protocol.partitions import hive_directory
from trilake.delta.protocol.schema import StructType
from trilake.errors import DeletionVectorError
from trilake.storage.ownership import TABLE_OF
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

    Such a file is older and has a generic name, or has another format than the table's data files.
    """
    older = pc.less(files["modified_ms"], born_ms)
    # Names that only trilake or writers of change files use.
    ours = pc.match_substring_regex(files["path"], rf"(^|/){OWN_NAME}$|^_change_data/(.*/)?cdc-[^/]*$")
    doubtful_files = pc.and_(older, pc.invert(ours))
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
