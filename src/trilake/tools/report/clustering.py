"""How well files are clustered by a column: pure functions over the bounds of its values in each file.

A lookup must read every file whose bounds contain the value: one, or very few, where rows are sorted by the column, and
nearly all where they are in random order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trilake.table.report_facts import ColumnBounds

#: Values that a profile shows.
POINTS = 40


@dataclass(frozen=True)
class Clustering:
    """What a lookup of one value of a column touches, in files of the whole table.

    The values looked up are those in the middle of each file's bounds.  ``profile`` has the files that may hold each of
    :data:`POINTS` of them, from the least to the greatest; ``mean`` and ``worst`` are of all of them.  ``overlap`` is
    how many other files share a part of a file's range, on the average.
    """

    name: str
    files: int
    profile: tuple[float, ...]
    mean: float
    worst: float
    overlap: float
    #: Number of distinct bounds: small where the column has few values, which no order can spread.
    distinct: int = 0
    reference: str = ""

    @property
    def share(self) -> float:
        """The average share of the table's files that a lookup reads."""
        return self.mean / self.files if self.files else 0.0


def touched(
    low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], points: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """How many files have each point within their bounds.

    >>> touched(np.array([0, 5, 2]), np.array([4, 9, 7]), np.array([0, 3, 6, 9])).tolist()
    [1, 2, 2, 1]
    """
    started = np.searchsorted(np.sort(low), points, side="right")
    ended = np.searchsorted(np.sort(high), points, side="left")
    return np.asarray(started - ended, np.int64)


def measure(bounds: ColumnBounds, files: int, sampled: int) -> Clustering:
    """What lookups touch, where the bounds are those of ``sampled`` of the ``files`` of a table.

    Each value looked up is within the bounds of a file; the other files that a sample holds stand for all others.

    >>> low = np.arange(10) * 2
    >>> measure(ColumnBounds("ordered", low, low + 1), 10, 10).mean
    1.0
    >>> measure(ColumnBounds("mixed", low * 0, low * 0 + 9), 10, 10).mean
    10.0
    """
    ends = np.sort(np.concatenate([bounds.low, bounds.high]))
    middle = np.sort((bounds.low + bounds.high) // 2)
    scale = (files - 1) / (sampled - 1) if sampled > 1 else 1.0
    depth = touched(bounds.low, bounds.high, middle).astype(np.float64)
    files_touched = np.minimum((depth - 1) * scale + 1 + bounds.unknown * files / max(sampled, 1), files)
    profile = files_touched[np.linspace(0, len(files_touched) - 1, POINTS).round().astype(np.int64)]
    shared = _overlaps(bounds) * scale
    mean, worst = float(files_touched.mean()), float(files_touched.max())
    distinct = int(np.count_nonzero(np.diff(ends))) + 1
    return Clustering(bounds.name, files, tuple(profile.tolist()), mean, worst, shared, distinct, bounds.reference)


def _overlaps(bounds: ColumnBounds) -> float:
    """How many other files a file's range meets, on the average."""
    before = np.searchsorted(np.sort(bounds.low), bounds.high, side="right")
    gone = np.searchsorted(np.sort(bounds.high), bounds.low, side="left")
    return float((before - gone - 1).mean())
