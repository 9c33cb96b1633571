"""API of pylance 0.8.19: indices, their plans, and searches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap

from tests.lance.pylance.known import vectors
from trilake import lance
from trilake.lance import LanceDataset
from trilake.lance.commands import index_segments

# --- indices ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path: Path) -> LanceDataset:
    dataset = lance.write_dataset(vectors(), tmp_path / "v", max_rows_per_file=150, max_rows_per_group=150)
    return dataset.create_index("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=2)


def test_invalid_index_arguments_are_rejected(dataset: LanceDataset, tmp_path: Path) -> None:
    found = lance.write_dataset(vectors(), tmp_path / "v")
    more: dict[str, Any] = {"num_partitions": 4, "num_sub_vectors": 2}
    wrong: list[tuple[type[Exception], Any]] = [
        (ValueError, lambda: found.create_index("vector", "IVF_PQ")),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", num_partitions=4)),
        (KeyError, lambda: found.create_index("zz", "IVF_PQ", **more)),
        (TypeError, lambda: found.create_index("id", "IVF_PQ", **more)),
        (TypeError, lambda: found.create_index("vector", "IVF_PQ", num_partitions="4", num_sub_vectors=2)),  # type: ignore[arg-type]
        (NotImplementedError, lambda: found.create_index("vector", "what", **more)),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", metric="hamming", **more)),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", accelerator="cuda:", **more)),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", ivf_centroids=np.zeros((3, 8), "f4"), **more)),
        (TypeError, lambda: found.create_index("vector", "IVF_PQ", ivf_centroids=np.zeros((4, 8), "i4"), **more)),
        (KeyError, lambda: found.create_scalar_index("zz", "BTREE")),
        (TypeError, lambda: found.create_scalar_index("vector", "BTREE")),
        (NotImplementedError, lambda: found.create_scalar_index("id", "NGRAM")),
        (NotImplementedError, lambda: found.create_scalar_index(["id", "vector"], "BTREE")),
        (KeyError, lambda: found.stats.index_stats("zz")),
        (ValueError, lambda: found.to_table(nearest={"column": "vector", "q": [1.0], "k": 3})),
        (TypeError, lambda: found.to_table(nearest={"column": "id", "q": [1.0], "k": 3})),
        (KeyError, lambda: found.to_table(nearest={"column": "zz", "q": [1.0], "k": 3})),
        (ValueError, lambda: found.to_table(nearest={"column": "vector", "q": [1.0] * 8, "k": 0})),
    ]
    for kind, call in wrong:
        with pytest.raises(kind):
            call()
    found.create_scalar_index("id", "BTREE")
    with pytest.raises(OSError):
        found.create_scalar_index("id", "BTREE", replace=False)
    assert not dataset.has_index


def test_index_descriptions_and_statistics(tmp_path: Path) -> None:
    indexed = lance.write_dataset(vectors(), tmp_path / "v", max_rows_per_file=150, data_storage_version="2.2")
    centroids = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    given = indexed.create_index(
        ["vector"], "IVF_PQ", name="five", ivf_centroids=centroids, num_partitions=5, num_sub_vectors=4
    )
    entry = next(i for i in given.list_indices() if i["name"] == "five")
    assert (entry["type"], entry["fields"], entry["fragment_ids"], len(entry["uuid"])) == (
        "IVF_PQ",
        ["vector"],
        {0, 1},
        36,
    )
    stats = given.stats.index_stats("five")
    assert (stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (300, 0)
    assert {"index_cache_entry_count", "index_cache_hit_rate"} <= set(stats)
    with pytest.warns(DeprecationWarning, match="instead"):
        statistics = given.index_statistics("five")
    partitions = statistics.pop("partitions")
    sub = {
        "dimension": 8,
        "index_type": "PQ",
        "metric_type": "l2",
        "nbits": 8,
        "num_sub_vectors": 4,
        "transposed": True,
    }
    assert statistics == {
        "index_type": "IVF_PQ",
        "uuid": entry["uuid"],
        "uri": f"{given.uri}/_indices/{entry['uuid']}/index.idx",
        "metric_type": "l2",
        "num_partitions": 5,
        "sub_index": sub,
        "centroids": centroids.tolist(),
        "index_file_version": "V3",
    }
    assert [set(p) for p in partitions] == [{"size"}] * 5
    with pytest.raises(KeyError, match='Index "none" not found'):
        given.stats.index_stats("none")
    given.create_scalar_index("id", "BTREE")
    assert {i["type"] for i in given.list_indices()} == {"IVF_PQ", "BTree"}
    assert given.stats.index_stats("id_idx")["num_pages"] == 1


def test_compaction_names_the_index_it_cannot_remap(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A zone map, which only pylance writes: it stays, and does not cover new fragments."""
    path = str(tmp_path / "t")
    rows = pa.table({"n": range(40)})
    theirs = pylance.write_dataset(rows, path, max_rows_per_file=10, data_storage_version="legacy")
    theirs.create_scalar_index("n", "ZONEMAP")
    ours = lance.dataset(path)
    ours.delete("n = 3")
    assert [i["name"] for i in ours.list_indices()] == ["n_idx"]
    ours.optimize.compact_files()
    assert [(i["name"], i["fragment_ids"]) for i in lance.dataset(path).list_indices()] == [("n_idx", set())]
    assert pylance.dataset(path).count_rows("n >= 10") == 30
    assert "index n_idx on " in caplog.text
    assert lance.dataset(path).count_rows("n >= 10") == 30


