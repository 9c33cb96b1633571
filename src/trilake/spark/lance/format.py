"""Lance as a row of the registry of formats, for Spark.  Its libraries are an extra, and loaded by the first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from trilake.lance.format import LANCE as LOCAL
from trilake.lance.format import written
from trilake.spark.lance.vectors import Vectors
from trilake.spark.session.format import SparkFormat
from trilake.table.format import TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import FilterLike, Table


class SparkLanceFormat(SparkFormat):
    """Lance datasets in Spark."""

    name = "lance"

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
        from trilake.lance.table import LanceTable
        from trilake.spark.lance.frames import read_dataframe

        assert isinstance(table, LanceTable)
        return read_dataframe(spark, table, columns=columns, filter=filter, options=options)

    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> WriteResult:
        from trilake.lance.table import write_options
        from trilake.spark.lance.frames import write_dataframe

        LOCAL.refuse_log_only(write)
        LOCAL.refuse_partitions(write)
        properties = dict(write.properties)
        vectors = Vectors.of(properties.pop("vectors", None), properties.pop("vectorType", None))
        snapshot, fragments = write_dataframe(
            df, uri, options, mode=write.mode, options=write_options(properties), vectors=vectors
        )
        return written(snapshot, len(fragments), sum(f.physical_rows for f in fragments))


LANCE = SparkLanceFormat()
