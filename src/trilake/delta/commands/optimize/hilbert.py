"""The Hilbert curve: an order of the points of a cube in which every step goes to a neighbour.

Unlike Z-order it never jumps, so that any run of rows in this order is one connected piece of the cube.  After
J. Skilling, *Programming the Hilbert curve* (2004): coordinates are turned into the transposed index by exchanging and
inverting low bits from the top down, followed by a Gray code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from trilake.delta.commands.optimize.zorder import Coordinates, interleave_bits

#: Rows that are worked on at once: their coordinates stay in the processor's cache.
_BLOCK = 1 << 14


def hilbert_index(coordinates: Sequence[Coordinates], bits: int) -> Coordinates:
    """The place of each point on the curve through a cube of ``2 ** bits`` points along each edge.

    Parameters
    ----------
    coordinates: one array a dimension, all of one length, of numbers below ``2 ** bits``.
    bits: of each coordinate; ``bits`` times the number of dimensions is at most 63.

    Raises ``ValueError`` where the index has no room.

    >>> x, y = np.array([0, 0, 1, 1], "u8"), np.array([0, 1, 1, 0], "u8")
    >>> hilbert_index([x, y], 1).tolist()
    [0, 1, 2, 3]
    """
    if len(coordinates) == 1:
        return interleave_bits(coordinates, bits)
    count = len(coordinates[0])
    out = np.empty(count, dtype=np.uint64)
    for start in range(0, count, _BLOCK):
        block = [c[start : start + _BLOCK].astype(np.uint64) for c in coordinates]
        _transpose(block, bits)
        out[start : start + _BLOCK] = interleave_bits(block, bits)
    return out if count else interleave_bits(coordinates, bits)


def _transpose(x: list[Coordinates], bits: int) -> None:
    """Turn the coordinates of points into the transposed Hilbert index, in place."""
    one = np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        low = np.uint64((1 << bit) - 1)
        for values in x:
            # Where the bit is set, the first axis is inverted below it; elsewhere it is exchanged with this one.
            inverted = (values >> np.uint64(bit)) & one
            x[0] ^= low * inverted
            exchanged = (x[0] ^ values) & (low * (one - inverted))
            x[0] ^= exchanged
            if values is not x[0]:
                values ^= exchanged
    for before, values in pairwise(x):
        values ^= before
    gray = np.zeros_like(x[0])
    for bit in range(bits - 1, 0, -1):
        gray ^= np.uint64((1 << bit) - 1) * ((x[-1] >> np.uint64(bit)) & one)
    for values in x:
        values ^= gray
