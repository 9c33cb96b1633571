"""The way to the kernels, which are loaded when the first page is decoded."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType:
    """The module of the kernels."""
    # Loading numba takes a second, and those who only look at manifests and footers do not need it.
    from trilake.lance.v2 import kernels as loaded

    return loaded
