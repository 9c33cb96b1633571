"""Parameters of a command put in as literals."""

from __future__ import annotations

from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.sql.session.session import SqlSession
from trilake.sql.text.literals import Args, with_values
from trilake.sql.text.literals import literal as plain_literal


def with_parameters(session: SqlSession, text: str, args: Args) -> str:
    """A statement with literals in place of its parameter markers.

    Raises ``InvalidArgumentError`` for a parameter without a value.
    """
    return with_values(text, args, lambda value: literal(session, value))


def literal(session: SqlSession, value: Any) -> str:
    """A Python value, or a column that needs no row, as SQL.  Raises ``InvalidArgumentError`` for anything else."""

    def column(other: Any) -> str:
        if type(other).__name__ != "Column":
            raise InvalidArgumentError(f"a {type(other).__name__} cannot be a parameter")
        return literal(session, session.spark.range(1).select(other).collect()[0][0])

    return plain_literal(value, column)
