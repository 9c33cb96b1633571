"""``install`` and ``uninstall``: a session's own ``sql``, ``table`` and ``read.table`` with tables of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trilake.spark.front.register import register
from trilake.sql.session import Args, SqlSession

#: Spark's own method, on a class whose method was replaced.
_ORIGINAL = "_trilake_spark_sql"
#: Sessions with SQL of ours, by what tells sessions apart.
_SESSIONS: dict[str, SqlSession] = {}


def install(spark: SparkSession) -> None:
    """Let a session's own SQL know tables of ours: ``spark.sql``, ``spark.table`` and ``spark.read.table``.

    Includes :func:`trilake.register`.  Statements without tables of ours are Spark's as before.  Doing it again changes
    nothing; :func:`uninstall` takes it back.

    >>> install(spark)  # doctest: +SKIP
    >>> spark.sql("CREATE TABLE t (id INT) USING delta")  # doctest: +SKIP
    """
    register(spark)
    key = session_key(spark)
    if key in _SESSIONS:
        return
    _patch(type(spark))
    original = getattr(type(spark), _ORIGINAL)

    def spark_sql(text: str, args: Args) -> DataFrame:
        frame: DataFrame = original(spark, text) if args is None else original(spark, text, args)
        return frame

    _SESSIONS[key] = SqlSession(spark, spark_sql)


def uninstall(spark: SparkSession) -> None:
    """Take :func:`install` back: the session's ``sql`` is Spark's own again.  Data sources stay registered."""
    _SESSIONS.pop(session_key(spark), None)
    if not any(type(s.spark) is type(spark) for s in _SESSIONS.values()):
        _restore(type(spark))


def installed(spark: SparkSession) -> SqlSession | None:
    """What is known of a session that SQL was installed into; ``None`` for another."""
    return _SESSIONS.get(session_key(spark)) if _SESSIONS else None


def session_key(spark: SparkSession) -> str:
    """What tells a session from all others, whichever of its Python objects is at hand."""
    known = spark.__dict__.get("_trilake_key")
    if known is None:
        java = getattr(spark, "_jsparkSession", None)
        known = str(spark.session_id) if java is None else str(java.sessionUUID())
        spark.__dict__["_trilake_key"] = known
    return str(known)


def _patch(cls: Any) -> None:
    if getattr(cls, _ORIGINAL, None) is not None:
        return
    original: Callable[..., DataFrame] = cls.sql
    setattr(cls, _ORIGINAL, original)

    @functools.wraps(original)
    def sql(self: SparkSession, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        session = installed(self)
        if session is None or not isinstance(sqlQuery, str):
            return original(self, sqlQuery, args, **kwargs)
        from trilake.sql.statements import run  # late: sessions that never run SQL need none of it

        return run(session, sqlQuery, args, kwargs)

    cls.sql = sql


def _restore(cls: Any) -> None:
    original = cls.__dict__.get(_ORIGINAL)
    if original is not None:
        cls.sql = original
        delattr(cls, _ORIGINAL)
