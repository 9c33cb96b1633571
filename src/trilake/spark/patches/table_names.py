"""The tables that calls on Spark's readers and writers name: in the catalog, or by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.spark.catalog.entries import EntryContents
from trilake.spark.catalog.named_tables import NamedTable, find_table, new_name, refresh_entry, refresh_name, table_at
from trilake.spark.patches.chains import default_source, record_option
from trilake.spark.patches.formats import FORMATS
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest, spark_format_named
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.settings import session_store
from trilake.storage.base import Store
from trilake.storage.options import is_storage_option
from trilake.storage.uri import parse_location
from trilake.table.registry import has_log, open_table


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
def created_location(request: SaveRequest, name: str, path: str | None) -> Iterator[str]:
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
        with created_location(request, name, path) as location:
            managed = path is None and table_at(name) is None
            save_named(_as_select(replace(request, managed=managed), new=True), name, location)
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


def save_named(request: SaveRequest, name: str, location: str) -> None:
    """Write to the table with a name, and update its entry in the catalog."""
    request = replace(request, options={k: v for k, v in request.options.items() if k.lower() != "path"})
    FORMATS[request.format].save(request, location)
    refresh(request, name, location)


def refresh(request: SaveRequest, name: str, location: str) -> None:
    """Update the entry of a table, if it has one, after a write."""
    if table_at(name) is not None:
        return
    spark, format = request.df.sparkSession, FORMATS[request.format].name
    store = session_store(spark, location, store_options(request.options))
    if has_log(format):
        refresh_name(spark, name, location, DeltaLog(store, spark_engine()), managed=request.managed)
        return
    contents = EntryContents(to_spark(read_schema(table_columns(request.df.schema, format))))
    managed, replaced = request.managed, request.mode == "overwrite"
    refresh_entry(spark, name, location, store, format, contents, managed=managed, replaced=replaced)


def store_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """The options that configure the store."""
    return {k: v for k, v in (options or {}).items() if is_storage_option(k)}
