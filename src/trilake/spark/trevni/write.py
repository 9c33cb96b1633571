"""Writes of Trevni files that Spark does not support for Python data sources: all modes, partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from trilake.errors import StorageError
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import map_rows, with_a_column
from trilake.spark.session.schemas import new_columns
from trilake.spark.session.storage import check_shared, session_options
from trilake.spark.trevni.source import task_name
from trilake.storage import open_store
from trilake.trevni.tables.row_groups import StagedFile, TableWrite, WriteOptions
from trilake.trevni.tables.table_write import TableWritePlan, finish_table_write, give_up, plan_table_write, write_rows


def write_dataframe(
    df: DataFrame,
    uri: str,
    store: Mapping[str, str],
    *,
    mode: str,
    partition_by: Sequence[str] | None = None,
    options: WriteOptions | None = None,
) -> TableWrite:
    """Run the write as one Spark job and put its files in their places.

    Raises as :func:`trilake.trevni.tables.table_write.plan_table_write` does, and ``WriteFailedError`` where a task
    failed: then nothing was written.
    """
    check_shared(uri)
    store_options = session_options(df.sparkSession, uri, store)
    target = open_store(uri, store_options)
    schema = new_columns(df.schema)
    plan = plan_table_write(target, schema, mode=mode, partition_by=partition_by, options=options)
    if plan.nothing:
        return TableWrite()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _run_task(uri, store_options, plan, batches)

    try:
        rows = map_rows(with_a_column(df), run, "files binary").collect()
    except Exception as e:  # noqa: BLE001 - whatever Spark raises for a failed job: nothing was written, and that must be said
        with suppress(StorageError, OSError):  # why the job failed is the error to show
            give_up(target, plan)
        raise job_error_of(
            e,
            "the write failed before any file was in its place; the folder is unchanged",
            again="repeat the write",
            file=target.uri,
        ) from None
    files = [StagedFile(**f) for row in rows for f in orjson.loads(bytes(row.files))]
    return finish_table_write(target, plan, files)


def _run_task(
    uri: str, options: Mapping[str, str], plan: TableWritePlan, batches: Iterator[pa.RecordBatch]
) -> pa.RecordBatch:
    task, attempt = task_name()
    files = write_rows(open_store(uri, dict(options)), plan, batches, task=task, attempt=attempt)
    return pa.RecordBatch.from_arrays([pa.array([orjson.dumps([asdict(f) for f in files])], pa.binary())], ["files"])
