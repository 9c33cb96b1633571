"""``lance.torch.kmeans`` and ``lance.torch.distance``, with numpy arrays that act as torch tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake.errors import InvalidArgumentError, MissingDependencyError

_DISTANCE, _KMEANS = "trilake.lance.torch.distance", "trilake.lance.torch.kmeans"
RNG = np.random.default_rng(5)
#: Four far clusters of 50 vectors.
CLUSTERS = (np.repeat(np.array([[0, 0], [10, 0], [0, 10], [10, 10]]), 50, 0) + RNG.normal(size=(200, 2)) / 10).astype(
    np.float32
)


class _Tensor(np.ndarray[Any, Any]):
    def gather(self, axis: int, index: Any) -> Any:
        return np.take_along_axis(self, index, axis)

    def to(self, device: str) -> Any:
        return self

    def float(self) -> Any:
        return self.astype(np.float32)

    def index_add_(self, axis: int, ids: Any, rows: Any) -> None:
        np.add.at(self, ids, rows)


def _stand_in() -> Any:
    torch: Any = ModuleType("torch")
    absent = SimpleNamespace(is_available=lambda: False)
    torch.Tensor, torch.cuda, torch.backends = _Tensor, absent, SimpleNamespace(mps=absent)
    torch.device = str
    torch.from_numpy = lambda array: array.view(_Tensor)
    torch.cat = lambda parts: np.concatenate(parts).view(_Tensor)
    torch.zeros_like = np.zeros_like
    torch.zeros = lambda n, device: np.zeros(n, np.float32).view(_Tensor)
    torch.ones = lambda n, device: np.ones(n, np.float32).view(_Tensor)
    torch.nonzero = lambda values: np.stack(np.nonzero(values), 1)
    return torch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    whole = _stand_in()
    monkeypatch.setitem(sys.modules, "torch", whole)
    for name in (_KMEANS, _DISTANCE):
        sys.modules.pop(name, None)
    whole.distance, whole.kmeans = import_module(_DISTANCE), import_module(_KMEANS)
    yield whole
    for name in (_KMEANS, _DISTANCE):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("room", [1 << 25, 50])
def test_nearest_centre(torch: Any, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    x, y = (RNG.normal(size=(n, 8)).astype(np.float32) for n in (300, 7))
    lengths = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1)
    expected = {
        "l2_distance": ((x[:, None] - y) ** 2).sum(2),
        "cosine_distance": 1 - x @ y.T / lengths,
        "dot_distance": 1 - x @ y.T,
    }
    monkeypatch.setattr(torch.distance, "_ROOM", room)
    for name, distances in expected.items():
        ids, least = getattr(torch.distance, name)(torch.from_numpy(x), torch.from_numpy(y))
        assert ids.tolist() == distances.argmin(1).tolist()
        assert np.allclose(least, distances.min(1), atol=1e-4)
    assert np.allclose(torch.distance.pairwise_l2(x, y), expected["l2_distance"], atol=1e-4)
    assert np.allclose(torch.distance.pairwise_cosine(x, y), expected["cosine_distance"], atol=1e-4)
    given = torch.distance.l2_distance(torch.from_numpy(x), torch.from_numpy(y), (y * y).sum(1))
    assert given[0].tolist() == expected["l2_distance"].argmin(1).tolist()
    with pytest.raises(ValueError, match="2-D"):
        torch.distance.l2_distance(x[0], y)
    with pytest.raises(InvalidArgumentError, match="same dimension"):
        torch.distance.dot_distance(x, y[:, :3])


def test_clusters_are_found(torch: Any) -> None:
    column = pa.FixedSizeListArray.from_arrays(pa.array(CLUSTERS.ravel()), 2)
    found = []
    for data in (CLUSTERS, torch.from_numpy(CLUSTERS), column, pa.chunked_array([column[:70], column[70:]])):
        model = torch.kmeans.KMeans(4, seed=3)
        model.fit(data)
        found.append(model.transform(data).tolist())
        assert sorted(np.bincount(found[-1]).tolist()) == [50] * 4
    assert found[1:] == found[:1] * 3
    batches = torch.kmeans.KMeans(4, centroids=CLUSTERS[::50])
    batches.fit([CLUSTERS[:90], CLUSTERS[90:]])
    assert batches.transform(CLUSTERS).tolist() == np.repeat(range(4), 50).tolist()


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_iterations_lower_the_distance(torch: Any, metric: str) -> None:
    model = torch.kmeans.KMeans(5, metric=metric, seed=1, max_iters=1)
    model.fit(CLUSTERS)
    first = model.total_distance
    model.fit(CLUSTERS)
    assert model.total_distance <= first


def test_fewer_vectors_than_clusters(torch: Any) -> None:
    model = torch.kmeans.KMeans(5)
    model.fit(CLUSTERS[:3])
    assert np.isfinite(model.centroids).all()


def test_invalid_arguments_are_rejected(torch: Any) -> None:
    for wrong in ({"metric": "l7"}, {"init": "best"}, {"k": 0}):
        with pytest.raises(InvalidArgumentError):
            torch.kmeans.KMeans(**{"k": 2, **wrong})
    model = torch.kmeans.KMeans(2)
    with pytest.raises(InvalidArgumentError, match="fit first"):
        model.transform(CLUSTERS)
    with pytest.raises(InvalidArgumentError, match="centroids"):
        model.fit([CLUSTERS])
    with pytest.raises(InvalidArgumentError, match="no vectors"):
        model.fit(CLUSTERS[:0])
    with pytest.raises(TypeError, match="FixedSizeListArray"):
        torch.kmeans.KMeans(1, centroids=CLUSTERS[:1]).transform("x")


def test_missing_torch_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    kmeans, distance = (import_module(name) for name in (_KMEANS, _DISTANCE))  # imports work without torch
    for call in (lambda: kmeans.KMeans(2), lambda: distance.l2_distance(CLUSTERS, CLUSTERS[:1])):
        with pytest.raises(MissingDependencyError, match="torch"):
            call()
