"""The engine of tables that Spark writes to."""

from __future__ import annotations

from trilake.delta.engine import Engine
from trilake.engine import standard_engine
from trilake.spark.session.optimize_settings import session_compaction


def spark_engine() -> Engine:
    """The standard engine, whose compaction after a commit asks the active session for its settings.

    A process without a session, as those of data sources are, has only the tables' own properties.
    """
    return standard_engine(compaction=session_compaction)
