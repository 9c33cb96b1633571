"""Choose and group the files of a snapshot for an optimization.

A *bin* is a set of files of one partition that are read together and become one new file, or several if rows are
clustered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.delta.commands.optimize.metrics import ClusteringFileStats, ClusteringStats
from trilake.delta.commands.rows.row_changes import row_columns
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.protocol.column_mapping import max_column_id
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.scan.conform import Resolver
from trilake.delta.scan.data_files import file_errors
from trilake.delta.scan.read import locate
from trilake.delta.scan.statistics import record_counts
from trilake.errors import MissingFileError
from trilake.parquet.variants import is_shredded
from trilake.storage.base import Store

#: Positions of files in ``snapshot.adds``.
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def sizes_of(adds: pa.Table) -> Numbers:
    """The bytes of each file."""
    sizes: Numbers = pc.fill_null(adds["size"], 0).to_numpy().astype(np.int64)
    return sizes


def has_vector(adds: pa.Table) -> Mask:
    """Which files have a deletion vector that deletes rows."""
    deleted = pc.fill_null(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    return np.asarray(pc.greater(deleted, 0).to_numpy(), dtype=bool)


def mostly_deleted(snapshot: Snapshot, share: float) -> Mask:
    """Which files have a share of deleted rows above ``share``, or an unknown number of rows."""
    adds = snapshot.adds
    mask = has_vector(adds)
    at = np.flatnonzero(mask)
    if not len(at):
        return mask
    some = adds.take(pa.array(at))
    deleted = pc.struct_field(some["deletionVector"], "cardinality").to_numpy()
    # null becomes NaN, so the comparison is false
    rows = record_counts(some, snapshot.engine.query).to_numpy().astype(float)
    mask[at] = ~(deleted <= share * rows)
    return mask


def partition_keys(snapshot: Snapshot) -> PartitionKeys:
    """The partitions of all files."""
    fields = partition_fields(snapshot.schema, snapshot.metadata.partition_columns)
    return PartitionKeys.of(snapshot.adds["partitionValues"], fields)


def by_partition(snapshot: Snapshot, chosen: Numbers) -> list[Numbers]:
    """The chosen files by partition."""
    if not len(chosen):
        return []
    codes = partition_keys(snapshot).codes
    order = np.argsort(codes[chosen], kind="stable")
    ordered = chosen[order]
    ends = np.flatnonzero(np.diff(codes[ordered])) + 1
    return [np.asarray(part) for part in np.split(ordered, ends)]


def packed(sizes: Numbers, limit: int) -> list[slice]:
    """Group consecutive files into bins of at most ``limit`` bytes; a larger file gets its own bin.

    >>> packed(np.array([1, 2, 3, 10, 1]), 6)
    [slice(0, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    # As doubles, since sizes near 2**63 must not overflow.  An oversized file counts as at most two bins; otherwise,
    # rounding would hide the small ones after it.
    total = np.cumsum(np.minimum(sizes.astype(np.float64), 2.0 * limit))
    out: list[slice] = []
    start, before = 0, 0.0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(total, before + limit, side="right")))
        out.append(slice(start, end))
        start, before = end, float(total[end - 1])
    return out


def compaction_bins(
    snapshot: Snapshot, considered: Numbers, *, smaller_than: int, limit: int, share: float
) -> list[Numbers]:
    """Bins of small files, and of files with many deleted rows, of at most ``limit`` bytes.

    A single file is rewritten only for its deleted rows.
    """
    sizes, wasteful = sizes_of(snapshot.adds), mostly_deleted(snapshot, share)
    candidates = considered[(sizes[considered] < smaller_than) | wasteful[considered]]
    bins = purge_bins(snapshot, candidates, limit=limit)
    return [files for files in bins if len(files) > 1 or wasteful[files[0]]]


