"""Load the kernels when the first block is read or written."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType:
    """Import and return the kernels."""
    # Importing numba takes a second, and reading headers does not need it.
    from trilake.trevni.blocks import kernels as loaded

    return loaded
