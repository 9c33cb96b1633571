"""Trevni as a row of the registry of formats, for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from trilake.spark.session.format import SparkFormat
from trilake.spark.trevni.read import read_dataframe
from trilake.spark.trevni.write import write_dataframe
from trilake.table.format import TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import FilterLike, Table
from trilake.trevni.format import TREVNI as LOCAL
from trilake.trevni.tables.table import TrevniTable
from trilake.trevni.tables.table_write import write_options


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
        return read_dataframe(spark, table, columns=columns, filter=filter, options=options)

    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> WriteResult:
        LOCAL.refuse_log_only(write)
        done = write_dataframe(
            df,
            uri,
            options,
            mode=write.mode,
            partition_by=write.partition_by,
            options=write_options(write.properties),
        )
        return WriteResult(None, done.files_added, 0, done.rows_added, done.bytes_added)


TREVNI = SparkTrevniFormat()
