"""Histograms of file sizes, column bytes and shares of deleted rows, computed in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import format_size

#: Bounds of the file size classes in bytes.
EDGES = tuple(4**k * 1024 for k in range(1, 11))  # 4 KiB to 1 GiB


@dataclass(frozen=True)
class SizeClass:
    """Files of about one size; ``small`` if a compaction would rewrite them."""

    label: str
    files: int
    size: int
    small: bool = False


def class_labels() -> tuple[str, ...]:
    """The names of the file size classes, ascending."""
    marks = [_binary(e) for e in EDGES]
    return (f"below {marks[0]}", *(f"{a}–{b}" for a, b in pairwise(marks)), f"{marks[-1]} or more")


def _binary(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def classes_of(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The class of each file, as an index into :func:`class_labels`."""
    return np.searchsorted(np.asarray(EDGES), sizes, side="right")


def size_classes(sizes: npt.NDArray[np.int64], small_below: int | None = None) -> list[SizeClass]:
    """Files and bytes by class, without the empty classes at the ends.

    >>> [c.files for c in size_classes(np.array([10, 5000, 6000, 100_000]))]
    [1, 2, 0, 1]
    """
    labels = class_labels()
    at = classes_of(sizes)
    files = np.bincount(at, minlength=len(labels))
    total = np.bincount(at, weights=sizes.astype(np.float64), minlength=len(labels))
    some = np.flatnonzero(files)
    if not len(some):
        return []
    span = range(int(some[0]), int(some[-1]) + 1)
    ends = (*EDGES, None)
    return [
        SizeClass(
            labels[i], int(files[i]), int(total[i]), small_below is not None and (ends[i] or np.inf) <= small_below
        )
        for i in span
    ]


def as_sizes(files: pa.Table) -> npt.NDArray[np.int64]:
    """Bytes of each file; 0 where unknown."""
    return np.asarray(pc.fill_null(files["size"], 0).to_numpy(), np.int64)


#: Bounds of the classes of files by their share of deleted rows.
_DELETED = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


def deleted_classes(files: pa.Table) -> list[tuple[str, int, int]]:
    """Files with deletion vectors by share of deleted rows: label, files, deleted rows."""
    some = files.filter(pc.greater(files["deleted"], 0))
    deleted = some["deleted"].to_numpy().astype(np.float64)
    rows = some["rows"].to_numpy().astype(np.float64)  # null becomes NaN
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(rows > 0, deleted / rows, np.nan)
    has_share = ~np.isnan(share)
    at = np.clip(np.searchsorted(_DELETED, share[has_share], side="left") - 1, 0, len(_DELETED) - 2)
    count = np.bincount(at, minlength=len(_DELETED) - 1)
    rows_deleted = np.bincount(at, weights=deleted[has_share], minlength=len(_DELETED) - 1)
    marks = [f"{round(100 * s)}" for s in _DELETED]
    out = [
        (f"{a}–{b} %", int(n), int(t))
        for a, b, n, t in zip(marks, marks[1:], count.tolist(), rows_deleted.tolist(), strict=False)
    ]
    if not has_share.all():
        out.append(("unknown", int((~has_share).sum()), int(deleted[~has_share].sum())))
    return out


def extremes(files: pa.Table, count: int = 5) -> pa.Table:
    """The largest files."""
    order = pc.select_k_unstable(files, k=min(count, files.num_rows), sort_keys=[("size", "descending")])
    return files.take(order)


def top_columns(columns: dict[str, int], limit: int) -> list[tuple[str, int]]:
    """The columns with most bytes, and the total of all others.

    >>> top_columns({"a": 1, "b": 5, "c": 2}, 2)
    [('b', 5), ('2 other columns', 3)]
    """
    order = sorted(columns.items(), key=lambda c: (-c[1], c[0]))
    if len(order) <= limit:
        return order
    rest = order[limit - 1 :]
    return [*order[: limit - 1], (f"{len(rest)} other columns", sum(size for _, size in rest))]


def summary(sizes: npt.NDArray[np.int64]) -> dict[str, str]:
    """Smallest, median, mean and largest size, as strings."""
    if not len(sizes):
        return {}
    return {
        "smallest": format_size(int(sizes.min())),
        "median": format_size(float(np.median(sizes))),
        "mean": format_size(float(sizes.mean())),
        "largest": format_size(int(sizes.max())),
    }
