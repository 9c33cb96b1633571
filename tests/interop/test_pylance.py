"""The current pylance and trilake: each reads and continues datasets of the other."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import lance as pylance
import pyarrow as pa
import pytest

import trilake
from tests.interop import dialogue
from trilake import lance as ours
from trilake.lance.versions.versions import list_versions
from trilake.storage import open_store

pytestmark = pytest.mark.long

SIDES: dict[str, Any] = {"trilake": ours, "pylance": pylance}


def begin(who: str, uri: str, *, v2_names: bool = False, dictionary: bool = True) -> None:
    more: dict[str, Any] = {"dictionary": dictionary}
    if who == "pylance":
        more |= {"data_storage_version": "legacy", "enable_v2_manifest_paths": v2_names}
    dialogue.write(SIDES[who], uri, **more)


def agree(uri: str, *, history: bool = False) -> pa.Table:
    """Both see the same rows in the same order, at the newest version or at all versions."""
    versions = list_versions(open_store(uri)).versions
    table = None
    for version in versions if history else versions[-1:]:
        table, theirs = (dialogue.state(SIDES[who], uri, version) for who in ("trilake", "pylance"))
        assert table.schema.equals(theirs.schema), version
        assert table.to_pydict() == theirs.to_pydict(), version
    assert table is not None
    assert pylance.dataset(uri).version == versions[-1]
    return table


@pytest.mark.parametrize("who", SIDES)
def test_each_reads_datasets_of_the_other(who: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin(who, uri)
    assert agree(uri).select(["id"]).equals(dialogue.rows().select(["id"]))
    for text in ("id = 77", "name = 'name 250'", "x > 60", "flag AND id < 30", "s.a = 5"):
        found = ours.dataset(uri).to_table(columns=["id"], filter=text)
        assert found.equals(pylance.dataset(uri).to_table(columns=["id"], filter=text)), text
        assert found.num_rows > 0
    ranks = random.Random(3).sample(range(dialogue.COUNT), 40)
    assert ours.dataset(uri).take(ranks).to_pydict() == pylance.dataset(uri).take(ranks).to_pydict()


@pytest.mark.parametrize("step", dialogue.STEPS)
@pytest.mark.parametrize("author", SIDES)
@pytest.mark.parametrize("actor", SIDES)
def test_each_continues_datasets_of_the_other(author: str, actor: str, step: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    # Pylance cannot restore its legacy datasets with dictionaries.
    begin(author, uri, dictionary=step != "restore")
    dialogue.STEPS[step](SIDES[actor], uri)
    agree(uri, history=True)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(s, marks=pytest.mark.soak) for s in range(5, 50))])
def test_long_dialogues(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    uri = str(tmp_path / "t")
    begin(rng.choice(list(SIDES)), uri, dictionary=seed % 2 == 0)
    steps = [s for s in dialogue.STEPS if s != "restore" or seed % 2]
    for _ in range(10):
        dialogue.STEPS[rng.choice(steps)](SIDES[rng.choice(list(SIDES))], uri)
        agree(uri)
    agree(uri, history=True)
    ours.dataset(uri).validate()


def test_v2_manifest_names(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin("pylance", uri, v2_names=True)
    for step in ("delete", "append", "merge"):
        for who in SIDES.values():
            dialogue.STEPS[step](who, uri)
    agree(uri, history=True)
    assert list_versions(open_store(uri)).scheme == "v2"


def test_column_changes_of_either(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin("pylance", uri)
    for who in (ours, pylance):
        name = who.__name__.replace(".", "_")
        who.dataset(uri).add_columns({f"{name}_n": "id + 1"})
        who.dataset(uri).alter_columns({"path": f"{name}_n", "name": f"{name}_m"})
        agree(uri)
        who.dataset(uri).alter_columns({"path": f"{name}_m", "data_type": pa.int32()})
        agree(uri)
    ours.dataset(uri).drop_columns(["raw", "s.a"])
    agree(uri)
    pylance.dataset(uri).drop_columns(["day"])
    agree(uri, history=True)


def test_tags_of_either(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin("pylance", uri)
    pylance.dataset(uri).delete("id < 5")
    pylance.dataset(uri).tags.create("theirs", 2)
    ours.dataset(uri).tags.create("mine", 1)
    assert {n: t["version"] for n, t in ours.dataset(uri).tags.list().items()} == {"theirs": 2, "mine": 1}
    assert {n: t["version"] for n, t in pylance.dataset(uri).tags.list().items()} == {"theirs": 2, "mine": 1}
    assert pylance.dataset(uri, version="mine").version == ours.dataset(uri, "mine").version == 1


def test_dataset_configuration_is_kept(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin("pylance", uri, dictionary=False)
    pylance.dataset(uri).update_config({"owner": "sales", "lance.auto_cleanup.interval": "20"})
    pylance.dataset(uri).update_metadata({"note": "of the table"})
    for step in ("append", "delete", "update", "merge", "compact"):
        dialogue.STEPS[step](ours, uri)
    ours.dataset(uri, 4).restore()
    dialogue.STEPS["update"](pylance, uri)
    ours.write_dataset(dialogue.rows(0, 3, dictionary=False), uri, mode="overwrite")
    agree(uri, history=True)
    theirs = pylance.dataset(uri)
    assert theirs.config() == {"owner": "sales", "lance.auto_cleanup.interval": "20"}
    assert theirs.metadata == {"note": "of the table"}
    theirs.delete_config_keys(["owner", "lance.auto_cleanup.interval"])
    dialogue.STEPS["append"](ours, uri)
    assert pylance.dataset(uri).config() == {}
    assert ours.dataset(uri).snapshot.manifest.writer_feature_flags == 0


def test_cleanup_keeps_rows_of_branches(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin("pylance", uri)
    pylance.dataset(uri).delete("id < 5")
    branch = pylance.dataset(uri).create_branch("side")
    pylance.write_dataset(dialogue.rows(900, 3), branch, mode="append")
    branch.create_branch("side/way")
    for step in ("delete", "compact", "append"):
        dialogue.STEPS[step](pylance, uri)
    removed = ours.dataset(uri).cleanup_old_versions(dt.timedelta(0))
    assert removed.old_versions > 2
    counts = [pylance.dataset(uri).checkout_version((name, None)).to_table().num_rows for name in ("side", "side/way")]
    assert counts == [dialogue.COUNT - 2, dialogue.COUNT - 5]
    assert agree(uri, history=True).num_rows > 0


def test_stale_handles_of_either(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin("trilake", uri)
    mine, theirs = ours.dataset(uri), pylance.dataset(uri)
    mine.delete("id < 5")
    theirs.delete("id = 450")
    mine.delete("id = 460")
    assert agree(uri).num_rows == dialogue.COUNT - 7


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", ["legacy", "2.0", "2.2"])
def test_datasets_of_every_format_are_read_and_changed(version: str, stable: bool, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    pylance.write_dataset(dialogue.rows(), uri, data_storage_version=version, enable_stable_row_ids=stable)
    ours.dataset(uri).delete("id < 5")
    assert agree(uri).num_rows == dialogue.COUNT - 5


@pytest.mark.parametrize("indexed", ["a", "v"])
def test_stale_pylance_handle_after_compaction_with_index(indexed: str, tmp_path: Path) -> None:
    """Its handle is older than the compaction, so it reads trilake's transaction for the index."""
    uri = str(tmp_path / "t")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(i % 97) for i in range(4800)], pa.float32()), 8)
    rows = pa.table({"a": range(600), "v": vectors})
    ds = ours.write_dataset(rows, uri, max_rows_per_file=200, max_rows_per_group=100)
    if indexed == "a":
        ds.create_scalar_index("a")
    else:
        ds.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    old = pylance.dataset(uri)
    ours.dataset(uri).optimize.compact_files()
    pylance.write_dataset(rows.slice(0, 7), old, mode="append")
    # pylance 14.0.2 cannot delete matching rows if only some of them are in such a BTREE.
    old.delete("a = 50")
    assert agree(uri).num_rows == 606
    (left,) = ours.dataset(uri).list_indices()
    assert left["fields"] == [indexed]
    assert [i["name"] for i in pylance.dataset(uri).list_indices()] == [f"{indexed}_idx"]


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_indices_with_stable_row_ids_find_moved_rows(kind: str, tmp_path: Path) -> None:
    """A BTREE or zone map of pylance 14 stores row addresses even if rows have stable ids."""
    uri = str(tmp_path / "t")
    rows = pa.table({"id": range(60), "k": range(60)})
    pylance.write_dataset(rows, uri, enable_stable_row_ids=True, max_rows_per_file=20)
    pylance.dataset(uri).update({"k": "k + 1"}, where="id > 50")
    pylance.dataset(uri).create_scalar_index("id", kind)
    steps = [
        lambda ds: ds.delete("id % 5 = 1"),
        lambda ds: ds.update({"k": "k + 1"}, where="id > 30"),
        lambda ds: ds.optimize.optimize_indices(num_indices_to_merge=0),
        lambda ds: ds.optimize.compact_files(),
        lambda ds: ds.optimize.optimize_indices(),
    ]
    for step in [lambda ds: None, *steps]:
        step(ours.dataset(uri))
        for side in SIDES.values():
            found = side.dataset(uri).to_table(filter="id IN (3, 9, 33, 58)")["id"].to_pylist()
            assert sorted(found) == [3, 9, 33, 58], side
        assert "ScalarIndexQuery" in ours.dataset(uri).scanner(filter="id = 3").explain_plan()
        assert trilake.verify(uri).findings == ()


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_new_rows_are_indexed_beside_updated_rows_with_stable_ids(kind: str, tmp_path: Path) -> None:
    uri, rows = str(tmp_path / "t"), pa.table({"id": range(20), "s": [f"n{i % 3}" for i in range(20)]})
    ours.write_dataset(rows, uri, enable_stable_row_ids=True, max_rows_per_file=10).create_scalar_index("s", kind)
    ours.dataset(uri).update({"s": "'x'"}, where="id IN (3, 6)")
    ours.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    for side in (ours, pylance):
        found = [side.dataset(uri).to_table(["id"], filter=f"s = '{s}'")["id"].to_pylist() for s in ("n0", "x")]
        assert found == [[0, 9, 12, 15, 18], [3, 6]]


