"""Searches in a distance range, and for several vectors at once, compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.lance.scan.test_search import METRICS, VECTORS, Q, true_distances
from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import LanceDataset

TWO = np.stack([VECTORS[5], Q])


def begun(rows: int = 900) -> LanceDataset:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[:rows].reshape(-1)), 8)
    table = pa.table({"id": range(rows), "v": vectors})
    dataset = lance.write_dataset(table, "memory://search-ranges", mode="overwrite", max_rows_per_file=200)
    dataset.delete("id % 7 = 0")
    return dataset


def live(metric: str, low: float | None = None, high: float | None = None) -> list[int]:
    """The rows within a range, nearest first."""
    distance = true_distances(VECTORS, Q, metric)
    lowest, highest = -np.inf if low is None else low, np.inf if high is None else high
    return [i for i in np.argsort(distance).tolist() if i % 7 and lowest <= distance[i] < highest]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_distance_range(metric: str, indexed: bool) -> None:
    ds = begun()
    if indexed:
        ds.create_index("v", "IVF_PQ", metric=metric, num_partitions=4, num_sub_vectors=8, seed=1)
    distances = np.sort(true_distances(VECTORS, Q, metric))
    low, high = (float(distances[at] + distances[at + 1]) / 2 for at in (40, 300))
    search: dict[str, Any] = {"column": "v", "q": Q, "metric": metric, "nprobes": 4, "refine_factor": 30, "k": 20}
    for bounds in (low, high), (None, high), (low, None), (high, None), (None, None):
        found = ds.to_table(columns=["id"], nearest={**search, "distance_range": bounds})
        assert found["id"].to_pylist() == live(metric, *bounds)[:20]
    del search["refine_factor"]
    coarse = ds.to_table(columns=["id"], nearest={**search, "distance_range": (low, high)})
    assert len(coarse) == 20
    assert low <= coarse["_distance"].to_numpy().min() <= coarse["_distance"].to_numpy().max() < high


def test_lower_bound_is_inclusive_and_upper_is_exclusive() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8), pa.float32()), 2)
    ds = lance.write_dataset(pa.table({"id": [1, 2, 3, 4], "v": vectors}), "memory://range-ends", mode="overwrite")

    def found(*bounds: float | None) -> list[int]:
        search = {"column": "v", "q": [0, 0], "k": 2, "distance_range": bounds}
        ids: list[int] = ds.to_table(columns=["id"], nearest=search)["id"].to_pylist()
        return ids

    # From pylance 14.0.2; the distances are 1, 13, 41 and 85.
    assert (found(5.0, 41.0), found(None, 13.0), found(13.0, None), found(9.0, 1.0)) == ([2], [1], [2, 3], [])
    assert found(-1e300, 1e300) == [1, 2]


@pytest.mark.parametrize("indexed", [False, True])
def test_several_query_vectors(indexed: bool) -> None:
    ds = begun()
    if indexed:
        ds.create_index("v", "IVF_PQ", num_partitions=4, num_sub_vectors=4, seed=1)
    search: dict[str, Any] = {"column": "v", "k": 3, "nprobes": 2, "refine_factor": 5}
    apart = [ds.to_table(nearest={**search, "q": q}, filter="id > 2", with_row_id=True) for q in TWO]
    expected = pa.concat_tables(apart)
    for q in (TWO, TWO.tolist(), list(TWO), pa.array(TWO.tolist(), pa.list_(pa.float32(), 8))):
        found = ds.to_table(nearest={**search, "q": q}, filter="id > 2", with_row_id=True)
        assert found.schema.field(0) == pa.field("query_index", pa.int32(), nullable=False)
        assert found.drop_columns(["query_index"]).equals(expected)
        assert found["query_index"].to_pylist() == [0, 0, 0, 1, 1, 1]
    scanner = ds.scanner(["id", "query_index"], nearest={**search, "q": TWO}, offset=2, limit=2)
    assert scanner.to_table()["query_index"].to_pylist() == [0, 1]
    assert (scanner.projected_schema.names, scanner.count_rows()) == (["query_index", "id", "_distance"], 2)
    computed = ds.to_table(columns={"i": "id", "n": "query_index + 1"}, nearest={**search, "q": TWO})
    assert computed.schema.names == ["query_index", "i", "n", "_distance"]
    assert computed["n"].to_pylist() == [1, 1, 1, 2, 2, 2]
    only = ds.to_table(columns=["id"], nearest={**search, "q": TWO[:1]})
    assert only["query_index"].to_pylist() == [0, 0, 0]


def test_minimum_and_maximum_nprobes() -> None:
    ds = begun()
    ds.create_index("v", "IVF_PQ", num_partitions=8, num_sub_vectors=4, seed=1)
    search: dict[str, Any] = {"column": "v", "q": Q, "k": 5}
    for bounds, nprobes in (
        ({}, 6),
        ({"minimum_nprobes": 7, "maximum_nprobes": 8}, 7),
        ({"minimum_nprobes": 3}, 6),
        ({"maximum_nprobes": 3}, 3),
        ({"maximum_nprobes": 8, "nprobes": 2}, 2),
    ):
        assert f"nprobes={nprobes}" in ds.scanner(nearest={**search, **bounds}).explain_plan()


def test_probing_continues_until_k_rows_are_found() -> None:
    """A search returned fewer than k rows if some were deleted or filtered out."""
    ds = begun()
    ds.create_index("v", "IVF_PQ", num_partitions=8, num_sub_vectors=4, seed=1)
    every: dict[str, Any] = {"column": "v", "q": Q, "k": ds.count_rows()}
    ds.delete("id = 3")
    assert ds.to_table(nearest=every).num_rows == ds.count_rows()
    filtered = ds.to_table(nearest={**every, "minimum_nprobes": 1, "k": 2}, filter="id IN (1, 2)", prefilter=True)
    assert filtered.num_rows == 2
    assert ds.to_table(nearest={**every, "nprobes": 2}).num_rows < ds.count_rows()
    assert ds.to_table(nearest={**every, "maximum_nprobes": 2}).num_rows < ds.count_rows()


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"distance_range": (1.0,)}, "distance_range must be"),
        ({"distance_range": "ab"}, "distance_range must be"),
        ({"distance_range": (float("nan"), None)}, "distance_range must contain numbers"),
        ({"distance_range": (None, "1")}, "distance_range must contain numbers"),
        ({"minimum_nprobes": 3, "maximum_nprobes": 2}, "must not exceed maximum_nprobes, got 3 and 2"),
        ({"maximum_nprobes": 0}, "maximum_nprobes must be"),
        ({"q": np.zeros((2, 7))}, "size 7"),
        ({"q": np.zeros((0, 8))}, "at least one query vector"),
        ({"q": np.zeros((1, 1, 8))}, "3 dimensions"),
        ({"q": [[0.0] * 8, [0.0]]}, "must have the same length, got 1 and 8"),
    ],
)
def test_invalid_searches_are_rejected(search: dict[str, Any], message: str) -> None:
    ds = begun(9)
    with pytest.raises((InvalidArgumentError, TypeError), match=message):
        ds.to_table(nearest={"column": "v", "q": Q, **search})
