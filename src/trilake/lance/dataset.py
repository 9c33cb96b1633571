"""The dataset's names under the module that users of the format import them from.

The package has a function of this module's name, so the module can be called as that function.
"""

from __future__ import annotations

from trilake.common.version import __version__
from trilake.lance.cleanup import CleanupStats
from trilake.lance.commands.compaction import CompactionMetrics
from trilake.lance.commands.input_rows import ReaderLike
from trilake.lance.commit import CommitLock
from trilake.lance.fragment import FragmentMetadata, LanceFragment
from trilake.lance.optimize import Compaction, DatasetOptimizer
from trilake.lance.progress import FragmentWriteProgress
from trilake.lance.pylance.functions import write_dataset
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.pylance.merge_builder import MergeBuilder as MergeInsertBuilder
from trilake.lance.pylance.operation import Index, LanceOperation
from trilake.lance.pylance.scanner import LanceScanner, ScannerBuilder
from trilake.lance.pylance.stats import DatasetStats, IndexDescription, LanceStats
from trilake.lance.pylance.tags import Tags
from trilake.lance.pylance.transactions import Transaction
from trilake.lance.pylance.udf import BatchUDF, batch_udf
from trilake.lance.scan.ordering import ColumnOrdering
from trilake.lance.util import sanitize_ts, td_to_micros

__all__ = [
    "BatchUDF",
    "CleanupStats",
    "ColumnOrdering",
    "CommitLock",
    "Compaction",
    "CompactionMetrics",
    "DatasetOptimizer",
    "DatasetStats",
    "FragmentMetadata",
    "FragmentWriteProgress",
    "Index",
    "IndexDescription",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceStats",
    "MergeInsertBuilder",
    "ReaderLike",
    "ScannerBuilder",
    "Tags",
    "Transaction",
    "__version__",
    "batch_udf",
    "sanitize_ts",
    "td_to_micros",
    "write_dataset",
]
