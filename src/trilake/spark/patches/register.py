"""``register`` and ``unregister``: add the formats to a Spark session, and remove them."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from trilake.spark.live_frames.frames import pin_all
from trilake.spark.patches.chains import classes
from trilake.spark.patches.create_statements import patch_create_table
from trilake.spark.patches.dataframe_writer import patch_dataframe_writer
from trilake.spark.patches.formats import FORMATS, sources
from trilake.spark.patches.merge_writer import patch_merge_into
from trilake.spark.patches.query_errors import patch_query_errors
from trilake.spark.patches.reader import patch_readers
from trilake.spark.patches.recorder import Action, patch, undo
from trilake.spark.patches.stream_writer import patch_streams
from trilake.spark.patches.table_writer import patch_table_writer
from trilake.spark.session.checks import check_pyspark
from trilake.spark.session.format import spark_format_named
from trilake.spark.session.sources.python_source import register_sources

_PATCHES = (
    patch_dataframe_writer,
    patch_table_writer,
    patch_merge_into,
    patch_readers,
    patch_streams,
    patch_query_errors,
    patch_create_table,
)
#: Sessions that called :func:`register`.
_sessions: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> list[str]:
    """Add trilake's formats to the readers, writers and streams of a session, but not to its SQL.

    A local session without a configured Python interpreter runs its tasks in this one.  Use :func:`trilake.install`
    for SQL, too, and :func:`trilake.session` for a new session.

    Parameters
    ----------
    spark: the session.

    Returns the names of the registered formats; if delta-spark's jar owns the name ``delta``, that name is not
    registered and a warning is logged.  Sessions from ``spark.newSession()`` are registered, too.  Raises
    ``MissingDependencyError`` without PySpark, and ``UnsupportedSparkError`` for a PySpark that is too old, or a local
    session whose tasks run an unsuitable interpreter.

    >>> import trilake
    >>> [name for name in trilake.register(spark) if "-" not in name]
    ['delta', 'lance', 'trevni']
    >>> spark.range(3).write.format("delta").mode("overwrite").save("lake/registered")
    >>> spark.read.format("delta").load("lake/registered").count()
    3
    """
    check_pyspark()
    names = register_sources(spark, sources())
    FORMATS.update({name: spark_format_named(name.removeprefix("trilake-")) for name in names})
    for install in _PATCHES:
        install()
    for cls in classes("session"):
        patch(cls, "newSession", _new_session)
    _sessions.add(spark)
    return names


def with_sources(session: SparkSession) -> SparkSession:
    """Register this process's data sources in a session that Spark has just derived from another."""
    register_sources(session, [s for s in sources() if s.name() in FORMATS])
    return session


def _new_session(original: Any, spark: SparkSession) -> Action:
    return lambda: with_sources(original())


def unregister(spark: SparkSession) -> None:
    """Undo :func:`register`: restore Spark's readers and writers, once all registered sessions have called it.

    DataFrames stay at the version that they show.  Spark cannot unregister a data source: in the session, the formats'
    names keep working as far as Spark supports them.

    Parameters
    ----------
    spark: the session; without effect if it is not registered.

    >>> import trilake
    >>> _ = trilake.register(spark)
    >>> trilake.unregister(spark)
    """
    _sessions.discard(spark)
    if _sessions:
        return
    pin_all()
    undo("register")
    FORMATS.clear()
