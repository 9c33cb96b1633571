"""EXECUTE IMMEDIATE: run a string as a statement, with parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trilake.common.text import quote_parts
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import items
from trilake.sql.parser.literals import Args
from trilake.sql.spark.session.placeholders import literal
from trilake.sql.spark.session.relations import names_ours
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
    """Run the text of a statement that names our tables; ``None`` where it names none."""
    start, end = cursor.until("INTO", "USING")
    text = session.value(cursor.text[start:end], args)
    into: list[tuple[str, ...]] = []
    if cursor.accept("INTO"):
        a, b = cursor.until("USING")
        into = [Cursor(t).name() for t in items(cursor.text[a:b])]
    parameters: Args = None
    if cursor.accept("USING"):
        parameters = _parameters(session, cursor.rest(), args)
    if not isinstance(text, str) or not (concerns(session, text) or names_ours(session, text)):
        return None
    frame = run(session, text, parameters)
    if not into:
        return frame
    rows = frame.limit(2).collect()
    if len(rows) > 1:
        raise InvalidArgumentError(
            "a query whose values go INTO variables gave more than one row", condition="ROW_SUBQUERY_TOO_MANY_ROWS"
        )
    values = [None] * len(into) if not rows else list(rows[0])
    for name, value in zip(into, values, strict=True):
        session.run(f"SET VAR {quote_parts(name)} = {literal(session, value)}")
    return frame.limit(0)


def _parameters(session: SqlSession, text: str, args: Args) -> Args:
    """The values of USING: by name where they have names, else in order."""
    text = text.strip()
    if text.startswith("(") and Cursor(text).brackets()[1] + 1 >= len(text):
        text = text[1:-1]
    parts = items(text)
    row = session.run(f"SELECT {', '.join(parts)}", args).collect()[0]
    named_parameters = [p for p in parts if _name(p) is not None]
    if named_parameters and len(named_parameters) == len(parts):
        out: dict[str, Any] = {}
        for part, value in zip(parts, row, strict=True):
            name = _name(part)
            assert name is not None
            out[name] = value
        return out
    return list(row)


def _name(text: str) -> str | None:
    cursor = Cursor(text)
    cursor.until("AS")
    if cursor.accept("AS"):
        return cursor.part()
    return None
