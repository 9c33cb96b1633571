"""TRUNCATE as it is written: all rows of a table, or those of some partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trilake.delta.protocol.schema import StructField
from trilake.delta.protocol.sql_types import type_text
from trilake.sql.grammar.insert import own_partitions, partition_clause
from trilake.sql.text.cursor import Cursor
from trilake.text import quote_name


@dataclass(frozen=True)
class Truncate:
    """A TRUNCATE as it was written; ``partition`` are the values of partition columns as SQL."""

    parts: tuple[str, ...]
    partition: Mapping[str, str]

    def condition(self, fields: Sequence[StructField], path: str) -> str | None:
        """Which rows go, where ``fields`` are the partition columns of the table; ``None`` for all.

        Raises ``InvalidArgumentError`` for a column that the table is not partitioned by.
        """
        values = own_partitions(self.partition, (), [f.name for f in fields], path)
        types = {f.name: type_text(f.type) for f in fields}
        tests = [f"{quote_name(n)} <=> CAST({v} AS {types[n]})" for n, v in values.items()]
        return " AND ".join(tests) or None


def parse_truncate(cursor: Cursor) -> Truncate:
    """``TRUNCATE TABLE name [PARTITION (column = value, ...)]``.  Raises ``SyntaxProblem``."""
    cursor.expect("TRUNCATE", "TABLE")
    parts = cursor.name()
    static, dynamic = partition_clause(cursor)
    if dynamic:
        cursor.fail()  # without a value it would say nothing of which rows
    cursor.end()
    return Truncate(parts, static)
