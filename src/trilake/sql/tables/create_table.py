"""CREATE and REPLACE TABLE of our formats: described by columns, by a query, or like another table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.write.create import CreateMode, TableDescription, create_table
from trilake.delta.commands.write.write import WriteRequest
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.properties import parse_properties
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import path_text
from trilake.delta.protocol.sql_types import parse_sql_type
from trilake.delta.rules.defaults import CURRENT_DEFAULT
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.spark.delta.settings import default_properties, session_log
from trilake.spark.delta.write import write_dataframe
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.sql.grammar.create import Column, Create
from trilake.sql.session import catalogue
from trilake.sql.session.relations import query
from trilake.sql.session.results import nothing
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import Target, View, resolve
from trilake.sql.tables.create_other import create_other
from trilake.sql.tables.create_place import Place, named, place_of_new
from trilake.storage import open_store


def field_of(column: Column) -> StructField:
    """A column with what the protocol keeps in its metadata.  Raises ``InvalidArgumentError``."""
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
                f"an identity column is a BIGINT, not {column.type}", help="declare it as BIGINT", column=column.name
            )
        if step == 0:
            raise InvalidArgumentError("an identity column cannot have the step 0", column=column.name)
        metadata.update(identity_metadata(start, step, explicit=explicit))
    return StructField(column.name, kind, column.nullable, metadata)


def _description(call: Create, schema: StructType, name: str | None) -> TableDescription:
    fields = list(schema.fields)
    fields += [field_of(c) for c in call.partition_columns if schema.find(c.name) is None]
    return TableDescription(
        StructType(tuple(fields)),
        call.partition_by,
        dict(call.properties),
        call.comment,
        tuple(call.cluster_by),
        name=name,
    )


def _with_defaults(session: SqlSession, table: TableDescription) -> TableDescription:
    """The table with the properties that the session's settings give new tables."""
    return replace(table, properties={**default_properties(session.spark), **table.properties})


def create_plain(session: SqlSession, call: Create, format: str) -> DataFrame:
    """A table without rows, or a name for a table that is there.

    Raises what :func:`trilake.delta.commands.write.create.create_table` raises, ``TableExistsError`` for a name that is
    taken, and ``SchemaMismatchError`` where a table at the place is another than the statement says.
    """
    place = place_of_new(session, call, format)
    if place.exists and call.if_not_exists:
        return nothing(session)
    schema = StructType(tuple(field_of(c) for c in call.columns))
    if format != "delta":
        return create_other(session, call, place, to_spark(schema))
    log = session_log(session.spark, open_store(place.path))
    table = _with_defaults(session, _description(call, schema, None))
    with named(session, place) as name:
        there = log.exists()
        if there and (place.parts is None or not place.exists):
            _same_table(log, _description(call, schema, None))
        elif not table.schema.fields:
            _no_columns(place)
        else:
            create_table(log, table, mode=_mode(call, exists=there))
        for constraint, condition in call.checks:
            Alter(log).add_constraint(constraint, condition)
        name(log)
    return nothing(session)


def _no_columns(place: Place) -> None:
    raise SchemaMismatchError(
        "a table needs at least one column, and there is no table at its place that has some",
        help="name the columns, or a LOCATION where a table is",
        file=place.path,
    )


def _mode(call: Create, *, exists: bool) -> CreateMode:
    if call.replace:
        return "create_or_replace" if call.create else "replace"
    return "create"


def _same_table(log: DeltaLog, table: TableDescription) -> None:
    """See that a table which is there is the one that a statement describes.  Raises ``SchemaMismatchError``."""
    head = log.head()
    have = head.schema
    if table.schema.fields:
        wanted = [(f.name.lower(), str(f.type), f.nullable) for f in table.schema.fields]
        if sorted(wanted) != sorted((f.name.lower(), str(f.type), f.nullable) for f in have.fields):
            raise SchemaMismatchError(
                "[DELTA_CREATE_TABLE_SCHEME_MISMATCH] a table is there whose columns are others:"
                f" {', '.join(f'{f.name} {f.type}' for f in have.fields)}",
                help="leave the columns out, or say what they are",
                file=log.store.uri,
            )
        if [c.lower() for c in table.partition_by] != [c.lower() for c in head.metadata.partition_columns]:
            raise SchemaMismatchError(
                "[DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING] a table is there that is partitioned by"
                f" {list(head.metadata.partition_columns)}",
                help="leave columns and partitions out, or say what they are",
                file=log.store.uri,
            )
    asked = parse_properties(table.properties)
    if table.properties and asked.values != dict(head.metadata.configuration):
        raise SchemaMismatchError(
            "[DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY] a table is there whose properties are"
            f" {dict(head.metadata.configuration)}",
            help="leave TBLPROPERTIES out, and change them with ALTER TABLE",
            file=log.store.uri,
        )


