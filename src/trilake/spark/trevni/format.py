"""The Spark part of Trevni's row in the registry of formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from trilake.errors import StorageError
from trilake.spark.session.format import SparkFormat
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import row_outcomes, with_a_column
from trilake.spark.session.schemas import new_columns, requested_schema
from trilake.spark.session.settings import session_options, shared_location
from trilake.spark.session.sources.api import DataSource
from trilake.spark.session.sources.pruned_source import filtered_frame, pruned_source_frame
from trilake.spark.session.sources.rows_source import rows_schema
from trilake.spark.trevni.source import WRITE_OPTIONS, TrevniDataSource, TrilakeTrevniDataSource, task_name
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table import format as table_format
from trilake.table.results import WriteResult
from trilake.table.table import FilterLike, Table
from trilake.trevni.format import TREVNI as LOCAL
from trilake.trevni.tables.row_groups import StagedFile, WriteOptions, write_result
from trilake.trevni.tables.table import TrevniTable
from trilake.trevni.tables.table_write import finish_table_write, give_up, plan_table_write, write_options, write_rows


class SparkTrevniFormat(SparkFormat):
    """Trevni files in Spark."""

    name = "trevni"

    def read(
        self,
        spark: SparkSession,
        table: Table,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        options: Mapping[str, str] | None = None,
        newest: bool = False,
    ) -> DataFrame:
        assert isinstance(table, TrevniTable)
        output = table.projected_schema(columns)
        row_schema = rows_schema(output, table.uri)
        return filtered_frame(spark, TrilakeTrevniDataSource, table, filter, options or {}, output, row_schema)

    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: table_format.TableWrite) -> WriteResult:
        LOCAL.reject_log_only(write)
        return write_dataframe(
            df, uri, options, mode=write.mode, partition_by=write.partition_by, options=write_options(write.properties)
        )

    def sources(self) -> tuple[type[DataSource], ...]:
        return TrevniDataSource, TrilakeTrevniDataSource

    def load(self, spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
        table, _ = TrilakeTrevniDataSource({**options, "path": path}).opened()
        row_schema = rows_schema(table.schema, table.uri) if schema is None else requested_schema(spark, schema)
        return pruned_source_frame(spark, TrilakeTrevniDataSource, path, options, table.found_schema, row_schema)

    def write_options(self) -> Sequence[str]:
        return WRITE_OPTIONS

    def is_whole(self, store: Store) -> bool:
        return any(next(files, None) is not None for files in (store.list(), store.unfinished()))


TREVNI = SparkTrevniFormat()


def write_dataframe(
    df: DataFrame,
    uri: str,
    store: Mapping[str, str],
    *,
    mode: str,
    partition_by: Sequence[str] | None = None,
    options: WriteOptions | None = None,
) -> WriteResult:
    """Run the write as one Spark job and move its files into place; nothing is written if a task fails."""
    uri = shared_location(uri)
    store_options = session_options(df.sparkSession, uri, store)
    target = open_store(uri, store_options)
    schema = new_columns(df.schema)
    plan = plan_table_write(target, schema, mode=mode, partition_by=partition_by, options=options)
    if plan.nothing:
        return write_result()

    def work(batches: Iterator[pa.RecordBatch], _: int) -> list[StagedFile]:
        task, attempt = task_name()
        return write_rows(open_store(uri, store_options), plan, batches, task=task, attempt=attempt)

    def failed(cause: Exception) -> Exception:
        with suppress(StorageError, OSError):  # the job's own error is the one to show
            give_up(target, plan)
        return job_error_of(
            cause,
            "the write failed before any file was published; the folder is unchanged",
            again="repeat the write",
            file=target.uri,
        )

    staged: list[list[StagedFile]] = row_outcomes(with_a_column(df), work, failed)
    return finish_table_write(target, plan, [f for files in staged for f in files])
