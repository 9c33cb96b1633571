"""Spark Connect, without the JVM: sqlglot parses queries, and SHOW statements read the catalog."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from trilake.common.text import quote_parts
from trilake.spark.delta.names.entries import decoded, entry_rows
from trilake.spark.session.bypass import bypass
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.places import Edit, Edited
from trilake.sql.parser.tokens import AFTER_RELATION
from trilake.sql.spark.session.jvm import Entry, Relation, ViewForm, alias_follows, pass_sample
from trilake.sql.spark.session.session import SqlSession

_log = logging.getLogger("trilake.sql")
_VERSIONS, _TIMES = ("VERSION", "SYSTEM_VERSION"), ("TIMESTAMP", "SYSTEM_TIME")
#: Words before ``AS OF`` that sqlglot does not know, and their synonyms.
_SAME = {"SYSTEM_VERSION": "VERSION", "SYSTEM_TIME": "TIMESTAMP"}
#: Words that a query may follow.
_BEFORE_QUERY = ("UNION", "EXCEPT", "INTERSECT", "MINUS", "ALL", "DISTINCT", "AS")
#: Words that a table may follow.
_BEFORE_TABLE = ("FROM", "JOIN")
_OPERATORS = ("+", "-", "*", "/", "%", "||", "&", "|", "^")
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
    """The edits that make ``STREAM t`` and ``STREAM(t)`` ``t``; none for a table named ``stream``."""
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
        _pass_operand(cursor)
        while _is_one_of(cursor, _OPERATORS) or cursor.is_word("DIV"):
            cursor.take()
            _pass_operand(cursor)
    else:
        return None
    return cursor.tokens[cursor.at - 1].end


def _pass_operand(cursor: Cursor) -> None:
    while _is_one_of(cursor, ("+", "-", "~")):
        cursor.take()
    if cursor.is_symbol("("):
        cursor.brackets()
    elif cursor.accept("CASE"):
        cursor.until("END")  # nested ones are skipped
        cursor.accept("END")
    elif cursor.accept("INTERVAL"):
        _pass_interval(cursor)
    else:
        token = cursor.take()
        while token.is_name and cursor.accept_symbol("."):
            cursor.take()
        while cursor.token is not None and cursor.token.kind == "string":
            cursor.take()
        if token.is_name and cursor.is_symbol("("):
            cursor.brackets()
    while True:
        if cursor.accept_symbol("["):
            cursor.until(symbols="]")
            cursor.accept_symbol("]")
        elif cursor.accept_symbol("::"):
            cursor.take()
        else:
            return


def _pass_interval(cursor: Cursor) -> None:
    """Skip what follows ``INTERVAL``: values with units, or a string."""
    while True:
        if _is_one_of(cursor, ("+", "-")):
            cursor.take()
        if cursor.is_symbol("("):
            cursor.brackets()
        else:
            cursor.take()
        if not _is_unit(cursor):
            return
        cursor.take()
        if cursor.accept("TO"):
            cursor.take()
        signed = int(_is_one_of(cursor, ("+", "-")))
        value = cursor.tokens[cursor.at + signed : cursor.at + signed + 1]
        if not (value and value[0].kind in ("number", "string") and _is_unit(cursor, ahead=signed + 1)):
            return


def _is_one_of(cursor: Cursor, symbols: Sequence[str]) -> bool:
    return any(cursor.is_symbol(s) for s in symbols)


def _is_unit(cursor: Cursor, ahead: int = 0) -> bool:
    return any(cursor.is_word(u, ahead=ahead) or cursor.is_word(f"{u}S", ahead=ahead) for u in _UNITS)


def _has_alias(sql: str, end: int) -> bool:
    cursor = _cursor_at(sql, end)
    pass_sample(cursor)
    return cursor.is_any("AS") or alias_follows(cursor)


def find_entry(session: SqlSession, database: str, table: str) -> Entry | None:
    """The catalog's entry for a table or permanent view; ``None`` if there is none."""
    if not session.spark.catalog.tableExists(quote_parts((database, table))):
        return None
    for row, stated in entry_rows(session.spark, (database, table)):
        if not row["isTemporary"]:
            place, kind = stated.get("Location"), stated.get("Type", "")
            entry = Entry(
                database.lower(),
                row["tableName"],
                kind,
                stated.get("Provider", "").lower(),
                None if place is None else decoded(place),
            )
            return _described(session, entry) if entry.is_view else entry
    return None


def _described(session: SqlSession, view: Entry) -> Entry:
    """Add a view's SQL and form, which only DESCRIBE returns completely."""
    with bypass():
        rows = session.spark.sql(f"DESCRIBE TABLE EXTENDED {quote_parts((view.database, view.table))}").collect()
    sql, form = view_description([(row["col_name"], row["data_type"]) for row in rows])
    return replace(view, view_text=sql, form=form)


def view_description(rows: Sequence[tuple[str, str]]) -> tuple[str | None, ViewForm]:
    r"""Parse a view's SQL and form from the first two columns of its description.

    >>> rows = [("n", "int"), ("", ""), ("# Detailed Table Information", ""), ("View Text", "SELECT `a b`\nFROM t")]
    >>> rows += [("View Catalog and Namespace", "spark_catalog.`d b`"), ("View Query Output Columns", "[`a b`]")]
    >>> sql, form = view_description(rows)
    >>> sql
    'SELECT `a b`\nFROM t'
    >>> form.namespace, form.query_columns, form.columns
    (('spark_catalog', 'd b'), ('a b',), (('n', 'int'),))
    """
    end = next((i for i, (name, _) in enumerate(rows) if not name), len(rows))
    stated = dict(rows[end:])
    queried = stated.get("View Query Output Columns", "[]")[1:-1]
    return stated.get("View Text"), ViewForm(
        _names(stated.get("View Catalog and Namespace", ""), r"[^.`]+"),
        _names(queried, r"[^`]+?(?=, |$)"),
        tuple(rows[:end]),
    )


def _names(quoted_names: str, plain: str) -> tuple[str, ...]:
    """Split a list of names, which are in backticks or match ``plain``."""
    matches = re.findall(rf"`((?:[^`]|``)*)`|(?:(?<=, )|(?<=\.)|^)({plain})", quoted_names)
    return tuple((quoted or bare).replace("``", "`") for quoted, bare in matches)
