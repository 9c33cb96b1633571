"""The Spark part of Delta's row in the registry of formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trilake.delta.commands.write.create import TableDescription
from trilake.delta.commands.write.overwrite import check_dynamic_alone
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.reading.load import load_delta
from trilake.spark.delta.reading.read import read_dataframe
from trilake.spark.delta.settings import default_properties
from trilake.spark.delta.source import WRITE_OPTIONS, DeltaDataSource, TrilakeDeltaDataSource
from trilake.spark.delta.source_writer import write_request
from trilake.spark.delta.write import write_dataframe
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest, SparkFormat, check_one_partitioning
from trilake.spark.session.options import Options
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.sources.api import DataSource
from trilake.storage.base import Store
from trilake.table.format import TableWrite, parse_mode
from trilake.table.results import WriteResult
from trilake.table.table import Table

#: ``tableProperty("comment", ...)`` sets the table's comment and is not stored as a property.
_COMMENT = "comment"


class SparkDeltaFormat(SparkFormat):
    """Delta tables in Spark."""

    name = "delta"

    def read(self, spark: SparkSession, table: Table, **how: Any) -> DataFrame:
        assert isinstance(table, ArrowDeltaTable)
        return read_dataframe(spark, table, **how)

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

    def sources(self) -> tuple[type[DataSource], ...]:
        return DeltaDataSource, TrilakeDeltaDataSource

    def load(self, spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
        return load_delta(spark, path, options, schema)

    def save(self, request: SaveRequest, path: str) -> None:
        """Write a Delta table.  Raises ``InvalidArgumentError`` for ``bucketBy``."""
        self.check_save(request, path)
        options = Options(request.options, WRITE_OPTIONS, properties=True)
        check_one_partitioning(request, options, path)
        mode = parse_mode(request.mode)
        write = write_request(options, request.df.schema, mode == "overwrite", creates=mode in ("error", "ignore"))
        properties = dict(request.properties)
        comment = properties.pop(_COMMENT, None)
        write = replace(
            write,
            mode=mode,
            partition_by=request.partition_by or write.partition_by,
            properties={**(write.properties or {}), **properties} or None,
            cluster_by=request.cluster_by,
            operation=request.operation or write.operation,
            managed=None if request.operation is None else request.managed,
            save_as_table=request.operation == "CREATE OR REPLACE TABLE AS SELECT" and not request.replaces,
            must_exist=request.must_exist,
        )
        if request.replaces or comment is not None:
            if request.operation is None:
                raise InvalidArgumentError(
                    "a comment can only be set when a table is created or replaced",
                    help="write COMMENT ON TABLE t IS '...' for an existing table",
                    file=path,
                )
            write = _with_description(request, write, comment)
        write_dataframe(request.df, path, options.store, write, decided=options.values, source=request.source)

    def is_whole(self, store: Store) -> bool:
        return DeltaLog(store, spark_engine()).exists()


def _with_description(request: SaveRequest, write: WriteRequest, comment: str | None) -> WriteRequest:
    table = TableDescription(
        write.schema,
        write.partition_by or (),
        {**default_properties(request.df.sparkSession), **(write.properties or {})},
        comment,
        cluster_by=write.cluster_by or (),
        data_format=write.data_format,
    )
    return replace(
        write,
        schema_mode="overwrite" if request.replaces else write.schema_mode,
        properties=None,
        data_format=None,
        description=table,
    )


DELTA = SparkDeltaFormat()
