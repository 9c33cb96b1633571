"""``df.write`` for trilake's formats.

For Python data sources, Spark does not support ``partitionBy``, ``saveAsTable``, and the modes ``errorifexists`` (its
default) and ``ignore``; it also wraps errors in tracebacks of its worker processes.  After
:func:`patch_dataframe_writer`, all writes of trilake's formats go through :func:`trilake.write`; Spark writes other
formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.common.text import plural
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import StructType, from_arrow
from trilake.delta.protocol.type_widening import NO_WIDENING, AutomaticWidening
from trilake.delta.scan.scan import read_schema
from trilake.errors import IllegalArgumentError, InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.spark.delta.names.catalogue import NamedTable, find_table, new_name, refresh_entry, refresh_name, table_at
from trilake.spark.delta.names.entries import About
from trilake.spark.delta.settings import AUTO_MERGE, KEEP_NULL_STRUCTS, session_widening
from trilake.spark.delta.storing.store_assignment import as_they_are, overflows_named, stored_columns
from trilake.spark.patches.chains import (
    all_options,
    all_partitions,
    classes,
    default_source,
    frame_of,
    session_of,
    source_of,
    watch_chains,
)
from trilake.spark.patches.formats import FORMATS, registered
from trilake.spark.patches.recorder import Action, Record, patch, record_of
from trilake.spark.session.analysis_errors import as_spark_errors, job_error
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest, spark_format_named
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.settings import session_flag, session_store
from trilake.storage.base import Store
from trilake.storage.options import is_storage_option
from trilake.storage.uri import parse_location
from trilake.table.format import parse_mode
from trilake.table.registry import has_log, open_table

#: Decorates writes whose errors can be caught as Spark's.
with_spark_errors = as_spark_errors(job_error)


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
    place = path or record_option(request.options, "path")

    def act() -> None:
        check_one_place(place, request.options)
        if not isinstance(place, str | PathLike):
            raise IllegalArgumentError("a path is required", help='write .save("/path/to/table")')
        FORMATS[request.format].save(request, fspath(place))

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


def check_one_place(place: Any, options: Mapping[str, str]) -> None:
    """Raise ``InvalidArgumentError`` if the option ``path`` differs from the path of the call."""
    option = record_option(options, "path")
    if option is None or not isinstance(place, str | PathLike) or fspath(place) == option:
        return
    if parse_location(option).uri != parse_location(fspath(place)).uri:
        raise InvalidArgumentError(
            f"the option path is {option}, but the call names {fspath(place)}", help="leave one of them out"
        )


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


def record_option(options: Mapping[str, str], name: str) -> str | None:
    """The value of an option; names are case-insensitive."""
    return next((v for k, v in options.items() if k.lower() == name.lower()), None)


def trilake_table(spark: SparkSession, name: str) -> NamedTable | None:
    """The trilake table with a name in the catalog; ``None`` if there is none."""
    try:
        return find_table(spark, name)
    except InvalidArgumentError:
        return None


def find_existing(spark: SparkSession, name: str, options: Mapping[str, str]) -> NamedTable | None:
    """The trilake table with a name, or at a path; ``None`` if there is none."""
    table = find_table(spark, name)
    if table is None or table_at(name) is None:
        return table
    store = session_store(spark, table.location, store_options(options))
    return table if is_there(table.format, store) else None


def is_there(format: str, store: Store) -> bool:
    """Whether a table of this format exists."""
    if has_log(format):
        return DeltaLog(store, spark_engine()).exists()
    try:
        open_table(store, format)
    except TableNotFoundError:
        return False
    return True


def format_of_new(spark: SparkSession, name: str) -> str | None:
    """The registered name of the session's default format, for a new table; ``None`` if it is not trilake's, or the
    table exists."""
    default = default_source(spark)
    return default if default in FORMATS and not spark.catalog.tableExists(name) else None


@contextmanager
def new_place(request: SaveRequest, name: str, path: str | None) -> Iterator[str]:
    """The location of a table that the block creates: from :func:`new_name`, or the path that is its name.  Raises
    ``InvalidArgumentError`` if the name and ``path`` are two paths, or for another format."""
    path_table = table_at(name)
    if path_table is None:
        spark, format = request.df.sparkSession, FORMATS[request.format].name
        columns, options = table_columns(request.df.schema, format), store_options(request.options)
        replaces = request.mode == "overwrite"
        with new_name(spark, name, columns, path=path, format=format, options=options, replaces=replaces) as location:
            yield location
        return
    must_be_of(path_table, name, request.format)
    if path is not None:
        raise InvalidArgumentError(
            f"the option path is {path}, but the call names {name}", help="leave the option out", file=path
        )
    yield path_table.location


def table_columns(schema: T.StructType, format: str) -> StructType:
    """The columns of a catalog table for rows with this schema."""
    return from_spark(spark_format_named(format).table_columns(schema))


def save_as_table(request: SaveRequest, name: str) -> None:
    """Write to a table in the catalog, or at a path, in the request's mode."""
    existing = find_existing(request.df.sparkSession, name, request.options)
    path = record_option(request.options, "path")
    if existing is not None:
        if request.mode == "error":
            raise TableExistsError(
                f"table {name} already exists", file=existing.location, condition="TABLE_OR_VIEW_ALREADY_EXISTS"
            )
        if request.mode == "ignore":
            return
        must_be_of(existing, name, request.format)
        must_be_at(existing, name, path)
        save_named(_as_select(replace(request, managed=existing.managed), new=False), name, existing.location)
        return
    try:
        with new_place(request, name, path) as place:
            managed = path is None and table_at(name) is None
            save_named(_as_select(replace(request, managed=managed), new=True), name, place)
    except TableExistsError:
        if request.mode == "error" or find_existing(request.df.sparkSession, name, request.options) is None:
            raise
        save_as_table(request, name)  # another process has created the table


