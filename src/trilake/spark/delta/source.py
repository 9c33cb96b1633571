"""``spark.read.format("delta")`` and ``df.write.format("delta")``: the Python data source.

Planning runs in a process without a SparkSession, reading and writing in Spark's tasks; both are the code that reads
and writes without Spark.  What Spark never lets through to a Python source (``partitionBy``, the modes
``errorifexists`` and ``ignore``) goes through :func:`trilake.write`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T

from trilake.delta.commands.write.write import WriteRequest, files_of_job, finish_write, plan_write, resume_write
from trilake.delta.files.file_plan import WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog, Head, Snapshot
from trilake.delta.protocol.isolation import parse_level
from trilake.delta.scan.changes import CHANGE_FIELDS, ChangeTask, plan_changes, read_change_task
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan, read_schema
from trilake.delta.stream.options import STREAM_READ_OPTIONS, StreamOptions
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.names.catalogue import location_in
from trilake.spark.delta.stream.sink import DeltaStreamWriter
from trilake.spark.delta.stream.source import STREAM_LIMITS, Analysed, DeltaStreamReader
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import Options, change_range, ending_version, open_log, table_path, wanted_version
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.sources.api import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
    stream_reader,
    stream_writer,
)
from trilake.spark.session.sources.packing import pack_files
from trilake.spark.session.sources.rows import as_declared
from trilake.spark.session.stream_options import STREAM_WRITE_OPTIONS
from trilake.storage import open_store

_log = logging.getLogger("trilake.spark")

READ_OPTIONS = (
    "versionAsOf",
    "timestampAsOf",
    "readChangeFeed",
    "readChangeData",
    "startingVersion",
    "startingTimestamp",
    "endingVersion",
    "endingTimestamp",
    "filter",
)
WRITE_OPTIONS = (
    "partitionBy",
    "replaceWhere",
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
)
_CHANGE_COLUMNS = T.StructType(
    [
        T.StructField("_change_type", T.StringType()),
        T.StructField("_commit_version", T.LongType()),
        T.StructField("_commit_timestamp", T.TimestampType()),
    ]
)


class DeltaDataSource(DataSource):
    """A Delta table as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        return "delta"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        #: What the columns of a stream were taken from; Spark takes this object along to where the stream runs.
        self.analysed: Analysed | None = None

    def schema(self) -> T.StructType:
        # Spark does not say whether the columns are wanted for a read or for a stream.
        log, options = self._open((*READ_OPTIONS, *STREAM_READ_OPTIONS))
        if _feed(options):
            head = log.head(ending_version(log, options))
        else:
            head = log.head(wanted_version(log, options))
        self.analysed = Analysed(head.metadata, head.version)
        return T.StructType(_rows_schema(head).fields + (_CHANGE_COLUMNS.fields if _feed(options) else []))

    def reader(self, schema: T.StructType) -> DataSourceReader:
        place = location_in(schema)
        if not self.options.get("path") and place is not None:  # a name of the catalogue: its columns say where
            self.options = {**self.options, "path": place}
        log, options = self._open(READ_OPTIONS)
        path, store = table_path(self.options), options.store
        if _feed(options):
            start, end = change_range(log, options)
            return ChangeReader(path, store, start, log.snapshot(end).version, schema)
        snapshot = log.snapshot(wanted_version(log, options))
        return DeltaReader(path, store, snapshot, schema, options.get("filter"))

    def writer(self, schema: T.StructType, overwrite: bool) -> DeltaWriter:
        options = Options(self.options, WRITE_OPTIONS, properties=True)
        return DeltaWriter(table_path(self.options), options.store, write_request(options, schema, overwrite))

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        options = Options(self.options, STREAM_READ_OPTIONS)
        wanted = StreamOptions.parse(options.values)
        path = self.options.get("path") or location_in(schema)
        reader = DeltaStreamReader(table_path({"path": path or ""}), options.store, schema, wanted, self.analysed)
        return stream_reader(reader, STREAM_LIMITS & options.values.keys())

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = Options(self.options, (*WRITE_OPTIONS, *STREAM_WRITE_OPTIONS), properties=True)
        request = write_request(options, schema, overwrite)
        return stream_writer(DeltaStreamWriter(table_path(self.options), options, request), schema)

    def _open(self, known: Iterable[str]) -> tuple[DeltaLog, Options]:
        options = Options(self.options, known)
        return open_log(self.options, options.store), options


class TrilakeDeltaDataSource(DeltaDataSource):
    """The same under a name that nobody else claims."""

    @classmethod
    def name(cls) -> str:
        return "trilake-delta"


def _rows_schema(head: Head) -> T.StructType:
    """The schema of the rows as Spark must declare them: nullable throughout, like what files can give."""
    return to_spark(read_schema(head.schema))


