"""Index segments: built from some fragments, merged and committed; zone map and label list indices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import trilake
from trilake import lance
from trilake.errors import ConflictError, InvalidArgumentError
from trilake.lance.dataset import IndexConfig
from trilake.lance.pylance.lance_dataset import LanceDataset

VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(np.random.default_rng(7).normal(size=2400), pa.float32()), 4)
ROWS = pa.table(
    {
        "id": range(600),
        "x": [None if i % 50 == 0 else float("nan") if i % 70 == 0 else i / 4 for i in range(600)],
        "s": [f"s{i % 90:02}" for i in range(600)],
        "l": [None if i % 40 == 0 else [] if i % 30 == 0 else [f"t{i % 7}", None, "all"] for i in range(600)],
        "v": VECTORS,
    }
)


def dataset(name: str) -> LanceDataset:
    return lance.write_dataset(ROWS, f"memory://segments-{name}", max_rows_per_file=200)


def check(ds: LanceDataset, *filters: str) -> None:
    for filter in filters:
        scanner = ds.scanner(["id"], filter=filter)
        assert "ScalarIndexQuery" in scanner.explain_plan()
        scanned = ds.to_table(["id"], filter=filter, use_scalar_index=False)
        assert scanner.to_table()["id"].to_pylist() == scanned["id"].to_pylist()
        assert scanned.num_rows


FILTERS = {
    "BTREE": ("s", ("s = 's07'", "s >= 's88'")),
    "BITMAP": ("s", ("s = 's07'", "s IN ('s01', 's89')")),
    "ZONEMAP": ("x", ("x < 3.5", "x BETWEEN 60 AND 61", "x IS NULL", "x = 100.25")),
    "LABEL_LIST": ("l", ("array_has_any(l, ['t3', 'none'])", "array_has(l, 't6')")),
}


@pytest.mark.parametrize("kind", FILTERS)
def test_segments_are_merged_and_committed(kind: str) -> None:
    column, filters = FILTERS[kind]
    ds = dataset(kind)
    ds.delete("id IN (3, 207) OR id = 599")
    segments = [ds.create_index_uncommitted(column, kind, "i", fragment_ids=[id]) for id in range(3)]
    assert [s.fragment_ids for s in segments] == [{0}, {1}, {2}]
    assert ds.list_indices() == []
    merged = ds.merge_existing_index_segments(segments[1:])
    assert (merged.fragment_ids, merged.name) == ({1, 2}, "i")
    ds = ds.commit_existing_index_segments("i", column, [segments[0], merged])
    assert [len(i.segments) for i in ds.describe_indices()] == [2]
    check(ds, *filters)
    ds = lance.write_dataset(ROWS.slice(0, 100), ds, mode="append")
    ds.optimize.optimize_indices(num_indices_to_merge=0)
    assert [len(i.segments) for i in ds.describe_indices()] == [3]
    check(ds, *filters)
    ds.optimize.compact_files()
    check(ds, *filters)
    ds.optimize.optimize_indices()
    assert ds.stats.index_stats("i")["num_unindexed_rows"] == 0
    assert [len(i.segments) for i in ds.describe_indices()] == [1]
    check(ds, *filters)
    assert [f.code for f in trilake.verify(ds.uri).findings] == []


def test_vector_segments_are_searched_together() -> None:
    ds = dataset("vectors")
    whole = ds.create_index("v", "IVF_PQ", "whole", num_partitions=2, num_sub_vectors=2)
    centroids = whole.centroids(index_name="whole")
    words = np.random.default_rng(1).normal(size=(2, 256, 2)).astype(np.float32)
    ds.drop_index("whole")
    options = {"num_partitions": 2, "num_sub_vectors": 2, "ivf_centroids": centroids, "pq_codebook": words}
    segments = [ds.create_index_uncommitted("v", "IVF_PQ", fragment_ids=[id], **options) for id in range(3)]
    merged = ds.merge_existing_index_segments(segments[:2])
    ds = ds.commit_existing_index_segments("v_idx", "v", [merged, segments[2]])
    nearest = {"column": "v", "q": ROWS["v"][450].as_py(), "k": 4, "nprobes": 2, "refine_factor": 150}
    assert "ANNSubIndex" in ds.scanner(nearest=nearest).explain_plan()
    assert ds.to_table(["id"], nearest=nearest)["id"][0].as_py() == 450


def test_incompatible_segments_are_rejected() -> None:
    ds = dataset("rejected")
    first, second = (ds.create_index_uncommitted("s", "BTREE", fragment_ids=ids) for ids in ([0, 1], [1, 2]))
    other = ds.create_index_uncommitted("id", "BTREE", fragment_ids=[2])
    for segments, message in (([first, second], "same fragment"), ([first, other], "different columns"), ([], "empty")):
        with pytest.raises(InvalidArgumentError, match=message):
            ds.commit_existing_index_segments("i", "s", segments)
    with pytest.raises(InvalidArgumentError, match="do not index column 'x'"):
        ds.commit_existing_index_segments("i", "x", [first])
    with pytest.raises(InvalidArgumentError, match="fragment 9"):
        ds.create_index_uncommitted("s", "BTREE", fragment_ids=[9])
    with pytest.raises(InvalidArgumentError, match="fragment_ids"):
        ds.create_index_uncommitted("s", "BTREE")
    old = lance.write_dataset(ROWS.select(["s"]), "memory://segments-legacy", data_storage_version="legacy")
    with pytest.raises(InvalidArgumentError, match="legacy format"):
        old.create_index_uncommitted("s", "BTREE", fragment_ids=[0])


def test_segments_of_moved_rows_conflict() -> None:
    ds = dataset("moved")
    segments = [ds.create_index_uncommitted("s", "BTREE", fragment_ids=[id]) for id in range(3)]
    ds.optimize.compact_files()
    with pytest.raises(ConflictError):
        ds.commit_existing_index_segments("i", "s", segments)


def test_segments_are_committed_one_by_one() -> None:
    ds = dataset("one-by-one")
    segments = [ds.create_index_uncommitted("s", "BTREE", fragment_ids=[id]) for id in range(3)]

    def covered() -> list[set[int]]:
        return [set(segment.fragment_ids) for segment in ds.describe_indices()[0].segments]

    for segment in segments:
        ds.delete(f"id = {segment.fragment_ids.copy().pop() * 200}")
        ds = ds.commit_existing_index_segments("i", "s", [segment])
    assert covered() == [{0}, {1}, {2}]
    check(ds, "s = 's07'", "s >= 's88'")
    ds = ds.commit_existing_index_segments("i", "s", [ds.create_index_uncommitted("s", "BTREE", fragment_ids=[2, 0])])
    assert covered() == [{1}, {0, 2}]
    check(ds, "s = 's07'", "s >= 's88'")
    part, bitmap = (ds.create_index_uncommitted("s", kind, fragment_ids=[0]) for kind in ("BTREE", "BITMAP"))
    with pytest.raises(InvalidArgumentError, match="also covers fragment 2"):
        ds.commit_existing_index_segments("i", "s", [part])
    with pytest.raises(InvalidArgumentError, match="has another kind and covers fragment 1"):
        ds.commit_existing_index_segments("i", "s", [bitmap])
    other = [ds.create_index_uncommitted("s", "BITMAP", fragment_ids=[id]) for id in range(3)]
    ds = ds.commit_existing_index_segments("i", "s", other)
    assert covered() == [{0}, {1}, {2}]
    with pytest.raises(ConflictError):
        lance.dataset(ds.uri, ds.version - 1).commit_existing_index_segments("i", "s", other)


def test_segments_of_values_changed_in_place_conflict() -> None:
    ds = dataset("changed")
    segments = [ds.create_index_uncommitted(column, "BTREE", fragment_ids=[1]) for column in ("s", "id")]
    changed, fields = ds.get_fragment(1).update_columns(pa.table({"id": [200], "s": ["x"]}), "id")
    update = lance.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    ds = LanceDataset.commit(ds, update, read_version=ds.version)
    with pytest.raises(ConflictError, match="fragment 1 were moved or changed after version 1"):
        ds.commit_existing_index_segments("i", "s", segments[:1])


def test_options_of_vector_indices_have_no_effect_on_scalar_segments() -> None:
    ds = dataset("options")
    segment = ds.create_index_uncommitted(
        "s", "BTREE", fragment_ids=[0], train=True, filter_nan=True, index_cache_size=None, skip_transpose=False
    )
    assert segment.fragment_ids == {0}
    with pytest.raises(InvalidArgumentError, match="an index without rows"):
        ds.create_index_uncommitted("s", "BTREE", fragment_ids=[0], train=False)


def test_rows_per_zone_is_applied() -> None:
    ds = dataset("zones")
    ds.create_scalar_index("id", IndexConfig("zonemap", {"rows_per_zone": 50}))
    ds = lance.write_dataset(ROWS.slice(0, 120), ds, mode="append")
    ds.optimize.optimize_indices()
    stats = ds.stats.index_stats("id_idx")
    assert (stats["index_type"], stats["rows_per_zone"], stats["num_zones"]) == ("ZoneMap", 50, 15)
    check(ds, "id = 117", "id > 590")
    with pytest.raises(InvalidArgumentError, match="LABEL_LIST supports lists"):
        ds.create_scalar_index("id", "LABEL_LIST")