def _as_select(request: SaveRequest, *, new: bool) -> SaveRequest:
    """The request, with the operation CREATE or REPLACE TABLE AS SELECT for the history."""
    replaced = request.mode == "overwrite"
    some = any(record_option(request.options, o) is not None for o in ("replaceWhere", "replaceOn", "replaceUsing"))
    if (replaced and some) or not (replaced or new):
        return request
    verb = "CREATE OR REPLACE" if replaced else "CREATE"
    return replace(request, operation=request.operation or f"{verb} TABLE AS SELECT")


def must_be_of(table: NamedTable, name: str, format: str) -> None:
    """Raise ``InvalidArgumentError`` if the table has another format than the one registered as ``format``."""
    format = FORMATS[format].name
    if table.format != format:
        raise InvalidArgumentError(
            f"cannot write format {format} to {name}, which is a {table.format} table",
            help=f'use .format("{table.format}"), or drop the table first',
            file=table.location,
        )


def must_be_at(table: NamedTable, name: str, path: str | None) -> None:
    """Raise ``InvalidArgumentError`` if the location in a write (``path``) differs from the table's."""
    if path is not None and parse_location(path).uri != parse_location(table.location).uri:
        raise InvalidArgumentError(
            f"The location of the existing table {name} is `{table.location}`. It doesn't match the specified location"
            f" `{path}`",
            help="leave the path out, write to the path with save(), or choose another name",
            file=table.location,
            condition="DELTA_TABLE_LOCATION_MISMATCH",
        )


def save_named(request: SaveRequest, name: str, place: str) -> None:
    """Write to the table with a name, and update its entry in the catalog."""
    request = replace(request, options={k: v for k, v in request.options.items() if k.lower() != "path"})
    FORMATS[request.format].save(request, place)
    _refresh(request, name, place)


def _refresh(request: SaveRequest, name: str, place: str) -> None:
    """Update the entry of a table, if it has one, after a write."""
    if table_at(name) is not None:
        return
    spark, format = request.df.sparkSession, FORMATS[request.format].name
    store = session_store(spark, place, store_options(request.options))
    if has_log(format):
        refresh_name(spark, name, place, DeltaLog(store, spark_engine()), managed=request.managed)
        return
    about, replaced = (
        About(to_spark(read_schema(table_columns(request.df.schema, format)))),
        request.mode == "overwrite",
    )
    refresh_entry(spark, name, place, store, format, about, managed=request.managed, replaced=replaced)


def store_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """The options that configure the store."""
    return {k: v for k, v in (options or {}).items() if is_storage_option(k)}


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
        _refresh(save, name, table.location)
