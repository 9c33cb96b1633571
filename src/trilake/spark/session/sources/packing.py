"""Pack files into partitions of about equal size, as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

#: The maximum bytes per task, and the cost of opening a file in bytes: Spark's defaults.
SPLIT_BYTES = 128 << 20
OPEN_BYTES = 4 << 20


def pack_files(files: Sequence[T], size: Callable[[T], int], *, parallelism: int = 8) -> list[list[T]]:
    """Groups of files, large ones first; ``size`` returns the bytes of a file.

    >>> pack_files([1, 2, 3], lambda f: 1 << 20, parallelism=1)
    [[1, 2, 3]]
    """
    weights = [size(f) + OPEN_BYTES for f in files]
    limit = min(SPLIT_BYTES, max(OPEN_BYTES, sum(weights) // parallelism))
    out: list[list[T]] = []
    filled = limit
    for weight, file in sorted(zip(weights, files, strict=True), key=lambda p: -p[0]):
        if filled + weight > limit:
            out.append([])
            filled = 0
        out[-1].append(file)
        filled += weight
    return out
