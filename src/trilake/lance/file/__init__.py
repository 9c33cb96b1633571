"""Data files: types, schemas, pages, what is written and read of them.

Users of pylance know ``LanceFileReader``, ``LanceFileWriter`` and ``LanceFileSession`` by this module's name.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Where the names that users know live: right of this room, which knows it by name alone.
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
