"""A Delta snapshot as a DataFrame: by Spark's native scan if it can reach the files, otherwise through Arrow."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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

from trilake.common.text import quote_name
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.partition_predicate import PartitionPredicate
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.all_fields import nested_fields
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.property_values import is_on
from trilake.delta.scan.scan import (
    Scan,
    plan_scan,
    read_schema,
    resolve_columns,
    vector_count,
)
from trilake.delta.scan.skipping import skip_files
from trilake.delta.scan.statistics import record_counts
from trilake.delta.table import ArrowDeltaTable
from trilake.expr import Filter, parse_filter
from trilake.spark.delta.large.late_frames import late_frame
from trilake.spark.delta.large.lookup import looked_up
from trilake.spark.delta.reading.native_files import (
    absolute,
    condition_columns,
    load_vectors,
    native_files,
    native_output,
)
from trilake.spark.delta.source import TrilakeDeltaDataSource
from trilake.spark.live_frames.versions import is_read_in_each_plan
from trilake.spark.scan import manifest as native_manifest
from trilake.spark.scan.bases import cache_value, cached_value
from trilake.spark.scan.char_padding import char_columns, with_padding
from trilake.spark.scan.columns import is_certain
from trilake.spark.scan.hidden_metadata import TrackedRows
from trilake.spark.scan.planning.plan_conditions import plan_filter
from trilake.spark.scan.planning.table_reads import TableReads
from trilake.spark.scan.row_counts import note_row_count
from trilake.spark.scan.scan import (
    NativeFiles,
    NativeScan,
    NativeScanError,
    native_frame,
    native_refusal,
    native_scan,
)
from trilake.spark.session.compat import RELEASE
from trilake.spark.session.runner import map_in_arrow
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import reads_quotes_plainly, session_zone
from trilake.spark.session.sources.pruned_source import pruned_source_frame
from trilake.storage.base import Store
from trilake.table.explanation import Explanation
from trilake.table.table import FilterLike

_log = logging.getLogger("trilake.spark")
#: What the log says of a file that its scan depends on, beside its size.
_OF_FILES = ["path", "partitionValues", "deletionVector", "modificationTime", "baseRowId", "defaultRowCommitVersion"]
_INTEGERS = {"byte", "short", "integer", "long"}
#: Types that Parquet files have as integers of 32 bits, so that widening one to another changes no file.
_INT32 = {"short", "integer"}


def read_dataframe(
    spark: SparkSession,
    table: ArrowDeltaTable,
    *,
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    options: Mapping[str, str] | None = None,
    newest: bool = False,
) -> DataFrame:
    """The rows of an open table's version for which ``filter`` is true, projected to ``columns``.

    ``newest`` says that the version was asked for as the newest one: to write these rows into the table depends on it.
    Files that cannot match are left out on the driver; Spark applies the filter to the rows.
    """
    schema = read_schema(table.metadata.schema)
    output = resolve_columns(schema, columns, table.uri)
    bound = None if filter is None else parse_filter(filter, filter_schema(schema))
    certain = bound is None or (
        is_certain(spark, bound) and (bound.expression is not None or reads_quotes_plainly(spark))
    )
    used = bound if certain else None
    df = with_padding(_rows(spark, table, used, options or {}, newest), char_columns(schema))
    if isinstance(filter, str):
        df = df.where(filter)
    elif bound is not None:
        df = map_in_arrow(df, _Apply(bound), df.schema)
    return df if columns is None else df.select(*map(quote_name, output))


def _rows(
    spark: SparkSession, table: ArrowDeltaTable, filter: Filter | None, options: Mapping[str, str], newest: bool
) -> DataFrame:
    if newest and is_read_in_each_plan():
        return _through_arrow(spark, table, options, version=None)
    # Spark tells what a plan needs of a large table; of one that is filtered, the scan knows those files and no others.
    pending = isinstance(table.opened, PendingSnapshot)
    refusal = files_refusal(table.metadata, table.uri, spark, vectors=False) if pending else None
    if refusal is None:
        try:
            frame = late_frame(spark, table, newest=newest) if pending and filter is None else None
            if frame is None:
                version = looked_up(spark, table.log, table.opened, filter, lambda _: table.snapshot)
                scan = plan_scan(version, None, filter)
                vectors = vector_count(scan.snapshot.adds) > 0
                refusal = files_refusal(table.metadata, table.uri, spark, vectors=vectors)
                frame = _native(spark, table.log.store, scan, newest) if refusal is None else None
            if frame is not None:
                _log.info("version %d of %s is read by Spark's native scan", table.version, table.uri)
                return frame
        except NativeScanError as e:  # found only by looking at every file, such as a name that Spark passes over
            refusal = str(e)
    _log.info("version %d of %s is read through Arrow: %s", table.version, table.uri, refusal)
    return _through_arrow(spark, table, options, version=table.version)


def explain_read(spark: SparkSession, table: ArrowDeltaTable, filter: FilterLike | None = None) -> Explanation:
    """Which files :func:`read_dataframe` reads, and which way their rows take."""
    notes = [f"read by {_way(refuse_native(table, spark))}"]
    if table.snapshot.properties.is_on("delta.enableChangeDataFeed"):
        refusal = files_refusal(table.metadata, table.uri, spark, vectors=False)
        notes.append(f"changes are read by {_way(refusal)}")
    return replace(table.explain(filter), notes=tuple(notes))


def _way(refusal: str | None) -> str:
    """Which way rows take, given why Spark cannot read them natively."""
    return "Spark's native scan" if refusal is None else f"Arrow in Spark's tasks, not Spark's native scan: {refusal}"


def refuse_native(table: ArrowDeltaTable, spark: SparkSession) -> str | None:
    """Why Spark cannot read the files natively; ``None`` where it can."""
    return files_refusal(table.metadata, table.uri, spark, vectors=vector_count(table.snapshot.adds) > 0)


def files_refusal(metadata: Metadata, uri: str, spark: SparkSession, *, vectors: bool) -> str | None:
    """Why Spark cannot read files of a table with this metadata natively, some of which have ``vectors``."""
    changes = [c for f in nested_fields(metadata.schema) for c in f.metadata.get("delta.typeChanges") or ()]
    if any(c.get("fromType") in _INTEGERS and str(c.get("toType")).startswith("decimal") for c in changes):
        return "a column was widened from integers to decimals, which Spark's Parquet reader does not follow"
    if RELEASE < (4, 0) and any(c.get("toType") not in _INT32 for c in changes):
        return f"a column was widened, which the Parquet reader of Spark {spark.version} does not follow"
    return native_refusal(uri, metadata.provider.lower(), vectors=vectors, spark=spark)


class _Apply:
    """A pyarrow expression as a step of Spark's plan."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter

    def __call__(self, batches):  # type: ignore[no-untyped-def]  # Spark inspects annotations of what it is given
        for batch in batches:
            yield self.filter.apply(batch)


