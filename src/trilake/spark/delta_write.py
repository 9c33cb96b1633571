"""Writing a DataFrame to a Delta table: the rows go from Spark to Parquet as Arrow, in Spark's own tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from trilake.delta.log import DeltaLog
from trilake.delta.write import WriteRequest, WriteResult, finish_write, job_failed, plan_write
from trilake.delta.write_files import FilePlan, write_files
from trilake.spark.providers import install_providers
from trilake.storage import open_store

install_providers()  # here, because Spark's tasks import this module and nothing to its right


def write_dataframe(df: DataFrame, uri: str, store: Mapping[str, str], request: WriteRequest) -> WriteResult:
    """Run the write as one Spark job and commit it.

    Raises as :func:`trilake.delta.write.plan_write` and :func:`trilake.delta.write.finish_write` do, and
    ``WriteFailedError`` where a task failed: then no version was committed, and the error says what was left behind.
    """
    log = DeltaLog(open_store(uri, dict(store)))
    plan = plan_write(log, request)
    if plan.nothing:
        return finish_write(log, plan, [])
    files, options = plan.files, dict(store)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _run_task(uri, options, files, batches)

    try:
        rows = df.mapInArrow(run, "adds binary").collect()
    except Exception as e:  # whatever Spark raises for a failed job: the table is unchanged, and that must be said
        raise job_failed(log, plan, e) from e
    adds = [a for row in rows for a in orjson.loads(bytes(row.adds))]
    return finish_write(log, plan, adds)


def _run_task(
    uri: str, options: Mapping[str, str], files: FilePlan, batches: Iterator[pa.RecordBatch]
) -> pa.RecordBatch:
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    adds: list[dict[str, Any]] = write_files(open_store(uri, dict(options)), files, batches, task=task)
    return pa.RecordBatch.from_arrays([pa.array([orjson.dumps(adds)], pa.binary())], ["adds"])
