"""Re-exports of names in pylance's native module."""

from __future__ import annotations

from trilake.common.version import __version__
from trilake.lance.arrow import BFloat16, bfloat16_array
from trilake.lance.cleanup import CleanupStats
from trilake.lance.commands.compaction import CompactionMetrics
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.debug import format_fragment, format_manifest, format_schema, list_transactions
from trilake.lance.file import stable_version
from trilake.lance.fragment import DeletionFile, RowDatasetVersionMeta, RowIdMeta, RowIdSequence
from trilake.lance.optimize import Compaction, CompactionPlan, CompactionTask, RewriteResult
from trilake.lance.schema import LanceSchema
from trilake.lance.tracing import TraceGuard, trace_to_chrome
from trilake.lance.versions.manifest import needs_migration


def manifest_needs_migration(dataset: OpenDataset) -> bool:
    """Whether the manifest lacks row counts that current writers add.

    >>> import pyarrow as pa
    >>> from trilake.lance import write_dataset
    >>> manifest_needs_migration(write_dataset(pa.table({"a": [1]}), "memory://doc-needs-migration"))
    False
    """
    return needs_migration(dataset.snapshot.manifest)


__all__ = [
    "BFloat16",
    "CleanupStats",
    "Compaction",
    "CompactionMetrics",
    "CompactionPlan",
    "CompactionTask",
    "DeletionFile",
    "LanceSchema",
    "RewriteResult",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "TraceGuard",
    "__version__",
    "bfloat16_array",
    "format_fragment",
    "format_manifest",
    "format_schema",
    "list_transactions",
    "manifest_needs_migration",
    "stable_version",
    "trace_to_chrome",
]
