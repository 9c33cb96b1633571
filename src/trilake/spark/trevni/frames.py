"""Read Trevni files as a DataFrame with a fixed projection and filter, and write them in all modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.errors import StorageError
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import row_outcomes, with_a_column
from trilake.spark.session.schemas import new_columns, parse_ddl
from trilake.spark.session.sources.pruned_source import filtered_frame, pruned_source_frame
from trilake.spark.session.sources.rows_source import rows_schema
from trilake.spark.session.storage import check_shared, session_options
from trilake.spark.trevni.source import TrilakeTrevniDataSource, task_name
from trilake.storage import open_store
from trilake.table.table import FilterLike
from trilake.trevni.tables.row_groups import StagedFile, TableWrite, WriteOptions
from trilake.trevni.tables.table import TrevniTable
from trilake.trevni.tables.table_write import finish_table_write, give_up, plan_table_write, write_rows


def read_dataframe(
    spark: SparkSession,
    table: TrevniTable,
    *,
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows for which ``filter`` is true, projected to ``columns``.

    Reads only the requested columns and those of the filter.  A SQL filter also selects partitions and blocks, which is
    safe because all uses of the DataFrame read the same rows.

    Raises ``FilterError``, ``InvalidArgumentError`` for an unknown column, and ``SchemaMismatchError``.
    """
    output = table.schema if columns is None else table.projected_schema(columns)
    row_schema = rows_schema(output, table.uri)
    return filtered_frame(spark, TrilakeTrevniDataSource, table, filter, options or {}, output, row_schema)


def load_trevni(spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
    """The DataFrame of ``spark.read.format("trevni").options(...).schema(...).load(path)``.

    ``schema`` has the columns to read, as a type or a DDL string.
    """
    table, _ = TrilakeTrevniDataSource({**options, "path": path}).opened()
    if schema is None:
        row_schema = rows_schema(table.schema, table.uri)
    else:
        row_schema = schema if isinstance(schema, T.StructType) else parse_ddl(spark, schema)
    return pruned_source_frame(spark, TrilakeTrevniDataSource, path, options, table.found_schema, row_schema)


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
