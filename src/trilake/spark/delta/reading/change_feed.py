"""The change data feed as a frame over Spark's own scan.

The files of a range of versions are scanned like those of a snapshot.  ``_commit_version`` and ``_commit_timestamp``,
and ``_change_type`` for files whose rows were all inserted or deleted, are constants per file, so Spark prunes files by
them as by partition values.  Change files store ``_change_type``.  If only a file's deletion vector changed, the rows
between the two vectors are read.

A file that appears twice in the range, because it was added and removed, is in two scans, as are files from times with
other partition columns.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

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
from trilake.spark.delta.read import files_refusal
from trilake.spark.delta.reading.native_files import task_files
from trilake.spark.delta.source import CHANGE_COLUMNS, TrilakeDeltaDataSource
from trilake.spark.scan.scan import NativeFiles, NativeScanError, native_frame
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.sources.python_source import source_frame
from trilake.storage.base import Store

_log = logging.getLogger("trilake.spark")
#: Most scans that a feed may take before it is read through Arrow instead.
_MOST_SCANS = 32


def change_feed(
    spark: SparkSession, log: DeltaLog, start: int, end: int | None = None, *, options: Mapping[str, str]
) -> tuple[DataFrame, int]:
    """The changes of versions ``start`` to ``end`` (the newest by default), both included, and the last of them.

    ``options`` are those of the store.  Raises the errors of :func:`trilake.delta.scan.changes.plan_changes`.
    """
    scan = plan_changes(log, start, end)
    refusal = files_refusal(
        scan.metadata, log.store.uri, spark, vectors=any(t.file.vector or t.file.selected for t in scan.tasks)
    )
    if refusal is None:
        try:
            return _natively(spark, log.store, read_schema(scan.metadata.schema), scan), scan.end
        except NativeScanError as e:
            refusal = str(e)
    _log.info("the changes of %s are read through Arrow: %s", log.store.uri, refusal)
    feed = {"readChangeFeed": "true", "startingVersion": str(start), "endingVersion": str(scan.end)}
    return source_frame(spark, TrilakeDeltaDataSource, log.store.uri, {**feed, **options}), scan.end


def no_changes(spark: SparkSession, log: DeltaLog) -> tuple[DataFrame, int]:
    """A feed without rows, in the table's newest columns, and the newest version."""
    head = log.head()
    return _empty(spark, read_schema(head.schema)), head.version


def _empty(spark: SparkSession, schema: StructType) -> DataFrame:
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
        raise NativeScanError(f"its files take {len(groups)} scans, because some appear that often")
    if not groups:
        return _empty(spark, schema)
    parts = [_files(store, schema, scan, tasks) for tasks in groups.values()]
    return reduce(lambda one, other: one.unionByName(other), [native_frame(spark, files) for files in parts])


def _files(store: Store, schema: StructType, scan: ChangeFeedScan, tasks: Sequence[ChangeFeedTask]) -> NativeFiles:
    """Distinct files of one kind, with the columns of the feed."""
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
