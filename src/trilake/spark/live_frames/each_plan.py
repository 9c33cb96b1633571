"""Whether what is read now shall show the newest version in each plan, as a stream makes one for each batch.

Spark's native scan has the files of one version.  Rows through Arrow come from a table that Spark asks for a scan
whenever it plans, and which can look at its log then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_each: ContextVar[bool] = ContextVar("trilake_each_plan", default=False)


@contextmanager
def newest_in_each_plan() -> Iterator[None]:
    """Reads of newest versions in the block show the newest one in each plan."""
    token = _each.set(True)
    try:
        yield
    finally:
        _each.reset(token)


def is_read_in_each_plan() -> bool:
    """Whether the newest version is to be looked for in each plan."""
    return _each.get()
