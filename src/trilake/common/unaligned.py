"""Load and store unsigned integers at any byte of a uint8 array, in compiled and interpreted loops.

``load64(data, at)`` reads eight bytes as a little-endian integer, ``store64(data, at, value)`` writes them.  Positions
must be inside the array; compiled code does not check them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from trilake.common.jit import COMPILED

if COMPILED:
    import numba
    from llvmlite import ir
    from numba.extending import intrinsic

    def _place(bits: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Unlike an index, a negative position does not count from the end, because that check takes time.
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(bits).as_pointer())

    def _load(bits: int) -> Callable[..., Any]:
        kind = numba.types.Integer.from_bitwidth(bits, signed=False)

        def load(typing: Any, array: Any, at: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                value = builder.load(_place(bits, context, builder, signature, arguments))
                value.align = 1
                return value

            return kind(array, numba.types.intp), generate

        return cast(Callable[..., Any], intrinsic(load))

    def _store(bits: int) -> Callable[..., Any]:
        kind = numba.types.Integer.from_bitwidth(bits, signed=False)

        def store(typing: Any, array: Any, at: Any, value: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                builder.store(arguments[2], _place(bits, context, builder, signature, arguments)).align = 1
                return context.get_dummy_value()

            return numba.types.void(array, numba.types.intp, kind), generate

        return cast(Callable[..., Any], intrinsic(store))

else:

    def _load(bits: int) -> Callable[..., Any]:
        return lambda array, at: np.frombuffer(array, f"<u{bits // 8}", 1, int(at))[0]

    def _store(bits: int) -> Callable[..., Any]:
        def store(array: Any, at: int, value: Any) -> None:
            array[at : at + bits // 8] = np.array([value], f"<u{bits // 8}").view(np.uint8)

        return store


load8, load16, load32, load64 = map(_load, (8, 16, 32, 64))
store8, store64 = map(_store, (8, 64))


def read_only(array: Any) -> Any:
    """Return a read-only view, so that a kernel is compiled once for writable and read-only arrays."""
    view = array.view()
    view.flags.writeable = False
    return view
