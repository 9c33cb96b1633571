"""Parse TRUNCATE: all rows of a table, or of some partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.insert import partition_clause


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
