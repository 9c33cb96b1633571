"""Data files: types, schemas, and the interfaces of readers and writers.

Like pylance's ``lance.file``, it offers ``LanceFileReader``, ``LanceFileWriter`` and ``LanceFileSession``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: The module of the public names; it is above this package, so it is imported on access only.
_NAMES = "trilake.lance.pylance.data_files"
__all__ = [
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceFileMetadata",
    "LanceFileReader",
    "LanceFileSession",
    "LanceFileStatistics",
    "LanceFileWriter",
    "LancePageMetadata",
    "ListResult",
    "ReaderResults",
    "stable_version",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NAMES), name)
