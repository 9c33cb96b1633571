"""Z-order: one number from several, by taking their bits in turn.

Rows that are near each other in every column get numbers that are mostly near each other, so that a file of rows in
this order has narrow bounds in all of the columns and not only in the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Numbers from 0 to ``2 ** bits - 1``, one a row.
Coordinates = np.ndarray[Any, np.dtype[np.uint64]]
#: Bits that an index has.
INDEX_BITS = 63


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
        raise ValueError(f"{dimensions} dimensions of {bits} bits are no index of {INDEX_BITS} bits")
    out = np.zeros(len(coordinates[0]), dtype=np.uint64)
    for bit in range(bits):
        for place, values in enumerate(coordinates):
            target = bit * dimensions + dimensions - 1 - place
            out |= ((values >> np.uint64(bit)) & np.uint64(1)) << np.uint64(target)
    return out
