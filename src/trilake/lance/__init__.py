"""Lance datasets in the format's first version: files, versions and indices.

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
    from trilake.lance.commit import CommitLock
    from trilake.lance.file.schema_json import json_to_schema, schema_to_json
    from trilake.lance.fragment import FragmentMetadata, LanceFragment, write_fragments
    from trilake.lance.optimize import Compaction
    from trilake.lance.pylance.functions import dataset, write_dataset
    from trilake.lance.pylance.lance_dataset import LanceDataset
    from trilake.lance.pylance.operation import LanceOperation
    from trilake.lance.pylance.scanner import LanceScanner
    from trilake.lance.pylance.transactions import Transaction
    from trilake.lance.pylance.udf import BatchUDF, batch_udf
    from trilake.lance.util import sanitize_ts

#: Where each name lives: loaded when it is asked for, because data files need no datasets.
_HOMES = {
    "BatchUDF": "pylance.udf",
    "CommitLock": "commit",
    "Compaction": "optimize",
    "FragmentMetadata": "fragment",
    "LanceDataset": "pylance.lance_dataset",
    "LanceFragment": "fragment",
    "LanceOperation": "pylance.operation",
    "LanceScanner": "pylance.scanner",
    "Transaction": "pylance.transactions",
    "batch_udf": "pylance.udf",
    "dataset": "pylance.functions",
    "json_to_schema": "file.schema_json",
    "sanitize_ts": "util",
    "schema_to_json": "file.schema_json",
    "write_dataset": "pylance.functions",
    "write_fragments": "fragment",
}

#: Modules that users of the format know as attributes of the package.
_MODULES = {
    "arrow",
    "cache",
    "cleanup",
    "commit",
    "file",
    "fragment",
    "lance",
    "optimize",
    "progress",
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
    "CommitLock",
    "Compaction",
    "FragmentMetadata",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "Transaction",
    "__version__",
    "batch_udf",
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
