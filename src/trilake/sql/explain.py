"""EXPLAIN of a change: what it reads, and what it would do with that.  Nothing runs."""

from __future__ import annotations

from trilake.sql.grammar.delete_update import parse_delete, parse_update
from trilake.sql.grammar.insert import parse_inserts
from trilake.sql.grammar.merge import parse_merge
from trilake.sql.session.relations import localized, run_local
from trilake.sql.session.session import SqlSession
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.kinds import kind
from trilake.sql.text.tokens import tokenize
from trilake.text import quote_name


def explained_change(session: SqlSession, text: str) -> str | None:
    """The plan of a DELETE, UPDATE, MERGE or INSERT as text; ``None`` for any other statement."""
    word = kind(tokenize(text))
    if word == "DELETE":
        change = parse_delete(Cursor(text))
        return _shown(session, "Delete", change.parts, _scan(change.parts, change.alias, change.condition))
    if word == "UPDATE":
        change = parse_update(Cursor(text))
        return _shown(session, "Update", change.parts, _scan(change.parts, change.alias, change.condition))
    if word == "INSERT":
        insert = parse_inserts(text)[0]
        return _shown(session, "Insert", insert.parts, insert.query)
    if word == "MERGE":
        merge = parse_merge(Cursor(text))
        target = _named(merge.parts, merge.alias)
        alias = f" AS {quote_name(merge.source_alias)}" if merge.source_alias else ""
        joined = f"SELECT * FROM {target} FULL OUTER JOIN {merge.source}{alias} ON {merge.condition}"
        return _shown(session, "Merge", merge.parts, joined)
    return None


def _named(parts: tuple[str, ...], alias: str | None) -> str:
    name = ".".join(quote_name(p) for p in parts)
    return name if alias is None else f"{name} AS {quote_name(alias)}"


def _scan(parts: tuple[str, ...], alias: str | None, condition: str | None) -> str:
    where = "" if condition is None else f" WHERE {condition}"
    return f"SELECT * FROM {_named(parts, alias)}{where}"


def _shown(session: SqlSession, what: str, parts: tuple[str, ...], text: str) -> str:
    """What the change does, above the plan of what it reads."""
    plan = str(run_local(session, localized(session, text), before="EXPLAIN ").collect()[0][0])
    name = ".".join(parts)
    lines = plan.replace("== Physical Plan ==\n", "", 1).split("\n")
    return "\n".join(["== Physical Plan ==", f"{what} {name}", *(f"  {line}" if line else line for line in lines)])