def test_clones_and_branches_use_inherited_indices(tmp_path: Path) -> None:
    uri, clone = str(tmp_path / "t"), str(tmp_path / "clone")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(i * i % 97) for i in range(1600)], pa.float32()), 4)
    made = ours.write_dataset(pa.table({"id": range(400), "v": vectors}), uri)
    made.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=2)
    made.create_scalar_index("id", "BTREE")
    branch = made.create_branch("b")
    made.shallow_clone(clone, made.version)
    assert trilake.verify(clone).findings == ()
    nearest = {"column": "v", "q": [1.0, 2.0, 3.0, 5.0], "k": 9, "nprobes": 2}
    for mine in (ours.dataset(clone), branch):
        theirs = pylance.dataset(clone) if mine is not branch else pylance.dataset(uri).checkout_version(("b", None))
        mine.validate()
        assert "ScalarIndexQuery" in mine.scanner(filter="id = 7").explain_plan()
        assert mine.to_table(filter="id = 7")["id"].to_pylist() == [7]
        found = [ds.to_table(columns=["id", "_distance"], nearest=nearest) for ds in (mine, theirs)]
        assert found[0]["_distance"].to_pylist() == pytest.approx(found[1]["_distance"].to_pylist(), abs=1e-4)


def test_segmented_index_is_dropped_as_one(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    made = pylance.write_dataset(pa.table({"id": range(20)}), uri, data_storage_version="legacy")
    made.create_scalar_index("id", "BTREE")
    pylance.write_dataset(pa.table({"id": range(20, 30)}), uri, mode="append")
    pylance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    mine = ours.dataset(uri)
    assert [i["fragment_ids"] for i in mine.list_indices()] == [{0}, {1}]
    assert mine.to_table(filter="id IN (3, 25)")["id"].to_pylist() == [3, 25]
    mine.drop_index("id_idx")
    assert [pylance.dataset(uri).list_indices(), mine.list_indices()] == [[], []]


def test_fragment_reuse_index_is_not_a_broken_index(tmp_path: Path) -> None:
    """It has no column and no files; indices that were not remapped need it."""
    uri = str(tmp_path / "t")
    begin("pylance", uri)
    pylance.dataset(uri).create_scalar_index("id", "BTREE")
    pylance.dataset(uri).delete("id % 10 = 7")
    pylance.dataset(uri).optimize.compact_files(defer_index_remap=True)
    mine = ours.dataset(uri)
    assert [i["fields"] for i in mine.list_indices()] == [["id"], []]
    mine.validate()
    assert trilake.verify(uri).findings == ()
    for step in ("append", "delete"):
        dialogue.STEPS[step](ours, uri)
    assert pylance.dataset(uri).to_table(filter="id = 500").num_rows == 1
    assert pylance.dataset(uri).count_rows("id < 500") == ours.dataset(uri).count_rows("id < 500")
    assert len(mine.list_indices()) == 2


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
@pytest.mark.parametrize("change", ["insert", "delete", "compact", "optimize", "new segment", "their optimize"])
def test_indices_left_behind_by_a_deferred_compaction_lose_no_rows(kind: str, change: str, tmp_path: Path) -> None:
    uri, pick = str(tmp_path / "t"), random.Random(3)
    vectors = pa.array([[pick.random() for _ in range(4)] for _ in range(120)], pa.list_(pa.float32(), 4))
    theirs = pylance.write_dataset(
        pa.table({"id": range(120), "s": ["x"] * 120, "v": vectors}), uri, max_rows_per_file=30
    )
    theirs.create_scalar_index("id", kind)
    theirs.create_index("v", "IVF_FLAT", num_partitions=2)
    more = pa.table({"id": range(120, 140), "s": ["x"] * 20, "v": vectors[:20]})
    theirs = pylance.write_dataset(more, uri, mode="append")
    theirs.delete("id % 3 = 0")
    theirs.optimize.compact_files(defer_index_remap=True)
    theirs.alter_columns({"path": "s", "name": "t"})  # this commit names the new fragment as indexed
    mine = ours.dataset(uri)
    match change:
        case "insert":
            mine.insert(mine.to_table().slice(0, 2))
        case "delete":
            mine.delete("id = 8")
        case "compact":
            mine.insert(mine.to_table().slice(0, 2))
            mine.optimize.compact_files()
        case "optimize":
            mine.optimize.optimize_indices()
        case "new segment":
            mine.optimize.optimize_indices(num_indices_to_merge=0)
        case "their optimize":
            theirs.optimize.optimize_indices()
    for side in (ours, pylance):
        ds: Any = side.dataset(uri)
        for filter in ("id < 20", "id IN (7, 8, 121)", "id > 100"):
            found, scanned = (ds.to_table(["id"], filter=filter, use_scalar_index=used) for used in (True, False))
            assert sorted(found["id"].to_pylist()) == sorted(scanned["id"].to_pylist())
        search = {"column": "v", "q": [0.5] * 4, "k": 20, "nprobes": 2}
        found, scanned = (ds.to_table(["id"], nearest={**search, "use_index": used}) for used in (True, False))
        assert found["_distance"].to_pylist() == pytest.approx(scanned["_distance"].to_pylist())
    assert [f.code for f in trilake.verify(uri).findings] == []


def test_compaction_after_a_deferred_one_loses_no_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    theirs = pylance.write_dataset(pa.table({"id": range(60), "s": ["x"] * 60}), uri, max_rows_per_file=20)
    theirs.create_scalar_index("id", "BTREE")
    theirs.delete("id % 3 = 0")
    theirs.optimize.compact_files(defer_index_remap=True)
    theirs.alter_columns({"path": "s", "name": "t"})
    theirs.delete("id < 30")
    theirs.optimize.compact_files()  # pylance 14 itself finds none of the rows now
    assert ours.dataset(uri).to_table(filter="id < 33")["id"].to_pylist() == [31, 32]


def test_index_type_that_only_pylance_can_open(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    begin("pylance", uri)
    pylance.dataset(uri).create_scalar_index("id", "BTREE")
    assert [i["type"] for i in ours.dataset(uri).list_indices()] == ["BTree"]


@pytest.mark.parametrize("who", SIDES)
def test_pylance_updates_after_a_partial_compaction(who: str, tmp_path: Path) -> None:
    """It relies on fragments ordered by id, and both write them so."""
    uri = str(tmp_path / "t")

    def rows(start: int, count: int) -> pa.Table:
        return pa.table({"id": pa.array(range(start, start + count), pa.int64()), "v": ["a"] * count})

    for start, count in ((0, 100), (100, 10), (110, 10), (120, 100)):
        ours.write_dataset(rows(start, count), uri, mode="append" if start else "create")
    SIDES[who].dataset(uri).optimize.compact_files(target_rows_per_fragment=50)
    dataset = pylance.dataset(uri)
    assert [(f.fragment_id, f.count_rows()) for f in dataset.get_fragments()] == [(0, 100), (3, 100), (4, 20)]
    assert dataset.update({"v": "'b'"}, where="id % 2 = 0") == {"num_rows_updated": 110}
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(0, 300))
    assert agree(uri).num_rows == 300


def indexed_rows() -> pa.Table:
    ids = range(600)
    values = pa.array([float(i * 37 % 101) for i in range(600 * 8)], pa.float32())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([None if i % 10 == 0 else i % 50 for i in ids], pa.int32()),
            "c": pa.array([None if i % 7 == 0 else ["red", "green", ""][i % 3] for i in ids]),
            "tags": pa.array([["a", "b", "c"][: i % 4] for i in ids]),
            "v": pa.FixedSizeListArray.from_arrays(values, 8),
        }
    )