def write_request(options: Options, schema: T.StructType, overwrite: bool) -> WriteRequest:
    """What the options of a write of these columns ask for.  Raises ``InvalidArgumentError``."""
    partition_by, mode = options.get("partitionBy"), (options.get("partitionOverwriteMode") or "static").lower()
    if mode not in ("static", "dynamic"):
        raise InvalidArgumentError(f"partitionOverwriteMode is {mode!r}", help="it must be static or dynamic")
    app_id, version, isolation = options.get("txnAppId"), options.integer("txnVersion"), options.get("isolationLevel")
    if (app_id is None) != (version is None):
        raise InvalidArgumentError("txnAppId and txnVersion belong together", help="pass both or neither")
    replaced = overwrite and options.flag("overwriteSchema")
    merged = options.flag("mergeSchema") and not replaced
    return WriteRequest(
        mode="overwrite" if overwrite else "append",
        schema=from_spark(schema),
        partition_by=tuple(c.strip() for c in partition_by.split(",")) if partition_by else None,
        properties=options.properties or None,
        replace_where=options.get("replaceWhere") if overwrite else None,
        partition_overwrite="dynamic" if mode == "dynamic" and overwrite else "static",
        schema_mode="overwrite" if replaced else "merge" if merged else None,
        txn=None if app_id is None or version is None else (app_id, version),
        isolation=None if isolation is None else parse_level(isolation),
        user_metadata=options.get("userMetadata"),
        data_format=options.get("dataFormat"),
        optimize_write=None if options.get("optimizeWrite") is None else options.flag("optimizeWrite"),
        max_records_per_file=options.positive("maxRecordsPerFile", "rows"),
        compression=options.get("compression"),
    )


def _feed(options: Options) -> bool:
    return options.flag("readChangeFeed") or options.flag("readChangeData")


@dataclass
class FilePartition(InputPartition):
    """Files that one task reads."""

    tasks: Sequence[FileTask | ChangeTask]


def pack(tasks: Sequence[Any], size: Any, *, parallelism: int = 8) -> list[FilePartition]:
    """Files in partitions of about equal size."""
    return [FilePartition(p) for p in pack_files(tasks, size, parallelism=parallelism)]


class DeltaReader(DataSourceReader):
    """Reads the rows of one snapshot, those for which ``filter``, a SQL text, is true."""

    def __init__(
        self, path: str, store: Mapping[str, str], snapshot: Snapshot, schema: T.StructType, filter: str | None = None
    ) -> None:
        self.path, self.store, self.columns = path, store, schema.names
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
        self.snapshot: Snapshot | None = snapshot
        self.plan: ReadPlan = plan_scan(snapshot, self.columns).plan
        self.filter = filter

    def partitions(self) -> Sequence[InputPartition]:
        assert self.snapshot is not None
        scan = plan_scan(self.snapshot, self.columns, self.filter)
        self.plan = scan.plan
        self.snapshot = None  # tasks need the plan, not the log of a million files
        return pack(scan.tasks(), lambda t: t.size) or [FilePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store = open_store(self.path, dict(self.store))
        for task in cast(FilePartition, partition).tasks:
            for batch in read_task(store, cast(FileTask, task), self.plan):
                yield as_declared(batch, self.declared)


class ChangeReader(DataSourceReader):
    """Reads the change data feed of some versions."""

    def __init__(self, path: str, store: Mapping[str, str], start: int, end: int, schema: T.StructType) -> None:
        self.path, self.store, self.start, self.end, self.columns = path, store, start, end, schema.names
        self.declared = from_spark(schema, keep_nullability=True).to_arrow_schema()
        scan = self._scan()
        self.plan = scan.plan

    def _scan(self) -> Any:
        extra = {f.name for f in CHANGE_FIELDS}
        log = DeltaLog(open_store(self.path, dict(self.store)), spark_engine())
        return plan_changes(log, self.start, self.end, columns=[c for c in self.columns if c not in extra])

    def partitions(self) -> Sequence[InputPartition]:
        return pack(self._scan().tasks, lambda t: t.file.size) or [FilePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store = open_store(self.path, dict(self.store))
        for task in cast(FilePartition, partition).tasks:
            for batch in read_change_task(store, cast(ChangeTask, task), self.plan):
                yield as_declared(batch.select(self.columns), self.declared)


@dataclass
class AddedFiles(WriterCommitMessage):
    """What one task wrote."""

    written: WrittenFiles


class DeltaWriter(DataSourceArrowWriter):
    """Writes rows in tasks, commits once on the driver."""

    def __init__(self, path: str, store: Mapping[str, str], request: WriteRequest) -> None:
        self.path, self.store = path, store
        self.plan = plan_write(self._log(), request).to_travel()

    def _log(self) -> DeltaLog:
        return DeltaLog(open_store(self.path, dict(self.store)), spark_engine())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> AddedFiles:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        if self.plan.nothing:
            return AddedFiles(WrittenFiles(()))
        return AddedFiles(write_files(open_store(self.path, dict(self.store)), self.plan.files, iterator, task=task))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log = self._log()
        finish_write(log, resume_write(log, self.plan), [m.written for m in messages if isinstance(m, AddedFiles)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted; and its own error, which
        # says why the job failed, must not be hidden behind another one.
        job = self.plan.files.job_id
        left = files_of_job(self._log(), job)
        _log.warning("write job %s failed and leaves %d files behind: %s", job, len(left), left[:5])
