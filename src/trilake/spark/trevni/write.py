"""Writes of Trevni files that Spark does not support for Python data sources: all modes, partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import DataFrame

from trilake.errors import StorageError
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.row_jobs import row_outcomes
from trilake.spark.session.runner import with_a_column
from trilake.spark.session.schemas import new_columns
from trilake.spark.session.storage import check_shared, session_options
from trilake.spark.trevni.source import task_name
from trilake.storage import open_store
from trilake.trevni.tables.row_groups import StagedFile, TableWrite, WriteOptions
from trilake.trevni.tables.table_write import finish_table_write, give_up, plan_table_write, write_rows


def write_dataframe(
    df: DataFrame,
    uri: str,
    store: Mapping[str, str],
    *,
    mode: str,
    partition_by: Sequence[str] | None = None,
    options: WriteOptions | None = None,
) -> TableWrite:
    """Run the write as one Spark job and move its files into place.

    Raises ``WriteFailedError``, with nothing written, if a task failed.
    """
    check_shared(uri)
    store_options = session_options(df.sparkSession, uri, store)
    target = open_store(uri, store_options)
    schema = new_columns(df.schema)
    plan = plan_table_write(target, schema, mode=mode, partition_by=partition_by, options=options)
    if plan.nothing:
        return TableWrite()

    def work(batches: Iterator[pa.RecordBatch], _: int) -> list[StagedFile]:
        task, attempt = task_name()
        return write_rows(open_store(uri, store_options), plan, batches, task=task, attempt=attempt)

    def failed(cause: Exception) -> Exception:
        with suppress(StorageError, OSError):  # the job's own error is the one to show
            give_up(target, plan)
        return job_error_of(
            cause,
            "the write failed before any file was in its place; the folder is unchanged",
            again="repeat the write",
            file=target.uri,
        )

    staged: list[list[StagedFile]] = row_outcomes(with_a_column(df), work, failed)
    return finish_table_write(target, plan, [f for files in staged for f in files])
