"""Space-filling curves: map points to one number so that rows close to each other stay close.

A file of rows in such an order has narrow bounds in all of the columns.  Z-order interleaves the bits of the
coordinates, and jumps.  The Hilbert curve moves to a neighbour with every step, so any run of rows is a connected
piece.  After J. Skilling, *Programming the Hilbert curve* (2004): exchange and invert low bits from the top down, then
a Gray code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

#: Numbers from 0 to ``2 ** bits - 1``, one per row.
Coordinates = np.ndarray[Any, np.dtype[np.uint64]]
#: Most bits of an index.
INDEX_BITS = 63
#: Rows per chunk: their coordinates stay in the CPU cache.
_BLOCK = 1 << 14


def interleave_bits(coordinates: Sequence[Coordinates], bits: int) -> Coordinates:
    """The Z-order index of each point: the highest bit of every coordinate, then the next one of every coordinate.

    Parameters
    ----------
    coordinates: one array per dimension, of equal length.
    bits: how many bits of each coordinate count; ``bits`` times the number of dimensions is at most 63.

    Raises ``ValueError`` where the index is too narrow.

    >>> interleave_bits([np.array([0, 0, 1, 1], "u8"), np.array([0, 1, 0, 1], "u8")], 1).tolist()
    [0, 1, 2, 3]
    """
    dimensions = len(coordinates)
    if not 0 < dimensions * bits <= INDEX_BITS:
        raise ValueError(f"{dimensions} dimensions of {bits} bits are not an index of {INDEX_BITS} bits")
    out = np.zeros(len(coordinates[0]), dtype=np.uint64)
    for bit in range(bits):
        for place, values in enumerate(coordinates):
            target = bit * dimensions + dimensions - 1 - place
            out |= ((values >> np.uint64(bit)) & np.uint64(1)) << np.uint64(target)
    return out


def hilbert_index(coordinates: Sequence[Coordinates], bits: int) -> Coordinates:
    """The position of each point on the Hilbert curve through a cube of ``2 ** bits`` points per edge.

    Parameters
    ----------
    coordinates: one array per dimension, of equal length, of numbers below ``2 ** bits``.
    bits: of each coordinate; ``bits`` times the number of dimensions is at most 63.

    Raises ``ValueError`` where the index is too narrow.

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
    """Turn coordinates into the transposed Hilbert index, in place."""
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
