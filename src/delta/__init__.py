"""The names of delta-spark's package: code written for it runs on trilake where delta-spark is not installed.

``__version__`` is the release of delta-spark whose names and answers these are, and not that of trilake.

Raises ``MissingDependencyError`` where PySpark is not installed.
"""

from __future__ import annotations

import trilake.spark  # noqa: F401 - first, for it names what to install where PySpark is missing
from delta.pip_utils import configure_spark_with_delta_pip
from delta.tables import DeltaTable
from delta.version import __version__

__all__ = ["DeltaTable", "__version__", "configure_spark_with_delta_pip"]
