"""The relations of queries in a Spark Connect session, without the JVM: sqlglot parses them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.tokens import AFTER_RELATION, Token
from trilake.sql.spark.session.jvm import Relation, alias_follows, pass_sample

_log = logging.getLogger("trilake.sql")
_VERSIONS, _TIMES = ("VERSION", "SYSTEM_VERSION"), ("TIMESTAMP", "SYSTEM_TIME")
#: Words before ``AS OF`` that sqlglot does not know, and their synonyms.
_SAME = {"SYSTEM_VERSION": "VERSION", "SYSTEM_TIME": "TIMESTAMP"}
#: Words that a query may follow.
_BEFORE_QUERY = ("UNION", "EXCEPT", "INTERSECT", "MINUS", "ALL", "DISTINCT", "AS")
#: Words that a table may follow.
_BEFORE_TABLE = ("FROM", "JOIN")
#: Words of an expression that an operand follows.
_NOT_BEFORE_ALIAS = ("DIV", "TO", "INTERVAL", "AND", "OR", "NOT")
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


def relations(sql: str) -> Iterator[Relation]:
    """The tables, views and table functions that a query names; none if sqlglot cannot parse it.

    >>> [r.parts for r in relations("WITH q AS (SELECT * FROM a) SELECT * FROM q JOIN db.b")]
    [('db', 'b'), ('a',)]
    """
    readable = _readable(sql)
    try:
        tree = parse_one(readable.sql, dialect="databricks")
    except SqlglotError as e:
        _log.info("cannot parse a query, so Spark runs it unchanged: %s", e)
        return
    for table in tree.find_all(exp.Table):
        parts = [p for p in table.parts if isinstance(p, exp.Identifier)]
        if isinstance(table.this, exp.Func):
            relation = _function(sql, table)
            if relation is not None:
                yield relation
        elif parts and not (len(parts) == 1 and parts[0].name.lower() in _ctes(table)):
            start = readable.source_index(int(parts[0].meta["start"]))
            end = readable.source_index(int(parts[-1].meta["end"])) + 1
            travel = _travel_end(sql, end)
            yield Relation(tuple(p.name for p in parts), start, end, travel, _has_alias(sql, travel or end))


def _readable(sql: str) -> Edited:
    """Rewrite for sqlglot: ``TABLE t`` as ``SELECT * FROM t``, synonyms before ``AS OF``, ``STREAM t`` as ``t``.

    >>> _readable("TABLE t UNION SELECT * FROM t FOR SYSTEM_VERSION AS OF 0").sql
    'SELECT * FROM t UNION SELECT * FROM t FOR VERSION AS OF 0'
    >>> [_readable(f"SELECT * FROM {name} AS u").sql for name in ("STREAM(d.t)", "STREAM t")]
    ['SELECT * FROM d.t AS u', 'SELECT * FROM  t AS u']
    """
    cursor, edits = Cursor(sql), []
    while (token := cursor.token) is not None:
        before = cursor.tokens[cursor.at - 1] if cursor.at else None
        behind = cursor.tokens[cursor.at + 1] if cursor.at + 1 < len(cursor.tokens) else None
        if token.upper in _SAME and cursor.is_word("AS", "OF", ahead=1):
            edits.append(Edit(token.start, token.end, _SAME[token.upper]))
        begins = before is None or before.text in ("(", ")") or before.upper in _BEFORE_QUERY
        if token.upper == "TABLE" and begins and behind is not None and behind.is_name:
            edits.append(Edit(token.start, token.end, "SELECT * FROM"))
        if token.upper == "STREAM" and before is not None and (before.upper in _BEFORE_TABLE or before.text == ","):
            edits += _stream(cursor)
        cursor.at += 1
    return Edited.of(sql, edits)


def _stream(cursor: Cursor) -> list[Edit]:
    """The edits that turn ``STREAM t`` and ``STREAM(t)`` into ``t``; none for a table named ``stream``."""
    word, behind = cursor.tokens[cursor.at], cursor.tokens[cursor.at + 1 :]
    if behind and behind[0].is_name and behind[0].upper not in AFTER_RELATION:
        return [Edit(word.start, word.end, "")]
    if not behind or behind[0].text != "(":
        return []
    end = next((t for t in behind[1:] if not (t.is_name or t.text == ".")), None)
    if end is None or end.text != ")":
        return []
    return [Edit(word.start, behind[0].end, ""), Edit(end.start, end.end, "")]


def _ctes(node: Any) -> set[str]:
    """The common table expressions in scope at a node, in lower case."""
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


def _function(sql: str, table: exp.Table) -> Relation | None:
    name = table.this.name if isinstance(table.this, exp.Anonymous) else ""
    cursor = Cursor(sql)
    while cursor.token is not None:
        if cursor.token.is_name and cursor.token.name.lower() == name.lower() and cursor.is_symbol("(", ahead=1):
            return Relation((name,), cursor.token.start, cursor.token.end, function=True)
        cursor.at += 1
    return None


def _cursor_at(sql: str, index: int) -> Cursor:
    cursor = Cursor(sql)
    cursor.at = next((i for i, t in enumerate(cursor.tokens) if t.start >= index), len(cursor.tokens))
    return cursor


def _travel_end(sql: str, end: int) -> int | None:
    """The position after a version; ``None`` if there is none.

    >>> sql = "t TIMESTAMP AS OF current_timestamp() - INTERVAL 2 SECONDS x WHERE x.n > 0"
    >>> sql[_travel_end(sql, 1) :]
    ' x WHERE x.n > 0'
    """
    cursor = _cursor_at(sql, end)
    cursor.accept("FOR")
    if any(cursor.accept(w, "AS", "OF") for w in _VERSIONS):
        cursor.take()
    elif any(cursor.accept(w, "AS", "OF") for w in _TIMES):
        start = cursor.at
        cursor.until(*AFTER_RELATION, "AS", "TABLESAMPLE", symbols=",;")
        while cursor.is_any("LEFT", "RIGHT") and cursor.is_symbol("(", ahead=1):  # the functions
            cursor.take()
            cursor.until(*AFTER_RELATION, "AS", "TABLESAMPLE", symbols=",;")
        if _is_alias(cursor.tokens[start : cursor.at]):
            cursor.at -= 1
    else:
        return None
    return cursor.tokens[cursor.at - 1].end


def _is_alias(tokens: Sequence[Token]) -> bool:
    """Whether the last token, after an expression, is an alias without ``AS``."""
    if len(tokens) < 2 or not tokens[-1].is_name:
        return False
    last, before = tokens[-1], tokens[-2]
    interval = any(t.upper == "INTERVAL" for t in tokens)
    if last.upper == "END" or (interval and last.upper.rstrip("S") in _UNITS):
        return False
    return before.symbol in (")", "]") if before.kind == "symbol" else before.upper not in _NOT_BEFORE_ALIAS


def _has_alias(sql: str, end: int) -> bool:
    cursor = _cursor_at(sql, end)
    pass_sample(cursor)
    return cursor.is_any("AS") or alias_follows(cursor)
