"""The data of charts: binning keeps all files, rows and bytes."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from trilake.common.text import plain
from trilake.table.report_facts import COMMITS, FILES, ColumnBounds, Commits, PartitionColumn, ranked
from trilake.tools.report.charts import sanitised
from trilake.tools.report.measures import (
    deleted_classes,
    files_at,
    heat_map,
    measure,
    size_classes,
    timeline,
    top_columns,
)

RNG = np.random.default_rng(11)


def files_of(sizes: list[int], rows: list[int | None], deleted: list[int]) -> pa.Table:
    return pa.table([[f"f{i}" for i in range(len(sizes))], sizes, rows, deleted], schema=FILES)


def test_touched_files_have_bounds_around_the_value() -> None:
    low = RNG.integers(0, 50, 200)
    high = low + RNG.integers(0, 20, 200)
    points = np.arange(-1, 72)
    expected = [int(((low <= p) & (p <= high)).sum()) for p in points]
    assert files_at(low, high, points).tolist() == expected


def test_overlap_counts_files_with_common_ranges() -> None:
    low = RNG.integers(0, 50, 100)
    high = low + RNG.integers(0, 9, 100)
    pairs = (low[:, None] <= high[None]) & (low[None] <= high[:, None])
    assert measure(ColumnBounds("c", low, high), 100, 100).overlap == pytest.approx(pairs.sum(axis=1).mean() - 1)


def test_sample_represents_all_files() -> None:
    low = np.zeros(50, np.int64)
    assert measure(ColumnBounds("mixed", low, low + 9), 5000, 50).mean == pytest.approx(5000)
    order = np.arange(50, dtype=np.int64)
    assert measure(ColumnBounds("ordered", order, order), 5000, 50).mean == pytest.approx(1)


def test_lookups_touch_files_without_bounds() -> None:
    low, high = pa.chunked_array([[1, None, None]]), pa.chunked_array([[2, None, None]])
    found = ranked("c", low, high, pa.chunked_array([[False, True, None]]))
    assert found is not None
    assert found.unknown == 1
    assert measure(found, 3, 3).mean == 2


@pytest.mark.parametrize("values", [[b"a", b"b"], ["x", "y"], [1.5, 2.5], [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]])
def test_bounds_of_every_ordered_type_have_ranks(values: list[object]) -> None:
    both = pa.chunked_array([values])
    found = ranked("c", both, both, pa.chunked_array([[False, False]]))
    assert found is not None
    assert found.low.tolist() == found.high.tolist() == [1, 2]


def test_contradictory_bounds_are_ignored() -> None:
    found = ranked("c", pa.chunked_array([[5, 1]]), pa.chunked_array([[1, 2]]), pa.chunked_array([[False, False]]))
    assert found is not None
    assert (len(found.low), found.unknown) == (1, 1)


def test_size_classes_count_every_file_and_byte() -> None:
    sizes = RNG.lognormal(12, 4, 3000).astype(np.int64)
    found = size_classes(sizes)
    assert sum(c.files for c in found) == 3000
    assert sum(c.size for c in found) == pytest.approx(int(sizes.sum()), rel=1e-9)


def test_deleted_classes_count_every_file_with_deleted_rows() -> None:
    files = files_of([1] * 5, [100, 100, 100, None, 100], [0, 3, 100, 7, 50])
    found = deleted_classes(files)
    assert [(label, n) for label, n, _ in found if n] == [
        ("0–5 %", 1),
        ("25–50 %", 1),
        ("75–100 %", 1),
        ("unknown", 1),
    ]
    assert sum(taken for _, _, taken in found) == 160


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_heat_map_counts_every_file_and_byte(columns: int) -> None:
    count = 2000
    sizes = RNG.integers(1, 10**6, count)
    values = [[None if v == 7 else f"v{v:03d}" for v in RNG.integers(0, 90, count)] for _ in range(columns)]
    names = tuple(PartitionColumn(f"c{i}", pa.chunked_array([v])) for i, v in enumerate(values))
    map_ = heat_map(names, files_of(sizes.tolist(), [1] * count, [0] * count))
    assert map_ is not None
    assert map_.files.sum() == count
    assert map_.sizes.sum() == sizes.sum()
    assert map_.files.shape == (len(map_.y), len(map_.x))
    assert map_.partitions == len(set(zip(*values, strict=True)))
    assert len(set(map_.y)) == len(map_.y)
    assert map_.y_left == 90 - (len(map_.y) - 1)


def test_timeline_has_every_version() -> None:
    times = np.sort(RNG.integers(1_600_000_000_000, 1_700_000_000_000, 700))
    names = [f"OP{i % 9}" for i in range(699)] + [None]
    rows = {"version": range(700), "timestamp": times, "operation": names, "by": [None] * 700, "metrics": [None] * 700}
    line = timeline(
        Commits(pa.Table.from_pydict({**rows, "timestamp": pa.array(times, COMMITS.field(1).type)}, COMMITS))
    )
    assert line is not None
    assert sum(line.table["commits"].to_pylist()) == 700
    assert len(line.operations) == 6
    assert set(line.table["operation"].to_pylist()) <= set(line.operations)
    assert len(set(line.table["start"].to_pylist())) <= 49


def test_other_columns_have_the_remaining_bytes() -> None:
    columns = {f"c{i}": i for i in range(40)}
    found = top_columns(columns, 5)
    assert len(found) == 5
    assert sum(size for _, size in found) == sum(columns.values())


def test_svg_is_sanitized() -> None:
    text = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9" height="9">'
        '<style>*{}</style><script>1</script><foreignObject><p/></foreignObject><a xlink:href="x"><rect/></a>'
        '<g onclick="x" style="y"><text fill="url(#x)">a &lt;b&gt;</text><path d=""/></g></svg>'
    )
    found = sanitised(text, "t", "d", "k")
    assert found.endswith("<g><text>a &lt;b&gt;</text></g></svg>")


def test_plain_text_escapes_invisible_characters() -> None:
    assert plain("\x00\u200b\u2066é\U0001f468\u200d\U0001f469") == "\\x00\\u200b\\u2066é\U0001f468\u200d\U0001f469"
    assert len(plain("x" * 10_000)) == 120
