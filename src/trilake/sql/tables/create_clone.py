"""CREATE TABLE ... CLONE: a table that holds what another one holds."""

from __future__ import annotations

from pyspark.sql import DataFrame

from trilake.delta.commands.maintenance.clone import clone
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.delta.maintenance import ManyRunner
from trilake.spark.delta.names.entries import About
from trilake.spark.delta.settings import session_log
from trilake.sql.grammar.create import Create
from trilake.sql.grammar.numbers import CLONE, numbers
from trilake.sql.session.frames import moment_ms, open_delta
from trilake.sql.session.results import counts, nothing
from trilake.sql.session.session import SqlSession
from trilake.sql.session.table_of import known_table
from trilake.sql.tables.create_place import named, place_of_new


def create_clone(session: SqlSession, call: Create) -> DataFrame:
    """Clone a table; one row of numbers.  Raises ``TableNotFoundError`` and ``TableExistsError``."""
    assert call.clone_of is not None
    source = known_table(session, call.clone_of)
    if source is None:
        raise TableNotFoundError(f"the table {'.'.join(call.clone_of)} cannot be found", help="check the name")
    if source.format != "delta":
        raise InvalidArgumentError(f"only Delta tables can be cloned, and {source.shown} is a {source.format} table")
    version, ms = None, None
    if call.travel is not None and call.travel[0] == "VERSION":
        version = int(session.value(call.travel[1]))
    elif call.travel is not None:
        ms = moment_ms(session, call.travel[1])
    table = open_delta(session, source, version, ms)
    place = place_of_new(session, call, "delta")
    if place.exists and call.if_not_exists:
        return nothing(session)
    into = session_log(session.spark, session.store(place.path))
    with named(session, place, About.of(table.snapshot)) as name:
        result = clone(
            table.snapshot,
            table.log,
            into,
            shallow=call.shallow,
            replace_target=call.replace,
            properties=call.properties,
            run=ManyRunner(session.spark, table.log.store, least=32),
        )
        name(into)
    return counts(session, **numbers(result, CLONE))
