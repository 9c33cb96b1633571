"""Delta as a row of the registry of formats, for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from trilake.delta.commands.write.replaced import check_dynamic_alone
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.table import ArrowDeltaTable
from trilake.spark.delta.read import read_dataframe
from trilake.spark.delta.write import write_dataframe
from trilake.spark.session.format import SparkFormat
from trilake.spark.session.schemas import from_spark
from trilake.table.format import TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import FilterLike, Table


class SparkDeltaFormat(SparkFormat):
    """Delta tables in Spark."""

    name = "delta"

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
        assert isinstance(table, ArrowDeltaTable)
        return read_dataframe(spark, table, columns=columns, filter=filter, options=dict(options or {}), newest=newest)

    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> WriteResult:
        log_only = {k: v for k, v in write.log_only.items() if k != "round_times"}
        request = WriteRequest(
            mode=write.mode,
            schema=from_spark(df.schema, limits=True),
            partition_by=write.partition_by,
            properties=write.properties or None,
            **log_only,
        )
        check_dynamic_alone(request, uri)
        decided = ("partitionOverwriteMode",) if "partition_overwrite" in log_only else ()
        return write_dataframe(df, uri, options, request, decided=decided)


DELTA = SparkDeltaFormat()
