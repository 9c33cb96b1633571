"""Spark's own scan of the files of a Delta version; files are chosen when Spark plans a query."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from io import RawIOBase
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.protocol.property_values import is_on
from trilake.delta.scan.scan import Scan, read_schema, skip_files
from trilake.delta.scan.statistics import record_counts
from trilake.expr import Filter
from trilake.spark.delta.reading.native_files import absolute, load_vectors, native_files, native_output
from trilake.spark.delta.reading.plan_filter import PlanFilter, read_set
from trilake.spark.scan import manifest as native_manifest
from trilake.spark.scan.bases import cache_value, cached_value
from trilake.spark.scan.frame_tables import note_row_count
from trilake.spark.scan.hidden_metadata import TrackedRows
from trilake.spark.scan.planning.table_reads import TableReads
from trilake.spark.scan.scan import NativeFiles, NativeScan, native_frame, native_scan
from trilake.storage.base import Store

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


def listed_frame(spark: SparkSession, store: Store, scan: Scan, *, newest: bool) -> DataFrame:
    """The rows of a scan's files; ``newest`` says that the read has no time travel.

    Raises ``NativeScanError`` if Spark would not read exactly these rows.
    """
    if not scan.files.num_rows:
        return native_frame(spark, _pruned(spark, native_files(store, scan, {}), scan, newest))
    sizes = scan.files["size"]
    if len(sizes) <= native_manifest.CHECKED_SIZES:
        # If the files are few, compare the sizes in the log with the files.
        sizes = native_manifest.sound_sizes(absolute(store, scan.paths), sizes)
    key = _digest(store, scan, sizes, newest)
    native: NativeScan | None = cached_value(spark, key)
    if native is None:
        files = native_files(store, scan, load_vectors(store, scan))
        native = native_scan(spark, _pruned(spark, files, scan, newest), keep=False)
        cache_value(spark, key, native, native.size)
    elif native.reads is not None:
        native.reads.holds_at(scan.snapshot.version)
    frame = native.frame(spark, native_output(read_schema(scan.snapshot.schema)))
    marked = scan.files.filter(pc.field("deletionVector").is_valid())
    # Without a row count in the log, a vector's size cannot be checked.
    return (
        frame if record_counts(marked, scan.snapshot.engine.query).null_count else note_row_count(frame, native.count)
    )


def _pruned(spark: SparkSession, files: NativeFiles, scan: Scan, newest: bool) -> NativeFiles:
    """The files, with a function that chooses among them when Spark plans a query, and the IDs of tracked rows."""
    snapshot = scan.snapshot
    plan_filter = PlanFilter(spark, read_schema(snapshot.schema), files.id_mode)

    def matching(filter: Filter) -> npt.NDArray[np.bool_]:
        keep = skip_files(snapshot, filter, scan.files).keep
        assert keep is not None
        return keep

    def read(conditions: Sequence[str]) -> ReadSet:
        filter = plan_filter(conditions)
        if filter is None:
            return ReadSet(whole_table=True)
        return read_set(snapshot, filter, scan.files["path"].filter(pa.array(matching(filter))))

    def prune(conditions: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        filter = plan_filter(conditions)
        if filter is None:
            return None
        keep = matching(filter)
        _log.info("reading %d of %d files of %s where %s", keep.sum(), len(keep), snapshot.uri, filter.sql)
        return keep

    required = frozenset(f.physical_name for f in snapshot.schema.fields if not f.nullable)
    reads = TableReads(snapshot.uri, snapshot.version, read) if newest else None
    files = replace(files, prune=prune, times=scan.files["modificationTime"], required=required, reads=reads)
    configuration = snapshot.metadata.configuration
    if not is_on(configuration, row_tracking.ENABLED) or files.provider != "parquet":
        return files
    columns = [configuration.get(key) for key in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN)]
    extra = [T.StructField(name, T.LongType()) for name in columns if name]
    rows = TrackedRows(scan.files["baseRowId"], scan.files["defaultRowCommitVersion"], *columns)
    return replace(files, read_schema=T.StructType([*files.read_schema.fields, *extra]), tracked=rows)


def _digest(store: Store, scan: Scan, sizes: pa.ChunkedArray, newest: bool) -> bytes:
    """A digest of everything on which the DataFrame of a scan depends."""
    plan = scan.plan
    how = (
        store.uri,
        scan.snapshot.metadata.schema_string,
        plan.partition_columns,
        plan.mode,
        plan.provider,
        sorted(plan.format_options.items()),
        [scan.snapshot.metadata.configuration.get(key) for key in row_tracking.KEYS],
        scan.nan_counted,
        newest,
    )
    digest = _Digest(repr(how).encode())
    files = scan.files.select(_FILE_COLUMNS).append_column("size", sizes)
    with pa.PythonFile(digest, "w") as sink, pa.ipc.new_stream(sink, files.schema) as writer:
        writer.write_table(files)
    return digest.hash.digest()


class _Digest(RawIOBase):
    """A hash as a file to write to."""

    def __init__(self, data: bytes) -> None:
        self.hash = sha256(data)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)
