"""What stands in for the JVM on a Connect session: sqlglot reads queries, SHOW tells what the catalogue has."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from trilake.spark.delta.names.entries import decoded, shown_entries
from trilake.sql.session.jvm import Entry, Relation
from trilake.sql.session.session import SqlSession
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.tokens import AFTER_RELATION
from trilake.text import quote_parts

_log = logging.getLogger("trilake.sql")
_TRAVEL = ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME")


def relations(text: str) -> Iterator[Relation]:
    """The relations of a query that stand for tables, views or functions; none where sqlglot cannot read it.

    >>> [r.parts for r in relations("WITH q AS (SELECT * FROM a) SELECT * FROM q JOIN db.b")]
    [('db', 'b'), ('a',)]
    """
    try:
        tree = parse_one(text, dialect="databricks")
    except SqlglotError as e:
        _log.info("sqlglot cannot read a query, which Spark gets as it is: %s", e)
        return
    for table in tree.find_all(exp.Table):
        parts = [p for p in table.parts if isinstance(p, exp.Identifier)]
        if isinstance(table.this, exp.Func):
            relation = _function(text, table)
            if relation is not None:
                yield relation
        elif parts and not (len(parts) == 1 and parts[0].name.lower() in _ctes(table)):
            start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1
            travel = _travel_end(text, end)
            aliased = (bool(table.args.get("alias")) and travel is not None) or _has_alias(text, travel or end)
            yield Relation(tuple(p.name for p in parts), start, end, travel, aliased)


def _ctes(node: Any) -> set[str]:
    """The common table expressions that can be named where a node is, in small letters."""
    out: set[str] = set()
    inside: Any = node
    while inside is not None:
        clause = inside.args.get("with_") or inside.args.get("with")
        if clause is not None:
            out |= {c.alias.lower() for c in clause.expressions}
        if isinstance(inside, exp.CTE) and inside.parent is not None:
            # A common table expression sees those before it, and not itself.
            before = inside.parent.expressions[: inside.parent.expressions.index(inside)]
            seen = {c.alias.lower() for c in before}
            outer = inside.parent.parent
            above = _ctes(outer.parent) if outer is not None and outer.parent is not None else set()
            mine = {c.alias.lower() for c in inside.parent.expressions}
            return (out - mine) | seen | above
        inside = inside.parent
    return out


def _function(text: str, table: exp.Table) -> Relation | None:
    name = table.this.name if isinstance(table.this, exp.Anonymous) else ""
    cursor = Cursor(text)
    while cursor.token is not None:
        if cursor.token.is_name and cursor.token.name.lower() == name.lower() and cursor.is_symbol("(", ahead=1):
            return Relation((name,), cursor.token.start, cursor.token.end, function=True)
        cursor.at += 1
    return None


def _cursor_at(text: str, index: int) -> Cursor:
    cursor = Cursor(text)
    cursor.at = next((i for i, t in enumerate(cursor.tokens) if t.start >= index), len(cursor.tokens))
    return cursor


def _travel_end(text: str, end: int) -> int | None:
    """Behind the words that say a version, ``None`` where there are none."""
    cursor = _cursor_at(text, end)
    cursor.accept("FOR")
    if not any(cursor.is_word(w, "AS", "OF") for w in _TRAVEL):
        return None
    cursor.at += 3
    cursor.take()
    if cursor.token is not None and cursor.token.kind == "string":
        cursor.take()
    elif cursor.is_symbol("("):
        cursor.brackets()
    return cursor.tokens[cursor.at - 1].end


def _has_alias(text: str, end: int) -> bool:
    cursor = _cursor_at(text, end)
    if cursor.accept("TABLESAMPLE"):
        cursor.brackets()
    if cursor.is_any("AS"):
        return True
    token = cursor.token
    return token is not None and token.is_name and (token.kind == "quoted" or token.upper not in AFTER_RELATION)


def find_entry(session: SqlSession, database: str, table: str) -> Entry | None:
    """What the catalogue says of a table or permanent view; ``None`` where it has no such name."""
    if not session.spark.catalog.tableExists(quote_parts((database, table))):
        return None
    for row, stated in shown_entries(session.spark, (database, table)):
        if not row["isTemporary"]:
            place = stated.get("Location")
            return Entry(
                database.lower(),
                row["tableName"],
                stated.get("Type", ""),
                stated.get("Provider", "").lower(),
                None if place is None else decoded(place),
                stated.get("View Text"),
            )
    return None
