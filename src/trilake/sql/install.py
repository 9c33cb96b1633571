"""``install`` and ``uninstall``: a session's own ``sql``, ``table`` and ``read.table`` with tables of ours."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from trilake.spark.front.recorder import Action, patch, record_of, undo
from trilake.spark.front.register import register
from trilake.sql.session.relations import frame_of_name
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import resolve
from trilake.sql.text.cursor import Cursor, SyntaxProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader

#: Under which name Spark's methods are replaced.
_OWNER = "sql"
#: Sessions with SQL of ours, by what tells sessions apart.
_SESSIONS: dict[str, SqlSession] = {}


def install(spark: SparkSession) -> None:
    """Let a session's own SQL know tables of ours: ``spark.sql``, ``spark.table`` and ``spark.read.table``.

    Includes :func:`trilake.register`.  Statements without tables of ours are Spark's as before.  What ``newSession``
    makes of the session from then on has it too.  Doing it again changes nothing; :func:`uninstall` takes it back.

    >>> install(spark)  # doctest: +SKIP
    >>> spark.sql("CREATE TABLE t (id INT) USING delta")  # doctest: +SKIP
    """
    register(spark)
    key = session_key(spark)
    if key not in _SESSIONS:
        _SESSIONS[key] = SqlSession(spark)
    patch(type(spark), "sql", _sql, owner=_OWNER)
    patch(type(spark), "table", _table, owner=_OWNER)
    patch(type(spark.read), "table", _read_table, owner=_OWNER)
    if hasattr(type(spark), "newSession"):  # a Connect session makes none
        patch(type(spark), "newSession", _new_session, owner=_OWNER)


def uninstall(spark: SparkSession) -> None:
    """Take :func:`install` back: the session's ``sql`` is Spark's own again.  Data sources stay registered."""
    _SESSIONS.pop(session_key(spark), None)
    if not _SESSIONS:
        undo(_OWNER)


def installed(spark: SparkSession) -> SqlSession | None:
    """What is known of a session that SQL was installed into; ``None`` for another."""
    return _SESSIONS.get(session_key(spark)) if _SESSIONS else None


def session_key(spark: SparkSession) -> str:
    """What tells a session from all others, whichever of its Python objects is at hand."""
    known = spark.__dict__.get("_trilake_key")
    if known is None:
        java = getattr(spark, "_jsparkSession", None)
        known = str(getattr(spark, "session_id", id(spark))) if java is None else str(java.sessionUUID())
        spark.__dict__["_trilake_key"] = known
    return str(known)


def _sql(own: Any, spark: SparkSession, sqlQuery: Any, args: Any = None, **kwargs: Any) -> Action | None:
    session = installed(spark)
    if session is None or not isinstance(sqlQuery, str):
        return None
    from trilake.sql.statements import action  # late: sessions that never run SQL need none of it

    return action(session, own, sqlQuery, args, kwargs)


def _new_session(own: Any, spark: SparkSession) -> Action | None:
    if installed(spark) is None:
        return None

    def make() -> SparkSession:
        made: SparkSession = own()
        _SESSIONS[session_key(made)] = SqlSession(made)  # the methods are its class's, and data sources go along
        return made

    return make


def _table(own: Any, spark: SparkSession, tableName: Any) -> Action | None:
    session = installed(spark)
    return None if session is None else _named(session, tableName)


def _read_table(own: Any, reader: DataFrameReader, tableName: Any) -> Action | None:
    session = installed(reader._spark)
    record = record_of(reader)
    if session is None or record is None or record.options or record.schema is not None:
        return None
    return _named(session, tableName)


def _named(session: SqlSession, name: Any) -> Action | None:
    """How a table of ours is read by its name; ``None`` for any other name."""
    if not isinstance(name, str):
        return None
    try:
        cursor = Cursor(name)
        parts = cursor.name()
        cursor.end()
    except SyntaxProblem:
        return None
    found = resolve(session, parts)
    if found is None:
        return None

    return partial(frame_of_name, session, found)
