"""Trevni files as a DataFrame whose projection and filter are known when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.expr import parse_filter
from trilake.spark.session.schemas import parse_ddl
from trilake.spark.session.sources.pruned_source import pruned_source_frame
from trilake.spark.session.sources.python_source import source_frame
from trilake.spark.session.sources.rows_source import FilterRows, rows_schema
from trilake.spark.trevni.source import TrilakeTrevniDataSource
from trilake.table import FilterLike
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

    Only the columns asked for and the filter's are read.  A filter that is SQL text also chooses partitions and blocks:
    all uses of the DataFrame want the same rows, so this is safe where pushed filters are not.

    Raises ``FilterError``, ``InvalidArgumentError`` for an unknown column, and ``SchemaMismatchError``.
    """
    output = table.schema if columns is None else table.projected_schema(columns)
    bound = parse_filter(filter, table.schema)  # a mistake shows here, and not in a task
    source_options = dict(options or {})
    if bound is None or isinstance(filter, str):
        if isinstance(filter, str):
            source_options["filter"] = filter
        wanted = rows_schema(output, table.uri)
        return pruned_source_frame(spark, TrilakeTrevniDataSource, table.uri, source_options, table.schema, wanted)
    extra = [table.schema.field(name) for name in sorted(set(bound.columns) - set(output.names))]
    wanted = rows_schema(pa.schema([*output, *extra]), table.uri)
    df = source_frame(spark, TrilakeTrevniDataSource, table.uri, source_options, wanted)
    return df.mapInArrow(FilterRows(bound), df.schema).select(*(f"`{n.replace('`', '``')}`" for n in output.names))


def load_trevni(spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
    """The frame of ``spark.read.format("trevni").options(...).schema(...).load(path)``.

    ``schema`` has the columns wanted, a type or a text of DDL.  Raises as
    :class:`~trilake.spark.trevni.source.TrevniDataSource` does.
    """
    table, _ = TrilakeTrevniDataSource({**options, "path": path}).opened()
    if schema is None:
        wanted = rows_schema(table.schema, table.uri)
    else:
        wanted = schema if isinstance(schema, T.StructType) else parse_ddl(spark, schema)
    return pruned_source_frame(spark, TrilakeTrevniDataSource, path, options, table.schema, wanted)
