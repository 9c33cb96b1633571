"""Bypass: run Spark's original methods in this thread, although ``spark/patches`` has replaced them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_bypassed: ContextVar[bool] = ContextVar("trilake_bypass", default=False)


@contextmanager
def bypass() -> Iterator[None]:
    """Run Spark's original methods in the block: ``spark.read.format("delta")`` is Spark's own there."""
    token = _bypassed.set(True)
    try:
        yield
    finally:
        _bypassed.reset(token)


def is_bypassed() -> bool:
    """Whether calls of this thread go to Spark's original methods."""
    return _bypassed.get() or defines_pipeline()


def defines_pipeline() -> bool:
    """Whether the code defines a Spark pipeline, where nothing may be read: Spark plans it later.

    PySpark keeps the pipeline that it is importing in a context variable that has no public name.
    """
    module = sys.modules.get("pyspark.pipelines.graph_element_registry")
    registry = getattr(module, "_graph_element_registry_context_var", None)
    return registry is not None and registry.get() is not None
