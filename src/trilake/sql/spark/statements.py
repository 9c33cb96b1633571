"""Dispatch statements: Delta's own and those over trilake tables run here, all others in Spark.

::

    SQL --> a statement of Delta's grammar? --> run it
     |  --> no name that could be a trilake table? --> Spark, unchanged
     |  --> Spark's parser checks it --> its kind --> run it by the Python API
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trilake.spark.live_frames.frames import follow_tables_of, renewed, template_of
from trilake.sql.parser.changes import parse_delete, parse_merge, parse_truncate, parse_update
from trilake.sql.parser.cursor import Cursor, SyntaxProblem
from trilake.sql.parser.literals import Args
from trilake.sql.parser.maintenance import FIRST_WORDS, parse_maintenance
from trilake.sql.parser.statements import QUERIES, WITHOUT_TABLE, behind_ctes, kind
from trilake.sql.parser.tokens import Token, tokenize
from trilake.sql.spark.session.frame_views import note_query
from trilake.sql.spark.session.placeholders import formatted, with_identifiers, with_parameters
from trilake.sql.spark.session.problems import SqlSyntaxError, check_statement, deleted_by_spark, errors_of_spark
from trilake.sql.spark.session.relations import names_trilake_table, query
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import find_entry, not_found, resolve, target_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Runs a statement; ``None`` leaves it to Spark.
Handler: TypeAlias = "Callable[[SqlSession, str, Args], DataFrame | None]"


def action(
    session: SqlSession, original: Callable[..., DataFrame], sql: str, args: Any, frames: Mapping[str, Any]
) -> Callable[[], DataFrame] | None:
    """How to run a statement that may be trilake's; ``None`` to leave it to Spark.  Only looks up names in catalogs."""
    tokens = tokenize(sql)
    word = kind(tokens)
    if frames or word in WITHOUT_TABLE or word in FIRST_WORDS or _has_identifier_clause(tokens):
        return lambda: run(session, sql, args, frames)
    if names_trilake_table(session, sql, tokens):
        return lambda: run(session, sql, args, frames, is_trilake=True)
    return (lambda: deleted_by_spark(session, sql, args)) if word == "DELETE" else None


def run(
    session: SqlSession,
    sql: str,
    args: Any = None,
    frames: Mapping[str, Any] | None = None,
    *,
    is_trilake: bool = False,
) -> DataFrame:
    """Run one statement as ``spark.sql`` does; errors are also instances of Spark's exceptions."""
    live = tuple((frames or {}).values()) if kind(tokenize(sql)) in QUERIES else ()
    templates = {name: template_of(f) if live else renewed(f) for name, f in (frames or {}).items()}
    with formatted(session, sql, templates) as plain:
        try:
            with errors_of_spark():
                frame = follow_tables_of(run_sql(session, plain, args, is_trilake=is_trilake), *live)
                return frame if args or frames else note_query(session, frame, sql)
        except SyntaxProblem as e:
            raise SqlSyntaxError.at(plain, e) from None


def run_sql(session: SqlSession, sql: str, args: Args = None, *, is_trilake: bool = False) -> DataFrame:
    """Run one statement, without the conversions of :func:`run`."""
    original, tokens = sql, tokenize(sql)
    if _has_identifier_clause(tokens):
        sql = with_identifiers(session, sql, args)
        tokens = tokenize(sql)
    word = kind(tokens)
    if word in FIRST_WORDS:
        statement = parse_maintenance(Cursor(with_parameters(session, sql, args)))
        if statement is not None:
            from trilake.sql.spark.tables.maintenance import (
                run_maintenance,  # late: most sessions run no such statement
            )

            return run_maintenance(session, statement)
    handler = _HANDLERS.get(word, query)
    if not is_trilake and word not in WITHOUT_TABLE and not names_trilake_table(session, sql, tokens):
        return session.run(original, args)
    result = handler(session, sql, args)
    return session.run(original, args) if result is None else result


def _has_identifier_clause(tokens: Sequence[Token]) -> bool:
    return any(
        t.upper == "IDENTIFIER" and i + 1 < len(tokens) and tokens[i + 1].text == "(" for i, t in enumerate(tokens)
    )


def _insert(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.rows.insert import run_insert

    check_statement(session, sql)
    return run_insert(session, sql, args)


def _change(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.rows.dml import run_delete, run_truncate, run_update

    check_statement(session, sql)
    cursor = Cursor(with_parameters(session, sql, args))
    word = kind(cursor.tokens)
    if word == "TRUNCATE":
        truncate = parse_truncate(cursor)
        return None if target_of(session, truncate.parts) is None else run_truncate(session, truncate)
    change = parse_delete(cursor) if word == "DELETE" else parse_update(cursor)
    if resolve(session, change.parts) is not None:
        return run_delete(session, change) if word == "DELETE" else run_update(session, change)
    return deleted_by_spark(session, sql, args) if word == "DELETE" else None


def _merge(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.rows.dml import run_merge

    cursor = Cursor(with_parameters(session, sql, args))
    words = [t.upper for t in cursor.tokens[behind_ctes(cursor.tokens) :][:2]]
    if words != ["MERGE", "WITH"]:  # older releases do not know schema evolution
        check_statement(session, sql)
    merge = parse_merge(cursor)
    if len(merge.parts) == 1 and resolve(session, merge.parts) is None and find_entry(session, merge.parts) is None:
        # Spark would look for the source first, and does not find trilake tables.
        raise not_found(merge.parts)
    return run_merge(session, merge) if resolve(session, merge.parts) is not None else None


def _create(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.tables.create_tables import run_create

    return run_create(session, sql, args)


def _alter(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.tables.alter import run_alter

    return run_alter(session, with_parameters(session, sql, args))


def _show(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.show import run_show

    check_statement(session, sql)
    return run_show(session, sql)


def _execute(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.rows.script import execute_immediate

    cursor = Cursor(sql)
    if not cursor.accept("EXECUTE", "IMMEDIATE"):
        return None
    return execute_immediate(session, cursor, args, run=run_sql)


def _script(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.rows.script import run_script

    if session.spark.version.startswith("3."):
        return None  # Spark raises
    if session.classic:
        check_statement(session, sql)  # a Connect server cannot explain a script
    return run_script(session, sql, args, run=run_sql)


def _auxiliary(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    from trilake.sql.spark.auxiliary import run_auxiliary

    return run_auxiliary(session, sql, args)


_HANDLERS: dict[str, Handler] = {
    "INSERT": _insert,
    **dict.fromkeys(("DELETE", "UPDATE", "TRUNCATE"), _change),
    "MERGE": _merge,
    "CREATE": _create,
    "REPLACE": _create,
    "ALTER": _alter,
    "DESCRIBE": _show,
    "DESC": _show,
    "SHOW": _show,
    "EXECUTE": _execute,
    "BEGIN": _script,
    **dict.fromkeys(
        ("COMMENT", "DROP", "CACHE", "UNCACHE", "REFRESH", "EXPLAIN", "ANALYZE", "MSCK", "LOAD"), _auxiliary
    ),
}
