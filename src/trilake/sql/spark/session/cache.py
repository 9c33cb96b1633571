"""Trilake tables in Spark's cache, which holds one version; reads of a newer version do not use it."""

from __future__ import annotations

from typing import Any

from trilake.spark.live_frames.columns import is_in_cache
from trilake.sql.spark.session.frames import frame_of
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target


def cache(session: SqlSession, target: Target, level: Any = None, *, fill: bool = False) -> None:
    """Cache a table's rows in Spark, on the first read or, with ``fill``, now; ``level`` is a storage level."""
    uncache(session, target)
    frame = frame_of(session, target)
    frame = frame.cache() if level is None else frame.persist(level)
    if fill:
        frame.count()
    session.cached[_key(target)] = frame


def uncache(session: SqlSession, target: Target) -> None:
    """Remove a table's rows from Spark's cache."""
    frame = session.cached.pop(_key(target), None)
    if frame is not None:
        frame.unpersist()


def is_cached(session: SqlSession, target: Target) -> bool:
    """Whether a read of the newest version uses Spark's cache."""
    return is_in_cache(frame_of(session, target))


def _key(target: Target) -> tuple[str, ...]:
    if target.entry is None:
        return target.format, target.path, target.at or ""
    return target.entry.database.lower(), target.entry.table.lower()
