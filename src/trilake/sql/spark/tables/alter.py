"""ALTER TABLE of trilake tables."""

from __future__ import annotations

import logging
from functools import partial

from pyspark.sql import DataFrame

from trilake.common.text import quote_parts
from trilake.delta.commands.alter.alter_table import Alter
from trilake.errors import InvalidArgumentError, TableExistsError, UnsupportedSparkError, masked
from trilake.spark.catalog.entries import EntryContents, move_entry, permanent_entry, rename_entry
from trilake.spark.delta.reading.read import violation_finder
from trilake.spark.delta.settings import row_session
from trilake.spark.delta.storing.computed import judge_default
from trilake.spark.delta.storing.store_assignment import is_case_sensitive
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.sources.api import HAS_DATA_SOURCES
from trilake.sql.parser.alter import ExactAlter, change_table
from trilake.sql.parser.cursor import Cursor
from trilake.sql.spark.session import entries, jvm
from trilake.sql.spark.session.frames import head_of, log_to_change, uncache
from trilake.sql.spark.session.session import SqlSession, nothing
from trilake.sql.spark.session.targets import Target, View, full_parts, resolve
from trilake.sql.spark.tables.view_statements import alter_view

_log = logging.getLogger("trilake.sql")


def run_alter(session: SqlSession, sql: str) -> DataFrame | None:
    """Run an ALTER TABLE or ALTER VIEW; ``None`` to leave it to Spark."""
    cursor = Cursor(sql)
    if cursor.is_word("ALTER", "VIEW"):
        return alter_view(session, sql)
    if not cursor.accept("ALTER", "TABLE"):
        return None
    parts = cursor.name()
    target = resolve(session, parts)
    if target is None:
        return None
    if session.classic and not _delta_only(cursor):
        jvm.parse_plan(session.parser, sql)
    if isinstance(target, View):
        return None  # Spark raises
    if cursor.accept("RENAME", "TO"):
        return _rename(session, target, cursor)
    if not target.has_log:
        raise InvalidArgumentError(
            f"ALTER TABLE needs a Delta table, but {target.display_name} is a {target.format} table", file=target.path
        )
    if not target.log.exists():
        head_of(session, target)  # raises
    if cursor.accept("SET", "LOCATION"):
        return _set_location(session, target, cursor)
    kind = ExactAlter if is_case_sensitive(session.spark) else Alter
    alter = kind(
        log_to_change(session, target),
        find_violation=violation_finder(session.spark, target.path, target.options),
        session=row_session(session.spark),
        run=SparkRunner(session.spark),
        judge_default=partial(judge_default, session.spark),
        commits_always=True,
        defaults_by_feature=True,
    )
    change_table(alter, cursor)
    entries.refresh(session, target)
    return nothing(session)


def _delta_only(cursor: Cursor) -> bool:
    """Whether this form is unknown to Spark's parser, or to that of some releases."""
    return any(
        cursor.is_word(*w)
        for w in (("DROP", "FEATURE"), ("ADD", "CONSTRAINT"), ("DROP", "CONSTRAINT"), ("CLUSTER", "BY"))
    ) or any(t.upper == "SYNC" for t in cursor.tokens)


def _rename(session: SqlSession, target: Target, cursor: Cursor) -> DataFrame | None:
    entry = target.entry
    if entry is None:
        raise InvalidArgumentError(
            "a table named by path cannot be renamed", help="move its folder, or clone it", file=target.path
        )
    if HAS_DATA_SOURCES or not session.classic:
        return None  # Spark renames the entry
    # Spark before 4.0 would look for the data source, which does not exist there.
    parts = cursor.name()
    database, table = (entry.database, parts[0]) if len(parts) == 1 else full_parts(session, parts)
    if permanent_entry(session.spark, database, table) is not None:
        raise TableExistsError(
            f"[TABLE_OR_VIEW_ALREADY_EXISTS] {quote_parts((database, table))} already exists",
            help="choose another name, or drop that table first",
        )
    uncache(session, target)
    rename_entry(session.spark, ["spark_catalog", entry.database, entry.table], ["spark_catalog", database, table])
    return nothing(session)


def _set_location(session: SqlSession, target: Target, cursor: Cursor) -> DataFrame | None:
    if target.entry is None:
        raise InvalidArgumentError(
            "a table named by path has no location to change",
            help="name a table in the catalog",
            file=target.path,
            condition="DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER",
        )
    location = cursor.string()
    there = Target((target.format, location), target.format, location, options=session.options(location))
    if not there.log.exists():
        raise InvalidArgumentError(
            f"{location} does not exist, or is not a Delta table",
            help="pass the location of a Delta table",
            file=location,
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    old, new = target.log.head(), there.log.head()
    check = session.setting("spark.databricks.delta.alterLocation.bypassSchemaCheck", "false").lower() != "true"
    if check and [(f.name, str(f.type)) for f in old.schema.fields] != [
        (f.name, str(f.type)) for f in new.schema.fields
    ]:
        raise InvalidArgumentError(
            f"the table at {location} has different columns",
            help="drop the table's entry, and create it again",
            condition="DELTA_SET_LOCATION_SCHEMA_MISMATCH",
        )
    if session.classic:
        entry = target.entry
        move_entry(session.spark, ["spark_catalog", entry.database, entry.table], location, EntryContents.of(new))
        return nothing(session)
    if target.entry.managed:
        raise UnsupportedSparkError(
            f"over Spark Connect, the location of the managed table {target.display_name} cannot be changed",
            help="use a classic session, or create another table with CREATE TABLE ... LOCATION",
            file=target.path,
        )
    session.run(f"DROP TABLE {quote_parts((target.entry.database, target.entry.table))}")
    try:
        entries.add_delta(session, target.parts, location, managed=False)
    except BaseException:
        try:
            entries.add_delta(session, target.parts, target.path, managed=False)
        except Exception as e:  # noqa: BLE001 - the first error is the one to raise
            _log.warning(
                "%s is no longer in the catalog; its files are at %s: %s", target.display_name, masked(target.path), e
            )
        raise
    return nothing(session)
