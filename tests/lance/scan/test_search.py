"""Nearest rows: flat against numpy, by index against flat, with filters, deletions, appended rows, and damage."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tests.lance import corpus
from trilake import lance
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.lance import LanceDataset
from trilake.lance.index.btree import BTreeIndex
from trilake.lance.index.vector_index import VectorIndex
from trilake.lance.versions.versions import LATEST
from trilake.storage import open_store

RNG = np.random.default_rng(4)
VECTORS = RNG.normal(size=(900, 8)).astype(np.float32)
Q = RNG.normal(size=8).astype(np.float32)
METRICS = ["l2", "cosine", "dot"]


def true_distances(vectors: npt.NDArray[Any], q: npt.NDArray[Any], metric: str) -> npt.NDArray[np.float64]:
    v, q = vectors.astype(np.float64), q.astype(np.float64)
    found: npt.NDArray[np.float64] = ((v - q) ** 2).sum(axis=1)
    if metric != "l2":
        lengths = np.linalg.norm(v, axis=1) * np.linalg.norm(q)
        found = 1 - v @ q / (lengths if metric == "cosine" else 1)
    return found


@pytest.fixture(scope="module")
def ds() -> LanceDataset:
    rows = pa.table({"id": range(900), "v": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), 8)})
    dataset = lance.write_dataset(rows, "memory://lance-search", mode="overwrite", max_rows_per_file=200)
    dataset.delete("id % 7 = 0")
    return dataset


@pytest.mark.parametrize("metric", METRICS)
def test_flat_search(ds: LanceDataset, metric: str) -> None:
    distance = true_distances(VECTORS, Q, metric)
    live = [i for i in np.argsort(distance) if i % 7]
    nearest = {"column": "v", "q": Q, "k": 12, "metric": metric.upper()}
    found = ds.to_table(columns=["id"], nearest=nearest, with_row_id=True)
    assert found.schema.names == ["id", "_distance", "_rowid"]
    assert found["id"].to_pylist() == live[:12]
    np.testing.assert_allclose(found["_distance"], distance[live[:12]], rtol=1e-4, atol=1e-5)
    assert ds._take_rows(found["_rowid"], ["id"])["id"].to_pylist() == live[:12]
    before = ds.to_table(columns=["id"], nearest=nearest, filter="id < 300", prefilter=True)
    assert before["id"].to_pylist() == [i for i in live if i < 300][:12]
    after = ds.to_table(columns=["id"], nearest=nearest, filter="id < 300")
    assert after["id"].to_pylist() == [i for i in live[:12] if i < 300]
    assert ds.to_table(["id"], nearest=nearest, limit=3, offset=2)["id"].to_pylist() == live[2:5]
    assert ds.scanner(["id"], nearest=nearest).count_rows() == 12


def test_invalid_arguments_of_nearest_are_rejected(ds: LanceDataset) -> None:
    assert ds.to_table(nearest={"column": "v", "q": Q.tolist()}).num_rows == 10
    assert ds.to_table(nearest={"column": "v", "q": pa.array(Q), "k": 2000}).num_rows == ds.count_rows()
    assert "KNNVectorDistance" in ds.scanner(nearest={"column": "v", "q": Q}).explain_plan()
    for bad in (
        {"column": "nope", "q": Q},
        {"column": "id", "q": Q},
        {"column": "v", "q": Q[:3]},
        {"column": "v", "q": Q, "k": 0},
        {"column": "v", "q": Q, "nprobes": 0},
        {"column": "v", "q": Q, "metric": "hamming"},
        {"column": "v", "q": Q, "query_parallelism": -2},
        {"column": "v", "q": Q, "approx_mode": "hacc"},
        {"column": "v", "q": ["a"] * 8},
        {"column": "v", "q": [[Q]]},
    ):
        with pytest.raises(InvalidArgumentError):
            ds.to_table(nearest=bad)


def test_search_with_index_of_pylance(shared: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(corpus.folder(shared, "ivf_pq_cosine"), copy)
    ds = lance.dataset(copy)
    entry = ds.list_indices()[0]
    assert (entry["name"], entry["fields"], entry["fragment_ids"]) == ("myidx", ["vec"], {0})
    index = VectorIndex.open(open_store(copy), f"_indices/{entry['uuid']}")
    assert index.num_rows == 3000
    assert index.statistics()["num_partitions"] == len(index.model.centroids)
    assert ds.stats.index_stats("myidx")["num_indexed_rows"] == 3000
    vectors = np.stack(ds.to_table(columns=["vec"])["vec"].to_numpy())
    hits = exact = 0
    for q in RNG.normal(size=(10, 16)).astype(np.float32):
        nearest = {"column": "vec", "q": q, "k": 10, "nprobes": len(index.model.centroids), "metric": index.metric}
        best = set(np.argsort(true_distances(vectors, q, index.metric))[:10].tolist())
        hits += len(best & set(ds.to_table(["id"], nearest=nearest)["id"].to_pylist()))
        refined = ds.to_table(["id"], nearest={**nearest, "refine_factor": 20})
        exact += len(best & set(refined["id"].to_pylist()))
        flat = ds.to_table(["id"], nearest={**nearest, "use_index": False})
        assert set(flat["id"].to_pylist()) == best
    assert "ANNSubIndex: name=" in ds.scanner(nearest={"column": "vec", "q": vectors[0]}).explain_plan()
    assert hits > 30
    assert exact > 90


def test_rows_added_after_the_index(shared: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(corpus.folder(shared, "ivf_pq_cosine"), copy)
    (copy / LATEST).unlink()
    ds = lance.dataset(copy)
    row = ds.to_table(filter="id = 5")
    nearest = {"column": "vec", "q": np.asarray(row["vec"][0].as_py(), np.float32), "k": 5, "nprobes": 50}
    lance.write_dataset(row.set_column(0, "id", pa.array([9000], pa.int64())), copy, mode="append")
    ds.checkout_latest()
    found = ds.to_table(["id"], nearest={**nearest, "refine_factor": 50})["id"].to_pylist()
    assert found[:2] == [5, 9000]
    ds.delete("id = 5")
    assert ds.to_table(["id"], nearest={**nearest, "refine_factor": 50})["id"].to_pylist()[0] == 9000
    only = ds.to_table(["id"], nearest={**nearest, "refine_factor": 50}, filter="id < 100", prefilter=True)
    assert max(only["id"].to_pylist()) < 100
    some = ds.to_table(["id"], nearest={**nearest, "refine_factor": 50, "k": 20})
    ds.optimize.compact_files(materialize_deletions_threshold=0.0)
    assert len(ds.list_indices()) == 1
    assert ds.stats.index_stats("myidx")["num_indexed_rows"] == 2999
    assert ds.to_table(["id"], nearest={**nearest, "refine_factor": 50, "k": 20}).equals(some)
    ds.validate()


def test_search_with_scalar_index() -> None:
    rows = pa.table({"id": range(9000), "t": [f"t{i % 100}" for i in range(9000)]})
    ds = lance.write_dataset(rows, "memory://lance-btree", mode="overwrite", max_rows_per_file=3000)
    ds.create_scalar_index("id")
    ds.create_scalar_index("t", "BTREE", "texts")
    assert [i["name"] for i in ds.list_indices()] == ["id_idx", "texts"]
    assert ds.stats.index_stats("id_idx")["num_rows"] == 9000
    lance.write_dataset(rows.slice(0, 10), ds.uri, mode="append")
    ds.checkout_latest()
    ds.delete("id >= 5 AND id < 15")
    assert ds.stats.index_stats("id_idx")["num_unindexed_rows"] == 5
    ds.optimize.optimize_indices()
    version = ds.version
    assert ds.stats.index_stats("id_idx")["num_unindexed_rows"] == 0
    ds.optimize.optimize_indices()
    assert ds.version == version
    ds.optimize.compact_files()
    assert len(ds.get_fragments()) == 1
    entry = ds.list_indices()[0]
    index = BTreeIndex.open(ds.snapshot.store, f"_indices/{entry['uuid']}")
    found = ds._take_rows(index.equal(77), ["id"])
    assert found["id"].to_pylist() == [77]
    table = index.read()
    ids = ds._take_rows(table["row_ids"], ["id"])["id"].to_pylist()
    assert ids == table["values"].to_pylist() == sorted(ds.to_table()["id"].to_pylist())
    for bad in (("nope",), ("id", "HASH")):
        with pytest.raises(InvalidArgumentError):
            ds.create_scalar_index(*bad)
    with pytest.raises(InvalidArgumentError, match="already"):
        ds.create_scalar_index("id", replace=False)


@pytest.mark.parametrize("metric", METRICS)
def test_search_with_own_index(ds: LanceDataset, metric: str) -> None:
    dataset = lance.write_dataset(
        ds.to_table(), f"memory://lance-own-{metric}", mode="overwrite", max_rows_per_file=300
    )
    dataset = dataset.create_index("v", "IVF_PQ", metric=metric, num_partitions=4, num_sub_vectors=4)
    assert (dataset.has_index, dataset.stats.index_stats("v_idx")["num_indexed_rows"]) == (True, ds.count_rows())
    nearest = {"column": "v", "q": Q, "k": 10, "metric": metric, "nprobes": 4, "refine_factor": 10}
    found = set(dataset.to_table(["id"], nearest=nearest)["id"].to_pylist())
    exact = set(dataset.to_table(["id"], nearest={**nearest, "use_index": False})["id"].to_pylist())
    assert len(found & exact) >= 9
    for bad in (
        {"num_partitions": 4},
        {"num_partitions": 4, "num_sub_vectors": 3},
        {"num_partitions": 9000, "num_sub_vectors": 4, "name": "x"},
        {"num_partitions": 4, "num_sub_vectors": 4},
        {"num_partitions": 2, "num_sub_vectors": 4, "ivf_centroids": np.zeros((3, 8), np.float32), "name": "y"},
    ):
        with pytest.raises(InvalidArgumentError):
            dataset.create_index("v", "IVF_PQ", **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["L2", "cosine", "dot"])
def test_rows_without_a_vector_are_never_found(metric: str) -> None:
    vectors = np.random.default_rng(3).normal(5, 1, (400, 4)).astype(np.float32)
    values = [None if i % 4 == 0 else v.tolist() for i, v in enumerate(vectors)]
    rows = pa.table({"id": range(400), "v": pa.array(values, pa.list_(pa.float32(), 4))})
    dataset = lance.write_dataset(rows, "memory://no-vector", mode="overwrite", max_rows_per_file=150)
    have = {i for i in range(400) if i % 4}
    dataset.delete("id = 7")

    def found(**more: Any) -> list[int]:
        near = {"column": "v", "q": [0.1, 0.0, 0.0, 0.1], "k": 1000, "metric": metric, **more}
        table = dataset.to_table(columns=["id"], nearest=near)
        assert np.isfinite(table["_distance"].to_numpy()).all()
        return list(table["id"].to_pylist())

    assert set(found()) == have - {7}
    dataset.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, metric=metric)
    assert set(found(nprobes=2)) == have - {7}
    assert set(found(nprobes=2, refine_factor=2)) == have - {7}
    assert found(nprobes=2, refine_factor=400, k=5) == found(use_index=False, k=5)
    dataset.add_columns(pa.schema({"none": pa.list_(pa.float32(), 4)}))
    assert dataset.to_table(nearest={"column": "none", "q": [0.0] * 4, "k": 5}).num_rows == 0


def test_damaged_indices(shared: Path, tmp_path: Path) -> None:
    source = corpus.folder(shared, "ivf_pq_cosine")
    uuid = lance.dataset(source).list_indices()[0]["uuid"]
    data = (source / "_indices" / uuid / "index.idx").read_bytes()
    store = open_store(tmp_path)
    rng = random.Random(2)
    q = np.ones(16, np.float32)
    for i in range(150):
        bad = bytearray(data)
        if i % 5 == 0:
            bad = bad[: rng.randrange(len(bad))]
        else:
            for _ in range(3):
                bad[-rng.randrange(1, 600)] = rng.randrange(256)
        store.put("i/index.idx", bytes(bad))
        try:
            opened = VectorIndex.open(store, "i")
            if opened.dimension == 16:
                opened.search(q, 5, nprobes=3)
        except TrilakeError:
            pass
    with pytest.raises(TrilakeError):
        VectorIndex.open(store, "other")


def test_nan_distances_are_never_found() -> None:
    """NaN in a vector or query, and the cosine distance of a zero vector."""
    values = np.array([[1, 0], [0, 2], [np.nan, 1], [0, 0], [3, 3]], np.float32)
    rows = pa.table({"id": range(5), "v": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 2)})
    ds = lance.write_dataset(rows, "memory://not-near", mode="overwrite")

    def ids(q: list[float], **more: Any) -> list[int]:
        found: list[int] = ds.to_table(["id"], nearest={"column": "v", "q": q, "k": 9, **more})["id"].to_pylist()
        return found

    assert ids([1, 0]) == [0, 3, 1, 4]
    assert ids([1, 0], metric="cosine") == [0, 4, 1]
    for metric in ("l2", "cosine", "dot"):
        assert ids([math.nan, 0], metric=metric) == []
    assert ids([0, 0], metric="cosine") == []
    assert ids([1, 0], distance_range=(None, 100.0)) == [0, 3, 1, 4]
