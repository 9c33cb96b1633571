"""Load the kernels when the first page is decoded."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType:
    """The module :mod:`trilake.lance.v2.kernels`."""
    # Importing numba takes a second, and readers of manifests and footers do not need it.
    from trilake.lance.v2 import kernels as loaded

    return loaded
