"""Curves through the points of a cube: one number from several, so that rows near each other stay near each other.

A file of rows in such an order has narrow bounds in all of the columns and not only in the first.  Z-order takes the
bits of the numbers in turn, and jumps.  The Hilbert curve goes to a neighbour with every step, so that any run of rows
is one connected piece of the cube: after J. Skilling, *Programming the Hilbert curve* (2004), coordinates are turned
into the transposed index by exchanging and inverting low bits from the top down, followed by a Gray code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

#: Numbers from 0 to ``2 ** bits - 1``, one a row.
Coordinates = np.ndarray[Any, np.dtype[np.uint64]]
#: Bits that an index has.
INDEX_BITS = 63
#: Rows that are worked on at once: their coordinates stay in the processor's cache.
_BLOCK = 1 << 14


def interleave_bits(coordinates: Sequence[Coordinates], bits: int) -> Coordinates:
    """The Z-order index of each point: the highest bit of every coordinate, then the next one of every coordinate.

    Parameters
    ----------
    coordinates: one array a dimension, all of one length.
    bits: how many bits of each coordinate count; ``bits`` times the number of dimensions is at most 63.

    Raises ``ValueError`` where the index has no room.

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
