"""``spark.read.format("delta")`` and ``df.write.format("delta")``: the Python data source.

Planning runs in a process without a SparkSession, reading and writing in Spark's tasks; both use the same code as
without Spark.  What Spark does not pass to a Python source (``partitionBy``, the modes ``errorifexists`` and
``ignore``) goes through :func:`trilake.write`.

Spark imports this module in a new process for each step of each read and write, so modules that only writes need are
imported late (tests/house/test_laziness.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import cast

import pyarrow as pa
from pyspark.sql import types as T

from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.scan.changes import CHANGE_FIELDS, ChangeFeedScan, ChangeFeedTask, plan_changes
from trilake.delta.scan.large_tables import snapshot_for
from trilake.delta.scan.scan import FileTask, ReadPlan, parse_table_filter, plan_scan, read_plan, read_schema
from trilake.delta.stream.options import STREAM_READ_OPTIONS, StreamOptions
from trilake.errors import InvalidArgumentError, stating
from trilake.spark.delta.stream import STREAM_LIMITS, Analysed, DeltaStreamReader, read_of, task_size
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import (
    STREAM_WRITE_OPTIONS,
    Options,
    change_range,
    requested_version,
    table_path,
)
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.sources import api
from trilake.spark.session.sources.api import stream_reader, stream_writer
from trilake.spark.session.sources.rows_source import Piece, as_declared, pack_files
from trilake.storage import open_store

#: The range of a change data feed.
FEED_RANGE = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
READ_OPTIONS = ("versionAsOf", "timestampAsOf", "readChangeFeed", "readChangeData", *FEED_RANGE, "filter")
WRITE_OPTIONS = (
    "partitionBy",
    "replaceWhere",
    "replaceOn",
    "replaceUsing",
    "targetAlias",
    "partitionOverwriteMode",
    "mergeSchema",
    "overwriteSchema",
    "txnAppId",
    "txnVersion",
    "isolationLevel",
    "userMetadata",
    "dataFormat",
    "optimizeWrite",
    "maxRecordsPerFile",
    "compression",
    "dataChange",
)
_ENDINGS = {"endingVersion", "endingTimestamp"}
#: The columns of a change data feed that follow the table's.
CHANGE_COLUMNS = to_spark(from_arrow(pa.schema(CHANGE_FIELDS))).fields


class DeltaDataSource(api.DataSource):
    """A Delta table as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        return "delta"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        #: The table at the time when Spark read a stream's columns; Spark pickles this object for the stream.
        self.analysed: Analysed | None = None

    @stating({"DELTA_PATH_DOES_NOT_EXIST": "DELTA_SCHEMA_NOT_SET"})  # for a stream; a read checks for the table first
    def schema(self) -> T.StructType:
        # Spark does not say whether it needs the columns for a read or for a stream.
        log, options = self._open((*READ_OPTIONS, *STREAM_READ_OPTIONS))
        head = log.head(None if reads_feed(options) else requested_version(log, options))
        self.analysed = Analysed(head.metadata, head.version)
        metadata = head.metadata
        if reads_feed(options) and _ENDINGS & options.values.keys():  # streams do not have these options
            feed_range = change_range(log, options)
            metadata = plan_changes(log, feed_range.start, feed_range.end).metadata
        rows = to_spark(read_schema(metadata.schema))  # all nullable, since files may lack columns
        return T.StructType(rows.fields + (CHANGE_COLUMNS if reads_feed(options) else []))

    def reader(self, schema: T.StructType) -> api.DataSourceReader:
        _check_has_path(self.options)
        log, options = self._open(READ_OPTIONS)
        path, store = table_path(self.options), options.store
        if reads_feed(options):
            feed_range = change_range(log, options)
            end = log.head().version if feed_range.end is None else feed_range.end
            return ChangeFeedReader(path, store, feed_range.start, end, schema)
        opened = log.opened(requested_version(log, options))
        return DeltaReader(path, store, opened, schema, options.get("filter"))

    def writer(self, schema: T.StructType, overwrite: bool) -> api.DataSourceArrowWriter:
        from trilake.spark.delta.source_writer import DeltaWriter, write_request

        _check_has_path(self.options)
        options = Options(self.options, WRITE_OPTIONS, properties=True)
        request = write_request(options, schema, overwrite)
        if request.replace_matches is not None:
            raise InvalidArgumentError(
                "replaceOn and replaceUsing need a session that trilake has prepared",
                help="start the session with trilake.session(), or call trilake.install(spark)",
            )
        return DeltaWriter(table_path(self.options), options.store, request)

    def streamReader(self, schema: T.StructType) -> api.DataSourceStreamReader:
        options = Options(self.options, STREAM_READ_OPTIONS, reading=True)
        stream_options = StreamOptions.parse(options.values)
        _check_has_path(self.options)
        reader = DeltaStreamReader(table_path(self.options), options.store, schema, stream_options, self.analysed)
        return stream_reader(reader, STREAM_LIMITS & options.values.keys())

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> api.DataSourceStreamWriter:
        from trilake.spark.delta.source_writer import DeltaStreamWriter, write_request

        options = Options(self.options, (*WRITE_OPTIONS, *STREAM_WRITE_OPTIONS), properties=True)
        request = write_request(options, schema, overwrite)
        return stream_writer(DeltaStreamWriter(table_path(self.options), options, request), schema)

    def _open(self, valid: Iterable[str]) -> tuple[DeltaLog, Options]:
        options = Options(self.options, valid, reading=True)
        return DeltaLog(open_store(table_path(self.options), options.store), spark_engine()), options


