"""CLONE and CONVERT TO DELTA in a Spark session; sources and targets are paths or names in the catalog."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commands.maintenance.convert import convert_to_delta
from trilake.delta.commands.maintenance.convert_partitions import given_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.metadata.schema_changes import NewColumn
from trilake.delta.protocol.schema import StructField
from trilake.errors import InvalidArgumentError
from trilake.spark.catalog.entries import About, convert_entry, has_catalog, make_entry
from trilake.spark.catalog.named_tables import (
    default_location,
    existing_delta_table,
    find_delta_table,
    name_aside,
    new_name,
    parts_of,
    quoted,
    refresh_name,
    table_at,
)
from trilake.spark.delta.maintenance import check_is, check_properties, many_runner
from trilake.spark.delta.settings import CONVERT_BY_MANIFEST, default_properties, session_log
from trilake.spark.scan.obstacles import decoded
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import UTC_ZONES, session_flag, session_store, session_zone
from trilake.storage import is_absolute

_log = logging.getLogger("trilake.spark")
#: The default of a column that is null in the files without it.
_NULL = re.compile(r"null|cast\(null as .*\)", re.IGNORECASE)
_BY_PATH = re.compile(r"`?(\w+)`?\.`((?:[^`]|``)+)`")


def clone_table(
    spark: SparkSession,
    log: DeltaLog,
    options: Mapping[str, str],
    target: str,
    shallow: bool,
    replace: bool,
    properties: Mapping[str, str] | None,
    *,
    version: int | None = None,
) -> str:
    """Clone a table and return the location of the target.  ``target`` is a path, ``delta.`/path```, or a name in the
    catalog, which is created if it does not exist.  Raises ``ValueError``, as delta-spark does, for arguments of other
    types."""
    check_is(str, target, "target")
    check_is(bool, shallow, "isShallow")
    check_is(bool, replace, "replace")
    check_properties(properties)
    path, name, managed = clone_place(spark, target)
    source = log.snapshot(version)

    def run(path: str) -> str:
        into, many = session_log(spark, session_store(spark, path, options)), many_runner(spark, log.store, least=32)
        clone(source, log, into, shallow=shallow, replace_target=replace, properties=properties, run=many)
        if name is not None:
            refresh_name(spark, name, path, into, managed=managed is not False)
        return path

    if name is None or managed is not None:
        return run(path)
    comment = source.metadata.description
    with new_name(spark, name, source.schema, comment=comment, options=options, replaces=replace) as place:
        return run(place)


def clone_place(spark: SparkSession, target: str) -> tuple[str, str | None, bool | None]:
    """The path of a target, its name in the catalog (if any), and whether that is managed (``None`` if it is new)."""
    by_path = table_at(target)
    if by_path is not None and by_path.format == "delta":
        return by_path.location, None, None
    if is_absolute(target) or "/" in target:
        return target, None, None
    if (table := find_delta_table(spark, target)) is not None:
        return table.location, target, table.managed
    return default_location(spark, target), target, None


def convert_table(
    spark: SparkSession,
    identifier: str,
    partition_schema: str | T.StructType | None,
    *,
    collect_stats: bool = True,
    options: Mapping[str, str] | None = None,
) -> str:
    """Convert ``parquet.`/path```, ``iceberg.`/path```, or a Parquet table in the catalog, and return its location.
    Raises ``InvalidArgumentError`` for anything else."""
    if not isinstance(identifier, str):
        raise InvalidArgumentError(f"the identifier must be a string, got {type(identifier).__name__}")
    fields = _partition_fields(partition_schema)
    by_path = _BY_PATH.fullmatch(identifier.strip())
    if by_path is None:
        if is_absolute(identifier.strip()):
            raise InvalidArgumentError(
                f"CONVERT TO DELTA needs the format of {identifier}",
                help=f"write parquet.`{identifier.strip()}`",
                condition="DELTA_MISSING_PROVIDER_FOR_CONVERT",
            )
        return _convert_named(spark, identifier, fields, collect_stats, options)
    if _is_qualified_name(spark, identifier, *by_path.groups()):
        return _convert_named(spark, identifier.strip(), fields, collect_stats, options)
    provider, path = by_path[1].lower(), by_path[2].replace("``", "`")
    if provider == "delta":
        return existing_delta_table(spark, identifier).location
    if provider not in _CONVERTIBLE:
        raise InvalidArgumentError(
            f"CONVERT TO DELTA converts Parquet files and Iceberg tables, not {provider}",
            help="write parquet.`/path/to/table` or iceberg.`/path/to/table`",
            condition="DELTA_CONVERT_NON_PARQUET_TABLE",
        )
    _convert(spark, path, fields, collect_stats, options, "iceberg" if provider == "iceberg" else "parquet")
    return path


_CONVERTIBLE = ("parquet", "iceberg")


def _is_qualified_name(spark: SparkSession, identifier: str, first: str, second: str) -> bool:
    """Whether ``first.second`` is a table in a database, and not a format and a path."""
    if "/" in second:
        return False
    return first.lower() not in ("delta", *_CONVERTIBLE) or spark.catalog.tableExists(identifier.strip())


def _convert(
    spark: SparkSession,
    path: str,
    fields: list[str | StructField] | None,
    collect_stats: bool,
    options: Mapping[str, str] | None,
    source_format: Literal["parquet", "iceberg"] = "parquet",
    filled: Mapping[str, str] | None = None,
    only: list[str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    store = session_store(spark, path, options)
    zone, log = session_zone(spark), session_log(spark, store)
    convert_to_delta(
        store,
        log.engine,
        partition_by=fields,
        collect_stats=collect_stats,
        properties={**default_properties(spark), **(properties or {})},
        user_metadata=log.user_metadata,
        timezone="UTC" if zone in UTC_ZONES else zone,
        by_manifest=session_flag(spark, CONVERT_BY_MANIFEST, True),
        source_format=source_format,
        filled=filled,
        only=only,
        run=many_runner(spark, store, least=16),
    )


def _partition_fields(partition_schema: str | T.StructType | None) -> list[str | StructField] | None:
    if partition_schema is None or isinstance(partition_schema, str):
        return given_columns(partition_schema)
    if isinstance(partition_schema, T.StructType):
        return list(from_spark(partition_schema).fields)
    raise TypeError(
        f"partitionSchema must be a string or a StructType, got {partition_schema!r}"
        f" ({type(partition_schema).__name__})"
    )


def _convert_named(
    spark: SparkSession,
    name: str,
    fields: list[str | StructField] | None,
    collect_stats: bool,
    options: Mapping[str, str] | None,
) -> str:
    parts_of(name)  # raises for a string that is not a name
    if not spark.catalog.tableExists(quoted(name)):
        raise InvalidArgumentError(
            f"table {name} cannot be found in the catalog",
            help="write parquet.`/path/to/table`",
            condition="TABLE_OR_VIEW_NOT_FOUND",
        )
    with suppress(InvalidArgumentError):  # not a Delta table yet
        if (table := find_delta_table(spark, name)) is not None:
            return table.location
    about = {r[0]: r[1] for r in spark.sql(f"DESCRIBE TABLE EXTENDED {quoted(name)}").collect()}
    provider, kind = str(about.get("Provider", "")).lower(), str(about.get("Type", "")).upper()
    if kind == "VIEW" or provider != "parquet":
        raise InvalidArgumentError(
            f"{name} is not a table of Parquet files, so it cannot be converted",
            condition="DELTA_CONVERT_NON_PARQUET_TABLE",
        )
    managed, parts = kind != "EXTERNAL", parts_of(name)
    if managed and not has_catalog(spark, parts):
        raise InvalidArgumentError(
            f"{name} is a managed table, and the format of its catalog entry cannot be changed",
            help=f"convert its files in place with parquet.`{about.get('Location')}`",
        )
    path = str(about["Location"])
    if fields is None:
        fields = partition_fields_of(spark, quoted(name))
    columns = spark.table(quoted(name)).schema
    in_folders = {f if isinstance(f, str) else f.name for f in fields}
    defaults = {f.name: f.metadata.get("EXISTS_DEFAULT", "NULL") for f in columns.fields if f.name not in in_folders}
    filled = {name: value for name, value in defaults.items() if not _NULL.fullmatch(value)}
    # The catalog lists partitions: files in other folders are not rows of the table.
    only = [decoded(uri) for uri in spark.table(quoted(name)).inputFiles()] if fields else None
    properties = {r.key: r.value for r in spark.sql(f"SHOW TBLPROPERTIES {quoted(name)}").collect()}
    properties.pop("transient_lastDdlTime", None)  # Hive's
    _convert(spark, path, fields, collect_stats, options, filled=filled, only=only, properties=properties)
    log = DeltaLog(session_store(spark, path, options), spark_engine())
    there = log.head().schema
    missing = [replace(f, nullable=True, metadata={}) for f in from_spark(columns).fields if there.find(f.name) is None]
    if missing:
        Alter(log).add(*map(NewColumn, missing))
    head = log.head()
    if managed:
        convert_entry(spark, parts, About.of(head))
    else:
        with name_aside(spark, name, head.engine.runtime.new_hex_id()):
            make_entry(spark, parts, About.of(head), path=path)
    return path


def partition_fields_of(spark: SparkSession, name: str) -> list[str | StructField]:
    """The partition columns of a catalog table, given its quoted name."""
    inside = {c.name for c in spark.catalog.listColumns(name) if c.isPartition}
    schema = spark.table(name).schema
    return list(from_spark(T.StructType([f for f in schema.fields if f.name in inside])).fields)
