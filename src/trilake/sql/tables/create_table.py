"""CREATE and REPLACE TABLE of our formats: described by columns, by a query, or like another table."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from trilake.delta.commands.write.create import TableDescription, create_table
from trilake.delta.log.log import DeltaLog
from trilake.delta.rules.constraints import parse_check
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.spark.delta.names.entries import About
from trilake.spark.delta.settings import default_properties, session_log
from trilake.spark.delta.write import write_dataframe
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.sql.grammar.create import Create
from trilake.sql.grammar.descriptions import (
    check_same_table,
    create_mode,
    description_like,
    description_of,
    schema_of,
    write_of_query,
)
from trilake.sql.session import catalogue
from trilake.sql.session.judge import check_values
from trilake.sql.session.relations import frame_of_name, query
from trilake.sql.session.results import nothing
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import Target, View, resolve
from trilake.sql.tables.create_other import create_other
from trilake.sql.tables.create_place import Place, named, place_of_new


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
    schema = schema_of(call)
    if format != "delta":
        return create_other(session, call, place, to_spark(schema))
    log = session_log(session.spark, session.store(place.path))
    table = _with_defaults(session, description_of(call, schema, None))
    with named(session, place, About(to_spark(schema), call.comment, call.properties)) as name:
        there = log.exists()
        new_name = place.parts is not None and not place.exists
        if there and (new_name or (place.parts is None and not table.schema.fields)):
            check_same_table(log, description_of(call, schema, None))
        elif not table.schema.fields:
            _no_columns(place)
        else:
            _judge_checks(session, table, log)
            create_table(log, table, mode=create_mode(call, exists=there))
        name(log)
    return nothing(session)


def _judge_checks(session: SqlSession, table: TableDescription, log: DeltaLog) -> None:
    """Let Spark resolve the conditions that only Spark can evaluate.  Raises what Spark raises."""
    schema, now = read_schema(table.schema), log.engine.runtime.now()
    texts = [c for n, c in table.checks if parse_check("CHECK constraint", n, c, schema, now).condition is None]
    if texts:
        check_values(session, schema, None, texts)


def _no_columns(place: Place) -> None:
    raise SchemaMismatchError(
        "a table needs at least one column, and there is no table at its place that has some",
        help="name the columns, or a LOCATION where a table is",
        file=place.path,
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
    log = session_log(session.spark, session.store(place.path))
    table = _with_defaults(session, description_of(call, schema, None))
    there = log.exists()
    request = write_of_query(call, schema, table, there=there, managed=place.managed)
    with named(session, place, About(frame.schema, call.comment, call.properties)) as name:
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
        table = description_like(source.log, call)
    else:
        if source is None:
            frame = session.run(f"SELECT * FROM {catalogue.quoted(call.like)} LIMIT 0")
            inside = _partition_columns(session, call.like)
        else:
            frame, inside = frame_of_name(session, source), ()
        if format != "delta":
            return create_other(session, call, place, frame.schema)
        table = replace(description_of(call, from_spark(frame.schema), None), partition_by=inside)
    log = session_log(session.spark, session.store(place.path))
    with named(session, place, About(to_spark(table.schema), call.comment, call.properties)) as name:
        create_table(log, table, mode=create_mode(call, exists=log.exists()))
        name(log)
    return nothing(session)


def _partition_columns(session: SqlSession, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(c.name for c in session.spark.catalog.listColumns(catalogue.quoted(parts)) if c.isPartition)


__all__ = ["View", "create_as_select", "create_like", "create_plain"]
