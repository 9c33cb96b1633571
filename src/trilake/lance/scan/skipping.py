"""Skip row groups by the statistics in data files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trilake.expr import ColumnStats, FileStats, Filter, can_match
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import FragmentReader


def candidate_groups(reader: FragmentReader, filter: Filter, view: View) -> list[tuple[int, int]]:
    """Find the ranges of a fragment's rows that may match; adjacent row groups are one range."""
    rows = reader.physical_rows
    if not rows:
        return []
    offsets = reader.batch_offsets
    groups = len(offsets) - 1

    def column(path: tuple[str, ...]) -> ColumnStats | None:
        field = view.schema.find(path)
        if field is None:
            return None
        ids = view.schema.column_ids(field)
        if not any(ids.intersection(f.fields) for f in reader.fragment.files):
            # No file has the column: it is null in every row.
            return ColumnStats(value=pa.nulls(groups, field.arrow_type))
        return reader.statistics(view.masked).get(path)

    keep = can_match(filter, FileStats(groups, column, lambda: pa.array(np.diff(offsets)))).keep
    if keep.all():
        return [(0, rows)]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], keep, [False])).astype(np.int8)))
    return [(int(offsets[a]), int(offsets[b])) for a, b in edges.reshape(-1, 2)]
