"""Temporary files for data that does not fit in memory, with typed errors for a full or read-only disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trilake.errors import StorageError
from trilake.storage.local_writer import storage_error


@contextmanager
def spilling() -> Iterator[None]:
    """A block that works with temporary files, whose errors become ``StorageError``."""
    try:
        yield
    except StorageError:
        raise
    except OSError as e:
        raise storage_error(e, "use", tempfile.gettempdir(), writing=True) from e


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder for a block.  Raises ``StorageError`` if it cannot be created."""
    with spilling():
        folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with folder as path:
        yield Path(path)
