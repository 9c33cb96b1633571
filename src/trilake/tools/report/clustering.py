"""Measure how well files are clustered by a column, from the column's bounds in each file.

A lookup reads every file whose bounds contain the value: few where rows are sorted by the column, nearly all where they
are in random order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trilake.table.report_facts import ColumnBounds

#: Values in a profile.
POINTS = 40


@dataclass(frozen=True)
class Clustering:
    """How many files of the table a lookup of one value reads.

    The values are the middles of each file's bounds.  ``profile`` has the number of files for :data:`POINTS` of them in
    ascending order; ``mean`` and ``worst`` are over all of them.  ``overlap`` is how many other files overlap a file's
    range on average.
    """

    name: str
    files: int
    profile: tuple[float, ...]
    mean: float
    worst: float
    overlap: float
    #: Number of distinct bounds: where it is small, no order helps.
    distinct: int = 0
    reference: str = ""

    @property
    def share(self) -> float:
        """The average share of the table's files that a lookup reads."""
        return self.mean / self.files if self.files else 0.0


def files_at(
    low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], points: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """How many files have each point within their bounds.

    >>> files_at(np.array([0, 5, 2]), np.array([4, 9, 7]), np.array([0, 3, 6, 9])).tolist()
    [1, 2, 2, 1]
    """
    started = np.searchsorted(np.sort(low), points, side="right")
    ended = np.searchsorted(np.sort(high), points, side="left")
    return np.asarray(started - ended, np.int64)


def measure(bounds: ColumnBounds, files: int, sampled: int) -> Clustering:
    """Estimate what lookups read from the bounds of ``sampled`` of the table's ``files``.

    Each value is within the bounds of one file; the other sampled files stand for the rest of the table.

    >>> low = np.arange(10) * 2
    >>> measure(ColumnBounds("ordered", low, low + 1), 10, 10).mean
    1.0
    >>> measure(ColumnBounds("mixed", low * 0, low * 0 + 9), 10, 10).mean
    10.0
    """
    ends = np.sort(np.concatenate([bounds.low, bounds.high]))
    middle = np.sort((bounds.low + bounds.high) // 2)
    scale = (files - 1) / (sampled - 1) if sampled > 1 else 1.0
    depth = files_at(bounds.low, bounds.high, middle).astype(np.float64)
    files_read = np.minimum((depth - 1) * scale + 1 + bounds.unknown * files / max(sampled, 1), files)
    profile = files_read[np.linspace(0, len(files_read) - 1, POINTS).round().astype(np.int64)]
    shared = _overlaps(bounds) * scale
    mean, worst = float(files_read.mean()), float(files_read.max())
    distinct = int(np.count_nonzero(np.diff(ends))) + 1
    return Clustering(bounds.name, files, tuple(profile.tolist()), mean, worst, shared, distinct, bounds.reference)


def _overlaps(bounds: ColumnBounds) -> float:
    """How many other files overlap a file's range, on average."""
    before = np.searchsorted(np.sort(bounds.low), bounds.high, side="right")
    after = np.searchsorted(np.sort(bounds.high), bounds.low, side="left")
    return float((before - after - 1).mean())
