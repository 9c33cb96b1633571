"""The partition heat map: where bytes and small files are, over at most two partition columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plain
from trilake.table.report_facts import PartitionColumn
from trilake.tools.report.sizes import as_sizes, class_labels, classes_of

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
    return HeatMap(*names, y_names, x_names, count, size, _partitions(columns), y_left, x_left)


def _partitions(columns: tuple[PartitionColumn, ...]) -> int:
    """The number of distinct combinations of values."""
    codes = np.zeros(len(columns[0].values), np.int64)
    for column in columns:
        column_codes = _codes(column.values)[0]
        codes = np.unique(codes * (int(column_codes.max(initial=0)) + 1) + column_codes, return_inverse=True)[1]
    return int(codes.max(initial=-1)) + 1


def _codes(values: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    encoded = pc.dictionary_encode(pa.concat_arrays(values.chunks), null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def _axis(
    values: pa.ChunkedArray, sizes: npt.NDArray[np.int64], limit: int
) -> tuple[npt.NDArray[np.int64], tuple[str, ...], int]:
    """Each file's position on an axis, the axis labels, and how many values are merged into the last one.

    Above ``limit`` values, those with the fewest bytes are merged.
    """
    codes, labels = _codes(values)
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
