"""``index_cache_size``: indices and partitions that stay open, and the hit rate."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import LanceDataset
from trilake.lance.index.files import ReadCache
from trilake.lance.v2.file import V2File

RNG = np.random.default_rng(42)


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(RNG.normal(size=1024 * 16).astype(np.float32)), 16)
    return lance.write_dataset(pa.table({"v": vectors}), tmp_path / "t")


def ask(ds: LanceDataset, times: int, q: np.ndarray | None = None) -> None:
    for _ in range(times):
        near = {"column": "v", "q": RNG.normal(size=16) if q is None else q, "k": 3, "nprobes": 1}
        ds.to_table(columns=[], nearest=near)


def entries(ds: LanceDataset) -> int:
    return ds.stats.index_stats("v_idx")["index_cache_entry_count"]


def hits(ds: LanceDataset) -> float:
    return ds.stats.index_stats("v_idx")["index_cache_hit_rate"]


def test_cache_keeps_at_most_its_size(dataset: LanceDataset) -> None:
    how = {"num_partitions": 64, "num_sub_vectors": 2}
    indexed = dataset.create_index("v", "IVF_PQ", index_cache_size=10, **how)
    assert entries(indexed) == 1  # the index itself
    ask(indexed, 1)
    assert entries(indexed) == 2  # and a partition
    ask(indexed, 128)
    assert entries(indexed) == 10
    for size in (5, 1):
        other = lance.dataset(indexed.uri, index_cache_size=size)
        ask(other, 128)
        assert entries(other) == max(size, 2)  # at least an index and one of its partitions
    again = pickle.loads(pickle.dumps(lance.dataset(indexed.uri)))
    ask(again, 128)
    assert entries(again) > 40


def test_repeated_query_is_answered_from_the_cache(dataset: LanceDataset) -> None:
    dataset.create_index("v", "IVF_PQ", num_partitions=64, num_sub_vectors=2)
    ds = lance.dataset(dataset.uri, index_cache_size=3)
    ask(ds, 1)
    assert hits(ds) < 0.7
    ask(ds, 200, RNG.normal(size=16))
    high = hits(ds)
    assert high > 0.98
    ask(ds, 128)
    assert hits(ds) < high


def test_negative_cache_size_is_rejected(dataset: LanceDataset) -> None:
    with pytest.raises(InvalidArgumentError, match="index_cache_size"):
        lance.dataset(dataset.uri, index_cache_size=-1)


def test_pages_and_bitmaps_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range with two bounds is one index search."""
    rows = pa.table({"n": range(10_000), "k": [i % 5 for i in range(10_000)]})
    dataset = lance.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("n", "BTREE")
    dataset.create_scalar_index("k", "BITMAP")
    filters = ["n >= 5000 AND n < 5003", "k = 3 AND n < 20", "k IN (1, 3) AND n > 9990"]
    first = [dataset.to_table(filter=filter) for filter in filters]
    assert [len(found) for found in first] == [3, 4, 4]
    assert "[n >= 5000 && n < 5003]@n_idx" in dataset.scanner(filter=filters[0]).explain_plan()

    read: list[str] = []
    for name in ("read_rows", "take"):
        method = getattr(V2File, name)
        monkeypatch.setattr(V2File, name, lambda file, *args, of=method: [read.append(file.file), of(file, *args)][1])
    assert [dataset.to_table(filter=filter) for filter in filters] == first
    assert not [file for file in read if "_indices" in file]


def test_read_cache_drops_the_least_recently_used() -> None:
    cache = ReadCache(10)
    for number in range(3):
        cache.keep("f", number, number, 4)
    assert [cache.get("f", number) for number in range(3)] == [None, 1, 2]
    cache.get("f", 1)
    cache.keep("f", 3, 3, 4)
    cache.keep("f", 4, 4, 11)
    assert [cache.get("f", number) for number in range(5)] == [None, 1, None, 3, None]
