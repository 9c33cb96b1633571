"""Vector indices in files of version 2.x: IVF_PQ built and followed through changes, other kinds read; damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trilake
from tests.lance.index.models import train
from trilake import lance
from trilake.errors import TrilakeError, UnsupportedProtocolError
from trilake.lance.file.storage_version import STABLE
from trilake.lance.index import ivf_files, ivf_pq
from trilake.lance.index.files import write_file
from trilake.lance.index.ivf_pq import Floats
from trilake.lance.index.vector_index import VectorIndex
from trilake.lance.proto import index_pb2
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.storage.memory import MemoryStore

SIZE = 8
METRICS = ["l2", "cosine", "dot"]


def vectors(count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, SIZE)) + rng.integers(0, 4, (count, 1))).astype(np.float32)


def column(values: Floats) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), SIZE)


def build(metric: str, bits: int = 8) -> tuple[VectorIndex, Floats, MemoryStore]:
    data, store = vectors(600), MemoryStore("memory://ivf-files")
    model = train(data, 3, 4, 1, metric=metric, iterations=5, legacy=False)
    model = ivf_pq.Model(metric, model.centroids, model.words[:, : 1 << bits], legacy=False)
    partition, codes = ivf_pq.encode(model, data)
    rows = ivf_pq.by_partition(model, partition, codes, np.arange(600, dtype=np.uint64))
    files = dict(ivf_files.write_index(store, "i", model, rows, STABLE))
    assert all(store.read(f"i/{name}").size == size for name, size in files.items())
    return VectorIndex.open(store, "i"), data, store


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("metric", METRICS)
def test_codes_approximate_their_vectors(metric: str, bits: int) -> None:
    index, data, _ = build(metric, bits)
    model = index.model
    assert isinstance(model, ivf_pq.Model)
    assert (index.kind, index.metric, index.num_rows, model.bits) == ("IVF_PQ", metric, 600, bits)
    for number in range(3):
        codes, ids = index.partition(number)
        decoded = np.stack([model.words[m][codes[:, m]] for m in range(4)], axis=1).reshape(len(ids), SIZE)
        decoded = decoded + model.centroids[number] if model.has_residuals else decoded
        rows = model.prepared(data[ids])
        assert np.square(decoded - rows).sum() < (0.2 if bits == 8 else 1.5) * np.square(rows - rows.mean(0)).sum()
        query = data[ids[0]]
        found, nearness = index.search(query, 600, nprobes=3)
        assert sorted(found.tolist()) == list(range(600))
        near = dict(zip(found.tolist(), nearness.tolist(), strict=True))
        expected = ivf_pq.distances(decoded, model.prepared(query[None])[0], model.partition_metric)
        scale = 0.5 if metric == "cosine" else 1
        assert np.allclose([near[i] for i in ids.tolist()], expected * scale, atol=1e-3)


def dataset(uri: str, metric: str = "l2", **more: Any) -> LanceDataset:
    table = pa.table({"id": range(900), "v": column(vectors(900, 3))})
    ds = lance.write_dataset(table, uri, max_rows_per_file=300, data_storage_version="2.2", **more)
    return ds.create_index("v", "IVF_PQ", metric=metric, num_partitions=3, num_sub_vectors=4, seed=1)


@pytest.mark.parametrize(("metric", "stable"), [("l2", False), ("cosine", True), ("dot", False)])
def test_index_follows_changes(metric: str, stable: bool) -> None:
    ds = dataset(f"memory://ivf-{metric}-{stable}", metric, enable_stable_row_ids=stable)
    queries = vectors(3, 7)

    def check(indexed: int) -> None:
        for q in queries:
            search = {"column": "v", "q": q, "k": 10, "nprobes": 3, "refine_factor": 20, "metric": metric}
            for filter in (None, "id % 2 = 0"):
                by = {"columns": ["id"], "filter": filter, "prefilter": True}
                found = ds.to_table(nearest=search, **by)
                assert found == ds.to_table(nearest={**search, "use_index": False}, **by)
        (described,) = ds.describe_indices()
        assert (described.index_type, described.num_rows_indexed) == ("IVF_PQ", indexed)
        assert [f.code for f in trilake.verify(ds.uri).findings] == []

    check(900)
    ds.delete("id % 3 = 1 OR id < 10")
    check(593)
    lance.write_dataset(pa.table({"id": range(900, 950), "v": column(vectors(50, 4))}), ds, mode="append")
    ds.update({"id": "id + 2"}, where="id = 12")
    check(592)
    ds.optimize.compact_files()
    check(592)
    ds.optimize.optimize_indices()
    check(643)


def test_index_statistics() -> None:
    ds = dataset("memory://ivf-statistics")
    stats = ds.stats.index_stats("v_idx")
    assert (stats["index_type"], stats["metric_type"], stats["num_partitions"]) == ("IVF_PQ", "l2", 3)
    assert sum(p["size"] for p in stats["partitions"]) == 900
    assert (stats["sub_index"]["nbits"], stats["sub_index"]["num_sub_vectors"]) == (8, 4)
    assert (stats["sub_index"]["transposed"], stats["index_file_version"]) == (True, "V3")
    assert len(ds.centroids(column="v")) == 3
    (entry,) = ds.snapshot.manifest.indices
    assert entry.details is not None
    assert (entry.index_version, entry.details.value) == (1, b"\x22\x04\x08\x08\x10\x04")
    assert [name for name, _ in entry.files] == ["auxiliary.idx", "index.idx"]


def whole_vectors(column_name: str, codes: pa.Array, storage: dict[str, Any], metric: str = "l2") -> MemoryStore:
    """An IVF_FLAT index of two partitions, as pylance writes it."""
    store = MemoryStore("memory://whole-vectors")
    half = len(codes) // 2
    places = index_pb2.IVF(offsets=[0, half], lengths=[half, len(codes) - half])
    metadata = {b"distance_type": metric.encode(), b"storage_metadata": json.dumps([json.dumps(storage)]).encode()}
    ids = pa.array(range(len(codes)), pa.uint64())
    batch = pa.RecordBatch.from_arrays([ids, codes], names=["_rowid", column_name])
    write_file(store, "i/auxiliary.idx", batch, STABLE, metadata, {b"lance:ivf": places.SerializeToString()})
    ivf = index_pb2.IVF(offsets=[0, 0], lengths=[0, 0])
    ivf.centroids_tensor.CopyFrom(ivf_pq.tensor(np.zeros((2, SIZE), np.float32), (2, SIZE)))
    empty = pa.RecordBatch.from_pylist([], pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)]))
    write_file(store, "i/index.idx", empty, STABLE, {}, {b"lance:ivf": ivf.SerializeToString()})
    return store


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_flat_index_is_searched(kind: pa.DataType) -> None:
    data = vectors(40)
    codes = column(data).cast(pa.list_(kind, SIZE))
    index = VectorIndex.open(whole_vectors("flat", codes, {"dim": SIZE}), "i")
    ids, nearness = index.search(data[5], 3, nprobes=2)
    expected = ivf_pq.distances(data, data[5], "l2")
    assert ids.tolist() == np.argsort(expected)[:3].tolist()
    assert np.allclose(nearness, np.sort(expected)[:3], rtol=0.02, atol=0.02)
    assert index.statistics()["sub_index"] == {
        "index_type": "FLAT",
        "metric_type": index.metric,
        "dim": index.dimension,
    }


def test_index_over_bytes() -> None:
    data = vectors(40)
    low, high = float(data.min()), float(data.max())
    codes = np.floor((data - low) / (high - low) * 255).astype(np.uint8)
    storage = {"dim": SIZE, "num_bits": 8, "bounds": {"start": low, "end": high}}
    array = pa.FixedSizeListArray.from_arrays(pa.array(codes.ravel()), SIZE)
    index = VectorIndex.open(whole_vectors("__sq_code", array, storage), "i")
    assert index.search(data[7], 1, nprobes=2)[0].tolist() == [7]


def test_unsupported_index_types_fall_back_to_scans() -> None:
    array = pa.FixedSizeListArray.from_arrays(pa.array([1] * SIZE, pa.uint8()), SIZE)
    for name, metric in (("_rabit_code", "l2"), ("__sq_code", "hamming")):
        with pytest.raises(UnsupportedProtocolError, match="is not supported"):
            VectorIndex.open(whole_vectors(name, array, {}, metric), "i")


@pytest.mark.parametrize("file", ["index.idx", "auxiliary.idx"])
def test_damaged_files_are_rejected(file: str) -> None:
    _, data, store = build("l2")
    rng = np.random.default_rng(0)
    whole = store.read(f"i/{file}").to_pybytes()
    for _ in range(200):
        damaged = bytearray(whole)
        for at in (len(damaged) - 1 - rng.integers(0, min(len(damaged), 1500), 3)).tolist():
            damaged[at] = int(rng.integers(0, 256))
        store.put(f"i/{file}", bytes(damaged))
        try:
            index = VectorIndex.open(store, "i")
            index.search(data[3], 5, nprobes=3)
            index.statistics()
        except TrilakeError:
            pass


@pytest.mark.parametrize("case", ["idx_ivf_flat_v21_600", "idx_ivf_pq_v22_800", "idx_ivf_hnsw_sq_v21_500"])
def test_indices_written_by_pylance_are_used(shared: Path, case: str) -> None:
    ds = lance.dataset(str(shared / "corpus" / "lance2" / "cases" / case / "ds.lance"))
    name = next(f.name for f in ds.schema if pa.types.is_fixed_size_list(f.type))
    (index,) = ds.list_indices()
    assert index["type"] == f"IVF_{case.split('_ivf_')[1].rsplit('_', 2)[0].upper()}"
    q = ds.to_table([name]).column(0)[11].as_py()
    search = {"column": name, "q": q, "k": 10, "nprobes": 100, "refine_factor": 30}
    assert "ANNSubIndex" in ds.scanner(nearest=search).explain_plan()
    found = ds.to_table(nearest=search)
    assert found == ds.to_table(
        nearest={**search, "use_index": False, "metric": ds.stats.index_stats(index["name"])["metric_type"]}
    )
