"""Spark's own scan of the files of a Delta version; files are chosen when Spark plans a query.

If a table has very many files, they are listed only then: the query's conditions are applied while the checkpoint is
read, part by part, so the driver and Spark hold only the matching files.  A query without a condition lists all files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import PartitionPredicate, ReadSet
from trilake.delta.log.checkpoint import counted
from trilake.delta.log.checksum import read_checksum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot, empty_state, file_keys
from trilake.delta.protocol.features import has_feature
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.scan.large_tables import narrowed_by_jobs, outline, row_count, snapshot_for, with_files
from trilake.delta.scan.scan import Scan, plan_scan, read_schema, skip_files
from trilake.delta.scan.statistics import is_float, record_counts
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptLogError, TrilakeError
from trilake.expr import Filter
from trilake.spark.delta.reading.native_files import absolute, load_vectors, native_files, native_output
from trilake.spark.scan import manifest as native_manifest
from trilake.spark.scan.frame_tables import note
from trilake.spark.scan.hidden_metadata import TrackedRows
from trilake.spark.scan.late_scan import LateList, LateTable, late_scan
from trilake.spark.scan.manifest import Integers, NativeScanError, cache_value, cached_value
from trilake.spark.scan.planning.plan_conditions import plan_filter
from trilake.spark.scan.planning.table_reads import TableReads
from trilake.spark.scan.scan import NativeFiles, NativeScan, native_frame, native_scan, scan_name
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import say_once
from trilake.spark.session.optimize_settings import SparkJobs, by_jobs
from trilake.spark.session.settings import session_zone

_log = logging.getLogger("trilake.spark")
#: Columns of the log on which a scan depends, except the size.
_FILE_COLUMNS = [
    "path",
    "partitionValues",
    "deletionVector",
    "modificationTime",
    "baseRowId",
    "defaultRowCommitVersion",
]


@dataclass(frozen=True)
class VersionRead:
    """A read of an open table's version.  ``newest`` means that the read has no time travel, so that a write of its
    rows into the table can conflict with concurrent commits."""

    spark: SparkSession
    table: ArrowDeltaTable
    newest: bool

    def recorded(self, read: Callable[[Sequence[str]], ReadSet]) -> TableReads | None:
        """A record of what plans read, for writes into the same table."""
        return TableReads(self.table.uri, self.table.version, read) if self.newest else None


def listed_frame(request: VersionRead, scan: Scan) -> DataFrame:
    """The rows of a scan's files.  Raises ``NativeScanError`` if Spark would not read exactly these rows."""
    spark, store = request.spark, request.table.log.store
    if not scan.files.num_rows:
        return native_frame(spark, _pruned(request, native_files(store, scan, {}), scan))
    sizes = scan.files["size"]
    if len(sizes) <= native_manifest.CHECKED_SIZES:
        # If the files are few, compare the sizes in the log with the files.
        sizes = native_manifest.sound_sizes(absolute(store, scan.paths), sizes)
    key = _digest(request, scan, sizes)
    native: NativeScan | None = cached_value(spark, key)
    if native is None:
        files = native_files(store, scan, load_vectors(store, scan))
        native = native_scan(spark, _pruned(request, files, scan))
        cache_value(spark, key, native, native.size)
    elif native.reads is not None:
        native.reads.holds_at(scan.snapshot.version)
    frame = native.frame(spark, native_output(read_schema(scan.snapshot.schema)))
    marked = scan.files.filter(pc.field("deletionVector").is_valid())
    # Without a row count in the log, a vector's size cannot be checked.
    return frame if record_counts(marked, scan.snapshot.engine.query).null_count else note(frame, native.count)


def _pruned(request: VersionRead, files: NativeFiles, scan: Scan) -> NativeFiles:
    """The files, with a function that chooses among them when Spark plans a query, and the IDs of tracked rows."""
    snapshot = scan.snapshot
    to_filter = partial(_filter_of, request.spark, read_schema(snapshot.schema), files.id_mode)

    def matching(filter: Filter) -> npt.NDArray[np.bool_]:
        return skip_files(snapshot, filter, scan.files).keep

    def read(conditions: Sequence[str]) -> ReadSet:
        filter = to_filter(conditions)
        if filter is None:
            return ReadSet(whole_table=True)
        return _read_set(snapshot, filter, scan.files["path"].filter(pa.array(matching(filter))))

    def prune(conditions: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        filter = to_filter(conditions)
        if filter is None:
            return None
        keep = matching(filter)
        _log.info("reading %d of %d files of %s where %s", keep.sum(), len(keep), snapshot.uri, filter.sql)
        return keep

    required = frozenset(f.physical_name for f in snapshot.schema.fields if not f.nullable)
    times, reads = scan.files["modificationTime"], request.recorded(read)
    files = replace(files, prune=prune, times=times, required=required, reads=reads)
    configuration = snapshot.metadata.configuration
    if not is_on(configuration, row_tracking.ENABLED) or files.provider != "parquet":
        return files
    columns = [configuration.get(key) for key in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN)]
    extra = [T.StructField(name, T.LongType()) for name in columns if name]
    rows = TrackedRows(scan.files["baseRowId"], scan.files["defaultRowCommitVersion"], *columns)
    return replace(files, read_schema=T.StructType([*files.read_schema.fields, *extra]), tracked=rows)


