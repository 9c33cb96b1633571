"""Rows of trilake tables in Spark's cache: those of the version that was current when the table was cached.

A read of the same version uses them; a read of a newer one does not.
"""

from __future__ import annotations

from typing import Any

from trilake.spark.live_frames.columns import is_kept
from trilake.sql.spark.session.frames import frame_of
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target


def cache(session: SqlSession, target: Target, level: Any = None, *, fill: bool = False) -> None:
    """Let Spark keep the rows of a table, from the first read on; ``fill`` reads them now.

    ``level`` is a storage level of Spark, which chooses one where it is ``None``.
    """
    uncache(session, target)
    frame = frame_of(session, target)
    frame = frame.cache() if level is None else frame.persist(level)
    if fill:
        frame.count()
    session.cached[_key(target)] = frame


def uncache(session: SqlSession, target: Target) -> None:
    """Let Spark forget the rows of a table; nothing where it has none."""
    frame = session.cached.pop(_key(target), None)
    if frame is not None:
        frame.unpersist()


def is_cached(session: SqlSession, target: Target) -> bool:
    """Whether a read of the table, as it is now, takes its rows from Spark's cache."""
    return is_kept(frame_of(session, target))


def _key(target: Target) -> tuple[str, ...]:
    """What all spellings of a table's name have in common."""
    if target.entry is None:
        return target.format, target.path, target.at or ""
    return target.entry.database.lower(), target.entry.table.lower()
