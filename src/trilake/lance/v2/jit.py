"""Compile loops with numba, which caches the result on disk.

With ``TRILAKE_NUMBA=0``, or where numba cannot be loaded, the same functions run interpreted.
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
        from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
        from numba.extending import intrinsic

        COMPILED = True
    except ImportError:  # numba lags behind new Python and numpy releases
        pass


def jit(function: F) -> F:
    """Compile a function that needs no Python object; it runs without the interpreter lock.

    >>> @jit
    ... def total(values):
    ...     result = 0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> int(total(np.arange(4)))
    6
    """
    if not COMPILED:
        return np.errstate(over="ignore")(function)  # integers wrap around, as compiled ones do
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no folder to cache in: neither the package's nor the user's can be written
        return cast(F, numba.njit(nogil=True)(function))


def _load64(context: Any, data: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, args[0]).data
        loaded = builder.load(builder.bitcast(builder.gep(start, [args[1]]), ir.IntType(64).as_pointer()))
        loaded.align = 1
        return loaded

    return numba.uint64(data, numba.intp), generate


def _load64_interpreted(data: Any, at: int) -> Any:
    return np.frombuffer(data, "<u8", 1, at)[0]


#: ``load64(data, at)``: eight bytes of a uint8 array as one little-endian integer; they must lie within it.
load64: Any = intrinsic(_load64) if COMPILED else _load64_interpreted


def read_only(array: Any) -> Any:
    """The array, not to be written: kernels are compiled once for what they read, wherever it comes from."""
    view = array.view()
    view.flags.writeable = False
    return view