FILTERS = ["x = 7", "x IS NULL", "x > 45", "c = 'red'", "c = ''", "c IS NULL", "x IN (1, 2) AND c = 'green'"]


@pytest.mark.parametrize("who", SIDES)
def test_each_uses_indices_of_the_other(who: str, tmp_path: Path) -> None:
    """Before and after changes and compactions of both."""
    uri, rows = str(tmp_path / "t"), indexed_rows()
    ds = SIDES[who].write_dataset(rows, uri, max_rows_per_file=200, data_storage_version="2.2")
    ds.create_scalar_index("x", "BTREE")
    ds.create_scalar_index("c", "BITMAP")
    ds.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4)

    def check() -> None:
        mine, theirs = ours.dataset(uri), pylance.dataset(uri)
        for filter in FILTERS:
            expected = sorted(theirs.to_table(["id"], filter=filter, use_scalar_index=False)["id"].to_pylist())
            for one in (mine, theirs):
                assert sorted(one.to_table(["id"], filter=filter)["id"].to_pylist()) == expected, filter
                assert "query=" in one.scanner(["id"], filter=filter).explain_plan()
        search = {"column": "v", "q": rows["v"][5].as_py(), "k": 5, "nprobes": 2}
        found = [one.to_table(["id", "_distance"], nearest=search)["_distance"].to_pylist() for one in (mine, theirs)]
        assert found[0] == pytest.approx(found[1], rel=1e-3, abs=0.01)
        assert "ANN" in theirs.scanner(["id"], nearest=search).explain_plan()
        assert "ANNSubIndex" in mine.scanner(["id"], nearest=search).explain_plan()
        assert trilake.verify(uri).findings == ()

    check()
    for other in (ours, pylance):
        other.dataset(uri).delete("id % 10 = 3" if other is ours else "id % 10 = 4")
        other.write_dataset(rows.slice(0, 30), uri, mode="append")
        other.dataset(uri).optimize.compact_files()
        check()
        other.dataset(uri).optimize.optimize_indices()
        check()


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ", "IVF_HNSW_PQ", "IVF_HNSW_SQ"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_other_vector_index_types_are_searched(kind: str, metric: str, tmp_path: Path) -> None:
    uri, rows = str(tmp_path / "t"), indexed_rows()
    more = {"num_sub_vectors": 4} if kind.endswith("PQ") else {}
    pylance.write_dataset(rows, uri).create_index("v", kind, metric=metric, num_partitions=2, **more)
    mine = ours.dataset(uri)
    assert [i.index_type for i in mine.describe_indices()] == [kind]
    search = {"column": "v", "q": rows["v"][5].as_py(), "k": 5, "nprobes": 2, "refine_factor": 40, "metric": metric}
    found = mine.to_table(["id"], nearest=search)["_distance"].to_pylist()
    exact = mine.to_table(["id"], nearest={**search, "use_index": False})["_distance"].to_pylist()
    assert found == pytest.approx(exact)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_pylance_searches_and_extends_vector_indices(kind: str, metric: str, tmp_path: Path) -> None:
    """With the same recall for vectors and bytes."""
    uri, rows = str(tmp_path / "t"), indexed_rows()
    ours.write_dataset(rows, uri, max_rows_per_file=400).create_index("v", kind, metric=metric, num_partitions=3)
    pylance.write_dataset(rows.slice(0, 20), uri, mode="append")
    for extend in (ours, pylance, ours):
        mine, theirs = ours.dataset(uri), pylance.dataset(uri)
        search = {"column": "v", "q": rows["v"][5].as_py(), "k": 20, "nprobes": 2, "metric": metric}
        assert "ANN" in theirs.scanner(["id"], nearest=search).explain_plan()
        assert "ANNSubIndex" in mine.scanner(["id"], nearest=search).explain_plan()
        exact = set(mine.to_table(["id"], nearest={**search, "use_index": False})["id"].to_pylist())
        found = [set(one.to_table(["id"], nearest=search)["id"].to_pylist()) for one in (mine, theirs)]
        assert abs(len(found[0] & exact) - len(found[1] & exact)) <= 2
        assert trilake.verify(uri).findings == ()
        extend.dataset(uri).delete(f"id = {300 + 10 * len(list_versions(open_store(uri)).versions)}")
        extend.dataset(uri).optimize.optimize_indices()
        extend.dataset(uri).optimize.compact_files()
        statistics = pylance.dataset(uri).stats.index_stats("v_idx")
        assert (statistics["index_type"], statistics["num_unindexed_rows"]) == (kind, 0)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ", "IVF_PQ"])
