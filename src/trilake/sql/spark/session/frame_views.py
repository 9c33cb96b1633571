"""Views of DataFrames over trilake tables, and table names in SQL expressions of DataFrames.

The view of a projection of one table keeps a query, like a view created in SQL: it shows the newest rows, and
statements can change the table through it, as with delta-spark.  A view of any other DataFrame over trilake tables
shows the newest rows, too.

Spark does not find trilake's tables in expressions such as ``df.where("id IN (SELECT id FROM t)")``, so views of
DataFrames replace them.  Those of ``where``, ``filter`` and ``selectExpr`` in a classic session are dropped after the
call.  Those of ``F.expr``, and of a Connect session, stay, one per table name, with the rows as of the last such call;
they are global, so SHOW does not list them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, functions

from trilake.common.text import quote_parts
from trilake.spark.live_frames.frames import follow_tables_of, follows
from trilake.spark.patches.recorder import Action
from trilake.spark.scan.frame_tables import WholeTable, note, noted
from trilake.sql.parser.cursor import name_parts
from trilake.sql.parser.paths import as_path
from trilake.sql.parser.projections import parse_projection
from trilake.sql.spark.session.problems import Local, errors_of_spark, in_place
from trilake.sql.spark.session.relations import local_views, localized, names_trilake_table
from trilake.sql.spark.session.session import Query, SqlSession
from trilake.sql.spark.session.targets import keep_view, target_of, temporary_view


def query_here(session: SqlSession, sql: str) -> Query:
    """A query whose names are resolved in the current database."""
    return Query(sql, session.current_database)


def note_query(session: SqlSession, frame: DataFrame, sql: str) -> DataFrame:
    """Remember the query of a DataFrame that may be a projection of one trilake table; return the DataFrame."""
    if parse_projection(sql) is not None:
        note(frame, query_here(session, sql))
    return frame


def query_of(session: SqlSession, frame: DataFrame) -> Query | None:
    """The query behind a DataFrame; ``None`` if there is none, or it reads a view, which may be replaced."""
    table = noted(frame, WholeTable)
    if table is not None:
        return query_here(session, f"SELECT * FROM {quote_parts((table.format, as_path(table.path)))}")
    query = noted(frame, Query)
    if query is None or (projection := parse_projection(query.sql)) is None:
        return None
    parts = projection.table
    if len(parts) == 1 and temporary_view(session, parts) is None:
        parts = (query.database, *parts)
    return None if target_of(session, parts) is None else query


def named_alike(original: Any, frame: DataFrame, alias: str) -> Action | None:
    """Alias a DataFrame that reads a table, so that it still counts as that table; ``None`` for any other DataFrame."""
    query, table = noted(frame, Query), noted(frame, WholeTable)
    if query is None and table is None:
        return None

    return lambda: note(note(original(alias), query), table)


def make_view(session: SqlSession, original: Any, frame: DataFrame, name: Any, *, is_global: bool) -> Action | None:
    """Create a temporary view of a DataFrame over tables; ``None`` to leave it to Spark."""
    parts, query = name_parts(name), query_of(session, frame)
    if (query is None and not follows(frame)) or parts is None or len(parts) != 1:
        return None

    def make() -> None:
        original(name)
        view = (session.global_database, *parts) if is_global else parts
        keep_view(session, view, query, frame, of_frame=True)

    return make


# --- table names in SQL expressions of DataFrames --------------------------------------------------------------------


#: The beginning of a nested query.
_QUERY = re.compile(r"\(\s*(?:SELECT|FROM|TABLE|WITH|VALUES)\b|\(\s*\(|/\*|--", re.IGNORECASE)


def expression_functions() -> Iterator[tuple[ModuleType, str]]:
    """The functions behind ``F.expr``: patching those covers ``from functions import expr``, too."""
    yield getattr(functions, "builtin", functions), "_invoke_function"  # a separate module since PySpark 4.0
    with suppress(ImportError):  # Spark Connect's own requirements are not installed
        yield importlib.import_module("pyspark.sql.connect.functions"), "expr"


def with_queries(session: SqlSession, original: Any, expressions: Sequence[Any]) -> Action | None:
    """Run a method of a DataFrame whose arguments contain queries over trilake tables; ``None`` if none does."""
    flat = expressions[0] if len(expressions) == 1 and isinstance(expressions[0], list) else expressions
    if not any(_is_ours(session, t) for t in flat):
        return None
    return lambda: _run(session, original, flat)


def with_query(session: SqlSession, original: Any, sql: Any) -> Action | None:
    """Run ``F.expr`` with a query over a trilake table; ``None`` for any other expression."""
    if not _is_ours(session, sql):
        return None

    def make() -> Any:
        with errors_of_spark():
            local = _localized(session, sql)
            return original(sql if local is None else _with_lasting_views(session, local))

    return make


def may_hold_query(sql: Any) -> bool:
    """Whether an argument may contain a query."""
    return isinstance(sql, str) and _QUERY.search(sql) is not None


def _is_ours(session: SqlSession, sql: Any) -> bool:
    return may_hold_query(sql) and names_trilake_table(session, sql)


def _run(session: SqlSession, original: Any, expressions: Sequence[Any]) -> DataFrame:
    with errors_of_spark():
        locals_ = [_localized(session, t) if _is_ours(session, t) else None for t in expressions]
        changed = [part for part in locals_ if part is not None]
        if not session.classic:
            arguments = [
                t if part is None else _with_lasting_views(session, part)
                for t, part in zip(expressions, locals_, strict=True)
            ]
            lasting: DataFrame = original(*arguments)
            return lasting
        arguments = [t if part is None else part.sql for t, part in zip(expressions, locals_, strict=True)]
        with local_views(session, *changed, follow=True), _with_names(changed):
            out: DataFrame = follow_tables_of(
                original(*arguments), *(f for part in changed for f in part.frames.values())
            )
            return out


def _localized(session: SqlSession, sql: str) -> Local | None:
    """An expression with private names for tables; ``None`` for a syntax error, which Spark's method raises."""
    try:
        return localized(session, sql, expression=True)
    except ParseException:
        return None


@contextmanager
def _with_names(parts: Sequence[Local]) -> Iterator[None]:
    """Show the original SQL in Spark's errors, if there is only one expression."""
    try:
        yield
    except PySparkException as e:
        if len(parts) != 1:
            raise
        raise in_place(e, parts[0]) from None


def _with_lasting_views(session: SqlSession, local: Local) -> str:
    """The expression with global views for its tables, which outlive the call."""
    sql = local.sql
    for private, frame in local.frames.items():
        key = (session.current_database, local.names[private])
        with session.lock:
            name = session.lasting_views.setdefault(key, session.private_name())
        frame.createOrReplaceGlobalTempView(name)
        sql = re.sub(rf"{re.escape(private)}\b", f"{session.global_database}.{name}", sql)
    return sql