def _filter_of(spark: SparkSession, schema: StructType, id_mode: bool, conditions: Sequence[str]) -> Filter | None:
    """The conditions of a plan that certainly mean the same to the embedded engine; ``None`` if there are none.
    ``id_mode`` means that the scan matches columns by field ID."""
    names: dict[str, str] = {}
    fields: dict[str, pa.Field] = {}
    for f in schema.fields:
        # Folders of partitions may have either name.
        for name in (scan_name(f.physical_name, id_mode=id_mode), f.physical_name, f.name):
            if names.setdefault(name, f.name) == f.name:
                fields[name] = pa.field(name, f.type.arrow)
    columns = pa.schema([fields[name] for name in names if name in fields])
    return plan_filter(conditions, columns, names, session_zone(spark))


def _read_set(snapshot: Snapshot, filter: Filter, paths: pa.ChunkedArray) -> ReadSet:
    """The read set of a plan that reads the rows of these files for which a filter is true."""
    return ReadSet(predicates=(PartitionPredicate.of(snapshot, filter),), files=frozenset(paths.to_pylist()))


def _digest(request: VersionRead, scan: Scan, sizes: pa.ChunkedArray) -> bytes:
    """A digest of everything on which the DataFrame of a scan depends."""
    plan = scan.plan
    how = (
        request.table.log.store.uri,
        scan.snapshot.metadata.schema_string,
        plan.partition_columns,
        plan.mode,
        plan.provider,
        sorted(plan.format_options.items()),
        [scan.snapshot.metadata.configuration.get(key) for key in row_tracking.KEYS],
        scan.nan_counted,
        request.newest,
    )
    digest = sha256(repr(how).encode())
    for batch in scan.files.select(_FILE_COLUMNS).append_column("size", sizes).to_batches():
        digest.update(batch.serialize())
    return digest.digest()


# --- tables with very many files, which are listed while Spark plans a query -----------------------------------------


def late_frame(request: VersionRead) -> DataFrame | None:
    """The DataFrame of an open table whose checkpoint has not been read; ``None`` if its files must be listed first.
    Raises ``NativeScanError`` if Spark cannot read the files."""
    spark, log, pending = request.spark, request.table.log, request.table.opened
    if is_connect(spark) or not isinstance(pending, PendingSnapshot):
        return None
    if is_on(pending.metadata.configuration, row_tracking.ENABLED):
        return None  # the plan contains row tracking facts of each file
    key = sha256(repr((pending.uri, pending.segment, pending.metadata, request.newest)).encode()).digest()
    scan: NativeScan | None = cached_value(spark, key)
    if scan is None:
        files = _LargeTable.of(log, pending)
        if files is None:
            return None
        try:
            scan = late_scan(spark, files.late_table(request))
        except Py4JError as e:
            say_once("files of large tables are listed before planning", e)
            return None
        cache_value(spark, key, scan, scan.size)
    frame = scan.frame(spark, native_output(read_schema(pending.schema)))
    return note(frame, scan.count)