@pytest.mark.parametrize("numbers", [pa.float16(), pa.float64()])
def test_pylance_searches_indices_of_other_float_types(kind: str, numbers: pa.DataType, tmp_path: Path) -> None:
    uri, values = str(tmp_path / "t"), indexed_rows()["v"].cast(pa.list_(numbers, 8))
    mine = ours.write_dataset(pa.table({"id": range(600), "v": values}), uri)
    mine = mine.create_index("v", kind, num_partitions=2, **({"num_sub_vectors": 8} if kind == "IVF_PQ" else {}))
    search = {"column": "v", "q": values[5].as_py(), "k": 5, "nprobes": 2, "refine_factor": 10}
    found = [one.to_table(["id"], nearest=search)["_distance"].to_pylist() for one in (mine, pylance.dataset(uri))]
    assert found[0] == pytest.approx(found[1])


def test_hamming_distances_equal_those_of_pylance(tmp_path: Path) -> None:
    data = [list(random.Random(i).randbytes(8)) if i % 9 else None for i in range(100)]
    uri, rows = str(tmp_path / "t"), pa.table({"id": range(100), "v": pa.array(data, pa.list_(pa.uint8(), 8))})
    mine = ours.write_dataset(rows, uri)
    for more in ({}, {"metric": "hamming"}, {"distance_range": (20, 30)}):
        search = {"column": "v", "q": data[5], "k": 7, **more}
        assert mine.to_table(["id"], nearest=search).equals(pylance.dataset(uri).to_table(["id"], nearest=search))
    for search in ({"q": data[5], "metric": "l2"}, {"q": [0.5] * 8}, {"q": [256] * 8}):
        with pytest.raises(trilake.errors.InvalidArgumentError):
            mine.to_table(nearest={"column": "v", **search})


