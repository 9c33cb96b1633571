"""Writes through Spark's Python data source: rows in tasks, one commit on the driver; batches and streams."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T

from trilake.delta.commands.write.request import ReplaceMatches, WriteRequest, files_of_job
from trilake.delta.commands.write.write import WritePlan, finish_write, plan_write, resume_write
from trilake.delta.files.file_plan import WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.property_values import parse_level
from trilake.delta.stream.sink import commit_batch
from trilake.errors import InvalidArgumentError, stating
from trilake.spark.session.compat import with_offsets
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import EXISTING, Options, checkpoint_of
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.sources import api
from trilake.storage import open_store
from trilake.table.streams import BatchId, query_id

_log = logging.getLogger("trilake.spark")


@stating({None: "DELTA_ILLEGAL_OPTION"})
def write_request(options: Options, schema: T.StructType, overwrite: bool, *, creates: bool = False) -> WriteRequest:
    """The request of a write with these options and columns.  Raises ``InvalidArgumentError``.

    Parameters
    ----------
    creates: whether the write only creates a table: ``replaceWhere`` has nothing to replace, and is ignored.
    """
    partition_by, mode = options.get("partitionBy"), (options.get("partitionOverwriteMode") or "static").lower()
    if mode not in ("static", "dynamic"):
        raise InvalidArgumentError(
            f"partitionOverwriteMode must be static or dynamic, got {mode!r}", condition="DELTA_ILLEGAL_OPTION"
        )
    if not (overwrite or creates) and options.get("replaceWhere") is not None:
        raise InvalidArgumentError(
            "replaceWhere needs mode overwrite, got append", help="use .mode('overwrite'), or leave replaceWhere out"
        )
    app_id, version, isolation = options.get("txnAppId"), options.integer("txnVersion"), options.get("isolationLevel")
    if (app_id is None) != (version is None):
        raise InvalidArgumentError(
            "txnAppId and txnVersion can only be used together",
            help="pass both or neither",
            condition="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )
    replaced = overwrite and options.flag("overwriteSchema")
    merged = options.flag("mergeSchema") and not replaced
    columns = tuple(c.strip() for c in partition_by.split(",")) if partition_by else None
    return WriteRequest(
        mode="overwrite" if overwrite else "append",
        schema=from_spark(schema, limits=True),
        # A new schema comes with its own partitioning, which may be none.
        partition_by=() if columns is None and replaced else columns,
        properties=options.properties or None,
        replace_where=options.get("replaceWhere") if overwrite else None,
        replace_matches=_replace_matches(options, overwrite),
        partition_overwrite="dynamic" if mode == "dynamic" and overwrite else "static",
        schema_mode="overwrite" if replaced else "merge" if merged else None,
        txn=None if app_id is None or version is None else (app_id, version),
        isolation=None if isolation is None else parse_level(isolation),
        user_metadata=options.get("userMetadata"),
        data_format=options.get("dataFormat"),
        optimize_write=None if options.get("optimizeWrite") is None else options.flag("optimizeWrite"),
        max_records_per_file=options.positive("maxRecordsPerFile", "rows"),
        compression=options.get("compression"),
        data_change=options.get("dataChange") is None or options.flag("dataChange"),
        must_exist=options.flag(EXISTING),
    )


def _replace_matches(options: Options, overwrite: bool) -> ReplaceMatches | None:
    """What ``replaceOn`` or ``replaceUsing`` replaces.  Raises ``InvalidArgumentError``."""
    chosen = [name for name in ("replaceOn", "replaceUsing") if options.get(name) is not None]
    if not chosen:
        if options.get("targetAlias") is not None:
            raise InvalidArgumentError(
                "targetAlias can only be used with replaceOn",
                help="leave targetAlias out",
                condition="DELTA_ILLEGAL_OPTION",
            )
        return None
    if not overwrite:
        raise InvalidArgumentError(
            f"{chosen[0]} needs mode overwrite, got append", help=f"use .mode('overwrite'), or leave {chosen[0]} out"
        )
    for other, excluded, condition in (
        (chosen[-1], len(chosen) > 1, "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS"),
        ("replaceWhere", options.get("replaceWhere"), "DELTA_OVERWRITE_BY_FILTER_INCOMPATIBLE_REPLACE_ON_OR_USING"),
        (
            "partitionOverwriteMode",
            options.get("partitionOverwriteMode"),
            "DELTA_DYNAMIC_PARTITION_OVERWRITE_INCOMPATIBLE_REPLACE_ON_OR_USING",
        ),
        ("overwriteSchema", options.flag("overwriteSchema"), "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS"),
        (
            "dataChange=false",
            options.get("dataChange") and not options.flag("dataChange"),
            "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS",
        ),
    ):
        if excluded:
            raise InvalidArgumentError(
                f"{chosen[0]} and {other} cannot be used together", help=f"leave {other} out", condition=condition
            )
    on, using = options.get("replaceOn"), options.get("replaceUsing")
    if using is None:
        return ReplaceMatches(condition=str(on), target_alias=options.get("targetAlias"))
    columns = tuple(dict.fromkeys(name.strip() for name in using.split(",")))
    if not all(columns):
        raise InvalidArgumentError(
            f"replaceUsing must name columns, separated by commas, got {using!r}", condition="DELTA_ILLEGAL_OPTION"
        )
    return ReplaceMatches(columns)


@dataclass
class AddedFiles(api.WriterCommitMessage):
    """The files of one task; the first task of a stream's batch also returns the plan."""

    written: WrittenFiles
    plan: WritePlan | None = None