# --- with rows -------------------------------------------------------------------------------------------------------


def create_as_select(session: SqlSession, call: Create, format: str) -> DataFrame:
    """A table with the rows of a query, as one commit."""
    if call.columns or call.partition_columns:
        raise InvalidArgumentError(
            "a table with the rows of a query has the query's columns", help="leave the list of columns out"
        )
    assert call.query is not None
    place = place_of_new(session, call, format)
    if place.exists and call.if_not_exists:
        return nothing(session)
    frame = query(session, call.query)
    if format != "delta":
        return create_other(session, call, place, frame.schema, frame)
    schema = from_spark(frame.schema)
    log = session_log(session.spark, open_store(place.path))
    table = _with_defaults(session, _description(call, schema, None))
    there = log.exists()
    if there and not call.replace:
        raise SchemaMismatchError(
            f"a table is at {place.path} already, which the rows of a query cannot be put into",
            help="write INSERT INTO, or CREATE OR REPLACE TABLE",
            file=place.path,
        )
    verb = " OR ".join(w for w, said in (("CREATE", call.create), ("REPLACE", call.replace)) if said)
    operation = f"{verb} TABLE AS SELECT"
    request = WriteRequest(
        mode="overwrite" if there else "error",
        schema=schema,
        schema_mode="overwrite" if there else None,
        operation=operation,
        parameters={
            "isManaged": "true" if place.managed else "false",
            "description": call.comment,
            "partitionBy": list(call.partition_by),
            "clusterBy": [path_text(c) for c in call.cluster_by],
            "properties": dict(call.properties),
        },
        description=table,
    )
    with named(session, place) as name:
        write_dataframe(frame, place.path, {}, request, decided=("partitionOverwriteMode", "mergeSchema"))
        name(log)
    return nothing(session)


# --- like another table ----------------------------------------------------------------------------------------------


def create_like(session: SqlSession, call: Create, format: str) -> DataFrame:
    """A table without rows with the columns of another table or view.  Raises ``TableNotFoundError``."""
    assert call.like is not None
    place = place_of_new(session, call, format)
    if place.exists and call.if_not_exists:
        return nothing(session)
    source = resolve(session, call.like)
    if isinstance(source, Target) and source.format == "delta" and format == "delta":
        table = _like_delta(source.log, call)
    else:
        if source is None:
            frame = session.run(f"SELECT * FROM {catalogue.quoted(call.like)} LIMIT 0")
            inside = _partition_columns(session, call.like)
        else:
            from trilake.sql.session.relations import frame_of_name

            frame, inside = frame_of_name(session, source), ()
        if format != "delta":
            return create_other(session, call, place, frame.schema)
        table = replace(_description(call, from_spark(frame.schema), None), partition_by=inside)
    log = session_log(session.spark, open_store(place.path))
    with named(session, place) as name:
        create_table(log, table, mode=_mode(call, exists=log.exists()))
        name(log)
    return nothing(session)


def _partition_columns(session: SqlSession, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(c.name for c in session.spark.catalog.listColumns(catalogue.quoted(parts)) if c.isPartition)


def _like_delta(source: DeltaLog, call: Create) -> TableDescription:
    head = source.head()
    kept: dict[str, Any] = {
        k: v for k, v in head.metadata.configuration.items() if not k.startswith("delta.columnMapping.max")
    }
    return TableDescription(
        head.schema,
        tuple(head.metadata.partition_columns),
        {**kept, **call.properties},
        call.comment if call.comment is not None else head.metadata.description,
    )


__all__ = ["View", "create_as_select", "create_like", "create_plain", "field_of"]