@dataclass(frozen=True)
class _LargeTable:
    """A version of a table, with a list of only its files with deletion vectors.  ``size`` is approximate."""

    log: DeltaLog
    pending: PendingSnapshot
    size: int
    marked: pa.Table

    @staticmethod
    def of(log: DeltaLog, pending: PendingSnapshot) -> _LargeTable | None:
        """The version; ``None`` if all files must be listed."""
        if not has_feature(pending.protocol, "deletionVectors") and (size := _stated_size(log, pending)) is not None:
            return _LargeTable(log, pending, size, empty_state().adds)
        table_outline = outline(log, pending)
        return None if table_outline is None else _LargeTable(log, pending, table_outline.size, table_outline.marked)

    def late_table(self, request: VersionRead) -> LateTable:
        spark, store, pending = request.spark, self.log.store, self.pending
        if self.marked.num_rows and pending.metadata.provider.lower() != "parquet":
            raise NativeScanError("deletion vectors need row numbers, which Spark provides only for Parquet files")
        nowhere = with_files(pending, empty_state().adds)
        required = frozenset(f.physical_name for f in pending.schema.fields if not f.nullable)
        floats = any(map(is_float, nested_fields(pending.schema)))
        files = replace(self._files(plan_scan(nowhere)), required=required, nan_counted=not floats)
        to_filter = partial(_filter_of, spark, read_schema(pending.schema), files.id_mode)

        def listed(conditions: Sequence[str]) -> LateList:
            filter = to_filter(conditions)
            scan = self._scan(spark, filter)
            where = "true" if filter is None else filter.sql
            _log.info("listed %d files of %s where %s", len(scan.paths), pending.uri, where)
            return LateList(self._files(scan), self._slots(scan.files))

        def read(conditions: Sequence[str]) -> ReadSet:
            filter = to_filter(conditions)
            if filter is None:
                return ReadSet(whole_table=True)
            scan = self._scan(spark, filter)
            return _read_set(scan.snapshot, filter, scan.files["path"])

        vectors = load_vectors(store, plan_scan(with_files(pending, self.marked)))
        return LateTable(
            replace(files, reads=request.recorded(read)),
            self.size,
            listed,
            [vectors.get(i, BitMap64()) for i in range(self.marked.num_rows)],
            lambda: row_count(self.log, pending),
            not record_counts(self.marked, self.log.engine.query).null_count,
        )

    def _files(self, scan: Scan) -> NativeFiles:
        return replace(native_files(self.log.store, scan, {}), times=scan.files["modificationTime"])

    def _scan(self, spark: SparkSession, filter: Filter | None) -> Scan:
        return plan_scan(look_up(spark, self.log, self.pending, filter, self.log.load), None, filter)

    @cached_property
    def _keys(self) -> pa.Array:
        keys = file_keys(self.marked)
        return pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], pa.string())

    def _slots(self, files: pa.Table) -> Integers | None:
        """For each file, its index among the files with vectors, or the number after the last one."""
        valid = pc.is_valid(files["deletionVector"])
        slots = np.full(files.num_rows, self.marked.num_rows, np.int64)
        positions = pc.index_in(file_keys(files.filter(valid)), value_set=self._keys)
        if positions.null_count:
            raise CorruptLogError(
                "a file has a deletion vector that the checkpoint's footers do not list",
                help="restore the checkpoint from a backup",
                file=self.pending.uri,
                version=self.pending.version,
            )
        slots[valid.to_numpy()] = positions.to_numpy()
        return slots if self.marked.num_rows else None


def _stated_size(log: DeltaLog, pending: PendingSnapshot) -> int | None:
    """The approximate size of the table, from a checksum file; ``None`` if there is none."""
    version = pending.segment.checkpoint_version
    if pending.segment.checksum is None or version is None:
        return None
    try:
        checksum = read_checksum(log.store, version)
    except TrilakeError:  # it is damaged, and readers do not need it
        return None
    newer = int(pc.sum(pending.newer.adds["size"]).as_py() or 0)
    return None if checksum is None else checksum.table_size_bytes + newer


#: One process looks up a million files per second, with 8 bytes of memory per file, so a job pays off late.
_FEWER = 5


def look_up(
    spark: SparkSession,
    log: DeltaLog,
    opened: Snapshot | PendingSnapshot,
    filter: Filter | None,
    whole: Callable[[PendingSnapshot], Snapshot],
) -> Snapshot:
    """The version with at least the files that may have a row for which ``filter`` is true; ``whole`` reads all files.
    If a job fails, for example because tasks cannot see the table, this process does the work."""
    if filter is None or isinstance(opened, Snapshot):
        return snapshot_for(log, opened, filter, whole)
    if not by_jobs(spark, log.store, counted(opened.segment) // _FEWER):
        return snapshot_for(log, opened, filter, whole)
    try:
        narrowed = narrowed_by_jobs(log, opened, filter, SparkJobs(spark, opened.uri))
    except TrilakeError as e:
        _log.info("a job cannot look up the files of %s: %s", opened.uri, e.message)
        return snapshot_for(log, opened, filter, whole)
    return whole(opened) if narrowed is None else narrowed
