"""``register``: make the formats known to a Spark session."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from trilake.spark.live_frames.frames import pin_all
from trilake.spark.patches.chains import classes
from trilake.spark.patches.create_statements import take_over_creates
from trilake.spark.patches.data_sources import SOURCES
from trilake.spark.patches.dataframe_writer import NAMED, SAVERS
from trilake.spark.patches.read_errors import take_over_errors
from trilake.spark.patches.reader import LOADERS, take_over_reads
from trilake.spark.patches.recorder import Action, patch, undo
from trilake.spark.patches.savers import install
from trilake.spark.patches.stream_errors import take_over_stream_errors
from trilake.spark.patches.stream_writer import STREAMED, take_over_streams
from trilake.spark.session.sources.registry import register_sources

#: The sessions that have registered.
_sessions: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> list[str]:
    """Register trilake's data sources, each under the format's name and under ``trilake-<name>``.

    It also teaches ``df.write`` what Spark refuses for Python sources (:mod:`trilake.spark.patches.dataframe_writer`):
    ``df.write.format("delta").save(path)`` in all four modes, ``partitionBy``, ``saveAsTable`` and ``insertInto``.

    Streams of these formats take ``partitionBy``, ``toTable`` and ``readStream.table`` as well
    (:mod:`trilake.spark.patches.stream_writer`).

    Where delta-spark's jar already owns the name ``delta``, that name is left alone and a warning says so.

    ``spark.read.format("delta").load(path)``, ``spark.read.table(name)`` and ``spark.table(name)`` give frames over
    Spark's own scan wherever that is possible (:mod:`trilake.spark.patches.reader`).

    What ``spark.newSession()`` makes from then on knows the formats too.

    Returns the names registered.
    """
    names = register_sources(spark, SOURCES)
    install(names)
    take_over_reads(names)
    take_over_streams(names)
    take_over_errors()
    take_over_stream_errors()
    take_over_creates()
    for cls in classes("session"):
        patch(cls, "newSession", _new_session)
    _sessions.add(spark)
    return names


def with_sources(session: SparkSession) -> SparkSession:
    """A session that Spark has just made of another: what this process has registered is registered there too."""
    register_sources(session, [s for s in SOURCES if s.name() in LOADERS])
    return session


def _new_session(own: Any, spark: SparkSession) -> Action:
    return lambda: with_sources(own())


def unregister(spark: SparkSession) -> None:
    """Take back what :func:`register` did to Spark's classes; the last session that does so gives all methods back.

    Spark forgets no data source: what it does with the formats' names without our help stays as it is in the session.
    """
    _sessions.discard(spark)
    if _sessions:
        return
    pin_all()
    undo("front")
    for known in (SAVERS, NAMED, STREAMED, LOADERS):
        known.clear()
