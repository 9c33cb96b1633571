"""What the charts of a report show, binned in numpy and Arrow: file sizes, clustering, partitions and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import format_size, plain
from trilake.table.report_facts import ColumnBounds, Commits, PartitionColumn

# --- file sizes, column bytes and deleted rows ------------------------------------------------------------------------

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
        SizeClass(labels[i], int(files[i]), int(total[i]), (ends[i] or np.inf) <= (small_below or -1)) for i in span
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
    labels = [f"{a}–{b} %" for a, b in pairwise(marks)]
    out = [(label, int(n), int(t)) for label, n, t in zip(labels, count, rows_deleted, strict=True)]
    if not has_share.all():
        out.append(("unknown", int((~has_share).sum()), int(deleted[~has_share].sum())))
    return out


def largest_files(files: pa.Table) -> pa.Table:
    """The five largest files."""
    return files.take(pc.select_k_unstable(files, k=min(5, files.num_rows), sort_keys=[("size", "descending")]))


def top_columns(columns: dict[str, int], limit: int) -> list[tuple[str, int]]:
    """The columns with the most bytes, and the total of all others.

    >>> top_columns({"a": 1, "b": 5, "c": 2}, 2)
    [('b', 5), ('2 other columns', 3)]
    """
    order = sorted(columns.items(), key=lambda c: (-c[1], c[0]))
    if len(order) <= limit:
        return order
    rest = order[limit - 1 :]
    return [*order[: limit - 1], (f"{len(rest)} other columns", sum(size for _, size in rest))]


def summary(sizes: npt.NDArray[np.int64]) -> dict[str, str]:
    """Smallest, median and largest size, as strings."""
    measures = {"smallest": sizes.min(), "median": np.median(sizes), "largest": sizes.max()}
    return {name: format_size(float(size)) for name, size in measures.items()}


# --- clustering -------------------------------------------------------------------------------------------------------
# A lookup reads every file whose bounds contain the value: few where rows are sorted by the column, nearly all where
# they are in random order.

#: Values in a profile.
POINTS = 40


@dataclass(frozen=True)
class Clustering:
    """How many files of the table a lookup of one value reads.

    The values are the midpoints of each file's bounds.  ``profile`` has the number of files for :data:`POINTS` of them
    in ascending order; ``mean`` and ``worst`` are over all of them.  ``overlap`` is how many other files overlap a
    file's range on average.
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
    """Estimate how many files lookups read, from the bounds of ``sampled`` of the table's ``files``.

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
    before = np.searchsorted(np.sort(bounds.low), bounds.high, side="right")
    after = np.searchsorted(np.sort(bounds.high), bounds.low, side="left")
    overlap = float((before - after - 1).mean()) * scale  # other files that overlap a file's range, on average
    mean, worst = float(files_read.mean()), float(files_read.max())
    distinct = int(np.count_nonzero(np.diff(ends))) + 1
    return Clustering(bounds.name, files, tuple(profile.tolist()), mean, worst, overlap, distinct, bounds.reference)


# --- partitions: where bytes and small files are, over at most two partition columns ----------------------------------

#: Most rows and columns of the map.
_ROWS, _COLUMNS = 60, 24
_NULL = "null"


@dataclass(frozen=True)
class HeatMap:
    """Files and bytes by two axes.

    ``y`` has values of the first partition column, ``x`` values of the second, or file size classes if there is none.
    ``files`` and ``sizes`` have one row per ``y`` and one column per ``x``.
    """

    y_name: str
    x_name: str
    y: tuple[str, ...]
    x: tuple[str, ...]
    files: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    #: Number of partitions, and of values merged into the last row or column.
    partitions: int = 0
    y_left: int = 0
    x_left: int = 0

    def most(self, values: npt.NDArray[np.int64]) -> int:
        """The largest value outside the merged row and column; at least 1."""
        cells = values[: -1 if self.y_left else None, : -1 if self.x_left else None]
        return max(1, int(cells.max(initial=0)))


def heat_map(columns: tuple[PartitionColumn, ...], files: pa.Table) -> HeatMap | None:
    """The map of a table; ``None`` without partition columns or files."""
    if not columns or not files.num_rows:
        return None
    sizes = as_sizes(files)
    y, y_names, y_left = _axis(columns[0].values, sizes, _ROWS)
    if len(columns) > 1:
        x, x_names, x_left = _axis(columns[1].values, sizes, _COLUMNS)
        x_name = columns[1].name
    else:
        labels, classes = class_labels(), classes_of(sizes)
        first, last = int(classes.min()), int(classes.max())
        x, x_names, x_left, x_name = classes - first, labels[first : last + 1], 0, "file size"
    shape = (len(y_names), len(x_names))
    cell = y * shape[1] + x
    count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    size = np.bincount(cell, weights=sizes.astype(np.float64), minlength=count.size).reshape(shape).astype(np.int64)
    names = plain(columns[0].name, 40), plain(x_name, 40)
    keys = pa.table({str(i): column.values for i, column in enumerate(columns)})
    partitions = keys.group_by(keys.column_names).aggregate([]).num_rows
    return HeatMap(*names, y_names, x_names, count, size, partitions, y_left, x_left)


def _axis(
    values: pa.ChunkedArray, sizes: npt.NDArray[np.int64], limit: int
) -> tuple[npt.NDArray[np.int64], tuple[str, ...], int]:
    encoded = pc.dictionary_encode(pa.concat_arrays(values.chunks), null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    labels: list[str | None] = encoded.dictionary.to_pylist()
    order = sorted(range(len(labels)), key=lambda i: _sort_key(labels[i]))
    merged = 0
    if len(labels) > limit:
        weight = np.bincount(codes, weights=sizes.astype(np.float64), minlength=len(labels))
        heaviest = set(np.argsort(-weight, kind="stable")[: limit - 1].tolist())
        merged = len(labels) - len(heaviest)
        order = [i for i in order if i in heaviest]
    position = np.full(len(labels), len(order), np.int64)
    position[order] = np.arange(len(order))
    names = [_NULL if labels[i] is None else plain(labels[i], 28) for i in order]
    if merged:
        names.append(f"{merged:,} other values")
    return position[codes], tuple(distinct_labels(names)), merged


def _sort_key(label: str | None) -> tuple[int, float, str]:
    """Numbers by value, then other strings, nulls last."""
    if label is None:
        return 2, 0.0, ""
    try:
        number = float(label)
    except ValueError:
        return 1, 0.0, label
    return (0, number, label) if number == number else (1, 0.0, label)


def distinct_labels(names: Sequence[str]) -> list[str]:
    """Number repeated names: an axis needs distinct ones."""
    uses: dict[str, int] = {}
    out = []
    for name in names:
        uses[name] = uses.get(name, 0) + 1
        out.append(name if uses[name] == 1 else f"{name} ({uses[name]})")
    return out


# --- versions over time: commits counted by operation in bins of equal length -----------------------------------------

#: Possible bin lengths in ms.
_LENGTHS = tuple(
    1000 * s for s in (1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
)
_BINS = 48
#: Most operations with their own colour.
_OPERATIONS = 5


@dataclass(frozen=True)
class Timeline:
    """Commits by bin and operation: parallel columns ``start``, ``end`` (ms), ``operation`` and ``commits``.

    ``operations`` are the names in colour order; the last may stand for all others.
    """

    operations: tuple[str, ...]
    table: pa.Table
    length_ms: int
    first_ms: int
    last_ms: int


def timeline(commits: Commits) -> Timeline | None:
    """Count commits in bins; ``None`` without commits."""
    table = commits.table
    if not table.num_rows:
        return None
    times = table["timestamp"].cast(pa.int64()).to_numpy()
    names = pc.fill_null(table["operation"], "unknown")
    counts = sorted(pc.value_counts(names).to_pylist(), key=lambda c: (-c["counts"], c["values"]))
    operations = [c["values"] for c in counts]
    if len(operations) > _OPERATIONS + 1:
        frequent = pa.array(operations[:_OPERATIONS])
        names = pc.if_else(pc.is_in(names, frequent), names, "other operations")
        operations = [*operations[:_OPERATIONS], "other operations"]
    first, last = int(times.min()), int(times.max())
    span = last - first
    length = next((n for n in _LENGTHS if span <= n * (_BINS - 1)), -(-span // (_BINS - 1)))
    start = (times // length) * length
    by_bin = (
        pa.table({"start": pa.array(start), "operation": names})
        .group_by(["start", "operation"])
        .aggregate([([], "count_all")])
        .sort_by([("start", "ascending"), ("operation", "ascending")])
    )
    labels = pa.array([plain(n, 32) for n in by_bin["operation"].to_pylist()], pa.string())
    end = np.asarray(by_bin["start"].to_numpy()) + length
    bins = pa.table({"start": by_bin["start"], "end": end, "operation": labels, "commits": by_bin["count_all"]})
    return Timeline(tuple(plain(n, 32) for n in operations), bins, length, first, last)
