"""``df.writeStream.format("delta")``: the Spark part of :mod:`trilake.delta.stream.sink`.

Spark creates the writer again for each batch, and once more, in another process, for its commit.  So the first task
returns the plan of the files with its result.  The modes ``append`` and ``complete`` are supported; Spark
itself rejects ``update``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark import TaskContext

from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import WritePlan, plan_write
from trilake.delta.files.file_plan import WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.stream.sink import BatchId, commit_batch, query_id
from trilake.errors import InvalidArgumentError
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import Options, checkpoint_of
from trilake.spark.session.sources.api import DataSourceStreamArrowWriter, WriterCommitMessage
from trilake.storage import open_store

_log = logging.getLogger("trilake.spark")


@dataclass
class BatchFiles(WriterCommitMessage):
    """The files of one task; the first task also returns the plan."""

    written: WrittenFiles
    plan: WritePlan | None


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a batch in tasks and commits them on the driver."""

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
        self.path, self.store, self.request = path, dict(options.store), request
        self.checkpoint = checkpoint_of(options)
        self.plan = plan_write(self._log(), request).to_travel()

    def _log(self) -> DeltaLog:
        return DeltaLog(open_store(self.path, self.store), spark_engine())

    @cached_property
    def query(self) -> str:
        """The query's id."""
        return query_id(open_store(self.checkpoint, self.store))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchFiles:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        store = open_store(self.path, self.store)
        return BatchFiles(write_files(store, self.plan.files, iterator, task=task), self.plan if task == 0 else None)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        parts = [m for m in messages if isinstance(m, BatchFiles)]
        plan = next((m.plan for m in parts if m.plan is not None), self.plan)
        commit_batch(self._log(), plan, BatchId(self.query, batchId), [m.written for m in parts])

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # Spark also calls this after a commit whose outcome is unknown, so nothing is deleted.
        files = [a["path"] for m in messages if isinstance(m, BatchFiles) for a in m.written.actions]
        if files:
            _log.warning("batch %d failed and left %d files: %s", batchId, len(files), files[:5])