def _check_has_path(options: Mapping[str, str]) -> None:
    """Raise ``InvalidArgumentError`` for a table in the catalog, whose path Spark does not pass."""
    if not options.get("path"):
        raise InvalidArgumentError(
            "Spark does not pass the location of a catalog table to a Python data source",
            help="call trilake.install(spark) to use names in SQL, except in bodies of SQL functions; or use"
            " spark.table(name) and df.write.insertInto",
        )


class TrilakeDeltaDataSource(DeltaDataSource):
    """The same data source with a name that delta-spark does not use."""

    @classmethod
    def name(cls) -> str:
        return "trilake-delta"


def reads_feed(options: Options) -> bool:
    """Whether the options of a read request the change data feed."""
    return options.flag("readChangeFeed") or options.flag("readChangeData")


def pack(tasks: Sequence[FileTask | ChangeFeedTask]) -> list[Piece]:
    """Files in partitions of about equal size."""
    return [Piece(p) for p in pack_files(tasks, task_size)] or [Piece([])]


class _FileReader(api.DataSourceReader):
    """Reads the files of its partitions by :attr:`plan`."""

    plan: ReadPlan

    def __init__(self, path: str, store: Mapping[str, str], schema: T.StructType) -> None:
        self.path, self.store, self.columns = path, dict(store), schema.names
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()

    def log(self) -> DeltaLog:
        return DeltaLog(open_store(self.path, self.store), spark_engine())

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        store = open_store(self.path, self.store)
        for task in cast(Piece, partition).part:
            for batch in read_of(task)(store, task, self.plan):
                known = set(self.columns) <= set(batch.schema.names)
                yield as_declared(batch.select(self.columns) if known else batch, self.declared)


class DeltaReader(_FileReader):
    """Reads the rows of one snapshot for which ``filter``, a SQL condition, is true."""

    def __init__(
        self,
        path: str,
        store: Mapping[str, str],
        opened: Snapshot | PendingSnapshot,
        schema: T.StructType,
        filter: str | None = None,
    ) -> None:
        super().__init__(path, store, schema)
        self.opened: Snapshot | PendingSnapshot | None = opened
        self.plan = read_plan(opened, self.columns, None)
        self.filter = filter

    def partitions(self) -> Sequence[api.InputPartition]:
        assert self.opened is not None
        log, filter = self.log(), parse_table_filter(self.filter, self.opened)
        scan = plan_scan(snapshot_for(log, self.opened, filter, log.load), self.columns, filter)
        self.plan = scan.plan
        self.opened = None  # tasks need the plan, but not the log with its million files
        return pack(scan.tasks())


class ChangeFeedReader(_FileReader):
    """Reads the change data feed of some versions."""

    def __init__(self, path: str, store: Mapping[str, str], start: int, end: int, schema: T.StructType) -> None:
        super().__init__(path, store, schema)
        self.start, self.end = start, end
        self.plan = self._scan().plan

    def _scan(self) -> ChangeFeedScan:
        extra = {f.name for f in CHANGE_FIELDS}
        return plan_changes(self.log(), self.start, self.end, columns=[c for c in self.columns if c not in extra])

    def partitions(self) -> Sequence[api.InputPartition]:
        return pack(self._scan().tasks)
