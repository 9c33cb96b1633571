"""Names of our tables in the session's catalogue, such that every engine understands them.

A name has provider, location, columns and properties, as delta-spark leaves them: nothing of our own is noted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trilake.delta.log.log import DeltaLog, Head
from trilake.delta.scan.scan import read_schema
from trilake.spark.session.schemas import to_spark
from trilake.sql.session import jvm
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import Target, full_parts
from trilake.sql.text.tokens import quote_name
from trilake.storage import open_store


def quoted(parts: tuple[str, ...]) -> str:
    """A name as SQL."""
    return ".".join(quote_name(p) for p in parts)


def default_place(session: SqlSession, parts: tuple[str, ...]) -> str:
    """Where the catalogue keeps a table of that name that says no place."""
    database, table = full_parts(session, parts)
    if session.classic:
        where = jvm.database_location(session.spark, database)
    else:
        about = {r[0]: r[1] for r in session.run(f"DESCRIBE DATABASE {quote_name(database)}").collect()}
        where = jvm.decoded(str(about["Location"]))
    return f"{where.rstrip('/')}/{table.lower()}"


def add(
    session: SqlSession,
    parts: tuple[str, ...],
    path: str,
    schema_json: str,
    *,
    format: str = "delta",
    managed: bool,
    comment: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Make a name for a table; the files are not touched.

    Raises Spark's ``TABLE_OR_VIEW_ALREADY_EXISTS`` where the name is taken.
    """
    database, table = full_parts(session, parts)
    if session.classic:
        entry = jvm.new_entry(
            session.spark,
            database,
            table,
            format,
            path,
            schema_json,
            managed=managed,
            comment=comment,
            properties=dict(properties or {}),
        )
        session.spark._jsparkSession.sessionState().catalog().createTable(entry, False, False)
        return
    from pyspark.sql import types as T

    session.spark.catalog.createTable(
        f"{quote_name(database)}.{quote_name(table)}",
        path=path,
        source=format,
        schema=T.StructType.fromJson(json.loads(schema_json)),
        description=comment or "",
    )


def add_delta(session: SqlSession, parts: tuple[str, ...], path: str, *, managed: bool) -> None:
    """Make a name for the Delta table at a path."""
    head = DeltaLog(open_store(path)).head()
    add(session, parts, path, managed=managed, **_about(head))


def _about(head: Head) -> dict[str, Any]:
    return {
        "schema_json": to_spark(read_schema(head.schema)).json(),
        "comment": head.metadata.description,
        "properties": head.metadata.configuration,
    }


def refresh(session: SqlSession, target: Target) -> None:
    """Let the name of a Delta table show what the table is now; nothing for a path."""
    entry = target.entry
    if entry is None or target.format != "delta":
        return
    head = target.log.head()
    if session.classic:
        about = _about(head)
        jvm.change_entry(session.spark, entry, **about)


def remove(session: SqlSession, target: Target) -> None:
    """Take a name away; the files stay."""
    entry = target.entry
    assert entry is not None
    if session.classic:
        jvm.remove_entry(session.spark, entry)
    else:
        session.run(f"DROP TABLE {quote_name(entry.database)}.{quote_name(entry.table)}")
