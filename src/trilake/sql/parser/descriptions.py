"""Convert a parsed CREATE or REPLACE TABLE to a schema, a table description and a write request."""

from __future__ import annotations

from dataclasses import replace

from trilake.common.spark_options import has_no_effect, warn_ignored
from trilake.delta.commands.write.create import CreateMode, TableDescription, stated_checks
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.properties import known_properties
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import format_path
from trilake.delta.protocol.sql_types import parse_sql_type
from trilake.delta.rules.defaults import CURRENT_DEFAULT
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnknownOptionError,
)
from trilake.sql.parser.create import Column, Create, check_clustering_feature
from trilake.storage import open_store


def field_of(column: Column) -> StructField:
    """The field of a column definition.  Raises ``InvalidArgumentError``."""
    kind, metadata = parse_sql_type(column.type)
    metadata = dict(metadata)
    if column.comment is not None:
        metadata["comment"] = column.comment
    if column.generated is not None:
        metadata[GENERATION_EXPRESSION] = column.generated
    if column.default is not None:
        metadata[CURRENT_DEFAULT] = column.default
    if column.identity is not None:
        start, step, explicit = column.identity
        if str(kind) != "long":
            raise InvalidArgumentError(
                f"an identity column must be BIGINT, got {column.type}",
                help="declare it as BIGINT",
                column=column.name,
                condition="IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
            )
        if step == 0:
            raise InvalidArgumentError(
                "the step of an identity column must not be 0",
                help="write INCREMENT BY 1",
                column=column.name,
                condition="IDENTITY_COLUMNS_ILLEGAL_STEP",
            )
        metadata.update(identity_metadata(start, step, explicit=explicit))
    return StructField(column.name, kind, column.nullable, metadata)


def schema_of(call: Create) -> StructType:
    """The columns that a statement defines.  Raises ``InvalidArgumentError``."""
    return StructType(tuple(field_of(c) for c in call.columns))


def with_options(call: Create, format: str) -> Create:
    """Apply a statement's ``OPTIONS``: ``path`` is the location, others are properties.

    A Delta table takes those that begin with ``delta.``; options of Spark's own readers are ignored with a warning.
    Raises ``UnknownOptionError`` for any other option, ``InvalidArgumentError`` for two locations.

    >>> call = Create(("t",), True, False, False, options={"PATH": "/t", "delta.appendOnly": "true"})
    >>> with_options(call, "delta").location, with_options(call, "delta").properties
    ('/t', {'delta.appendOnly': 'true'})
    """
    path = next((v for k, v in call.options.items() if k.lower() == "path"), None)
    if path is not None and call.location is not None and path != call.location:
        raise InvalidArgumentError(
            f"LOCATION is {call.location}, but the option path is {path}", help="leave one of them out"
        )
    ignored = [k for k, v in call.options.items() if has_no_effect(k, v)]
    warn_ignored(ignored)
    rest = {k: v for k, v in call.options.items() if k.lower() != "path" and k not in ignored}
    unknown = sorted(k for k in rest if format == "delta" and not k.lower().startswith("delta."))
    if unknown:
        raise UnknownOptionError(
            f"unknown option {', '.join(map(repr, unknown))} of a new Delta table",
            help="OPTIONS take the path and delta.* properties; other properties go into TBLPROPERTIES, and storage"
            " options into the session's settings",
        )
    return replace(call, properties={**rest, **call.properties}, options={}, location=path or call.location)


def description_of(call: Create, schema: StructType) -> TableDescription:
    """Describe the new table, with these columns."""
    if not call.cluster_by:
        check_clustering_feature(call.properties, "DELTA_CREATE_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED")
    fields = list(schema.fields)
    fields += [field_of(c) for c in call.partition_columns if schema.find(c.name) is None]
    properties, checks = stated_checks(call.properties)
    return TableDescription(
        StructType(tuple(fields)),
        call.partition_by,
        properties,
        call.comment,
        tuple(call.cluster_by),
        checks=(*call.checks, *checks),
    )


def create_mode(call: Create) -> CreateMode:
    """How the statement treats an existing table."""
    if call.replace:
        return "create_or_replace" if call.create else "replace"
    return "create_if_not_exists" if call.if_not_exists else "create"


def check_place(call: Create, format: str, path: str, *, exists: bool) -> None:
    """Check that a statement may create or replace the table at a path.

    Raises ``InvalidArgumentError`` for a second location, ``TableExistsError``, ``TableNotFoundError``.
    """
    if call.location is not None and open_store(call.location).uri != open_store(path).uri:
        raise InvalidArgumentError(
            f"the table's name refers to {path}, but LOCATION is {call.location}",
            help="leave LOCATION out",
            condition="DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE"
            if call.clone_of is None
            else "DELTA_CLONE_AMBIGUOUS_TARGET",
        )
    if exists and not call.replace and not call.if_not_exists:
        raise TableExistsError(
            f"a {format} table already exists at {path}",
            help="write CREATE OR REPLACE TABLE, or IF NOT EXISTS",
            file=path,
            condition="TABLE_OR_VIEW_ALREADY_EXISTS",
        )
    if not exists and not call.create:
        raise TableNotFoundError(
            "there is no table to replace",
            help="write CREATE OR REPLACE",
            file=path,
            condition="TABLE_OR_VIEW_NOT_FOUND" if call.clone_of is None else "DELTA_CANNOT_REPLACE_MISSING_TABLE",
        )


def write_of_query(
    call: Create, schema: StructType, table: TableDescription, *, there: bool, managed: bool
) -> WriteRequest:
    """The write of CREATE TABLE AS SELECT; ``there`` says whether a table exists.

    Raises ``SchemaMismatchError`` for an existing table, unless the statement replaces it.
    """
    if there and not call.replace:
        raise SchemaMismatchError(
            "the table already exists",
            help="write INSERT INTO, or CREATE OR REPLACE TABLE",
            condition="DELTA_PATH_EXISTS",
        )
    verb = " OR ".join(w for w, present in (("CREATE", call.create), ("REPLACE", call.replace)) if present)
    return WriteRequest(
        mode="overwrite" if call.replace else "ignore" if call.if_not_exists else "error",
        schema=schema,
        schema_mode="overwrite" if call.replace else None,
        operation=f"{verb} TABLE AS SELECT",
        parameters={
            "isManaged": "true" if managed else "false",
            "description": call.comment,
            "partitionBy": list(call.partition_by),
            "clusterBy": [format_path(c) for c in call.cluster_by],
            "properties": dict(call.properties),
        },
        description=table,
    )


def description_like(source: DeltaLog, call: Create) -> TableDescription:
    """Describe a table like another one: columns, partitions, clustering, properties and constraints."""
    head = source.head()
    configuration, specs = head.metadata.configuration, known_properties()
    # Properties that the library sets belong to one table only.
    properties = {k: v for k, v in configuration.items() if k not in specs or specs[k].set_by is None}
    properties, checks = stated_checks({**properties, **call.properties})
    return TableDescription(
        head.schema,
        tuple(head.metadata.partition_columns),
        properties,
        call.comment if call.comment is not None else head.metadata.description,
        cluster_by=tuple(clustering_columns(head)),
        checks=checks,
    )
