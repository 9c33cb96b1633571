"""Statements about trilake tables that neither query nor change rows: COMMENT, DROP, CACHE, EXPLAIN and others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from trilake.common.text import quote_name, quote_parts
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.analyze import check_columns, compute_statistics
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.maintenance import many_runner
from trilake.sql.parser.changes import parse_delete, parse_inserts, parse_merge, parse_update
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.literals import Args
from trilake.sql.parser.maintenance import parse_analyze
from trilake.sql.parser.statements import kind
from trilake.sql.parser.tokens import tokenize
from trilake.sql.spark.session import entries, jvm
from trilake.sql.spark.session.frames import cache, head_of, log_to_change, open_delta, uncache
from trilake.sql.spark.session.placeholders import with_parameters
from trilake.sql.spark.session.relations import localized, query, run_local
from trilake.sql.spark.session.session import SqlSession, nothing, rows
from trilake.sql.spark.session.targets import Target, View, resolve, target_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("trilake.sql")

#: Spark's statements that tables with a log of their files do not need, and the help.
_NOT_FOR_TABLES = {
    ("MSCK", "REPAIR", "TABLE"): "leave the statement out: the table's log lists its partitions",
    ("LOAD", "DATA"): "read the files, and add their rows with INSERT INTO",
}


def run_auxiliary(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    """Run one of these statements; ``None`` to leave it to Spark."""
    cursor = Cursor(sql)
    if cursor.is_word("ANALYZE", "TABLE"):
        return _analyze(session, sql)  # Spark's parser does not support DELTA STATISTICS
    if session.classic:
        jvm.parse_plan(session.parser, sql)  # raises for a syntax error
    if cursor.accept("EXPLAIN"):
        return _explain(session, cursor, args)
    if cursor.accept("COMMENT", "ON", "TABLE"):
        target = target_of(session, cursor.name())
        return None if target is None else _set_comment(session, target, None, cursor)
    if cursor.accept("COMMENT", "ON", "COLUMN"):
        return _comment_column(session, cursor)
    if cursor.accept("DROP", "TABLE"):
        return _drop(session, cursor)
    if cursor.accept("CACHE"):
        return _cache(session, cursor, args)
    if cursor.accept("UNCACHE", "TABLE"):
        cursor.accept("IF", "EXISTS")
        return _on_target(session, cursor, uncache)
    if cursor.accept("REFRESH"):
        cursor.accept("TABLE")
        return _on_target(session, cursor, _refresh)
    for words, help in _NOT_FOR_TABLES.items():
        if cursor.accept(*words):
            raise InvalidArgumentError(f"this statement is not supported for trilake tables: {sql.strip()}", help=help)
    return None


def _analyze(session: SqlSession, sql: str) -> DataFrame | None:
    """Collect statistics of files that lack them; ``DELTA STATISTICS``, of all files."""
    cursor = Cursor(sql)
    cursor.accept("ANALYZE", "TABLE")
    target = target_of(session, cursor.name())
    if target is None:
        return None
    call = parse_analyze(Cursor(sql))
    if target.has_log:
        table = open_delta(session, target)
        check_columns(table.snapshot, call.columns)
        if call.scan:
            run = many_runner(session.spark, table.log.store, least=8)
            compute_statistics(log_to_change(session, target), everything=call.everything, run=run)
        entries.refresh(session, target)
    return nothing(session)


def _on_target(session: SqlSession, cursor: Cursor, act: Callable[[SqlSession, Target], None]) -> DataFrame | None:
    target = target_of(session, cursor.name())
    if target is None:
        return None
    act(session, target)
    return nothing(session)


def _refresh(session: SqlSession, target: Target) -> None:
    if target.has_log:
        head_of(session, target)
        entries.refresh(session, target)


def _comment_column(session: SqlSession, cursor: Cursor) -> DataFrame | None:
    """``COMMENT ON COLUMN table.column IS 'comment'``; the longest prefix that is a table wins."""
    parts = cursor.name()
    for split in range(len(parts) - 1, 0, -1):
        target = target_of(session, parts[:split])
        if target is not None:
            return _set_comment(session, target, parts[split:], cursor)
    return None


def _set_comment(session: SqlSession, target: Target, path: tuple[str, ...] | None, cursor: Cursor) -> DataFrame:
    cursor.expect("IS")
    comment = None if cursor.accept("NULL") else cursor.string()
    head_of(session, target)
    Alter(log_to_change(session, target)).comment(comment, path)
    entries.refresh(session, target)
    return nothing(session)


def _drop(session: SqlSession, cursor: Cursor) -> DataFrame | None:
    unless = cursor.accept("IF", "EXISTS")
    parts = cursor.name()
    target = resolve(session, parts)
    if isinstance(target, View):
        if target.temporary is not None:
            return None  # Spark's DROP TABLE drops temporary views, too
        raise InvalidArgumentError(
            f"[WRONG_COMMAND_FOR_OBJECT_TYPE] {'.'.join(parts)} is a view, not a table", help="write DROP VIEW"
        )
    if target is not None and target.entry is None and unless:
        # As with delta-spark, where scripts say this before they delete a folder.
        _log.warning("DROP TABLE IF EXISTS only drops names; the files at %s are kept", target.path)
        return nothing(session)
    if target is not None and target.entry is None:
        raise InvalidArgumentError(
            f"a table named by path cannot be dropped: {target.path}",
            help="delete it with trilake.drop, or its rows with DELETE FROM",
        )
    if target is not None:
        uncache(session, target)
    return None


def _cache(session: SqlSession, cursor: Cursor, args: Args) -> DataFrame | None:
    lazy = cursor.accept("LAZY")
    cursor.expect("TABLE")
    parts = cursor.name()
    options = ""
    if cursor.accept("OPTIONS"):
        options = f" OPTIONS ({cursor.bracketed()})"
    if cursor.done:
        target = target_of(session, parts)
        if target is None:
            return None
        cache(session, target, fill=not lazy)
        return nothing(session)
    cursor.accept("AS")
    frame = query(session, cursor.rest(), args)
    frame.createTempView(quote_name(parts[-1]))
    return session.run(f"CACHE {'LAZY ' if lazy else ''}TABLE {quote_name(parts[-1])}{options}")


_MODES = ("EXTENDED", "CODEGEN", "COST", "FORMATTED", "LOGICAL")


def _explain(session: SqlSession, cursor: Cursor, args: Args) -> DataFrame:
    head = "EXPLAIN "
    if cursor.is_any(*_MODES):
        head += cursor.take().text + " "
    body = cursor.rest()
    plan = _explain_change(session, with_parameters(session, body, args))
    if plan is not None:
        return rows(session, "plan string", [(plan,)])
    return run_local(session, localized(session, body, args).after(head), args)


def _explain_change(session: SqlSession, sql: str) -> str | None:
    """The plan of a DELETE, UPDATE, MERGE or INSERT; ``None`` for any other statement."""
    word = kind(tokenize(sql))
    if word in ("DELETE", "UPDATE"):
        change = parse_delete(Cursor(sql)) if word == "DELETE" else parse_update(Cursor(sql))
        where = "" if change.condition is None else f" WHERE {change.condition}"
        scan = f"SELECT * FROM {_aliased_name(change.parts, change.alias)}{where}"
        return _detail(session, word.title(), change.parts, scan)
    if word == "INSERT":
        insert = parse_inserts(sql)[0]
        return _detail(session, "Insert", insert.parts, insert.query)
    if word == "MERGE":
        merge = parse_merge(Cursor(sql))
        target = _aliased_name(merge.parts, merge.alias)
        alias = f" AS {quote_name(merge.source_alias)}" if merge.source_alias else ""
        joined = f"SELECT * FROM {target} FULL OUTER JOIN {merge.source}{alias} ON {merge.condition}"
        return _detail(session, "Merge", merge.parts, joined)
    return None


def _aliased_name(parts: tuple[str, ...], alias: str | None) -> str:
    name = quote_parts(parts)
    return name if alias is None else f"{name} AS {quote_name(alias)}"


def _detail(session: SqlSession, what: str, parts: tuple[str, ...], sql: str) -> str:
    """The name of the change, and below it the plan of its reads."""
    plan = str(run_local(session, localized(session, sql).after("EXPLAIN ")).collect()[0][0])
    name = ".".join(parts)
    lines = plan.replace("== Physical Plan ==\n", "", 1).split("\n")
    return "\n".join(["== Physical Plan ==", f"{what} {name}", *(f"  {line}" if line else line for line in lines)])
