"""``register``: add the formats to a Spark session."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from trilake.spark.live_frames.frames import pin_all
from trilake.spark.patches.chains import classes
from trilake.spark.patches.create_statements import patch_create_table
from trilake.spark.patches.dataframe_writer import patch_dataframe_writer
from trilake.spark.patches.formats import FORMATS, SOURCES
from trilake.spark.patches.merge_writer import patch_merge_into
from trilake.spark.patches.query_errors import patch_read_errors, patch_stream_errors
from trilake.spark.patches.reader import patch_readers
from trilake.spark.patches.recorder import Action, patch, undo
from trilake.spark.patches.stream_writer import patch_streams
from trilake.spark.patches.table_writer import patch_table_writer
from trilake.spark.session.format import spark_format_named
from trilake.spark.session.sources.python_source import register_sources

_PATCHES = (
    patch_dataframe_writer,
    patch_table_writer,
    patch_merge_into,
    patch_readers,
    patch_streams,
    patch_read_errors,
    patch_stream_errors,
    patch_create_table,
)
#: Sessions that called :func:`register`.
_sessions: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> list[str]:
    """Register trilake's data sources, each with the format's name and with ``trilake-<name>``.

    It also adds to ``df.write`` what Spark rejects for Python data sources
    (:mod:`trilake.spark.patches.dataframe_writer`): ``df.write.format("delta").save(path)`` in all four modes,
    ``partitionBy``, ``saveAsTable`` and ``insertInto``.

    Streams of these formats support ``partitionBy``, ``toTable`` and ``readStream.table``
    (:mod:`trilake.spark.patches.stream_writer`).

    ``spark.read.format("delta").load(path)``, ``spark.read.table(name)`` and ``spark.table(name)`` return DataFrames
    over Spark's own scan if possible (:mod:`trilake.spark.patches.reader`).

    If delta-spark's jar owns the name ``delta``, that name is not registered and a warning is logged.  Sessions from
    ``spark.newSession()`` are registered, too.

    Returns the registered names.
    """
    names = register_sources(spark, SOURCES)
    FORMATS.update({name: spark_format_named(name.removeprefix("trilake-")) for name in names})
    for install in _PATCHES:
        install()
    for cls in classes("session"):
        patch(cls, "newSession", _new_session)
    _sessions.add(spark)
    return names


def with_sources(session: SparkSession) -> SparkSession:
    """Register this process's data sources in a session that Spark has just derived from another."""
    register_sources(session, [s for s in SOURCES if s.name() in FORMATS])
    return session


def _new_session(original: Any, spark: SparkSession) -> Action:
    return lambda: with_sources(original())


def unregister(spark: SparkSession) -> None:
    """Undo :func:`register`; the last session that does so restores Spark's methods.  Spark cannot unregister a data
    source: in the session, the formats' names keep working as far as Spark supports them."""
    _sessions.discard(spark)
    if _sessions:
        return
    pin_all()
    undo("front")
    FORMATS.clear()
