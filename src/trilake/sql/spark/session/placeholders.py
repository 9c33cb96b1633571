"""Replace placeholders in a statement: parameters, ``IDENTIFIER('name')``, and DataFrames passed by keyword.

Example of the last: ``spark.sql("SELECT * FROM {a}", a=df)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql.sql_formatter import SQLStringFormatter

from trilake.common.text import quote_parts
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.literals import Args, with_values
from trilake.sql.parser.literals import literal as plain_literal
from trilake.sql.spark.session.session import SqlSession


def with_parameters(session: SqlSession, sql: str, args: Args) -> str:
    """Replace parameter markers with literals.  Raises ``InvalidArgumentError`` for a parameter without a value."""
    return with_values(sql, args, lambda value: literal(session, value))


def literal(session: SqlSession, value: Any) -> str:
    """Format a Python value or a constant column as SQL.  Raises ``InvalidArgumentError`` for anything else."""

    def column(other: Any) -> str:
        if type(other).__name__ != "Column":
            raise InvalidArgumentError(
                f"values of type {type(other).__name__} are not supported as parameters",
                help="pass a number, string, date, list, dict or literal column",
            )
        return literal(session, session.spark.range(1).select(other).collect()[0][0])

    return plain_literal(value, column)


def with_identifiers(session: SqlSession, sql: str, args: Args) -> str:
    """Replace IDENTIFIER clauses with the names."""
    cursor = Cursor(sql)
    edits = []
    while cursor.token is not None:
        if not (cursor.is_word("IDENTIFIER") and cursor.is_symbol("(", ahead=1)):
            cursor.at += 1
            continue
        start = cursor.take().start
        inside = cursor.brackets()
        end = cursor.tokens[cursor.at - 1].end
        value = session.value(sql[slice(*inside)], args)
        if not isinstance(value, str):
            return sql  # Spark raises
        edits.append(Edit(start, end, quote_parts(Cursor(value).name())))
    return Edited.of(sql, edits).sql


@contextmanager
def formatted(session: SqlSession, sql: str, frames: Mapping[str, Any]) -> Iterator[str]:
    """Replace ``{name}`` with temporary views of DataFrames, as PySpark does, for the block."""
    if not frames:
        yield sql
        return
    if not session.classic:
        yield from _over_connect(session, sql, frames)
        return
    formatter = SQLStringFormatter(session.spark)
    try:
        yield formatter.format(sql, **frames)
    finally:
        formatter.clear()


def _over_connect(session: SqlSession, sql: str, frames: Mapping[str, Any]) -> Iterator[str]:
    """The same over Connect, where PySpark sends DataFrames along instead of creating views."""
    from pyspark.sql.connect.sql_formatter import SQLStringFormatter as Formatter  # late: needs gRPC

    spark: Any = session.spark
    formatter: Any = Formatter(spark)
    plain = formatter.format(sql, **frames)
    with session.private_views({name: frame for frame, name in formatter._temp_views}):
        yield plain
