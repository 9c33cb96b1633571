"""Temporary files for what memory cannot hold: a full or read-only temporary folder gives a typed error."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trilake.errors import StorageError
from trilake.storage.local_writer import storage_error


@contextmanager
def spilling() -> Iterator[None]:
    """A block in which only temporary files are made, written and read.

    Raises ``StorageError`` for what the operating system says about them.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as e:
        raise storage_error(e, "use", tempfile.gettempdir(), writing=True) from e


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder, which is gone with all in it when the block ends; ``StorageError`` where none can be made."""
    with spilling():
        folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with folder as path:
        yield Path(path)
