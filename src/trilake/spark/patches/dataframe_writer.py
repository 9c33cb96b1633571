"""``df.write`` for our formats, which Spark passes on to a Python data source in part, and without its errors.

Spark refuses the modes ``errorifexists`` (its default) and ``ignore``, ``partitionBy`` and ``saveAsTable`` for Python
sources before any code of theirs is asked, and wraps what they raise into tracebacks of its processes.  After
:func:`take_over` all writes of our formats go the way of :func:`trilake.write`; other formats stay with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol import type_widening
from trilake.delta.protocol.schema import StructType, from_arrow
from trilake.delta.scan.scan import read_schema
from trilake.errors import (
    IllegalArgumentError,
    InvalidArgumentError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
)
from trilake.spark.delta.names.catalogue import (
    NamedTable,
    find_table,
    new_name,
    refresh_name,
    table_at,
)
from trilake.spark.delta.names.entries import About
from trilake.spark.delta.settings import AUTO_MERGE, session_flag
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
from trilake.spark.patches.other_tables import refresh_entry
from trilake.spark.patches.recorder import Action, Record, patch, record_of
from trilake.spark.session.analysis_errors import job_error
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest, spark_format_named
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.storage import session_store
from trilake.storage.base import Store
from trilake.storage.options import is_storage_option
from trilake.storage.uri import parse_location
from trilake.table.format import parse_mode
from trilake.table.registry import open_table

R = TypeVar("R")


class Saver(Protocol):
    """How a format writes a DataFrame to a place."""

    def __call__(self, request: SaveRequest, path: str) -> None:
        """Write it, in the request's mode."""


#: Formats whose writes are taken over, by the names that they are registered under.
SAVERS: dict[str, Saver] = {}
#: Of those, the names of Delta tables.
NAMED: set[str] = set()


def take_over() -> None:
    """Teach ``df.write`` of this process our formats; doing it again changes nothing."""
    watch_chains()
    for cls in classes("writer"):
        patch(cls, "save", _save)
        patch(cls, "saveAsTable", _save_as_table)
        patch(cls, "insertInto", _insert_into)


def _save(
    own: Any,
    writer: Any,
    path: Any = None,
    format: Any = None,
    mode: Any = None,
    partitionBy: Any = None,
    **options: Any,
) -> Action | None:
    record = record_of(writer)
    if record is None or source_of(record, format, session_of(record)) not in SAVERS:
        return None
    request = _request(record, format, mode, partitionBy, options)
    place = path or record_option(request.options, "path")

    def act() -> None:
        check_one_place(place, request.options)
        if not isinstance(place, str | PathLike):
            raise IllegalArgumentError("no path was given", help='write .save("/path/to/table")')
        SAVERS[request.format](request, fspath(place))

    return lambda: translated(act)


def _save_as_table(
    own: Any, writer: Any, name: str, format: Any = None, mode: Any = None, partitionBy: Any = None, **options: Any
) -> Action | None:
    record = record_of(writer)
    if record is None or source_of(record, format, session_of(record)) not in SAVERS:
        return None
    request = _request(record, format, mode, partitionBy, options)
    return lambda: translated(lambda: save_as_table(request, name))


def _insert_into(own: Any, writer: Any, tableName: str, overwrite: bool | None = None) -> Action | None:
    record = record_of(writer)
    table = None if record is None else our_table(session_of(record), tableName)
    format = None if table is None else registered(table.format)
    if record is None or format is None:
        return None
    request = _request(record, format, None, None, {})
    if request.partition_by is not None:
        return lambda: translated(partial(_refuse_partitions, tableName))
    if unheard := request.buckets or (request.cluster_by and "clusterBy"):
        return lambda: translated(partial(_refuse_layout, tableName, unheard))
    replaces = request.mode == "overwrite" if overwrite is None else overwrite
    mode = "overwrite" if replaces else "append"
    return lambda: translated(lambda: insert_into(request, session_of(record), tableName, mode))


def _refuse_partitions(name: str) -> None:
    """Raises ``InvalidArgumentError``, as Spark does for every table."""
    raise InvalidArgumentError(
        "insertInto() can't be used together with partitionBy()",
        help=f"leave partitionBy out: {name} has its partition columns already",
    )


def _refuse_layout(name: str, call: str) -> None:
    """Raises ``InvalidArgumentError``, as Spark does for every table."""
    raise InvalidArgumentError(
        f"insertInto() can't be used together with {call}()", help=f"leave {call} out: {name} is laid out already"
    )


def check_one_place(place: Any, options: Mapping[str, str]) -> None:
    """Raises ``InvalidArgumentError`` where the option ``path`` says another place than the call it belongs to."""
    said = record_option(options, "path")
    if said is None or not isinstance(place, str | PathLike) or fspath(place) == said:
        return
    if parse_location(said).uri != parse_location(fspath(place)).uri:
        raise InvalidArgumentError(
            f"the option path says {said}, and the call says {fspath(place)}", help="leave one of them out"
        )


