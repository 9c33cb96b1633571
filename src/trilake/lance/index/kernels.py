"""Numba kernels for vectors; numpy would need several slower passes.

Compiled code is cached on disk; with ``TRILAKE_NUMBA=0`` or without numba, numpy is used.  Kernels release the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@cache
def _kernel(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Compile the function; ``None`` if numba is not available."""
    from trilake.common.jit import compiled  # late: only vector indices need numba

    return compiled(function, fastmath={"nsz", "contract", "reassoc", "arcp"})


def _nearest(vectors: Any, columns: Any, squares: Any, nearest: Any, sums: Any, counts: Any) -> None:
    """Find the nearest codebook entry of each vector; unless ``sums`` is empty, also sum the vectors by entry."""
    n, width = vectors.shape
    count = columns.shape[1]
    distances = np.empty(count, np.float32)
    add = len(sums) > 0
    for i in range(n):
        for w in range(count):
            distances[w] = squares[w]
        for d in range(width):
            x = np.float32(-2) * vectors[i, d]
            for w in range(count):
                distances[w] += x * columns[d, w]
        least = distances[0]
        for w in range(1, count):
            least = min(least, distances[w])
        at = 0
        while at < count - 1 and distances[at] != least:
            at += 1
        nearest[i] = at
        if add:
            counts[at] += 1
            for d in range(width):
                sums[at, d] += vectors[i, d]


def _sum_of(table: Any, codes: Any, total: Any) -> None:
    rows, pieces = codes.shape
    for i in range(rows):
        distance = np.float32(0)
        for m in range(pieces):
            distance += table[m, codes[i, m]]
        total[i] = distance


def nearest(vectors: Floats, words: Floats, kind: Any = np.int32) -> npt.NDArray[Any]:
    """Return the number of the nearest codebook entry (L2) of each vector; fast for up to a few hundred short entries.

    >>> nearest(np.array([[1, 0], [0, 3]], np.float32), np.array([[0, 2], [2, 0]], np.float32)).tolist()
    [1, 0]
    """
    nearest_words = np.empty(len(vectors), kind)
    _run(vectors, words, nearest_words, np.empty((0, 0)), np.empty(0, np.int64))
    return nearest_words


def word_sums(vectors: Floats, words: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Do one k-means step: sums and counts of the vectors nearest to each entry."""
    sums, counts = np.zeros(words.shape), np.zeros(len(words), np.int64)
    _run(vectors, words, np.empty(len(vectors), np.int32), sums, counts)
    return sums, counts


def _run(vectors: Floats, words: Floats, nearest: Any, sums: Any, counts: Any) -> None:
    # Transpose the entries, so that the inner loop reads contiguous memory.
    squares = np.einsum("ij,ij->i", words, words)
    kernel = _kernel(_nearest)
    if kernel is not None:
        kernel(vectors, np.ascontiguousarray(words.T), squares, nearest, sums, counts)
        return
    for i in range(0, len(vectors), 4096):
        block = vectors[i : i + 4096]
        nearest[i : i + 4096] = (squares - 2 * (block @ words.T)).argmin(1)
    if len(sums):
        counts += np.bincount(nearest, minlength=len(words))
        for d in range(words.shape[1]):
            sums[:, d] += np.bincount(nearest, vectors[:, d].astype(np.float64), len(words))


def sum_of(table: Floats, codes: npt.NDArray[np.uint8]) -> Floats:
    """Sum the table entries, shape (sub-vectors, 256), that the codes of each row select.

    >>> sum_of(np.array([[1, 2], [10, 20]], np.float32), np.array([[0, 0], [1, 0]], np.uint8)).tolist()
    [11.0, 12.0]
    """
    total = np.zeros(len(codes), np.float32)
    kernel = _kernel(_sum_of)
    if kernel is not None:
        kernel(table, codes, total)
        return total
    for m in range(len(table)):
        total += table[m].take(codes[:, m])
    return total