def purge_bins(snapshot: Snapshot, chosen: Numbers, *, limit: int) -> list[Numbers]:
    """Bins of files that must all be rewritten, of at most ``limit`` bytes."""
    sizes, out = sizes_of(snapshot.adds), list[Numbers]()
    for part in by_partition(snapshot, chosen):
        ordered = part[np.argsort(sizes[part], kind="stable")]
        # Read files in the order in which they were added, so that rows roughly keep their order.
        out += [np.sort(ordered[piece]) for piece in packed(sizes[ordered], limit)]
    return out


# --- Z-cubes: sets of files that one run of clustering wrote together, identified by tags in their add actions --------
# Later runs skip large cubes, which makes clustering incremental.  Small cubes and files outside cubes are clustered
# together again.

ID, COLUMNS, CURVE = "ZCUBE_ID", "ZCUBE_ZORDER_BY", "ZCUBE_ZORDER_CURVE"
#: The value of ``add.clusteringProvider``.
PROVIDER = "liquid"
#: The size in bytes of a complete cube, at which a new cube is closed; delta-spark's value.
MIN_CUBE_SIZE = 100 << 30
TARGET_CUBE_SIZE = 150 << 30


def _tag(adds: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.map_lookup(adds["tags"], pa.scalar(name, pa.string()), "first")


class Cubes:
    """The files of a clustered table by cube: which files a run takes, and its statistics."""

    def __init__(self, adds: pa.Table, columns: Sequence[str]) -> None:
        self.sizes = sizes_of(adds)
        self.count = adds.num_rows
        ids = _tag(adds, ID)
        in_cube = np.asarray(pc.is_valid(ids))
        columns_json = orjson.dumps(list(columns)).decode()
        same = np.asarray(pc.fill_null(pc.equal(_tag(adds, COLUMNS), columns_json), False))
        foreign = np.asarray(pc.fill_null(pc.not_equal(adds["clusteringProvider"], PROVIDER), False))
        #: The number of the file's cube, if it is clustered by these columns; otherwise -1.
        self.cube = np.full(self.count, -1, dtype=np.int64)
        self.matching = in_cube & same & ~foreign
        encoded = pc.dictionary_encode(pc.fill_null(ids, "")).combine_chunks()
        self.cube[self.matching] = encoded.indices.to_numpy(zero_copy_only=False)[self.matching]
        #: Files that are clustered by other columns, or by another writer.
        self.other = (in_cube & ~same) | foreign

    def chosen(self, *, full: bool, min_size: int) -> Numbers:
        """The files to cluster, starting with unclustered files; with ``full``, all files."""
        if full:
            take = np.ones(self.count, dtype=bool)
        else:
            total = np.zeros(max(self.count, 1))
            if self.matching.any():
                sums = np.bincount(self.cube[self.matching], weights=self.sizes[self.matching])
                total = np.concatenate([sums, np.zeros(1)])
            small = self.matching & (total[np.where(self.matching, self.cube, 0)] < min_size)
            loose = ~self.matching & ~self.other
            take = small | loose
            if not loose.any() and len(np.unique(self.cube[small])) < 2:
                take = np.zeros(self.count, dtype=bool)  # a single cube, with nothing to add
        chosen = np.flatnonzero(take)
        return chosen[np.argsort(self.cube[chosen], kind="stable")]

    def bins(self, chosen: Numbers, *, target_size: int) -> list[Numbers]:
        """The chosen files as new cubes of about ``target_size`` bytes."""
        return [np.sort(chosen[piece]) for piece in packed(self.sizes[chosen], target_size)]

    def stats(self, chosen: Numbers, cubes: int, *, full: bool) -> ClusteringStats:
        """The statistics of a run that rewrote ``chosen`` into ``cubes``."""
        inside = self.matching | self.other if full else self.matching
        others = ~inside
        return ClusteringStats(
            ClusteringFileStats(int(inside.sum()), int(self.sizes[inside].sum())),
            ClusteringFileStats(int(others.sum()), int(self.sizes[others].sum())),
            len(np.unique(self.cube[self.matching])),
            ClusteringFileStats(len(chosen), int(self.sizes[chosen].sum())),
            cubes,
        )


# --- Files to rewrite, based on the columns in their Parquet footers --------------------------------------------------


#: Footers read concurrently.
_READERS = 16


def files_where(store: Store, snapshot: Snapshot, test: Callable[[pa.Schema], bool]) -> Numbers:
    """Positions of the files whose schema passes a test; a missing file fails it."""

    def holds(path: str) -> bool:
        place, key = locate(store, path)
        try:
            with file_errors(place, key), place.open_input(key) as source:
                return test(pq.read_schema(source))
        except MissingFileError:
            return True

    with ThreadPoolExecutor(_READERS) as pool:
        return np.flatnonzero(list(pool.map(holds, decoded_paths(snapshot.adds["path"]).to_pylist())))


def may_hold_dropped_columns(snapshot: Snapshot) -> bool:
    """Whether files may still have dropped columns: some assigned ids belong to no column."""
    mapped = snapshot.metadata.column_mapping_mode != "none"
    return mapped and max_column_id(snapshot.metadata) > len(nested_fields(snapshot.schema))


def purgeable(store: Store, snapshot: Snapshot) -> Numbers:
    """Positions of the files with deleted rows or dropped columns."""
    with_vectors = np.flatnonzero(has_vector(snapshot.adds))
    if not may_hold_dropped_columns(snapshot) or snapshot.metadata.provider.lower() != "parquet":
        return with_vectors
    resolver = Resolver(snapshot.metadata.column_mapping_mode)
    # Files may keep row tracking columns, although these are not columns of the table.
    expected = StructType((*snapshot.schema.fields, *row_columns(snapshot)))
    extra = files_where(store, snapshot, lambda s: _has_more(pa.struct(list(s)), expected, resolver))
    return np.union1d(with_vectors, extra)


def _pairs(file_type: pa.DataType, target: DataType, resolver: Resolver) -> Iterator[tuple[pa.DataType, DataType]]:
    """A type in a file and all types inside it, each with the table's type that it is read as."""
    yield file_type, target
    if isinstance(target, StructType) and pa.types.is_struct(file_type):
        children = list(file_type)
        for f, i in zip(target.fields, resolver.places(target.fields, children), strict=True):
            if i is not None:
                yield from _pairs(children[i].type, f.type, resolver)
    elif isinstance(target, ArrayType) and pa.types.is_list(file_type):
        yield from _pairs(file_type.value_type, target.element, resolver)
    elif isinstance(target, MapType) and pa.types.is_map(file_type):
        yield from _pairs(file_type.key_type, target.key, resolver)
        yield from _pairs(file_type.item_type, target.value, resolver)


def _has_more(file_type: pa.DataType, target: StructType, resolver: Resolver) -> bool:
    for f, t in _pairs(file_type, target, resolver):
        if isinstance(t, StructType) and pa.types.is_struct(f):
            matched = set(resolver.places(t.fields, list(f))) - {None}
            if len(matched) < f.num_fields:
                return True
    return False


def with_other_types(store: Store, snapshot: Snapshot) -> Numbers:
    """Positions of the files with columns whose types have been widened since; none for files other than Parquet."""
    if snapshot.metadata.provider.lower() != "parquet":
        return np.array([], dtype=np.int64)
    resolver = Resolver(snapshot.metadata.column_mapping_mode)

    def differs(schema: pa.Schema) -> bool:
        return not all(_is_of(f, t) for f, t in _pairs(pa.struct(list(schema)), snapshot.schema, resolver))

    return files_where(store, snapshot, differs)


def _is_of(file_type: pa.DataType, target: DataType) -> bool:
    """Whether a file stores values of a primitive type as such."""
    if not isinstance(target, PrimitiveType):
        return True
    if str(target) == "variant":
        return not is_shredded(file_type)
    # The unit of a timestamp may differ between files.
    return bool(file_type == target.arrow or (pa.types.is_timestamp(file_type) and pa.types.is_timestamp(target.arrow)))
