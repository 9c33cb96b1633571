"""Search in lists of vectors: the nearest vector of a row counts for each query vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa
import pytest

import trilake
from trilake import lance
from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.lance import LanceDataset
from trilake.lance.index.vector_index import VectorIndex

SIZE = 8


def rows(count: int, first: int = 0, value: pa.DataType | None = None) -> pa.Table:
    """Rows with lists of up to four vectors, some of them empty or null."""
    rng = np.random.default_rng(first)
    lists = [
        None if i % 17 == 0 else rng.integers(0, 255, (int(rng.integers(0, 5)), SIZE)).tolist() for i in range(count)
    ]
    kind = pa.list_(pa.list_(value or pa.float32(), SIZE))
    return pa.table({"id": range(first, first + count), "v": pa.array(lists, kind)})


def found(ds: Any, q: Any, **more: Any) -> pa.Table:
    filter = more.pop("filter", None)
    near = {"column": "v", "q": q, "k": 10, **more}
    table: pa.Table = ds.to_table(["id"], filter=filter, prefilter=True, nearest=near)
    return table


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("l2", pa.float32()),
        ("cosine", pa.float16()),
        ("dot", pa.float64()),
        (None, pa.float32()),
        ("hamming", pa.uint8()),
    ],
)
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_lists_are_compared_as_in_pylance(tmp_path: Path, metric: str | None, value: pa.DataType, version: str) -> None:
    where = str(tmp_path / "t")
    ds = lance.write_dataset(rows(200, value=value), where, max_rows_per_file=90, data_storage_version=version)
    ds.delete("id % 7 = 3")
    more: dict[str, Any] = {} if metric is None else {"metric": metric}
    queries = np.random.default_rng(9).integers(0, 255, (3, SIZE))
    for q in (queries.astype(np.float32), queries[0].astype(np.float32), [list(map(float, q)) for q in queries]):
        for extra in ({}, {"filter": "id % 2 = 0"}, {"k": 500}):
            ours, theirs = (found(one.dataset(where), q, **more, **extra) for one in (lance, pylance))
            assert ours["id"].to_pylist() == theirs["id"].to_pylist()
            assert np.allclose(ours["_distance"], theirs["_distance"], rtol=1e-3, atol=1e-5)
            assert ours.schema == theirs.schema
    every = set(found(ds, queries, **more, k=500)["id"].to_pylist())
    assert every == set(ds.to_table(filter="v is not null and cardinality(v) > 0")["id"].to_pylist())
    near = found(ds, queries, **more)["_distance"].to_pylist()
    middle = found(ds, queries, **more, distance_range=(near[2], near[5]))
    assert middle["_distance"].to_pylist() == [d for d in near if near[2] <= d < near[5]]


@pytest.mark.parametrize("maker", [lance, pylance])
@pytest.mark.parametrize(
    ("kind", "more", "stable"),
    [("IVF_PQ", {"num_sub_vectors": 4}, False), ("IVF_FLAT", {}, True), ("IVF_SQ", {}, False)],
)
def test_indices_of_lists(tmp_path: Path, maker: Any, kind: str, more: dict[str, Any], stable: bool) -> None:
    where = str(tmp_path / "t")
    data = rows(600)
    maker.write_dataset(data, where, max_rows_per_file=200, enable_stable_row_ids=stable)
    maker.dataset(where).create_index("v", kind, metric="cosine", num_partitions=2, **more)
    queries = np.random.default_rng(9).integers(0, 255, (3, SIZE)).astype(np.float32)

    def check() -> LanceDataset:
        ds = lance.dataset(where)
        for q in queries, queries[0]:
            for filter in None, "id % 2 = 0":
                exact = found(ds, q, filter=filter, use_index=False, metric="cosine")
                assert found(ds, q, filter=filter, nprobes=2, refine_factor=8) == exact
        assert "ANNSubIndex" in ds.scanner(nearest={"column": "v", "q": queries}).explain_plan()
        theirs = found(pylance.dataset(where), queries, nprobes=2, refine_factor=8)
        assert len(set(theirs["id"].to_pylist()) & set(found(ds, queries, nprobes=2)["id"].to_pylist())) > 2
        return ds

    ds = check()
    ds.delete("id % 7 = 3")
    ds.insert(rows(100, 600))
    ds = check()
    ds.optimize.optimize_indices()
    assert ds.stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    ds = check()
    ds.optimize.compact_files()
    assert check().stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    assert trilake.verify(where).ok


def test_index_of_lists_needs_the_cosine_metric(tmp_path: Path) -> None:
    ds = lance.write_dataset(rows(300), tmp_path / "t")
    with pytest.raises(NotImplementedError, match="lists of vectors with the metric 'L2'"):
        ds.create_index("v", "IVF_FLAT", num_partitions=2)
    for wrong in ([1.0] * 3, [[1.0] * 3] * 2, np.zeros((2, 2, SIZE))):
        with pytest.raises(InvalidArgumentError):
            found(ds, wrong)


def test_index_that_returns_a_row_twice_is_corrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(1).normal(size=300 * SIZE).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), SIZE)
    ds = lance.write_dataset(pa.table({"id": range(300), "v": vectors}), tmp_path / "t")
    ds = ds.create_index("v", "IVF_FLAT", num_partitions=1)
    whole = VectorIndex._partitions
    monkeypatch.setattr(
        VectorIndex, "_partitions", lambda self, of: [(np.repeat(c, 2, 0), np.repeat(i, 2)) for c, i in whole(self, of)]
    )
    with pytest.raises(CorruptFileError, match="returns a row twice"):
        found(ds, numbers[:SIZE])
