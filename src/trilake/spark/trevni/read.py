"""Trevni files as a DataFrame whose projection and filter are fixed when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.spark.session.schemas import parse_ddl
from trilake.spark.session.sources.pruned_source import filtered_frame, pruned_source_frame
from trilake.spark.session.sources.rows_source import rows_schema
from trilake.spark.trevni.source import TrilakeTrevniDataSource
from trilake.table.table import FilterLike
from trilake.trevni.tables.table import TrevniTable


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
    """The frame of ``spark.read.format("trevni").options(...).schema(...).load(path)``.

    ``schema`` has the columns to read, as a type or a DDL string.
    """
    table, _ = TrilakeTrevniDataSource({**options, "path": path}).opened()
    if schema is None:
        row_schema = rows_schema(table.schema, table.uri)
    else:
        row_schema = schema if isinstance(schema, T.StructType) else parse_ddl(spark, schema)
    return pruned_source_frame(spark, TrilakeTrevniDataSource, path, options, table.found_schema, row_schema)
