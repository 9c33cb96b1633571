"""Load the kernels when the first block is read or written."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType:
    """The module of the kernels."""
    # Loading numba takes a second, and readers of headers only do not need it.
    from trilake.trevni.blocks import kernels as loaded

    return loaded
