"""``lance.torch``: batches of a dataset as tensors, shared out between processes and workers."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, MissingDependencyError, SchemaMismatchError
from trilake.lance.torch import TensorBatches, arrays

VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40, dtype=np.float32)), 2)
ROWS = pa.table({"n": range(20), "v": VECTORS, "s": [f"x{i}" for i in range(20)]})


@pytest.fixture
def dataset(tmp_path: Any) -> Any:
    place = str(tmp_path / "t")
    lance.write_dataset(ROWS.slice(0, 12), place)
    return lance.write_dataset(ROWS.slice(12), place, mode="append")


@pytest.mark.parametrize("granularity", ["batch", "fragment"])
@pytest.mark.parametrize(("processes", "workers"), [(1, 1), (2, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("filter", [None, "n % 3 = 0"])
def test_readers_together_get_every_row_once(
    dataset: Any, granularity: Any, processes: int, workers: int, filter: str | None
) -> None:
    seen: list[int] = []
    for rank in range(processes):
        for worker in range(workers):
            mine = TensorBatches(
                dataset, 3, columns=["n"], filter=filter, rank=rank, world_size=processes, shard_granularity=granularity
            )
            # A worker of a loader has its own copy.
            for batch in pickle.loads(pickle.dumps(mine)).batches(worker, workers):
                assert batch.schema.names == ["n"]
                assert batch.num_rows <= 3
                seen += batch["n"].to_pylist()
    assert sorted(seen) == [n for n in range(20) if filter is None or n % 3 == 0]


def test_columns_become_arrays_that_may_be_written(dataset: Any) -> None:
    (first, *_) = TensorBatches(dataset, 4).batches()
    made = arrays(first)
    assert made["s"] == ["x0", "x1", "x2", "x3"]
    assert isinstance(made["v"], np.ndarray)
    assert made["v"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    made["v"][0, 0] = 9


def test_nulls_and_types_without_tensors_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="'a' has nulls"):
        arrays(pa.record_batch({"a": [1, None]}))
    with pytest.raises(SchemaMismatchError, match="timestamp"):
        arrays(pa.record_batch({"a": pa.array([1], pa.timestamp("us"))}))
    with pytest.raises(SchemaMismatchError, match="'v' has nulls"):
        arrays(pa.record_batch({"v": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))}))


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"rank": 2, "world_size": 2}, {"shard_granularity": "row"}])
def test_arguments_that_cannot_be_are_refused(dataset: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        TensorBatches(dataset, **wrong)


def test_without_torch_the_error_says_what_to_install(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.utils.data", None)
    import trilake.lance.torch as module

    module._torch_dataset.cache_clear()
    with pytest.raises(MissingDependencyError, match="pip install torch"):
        _ = lance.torch.LanceDataset
    with pytest.raises(MissingDependencyError, match="pip install torch"):
        next(iter(TensorBatches(dataset)))


def test_the_data_set_is_torchs_and_asks_it_which_worker_it_is(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the few names of torch that are used; :func:`test_with_torch` is the same with torch itself."""

    class IterableDataset:
        pass

    torch, utils, data = ModuleType("torch"), ModuleType("torch.utils"), ModuleType("torch.utils.data")
    torch.from_numpy = lambda a: ("tensor", a.tolist())  # type: ignore[attr-defined]
    data.IterableDataset = IterableDataset  # type: ignore[attr-defined]
    data.get_worker_info = lambda: SimpleNamespace(id=1, num_workers=2)  # type: ignore[attr-defined]
    for module in torch, utils, data:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    lance.torch._torch_dataset.cache_clear()
    made = lance.torch.LanceDataset(dataset, 8, columns=["n"])
    assert isinstance(made, IterableDataset)
    assert [b["n"] for b in made] == [("tensor", list(range(8, 16)))]
    lance.torch._torch_dataset.cache_clear()


def test_with_torch(dataset: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is no dependency of the tests")
    loader = torch.utils.data.DataLoader(lance.torch.LanceDataset(dataset, 3), batch_size=None, num_workers=2)
    assert sorted(int(n) for batch in loader for n in batch["n"]) == list(range(20))
