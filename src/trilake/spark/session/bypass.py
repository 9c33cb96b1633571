"""Bypass: run Spark's original methods in this thread instead of those of ``spark/patches``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_bypassed: ContextVar[bool] = ContextVar("trilake_bypass", default=False)


@contextmanager
def bypass() -> Iterator[None]:
    """Run Spark's original methods in the block, for example those of ``spark.read.format("delta")``."""
    token = _bypassed.set(True)
    try:
        yield
    finally:
        _bypassed.reset(token)


def is_bypassed() -> bool:
    """Whether calls of this thread go to Spark's original methods."""
    return _bypassed.get() or defines_pipeline()


def defines_pipeline() -> bool:
    """Whether the code defines a Spark pipeline, which must not read anything, since Spark plans it later.  PySpark
    keeps the pipeline that it imports in a context variable without a public name."""
    module = sys.modules.get("pyspark.pipelines.graph_element_registry")
    registry = getattr(module, "_graph_element_registry_context_var", None)
    return registry is not None and registry.get() is not None
