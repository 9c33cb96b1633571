"""EXECUTE IMMEDIATE: run a string as a statement, with parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trilake.common.text import quote_parts
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.literals import Args
from trilake.sql.spark.session.placeholders import literal
from trilake.sql.spark.session.relations import names_trilake_table
from trilake.sql.spark.session.session import SqlSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def execute_immediate(
    session: SqlSession,
    cursor: Cursor,
    args: Args,
    *,
    run: Callable[[SqlSession, str, Args], DataFrame],
    concerns: Callable[[SqlSession, str], bool],
) -> DataFrame | None:
    """Run a statement over trilake tables; ``None`` to leave it to Spark."""
    sql = session.value(cursor.sql_until("INTO", "USING"), args)
    into: list[tuple[str, ...]] = []
    if cursor.accept("INTO"):
        into = [Cursor(t).name() for t in items(cursor.sql_until("USING"))]
    parameters: Args = None
    if cursor.accept("USING"):
        parameters = _parameters(session, cursor.rest(), args)
    if not isinstance(sql, str) or not (concerns(session, sql) or names_trilake_table(session, sql)):
        return None
    frame = run(session, sql, parameters)
    if not into:
        return frame
    rows = frame.limit(2).collect()
    if len(rows) > 1:
        raise InvalidArgumentError(
            "EXECUTE IMMEDIATE ... INTO expects at most one row, the query returned more",
            help="add LIMIT 1",
            condition="ROW_SUBQUERY_TOO_MANY_ROWS",
        )
    values = [None] * len(into) if not rows else list(rows[0])
    for name, value in zip(into, values, strict=True):
        session.run(f"SET VAR {quote_parts(name)} = {literal(session, value)}")
    return frame.limit(0)


def _parameters(session: SqlSession, sql: str, args: Args) -> Args:
    """The values of USING, by name or in order."""
    sql = sql.strip()
    if sql.startswith("(") and Cursor(sql).brackets()[1] + 1 >= len(sql):
        sql = sql[1:-1]
    parts = items(sql)
    row = session.run(f"SELECT {', '.join(parts)}", args).collect()[0]
    names = [name for name in map(_name, parts) if name is not None]
    return dict(zip(names, row, strict=True)) if len(names) == len(parts) else list(row)


def _name(sql: str) -> str | None:
    cursor = Cursor(sql)
    cursor.until("AS")
    return cursor.part() if cursor.accept("AS") else None
