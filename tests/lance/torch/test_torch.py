"""``lance.torch``: torch datasets over Lance datasets.

Torch itself is too large for the tests.  The stand-in takes writable arrays of the types that tensors have.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, MissingDependencyError
from trilake.lance.sampler import ShardedBatchSampler

_MODULE = "trilake.lance.torch.data"
_TYPES = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}


def _from_numpy(array: Any) -> Any:
    assert isinstance(array, np.ndarray)
    assert array.flags.writeable
    assert array.dtype.name in _TYPES
    return array


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module under test, with a stand-in for torch; ``worker`` on it says which worker of a loader this is."""
    stand_in = SimpleNamespace(worker=None)
    data: Any = ModuleType("torch.utils.data")
    data.IterableDataset = type("IterableDataset", (), {"__module__": "torch.utils.data"})
    data.Dataset = type("Dataset", (), {"__module__": "torch.utils.data"})
    data.DataLoader = lambda dataset, **options: (dataset, options)
    data.get_worker_info = lambda: stand_in.worker
    whole: Any = ModuleType("torch")
    whole.from_numpy = _from_numpy
    stand_in.group = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", whole)
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)
    monkeypatch.setitem(sys.modules, "torch.distributed", stand_in.group)
    sys.modules.pop(_MODULE, None)
    stand_in.data = import_module(_MODULE)
    yield stand_in
    sys.modules.pop(_MODULE, None)


@pytest.fixture
def source(tmp_path: Path) -> lance.LanceDataset:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(460, dtype=np.float32)), 2)
    rows = pa.table({"v": vectors, "n": range(230), "flag": [i % 2 == 0 for i in range(230)]})
    return lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=50, max_rows_per_group=10)


def _numbers(dataset: Any) -> list[int]:
    return [int(n) for batch in dataset for n in batch]


def test_batches_are_tensors(torch: Any, source: lance.LanceDataset) -> None:
    batches = list(torch.data.LanceDataset(source, batch_size=100, with_row_id=True))
    assert [len(b["n"]) for b in batches] == [100, 100, 30]
    assert batches[0]["v"].shape == (100, 2)
    assert batches[0]["v"].dtype == np.float32
    assert batches[0]["flag"].tolist()[:3] == [True, False, True]
    assert batches[0]["_rowid"].dtype == np.int64
    few = torch.data.LanceDataset(source.uri, 8, columns=["n"], filter="n >= 220")
    assert _numbers(few) == list(range(220, 230))  # one column is a tensor alone
    assert few.schema.names == ["n"]
    assert repr(few) == f"LanceDataset({source.uri}, batch_size=8)"
    own = torch.data.LanceDataset(source, 230, to_tensor_fn=lambda batch: batch.num_rows)
    assert list(own) == [230]


def test_columns_convert_to_tensors(torch: Any) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.float16()), 2)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(3, 2, 2))
    batch = pa.record_batch(
        {"u": pa.array([1, 2, 3], pa.uint64()), "v": vectors, "t": tensors, "b": [True, False, True]}
    )
    found = torch.data.to_tensors(batch)
    assert {name: (str(a.dtype), a.shape) for name, a in found.items()} == {
        "u": ("int64", (3,)),
        "v": ("float16", (3, 2)),
        "t": ("float32", (3, 2, 2)),
        "b": ("bool", (3,)),
    }
    assert found["v"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert torch.data.to_tensors(batch.slice(1, 1))["v"].tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["x"]), TypeError),
        (pa.array([1, None]), ValueError),
        (pa.array([2**63], pa.uint64()), ValueError),
        (pa.array([[1.0, None]], pa.list_(pa.float32(), 2)), ValueError),
    ],
)
def test_unsupported_tensor_columns_are_rejected(torch: Any, column: pa.Array, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="c"):
        torch.data.to_tensors(pa.record_batch({"c": column}))


def test_arguments_of_other_implementations_are_accepted(torch: Any, source: lance.LanceDataset) -> None:
    rows = torch.data.LanceDataset(source, 40, columns=["n"], pin_memory=True, samples=None)
    assert rows.pin_memory
    assert sum(len(batch) for batch in rows) == 230


@pytest.mark.parametrize("how", ["fragment", "batch"])
@pytest.mark.parametrize("filter", [None, "n >= 10"])
def test_ranks_and_workers_read_each_row_once(
    torch: Any, source: lance.LanceDataset, how: str, filter: str | None
) -> None:
    found = []
    for rank in range(2):
        part = torch.data.LanceDataset(
            source, 7, columns=["n"], filter=filter, rank=rank, world_size=2, shard_granularity=how
        )
        for worker in range(3):
            torch.worker = SimpleNamespace(id=worker, num_workers=3)
            found += _numbers(part)
    assert sorted(found) == list(range(0 if filter is None else 10, 230))


def test_cache_returns_the_same_batches(torch: Any, source: lance.LanceDataset, tmp_path: Path) -> None:
    kept = torch.data.LanceDataset(source, 50, columns=["n"], cache=tmp_path)
    first = _numbers(kept)
    source.delete("n < 100")
    assert _numbers(kept) == first == list(range(230))


def test_samples_and_sampler_arguments(torch: Any, source: lance.LanceDataset) -> None:
    drawn = _numbers(torch.data.LanceDataset(source, 10, columns=["n"], samples=25))
    assert len(set(drawn)) == 25
    sampled = torch.data.LanceDataset(source, 10, columns=["n"], sampler=ShardedBatchSampler(1, 2))
    assert _numbers(sampled)[:10] == list(range(10, 20))
    torch.worker = SimpleNamespace(id=0, num_workers=2)
    for dataset in (sampled, torch.data.LanceDataset(source, 10, samples=5)):
        with pytest.raises(InvalidArgumentError, match="num_workers=0"):
            list(dataset)