def test_optimize_updates_the_named_indices(indexed: LanceDataset) -> None:
    indexed.create_scalar_index("id", "BTREE")
    more = lance.write_dataset(vectors(50), indexed.uri, mode="append")

    def covered() -> dict[str, int]:
        return {i["name"]: len(i["fragment_ids"]) for i in more.list_indices()}

    more.optimize.optimize_indices(index_names=["id_idx"])
    assert covered() == {"vector_idx": 2, "id_idx": 3}
    more.optimize.optimize_indices(num_indices_to_merge=1)
    assert covered() == {"vector_idx": 3, "id_idx": 3}
    learned = more.centroids(index_name="vector_idx")
    version = more.version
    more.optimize.optimize_indices()
    assert more.version == version
    more.optimize.optimize_indices(index_names=["vector_idx"], retrain=True)
    retrained = more.centroids(index_name="vector_idx")
    assert (more.version, len(retrained)) == (version + 1, len(learned))
    assert retrained != learned
    assert more.to_table(columns=["id"], nearest={"column": "vector", "q": np.zeros(8), "k": 5}).num_rows == 5
    with pytest.raises(KeyError, match="none"):
        more.optimize.optimize_indices(index_names=["none"])
    again = lance.write_dataset(vectors(50), indexed.uri, mode="append")
    again.optimize.optimize_indices(num_indices_to_merge=0)
    parts = {i.name: [len(s.fragment_ids) for s in i.segments] for i in again.describe_indices()}
    assert parts == {"vector_idx": [3, 1], "id_idx": [3, 1]}
    first = lance.write_dataset(pa.table({"a": [1]}), "memory://merge-none", data_storage_version="legacy")
    with pytest.raises(ValueError, match="num_indices_to_merge=0"):
        first.optimize.optimize_indices(num_indices_to_merge=0)
    with pytest.raises(TypeError):
        more.optimize.optimize_indices(nonsense=True)  # type: ignore[call-arg]


def test_optimize_merges_index_segments(indexed: LanceDataset) -> None:
    """Newer writers create segmented indices."""
    indexed.create_index("vector", "IVF_PQ", name="other", num_partitions=2, num_sub_vectors=2)
    first, second = indexed.snapshot.manifest.indices
    parts = replace(first, fragment_bitmap=FrozenBitMap([0])), replace(second, name=first.name)
    snapshot = indexed.snapshot.at(replace(indexed.snapshot.manifest, indices=parts))
    done = index_segments.optimize(snapshot)
    assert [(i.name, set(i.fragment_bitmap or ())) for i in done.manifest.indices] == [("vector_idx", {0, 1})]
    assert first.uuid not in {i.uuid for i in done.manifest.indices}


