"""Re-exports for ``import lance.dataset``.

The package also has a function ``dataset``, so this module is callable.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake.common.version import __version__
from trilake.lance.blob import DEFAULT_BLOB_BUFFER_SIZE, BlobFile
from trilake.lance.cleanup import AutoCleanupConfig, CleanupStats
from trilake.lance.commands.compaction import CompactionMetrics
from trilake.lance.commands.format_options import MESSAGE as LANCE_COMMIT_MESSAGE_KEY
from trilake.lance.commands.input_rows import ReaderLike
from trilake.lance.commit import CommitLock
from trilake.lance.fragment import DataFile, FragmentMetadata, LanceFragment
from trilake.lance.indices import IndexConfig, VectorIndexReader
from trilake.lance.optimize import Compaction, DatasetOptimizer
from trilake.lance.progress import FragmentWriteProgress
from trilake.lance.pylance.lance_dataset import LanceDataset, write_dataset
from trilake.lance.pylance.merge_builder import MergeInsertBuilder
from trilake.lance.pylance.operation import Index, IndexFile, LanceOperation, Transaction
from trilake.lance.pylance.scanner import LanceScanner, ScannerBuilder
from trilake.lance.pylance.sql_query import SqlQueryBuilder
from trilake.lance.pylance.stats import DatasetStats, IndexDescription, LanceStats
from trilake.lance.pylance.tags import Branches, Tags
from trilake.lance.scan.ordering import ColumnOrdering
from trilake.lance.scan.vectors import vectors_in
from trilake.lance.schema import LanceSchema
from trilake.lance.udf import BatchUDF, batch_udf
from trilake.lance.util import sanitize_ts, td_to_micros

__all__ = [
    "DEFAULT_BLOB_BUFFER_SIZE",
    "LANCE_COMMIT_MESSAGE_KEY",
    "AutoCleanupConfig",
    "BatchUDF",
    "BlobFile",
    "Branches",
    "CleanupStats",
    "ColumnOrdering",
    "CommitLock",
    "Compaction",
    "CompactionMetrics",
    "DataFile",
    "DatasetOptimizer",
    "DatasetStats",
    "FragmentMetadata",
    "FragmentWriteProgress",
    "Index",
    "IndexConfig",
    "IndexDescription",
    "IndexFile",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceSchema",
    "LanceStats",
    "MergeInsertBuilder",
    "ReaderLike",
    "ScannerBuilder",
    "SqlQueryBuilder",
    "Tags",
    "Transaction",
    "VectorIndexReader",
    "__version__",
    "batch_udf",
    "sanitize_ts",
    "td_to_micros",
    "write_dataset",
]


def _coerce_query_vector(query: Any) -> tuple[pa.Array, int]:
    """Convert one or several concatenated query vectors to floats, and return them with their dimension."""
    vectors, _ = vectors_in(query)
    return pa.array(vectors.ravel()), vectors.shape[1]
