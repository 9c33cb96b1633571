"""Parse DELETE, UPDATE and TRUNCATE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trilake.sql.parser.ctes import without_ctes
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.insert import partition_clause


@dataclass(frozen=True)
class DeleteOrUpdate:
    """A DELETE or UPDATE; ``values`` are pairs of a column's name, in parts, and an expression."""

    parts: tuple[str, ...]
    alias: str | None
    values: tuple[tuple[tuple[str, ...], str], ...]
    condition: str | None


def parse_delete(cursor: Cursor) -> DeleteOrUpdate:
    """``[WITH ...] DELETE FROM name [alias] [WHERE condition]``.  Raises ``SyntaxProblem``."""
    cursor = _without_ctes(cursor)
    cursor.expect("DELETE", "FROM")
    parts, alias = cursor.name(), table_alias(cursor, "WHERE")
    return DeleteOrUpdate(parts, alias, (), _where(cursor))


def parse_update(cursor: Cursor) -> DeleteOrUpdate:
    """``[WITH ...] UPDATE name [alias] SET column = value, ... [WHERE condition]``.  Raises ``SyntaxProblem``."""
    cursor = _without_ctes(cursor)
    cursor.expect("UPDATE")
    parts, alias = cursor.name(), table_alias(cursor, "SET")
    cursor.expect("SET")
    return DeleteOrUpdate(parts, alias, assignments(cursor.sql_until("WHERE")), _where(cursor))


def _without_ctes(cursor: Cursor) -> Cursor:
    return Cursor(without_ctes(cursor.sql)[0]) if cursor.is_any("WITH") else cursor


def assignments(sql: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Parse ``a = 1, b.c = d`` into names and values.  Raises ``SyntaxProblem``."""
    out = []
    for cursor in map(Cursor, items(sql)):
        name = cursor.name()
        if not cursor.accept_symbol("=") and not cursor.accept_symbol("=="):
            cursor.fail()
        out.append((name, cursor.rest()))
    return tuple(out)


def table_alias(cursor: Cursor, *words: str) -> str | None:
    """Parse a table's alias; ``None`` where one of ``words`` follows."""
    if cursor.accept("AS"):
        return cursor.part()
    token = cursor.token
    if token is None or not token.is_name or (token.kind == "word" and token.upper in words):
        return None
    return cursor.part()


def _where(cursor: Cursor) -> str | None:
    if cursor.accept("WHERE"):
        return cursor.rest()
    cursor.end()
    return None


@dataclass(frozen=True)
class Truncate:
    """A TRUNCATE; ``partition`` are values of partition columns."""

    parts: tuple[str, ...]
    partition: Mapping[str, str]


def parse_truncate(cursor: Cursor) -> Truncate:
    """``TRUNCATE TABLE name [PARTITION (column = value, ...)]``.  Raises ``SyntaxProblem``."""
    cursor.expect("TRUNCATE", "TABLE")
    parts = cursor.name()
    static, dynamic = partition_clause(cursor)
    if dynamic:
        cursor.fail()
    cursor.end()
    return Truncate(parts, static)
