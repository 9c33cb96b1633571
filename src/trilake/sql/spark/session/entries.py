"""Entries of trilake tables in the session's catalog.

An entry has a provider, location, columns and properties, like those of delta-spark, so other engines understand it.
"""

from __future__ import annotations

from contextlib import suppress

from trilake.common.text import quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, TableExistsError
from trilake.spark.catalog.entries import EntryContents, make_entry
from trilake.spark.catalog.named_tables import refresh_name
from trilake.spark.session.engine import spark_engine
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target, full_parts
from trilake.table.registry import DEFAULT

_CATALOG = "spark_catalog"


def add(
    session: SqlSession,
    parts: tuple[str, ...],
    path: str | None,
    contents: EntryContents,
    *,
    format: str,
    managed: bool,
) -> None:
    """Add an entry for a table; without a path the catalog chooses a location.  Raises Spark's
    ``TABLE_OR_VIEW_ALREADY_EXISTS`` if the name is taken."""
    name = [_CATALOG, *full_parts(session, parts)]
    make_entry(session.spark, name, contents, path=path, provider=format, managed=managed)


def add_delta(session: SqlSession, parts: tuple[str, ...], path: str, *, managed: bool) -> None:
    """Add an entry for the Delta table at a path."""
    head = DeltaLog(session.store(path), spark_engine()).head()
    add(session, parts, path, EntryContents.of(head), format=DEFAULT, managed=managed)


def refresh(session: SqlSession, target: Target) -> None:
    """Update the entry of a Delta table.  An entry with another location stays, and a dropped one stays dropped; but a
    managed table that exists without an entry was recreated by a write, and gets the entry."""
    entry = target.entry
    if entry is None or not target.has_log or not session.classic:
        return
    name = quote_parts((_CATALOG, entry.database, entry.table))
    with suppress(TableExistsError, InvalidArgumentError):  # the name now refers to another table
        refresh_name(session.spark, name, target.path, target.log, managed=entry.managed)