class _FileWriter:
    """Writes the rows of a task."""

    def __init__(self, path: str, store: Mapping[str, str], request: WriteRequest) -> None:
        self.path, self.store = path, dict(store)
        self.plan = plan_write(self.log(), request).to_travel()

    def log(self) -> DeltaLog:
        return DeltaLog(open_store(self.path, self.store), spark_engine())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> AddedFiles:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        if self.plan.nothing:
            return AddedFiles(WrittenFiles(()))
        store = open_store(self.path, self.store)
        return AddedFiles(
            write_files(store, self.plan.files, map(with_offsets, iterator), task=task), None if task else self.plan
        )


class DeltaWriter(_FileWriter, api.DataSourceArrowWriter):
    """Writes rows in tasks and commits once on the driver."""

    def commit(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        log = self.log()
        finish_write(log, resume_write(log, self.plan), [m.written for m in messages if isinstance(m, AddedFiles)])

    def abort(self, messages: Sequence[api.WriterCommitMessage | None]) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted.  An error here would
        # hide the one that says why the job failed.
        job = self.plan.files.job_id
        leftover = files_of_job(self.log(), job)
        _log.warning("write job %s failed and left %d files: %s", job, len(leftover), leftover[:5])


class DeltaStreamWriter(_FileWriter, api.DataSourceStreamArrowWriter):
    """Writes the rows of a batch in tasks and commits them on the driver.

    Spark creates the writer again for each batch, and once more, in another process, for its commit.
    """

    def __init__(self, path: str, options: Options, request: WriteRequest) -> None:
        if request.txn is not None:
            raise InvalidArgumentError(
                "a streaming sink sets txnAppId and txnVersion itself", help="leave both options out"
            )
        if request.optimize_write:
            raise InvalidArgumentError(
                "a streaming sink does not support optimizeWrite",
                help="leave optimizeWrite out and use trilake.write_stream, or let the table compact itself"
                " (delta.autoOptimize.autoCompact)",
            )
        super().__init__(path, options.store, request)
        self.checkpoint = checkpoint_of(options)

    def commit(self, messages: Sequence[api.WriterCommitMessage | None], batchId: int) -> None:
        parts = [m for m in messages if isinstance(m, AddedFiles)]
        plan = next((m.plan for m in parts if m.plan is not None), self.plan)
        batch = BatchId(query_id(open_store(self.checkpoint, self.store)), batchId)
        commit_batch(self.log(), plan, batch, [m.written for m in parts])

    def abort(self, messages: Sequence[api.WriterCommitMessage | None], batchId: int) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted.
        files = [a["path"] for m in messages if isinstance(m, AddedFiles) for a in m.written.actions]
        if files:
            _log.warning("batch %d failed and left %d files: %s", batchId, len(files), files[:5])
