"""``df.writeTo(name)``, Spark's second API for writing catalog tables, for trilake tables.

Spark plans such writes against its catalog, which does not pass a location to a Python data source.  After
:func:`patch_table_writer`, writes with ``using("delta")``, ``lance`` or ``trevni``, or to a trilake table, go through
:func:`trilake.write`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column, DataFrame

from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.spark.catalog.named_tables import NamedTable, table_at
from trilake.spark.patches.chains import classes, frame_of, record_option, table_of, watch_chains, with_spark_errors
from trilake.spark.patches.formats import FORMATS, registered
from trilake.spark.patches.recorder import Action, Record, patch, record_of
from trilake.spark.patches.table_names import (
    created_location,
    find_existing,
    format_of_new,
    must_be_at,
    must_be_of,
    save_named,
    store_options,
    trilake_table,
)
from trilake.spark.scan.columns import column_sql, read_condition
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest
from trilake.spark.session.settings import is_utc, quoted_plainly, session_store
from trilake.table.registry import has_log

#: ``tableProperty("location", ...)`` sets the location of a new table and is not stored as a property.
_LOCATION = "location"


def patch_table_writer() -> None:
    """Patch ``df.writeTo``.  Idempotent."""
    watch_chains()
    for cls in classes("table_writer"):
        for name, decide in _DECIDERS.items():
            patch(cls, name, decide)


@dataclass(frozen=True)
class _Request:
    """The request of a chain: ``existing`` is the trilake table, if any, ``format`` the registered name of its
    format."""

    df: DataFrame
    table: str
    existing: NamedTable | None
    format: str
    record: Record


def _name(column: str | Column) -> str:
    name = column if isinstance(column, str) else column_sql(column)
    if name is None and (match := re.fullmatch(r"Column<'(.*)'>", str(column))):
        name = match[1]  # on Spark Connect
    if name is None or "(" in name:
        raise InvalidArgumentError(
            f"a table must be partitioned by columns, got {name or column}",
            help="add a generated column, and partition by it",
        )
    return name


def _decider(act: Callable[..., None]) -> Callable[..., Action | None]:
    def decide(original: Any, writer: Any, *args: Any) -> Action | None:
        record = record_of(writer)
        if record is None or record.format not in (None, *FORMATS):
            return None
        df, table = frame_of(record), table_of(record)
        named_table = trilake_table(df.sparkSession, table)
        format = record.format or (
            format_of_new(df.sparkSession, table) if named_table is None else registered(named_table.format)
        )
        if format is None:
            return None

        def write() -> None:
            existing = None if named_table is None else find_existing(df.sparkSession, table, record.options)
            act(_Request(df, table, existing, format, record), *args)

        return with_spark_errors(write)

    return decide


def _reject_matches(request: _Request) -> None:
    """Raise ``InvalidArgumentError`` for an option that replaces some rows of a table, which this call replaces."""
    for option in ("replaceOn", "replaceUsing"):
        if record_option(request.record.options, option) is not None:
            raise InvalidArgumentError(
                f"{option} replaces some rows of a table, but create(), replace() and createOrReplace() create"
                " a new table",
                help=f"leave {option} out, or write with df.write.mode('overwrite')",
                condition="DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING",
            )


def _create(request: _Request, verb: str = "CREATE") -> None:
    _reject_matches(request)
    if request.existing is not None:
        raise TableExistsError(
            f"table {request.table} already exists",
            file=request.existing.location,
            condition="TABLE_OR_VIEW_ALREADY_EXISTS",
        )
    record = request.record
    path = _stated_place(record)
    managed = path is None and table_at(request.table) is None
    replaces = managed and verb != "CREATE" and has_log(request.format)  # files of an earlier table may remain
    mode = "overwrite" if replaces else "error"
    save = SaveRequest(request.df, request.format, mode, record.options, None)
    more = {"partitionOverwriteMode": "static"} if replaces else {}
    with created_location(save, request.table, path) as location:
        _save(request, location, mode, replaces=replaces, verb=verb, managed=managed, options=more)


def _stated_place(record: Record) -> str | None:
    """The location in a chain, if it gives one."""
    return record_option(record.options, "path") or record.properties.get(_LOCATION)


def _replace(request: _Request, verb: str = "REPLACE") -> None:
    _reject_matches(request)
    _check_replaces_schema(request)
    more = {"partitionOverwriteMode": "static"} if has_log(request.format) else {}
    location = _existing_location(request)
    _save(request, location, "overwrite", replaces=True, verb=verb, options=more)


def _create_or_replace(request: _Request) -> None:
    if request.existing is None:
        _check_replaces_schema(request)
        try:
            _create(request, "CREATE OR REPLACE")
        except TableExistsError:
            existing = find_existing(request.df.sparkSession, request.table, request.record.options)
            if existing is None:
                raise
            _create_or_replace(replace(request, existing=existing))  # another process has created the table
    else:
        _replace(request, "CREATE OR REPLACE")


def _check_replaces_schema(request: _Request) -> None:
    """Raise ``InvalidArgumentError`` if the chain replaces a Delta table but keeps its schema."""
    stated = record_option(request.record.options, "overwriteSchema")
    if has_log(request.format) and stated is not None and stated.lower() == "false":
        raise InvalidArgumentError(
            "overwriteSchema is not allowed when replacing a Delta table: its schema is replaced with its rows",
            help="leave overwriteSchema out; overwritePartitions() and overwrite(condition) keep the schema",
            condition="DELTA_ILLEGAL_USAGE",
        )


def _append(request: _Request) -> None:
    _save(request, _existing_location(request), "append")


def _overwrite(request: _Request, condition: Any) -> None:
    location = _delta_alone(request, "overwrite(condition)")
    if record_option(request.record.options, "replaceWhere") is not None:
        raise InvalidArgumentError(
            "the option replaceWhere and the condition of overwrite() cannot be used together",
            help="leave one of them out",
            file=location,
            condition="DELTA_REPLACE_WHERE_IN_OVERWRITE",
        )
    store = session_store(request.df.sparkSession, location, store_options(request.record.options))
    schema = DeltaLog(store, spark_engine()).head().schema
    read = read_condition(request.df.sparkSession, condition, schema)
    where = None if read.filter is None else read.filter.sql
    if where is None and not is_utc(request.df.sparkSession):
        where = read.sql  # the write converts it to UTC, or rejects it
    if where is None:
        raise InvalidArgumentError(
            f"overwrite() does not support the condition {condition}", help="use comparisons of columns with values"
        )
    with quoted_plainly(request.df.sparkSession):  # the parsed condition has the default quoting
        _save(request, location, "overwrite", options={"replaceWhere": where})


def _overwrite_partitions(request: _Request) -> None:
    location = _delta_alone(request, "overwritePartitions()")
    _save(request, location, "overwrite", options={"partitionOverwriteMode": "dynamic"})


_DECIDERS: dict[str, Callable[..., Action | None]] = {
    "create": _decider(_create),
    "replace": _decider(_replace),
    "createOrReplace": _decider(_create_or_replace),
    "append": _decider(_append),
    "overwrite": _decider(_overwrite),
    "overwritePartitions": _decider(_overwrite_partitions),
}


def _existing_location(request: _Request) -> str:
    if request.existing is None:
        raise TableNotFoundError(
            f"table {request.table} cannot be found",
            help="create it with create()",
            condition="TABLE_OR_VIEW_NOT_FOUND",
        )
    must_be_of(request.existing, request.table, request.format)
    must_be_at(request.existing, request.table, _stated_place(request.record))
    return request.existing.location


def _delta_alone(request: _Request, call: str) -> str:
    location = _existing_location(request)
    if not has_log(request.format):
        raise InvalidArgumentError(
            f"{call} is not supported for {request.format} tables: they replace all rows or none",
            help="use replace(), or append()",
            file=location,
        )
    return location


def _save(
    request: _Request,
    location: str,
    mode: str,
    *,
    replaces: bool = False,
    verb: str | None = None,
    managed: bool = False,
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the rows; ``verb`` is the statement in the history, if the table is created or replaced, and ``managed``
    says whether the catalog manages a new table; ``options`` are those of the call."""
    record = request.record
    properties = {key: value for key, value in record.properties.items() if key != _LOCATION}
    if properties and not has_log(request.format):
        raise InvalidArgumentError(
            f"{request.format} tables do not support table properties, got {', '.join(properties)}",
            help="leave tableProperty out, and pass write options with option()",
            file=location,
        )
    columns = None if record.partition_by is None else tuple(_name(c) for c in record.partition_by)
    save = SaveRequest(
        request.df,
        request.format,
        mode,
        {**record.options, **options},
        columns,
        properties,
        record.cluster_by,
        replaces=replaces,
        operation=None if verb is None else f"{verb} TABLE AS SELECT",
        managed=managed if request.existing is None else request.existing.managed,
    )
    save_named(save, request.table, location)
