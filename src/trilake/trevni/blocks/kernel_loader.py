"""The way to the kernels, which are loaded when the first block is read or written."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType:
    """The module of the kernels."""
    # Loading numba takes a second, and those who only look at headers, or at Delta tables, do not need it.
    from trilake.trevni.blocks import kernels as loaded

    return loaded
