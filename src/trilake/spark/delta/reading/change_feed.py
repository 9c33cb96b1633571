"""The change data feed of a Delta table as a DataFrame, over Spark's own scan if possible.

The files of a range of versions are scanned like those of a snapshot.  ``_commit_version`` and ``_commit_timestamp``,
and ``_change_type`` for files whose rows were all inserted or deleted, are constants per file, so Spark prunes files by
them as by partition values.  Change files store ``_change_type``.  If only a file's deletion vector changed, the rows
that differ between the two vectors are read.  A file that appears twice in the range, because it was added and removed,
is in two scans.  Files from times with other partition columns have separate scans.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

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
from trilake.spark.delta.reading.native_files import task_files
from trilake.spark.delta.reading.read import files_obstacle
from trilake.spark.delta.settings import FEED_BEYOND
from trilake.spark.delta.source import CHANGE_COLUMNS, TrilakeDeltaDataSource
from trilake.spark.live_frames.versions import ReadVersion
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.scan import NativeFiles, native_frame
from trilake.spark.session.options import Options, change_range
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import session_flag, time_ms
from trilake.spark.session.sources.python_source import source_frame
from trilake.storage.base import Store

_log = logging.getLogger("trilake.spark")
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
    return source_frame(spark, TrilakeDeltaDataSource, log.store.uri, {**feed, **store_options}), scan.end


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
