"""API added to pylance after 0.8.19: write options and results."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, TableExistsError
from trilake.lance import LanceDataset, LanceFragment, LanceOperation, write_fragments
from trilake.lance.versions.versions import TAGS

ROWS = pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]})


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2)


@pytest.fixture
def first(tmp_path: Path) -> LanceDataset:
    """A dataset of the legacy format."""
    return lance.write_dataset(
        ROWS, tmp_path / "t", max_rows_per_file=2, max_rows_per_group=2, data_storage_version="legacy"
    )


@pytest.mark.parametrize(
    "option",
    [
        {"data_storage_version": "legacy"},
        {"data_storage_version": "0.1"},
        {"data_storage_version": None, "use_legacy_format": True},
        {"enable_v2_manifest_paths": False, "enable_stable_row_ids": False},
    ],
)
def test_legacy_format_can_be_requested(first: LanceDataset, option: dict[str, Any]) -> None:
    lance.write_dataset(ROWS, first, mode="append", **option)
    first.checkout_latest()
    first.insert(ROWS, **option)
    parts = [LanceFragment.create(first, ROWS, **option), *write_fragments(ROWS, first, **option)]
    assert LanceDataset.commit(first, LanceOperation.Append(parts), first.version).count_rows() == 20


def test_dataset_keeps_its_format(tmp_path: Path) -> None:
    first = lance.write_dataset(ROWS, tmp_path / "first", data_storage_version="legacy")
    for option in ({"data_storage_version": "2.0"}, {"data_storage_version": "stable"}, {"use_legacy_format": False}):
        lance.write_dataset(ROWS, first.uri, mode="append", **option)
        lance.dataset(first.uri).insert(ROWS, **option)
        (fragment,) = write_fragments(ROWS, first.uri, **option)
        assert fragment.files[0].file_major_version == 2
        newest = lance.dataset(first.uri)
        with pytest.raises(OSError, match="the same version"):
            LanceDataset.commit(newest, LanceOperation.Append([fragment]), read_version=newest.version)
    newest = lance.dataset(first.uri)
    assert {file.file_major_version for f in newest.get_fragments() for file in f.data_files()} == {0}
    assert (newest.version, newest.data_storage_version) == (7, "0.1")


def test_unknown_options_are_rejected(dataset: LanceDataset) -> None:
    with pytest.raises(TypeError, match="write_dataset has no option 'max_rows'"):
        lance.write_dataset(ROWS, dataset.uri, mode="append", max_rows=3)
    with pytest.raises(TypeError, match="write_fragments has no option 'max_bases'"):
        write_fragments(ROWS, dataset.uri, max_bases=["a"])
    with pytest.raises(InvalidArgumentError, match="different storage_options"):
        LanceDataset.commit(dataset, LanceOperation.Append([]), 1, storage_options={"region": "x"})


def test_changes_return_row_counts(dataset: LanceDataset) -> None:
    assert dataset.update({"name": "'z'"}, where="id > 1") == {"num_rows_updated": 3}
    assert dataset.update({"name": "'y'"}) == {"num_rows_updated": 4}
    assert dataset.delete("id IN (2, 3)") == {"num_deleted_rows": 2}
    assert dataset.delete("id = 2") == {"num_deleted_rows": 0}
    other = lance.dataset(dataset.uri)
    dataset.insert(ROWS)
    assert other.delete("id = 1") == {"num_deleted_rows": 2}  # on the newest version, which has two
    assert (
        dataset.merge_insert("id").when_matched_delete().use_index(False).execute([{"id": 4}])["num_deleted_rows"] == 2
    )


def test_merge_insert_matches_by_the_primary_key(dataset: LanceDataset) -> None:
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key, pa.field("n", pa.int64())])
    ds = lance.write_dataset(pa.table({"id": [1, 2], "n": [1, 2]}, schema=schema), "memory://merge-by-primary-key")
    news = pa.table({"id": [2, 3], "n": [20, 30]}, schema=schema)
    done = ds.merge_insert().when_matched_update_all().when_not_matched_insert_all().execute(news)
    assert (done["num_updated_rows"], done["num_inserted_rows"], ds.count_rows()) == (1, 1, 3)
    with pytest.raises(InvalidArgumentError, match="no primary key"):
        dataset.merge_insert()


def test_python_rows_and_columns(dataset: LanceDataset) -> None:
    dataset.insert([{"id": 5, "name": "e"}, {"name": "f", "id": 6}])
    dataset.insert({"id": [7], "name": ["g"]})
    assert dataset.to_table(filter="id > 4").to_pydict() == {"id": [5, 6, 7], "name": ["e", "f", "g"]}
    vectors = pa.schema([pa.field("v", pa.list_(pa.float32(), 2))])
    new = lance.write_dataset([{"v": [1, 2]}], "memory://later-rows", vectors, mode="overwrite")
    assert (new.schema, new.to_table().to_pylist()) == (vectors, [{"v": [1.0, 2.0]}])
    later: list[dict[str, Any]] = [{"a": "x"}, {"a": "y", "n": 1}]
    with pytest.raises(OSError, match="null would be lost"):
        lance.write_dataset(later, "memory://later-keys", mode="overwrite", data_storage_version="legacy")
    new = lance.write_dataset(later, "memory://later-keys", mode="overwrite")
    assert new.to_table()["n"].to_pylist() == [None, 1]


def test_tags_keep_creation_time_and_metadata(dataset: LanceDataset) -> None:
    dataset.tags.create("old")
    dataset.delete("id = 1")
    dataset.tags.create("new")
    dataset.tags.create("again", 1)
    dataset.tags.replace_metadata("old", {"owner": "sales"})
    dataset.tags.update("old", 2)
    old = dataset.tags.list()["old"]
    assert (old["version"], old["metadata"], old["branch"]) == (2, {"owner": "sales"}, None)
    assert isinstance(old["created_at"], dt.datetime)
    assert old["created_at"].tzinfo is not None
    assert old["created_at"] < old["updated_at"]
    assert [name for name, _ in dataset.tags.list_ordered()] == ["new", "old", "again"]
    assert [name for name, _ in dataset.tags.list_ordered("asc")] == ["again", "new", "old"]
    with pytest.raises(InvalidArgumentError, match="asc or desc"):
        dataset.tags.list_ordered("up")
    with pytest.raises(TypeError, match="metadata"):
        dataset.tags.replace_metadata("old", {"n": 1})
    with pytest.raises(ValueError, match="does not exist"):
        dataset.tags.replace_metadata("none", {})
    store = dataset.snapshot.store
    store.put(f"{TAGS}/old.json", orjson.dumps({"version": 1, "createdAt": "soon", "metadata": 3, "later": [1]}))
    dataset.tags.update("old", 2)
    assert dataset.tags.list()["old"]["created_at"] is None
    assert orjson.loads(store.read(f"{TAGS}/old.json").to_pybytes())["later"] == [1]


def test_cleanup_retains_the_given_number_of_versions(dataset: LanceDataset) -> None:
    for i in range(4):
        dataset.delete(f"id = {i}")

    def left() -> list[int]:
        return [v["version"] for v in dataset.versions()]

    assert dataset.cleanup_old_versions(dt.timedelta(days=1), 2).old_versions == 0
    plan = dataset.explain_cleanup_old_versions(retain_versions=4, include_files=True)
    assert [file.kind for file in plan.candidate_files] == ["transaction file", "manifest"]
    short = dataset.explain_cleanup_old_versions(retain_versions=4, include_files=True, max_files=1)
    assert (len(short.candidate_files), short.candidate_files_truncated) == (1, True)
    assert (len(left()), plan.stats.transaction_files_removed) == (5, 1)
    assert dataset.cleanup_old_versions(retain_versions=4) == plan.stats
    assert left() == [2, 3, 4, 5]
    assert dataset.cleanup_old_versions(retain_versions=9).old_versions == 0
    dataset.tags.create("kept", 2)
    assert dataset.cleanup_old_versions(dt.timedelta(0), 2, error_if_tagged_old_versions=False).old_versions == 1
    assert left() == [2, 4, 5]
    assert [dataset.checkout_version(v).count_rows() for v in left()] == [4, 2, 1]
    for wrong in (0, -1, 1.0, True):
        with pytest.raises(InvalidArgumentError, match="retain_versions"):
            dataset.cleanup_old_versions(retain_versions=wrong)  # type: ignore[arg-type]


def test_none_stands_for_the_default(tmp_path: Path) -> None:
    sizes = dict.fromkeys(["max_rows_per_file", "max_rows_per_group", "max_bytes_per_file"])
    dataset = lance.write_dataset(ROWS, tmp_path / "t", mode=None, **sizes)
    assert (len(dataset.get_fragments()), dataset.count_rows()) == (1, 4)
    with pytest.raises(TableExistsError):
        lance.write_dataset(ROWS, tmp_path / "t", mode=None)
    dataset.insert(ROWS, **sizes)
    assert dataset.count_rows() == 8
    (fragment,) = write_fragments(ROWS, tmp_path / "new", mode=None, **sizes)
    assert fragment.physical_rows == 4
    assert LanceFragment.create(tmp_path / "new", ROWS, max_rows_per_group=None, mode=None).physical_rows == 4
