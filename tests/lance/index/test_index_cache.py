"""``index_cache_size``: indices and partitions that are kept open, and how often that helped."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import LanceDataset

RNG = np.random.default_rng(42)


@pytest.fixture
def made(tmp_path: Path) -> LanceDataset:
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


def test_the_cache_keeps_as_many_entries_as_it_may(made: LanceDataset) -> None:
    how = {"num_partitions": 64, "num_sub_vectors": 2}
    indexed = made.create_index("v", "IVF_PQ", index_cache_size=10, **how)
    assert entries(indexed) == 1  # the index itself
    ask(indexed, 1)
    assert entries(indexed) == 2  # and a partition
    ask(indexed, 128)
    assert entries(indexed) == 10
    for size in (5, 1):
        other = lance.dataset(indexed.uri, index_cache_size=size)
        ask(other, 128)
        assert entries(other) == max(size, 2)  # never less than an index and one of its partitions
    again = pickle.loads(pickle.dumps(lance.dataset(indexed.uri)))
    ask(again, 128)
    assert entries(again) > 40


def test_the_same_question_is_answered_from_the_cache(made: LanceDataset) -> None:
    made.create_index("v", "IVF_PQ", num_partitions=64, num_sub_vectors=2)
    ds = lance.dataset(made.uri, index_cache_size=3)
    ask(ds, 1)
    assert hits(ds) < 0.7
    ask(ds, 200, RNG.normal(size=16))
    high = hits(ds)
    assert high > 0.98
    ask(ds, 128)
    assert hits(ds) < high


def test_a_size_that_cannot_be(made: LanceDataset) -> None:
    with pytest.raises(InvalidArgumentError, match="index_cache_size"):
        lance.dataset(made.uri, index_cache_size=-1)