def test_explain_plan_names_its_steps(indexed: LanceDataset) -> None:
    indexed.create_scalar_index("id", "BTREE")
    q = np.zeros(8)
    near = {"column": "vector", "q": q, "k": 5}
    plan = indexed.scanner(nearest=near).explain_plan()
    assert ("ANNSubIndex" in plan, "KNNVectorDistance" in plan) == (True, False)
    assert "ScalarIndexQuery" in indexed.scanner(filter="id = 3", prefilter=True).explain_plan()
    assert "ScalarIndexQuery" in indexed.scanner(nearest=near, filter="id = 3", prefilter=True).explain_plan()
    both = indexed.scanner(nearest=near, filter="id = 3 AND vector IS NOT NULL", prefilter=True)
    assert "ScalarIndexQuery" in both.explain_plan()
    more = lance.write_dataset(vectors(50), indexed.uri, mode="append")
    assert "KNNVectorDistance" in more.scanner(nearest=near).explain_plan()
    more.optimize.optimize_indices()
    assert "KNNVectorDistance" not in more.scanner(nearest=near).explain_plan()


def test_search_results(indexed: LanceDataset) -> None:
    q = indexed.take([7])["vector"][0]
    names = indexed.to_table(columns=["id"], nearest={"column": "vector", "q": q.values, "k": 3}).column_names
    assert names == ["id", "_distance"]
    limited = indexed.to_table(columns=["id"], nearest={"column": "vector", "q": q, "use_index": False}, limit=4)
    assert (limited.num_rows, limited["id"][0].as_py()) == (4, 7)
    some = indexed.to_table(
        columns=["id"], nearest={"column": "vector", "q": q, "k": 2}, filter="id > 200", prefilter=True
    )
    assert min(some["id"].to_pylist()) > 200


# --- helpers ----------------------------------------------------------------------------------------------------------


def test_index_option_aliases(indexed: LanceDataset) -> None:
    how = {"num_partitions": 4, "num_sub_vectors": 2, "name": "other"}
    found = indexed.create_index("vector", "IVF_PQ", metric_type="cosine", num_bits=8, **how)
    assert found.stats.index_stats("other")["metric_type"] == "cosine"
    for more, kind in (
        ({"metric": "dot", "metric_type": "cosine"}, ValueError),
        ({"num_bits": 5}, NotImplementedError),
        ({"num_bits": "8"}, TypeError),
        ({"metric_type": "hamming"}, ValueError),
    ):
        with pytest.raises(kind):
            indexed.create_index("vector", "IVF_PQ", replace=True, **how, **more)


def test_search_without_k_uses_the_limit(indexed: LanceDataset) -> None:
    nearest = {"column": "vector", "q": np.zeros(8, np.float32)}
    search = lambda **more: indexed.to_table(columns=["id"], nearest=nearest, **more)  # noqa: E731
    assert search().num_rows == 10
    assert search(limit=3).num_rows == 3
    assert search(limit=50).num_rows == 50
    more = search(limit=20, offset=30)
    assert more["id"].to_pylist() == search(limit=50)["id"].to_pylist()[30:]
    assert indexed.to_table(nearest={**nearest, "k": 7}, limit=50).num_rows == 7


def test_vector_partitions_in_a_separate_file(indexed: LanceDataset) -> None:
    from trilake.lance.util import KMeans
    from trilake.lance.v2.file import V2File
    from trilake.lance.vector import compute_partitions

    model = KMeans(4)
    vectors = np.stack(indexed.to_table()["vector"].to_numpy())
    model.fit(vectors)
    name = compute_partitions(indexed, "vector", model, batch_size=64)
    file = V2File.open(indexed.snapshot.store, f"data/{name}")
    rows = pa.Table.from_batches([file.read_rows(0, file.num_rows)])
    assert rows.schema.names == ["row_id", "partition"]
    assert rows["row_id"].to_pylist() == indexed.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    assert rows["partition"].to_pylist() == model.predict(vectors).to_pylist()
    assert lance.dataset(indexed.uri).version == indexed.version
    with pytest.raises(KeyError):
        compute_partitions(indexed, "none", model)
