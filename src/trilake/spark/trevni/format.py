"""The Spark part of Trevni's row in the registry of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trilake.spark.session.format import SaveRequest, SparkFormat, check_one_partitioning
from trilake.spark.session.options import Options
from trilake.spark.session.sources.api import DataSource
from trilake.spark.trevni.frames import load_trevni, read_dataframe, write_dataframe
from trilake.spark.trevni.source import WRITE_OPTIONS, TrevniDataSource, TrilakeTrevniDataSource
from trilake.storage.base import Store
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
        result = write_dataframe(
            df,
            uri,
            options,
            mode=write.mode,
            partition_by=write.partition_by,
            options=write_options(write.properties),
        )
        return WriteResult(None, result.files_added, 0, result.rows_added, result.bytes_added)

    def sources(self) -> tuple[type[DataSource], ...]:
        return TrevniDataSource, TrilakeTrevniDataSource

    def load(self, spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
        return load_trevni(spark, path, options, schema)

    def save(self, request: SaveRequest, path: str) -> None:
        """Write a folder of Trevni files in any mode, partitioned or not."""
        self.check_save(request, path)
        options = Options(request.options, WRITE_OPTIONS)
        check_one_partitioning(request, options, path)
        values = dict(options.values)
        named = values.pop("partitionBy", None)
        columns = request.partition_by or (
            None if named is None else tuple(c.strip() for c in named.split(",") if c.strip())
        )
        write_dataframe(
            request.df, path, options.store, mode=request.mode, partition_by=columns, options=write_options(values)
        )

    def is_whole(self, store: Store) -> bool:
        return any(next(files, None) is not None for files in (store.list(), store.unfinished()))


TREVNI = SparkTrevniFormat()
