"""SQL over tables of ours: the session's own ``spark.sql`` after ``install``, and ``trilake.sql`` without Spark.

Spark's parser judges what it knows; what only Delta's grammar knows has a small grammar here.  Names of our tables are
replaced by frames, commands run through the code of the Python interface, and every other statement stays as it was.

This package is also the function ``trilake.sql``: calling it is calling :func:`trilake.sql.duckdb.run.sql`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class _SqlPackage(ModuleType):
    """A package that is a function too: ``trilake.sql`` is the name of both."""

    def __call__(self, text: str, *args: Any, **kwargs: Any) -> pa.Table:
        from trilake.sql.duckdb.run import sql

        return sql(text, *args, **kwargs)


sys.modules[__name__].__class__ = _SqlPackage