def test_label_list_and_zone_map_indices_of_pylance(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ds = pylance.write_dataset(indexed_rows(), uri)
    ds.create_scalar_index("tags", "LABEL_LIST")
    ds.create_scalar_index("id", "ZONEMAP", rows_per_zone=100)
    mine = ours.dataset(uri)
    assert {i.index_type for i in mine.describe_indices()} == {"ZoneMap", "LabelList"}
    for filter in ("id < 20", "id = 599", "id IN (3, 404)", "array_has(tags, 'a')", "array_has_all(tags, ['a', 'c'])"):
        found = mine.to_table(["id"], filter=filter)
        assert found.to_pylist() == pylance.dataset(uri).to_table(["id"], filter=filter).to_pylist()
        assert "query=" in mine.scanner(["id"], filter=filter).explain_plan()


def test_fields_added_to_structs_are_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    structs = [{"a": 1, "n": {"x": 1}}, None, {"a": None, "n": None}, {"a": 4, "n": {"x": 4}}]
    lists = [[{"q": 1}], None, [], [{"q": 4}, None]]
    rows = pa.table({"id": range(4), "s": structs, "l": lists})
    pylance.write_dataset(rows, uri, data_storage_version="2.2", max_rows_per_file=3)

    def same() -> list[Any]:
        mine, theirs = ours.dataset(uri), pylance.dataset(uri)
        assert mine.schema == theirs.schema
        for columns in None, ["s"], ["l"], {"b": "s.b"}:
            assert mine.to_table(columns).to_pylist() == theirs.to_table(columns).to_pylist()
        assert mine.take([0, 2]).to_pylist() == theirs.take([0, 2]).to_pylist()
        assert sorted(mine.to_table(filter="s.b IS NULL")["id"].to_pylist()) == sorted(
            theirs.to_table(filter="s.b IS NULL")["id"].to_pylist()
        )
        return mine.to_table()["s"].to_pylist()

    pylance.dataset(uri).add_columns(pa.field("s", pa.struct([pa.field("b", pa.string())])))
    assert same()[1] is None
    pylance.dataset(uri).add_columns(pa.table({"s": [{"c": i} for i in range(4)]}).to_reader())
    assert same()[1] == {"a": None, "n": None, "b": None, "c": 1}
    pylance.dataset(uri).add_columns(pa.field("l", pa.list_(pa.struct([pa.field("r", pa.string())]))))
    same()
    part = pa.table({"id": [1], "s": [{"a": 7}]})
    pylance.dataset(uri).merge_insert("id").when_matched_update_all().execute(part)
    assert {"a": 7, "n": None, "b": None, "c": 1} in same()
    ours.dataset(uri).delete("id = 0")
    same()
    ours.dataset(uri).optimize.compact_files()
    same()
    pylance.dataset(uri).drop_columns(["s.a"])
    same()


def _with_new_field(lance: Any) -> Any:
    @lance.batch_udf(output_schema=pa.schema([("s", pa.struct([("b", pa.int64())]))]))
    def struct(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"s": pa.StructArray.from_arrays([batch["id"]], ["b"])})

    return struct


