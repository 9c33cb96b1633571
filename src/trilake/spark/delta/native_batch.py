"""Let Spark itself read a streaming batch whose source is a Delta table.

Spark plans a stream over a Python source once, and each batch passes its rows through Python.  But ``foreachBatch`` can
inspect the batch's plan: if it reads a trilake table and works row by row, the same plan over Spark's own scan of the
same files gives the same rows::

    WriteToMicroBatch               Project a + 1 AS c
      Project a + 1 AS c      ->      Filter a > 50
        Filter a > 50                   native scan of the files between the batch's offsets
          stream over "delta"

The offsets are the source's, as Spark stores them, so exactly-once semantics do not change.  Other batches, and those
of unsupported releases, come through the source as usual.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.common.lru_cache import LruCache
from trilake.delta.scan.read import locate
from trilake.delta.scan.scan import FileTask, ReadPlan
from trilake.delta.stream.offset import StreamOffset
from trilake.delta.stream.options import STREAM_READ_OPTIONS, StreamOptions
from trilake.errors import TrilakeError, WriteFailedError
from trilake.spark.delta.reading.native_files import task_files
from trilake.spark.delta.reading.read import files_obstacle
from trilake.spark.delta.stream import DeltaStreamReader
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.scan import native_scan
from trilake.spark.session.compat import arrow_frame, dataset_of, is_connect
from trilake.spark.session.internals import (
    MISSING_NAME,
    SPARK_ERRORS,
    items_of,
    java_session,
    jvm,
    query_execution,
    renumbered,
    running_query_id,
    sequence,
)
from trilake.spark.session.options import Options
from trilake.spark.session.schemas import to_spark
from trilake.storage.base import Store

R = TypeVar("R")
_log = logging.getLogger("trilake.spark")

#: The minimum bytes of a batch's files, since planning the scan takes a tenth of a second.
SMALL = 8 << 20
#: Limits on the files of a smaller batch that this process reads, and on the bytes of their rows.
MOST_FILES, MOST_BYTES = 16, 64 << 20
#: Types that Spark converts between Arrow and its rows.
_OWN_FORMS = ("variant", "void")
#: Operators that work row by row.  If there is a shuffle, Spark has already read the rows.
_STEPS = {"Project", "Filter", "SubqueryAlias", "Generate", "MapInArrow", "MapInPandas"}
_SOURCE = "StreamingDataSourceV2ScanRelation"
_PYTHON_TABLE = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable"
_NAMES = ("delta", "trilake-delta")
#: Threads that read footers.
_READERS = 16
#: The limit on streams whose position in the log is cached.
_MOST_STREAMS = 16

_streams = LruCache(_MOST_STREAMS, _MOST_STREAMS)


class _NotNativelyReadable(Exception):
    pass


@dataclass(frozen=True)
class BatchRows:
    """The rows of a batch; ``here`` has them as Arrow, if this process read them and the query has no steps."""

    make: Callable[[], DataFrame]
    here: pa.Table | None = None

    @cached_property
    def frame(self) -> DataFrame:
        return self.make()


@dataclass(frozen=True)
class _Source:
    """The leaf of a batch's plan: a Delta table between two offsets."""

    leaf: Any
    path: str
    options: Mapping[str, str] = field(repr=False)
    schema: T.StructType
    start: StreamOffset
    end: StreamOffset


def with_rows(df: DataFrame, work: Callable[[BatchRows], R], *, small: bool = False) -> R:
    """Call ``work`` with the rows of a batch, read in the fastest way, and return its result.  If a job over Spark's
    own scan fails, ``work`` runs again over the batch itself, since nothing has been committed.  ``small`` allows
    reading a small batch in this process."""
    native = _native_or_none(df, small)
    if native is not None:
        batch, rows, metric = native
        try:
            out = work(batch)
        except (WriteFailedError, *SPARK_ERRORS) as e:
            _log.warning("a batch failed in Spark's native scan, and is read again through its source: %s", e)
        else:
            metric.add(rows)
            return out
    return work(BatchRows(lambda: df))


