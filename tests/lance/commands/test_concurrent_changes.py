"""Concurrent commits and tags during an operation: the operation sees them or retries."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import trilake
from trilake import lance
from trilake.common.runtime import Runtime
from trilake.errors import ConflictError, UnknownOutcomeError, VersionNotFoundError
from trilake.lance import cleanup
from trilake.lance.commands.fragment_writer import write_fragments
from trilake.lance.file.errors import IndexExistsError, UnknownColumnError
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.versions import holds, transaction
from trilake.lance.versions.versions import list_versions


def new_dataset(uri: str, count: int = 4) -> LanceDataset:
    return lance.write_dataset(pa.table({"a": list(range(count))}), f"memory://meanwhile-{uri}", mode="overwrite")


def column(dataset: Any, name: str) -> list[Any]:
    found: list[Any] = dataset.to_table()[name].to_pylist()
    return sorted(found)


def test_insert_sees_concurrent_delete_of_its_key() -> None:
    ours = new_dataset("insert")
    lance.dataset(ours.uri).delete("a = 1")
    ours.merge_insert("a").when_not_matched_insert_all().execute(pa.table({"a": [1, 2]}))
    assert column(lance.dataset(ours.uri), "a") == [0, 1, 2, 3]


def test_merge_retries_until_its_timeout() -> None:
    ours = new_dataset("timeout")
    lance.dataset(ours.uri).delete("a = 1")
    merge = ours.merge_insert("a").when_not_matched_insert_all().when_matched_update_all()
    with pytest.raises(ConflictError):
        merge.retry_timeout(dt.timedelta(0)).execute(pa.table({"a": [1]}))
    with pytest.raises(TypeError, match="timedelta"):
        merge.retry_timeout(3)  # type: ignore[arg-type]
    merge.retry_timeout(dt.timedelta(hours=1)).execute(pa.table({"a": [1]}))
    assert column(lance.dataset(ours.uri), "a") == [0, 1, 2, 3]


def test_delete_after_concurrent_merge_insert() -> None:
    ours = new_dataset("delete")
    lance.dataset(ours.uri).merge_insert("a").when_not_matched_insert_all().execute(pa.table({"a": [1, 2]}))
    ours.delete("a = 1")
    assert column(lance.dataset(ours.uri), "a") == [0, 2, 3]


def test_index_of_a_concurrently_dropped_column_is_rejected() -> None:
    new_dataset("ids").add_columns({"b": "a"})
    ours, other = (lance.dataset("memory://meanwhile-ids") for _ in range(2))
    other.drop_columns(["b"])
    other.add_columns({"c": "a + 10"})
    with pytest.raises(UnknownColumnError, match="b not found"):
        ours.create_scalar_index("b", "BTREE")
    assert lance.dataset(ours.uri).list_indices() == []
    assert lance.dataset(ours.uri).to_table(filter="c = 12")["a"].to_pylist() == [2]
    assert lance.dataset(ours.uri).to_table(filter="c = 2").num_rows == 0


def test_concurrently_dropped_index_stays_dropped() -> None:
    new_dataset("indices").create_scalar_index("a", "BTREE")
    lance.write_dataset(pa.table({"a": [9]}), "memory://meanwhile-indices", mode="append")
    ours, other = (lance.dataset("memory://meanwhile-indices") for _ in range(2))
    other.drop_index("a_idx")
    ours.optimize.optimize_indices()
    assert lance.dataset(ours.uri).list_indices() == []
    assert lance.dataset(ours.uri).version == other.version  # nothing to do, so no new version


def test_index_name_taken_concurrently_is_rejected() -> None:
    """Both were acknowledged, and the later one silently removed the other."""
    new_dataset("names").add_columns({"b": "a + 10"})
    ours, other = (lance.dataset("memory://meanwhile-names") for _ in range(2))
    other.create_scalar_index("b", "BTREE", name="i")
    with pytest.raises(IndexExistsError, match="another column"):
        ours.create_scalar_index("a", "BTREE", name="i")
    assert [i["fields"] for i in lance.dataset(ours.uri).list_indices()] == [["b"]]


def test_index_on_concurrently_renamed_column_is_rejected() -> None:
    """The error said that the index name belonged to another column."""
    new_dataset("renamed")
    ours, other = (lance.dataset("memory://meanwhile-renamed") for _ in range(2))
    other.create_scalar_index("a", "BTREE")
    other.alter_columns({"path": "a", "name": "b"})
    with pytest.raises(UnknownColumnError, match="a not found"):
        ours.create_scalar_index("a", "BTREE")
    assert [i["fields"] for i in lance.dataset(ours.uri).list_indices()] == [["b"]]


@pytest.mark.parametrize("replace", [False, True])
def test_concurrent_index_is_replaced_only_with_replace(replace: bool) -> None:
    new_dataset("replaced")
    ours, other = (lance.dataset("memory://meanwhile-replaced") for _ in range(2))
    other.create_scalar_index("a", "BTREE")
    before = other.list_indices()[0]["uuid"]
    if replace:
        ours.create_scalar_index("a", "BTREE", replace=True)
    else:
        with pytest.raises(IndexExistsError, match="replace=True"):
            ours.create_scalar_index("a", "BTREE", replace=False)
    (index,) = lance.dataset(ours.uri).list_indices()
    assert (index["uuid"] == before) is not replace


def test_migration_sees_concurrent_changes() -> None:
    """The rows of the other commit were lost."""
    uri = "memory://meanwhile-migrated"
    ours = lance.write_dataset(pa.table({"a": [0, 1]}), uri, mode="overwrite", data_storage_version="legacy")
    lance.write_dataset(pa.table({"a": [2]}), uri, mode="append")
    ours.migrate()
    assert (ours.data_storage_version, column(lance.dataset(uri), "a")) == ("2.2", [0, 1, 2])


def test_base_path_is_added_after_a_concurrent_overwrite() -> None:
    ours = new_dataset("bases")
    lance.write_dataset(pa.table({"a": [7]}), ours.uri, mode="overwrite")
    ours.add_bases([lance.DatasetBasePath("memory://meanwhile-base", name="cold")])
    assert (list(ours.base_paths()), column(ours, "a")) == ([1], [7])


def test_cleanup_keeps_a_concurrently_tagged_version() -> None:
    ours = new_dataset("tags")
    lance.write_dataset(pa.table({"a": [7]}), ours.uri, mode="overwrite")
    original = cleanup.own_keys

    def tagged(*given: Any, **more: Any) -> Any:
        ours.tags.create("kept", ours.version)
        return original(*given, **more)

    with mock.patch.object(cleanup, "own_keys", tagged):
        done = lance.dataset(ours.uri).cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert done.old_versions == 0
    assert column(lance.dataset(ours.uri, "kept"), "a") == [0, 1, 2, 3]


def between(what: str, call: Any) -> Any:
    """A clean-up with another process between its last check and its deletion."""
    delete = cleanup._delete
    done: list[Any] = []

    def later(*given: Any) -> Any:
        if not done:
            done.append(what)
            call()
        return delete(*given)

    return mock.patch.object(cleanup, "_delete", later)


def old_and_new(uri: str) -> LanceDataset:
    ours = new_dataset(uri)
    lance.write_dataset(pa.table({"a": [7]}), ours.uri, mode="overwrite")
    return ours


@pytest.mark.parametrize("how", ["create", "update"])
def test_tag_after_the_last_cleanup_check_is_rejected(how: str) -> None:
    """The tag was acknowledged, and its version was removed."""
    ours = old_and_new(f"late-{how}")
    if how == "update":
        ours.tags.create("late", 2)
    rejected = []

    def tag() -> None:
        with pytest.raises(ConflictError, match="a cleanup is deleting version 1"):
            getattr(ours.tags, how)("late", 1)
        rejected.append(how)

    with between(how, tag):
        assert lance.dataset(ours.uri).cleanup_old_versions(dt.timedelta(0)).old_versions == 1
    assert rejected == [how]
    assert ours.tags.list().keys() == ({"late"} if how == "update" else set())
    assert column(lance.dataset(ours.uri, "late" if how == "update" else None), "a") == [7]
    with pytest.raises(VersionNotFoundError):
        ours.tags.create("later", 1)
    assert notices(ours) == []


def test_restore_after_the_last_cleanup_check_is_rejected() -> None:
    """The restore was acknowledged, and the newest version had lost its files."""
    ours = old_and_new("late-restore")

    def restore() -> None:
        with pytest.raises(ConflictError, match="a cleanup is deleting version 1"):
            lance.dataset(ours.uri, 1).restore()

    with between("restore", restore):
        lance.dataset(ours.uri).cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert column(lance.dataset(ours.uri), "a") == [7]
    assert notices(ours) == []


def notices(dataset: LanceDataset) -> list[str]:
    store = dataset.snapshot.store
    return [m.key for folder in (holds.HOLDS, holds.REMOVALS) for m in store.list(folder)]


def test_cleanup_keeps_held_versions_and_removes_stale_notes() -> None:
    ours = old_and_new("held")
    store, runtime = ours.snapshot.store, ours.snapshot.runtime
    with holds.hold(store, 1, runtime):
        assert ours.cleanup_old_versions(dt.timedelta(0)).old_versions == 0
    store.put(f"{holds.HOLDS}/x.json", b"damaged")  # counts for every version
    assert ours.cleanup_old_versions(dt.timedelta(0)).old_versions == 0
    holds.post(store, holds.REMOVALS, [1], runtime)  # of a clean-up that died
    with pytest.raises(ConflictError, match="run it again"), holds.hold(store, 1, runtime):
        pass
    assert len(notices(ours)) == 2
    assert cleaned_a_week_later(ours, 0).old_versions == 1
    assert notices(ours) == []


def test_hold_stays_after_an_unknown_outcome() -> None:
    ours = old_and_new("unknown")
    with pytest.raises(UnknownOutcomeError), holds.hold(ours.snapshot.store, 1, ours.snapshot.runtime):
        raise UnknownOutcomeError("the reply was lost")
    assert ours.cleanup_old_versions(dt.timedelta(0)).old_versions == 0
    assert cleaned_a_week_later(ours, 365 * 24 * 3600 * 1000).old_versions == 0
    assert notices(ours) == []


@pytest.mark.parametrize("whole", [True, False])
def test_version_damaged_by_cleanup_cannot_be_tagged(whole: bool) -> None:
    ours = old_and_new(f"harmed-{whole}")
    store = ours.snapshot.store
    holds.post(store, holds.REMOVALS, [1], ours.snapshot.runtime)  # of a clean-up that died
    if not whole:
        store.delete([f for f in cleanup.files_of(transaction.load(store, 1, list_versions(store))) if "data/" in f])
    year = 365 * 24 * 3600 * 1000
    assert cleaned_a_week_later(ours, year).old_versions == 0
    if whole:
        ours.tags.create("whole", 1)
        assert column(lance.dataset(ours.uri, "whole"), "a") == [0, 1, 2, 3]
    else:
        with pytest.raises(ConflictError, match="run it again"):
            ours.tags.create("harmed", 1)


def cleaned_a_week_later(dataset: LanceDataset, older_than_ms: int) -> cleanup.CleanupStats:
    runtime = dataset.snapshot.runtime
    week = Runtime(lambda: runtime.clock_ns() + holds.FORGOTTEN_MS * 1_000_000, runtime.new_id, runtime.sleep)
    with mock.patch.object(cleanup, "agreed_time", lambda _store, now_ms: now_ms):
        return cleanup.cleanup(dataset.snapshot.store, older_than_ms, week).stats


@pytest.mark.parametrize(
    ("mode", "seen"),
    [("append", [0, 1, 7]), ("ignore", [0, 1]), ("overwrite", [7])],
    ids=["append", "ignore", "overwrite"],
)
def test_first_write_races_with_another_writer(
    mode: str, seen: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*args: Any, **more: Any) -> Any:
        lance.write_dataset(pa.table({"a": [0, 1]}), tmp_path)
        return write_fragments(*args, **more)

    monkeypatch.setattr("trilake.lance.table.write_fragments", late)
    done = trilake.write(pa.table({"a": [7]}), tmp_path, format="lance", mode=mode)
    assert column(lance.dataset(tmp_path), "a") == seen
    assert done.rows_added == (mode != "ignore")
    # A write that adds nothing leaves no file.
    assert len(list((tmp_path / "data").iterdir())) == (1 if mode == "ignore" else 2)


@pytest.mark.parametrize("other", [{"b": [1]}, {"a": pa.array(["x"])}], ids=["columns", "types"])
def test_append_rejects_concurrent_dataset_with_other_columns(
    other: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*args: Any, **more: Any) -> Any:
        lance.write_dataset(pa.table(other), tmp_path)
        return write_fragments(*args, **more)

    monkeypatch.setattr("trilake.lance.table.write_fragments", late)
    with pytest.raises(ConflictError, match="with different columns or with dictionaries"):
        trilake.write(pa.table({"a": pa.array(["y"]).dictionary_encode()}), tmp_path, format="lance", mode="append")
    assert lance.dataset(tmp_path).version == 1
    assert len(list((tmp_path / "data").iterdir())) == 1
