"""The engine of tables that Spark writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilake.delta.engine import Engine
from trilake.engine import standard_engine

if TYPE_CHECKING:
    from trilake.delta.commands.optimize.auto_compact import AutoCompaction
    from trilake.delta.protocol.actions import Metadata


def spark_engine() -> Engine:
    """The standard engine, whose compaction after a commit asks the active session for its settings.

    A process without a session, as those of data sources are, has only the tables' own properties.
    """
    return standard_engine(compaction=_session_compaction)


def _session_compaction(metadata: Metadata) -> AutoCompaction:
    # Loaded here: a process that only reads has no commits (tests/test_laziness.py).
    from trilake.spark.session.optimize_settings import session_compaction

    return session_compaction(metadata)
