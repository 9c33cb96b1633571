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

from trilake.common.package_functions import keep_functions

if TYPE_CHECKING:
    from trilake.common.version import __version__
    from trilake.lance.blob import Blob, BlobArray, BlobColumn, BlobFile, blob_array, blob_field
    from trilake.lance.cleanup import CleanupStats
    from trilake.lance.commit import CommitLock
    from trilake.lance.fragment import FragmentMetadata, LanceFragment, write_fragments
    from trilake.lance.log import set_logger
    from trilake.lance.optimize import Compaction
    from trilake.lance.pylance.blob_writers import (
        BlobDescriptor,
        BlobDescriptorArrayBuilder,
        DedicatedBlobWriter,
        PackedBlobWriter,
    )
    from trilake.lance.pylance.lance_dataset import LanceDataset, dataset, write_dataset
    from trilake.lance.pylance.merge_builder import MergeInsertBuilder
    from trilake.lance.pylance.operation import DatasetBasePath, Index, LanceOperation, Transaction
    from trilake.lance.pylance.scanner import LanceScanner
    from trilake.lance.schema import json_to_schema, schema_to_json
    from trilake.lance.udf import BatchUDF, batch_udf
    from trilake.lance.util import sanitize_ts

#: Public names by module, imported on first use, so that data files can be used without the dataset modules.
_NAMES = {
    "blob": (
        *("Blob", "BlobArray", "BlobColumn", "BlobDescriptor", "BlobDescriptorArrayBuilder", "BlobFile"),
        *("DedicatedBlobWriter", "PackedBlobWriter", "blob_array", "blob_field"),
    ),
    "cleanup": ("CleanupStats",),
    "commit": ("CommitLock",),
    "fragment": ("FragmentMetadata", "LanceFragment", "write_fragments"),
    "log": ("set_logger",),
    "optimize": ("Compaction",),
    "pylance.lance_dataset": ("LanceDataset", "dataset", "write_dataset"),
    "pylance.merge_builder": ("MergeInsertBuilder",),
    "pylance.operation": ("DatasetBasePath", "Index", "LanceOperation", "Transaction"),
    "pylance.scanner": ("LanceScanner",),
    "schema": ("json_to_schema", "schema_to_json"),
    "udf": ("BatchUDF", "batch_udf"),
    "util": ("sanitize_ts",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

#: Submodules that are attributes of the package in pylance.
_MODULES = {
    *("_dataset", "arrow", "blob", "cache", "cleanup", "commit", "debug", "dependencies", "file", "fragment"),
    *("indices", "lance", "log", "optimize", "progress", "query", "sampler", "schema", "torch", "tracing", "udf"),
    *("util", "vector"),
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
    "set_logger",
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


keep_functions(__name__, dataset="trilake.lance.pylance.lance_dataset")
