"""Names that other implementations keep in a native module of this name."""

from __future__ import annotations

from trilake.common.version import __version__
from trilake.lance.arrow import BFloat16, bfloat16_array
from trilake.lance.cleanup import CleanupStats
from trilake.lance.commands.compaction import CompactionMetrics
from trilake.lance.optimize import Compaction, CompactionPlan, CompactionTask, RewriteResult
from trilake.lance.tracing import TraceGuard, trace_to_chrome

__all__ = [
    "BFloat16",
    "CleanupStats",
    "Compaction",
    "CompactionMetrics",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
    "TraceGuard",
    "__version__",
    "bfloat16_array",
    "trace_to_chrome",
]