@pytest.mark.parametrize(
    "how",
    [
        {"rank": 0},
        {"world_size": 2},
        {"rank": 2, "world_size": 2},
        {"shard_granularity": "row"},
        {"samples": 5, "with_row_id": True},
        {"sampler": ShardedBatchSampler(0, 2), "rank": 0, "world_size": 2},
        {"batch_size": 0},
    ],
    ids=", ".join,
)
def test_conflicting_parameters_are_rejected(torch: Any, source: lance.LanceDataset, how: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        list(torch.data.LanceDataset(source, **{"batch_size": 10, **how}))


@pytest.mark.parametrize("how", ["fragment", "batch"])
def test_process_group_gives_the_rank(torch: Any, source: lance.LanceDataset, how: str) -> None:
    group = torch.group

    def joined(rank: int) -> None:
        group.is_initialized, group.get_rank, group.get_world_size = lambda: True, lambda: rank, lambda: 2

    options: dict[str, Any] = {"columns": ["n"], "shard_granularity": how}
    early = torch.data.LanceDataset(source, 7, **options)
    found, by_worker = [], []
    for rank in range(2):
        joined(rank)
        part = torch.data.LanceDataset(source, 7, **options)
        sent = pickle.dumps(part)
        own = _numbers(part)
        found += own
        assert _numbers(early) == own
        assert _numbers(torch.data.LanceDataset(source, 7, **options, auto_detect_rank=False)) == list(range(230))
        assert len(_numbers(torch.data.LanceDataset(source, 7, **options, rank=0, world_size=1))) == 230
        group.is_initialized = lambda: False  # as in a spawned worker process
        again = pickle.loads(sent)
        for worker in range(2):
            torch.worker = SimpleNamespace(id=worker, num_workers=2)
            by_worker += _numbers(again)
        torch.worker = None
    assert sorted(found) == sorted(by_worker) == list(range(230))


def test_columns_are_computed_and_samples_filtered(torch: Any, source: lance.LanceDataset) -> None:
    version = source.version
    source.delete("n >= 100")
    options: dict[str, Any] = {"columns": {"twice": "2 * n"}, "filter": "n < 50"}
    rows = torch.data.LanceDataset(source.uri, 20, dataset_options={"version": version}, **options)
    assert rows.dataset.count_rows() == 230
    assert _numbers(rows) == list(range(0, 100, 2))
    assert rows.schema.names == ["twice"]
    drawn = _numbers(torch.data.LanceDataset(source, 20, samples=30, **options))
    assert len(set(drawn)) == 30
    assert set(drawn) < set(range(0, 100, 2))


def test_blobs_are_files(torch: Any, tmp_path: Path) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([range(10), [bytes([i]) * 9 for i in range(10)]], schema=pa.schema([("n", pa.int64()), blob]))
    source = lance.write_dataset(rows, tmp_path / "t")
    seen = []

    def read(batch: dict[str, Any]) -> None:
        seen.append((list(batch), batch["n"].to_pylist() if "n" in batch else [], [f.read() for f in batch["b"]]))

    list(torch.data.LanceDataset(source, 6, to_tensor_fn=read))
    list(torch.data.LanceDataset(source, 10, columns=["b"], filter="n = 3", with_row_id=True, to_tensor_fn=read))
    assert seen == [
        (["n", "b"], list(range(6)), [bytes([i]) * 9 for i in range(6)]),
        (["n", "b"], list(range(6, 10)), [bytes([i]) * 9 for i in range(6, 10)]),
        (["_rowid", "b"], [], [bytes([3]) * 9]),
    ]
    assert _numbers(torch.data.LanceDataset(source, 6, columns=["n"])) == list(range(10))
    with pytest.raises(InvalidArgumentError, match="blobs"):
        torch.data.LanceDataset(source, 6, samples=2)


def test_map_style_dataset_returns_rows_by_position(torch: Any, source: lance.LanceDataset) -> None:
    version = source.version
    source.delete("n < 100")
    rows = pickle.loads(pickle.dumps(torch.data.SafeLanceDataset(source.uri, dataset_options={"version": version})))
    assert len(rows) == 230
    assert rows[3] == {"v": [6.0, 7.0], "n": 3, "flag": False}
    assert [row["n"] for row in rows.__getitems__([9, 2])] == [9, 2]
    loader = torch.data.get_safe_loader(rows, batch_size=8, num_workers=2, pin_memory=True)
    expected = {"batch_size": 8, "num_workers": 2, "pin_memory": True}
    assert loader == (rows, {**expected, "persistent_workers": True, "multiprocessing_context": "spawn"})
    assert torch.data.get_safe_loader(rows, num_workers=0) == (rows, {"batch_size": 32, "num_workers": 0})


def test_nulls_are_rejected(torch: Any, tmp_path: Path) -> None:
    rows = lance.write_dataset(pa.table({"n": [1, None]}), tmp_path / "t", nulls="mask")
    with pytest.raises(InvalidArgumentError, match="IS NOT NULL"):
        list(torch.data.LanceDataset(rows, 2))


def test_new_worker_process_gets_the_dataset(torch: Any, source: lance.LanceDataset) -> None:
    sent = pickle.loads(pickle.dumps(torch.data.LanceDataset(source, 100, columns=["n"])))
    assert _numbers(sent) == list(range(230))


def test_missing_torch_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    sys.modules.pop(_MODULE, None)
    with pytest.raises(MissingDependencyError, match=r'pip install "trilake\[torch\]"'):
        import_module(_MODULE)