def _through_arrow(
    spark: SparkSession, table: ArrowDeltaTable, options: Mapping[str, str], *, version: int | None
) -> DataFrame:
    """The rows of a version, or of the one that is the newest when a plan is made; the columns are those of now."""
    declared_schema = table.metadata.schema
    schema = read_schema(declared_schema)
    read_options = {**({} if version is None else {"versionAsOf": version}), **options}
    wanted = to_spark(schema)
    for field, declared in zip(wanted.fields, declared_schema.fields, strict=True):
        field.nullable = declared.nullable
    known = None if all(f.nullable for f in wanted.fields) else wanted  # the source's own are nullable throughout
    return pruned_source_frame(spark, TrilakeDeltaDataSource, table.uri, read_options, schema.to_arrow_schema(), known)


def _native(spark: SparkSession, store: Store, scan: Scan, newest: bool) -> DataFrame:
    if not scan.files.num_rows:
        return native_frame(spark, _pruned(spark, native_files(store, scan, {}), scan, newest))
    sizes = scan.files["size"]
    if len(sizes) <= native_manifest.CHECKED_SIZES:
        # So few files are asked for their sizes each time, which the log does not know.
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
    # Where the log does not say how many rows a file has, a vector may delete more than there are.
    return frame if record_counts(marked).null_count else note_row_count(frame, native.count)


def _pruned(spark: SparkSession, files: NativeFiles, scan: Scan, newest: bool) -> NativeFiles:
    """The files with the way to choose among them when a query is planned."""
    schema, names = condition_columns(read_schema(scan.snapshot.schema), id_mode=files.id_mode)

    def read(conditions: Sequence[str]) -> ReadSet:
        return _read_set(scan.snapshot, scan.files, plan_filter(conditions, schema, names, session_zone(spark)))

    def prune(conditions: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        zone = session_zone(spark)
        filter = plan_filter(conditions, schema, names, zone)
        if filter is None:
            return None
        keep = skip_files(scan.snapshot, filter, scan.files).keep
        assert keep is not None
        uri = scan.snapshot.uri
        _log.info("%d of %d files are read of %s where %s", np.count_nonzero(keep), len(keep), uri, filter.text)
        return keep

    required = frozenset(f.physical_name for f in scan.snapshot.schema.fields if not f.nullable)
    reads = TableReads(scan.snapshot.uri, scan.snapshot.version, read) if newest else None
    times = scan.files["modificationTime"]
    return _tracked(replace(files, prune=prune, times=times, required=required, reads=reads), scan)


def _read_set(snapshot: Snapshot, files: pa.Table, filter: Filter | None) -> ReadSet:
    """What a transaction has read whose plan asked for the rows of some files for which a filter is true."""
    if filter is None:
        return ReadSet(whole_table=True)
    keep = skip_files(snapshot, filter, files).keep
    assert keep is not None
    paths = frozenset(files["path"].filter(pa.array(keep)).to_pylist())
    return ReadSet(predicates=(PartitionPredicate.of(snapshot, filter),), files=paths)


def _tracked(files: NativeFiles, scan: Scan) -> NativeFiles:
    """The files with the ids of their rows, where the table tracks them."""
    configuration = scan.snapshot.metadata.configuration
    if not is_on(configuration, row_tracking.ENABLED) or files.provider != "parquet":
        return files
    kept = [configuration.get(key) for key in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN)]
    extra = [T.StructField(name, T.LongType()) for name in kept if name]
    rows = TrackedRows(scan.files["baseRowId"], scan.files["defaultRowCommitVersion"], *kept)
    return replace(files, read_schema=T.StructType([*files.read_schema.fields, *extra]), tracked=rows)


def _digest(store: Store, scan: Scan, sizes: pa.ChunkedArray, newest: bool) -> bytes:
    """What says of two scans that they read the same columns of the same files in the same way."""
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
    files = scan.files.select(_OF_FILES)
    files = files.append_column("size", sizes)
    with pa.PythonFile(digest, "w") as sink, pa.ipc.new_stream(sink, files.schema) as writer:
        writer.write_table(files)
    return digest.value


class _Digest(RawIOBase):
    """A hash as a file to write to."""

    def __init__(self, data: bytes) -> None:
        self.hash = sha256(data)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)

    @property
    def value(self) -> bytes:
        """The digest of all that was written."""
        return self.hash.digest()
