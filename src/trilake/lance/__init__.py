"""Lance datasets: files, versions and indices.

>>> import pyarrow as pa
>>> from trilake import lance
>>> ds = lance.write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-package", mode="overwrite")
>>> ds.take([2, 0]).column("a").to_pylist()
[3, 1]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trilake.common.front import keep_functions

if TYPE_CHECKING:
    from trilake.common.version import __version__
    from trilake.lance.blob import Blob, BlobArray, BlobColumn, BlobFile, blob_array, blob_field
    from trilake.lance.cleanup import CleanupStats
    from trilake.lance.commit import CommitLock
    from trilake.lance.file.schema_json import json_to_schema, schema_to_json
    from trilake.lance.fragment import FragmentMetadata, LanceFragment, write_fragments
    from trilake.lance.optimize import Compaction
    from trilake.lance.pylance.blob_writers import (
        BlobDescriptor,
        BlobDescriptorArrayBuilder,
        DedicatedBlobWriter,
        PackedBlobWriter,
    )
    from trilake.lance.pylance.functions import dataset, write_dataset
    from trilake.lance.pylance.lance_dataset import LanceDataset
    from trilake.lance.pylance.merge_builder import MergeBuilder as MergeInsertBuilder
    from trilake.lance.pylance.operation import DatasetBasePath, Index, LanceOperation
    from trilake.lance.pylance.scanner import LanceScanner
    from trilake.lance.pylance.transactions import Transaction
    from trilake.lance.pylance.udf import BatchUDF, batch_udf
    from trilake.lance.util import sanitize_ts

#: Public names by module, imported on first use, so that data files can be used without the dataset modules.
_HOMES = {
    "PackedBlobWriter": "pylance.blob_writers",
    "DedicatedBlobWriter": "pylance.blob_writers",
    "BlobDescriptorArrayBuilder": "pylance.blob_writers",
    "BlobDescriptor": "pylance.blob_writers",
    "BatchUDF": "pylance.udf",
    "Blob": "blob",
    "BlobArray": "blob",
    "BlobColumn": "blob",
    "BlobFile": "blob",
    "CleanupStats": "cleanup",
    "CommitLock": "commit",
    "Compaction": "optimize",
    "DatasetBasePath": "pylance.operation",
    "FragmentMetadata": "fragment",
    "Index": "pylance.operation",
    "LanceDataset": "pylance.lance_dataset",
    "LanceFragment": "fragment",
    "LanceOperation": "pylance.operation",
    "LanceScanner": "pylance.scanner",
    "MergeInsertBuilder": "dataset",
    "Transaction": "pylance.transactions",
    "batch_udf": "pylance.udf",
    "blob_array": "blob",
    "blob_field": "blob",
    "dataset": "pylance.functions",
    "json_to_schema": "file.schema_json",
    "sanitize_ts": "util",
    "schema_to_json": "file.schema_json",
    "write_dataset": "pylance.functions",
    "write_fragments": "fragment",
}

#: Submodules that are attributes of the package in pylance.
_MODULES = {
    "_dataset",
    "arrow",
    "blob",
    "cache",
    "cleanup",
    "commit",
    "debug",
    "dependencies",
    "file",
    "fragment",
    "indices",
    "lance",
    "optimize",
    "progress",
    "query",
    "sampler",
    "schema",
    "torch",
    "tracing",
    "udf",
    "util",
    "vector",
}

__all__ = [
    "BatchUDF",
    "Blob",
    "BlobArray",
    "BlobColumn",
    "BlobDescriptor",
    "BlobDescriptorArrayBuilder",
    "BlobFile",
    "CleanupStats",
    "CommitLock",
    "Compaction",
    "DatasetBasePath",
    "DedicatedBlobWriter",
    "FragmentMetadata",
    "Index",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "MergeInsertBuilder",
    "PackedBlobWriter",
    "Transaction",
    "__version__",
    "batch_udf",
    "blob_array",
    "blob_field",
    "dataset",
    "json_to_schema",
    "sanitize_ts",
    "schema_to_json",
    "write_dataset",
    "write_fragments",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("trilake").__version__
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


keep_functions(__name__, dataset="trilake.lance.pylance.functions")
