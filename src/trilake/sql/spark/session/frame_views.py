"""Temporary views of DataFrames that read trilake tables.

The view of a projection of one table keeps a query, like a view created in SQL: it shows the newest rows, and
statements can change the table through it, as with delta-spark.  A view of any other DataFrame over trilake tables
shows the newest rows, too.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from trilake.common.text import quote_parts
from trilake.spark.live_frames.frames import follows
from trilake.spark.patches.recorder import Action
from trilake.spark.scan.frame_tables import note_whole_table, whole_table
from trilake.sql.parser.cursor import name_parts
from trilake.sql.parser.paths import place
from trilake.sql.parser.projections import parse_projection
from trilake.sql.spark.session.session import Query, SqlSession
from trilake.sql.spark.session.targets import Target, keep_view, resolve, temporary_view

_QUERY_ATTRIBUTE = "_trilake_query"


def query_here(session: SqlSession, sql: str) -> Query:
    """A query whose names are resolved in the current database."""
    return Query(sql, session.current_database)


def note_query(session: SqlSession, frame: DataFrame, sql: str) -> DataFrame:
    """Remember the query of a DataFrame that may be a projection of one trilake table; return the DataFrame."""
    if parse_projection(sql) is not None:
        frame.__dict__[_QUERY_ATTRIBUTE] = query_here(session, sql)
    return frame


def query_of(session: SqlSession, frame: DataFrame) -> Query | None:
    """The query behind a DataFrame; ``None`` where there is none, or it reads a view, which may be replaced."""
    table = whole_table(frame)
    if table is not None:
        return query_here(session, f"SELECT * FROM {quote_parts((table.format, place(table.path)))}")
    query = getattr(frame, "__dict__", {}).get(_QUERY_ATTRIBUTE)
    if not isinstance(query, Query) or (projection := parse_projection(query.sql)) is None:
        return None
    parts = projection.table
    if len(parts) == 1 and temporary_view(session, parts) is None:
        parts = (query.database, *parts)
    return query if isinstance(resolve(session, parts), Target) else None


def named_alike(original: Any, frame: DataFrame, alias: str) -> Action | None:
    """Alias a DataFrame that reads a table, so that it still is that table; ``None`` for any other DataFrame."""
    query, table = getattr(frame, "__dict__", {}).get(_QUERY_ATTRIBUTE), whole_table(frame)
    if query is None and table is None:
        return None

    def name() -> DataFrame:
        aliased: DataFrame = original(alias)
        if query is not None:
            aliased.__dict__[_QUERY_ATTRIBUTE] = query
        return aliased if table is None else note_whole_table(aliased, table.format, table.path)

    return name


def make_view(session: SqlSession, original: Any, frame: DataFrame, name: Any, *, is_global: bool) -> Action | None:
    """Create a temporary view of a DataFrame over tables; ``None`` to leave it to Spark."""
    parts, query = name_parts(name), query_of(session, frame)
    if (query is None and not follows(frame)) or parts is None or len(parts) != 1:
        return None

    def make() -> None:
        original(name)
        place = (session.global_database, *parts) if is_global else parts
        keep_view(session, place, query, frame, of_frame=True)

    return make
