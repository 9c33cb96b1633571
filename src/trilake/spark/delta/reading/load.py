"""``spark.read.format("delta")``: a version of a table, or its change feed, over Spark's own scan if possible.

The version comes from options, or from a suffix of the path: ``@v3`` or a timestamp.

The files of a range of versions are scanned like those of a snapshot.  ``_commit_version`` and ``_commit_timestamp``,
and ``_change_type`` for files whose rows were all inserted or deleted, are constants per file, so Spark prunes files by
them as by partition values.  Change files store ``_change_type``.  If only a file's deletion vector changed, the rows
that differ between the two vectors are read.  A file that appears twice in the range, because it was added and removed,
is in two scans.  Files from times with other partition columns have separate scans.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.option_values import Travel, split_travel
from trilake.common.text import quote_name
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.changes import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangeFeedScan,
    ChangeFeedTask,
    as_partitioned,
    plan_changes,
)
from trilake.delta.scan.scan import read_schema
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError, masked
from trilake.spark.delta.reading.native_files import task_files
from trilake.spark.delta.reading.read import files_obstacle, read_dataframe
from trilake.spark.delta.settings import FEED_BEYOND
from trilake.spark.delta.source import CHANGE_COLUMNS, FEED_RANGE, READ_OPTIONS, TrilakeDeltaDataSource, reads_feed
from trilake.spark.live_frames.versions import ReadVersion, version_to_read
from trilake.spark.scan.frame_tables import RowCount, note, noted
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.scan import NativeFiles, native_frame
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import Options, change_range, requested_version
from trilake.spark.session.schemas import requested_schema, to_spark
from trilake.spark.session.settings import session_flag, time_ms
from trilake.spark.session.sources.python_source import source_frame
from trilake.spark.session.type_tree import with_strings
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.location import explained

_log = logging.getLogger("trilake.spark")


def split_version(path: str, store: Mapping[str, str]) -> tuple[str, Travel | None]:
    """A table's path without its suffix, and what the suffix names, if any.  A path that exists has no suffix, whatever
    it looks like.

    >>> split_version("/no/such/table@v12", {})
    ('/no/such/table', Travel(version=12, time=None))
    """
    split = split_travel(path)
    if split is None or os.path.exists(path) or DeltaLog(open_store(path, dict(store)), spark_engine()).exists():
        return path, None
    return split


def load_delta(spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
    """The DataFrame of ``spark.read.format("delta").options(...).schema(...).load(path)``.  A suffix ``@v3`` or
    ``@20240131120000000`` of the path names a version."""
    read_options = Options(options, READ_OPTIONS, reading=True)
    path, in_path = split_version(path, read_options.store)
    log = DeltaLog(open_store(path, dict(read_options.store)), spark_engine())
    if not reads_feed(read_options):
        frame, newest = _load_version(spark, log, read_options, in_path)
    elif in_path is None and not (read_options.get("versionAsOf") or read_options.get("timestampAsOf")):
        frame, newest = load_change_feed(spark, log, read_options)
    else:
        raise InvalidArgumentError(
            "a change feed cannot be read at a single version",
            help="pass startingVersion and endingVersion",
            file=log.store.uri,
            condition="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
        )
    result = frame if schema is None else _with_schema(frame, schema)
    return result if newest is None else note(result, newest)


def _load_version(
    spark: SparkSession, log: DeltaLog, options: Options, in_path: Travel | None
) -> tuple[DataFrame, ReadVersion | None]:
    """The rows of a version, and which version that is, if it is the newest and not one that the user chose."""
    store = log.store
    unused = [name for name in FEED_RANGE if options.get(name) is not None]
    if unused:  # delta-spark ignores them, too
        _log.warning(
            "%s has no effect without readChangeFeed: reading the table %s", ", ".join(unused), masked(store.uri)
        )
    if not log.exists():
        missing = TableNotFoundError(
            "the path does not exist, or is not a Delta table",
            help="check the path",
            file=store.uri,
            condition="DELTA_PATH_DOES_NOT_EXIST",
        )
        raise explained(missing, store)
    version = requested_version(log, options, in_path, partial(time_ms, spark))
    at = version_to_read(store.uri) if version is None else version
    table = ArrowDeltaTable(store, log.engine, version=at)
    frame = read_dataframe(spark, table, filter=options.get("filter"), options=options.store, newest=version is None)
    return frame, ReadVersion.of(table) if version is None else None


def _with_schema(df: DataFrame, schema: Any) -> DataFrame:
    """A DataFrame projected and cast to ``schema``, a type or a DDL string.  Raises ``InvalidArgumentError`` for an
    unknown column."""
    requested = requested_schema(df.sparkSession, schema)
    columns = []
    by_lower = {f.name.lower(): f for f in df.schema.fields}
    for field in requested.fields:
        source = by_lower.get(field.name.lower())
        if source is None:
            raise InvalidArgumentError(
                f"column {field.name!r} of the schema not found in the table",
                help=f"its columns are {', '.join(df.columns)}",
                column=field.name,
                condition="DELTA_UNSUPPORTED_SCHEMA_DURING_READ",
            )
        column = F.col(quote_name(source.name))
        columns.append((column if source.dataType == field.dataType else column.cast(field.dataType)).alias(field.name))
    return note(df.select(*columns), noted(df, RowCount))


#: The most scans for a feed; a feed that needs more is read through Arrow.
_MOST_SCANS = 32


def load_change_feed(spark: SparkSession, log: DeltaLog, options: Options) -> tuple[DataFrame, ReadVersion | None]:
    """The changes of a range of versions, and the last of them if the range has no end."""
    beyond = session_flag(spark, FEED_BEYOND, False)
    feed_range = change_range(log, options, partial(time_ms, spark), beyond=beyond)
    if feed_range.is_empty:
        head = log.head()
        frame, last = _empty(spark, read_schema(head.schema)), head.version
    else:
        frame, last = _changes(spark, log, feed_range.start, feed_range.end, options.store)
    return frame, ReadVersion(log, last) if feed_range.end is None else None


def _changes(
    spark: SparkSession, log: DeltaLog, start: int, end: int | None, store_options: Mapping[str, str]
) -> tuple[DataFrame, int]:
    """The changes of versions ``start`` to ``end`` (``None`` for the newest), both included, and the last version."""
    scan = plan_changes(log, start, end)
    obstacle = files_obstacle(
        scan.metadata, log.store.uri, spark, vectors=any(t.file.vector or t.file.selected for t in scan.tasks)
    )
    if obstacle is None:
        try:
            return _natively(spark, log.store, read_schema(scan.metadata.schema), scan), scan.end
        except NativeScanError as e:
            obstacle = str(e)
    _log.info("the changes of %s are read through Arrow: %s", log.store.uri, obstacle)
    feed = {"readChangeFeed": "true", "startingVersion": str(start), "endingVersion": str(scan.end)}
    rows = source_frame(spark, TrilakeDeltaDataSource, log.store.uri, {**feed, **store_options})
    return with_strings(rows), scan.end


def _empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """A change feed without rows."""
    return spark.createDataFrame([], T.StructType([*to_spark(schema).fields, *CHANGE_COLUMNS]))


def _natively(spark: SparkSession, store: Store, schema: StructType, scan: ChangeFeedScan) -> DataFrame:
    groups: dict[tuple[bool, bool, frozenset[str], int], list[ChangeFeedTask]] = {}
    times: Counter[tuple[bool, bool, frozenset[str], str]] = Counter()
    for task in scan.tasks:
        kind = (task.change_type is None, task.file.selected is not None, frozenset(task.file.partition_values))
        nth = times[(*kind, task.file.path)]
        times[(*kind, task.file.path)] += 1
        groups.setdefault((*kind, nth), []).append(task)
    if len(groups) > _MOST_SCANS:
        raise NativeScanError(f"some files appear so often that {len(groups)} scans would be needed")
    if not groups:
        return _empty(spark, schema)
    parts = [_files(store, schema, scan, tasks) for tasks in groups.values()]
    return reduce(lambda one, other: one.unionByName(other), [native_frame(spark, files) for files in parts])


def _files(store: Store, schema: StructType, scan: ChangeFeedScan, tasks: Sequence[ChangeFeedTask]) -> NativeFiles:
    files = task_files(store, schema, as_partitioned(scan.plan, tasks[0].file), [t.file for t in tasks])
    constants = {
        COMMIT_VERSION: pa.chunked_array([pa.array([t.version for t in tasks], pa.int64())]),
        COMMIT_TIMESTAMP: pa.chunked_array(
            [pa.array([t.timestamp_ms * 1000 for t in tasks], pa.timestamp("us", "UTC"))]
        ),
    }
    read = files.read_schema
    if tasks[0].change_type is None:
        read = T.StructType([*read.fields, CHANGE_COLUMNS[0]])
    else:
        constants[CHANGE_TYPE] = pa.chunked_array([pa.array([t.change_type for t in tasks], pa.string())])
    types = {f.name: f for f in CHANGE_COLUMNS}
    marked = {i: BitMap64.deserialize(t.file.selected) for i, t in enumerate(tasks) if t.file.selected is not None}
    return replace(
        files,
        read_schema=read,
        partition_columns={**files.partition_columns, **constants},
        partition_types=T.StructType([*files.partition_types.fields, *(types[n] for n in constants)]),
        output=[*files.output, *((f.name, f) for f in CHANGE_COLUMNS)],
        vectors=marked or files.vectors,
        vectors_select=bool(marked),
    )