def _request(record: Record, format: Any, mode: Any, partition_by: Any, options: Mapping[str, Any]) -> SaveRequest:
    """What a chain and its last call ask for together."""
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
    """The value of an option, whatever the case of its name."""
    return next((v for k, v in options.items() if k.lower() == name.lower()), None)


def translated(write: Callable[[], R]) -> R:
    """Run a write whose errors Spark's callers can catch."""
    try:
        return write()
    except TrilakeError as e:
        raise job_error(e) from e.__cause__


def our_table(spark: SparkSession, name: str) -> NamedTable | None:
    """The table of trilake that a name of the catalogue stands for, ``None`` for any other name."""
    try:
        return find_table(spark, name)
    except InvalidArgumentError:
        return None


def table_there(spark: SparkSession, name: str, options: Mapping[str, str]) -> NamedTable | None:
    """The table of trilake that a name stands for, ``None`` where there is none: of a path, where no table is there.

    ``options`` are those of the write.  Raises as :func:`find_table` does.
    """
    table = find_table(spark, name)
    if table is None or table_at(name) is None:
        return table
    store = session_store(spark, table.location, store_options(options))
    return table if is_there(table.format, store) else None


def is_there(format: str, store: Store) -> bool:
    """Whether a table of a format is at a place."""
    if format == "delta":
        return DeltaLog(store, spark_engine()).exists()
    try:
        open_table(store, format)
    except TableNotFoundError:
        return False
    return True


def our_location(spark: SparkSession, name: str) -> str | None:
    """The place of a Delta table of the catalogue, ``None`` for any other name."""
    table = our_table(spark, name)
    return None if table is None or table.format != "delta" else table.location


def registered(format: str) -> str | None:
    """The name that a format is registered under, ``None`` where this session leaves it to others."""
    return next((name for name in (format, f"trilake-{format}") if name in SAVERS), None)


def format_of_new(spark: SparkSession, name: str) -> str | None:
    """The name under which the format is registered that a table is made in where nothing says one.

    ``None`` where the session's default format is none of trilake, or the name stands for a table already.
    """
    default = default_source(spark)
    return default if default in SAVERS and not spark.catalog.tableExists(name) else None


@contextmanager
def new_place(request: SaveRequest, name: str, path: str | None) -> Iterator[str]:
    """The place of a table that is to be made in the block, as :func:`new_name` gives it; or the path that is its name.

    ``path`` is the place of its own that the table is to have, if any.  Raises ``InvalidArgumentError`` for that beside
    a path as its name, and for another format than that says.
    """
    spark, format = request.df.sparkSession, request.format.removeprefix("trilake-")
    named = table_at(name)
    if named is None:
        columns, options = table_columns(request.df.schema, format), store_options(request.options)
        replaces = request.mode == "overwrite"
        with new_name(spark, name, columns, path=path, format=format, options=options, replaces=replaces) as made:
            yield made
        return
    must_be_of(named, name, format)
    if path is not None:
        raise InvalidArgumentError(
            f"{name} is a path, and cannot be given a place of its own", help="leave the other path out", file=path
        )
    yield named.location


def table_columns(schema: T.StructType, format: str) -> StructType:
    """The columns that a table of the catalogue has for rows of a schema."""
    return from_spark(spark_format_named(format.removeprefix("trilake-")).table_columns(schema))


def save_as_table(request: SaveRequest, name: str) -> None:
    """Write a table of the catalogue, or at a path, in the request's mode."""
    format = request.format.removeprefix("trilake-")
    known = table_there(request.df.sparkSession, name, request.options)
    if known is not None:
        if request.mode == "error":
            raise TableExistsError(
                f"table {name} already exists", file=known.location, condition="TABLE_OR_VIEW_ALREADY_EXISTS"
            )
        if request.mode == "ignore":
            return
        must_be_of(known, name, format)
        must_be_at(known, name, record_option(request.options, "path"))
        save_named(_as_select(request, managed=known.managed), name, known.location, managed=known.managed)
        return
    path = record_option(request.options, "path")
    try:
        with new_place(request, name, path) as place:
            managed = path is None and table_at(name) is None
            save_named(_as_select(request, managed=managed, new=True), name, place, managed=managed)
    except TableExistsError:
        if request.mode == "error" or table_there(request.df.sparkSession, name, request.options) is None:
            raise
        save_as_table(request, name)  # another one made it in the meantime


