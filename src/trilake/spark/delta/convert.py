"""CONVERT TO DELTA in a Spark session: Parquet files, Iceberg tables, and Parquet tables in the catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.convert import convert_to_delta
from trilake.delta.commands.maintenance.convert_partitions import given_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.metadata.schema_changes import NewColumn
from trilake.delta.protocol.schema import StructField
from trilake.errors import InvalidArgumentError
from trilake.spark.catalog.entries import EntryContents, convert_entry, has_catalog, make_entry
from trilake.spark.catalog.named_tables import existing_delta_table, find_delta_table, name_aside, parts_of, quoted
from trilake.spark.delta.maintenance import many_runner
from trilake.spark.delta.settings import CONVERT_BY_MANIFEST, default_properties, session_log
from trilake.spark.scan.obstacles import decoded
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import UTC_ZONES, session_flag, session_store, session_zone
from trilake.storage import is_absolute

_PartitionColumns: TypeAlias = Sequence[str | StructField]
_CONVERTIBLE = ("parquet", "iceberg")
#: The default of a column that is null in the files without it.
_NULL = re.compile(r"null|cast\(null as .*\)", re.IGNORECASE)
_BY_PATH = re.compile(r"`?(\w+)`?\.`((?:[^`]|``)+)`")


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
    conversion, identifier = _Conversion(spark, collect_stats, options), identifier.strip()
    by_path = _BY_PATH.fullmatch(identifier)
    if by_path is None and is_absolute(identifier):
        raise InvalidArgumentError(
            f"CONVERT TO DELTA needs the format of {identifier}",
            help=f"write parquet.`{identifier}`",
            condition="DELTA_MISSING_PROVIDER_FOR_CONVERT",
        )
    if by_path is None or _is_qualified_name(spark, identifier, *by_path.groups()):
        return conversion.of_name(identifier, fields)
    provider, path = by_path[1].lower(), by_path[2].replace("``", "`")
    if provider == "delta":
        return existing_delta_table(spark, identifier).location
    if provider not in _CONVERTIBLE:
        raise InvalidArgumentError(
            f"CONVERT TO DELTA converts Parquet files and Iceberg tables, not {provider}",
            help="write parquet.`/path/to/table` or iceberg.`/path/to/table`",
            condition="DELTA_CONVERT_NON_PARQUET_TABLE",
        )
    conversion.of_path(path, fields, source_format=provider)
    return path


def _partition_fields(partition_schema: str | T.StructType | None) -> _PartitionColumns | None:
    if partition_schema is None or isinstance(partition_schema, str):
        return given_columns(partition_schema)
    if isinstance(partition_schema, T.StructType):
        return from_spark(partition_schema).fields
    raise TypeError(
        f"partitionSchema must be a string or a StructType, got {partition_schema!r}"
        f" ({type(partition_schema).__name__})"
    )


def _is_qualified_name(spark: SparkSession, identifier: str, first: str, second: str) -> bool:
    """Whether ``first.second`` is a table in a database, and not a format and a path."""
    if "/" in second:
        return False
    return first.lower() not in ("delta", *_CONVERTIBLE) or spark.catalog.tableExists(identifier)


@dataclass(frozen=True)
class _Conversion:
    """A conversion in a session; ``options`` are those of the store."""

    spark: SparkSession
    collect_stats: bool
    options: Mapping[str, str] | None

    def of_path(
        self, path: str, fields: _PartitionColumns | None, properties: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        """Convert the files at a path; ``more`` are arguments of ``convert_to_delta``."""
        store = session_store(self.spark, path, self.options)
        zone, log = session_zone(self.spark), session_log(self.spark, store)
        convert_to_delta(
            store,
            log.engine,
            partition_by=fields,
            collect_stats=self.collect_stats,
            properties={**default_properties(self.spark), **(properties or {})},
            user_metadata=log.user_metadata,
            timezone="UTC" if zone in UTC_ZONES else zone,
            by_manifest=session_flag(self.spark, CONVERT_BY_MANIFEST, True),
            run=many_runner(self.spark, store, least=16),
            **more,
        )

    def of_name(self, name: str, fields: _PartitionColumns | None) -> str:
        """Convert a table in the catalog, and its entry; return its location."""
        spark, parts, quoted_name = self.spark, parts_of(name), quoted(name)
        if not spark.catalog.tableExists(quoted_name):
            raise InvalidArgumentError(
                f"table {name} cannot be found in the catalog",
                help="write parquet.`/path/to/table`",
                condition="TABLE_OR_VIEW_NOT_FOUND",
            )
        with suppress(InvalidArgumentError):  # not a Delta table yet
            if (table := find_delta_table(spark, name)) is not None:
                return table.location
        path, managed = _parquet_table(spark, name)
        fields = partition_fields_of(spark, quoted_name) if fields is None else fields
        columns = spark.table(quoted_name).schema
        in_folders = {f if isinstance(f, str) else f.name for f in fields}
        defaults = {f.name: f.metadata.get("EXISTS_DEFAULT", "NULL") for f in columns if f.name not in in_folders}
        # The catalog lists partitions: files in other folders are not rows of the table.
        only = [decoded(uri) for uri in spark.table(quoted_name).inputFiles()] if fields else None
        properties = {r.key: r.value for r in spark.sql(f"SHOW TBLPROPERTIES {quoted_name}").collect()}
        properties.pop("transient_lastDdlTime", None)  # Hive's
        filled = {name: value for name, value in defaults.items() if not _NULL.fullmatch(value)}
        self.of_path(path, fields, properties, source_format="parquet", filled=filled, only=only)
        log = DeltaLog(session_store(spark, path, self.options), spark_engine())
        there = log.head().schema
        missing = [f for f in from_spark(columns).fields if there.find(f.name) is None]
        if missing:
            Alter(log).add(*(NewColumn(replace(f, nullable=True, metadata={})) for f in missing))
        head = log.head()
        if managed:
            convert_entry(spark, parts, EntryContents.of(head))
        else:
            with name_aside(spark, name, head.engine.runtime.new_hex_id()):
                make_entry(spark, parts, EntryContents.of(head), path=path)
        return path


def _parquet_table(spark: SparkSession, name: str) -> tuple[str, bool]:
    """The location of a Parquet table in the catalog, and whether it is managed.  Raises ``InvalidArgumentError`` for a
    view, a table of another format, and an entry whose format cannot be changed."""
    about = {r[0]: r[1] for r in spark.sql(f"DESCRIBE TABLE EXTENDED {quoted(name)}").collect()}
    provider, kind = str(about.get("Provider", "")).lower(), str(about.get("Type", "")).upper()
    if kind == "VIEW" or provider != "parquet":
        raise InvalidArgumentError(
            f"{name} is not a table of Parquet files, so it cannot be converted",
            condition="DELTA_CONVERT_NON_PARQUET_TABLE",
        )
    managed = kind != "EXTERNAL"
    if managed and not has_catalog(spark, parts_of(name)):
        raise InvalidArgumentError(
            f"{name} is a managed table, and the format of its catalog entry cannot be changed",
            help=f"convert its files in place with parquet.`{about.get('Location')}`",
        )
    return str(about["Location"]), managed


def partition_fields_of(spark: SparkSession, name: str) -> list[str | StructField]:
    """The partition columns of a catalog table, given its quoted name."""
    inside = {c.name for c in spark.catalog.listColumns(name) if c.isPartition}
    schema = spark.table(name).schema
    return list(from_spark(T.StructType([f for f in schema.fields if f.name in inside])).fields)