def _native_or_none(df: DataFrame, small: bool) -> tuple[BatchRows, int, Any] | None:
    try:
        return _native(df, small)
    except _NotNativelyReadable as e:
        _log.info("a batch is read through its source: %s", e)
    except (TrilakeError, OSError, pa.ArrowException) as e:
        _log.info("a batch is read through its source, which raises the error: %s", e)
    except MISSING_NAME as e:
        _log.warning("a batch is read through its source: %s: %s", type(e).__name__, e)
    return None


def _native(df: DataFrame, small: bool) -> tuple[BatchRows, int, Any]:
    """The batch's rows, the number of rows of its source, and Spark's counter for these."""
    if is_connect(df.sparkSession):
        raise _NotNativelyReadable("Spark Connect does not give access to plans")
    execution = _execution(df)
    steps, source = _source(execution.logical())
    reader = _reader(df, source)
    store = reader.stream.log.store
    batch = reader.stream.batch(source.start, source.end)
    tasks = [t for t in batch.tasks if isinstance(t, FileTask)]
    if len(tasks) != len(batch.tasks) or any(t.selected is not None for t in tasks):
        raise _NotNativelyReadable("the stream reads a change feed")
    is_small = sum(t.size for t in tasks) < SMALL
    if tasks and small and is_small:
        table = _few_rows(reader, source.schema, tasks, batch.plan)
        if table is not None:
            return _local(df, steps, source, table), table.num_rows, _counter(execution, source.leaf)
    if not tasks or is_small:
        raise _NotNativelyReadable("the batch is small")
    metadata = reader.stream.reading.metadata
    vectors = any(t.vector is not None for t in tasks)
    obstacle = files_obstacle(metadata, store.uri, df.sparkSession, vectors=vectors)
    if obstacle is not None:
        raise _NotNativelyReadable(obstacle)
    counter, rows = _counter(execution, source.leaf), _count(store, tasks)
    try:
        files = task_files(store, metadata.schema, batch.plan, tasks)
        frame = native_scan(df.sparkSession, files).frame(df.sparkSession, files.output)
    except NativeScanError as e:
        raise _NotNativelyReadable(str(e)) from e
    replaced = _replaced(df, steps, source, frame)
    return BatchRows(lambda: replaced), rows, counter


def _few_rows(
    reader: DeltaStreamReader, schema: T.StructType, tasks: Sequence[FileTask], plan: ReadPlan
) -> pa.Table | None:
    """The rows of the files; ``None`` if there are too many, or Spark may convert them."""
    if len(tasks) > MOST_FILES or not _as_stored(reader, schema):
        return None
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in reader.rows_of(tasks, plan):
        batches.append(batch)
        size += batch.nbytes
        if size > MOST_BYTES:
            return None
    return pa.Table.from_batches(batches, reader.declared)


def _as_stored(reader: DeltaStreamReader, schema: T.StructType) -> bool:
    types = {f.name.lower(): f.dataType.simpleString() for f in to_spark(reader.stream.reading.metadata.schema)}
    kinds = [(types.get(f.name.lower()), f.dataType.simpleString()) for f in schema]
    return all(stored == declared and not any(n in declared for n in _OWN_FORMS) for stored, declared in kinds)


def _local(df: DataFrame, steps: list[Any], source: _Source, table: pa.Table) -> BatchRows:
    """A batch whose source was read in this process; Spark runs the steps."""
    if not steps:
        return BatchRows(lambda: arrow_frame(df.sparkSession, table, df.schema), table)
    frame = _replaced(df, steps, source, arrow_frame(df.sparkSession, table, source.schema))
    return BatchRows(lambda: frame)


def _execution(df: DataFrame) -> Any:
    """The batch's query execution.  Raises ``_NotNativelyReadable`` if ``df`` is not the batch itself."""
    session = df.sparkSession
    query_id = running_query_id(session)
    if query_id is None:
        raise _NotNativelyReadable("the session has no streaming query")
    queries = java_session(session).sharedState().activeStreamingQueries()
    query = queries.get(jvm(session).java.util.UUID.fromString(query_id))
    if query is None:
        raise _NotNativelyReadable("the query is not active")
    execution, plan = query.lastExecution(), query_execution(df).logical()
    # A frame derived from the batch has another plan, or at least other rows.
    if plan.nodeName() != "LogicalRDD" or plan.rdd().id() != execution.toRdd().id():
        raise _NotNativelyReadable("the DataFrame is not the batch itself")
    return execution


