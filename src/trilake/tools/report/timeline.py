"""Versions over time: commits counted by operation in bins of equal length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plain
from trilake.table.report_facts import Commits

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
