"""Samplers and fixed-size batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import LanceDataset, LanceFragment
from trilake.lance.sampler import (
    FragmentSampler,
    FullScanSampler,
    Sampler,
    ShardedBatchSampler,
    ShardedFixedBatchSampler,
    ShardedFragmentSampler,
    maybe_sample,
)
from trilake.lance.scan.scan import regroup

SHARDED = [ShardedFragmentSampler, ShardedBatchSampler]


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    ds = lance.write_dataset(
        pa.table({"a": range(230), "b": range(230)}), tmp_path / "t", max_rows_per_file=50, max_rows_per_group=10
    )
    ds.delete("a % 7 = 0")
    return ds


def values(sampler: Sampler, ds: LanceDataset, **how: object) -> list[list[int]]:
    return [b.column(0).to_pylist() for b in sampler(ds, columns=["a"], **how)]  # type: ignore[arg-type]


def test_full_scan_yields_all_rows_in_fixed_batches(dataset: LanceDataset) -> None:
    found = values(FullScanSampler(), dataset, batch_size=30)
    assert [len(b) for b in found] == [30] * 6 + [17]
    assert [v for b in found for v in b] == dataset.to_table()["a"].to_pylist()
    assert values(FullScanSampler(), dataset, filter="a < 10")[0] == [1, 2, 3, 4, 5, 6, 8, 9]


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 11])
def test_shards_read_every_row_once(
    dataset: LanceDataset, kind: Callable[..., Sampler], randomize: bool, size: int
) -> None:
    shares = [values(kind(rank, size, randomize=randomize, seed=5), dataset, batch_size=8) for rank in range(size)]
    assert sorted(v for share in shares for batch in share for v in batch) == dataset.to_table()["a"].to_pylist()
    if kind is ShardedBatchSampler:
        counts = [len(share) for share in shares]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("kind", SHARDED)
def test_shards_read_every_filtered_row_once(dataset: LanceDataset, kind: Callable[..., Sampler]) -> None:
    shares = [values(kind(rank, 3), dataset, batch_size=8, filter="a > 100") for rank in range(3)]
    found = sorted(v for share in shares for batch in share for v in batch)
    assert found == dataset.to_table(filter="a > 100")["a"].to_pylist()


def test_random_order_depends_on_the_seed(dataset: LanceDataset) -> None:
    sampler = ShardedBatchSampler(0, 1, randomize=True, seed=3)
    first, second = values(sampler, dataset, batch_size=8), values(sampler, dataset, batch_size=8)
    assert first != second
    assert values(ShardedBatchSampler(0, 1, randomize=True, seed=3), dataset, batch_size=8) == first


@pytest.mark.parametrize("randomize", [False, True])
def test_filtered_rows_are_dealt_one_by_one(
    dataset: LanceDataset, randomize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trilake.lance.sampler._SHUFFLED", 3)
    matching = dataset.to_table(filter="a > 100")["a"].to_pylist()
    for rank in range(3):
        sampler = ShardedBatchSampler(rank, 3, randomize=randomize, seed=3)
        epochs = [[v for b in values(sampler, dataset, batch_size=4, filter="a > 100") for v in b] for _ in range(2)]
        assert [sorted(epoch) for epoch in epochs] == [matching[rank::3]] * 2
        assert (epochs[0] == matching[rank::3]) is not randomize
        assert (epochs[0] == epochs[1]) is not randomize


def test_samplers_of_users(dataset: LanceDataset) -> None:
    class Backwards(FragmentSampler):
        def iter_fragments(self, dataset: LanceDataset, **more: object) -> Iterator[LanceFragment]:
            yield from reversed(dataset.get_fragments()[more["skip"] :])  # type: ignore[misc]

    class Few(Sampler):
        def __call__(self, dataset: LanceDataset, *, batch_size: int = 5, **more: object) -> Iterator[pa.RecordBatch]:
            yield from dataset.head(batch_size).to_batches()

    found = [v for b in values(Backwards(), dataset, batch_size=7, skip=3) for v in b]
    live = dataset.to_table()["a"].to_pylist()
    assert found == [v for v in live if v >= 200] + [v for v in live if 150 <= v < 200]
    assert [b.num_rows for b in Few()(dataset)] == [5]


def test_process_of_torch_has_its_rank(dataset: LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimpleNamespace(get_rank=lambda: 1, get_world_size=lambda: 2)
    for name, module in ("torch", SimpleNamespace(distributed=world)), ("torch.distributed", world):
        monkeypatch.setitem(sys.modules, name, module)
    for kind in SHARDED:
        sampler = kind.from_torch(True, seed=7)  # type: ignore[attr-defined]
        assert (sampler.rank, sampler.world_size, sampler.randomize, sampler.seed) == (1, 2, True, 7)
    assert list(ShardedFixedBatchSampler.from_torch(2, 6)) == [[3, 4], [5]]


def test_samples_of_filtered_rows(dataset: LanceDataset) -> None:
    def sample(n: int, **how: object) -> list[list[int]]:
        return [b["a"].to_pylist() for b in maybe_sample(dataset, n, "a", filt="a > 100", **how)]  # type: ignore[arg-type]

    matching = dataset.to_table(filter="a > 100")["a"].to_pylist()
    (first,), batches = sample(20), sample(20, batch_size=8)
    assert [len(b) for b in batches] == [8, 8, 4]
    for found in first, [v for b in batches for v in b]:
        assert len(set(found)) == 20
        assert set(found) <= set(matching)
    assert [v for b in sample(1000) for v in b] == matching
    ((double,),) = (maybe_sample(dataset, 1, {"double": "2 * a"}, filt="a = 10"),)
    assert double.to_pydict() == {"double": [20]}


def test_shard_includes_row_ids(dataset: LanceDataset) -> None:
    (batch, *_) = ShardedBatchSampler(0, 2)(dataset, batch_size=8, columns=["b"], with_row_id=True)
    assert batch.schema.names == ["b", "_rowid"]


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_invalid_rank_is_rejected(rank: int, size: int) -> None:
    for kind in SHARDED:
        with pytest.raises(InvalidArgumentError, match="rank must be from 0"):
            kind(rank, size)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_rebatching_keeps_the_order_of_rows(sizes: list[int], size: int) -> None:
    starts = np.cumsum([0, *sizes])
    batches = [pa.record_batch({"a": np.arange(s, s + n)}) for s, n in zip(starts, sizes, strict=False)]
    found = list(regroup(batches, size))
    assert [v for b in found for v in b.column(0).to_pylist()] == list(range(sum(sizes)))
    assert all(b.num_rows == size for b in found[:-1])


@pytest.mark.parametrize("total", [0, 2, 10, 500])
@pytest.mark.parametrize("readers", [1, 3, 4])
def test_fixed_batch_shards_cover_all_offsets(total: int, readers: int) -> None:
    samplers = [ShardedFixedBatchSampler(r, readers, batch_size=7, total_num_rows=total) for r in range(readers)]
    assert [len(s) for s in samplers] == [len(list(s)) for s in samplers]
    assert [place for s in samplers for batch in s for place in batch] == list(range(total))
    assert all(len(batch) <= 7 for s in samplers for batch in s)


def test_offsets_are_shuffled_in_each_epoch() -> None:
    def batches(epoch: int) -> list[list[int]]:
        sampler = ShardedFixedBatchSampler(1, 2, randomize=True, seed=4, batch_size=10, total_num_rows=200)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert batches(1) == batches(1) != batches(2)
    assert sorted(batches(1)) == sorted(batches(2)) == [list(range(i, i + 10)) for i in range(100, 200, 10)]


def test_fixed_batches_need_a_size() -> None:
    ds = lance.write_dataset(pa.table({"a": range(10)}), "memory://samplers-fixed", mode="overwrite")
    sampler = ShardedFixedBatchSampler(1, 2)
    assert [b["a"].to_pylist() for b in sampler(ds, batch_size=4)] == [[4, 5, 6, 7]]
    with pytest.raises(InvalidArgumentError, match="batch_size and total_num_rows are required"):
        list(sampler)
    with pytest.raises(InvalidArgumentError, match="total_num_rows"):
        ShardedFixedBatchSampler(0, 1, batch_size=1, total_num_rows=-1)
