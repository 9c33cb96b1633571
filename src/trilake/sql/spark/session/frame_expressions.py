"""Table names in SQL expressions of DataFrames: ``df.where("id IN (SELECT id FROM t)")``, ``F.expr(...)``.

Spark resolves table names there itself, and does not find trilake's.  They are replaced by views of DataFrames:

* ``where``, ``filter`` and ``selectExpr`` of a classic session are resolved at once, and their views are dropped
  after the call;
* ``F.expr``, and all expressions of a Connect session, are resolved later.  Their views stay, one per table name, and
  have the table's rows as of the last such call.  They are global, so SHOW does not list them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from trilake.spark.live_frames.frames import follow_tables_of
from trilake.spark.patches.recorder import Action
from trilake.sql.spark.session.local import Local
from trilake.sql.spark.session.problems import errors_of_spark, in_place
from trilake.sql.spark.session.relations import local_views, localized, names_trilake_table
from trilake.sql.spark.session.session import SqlSession

#: The beginning of a nested query.
_QUERY = re.compile(r"\(\s*(?:SELECT|FROM|TABLE|WITH|VALUES)\b|\(\s*\(|/\*|--", re.IGNORECASE)


def expression_functions() -> Iterator[tuple[ModuleType, str]]:
    """The functions behind ``F.expr``: patching those covers ``from functions import expr``, too."""
    yield getattr(functions, "builtin", functions), "_invoke_function"  # a module of its own since PySpark 4.0
    with suppress(ImportError):  # Spark Connect's own requirements are not installed
        yield importlib.import_module("pyspark.sql.connect.functions"), "expr"


def active_session() -> SparkSession | None:
    """The thread's active session."""
    return SparkSession.getActiveSession()


def with_queries(session: SqlSession, original: Any, expressions: Sequence[Any]) -> Action | None:
    """Run a method of a DataFrame whose arguments contain queries over trilake tables; ``None`` where none does."""
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
            return original(*arguments)  # type: ignore[no-any-return]
        arguments = [t if part is None else part.sql for t, part in zip(expressions, locals_, strict=True)]
        with local_views(session, *changed, follow=True), _places(changed):
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
def _places(parts: Sequence[Local]) -> Iterator[None]:
    """Show the original SQL in Spark's errors, where there is only one expression."""
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