def _source(plan: Any) -> tuple[list[Any], _Source]:
    """The steps of a plan, the last one first, and its source."""
    steps: list[Any] = []
    if plan.nodeName().startswith("WriteTo"):
        plan = plan.children().head()
    while plan.nodeName() != _SOURCE:
        if plan.nodeName() not in _STEPS or plan.children().size() != 1:
            raise _NotNativelyReadable(f"the query has a step that does not work row by row: {plan.nodeName()}")
        steps.append(plan)
        plan = plan.children().head()
    relation = plan.relation()
    table = relation.table()
    if table.getClass().getName() != _PYTHON_TABLE or table.name() not in _NAMES:
        raise _NotNativelyReadable(f"the source is {table.name()}")
    options = _options(relation)
    path = options.get("path")
    if not path:
        raise _NotNativelyReadable("the source has no path")
    start, end = plan.startOffset(), plan.endOffset()
    if start.isEmpty() or end.isEmpty():
        raise _NotNativelyReadable("the batch has no offsets")
    offsets = [StreamOffset.from_json(json.loads(o.get().json())) for o in (start, end)]
    return steps, _Source(plan, path, options, T.StructType.fromJson(json.loads(plan.schema().json())), *offsets)


def _options(relation: Any) -> dict[str, str]:
    """The options of a source.  Keys come as an array, since iterating a map's keys takes 70 py4j calls at its end."""
    options = relation.options().asCaseSensitiveMap()
    return {str(key): str(options.get(key)) for key in options.keySet().toArray()}


def _counter(execution: Any, leaf: Any) -> Any:
    for scan in items_of(execution.executedPlan().collectLeaves()):
        if scan.nodeName() == "MicroBatchScan" and scan.stream().equals(leaf.stream()):
            metric = scan.metrics().get("numOutputRows")
            if metric.isDefined():
                return metric.get()
    raise _NotNativelyReadable("Spark does not count the rows of the source")


def _replaced(df: DataFrame, steps: list[Any], source: _Source, frame: DataFrame) -> DataFrame:
    if [(f.name, f.dataType) for f in frame.schema] != [(f.name, f.dataType) for f in source.schema]:
        raise _NotNativelyReadable("the stream's schema and the table have different types")
    spark, analyzed = df.sparkSession, query_execution(frame).analyzed()
    pairs = zip(items_of(analyzed.output()), items_of(source.leaf.output()), strict=True)
    plan = renumbered(spark, analyzed, pairs)
    for step in reversed(steps):
        plan = step.withNewChildren(sequence(spark, [plan]))
    return dataset_of(spark, plan)


def _reader(df: DataFrame, source: _Source) -> DeltaStreamReader:
    """The source in this process; cached per run, with its position in the log."""
    run = df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
    key = (run, source.path, tuple(sorted(source.options.items())), source.schema.json())
    reader: DeltaStreamReader | None = _streams.get(key)
    if reader is None:
        options = Options(source.options, STREAM_READ_OPTIONS, reading=True)
        stream_options = StreamOptions.parse(options.values)
        reader = DeltaStreamReader(source.path, options.store, source.schema, stream_options, None)
        _streams.put(key, reader, 1)
    return reader


def _count(store: Store, tasks: list[FileTask]) -> int:
    """The number of rows from the files' footers, since the log may lack statistics."""

    def rows(task: FileTask) -> int:
        place, key = locate(store, task.path)
        path = place.local_path(key)
        if path is None:
            raise _NotNativelyReadable("the files are not on a local disk")
        stored = int(pq.read_metadata(path).num_rows)
        if task.vector is None:
            return stored
        sound = 0 <= task.vector.cardinality <= stored
        return stored - (task.vector.cardinality if sound else len(task.vector.load(store, stored)))

    with ThreadPoolExecutor(_READERS) as pool:
        return sum(pool.map(rows, tasks))
