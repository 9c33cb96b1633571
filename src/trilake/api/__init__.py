"""The public API: the same functions for every format.

A format is a row of :mod:`~trilake.table.registry`.  Spark is imported only by the calls that need it: ``read`` and
``explain``.
"""

from trilake.api.definitions import alter, convert_to_delta, create, sync_iceberg
from trilake.api.opening import explain, open, read
from trilake.api.writing import write

__all__ = [
    "alter", "convert_to_delta", "create", "explain", "open", "read", "sync_iceberg", "write",
]  # fmt: skip
