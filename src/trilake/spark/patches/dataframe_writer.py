"""``df.write`` for trilake's formats.

For Python data sources, Spark does not support ``partitionBy``, ``saveAsTable``, and the modes ``errorifexists`` (its
default) and ``ignore``; it also wraps errors in tracebacks of its worker processes.  After
:func:`patch_dataframe_writer`, all writes of trilake's formats go through :func:`trilake.write`; Spark writes other
formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any

from trilake.common.text import plural
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.protocol.type_widening import NO_WIDENING, AutomaticWidening
from trilake.delta.scan.scan import read_schema
from trilake.errors import IllegalArgumentError, InvalidArgumentError, TableNotFoundError
from trilake.spark.catalog.named_tables import find_table, table_at
from trilake.spark.delta.settings import AUTO_MERGE, KEEP_NULL_STRUCTS, session_widening
from trilake.spark.delta.storing.store_assignment import as_they_are, overflows_named, stored_columns
from trilake.spark.patches.chains import (
    all_options,
    all_partitions,
    check_one_location,
    classes,
    frame_of,
    record_option,
    session_of,
    source_of,
    watch_chains,
    with_spark_errors,
)
from trilake.spark.patches.formats import FORMATS, registered
from trilake.spark.patches.recorder import Action, Record, patch, record_of
from trilake.spark.patches.table_names import (
    must_be_at,
    refresh,
    save_as_table,
    store_options,
    table_columns,
    trilake_table,
)
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest
from trilake.spark.session.settings import session_flag, session_store
from trilake.table.format import parse_mode
from trilake.table.registry import has_log, open_table


def patch_dataframe_writer() -> None:
    """Patch ``df.write``.  Idempotent."""
    watch_chains()
    for cls in classes("writer"):
        patch(cls, "save", _save)
        patch(cls, "saveAsTable", _save_as_table)
        patch(cls, "insertInto", _insert_into)


def _save(
    original: Any,
    writer: Any,
    path: Any = None,
    format: Any = None,
    mode: Any = None,
    partitionBy: Any = None,
    **options: Any,
) -> Action | None:
    record = record_of(writer)
    if record is None or source_of(record, format, session_of(record)) not in FORMATS:
        return None
    request = _request(record, format, mode, partitionBy, options)
    location = path or record_option(request.options, "path")

    def act() -> None:
        check_one_location(location, request.options)
        if not isinstance(location, str | PathLike):
            raise IllegalArgumentError("a path is required", help='write .save("/path/to/table")')
        FORMATS[request.format].save(request, fspath(location))

    return with_spark_errors(act)


def _save_as_table(
    original: Any, writer: Any, name: str, format: Any = None, mode: Any = None, partitionBy: Any = None, **options: Any
) -> Action | None:
    record = record_of(writer)
    if record is None or source_of(record, format, session_of(record)) not in FORMATS:
        return None
    request = _request(record, format, mode, partitionBy, options)
    return with_spark_errors(partial(save_as_table, request, name))


def _insert_into(original: Any, writer: Any, tableName: str, overwrite: bool | None = None) -> Action | None:
    record = record_of(writer)
    table = None if record is None else trilake_table(session_of(record), tableName)
    format = None if table is None else registered(table.format)
    if record is None or format is None:
        return None
    request = _request(record, format, None, None, {})
    replaces = request.mode == "overwrite" if overwrite is None else overwrite
    insert = replace(request, mode="overwrite" if replaces else "append")
    return with_spark_errors(partial(insert_into, insert, tableName))


def _request(record: Record, format: Any, mode: Any, partition_by: Any, options: Mapping[str, Any]) -> SaveRequest:
    df = frame_of(record)
    return SaveRequest(
        df,
        source_of(record, format, df.sparkSession),
        parse_mode(mode or record.mode or "error"),
        all_options(record, options),
        all_partitions(record, partition_by),
        cluster_by=record.cluster_by,
        buckets="bucketBy" if record.bucket_by else "sortBy" if record.sort_by else None,
    )


def insert_into(request: SaveRequest, name: str) -> None:
    """Insert by position, including nested fields, with the store assignment of SQL's INSERT INTO.  If the schema
    evolves, columns after those of the table are new."""
    if request.partition_by is not None:
        raise InvalidArgumentError(
            "insertInto() can't be used together with partitionBy()",
            help=f"leave partitionBy out: {name} already has its partition columns",
        )
    if unsupported := request.buckets or (request.cluster_by and "clusterBy"):
        raise InvalidArgumentError(
            f"insertInto() can't be used together with {unsupported}()",
            help=f"leave {unsupported} out: {name} already has its layout",
        )
    spark = request.df.sparkSession
    table = find_table(spark, name)
    if table is None:
        raise TableNotFoundError(
            f"table {name} cannot be found in the catalog",
            help="create it with saveAsTable",
            condition="TABLE_OR_VIEW_NOT_FOUND",
        )
    must_be_at(table, name, record_option(request.options, "path"))
    evolve, widening = False, NO_WIDENING
    store = session_store(spark, table.location, store_options(request.options))
    if has_log(table.format):
        head = DeltaLog(store, spark_engine()).head()
        schema, widening = read_schema(head.schema), AutomaticWidening.of(head.metadata, session_widening(spark))
        option = record_option(request.options, "mergeSchema")
        evolve = session_flag(spark, AUTO_MERGE, False) if option is None else option.lower() == "true"
    elif table_at(name) is None:
        schema = table_columns(spark.table(name).schema, table.format)
    else:
        schema = from_arrow(open_table(store, table.format).schema)
    names = schema.names
    by_name = as_they_are(request.df.schema, names, schema, evolve=evolve)
    if evolve:
        names += request.df.columns[len(names) :]  # new columns of the table
    if len(names) != len(request.df.columns):
        raise InvalidArgumentError(
            f"{name} has {plural(len(schema.names), 'column')}, but the data has {len(request.df.columns)}",
            help="insertInto matches columns by position: select the table's columns in its order",
            condition="DELTA_INSERT_COLUMN_ARITY_MISMATCH"
            if len(request.df.columns) < len(schema.names)
            else "DELTA_METADATA_MISMATCH",
        )
    renamed = request.df.toDF(*names)
    fill = not session_flag(spark, KEEP_NULL_STRUCTS, False)
    df = stored_columns(renamed, schema, by_name=by_name, evolve=evolve, widening=widening, fill_null_structs=fill)
    with overflows_named(narrowed=df is not renamed):
        save = replace(request, df=df, managed=table.managed, must_exist=True, source=request.df)
        FORMATS[request.format].save(save, table.location)
    if evolve:
        refresh(save, name, table.location)
