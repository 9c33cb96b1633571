"""API added to pylance after 0.8.19: index options, and indices of struct fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import lance as pylance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trilake
from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import LanceDataset
from trilake.lance.indices import IndicesBuilder, IvfModel, VectorIndexReader
from trilake.lance.pylance.operation import Index

ROWS = pa.table(
    {
        "id": range(60),
        "lang": ["en", "fr"] * 30,
        "meta": [{"lang": f"x{i % 7}", "deep": {"n": i // 2}} for i in range(60)],
        "many": [[{"n": i}] for i in range(60)],
    }
)


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=20, max_rows_per_group=10)


def test_struct_fields_are_indexed(dataset: LanceDataset) -> None:
    def ids(filter: str) -> list[int]:
        scanner = dataset.scanner(["id"], filter=filter)
        assert "ScalarIndexQuery" in scanner.explain_plan()
        found: list[int] = scanner.to_table()["id"].to_pylist()
        assert found == dataset.to_table(["id"], filter=filter, use_scalar_index=False)["id"].to_pylist()
        return found

    dataset.create_scalar_index("meta.lang", "BTREE")
    dataset.create_scalar_index("meta.deep.n", "BTREE")
    assert [i["fields"] for i in dataset.list_indices()] == [["meta.lang"], ["meta.deep.n"]]
    assert [i.field_names for i in dataset.describe_indices()] == [["meta.lang"], ["meta.deep.n"]]
    assert ids("meta.lang = 'x3'") == list(range(3, 60, 7))
    assert ids("meta.deep.n BETWEEN 4 AND 5") == [8, 9, 10, 11]
    dataset.insert(ROWS.slice(0, 10))
    dataset.delete("id = 9")
    assert ids("meta.deep.n = 4") == [8, 8]
    dataset.optimize.optimize_indices()
    assert all(dataset.stats.index_stats(i["name"])["num_unindexed_rows"] == 0 for i in dataset.list_indices())
    assert ids("meta.lang = 'x1' AND meta.deep.n < 5") == [1, 8, 1, 8]
    dataset.optimize.compact_files()
    assert ids("meta.lang = 'x1' AND meta.deep.n < 5") == [1, 8, 1, 8]
    dataset.alter_columns({"path": "meta", "name": "facts"})
    assert ids("facts.lang = 'x3'") == [*range(3, 60, 7), 3]
    dataset.drop_columns(["facts.lang"])
    assert [i["fields"] for i in dataset.list_indices()] == [["facts.deep.n"]]
    with pytest.raises(InvalidArgumentError, match="in a list"):
        dataset.create_scalar_index("many.n", "BTREE")


def test_nulls_in_structs_are_not_matched(tmp_path: Path) -> None:
    rows = pa.table({"id": range(6), "s": pa.array([{"n": 1}, None, None, {"n": 0}, {"n": 1}, None])})
    ds = lance.write_dataset(rows, tmp_path / "t")
    ds.create_scalar_index("s.n", "BTREE")
    for filter, expected in (("s.n = 0", [3]), ("s.n < 5", [0, 3, 4]), ("s.n IS NULL", [1, 2, 5])):
        for use in (True, False):
            assert ds.to_table(["id"], filter=filter, use_scalar_index=use)["id"].to_pylist() == expected


def test_index_that_covers_no_fragment_is_not_used(dataset: LanceDataset) -> None:
    def uses_index() -> bool:
        scanner = dataset.scanner(["id"], filter="id >= 30")
        assert scanner.to_table()["id"].to_pylist() == list(range(30, 60))
        return "ScalarIndexQuery" in scanner.explain_plan()

    dataset.create_scalar_index("id", "ZONEMAP")
    assert uses_index()
    dataset.optimize.compact_files()
    assert not uses_index()
    dataset.optimize.optimize_indices()
    assert uses_index()


def test_index_descriptions_include_all_segments(dataset: LanceDataset) -> None:
    def part(number: int, fragments: set[int]) -> Index:
        details = ("/lance.table.BitmapIndexDetails", b"")
        return Index(str(UUID(int=number)), "langs", [1], number, fragments, 0, details)

    operation = lance.LanceOperation.CreateIndex([part(1, {0}), part(2, {1})], [])
    ds = lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
    stats = ds.stats.index_stats("langs")
    assert [stats[name] for name in ("index_type", "num_indices", "num_segments")] == ["Bitmap", 2, 2]
    assert (stats["num_indexed_rows"], stats["num_unindexed_rows"], stats["num_unindexed_fragments"]) == (40, 20, 1)
    assert stats["num_indexed_rows_per_delta"] == [20, 20]
    assert [i["uuid"] for i in stats["segments"]] == [str(UUID(int=number)) for number in (1, 2)]
    (described,) = ds.describe_indices()
    assert (described.index_type, described.num_rows_indexed) == ("Bitmap", 40)
    assert [s.fragment_ids for s in described.segments] == [{0}, {1}]
    assert ds.count_rows("lang = 'fr'") == 30
    ds.drop_index("langs")
    assert ds.describe_indices() == []


def test_index_without_rows(dataset: LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE", train=False)
    stats = dataset.stats.index_stats("id_idx")
    assert (stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (0, 60)
    assert (stats["name"], stats["num_indices"]) == ("id_idx", 1)
    assert (stats["num_indexed_fragments"], stats["num_unindexed_fragments"]) == (0, 3)
    assert dataset.to_table(["id"], filter="id > 57")["id"].to_pylist() == [58, 59]
    assert lance.dataset(dataset.uri).count_rows("id = 3") == 1
    dataset.optimize.optimize_indices()
    assert dataset.stats.index_stats("id_idx")["num_indexed_rows"] == 60
    assert dataset.to_table(["id"], filter="id > 57")["id"].to_pylist() == [58, 59]
    dataset.create_scalar_index("id", "BTREE", progress_callback=None, fragment_ids=None)
    with pytest.raises(InvalidArgumentError, match="fragment_ids"):
        dataset.create_scalar_index("id", "BTREE", fragment_ids=[1])
    with pytest.raises(TypeError, match="zones"):
        dataset.create_scalar_index("id", "BTREE", zones=3)


def test_target_partition_size(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(300, 8)).astype(np.float32)
    rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 8)})
    ds = lance.write_dataset(rows, tmp_path / "t")
    ds = ds.create_index("v", "IVF_PQ", num_sub_vectors=4, target_partition_size=100, train=True, skip_transpose=False)
    assert len(ds.centroids(column="v")) == ds.stats.index_stats("v_idx")["indices"][0]["num_partitions"] == 3
    ds = ds.create_index("v", "IVF_PQ", num_sub_vectors=4, replace=True, max_iters=2, progress_callback=None)
    assert len(ds.centroids(column="v")) == 1
    ds = ds.create_index("v", "IVF_PQ", num_sub_vectors=4, ivf_centroids=values[:5], replace=True)
    assert len(ds.centroids(column="v")) == 5
    near = {"column": "v", "q": values[7], "k": 1, "ef": 10, "query_parallelism": 2, "approx_mode": "accurate"}
    assert ds.to_table(nearest={**near, "refine_factor": 100, "nprobes": 5})["_distance"].to_pylist() == [0]
    with pytest.raises(TypeError, match="depth"):
        ds.to_table(nearest={**near, "depth": 3})


def vectors(rows: int) -> pa.Table:
    numbers = pa.array(np.random.default_rng(3).random(8 * rows), pa.float32())
    return pa.table({"id": pa.array(range(rows), pa.int64()), "v": pa.FixedSizeListArray.from_arrays(numbers, 8)})


@pytest.mark.parametrize("creator", [lance, pylance])
@pytest.mark.parametrize("trainer", [lance, pylance])
@pytest.mark.parametrize(
    ("kind", "metric", "options"),
    [
        ("IVF_PQ", "cosine", {"num_sub_vectors": 2}),
        ("IVF_PQ", "l2", {"num_sub_vectors": 4, "num_bits": 4}),
        ("IVF_FLAT", "l2", {}),
        ("IVF_SQ", "dot", {}),
    ],
)
def test_untrained_vector_indices(
    tmp_path: Path, creator: Any, trainer: Any, kind: str, metric: str, options: dict[str, Any]
) -> None:
    where, q = tmp_path / "t", [0.5] * 8
    dataset = creator.write_dataset(vectors(1000), where)
    dataset.create_index("v", kind, name="i", metric=metric, num_partitions=2, train=False, **options)
    search = {"column": "v", "q": q, "k": 5, "metric": metric}
    expected = None
    for one in (lance.dataset(where), pylance.dataset(where)):
        (index,) = one.describe_indices()
        assert (index.name, index.index_type, index.num_rows_indexed) == ("i", kind, 0)
        assert one.stats.index_stats("i")["num_unindexed_rows"] == 1000
        found = one.to_table(["id"], nearest=search)["id"].to_pylist()
        assert expected in (None, found)
        expected = found
    assert not (where / "_indices").exists()
    lance.dataset(where).optimize.compact_files()
    trainer.dataset(where).optimize.optimize_indices()
    for one in (lance.dataset(where), pylance.dataset(where)):
        (index,) = one.describe_indices()
        assert (index.index_type, index.num_rows_indexed) == (kind, 1000)
        stats = one.stats.index_stats("i")["indices"][0]
        assert stats.get("metric_type", metric) == metric
        assert one.to_table(["id"], nearest={**search, "refine_factor": 50})["id"].to_pylist() == expected


def test_vector_index_without_rows_is_untrained(tmp_path: Path) -> None:
    dataset = lance.write_dataset(vectors(0), tmp_path / "t").create_index("v", "IVF_FLAT")
    dataset.validate()  # it has no files
    assert trilake.verify(tmp_path / "t").ok
    assert [(i.index_type, i.num_rows_indexed) for i in dataset.describe_indices()] == [("IVF_FLAT", 0)]
    dataset.optimize.optimize_indices()
    dataset.insert(vectors(100))
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    assert dataset.describe_indices()[0].num_rows_indexed == 100
    assert dataset.to_table(nearest={"column": "v", "q": [0.0] * 8, "k": 3}).num_rows == 3
    legacy = lance.write_dataset(vectors(9), tmp_path / "legacy", data_storage_version="legacy")
    with pytest.raises(InvalidArgumentError, match="legacy format"):
        legacy.create_index("v", "IVF_PQ", num_sub_vectors=2, train=False)


@pytest.mark.parametrize(("metric", "pieces"), [("l2", 4), ("cosine", 2), ("dot", 8)])
def test_product_quantization_with_four_bits(tmp_path: Path, metric: str, pieces: int) -> None:
    where = tmp_path / "t"
    dataset = lance.write_dataset(vectors(1000), where)
    dataset.create_index("v", "IVF_PQ", metric=metric, num_partitions=2, num_sub_vectors=pieces, num_bits=4, seed=1)
    q = np.random.default_rng(5).random(8).tolist()
    exact = {"column": "v", "q": q, "k": 10, "metric": metric}
    expected = dataset.to_table(["id"], nearest={**exact, "use_index": False})["id"].to_pylist()

    def check() -> None:
        peer = pylance.dataset(where)
        for one in (dataset, peer):
            sub = one.stats.index_stats("v_idx")["indices"][0]["sub_index"]
            assert (sub["nbits"], sub["num_sub_vectors"], sub["index_type"]) == (4, pieces, "PQ")
            refined = {**exact, "nprobes": 2, "refine_factor": 50}
            assert one.to_table(["id"], nearest=refined)["id"].to_pylist() == expected
        coarse = {**exact, "k": 1000, "nprobes": 2}
        ours, theirs = (one.to_table(["id"], nearest=coarse).sort_by("id") for one in (dataset, peer))
        assert ours["id"].to_pylist() == theirs["id"].to_pylist()
        # pylance rounds distances to 4-bit codes in its lookup tables.
        assert np.corrcoef(ours["_distance"], theirs["_distance"])[0, 1] > 0.99

    check()
    dataset.insert(vectors(1000).slice(0, 0))
    dataset.optimize.optimize_indices(retrain=True)
    check()
    with pytest.raises(InvalidArgumentError, match="must be even"):
        dataset.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=1, num_bits=4, name="odd")


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_trained_models_suit_the_metric(tmp_path: Path, metric: str) -> None:
    rng = np.random.default_rng(1)
    values = (rng.normal(size=(1500, 8)) * rng.lognormal(0, 1.5, (1500, 1))).astype(np.float32)
    rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 8)})
    dataset = lance.write_dataset(rows, tmp_path / "t")
    models = IndicesBuilder(dataset, "v").prepare_global_ivf_pq(
        4, 4, distance_type=metric, sample_rate=50, max_iters=10
    )
    dataset = dataset.create_index("v", "IVF_PQ", metric=metric, num_sub_vectors=4, **models)
    same = 0
    for q in values[:40] + rng.normal(size=(40, 8)).astype(np.float32) / 10:
        near = {"column": "v", "q": q, "k": 10, "metric": metric, "nprobes": 4}
        approximate, exact = (
            set(dataset.to_table(["_rowid"], nearest={**near, "use_index": use})["_rowid"].to_pylist())
            for use in (True, False)
        )
        same += len(approximate & exact)
    assert same / 400 > 0.75
    with pytest.raises(InvalidArgumentError, match="num_bits=5"):
        IndicesBuilder(dataset, "v").train_pq(IvfModel(models["ivf_centroids"], metric), 4, num_bits=5)


@pytest.mark.parametrize(
    ("how", "bits"),
    [({}, 8), ({}, 4), ({"enable_stable_row_ids": True}, 8), ({"data_storage_version": "legacy"}, 8)],
)
def test_index_is_built_from_codes_in_files(tmp_path: Path, how: dict[str, Any], bits: int) -> None:
    rows = vectors(900)
    where = tmp_path / "t"
    dataset = lance.write_dataset(rows, where, max_rows_per_file=300, **how)
    dataset.delete("id % 9 = 1")
    builder = IndicesBuilder(dataset, "v")
    ivf = builder.train_ivf(3, sample_rate=50)
    pq = builder.train_pq(ivf, 4, sample_rate=2, num_bits=bits)
    wide = IvfModel(ivf.centroids.cast(pa.list_(pa.float64(), 8)), ivf.distance_type)
    names = []
    for number, fragment in enumerate(dataset.get_fragments()[:2]):
        builder.transform_vectors(wide, pq, str(tmp_path / f"codes{number}"), fragments=[fragment])
        names += builder.shuffle_transformed_vectors([f"codes{number}"], str(tmp_path), ivf, f"sorted{number}")
    assert names == ["sorted0_0.lance", "sorted1_0.lance"]
    codes = lance.file.LanceFileReader(str(tmp_path / names[0])).read_all().to_table()
    assert codes.schema == pa.schema(
        {"_rowid": pa.uint64(), "__ivf_part_id": pa.uint32(), "__pq_code": pa.list_(pa.uint8(), 4)}
    )
    numbers = codes["__ivf_part_id"].to_pylist()
    assert numbers == sorted(numbers)
    for name in None, "i":
        builder.load_shuffled_vectors(names, str(tmp_path), ivf, pq, name)
    found = {i["name"]: i["fragment_ids"] for i in builder.dataset.list_indices()}  # type: ignore[attr-defined]
    assert found == {"v_idx": {0, 1}, "i": {0, 1}}
    models: dict[str, Any] = {"ivf_centroids": ivf.centroids, "pq_codebook": pq.codebook}
    dataset.create_index("v", "IVF_PQ", name="whole", num_sub_vectors=4, num_bits=bits, **models)
    dataset = lance.dataset(where)
    ours, whole = (VectorIndexReader(dataset, name) for name in ("v_idx", "whole"))
    indexed = dataset.to_table([], filter="id < 600", with_row_id=True)["_rowid"]
    for number in range(3):
        expected = whole.read_partition(number, with_vector=True)
        expected = expected.filter(pc.is_in(expected["_rowid"], indexed))
        assert ours.read_partition(number, with_vector=True).sort_by("_rowid") == expected.sort_by("_rowid")
    near = {"column": "v", "q": [0.5] * 8, "k": 9, "nprobes": 3, "refine_factor": 100}
    results = [one.dataset(str(where)).to_table(["id"], nearest=near)["id"] for one in (lance, pylance)]
    assert results[0] == results[1] == dataset.to_table(["id"], nearest={**near, "use_index": False})["id"]
    with pytest.raises(InvalidArgumentError, match="non-empty"):
        builder.transform_vectors(ivf, pq, str(tmp_path / "none"), fragments=[])
    with pytest.raises(InvalidArgumentError, match="list of strings"):
        builder.load_shuffled_vectors("codes0", str(tmp_path), ivf, pq)
    with pytest.raises(InvalidArgumentError, match="fragment 9 is not"):
        builder.train_ivf(2, fragment_ids=[9])


def test_indices_of_other_kinds_keep_their_names(tmp_path: Path) -> None:
    vectors = pa.array([[float(i)] * 4 for i in range(300)], pa.list_(pa.float32(), 4))
    dataset = lance.write_dataset(pa.table({"i": range(300), "v": vectors}), tmp_path / "t")
    for kind in ("BTREE", "BITMAP", "BTREE"):
        dataset.create_scalar_index("i", kind)
    dataset.create_scalar_index("i", "ZONEMAP", name="v_idx")
    for index_type in ("IVF_FLAT", "IVF_SQ"):
        dataset = dataset.create_index("v", index_type, num_partitions=1, replace=True)
    names = {"i_idx": "BTree", "i_idx_2": "Bitmap", "v_idx": "ZoneMap", "v_idx_2": "IVF_SQ"}
    assert {index["name"]: index["type"] for index in dataset.list_indices()} == names
    dataset.alter_columns({"path": "i", "name": "j"})
    dataset.add_columns({"i": "j + 1"})
    dataset.create_scalar_index("i", "BTREE")
    assert {index["name"]: index["fields"] for index in dataset.list_indices()}["i_idx_3"] == ["i"]
    with pytest.raises(InvalidArgumentError, match="another column"):
        dataset.create_scalar_index("i", "BTREE", name="i_idx")