def _merge_new_field(ds: ours.LanceDataset) -> None:
    merged = [fragment.merge_columns(_with_new_field(ours), ["id"]) for fragment in ds.get_fragments()]
    operation = ours.LanceOperation.Merge([fragment for fragment, _ in merged], merged[0][1])
    ours.LanceDataset.commit(ds, operation, read_version=ds.version)


NEW_FIELDS: dict[str, Any] = {
    "null": lambda ds: ds.add_columns(pa.field("s", pa.struct([("b", pa.int64())]))),
    "null, deep": lambda ds: ds.add_columns(
        pa.schema([("s", pa.struct([("n", pa.struct([("y", pa.int64())])), ("b", pa.int64())])), ("z", pa.int8())])
    ),
    "null, in a list": lambda ds: ds.add_columns(
        pa.schema([("l", pa.list_(pa.struct([("r", pa.string())]))), ("s", pa.struct([("b", pa.int64())]))])
    ),
    "rows": lambda ds: ds.add_columns(pa.table({"s": [{"b": 1}, None, {"b": 3}, {"b": 4}]}).to_reader()),
    "function": lambda ds: ds.add_columns(_with_new_field(ours), read_columns=["id"]),
    "fragments": _merge_new_field,
}


@pytest.mark.parametrize("kind", NEW_FIELDS)
def test_fields_are_added_to_structs(kind: str, tmp_path: Path) -> None:
    uri, structs = str(tmp_path / "t"), [{"a": 1, "n": {"x": 1}}, None, {"a": None, "n": None}, {"a": 4, "n": None}]
    rows = pa.table({"id": range(4), "s": structs, "l": [[{"q": 1}], None, [], [{"q": 4}, None]]})
    ours.write_dataset(rows, uri, max_rows_per_file=3)
    NEW_FIELDS[kind](ours.dataset(uri))
    for step in None, lambda ds: ds.insert(ds.to_table()), lambda ds: ds.optimize.compact_files():
        for side in (ours, pylance) if step else ():
            step(side.dataset(uri))
        mine, theirs = ours.dataset(uri), pylance.dataset(uri)
        assert mine.schema == theirs.schema
        assert mine.to_table().to_pylist() == theirs.to_table().to_pylist()
        assert mine.to_table(["id"], filter="s.b > 0") == theirs.to_table(["id"], filter="s.b > 0")
    added = {"null": None, "null, deep": None, "null, in a list": None, "rows": 3}.get(kind, 2)
    assert ours.dataset(uri).take([2])["s"].to_pylist()[0]["b"] == added
    assert [f.code for f in trilake.verify(uri).findings] == []


