"""CREATE VIEW and ALTER VIEW over trilake tables.

For a permanent view, Spark first creates one with the same columns and no tables; then its SQL is replaced.  A
temporary view is created from the DataFrame, and the session keeps its SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from trilake.common.text import plural, quote_name
from trilake.errors import InvalidArgumentError, UnsupportedSparkError
from trilake.spark.catalog.entries import change_view
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.tokens import Token
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.frame_views import query_here
from trilake.sql.spark.session.relations import in_namespace_of, names_trilake_table, query, relations_of
from trilake.sql.spark.session.session import SqlSession, nothing
from trilake.sql.spark.session.targets import (
    View,
    find_entry,
    full_parts,
    is_spark_temp_view,
    keep_view,
    resolve,
    temporary_view,
)


@dataclass(frozen=True)
class CreateView:
    """A CREATE VIEW; ``head`` is the SQL before the query."""

    parts: tuple[str, ...]
    replace: bool
    temporary: bool
    is_global: bool
    columns: tuple[str, ...] | None
    head: str
    query: str


def is_view(tokens: Sequence[Token]) -> bool:
    """Whether a CREATE creates a view."""
    words = [t.upper for t in tokens[:6]]
    return "VIEW" in words and not {"TABLE", "FUNCTION", "SCHEMA", "DATABASE"} & set(words[: words.index("VIEW")])


def parse_view(cursor: Cursor) -> CreateView | None:
    """Parse the statement; ``None`` for a view without a query.  Raises ``SyntaxProblem``."""
    cursor.expect("CREATE")
    replace = cursor.accept("OR", "REPLACE")
    is_global = cursor.accept("GLOBAL")
    temporary = cursor.accept("TEMPORARY") or cursor.accept("TEMP")
    cursor.expect("VIEW")
    cursor.accept("IF", "NOT", "EXISTS")
    parts = cursor.name()
    columns = None
    if cursor.is_symbol("("):
        columns = tuple(piece.part() for piece in cursor.pieces())
    while not cursor.done and not cursor.is_any("AS"):
        token = cursor.take()
        if token.upper == "USING":
            return None
    if cursor.done:
        return None
    cursor.expect("AS")
    head = cursor.sql[: cursor.tokens[cursor.at - 1].end]
    return CreateView(parts, replace, temporary, is_global, columns, head, cursor.rest())


def create_view(session: SqlSession, sql: str) -> DataFrame | None:
    """Create a view over trilake tables; ``None`` for any other view."""
    if session.classic and not jvm.parses(session.parser, sql):
        return None
    call = parse_view(Cursor(sql))
    if call is None or not names_trilake_table(session, call.query):
        return None
    if call.replace:
        _check_acyclic(session, call.parts, call.query, temporary=call.temporary)
    frame = query(session, call.query)
    if call.columns is not None and len(call.columns) != len(frame.columns):
        raise InvalidArgumentError(
            f"the view lists {plural(len(call.columns), 'column')}, but its query has {len(frame.columns)}",
            help="list a name for each column of the query",
        )
    if call.temporary:
        return _temporary(session, call, frame)
    _check_permanent(session, call.parts, call.query)
    session.run(f"{call.head} {stub(frame)}")
    set_view_sql(session, call.parts, call.query)
    return nothing(session)


def _check_permanent(session: SqlSession, parts: tuple[str, ...], sql: str) -> None:
    """Raise ``UnsupportedSparkError`` in a Connect session, where a view's SQL cannot be replaced, and
    ``InvalidArgumentError`` for a query that reads a temporary view, which other sessions do not have."""
    name = ".".join(parts)
    if not session.classic:
        raise UnsupportedSparkError(
            f"over Spark Connect, a permanent view over trilake tables cannot be created: {name}",
            help="create a temporary view, or use a classic session",
        )
    for relation in relations_of(session, sql):
        if is_spark_temp_view(session, relation.parts):
            raise InvalidArgumentError(
                f"the permanent view {name} cannot read the temporary view {'.'.join(relation.parts)}",
                help="make both views temporary, or both permanent",
                condition="INVALID_TEMP_OBJ_REFERENCE",
            )


def _temporary(session: SqlSession, call: CreateView, frame: DataFrame) -> DataFrame:
    renamed = frame if call.columns is None else frame.toDF(*call.columns)
    name = call.parts[-1]
    quoted = quote_name(name)
    if call.is_global:
        (renamed.createOrReplaceGlobalTempView if call.replace else renamed.createGlobalTempView)(quoted)
    else:
        (renamed.createOrReplaceTempView if call.replace else renamed.createTempView)(quoted)
    parts = (session.global_database, name) if call.is_global else (name,)
    keep_view(session, parts, query_here(session, call.query), frame, columns=call.columns)
    return nothing(session)


def _check_acyclic(session: SqlSession, parts: tuple[str, ...], sql: str, *, temporary: bool) -> None:
    """Raise ``InvalidArgumentError`` for a query that reads the view that it replaces."""
    identity = _identity(session, parts, temporary=temporary)
    seen = {identity}
    waiting = [query_here(session, sql)]
    while waiting:
        below = waiting.pop()
        with in_namespace_of(session, below):
            views = [
                v for v in (resolve(session, r.parts) for r in relations_of(session, below.sql)) if isinstance(v, View)
            ]
            for view in views:
                other_identity = _identity(session, view.parts, temporary=view.temporary is not None)
                if other_identity == identity:
                    raise InvalidArgumentError(
                        f"the view {'.'.join(parts)} cannot select from itself",
                        help="give the new view another name",
                        condition="RECURSIVE_VIEW",
                    )
                if other_identity not in seen:
                    seen.add(other_identity)
                    waiting += [] if view.query is None else [view.query]


def _identity(session: SqlSession, parts: tuple[str, ...], *, temporary: bool) -> tuple[str, ...]:
    return tuple(p.lower() for p in (parts if temporary else full_parts(session, parts)))


def stub(frame: DataFrame) -> str:
    """A query without tables that has a DataFrame's columns."""
    columns = [f"CAST(NULL AS {f.dataType.simpleString()}) AS {quote_name(f.name)}" for f in frame.schema.fields]
    return f"SELECT {', '.join(columns)}"


def set_view_sql(session: SqlSession, parts: tuple[str, ...], sql: str) -> None:
    """Set a permanent view's SQL."""
    entry = find_entry(session, parts)
    if entry is not None and session.classic:
        change_view(session.spark, entry, sql)


def alter_view(session: SqlSession, sql: str) -> DataFrame | None:
    """Run ``ALTER VIEW name AS query`` over trilake tables; ``None`` for any other."""
    cursor = Cursor(sql)
    cursor.expect("ALTER", "VIEW")
    parts = cursor.name()
    if not cursor.accept("AS"):
        return None
    head = sql[: cursor.tokens[cursor.at - 1].end]
    body = cursor.rest()
    if not names_trilake_table(session, body):
        return None
    temporary = temporary_view(session, parts) is not None
    _check_acyclic(session, parts, body, temporary=temporary)
    frame = query(session, body)
    if temporary:
        name = quote_name(parts[-1])
        (frame.createOrReplaceTempView if len(parts) == 1 else frame.createOrReplaceGlobalTempView)(name)
        keep_view(session, parts, query_here(session, body), frame)
        return nothing(session)
    _check_permanent(session, parts, body)
    session.run(f"{head} {stub(frame)}")
    set_view_sql(session, parts, body)
    return nothing(session)
