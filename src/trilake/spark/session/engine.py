"""The engine of tables that Spark writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilake.delta.engine import Engine
from trilake.delta.standard import standard_engine

if TYPE_CHECKING:
    from trilake.delta.commands.optimize.optimize import AutoCompaction
    from trilake.delta.engine import Jobs
    from trilake.delta.protocol.actions import Metadata
    from trilake.storage.base import Store


def spark_engine() -> Engine:
    """The standard engine with the active session's compaction settings, and its jobs for large tables.  A process
    without a session, such as one that runs a data source, uses table properties and does everything itself."""
    return standard_engine(compaction=_session_compaction, jobs=_session_jobs)


def _session_compaction(metadata: Metadata) -> AutoCompaction:
    # Imported lazily: a process that only reads needs no commits (tests/house/test_laziness.py).
    from trilake.spark.session.optimize_settings import session_compaction

    return session_compaction(metadata)


def _session_jobs(store: Store, files: int) -> Jobs | None:
    from trilake.spark.session.optimize_settings import session_jobs

    return session_jobs(store, files)
