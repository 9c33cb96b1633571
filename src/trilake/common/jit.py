"""Compile loops with numba, which caches the result on disk.  Importing this module loads numba, which takes a second.

With ``TRILAKE_NUMBA=0``, or without numba, the same functions run interpreted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

COMPILED = False
if os.environ.get("TRILAKE_NUMBA", "1") != "0":
    try:
        import numba

        COMPILED = True
    except ImportError:  # numba lags behind new Python and numpy releases
        pass


def compiled(function: F, **options: Any) -> F | None:
    """Compile a function with numba, to run without the GIL; ``None`` if numba is not installed.

    ``options`` are those of ``numba.njit``.
    """
    if not COMPILED:
        return None
    try:
        return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # no writable folder to cache in: neither the package's nor the user's
        return cast(F, numba.njit(nogil=True, **options)(function))


def jit(function: F) -> F:
    """Decorator: :func:`compiled`, or the function itself, with integers that overflow like compiled ones.

    >>> @jit
    ... def total(values):
    ...     result = 0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> int(total(np.arange(4)))
    6
    """
    return compiled(function) or np.errstate(over="ignore")(function)
