"""Validate what an overwrite replaces, for an existing table, and the condition it puts on new rows."""

from __future__ import annotations

from dataclasses import replace

from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.errors import InvalidArgumentError
from trilake.expr import Filter, parse_filter


def check_dynamic_alone(request: WriteRequest, uri: str | None = None) -> None:
    """Raise ``InvalidArgumentError`` where a dynamic overwrite is combined with another choice of what to replace."""
    if request.partition_overwrite != "dynamic":
        return
    if request.replace_where is not None:
        raise InvalidArgumentError(
            "replace_where and partition_overwrite='dynamic' cannot both be given",
            help="leave one of them out",
            file=uri,
            condition="DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )
    if request.schema_mode == "overwrite":
        raise InvalidArgumentError(
            "a schema is overwritten together with all rows, and partition_overwrite='dynamic' keeps some",
            help="use schema_mode='merge' to add columns",
            file=uri,
            condition="DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )


def settled_overwrite(base: Head, request: WriteRequest, uri: str) -> WriteRequest:
    """The request, with a dynamic overwrite where that is requested or the default, and the table is partitioned.

    Raises ``InvalidArgumentError`` where something else says what is replaced, too.
    """
    if not base.metadata.partition_columns:
        return replace(request, partition_overwrite="static") if request.partition_overwrite == "dynamic" else request
    check_dynamic_alone(request, uri)
    if not request.prefer_dynamic or not request.replaces or request.replace_where is not None:
        return request
    if request.schema_mode == "overwrite":
        raise InvalidArgumentError(
            "overwriteSchema replaces all rows, and the session's spark.sql.sources.partitionOverwriteMode says that"
            " an overwrite replaces partitions",
            help='say option("partitionOverwriteMode", "static") with the write',
            file=uri,
            condition="DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )
    return replace(request, partition_overwrite="dynamic")


def required_of_rows(request: WriteRequest, metadata: Metadata) -> Filter | None:
    """The condition that every new row must satisfy; ``None`` without one.

    A part of ``replace_where`` without columns, such as ``false``, does not restrict rows.  Raises
    ``InvalidArgumentError`` for data columns where only partition columns are allowed.
    """
    where = parse_filter(request.replace_where, filter_schema(metadata.schema))
    of_data = [] if where is None else sorted(where.columns - set(metadata.partition_columns))
    if of_data and not request.replace_where_data:
        raise InvalidArgumentError(
            f"replaceWhere names {', '.join(of_data)}, and the table is partitioned by"
            f" {', '.join(metadata.partition_columns) or 'nothing'}: the session allows partition columns alone",
            help="unset spark.databricks.delta.replaceWhere.dataColumns.enabled, or name partition columns",
            condition="DELTA_NON_PARTITION_COLUMN_REFERENCE",
        )
    if where is None or not request.replace_where_checked:
        return None
    of_rows = tuple(c for c in where.conjuncts if c.predicate.paths())
    return replace(where, conjuncts=of_rows) if of_rows else None
