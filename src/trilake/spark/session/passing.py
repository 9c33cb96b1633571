"""Calls of this thread that go to Spark's own methods, though the front door has replaced them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_alone: ContextVar[bool] = ContextVar("trilake_spark_alone", default=False)


@contextmanager
def spark_alone() -> Iterator[None]:
    """Let calls in the block pass the front door: ``spark.read.format("delta")`` is Spark's own there."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def passing() -> bool:
    """Whether this thread's calls pass the front door."""
    return _alone.get() or defines_pipeline()


def defines_pipeline() -> bool:
    """Whether a pipeline of Spark is being defined, where nothing may be looked at: Spark itself plans what is read.

    PySpark keeps the pipeline whose definitions it imports in a context variable that has no public name.
    """
    module = sys.modules.get("pyspark.pipelines.graph_element_registry")
    registry = getattr(module, "_graph_element_registry_context_var", None)
    return registry is not None and registry.get() is not None