def _as_select(request: SaveRequest, *, managed: bool, new: bool = False) -> SaveRequest:
    """The request as the history tells of it: a table is made, or replaced, with the rows of a query."""
    replaced = request.mode == "overwrite"
    if (replaced and record_option(request.options, "replaceWhere") is not None) or not (replaced or new):
        return request
    verb = "CREATE OR REPLACE" if replaced else "CREATE"
    return replace(request, operation=f"{verb} TABLE AS SELECT", managed=managed)


def must_be_of(known: NamedTable, name: str, format: str) -> None:
    """Raises ``InvalidArgumentError`` where a name stands for a table of another format."""
    if known.format != format:
        raise InvalidArgumentError(
            f"{name} is a {known.format} table, and the write says {format}",
            help=f"write the format {known.format}, or drop the table first",
            file=known.location,
        )


def must_be_at(known: NamedTable, name: str, path: str | None) -> None:
    """Raises ``InvalidArgumentError`` where a write says another place, ``path``, than a name stands for."""
    if path is not None and parse_location(path).uri != parse_location(known.location).uri:
        raise InvalidArgumentError(
            f"The location of the existing table {name} is `{known.location}`. It doesn't match the specified location"
            f" `{path}`",
            help="leave the path out, write to the path by save(), or choose another name",
            file=known.location,
            condition="DELTA_TABLE_LOCATION_MISMATCH",
        )


def save_named(request: SaveRequest, name: str, place: str, *, managed: bool) -> None:
    """Write the table at the place of a name, and let the catalogue know its columns.

    ``managed`` says whether the catalogue keeps its files.
    """
    options = {k: v for k, v in request.options.items() if k.lower() != "path"}
    SAVERS[request.format](replace(request, options=options), place)
    if request.format in NAMED:
        rename(request.df.sparkSession, name, place, options, managed=managed)
    elif table_at(name) is None:
        spark, format = request.df.sparkSession, request.format.removeprefix("trilake-")
        store = session_store(spark, place, store_options(options))
        about = About(to_spark(read_schema(table_columns(request.df.schema, format))))
        replaced = request.mode == "overwrite"
        refresh_entry(spark, name, place, store, format, about, managed=managed, replaced=replaced)


def rename(
    spark: SparkSession, name: str, place: str, options: Mapping[str, str] | None = None, *, managed: bool
) -> None:
    """Let the catalogue know the table's columns as they are now.

    ``options`` are those of the write, and ``managed`` says whether the catalogue kept the files when it began.
    """
    if table_at(name) is None:
        log = DeltaLog(session_store(spark, place, store_options(options)), spark_engine())
        refresh_name(spark, name, place, log, managed=managed)


def store_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Of the options of a write those that the store is opened with."""
    return {k: v for k, v in (options or {}).items() if is_storage_option(k)}


def insert_into(request: SaveRequest, spark: SparkSession, name: str, mode: str) -> None:
    """Columns and nested fields by position, stored as SQL's INSERT INTO stores them.

    Where the schema evolves, columns behind those of the table are new ones.
    """
    table = find_table(spark, name)
    if table is None:
        raise TableNotFoundError(
            f"the catalogue has no table {name}", help="make it with saveAsTable", condition="TABLE_OR_VIEW_NOT_FOUND"
        )
    must_be_at(table, name, record_option(request.options, "path"))
    evolve = widen = False
    store = session_store(spark, table.location, store_options(request.options))
    if table.format == "delta":
        head = DeltaLog(store, spark_engine()).head()
        schema, widen = read_schema(head.schema), type_widening.enabled(head.metadata)
        stated = record_option(request.options, "mergeSchema")
        evolve = session_flag(spark, AUTO_MERGE, False) if stated is None else stated.lower() == "true"
    elif table_at(name) is None:
        schema = table_columns(spark.table(name).schema, table.format)
    else:
        schema = from_arrow(open_table(store, table.format).schema)
    names = schema.names
    by_name = as_they_are(request.df.schema, names, schema, evolve=evolve)
    if evolve:
        names += request.df.columns[len(names) :]  # which are new columns of the table
    if len(names) != len(request.df.columns):
        raise InvalidArgumentError(
            f"{name} has {len(schema.names)} columns, the data {len(request.df.columns)}",
            help="insertInto matches columns by position: select the table's columns in its order",
            condition="DELTA_INSERT_COLUMN_ARITY_MISMATCH"
            if len(request.df.columns) < len(schema.names)
            else "DELTA_METADATA_MISMATCH",
        )
    given = request.df.toDF(*names)
    df = stored_columns(given, schema, by_name=by_name, evolve=evolve, widen=widen)
    with overflows_named(narrowed=df is not given):
        save = SaveRequest(df, request.format, mode, request.options, None, must_exist=True)
        SAVERS[request.format](save, table.location)
    if evolve:
        rename(spark, name, table.location, request.options, managed=table.managed)