def test_fields_that_cannot_be_added_to_structs(tmp_path: Path) -> None:
    rows = pa.table({"s": [{"a": 1}], "l": [[{"q": 1}]]})
    ds = ours.write_dataset(rows, tmp_path / "t")
    for field, message in (
        (pa.field("s", pa.struct([("a", pa.string())])), "column 's.a' already exists"),
        (pa.field("s", pa.string()), "column 's' already exists"),
        (pa.field("s", pa.struct([pa.field("b", pa.string(), nullable=False)])), "must be nullable"),
    ):
        with pytest.raises(trilake.errors.InvalidArgumentError, match=message):
            ds.add_columns(field)
    with pytest.raises(trilake.errors.InvalidArgumentError, match="only be added without values"):
        ds.add_columns(pa.table({"l": [[{"r": 1}]]}).to_reader())
    old = ours.write_dataset(rows, tmp_path / "old", data_storage_version="2.1")
    with pytest.raises(trilake.errors.InvalidArgumentError, match="column 's' already exists"):
        old.add_columns(pa.field("s", pa.struct([("b", pa.int64())])))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_fields_of_structs_are_cast_as_by_pylance(version: str, tmp_path: Path) -> None:
    structs = [{"a": 1, "n": {"x": 1, "y": "p"}}, None, {"a": None, "n": None}, {"a": 3, "n": {"x": None, "y": None}}]
    rows = pa.table({"id": range(4), "s": structs})
    casts = [{"path": "s.a", "name": "b", "data_type": pa.int32()}, {"path": "s.n.x", "data_type": pa.int16()}]
    for name, side in SIDES.items():
        side.write_dataset(rows, tmp_path / name, max_rows_per_file=3, data_storage_version=version)
        side.dataset(tmp_path / name).alter_columns(*casts)
    pylance.dataset(tmp_path / "trilake").delete("id = 0")
    ours.dataset(tmp_path / "pylance").delete("id = 0")
    for compacted in (False, True):
        found = []
        for name, side in SIDES.items():
            if compacted:
                side.dataset(tmp_path / name).optimize.compact_files()
            found += [reader.dataset(tmp_path / name).to_table() for reader in SIDES.values()]
        assert all(table.schema == found[0].schema for table in found)
        assert found[0].schema.field("s").type.field(0) == pa.field("b", pa.int32())
        assert all(table.to_pylist() == found[0].to_pylist() for table in found)
    assert [f.code for f in trilake.verify(tmp_path / "trilake").findings] == []


