"""``Transaction``: the operation of each version, and an operation with its read version."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import ConflictError, InvalidArgumentError, VersionNotFoundError
from trilake.lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from trilake.lance.dataset import Index
from trilake.lance.fragment import write_fragments

ROWS = pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]})


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2, max_rows_per_group=2)


def test_each_version_has_its_transaction(dataset: LanceDataset) -> None:
    dataset.insert(ROWS)
    dataset.delete("id = 1")
    dataset.update({"name": "'z'"}, where="id = 2")
    dataset.add_columns({"twice": "id * 2"})
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    dataset.checkout_version(2).restore()
    dataset.checkout_latest()
    kinds = [type(t.operation).__name__ for t in dataset.get_transactions(99) if t is not None]
    assert kinds[:2] == ["Restore", "Rewrite"]
    assert kinds[-6:] == ["CreateIndex", "Merge", "Update", "Delete", "Append", "Overwrite"]
    assert len(kinds) == dataset.version
    assert [type(t.operation).__name__ for t in dataset.get_transactions(1) if t is not None] == ["Restore"]
    assert dataset.checkout_version(2).get_transactions() == dataset.get_transactions(99)[-2:]
    deleted = dataset.read_transaction(3)
    assert deleted is not None
    assert deleted.read_version == 2
    assert isinstance(deleted.operation, LanceOperation.Delete)
    assert deleted.operation.predicate == "id = 1"
    assert [f.id for f in deleted.operation.updated_fragments] == [0, 2]
    first = dataset.read_transaction(1)
    assert first is not None
    assert isinstance(first.operation, LanceOperation.Overwrite)
    assert first.operation.new_schema.names == ["id", "name"]
    with pytest.raises(VersionNotFoundError):
        dataset.read_transaction(99)
    dataset.drop_columns(["name"])
    dropped = dataset.read_transaction(dataset.version)
    assert dropped is not None
    assert isinstance(dropped.operation, LanceOperation.Project)
    assert dropped.operation.schema.to_pyarrow().names == dataset.schema.names


def test_unknown_fragment_attributes_are_rejected(dataset: LanceDataset) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dataset.get_fragments()[0].nothing  # noqa: B018


def test_removed_transaction_is_none(tmp_path: Path) -> None:
    dataset = lance.write_dataset(ROWS, tmp_path / "first", data_storage_version="legacy")
    for file in (Path(dataset.uri) / "_transactions").iterdir():
        file.unlink()
    assert dataset.get_transactions() == [None]


def test_current_manifest_contains_its_transaction(dataset: LanceDataset) -> None:
    for file in (Path(dataset.uri) / "_transactions").iterdir():
        file.unlink()
    assert [type(t.operation).__name__ for t in dataset.get_transactions() if t] == ["Overwrite"]


def test_transaction_is_committed_with_its_version(dataset: LanceDataset) -> None:
    fragment = LanceFragment.create(dataset.uri, ROWS)
    append = Transaction(1, LanceOperation.Append([fragment]), "5d7b0c1e-0000-4000-8000-00000000000a")
    done = LanceDataset.commit(dataset.uri, append)
    assert (done.version, done.count_rows()) == (2, 8)
    read = done.read_transaction(2)
    assert read is not None
    assert (read.uuid, read.read_version) == (append.uuid, 1)
    gone = Transaction(2, LanceOperation.Delete([], [0], "id < 3"))
    late = Transaction(2, LanceOperation.Delete([], [0], "id < 2"))
    LanceDataset.commit(dataset.uri, gone)
    with pytest.raises(ConflictError, match="change the same fragments"):
        LanceDataset.commit(dataset.uri, late)
    with pytest.raises(InvalidArgumentError, match="read_version is 3"):
        LanceDataset.commit(dataset.uri, append, 3)
    committed = LanceDataset.commit(dataset.uri, Transaction(3, append.operation, transaction_properties={"note": "x"}))
    read = committed.read_transaction(committed.version)
    assert read is not None
    assert read.transaction_properties == {"note": "x"}


def test_index_transaction_can_be_recommitted(dataset: LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    read = dataset.read_transaction(2)
    assert read is not None
    assert isinstance(read.operation, LanceOperation.CreateIndex)
    (index,) = read.operation.new_indices
    assert (index.name, index.fields, index.fragment_ids) == ("id_idx", [0], {0, 1})
    dataset.drop_index("id_idx")
    back = LanceDataset.commit(dataset.uri, LanceOperation.CreateIndex([Index(**vars(index))], []), dataset.version)
    assert "query=[id = 3]@id_idx" in back.scanner(filter="id = 3").explain_plan()
    assert back.to_table(filter="id = 3")["name"].to_pylist() == ["c"]


def test_rewrite_is_committed_as_an_operation(dataset: LanceDataset) -> None:
    dataset.optimize.compact_files()
    read = dataset.read_transaction(dataset.version)
    assert read is not None
    assert isinstance(read.operation, LanceOperation.Rewrite)
    (group,) = read.operation.groups
    assert [f.id for f in group.old_fragments] == [0, 1]
    older = dataset.checkout_version(1)
    older.restore()
    again = LanceDataset.commit(dataset.uri, LanceOperation.Rewrite(read.operation.groups, []), older.version)
    assert (len(again.get_fragments()), again.to_table().equals(ROWS)) == (1, True)


def test_conflicts_are_retried_up_to_the_limit(dataset: LanceDataset) -> None:
    stale = lance.dataset(dataset.uri)
    dataset.delete("id = 1")
    with pytest.raises(ConflictError):
        stale.delete("id = 2", conflict_retries=0)
    with pytest.raises(ConflictError):
        stale.update({"name": "'x'"}, where="id = 2", conflict_retries=0)
    with pytest.raises(ConflictError):
        stale.delete("id = 2", retry_timeout=dt.timedelta(0))
    assert stale.update({"name": "'x'"}, where="id = 2", conflict_retries=1) == {"num_rows_updated": 1}
    for options in ({"conflict_retries": "3"}, {"retry_timeout": 3}, {"conflict_retries": -1}):
        with pytest.raises((TypeError, InvalidArgumentError)):
            stale.delete("id = 2", **options)
        with pytest.raises((TypeError, InvalidArgumentError)):
            stale.update({"id": "1"}, **options)


def test_fragment_rows_are_deleted_by_offset(dataset: LanceDataset) -> None:
    dataset.delete("id = 3")
    first, second = dataset.get_fragments()
    kept = first.delete_rows([1])
    assert kept is not None
    assert kept.id == 0
    assert second.delete_rows(iter([1])) is None
    assert second.delete_rows([]) == second.delete_rows([0]) == second.metadata
    with pytest.raises(InvalidArgumentError, match="2 rows"):
        first.delete_rows([2])
    done = LanceDataset.commit(dataset.uri, LanceOperation.Delete([kept], [1], "by place"), dataset.version)
    assert done.to_table().to_pydict() == {"id": [1], "name": ["a"]}


def test_indices_are_described() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.random.default_rng(1).random(600 * 8, np.float32)), 8)
    ds = lance.write_dataset(
        pa.table({"id": range(600), "v": vectors}), "memory://described", mode="overwrite", max_rows_per_file=512
    )
    ds.create_scalar_index("id", "BTREE")
    ds = ds.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    ds.insert(pa.table({"id": [1000], "v": vectors[:1]}))
    found = {i.name: i for i in ds.describe_indices()}
    assert {n: (i.index_type, i.field_names, i.num_rows_indexed) for n, i in found.items()} == {
        "id_idx": ("BTree", ["id"], 600),
        "v_idx": ("IVF_PQ", ["v"], 600),
    }
    assert found["v_idx"].type_url.endswith("VectorIndexDetails")
    assert [s.fragment_ids for s in found["id_idx"].segments] == [frozenset({0, 1})]
    centres = ds.centroids(column="v")
    assert (len(centres), centres.type.list_size) == (2, 8)
    assert ds.centroids(index_name="v_idx").equals(centres)
    for name in ("id_idx", None):
        with pytest.raises(KeyError):
            ds.centroids(index_name=name, column="id")
    with pytest.raises(InvalidArgumentError, match="index_name"):
        ds.centroids()
    opened = lance.dataset(ds.uri)
    opened.prewarm_index("v_idx")
    opened.prewarm_index("id_idx")
    assert opened.stats.index_stats("v_idx")["index_cache_entry_count"] == 4
    with pytest.raises(KeyError, match="nothing"):
        opened.prewarm_index("nothing")


def test_appends_are_committed_together(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    parts = [write_fragments(pa.table({"a": [i]}), ds.uri, return_transaction=True) for i in (2, 3)]
    ds.insert(pa.table({"a": [9]}))
    done = LanceDataset.commit_batch(ds.uri, parts)
    assert done["dataset"].version == 3
    assert done["dataset"].to_table()["a"].to_pylist() == [1, 9, 2, 3]
    assert (done["merged"].read_version, len(done["merged"].operation.fragments)) == (1, 2)
    gone = Transaction(1, LanceOperation.Restore(1))
    for wrong, message in (([gone], "Restore"), ([], "nothing to commit"), ([parts[0].operation], "Transaction")):
        with pytest.raises(InvalidArgumentError, match=message):
            LanceDataset.commit_batch(ds.uri, wrong)


def appended(base: LanceDataset, value: int, read_version: int, **options: Any) -> LanceDataset:
    fragment = LanceFragment.create(base.uri, pa.table({"x": [value]}))
    return LanceDataset.commit(base.uri, LanceOperation.Append([fragment]), read_version, **options)


def test_fragments_of_several_file_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ours = lance.write_dataset(pa.table({"x": [0]}), uri, data_storage_version="2.0")
    for value, version in enumerate(("2.1", "2.2", "2.0"), 1):
        fragment = LanceFragment.create(uri, pa.table({"x": [value]}), data_storage_version=version)
        ours = LanceDataset.commit(uri, LanceOperation.Append([fragment]), ours.version)
        manifest = ours.snapshot.manifest
        assert (manifest.reader_feature_flags, manifest.writer_feature_flags) == (256, 256)  # as pylance 14 writes them
    theirs = pylance.dataset(uri)
    assert theirs.to_table() == ours.to_table() == pa.table({"x": [0, 1, 2, 3]})
    assert theirs.data_storage_version == ours.data_storage_version == "2.0"
    theirs.delete("x = 1")
    ours = lance.dataset(uri)
    ours.optimize.compact_files()
    assert pylance.dataset(uri).to_table()["x"].to_pylist() == [0, 2, 3]
    legacy = LanceFragment.create(uri, pa.table({"x": [9]}), data_storage_version="legacy")
    with pytest.raises(OSError, match=r"same version, got 0\.1 and 2\.0"):
        LanceDataset.commit(uri, LanceOperation.Append([legacy]), ours.version)


def test_detached_versions(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"x": [0]}), tmp_path / "t")
    detached = appended(dataset, 1, dataset.version, detached=True)
    number = detached.version
    assert number >> 63 == 1
    assert (dataset.latest_version, detached.latest_version) == (1, 1)
    assert lance.dataset(dataset.uri).to_table()["x"].to_pylist() == [0]
    assert appended(dataset, 2, 1).to_table()["x"].to_pylist() == [0, 2]
    assert dataset.checkout_version(number).to_table()["x"].to_pylist() == [0, 1]
    second = appended(dataset, 3, number, detached=True)
    assert second.to_table()["x"].to_pylist() == [0, 1, 3]
    assert appended(dataset, 4, 1, detached=True).to_table()["x"].to_pylist() == [0, 2, 4]  # on the newest version
    assert pylance.dataset(dataset.uri, version=second.version).to_table()["x"].to_pylist() == [0, 1, 3]
    fragment = pylance.LanceFragment.create(dataset.uri, pa.table({"x": [5]}))
    of_peer = pylance.LanceDataset.commit(dataset.uri, pylance.LanceOperation.Append([fragment]), number, detached=True)
    assert lance.dataset(dataset.uri, version=of_peer.version).to_table()["x"].to_pylist() == [0, 1, 5]
    assert [v["version"] for v in second.versions()] == [1, 2]
    with pytest.raises(ValueError, match="is detached"):
        appended(dataset, 6, number)
    with pytest.raises(ValueError, match="is detached"):
        lance.dataset(dataset.uri, version=number).delete("x = 1")


def test_cleanup_keeps_files_of_detached_versions(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"x": [0]}), tmp_path / "t")
    number = appended(dataset, 1, 1, detached=True).version
    lance.write_dataset(pa.table({"x": [9]}), tmp_path / "t", mode="overwrite")
    done = lance.dataset(dataset.uri).cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert done.old_versions == 1
    detached = lance.dataset(dataset.uri, version=number)
    assert detached.to_table()["x"].to_pylist() == [0, 1]
    detached.restore()
    assert (detached.version, detached.to_table()["x"].to_pylist()) == (3, [0, 1])
    LanceDataset.drop(dataset.uri)
    assert not (tmp_path / "t").exists() or not list((tmp_path / "t").rglob("*.manifest"))


def test_invalid_detached_commits_are_rejected(tmp_path: Path) -> None:
    old = lance.write_dataset(pa.table({"x": [0]}), tmp_path / "v1", enable_v2_manifest_paths=False)
    with pytest.raises(OSError, match="need manifests of the v2"):
        appended(old, 1, 1, detached=True)
    dataset = lance.write_dataset(pa.table({"x": [0]}), tmp_path / "v2")
    with pytest.raises(OSError, match="cannot be restored"):
        LanceDataset.commit(dataset, LanceOperation.Restore(1), detached=True)
    begun = LanceOperation.Overwrite(dataset.schema, [])
    with pytest.raises(OSError, match="cannot create"):
        LanceDataset.commit(tmp_path / "none", begun, detached=True)
    lance.dataset(dataset.uri).delete("x = 0")
    removal = LanceOperation.Delete([], [0], "x = 0")
    with pytest.raises(ConflictError):
        LanceDataset.commit(dataset, removal, 1, detached=True)
