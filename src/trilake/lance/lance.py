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


def manifest_needs_migration(dataset: OpenDataset) -> bool:
    """Whether the manifest lacks row counts that current writers record, or the fragments of an index.

    >>> import pyarrow as pa
    >>> from trilake.lance import write_dataset
    >>> manifest_needs_migration(write_dataset(pa.table({"a": [1]}), "memory://doc-needs-migration"))
    False
    """
    manifest = dataset.snapshot.manifest
    rows = any(not f.physical_rows for f in manifest.fragments)
    deletions = [f.deletion_file for f in manifest.fragments if f.deletion_file is not None]
    deleted = any(not file.num_deleted_rows for file in deletions)
    return rows or deleted or any(i.fragment_bitmap is None and not i.is_note for i in manifest.indices)


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