def test_casts_of_fields_that_fail(tmp_path: Path) -> None:
    ds = ours.write_dataset(pa.table({"s": [{"a": "x"}], "l": [[{"q": 1}]]}), tmp_path / "t")
    with pytest.raises(trilake.errors.SchemaMismatchError, match="cannot be cast"):
        ds.alter_columns({"path": "s.a", "data_type": pa.int32()})
    with pytest.raises(trilake.errors.InvalidArgumentError, match="only columns and fields of structs"):
        ds.alter_columns({"path": "l.q", "data_type": pa.int32()})
    old = ours.write_dataset(pa.table({"s": [{"a": 1}]}), tmp_path / "old", data_storage_version="2.0")
    with pytest.raises(trilake.errors.InvalidArgumentError, match=r"version 2\.0"):
        old.alter_columns({"path": "s.a", "data_type": pa.int32()})


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("actions", ["update and insert", "update", "insert"])
def test_merges_of_partial_structs_equal_those_of_pylance(actions: str, is_indexed: bool, tmp_path: Path) -> None:
    old = [{"a": 1, "b": "x", "n": {"p": 1, "q": 2}}, None, {"a": None, "b": "z", "n": None}, {"a": 4}]
    only_a, deep = pa.struct([("a", pa.int64())]), pa.struct([("n", pa.struct([("p", pa.int64())]))])
    sources = [
        pa.table(
            {"id": [0, 1, 2, 9], "s": pa.array([{"a": 10}, {"a": 11}, None, {"a": 19}], only_a), "t": ["new"] * 4}
        ),
        pa.table({"id": [0, 1, 9], "s": pa.array([None, None, {"a": 19}], only_a)}),
        pa.table(
            {"id": [0, 1, 2], "s": pa.array([{"n": {"p": 5}}, {"n": None}, {"n": {"p": 6}}], deep), "t": ["n"] * 3}
        ),
    ]
    for number, source in enumerate(sources):
        found = []
        for name, side in SIDES.items():
            uri = tmp_path / f"{name}-{number}"
            ds = side.write_dataset(pa.table({"id": range(4), "s": old, "t": ["t"] * 4}), uri, max_rows_per_file=3)
            if is_indexed:
                ds.create_scalar_index("id", "BTREE")
            builder = ds.merge_insert("id")
            builder = builder.when_matched_update_all() if "update" in actions else builder
            builder = builder.when_not_matched_insert_all() if "insert" in actions else builder
            builder.execute(source)
            found += [reader.dataset(uri).to_table().sort_by("id").to_pylist() for reader in SIDES.values()]
        assert all(rows == found[0] for rows in found)


@pytest.mark.parametrize("side", SIDES)
def test_blobs_of_either_class_are_merged(side: str, tmp_path: Path) -> None:
    """Both libraries define Arrow's extension type; Arrow registers that of the one imported first."""

    def rows(ids: list[int]) -> pa.Table:
        fields = [pa.field("id", pa.int64()), SIDES[side].blob_field("b"), pa.field("s", pa.string())]
        return pa.table([ids, SIDES[side].blob_array([b"%d" % i for i in ids]), ["s"] * len(ids)], pa.schema(fields))

    ds = ours.write_dataset(rows([1, 2]), tmp_path / "t")
    ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows([2, 3]))
    ds.merge_insert("id").when_matched_update_all().execute(rows([1]).select(["id", "b"]))
    assert sorted(blob.read() for blob in ds.take_blobs("b", indices=[0, 1, 2])) == [b"1", b"2", b"3"]
