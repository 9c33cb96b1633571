"""Maintenance of a dataset: compaction, versions and tags, clean-up, and distributed commits."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import lance as pylance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.fault_store import FaultStore
from tests.lance.small_datasets import ROWS, begun, numbers, rows_of
from tests.runtimes import runtime_in_ms
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import ClockError, ConflictError, InvalidArgumentError, VersionNotFoundError
from trilake.lance import Compaction, FragmentMetadata, LanceDataset, LanceFragment, LanceOperation
from trilake.lance.cleanup import cleanup
from trilake.lance.optimize import CompactionTask, RewriteResult

# --- maintenance ------------------------------------------------------------------------------------------------------


def test_compaction() -> None:
    ds = begun(max_rows_per_file=20)
    ds.delete("id % 10 = 3")
    before = rows_of(ds)
    metrics = ds.optimize.compact_files(target_rows_per_fragment=100, max_rows_per_group=50)
    assert (metrics.fragments_removed, metrics.files_removed) == (15, 30)
    assert metrics.fragments_added == len(ds.get_fragments()) == metrics.files_added
    assert rows_of(ds) == before
    assert ds.stats.dataset_stats()["num_deleted_rows"] == 0
    assert ds.snapshot.manifest.reader_feature_flags == 0
    version = ds.version
    assert ds.optimize.compact_files(target_rows_per_fragment=10).fragments_removed == 0
    assert ds.version == version
    with pytest.raises(InvalidArgumentError):
        ds.optimize.compact_files(target_rows_per_fragment=0)


@pytest.mark.parametrize(
    ("rows", "deleted", "target", "expected"),
    [
        ([1000] * 5, "", 2000, [2000, 3000]),
        ([300] * 10, "", 1000, [1200, 1800]),
        ([1000] * 4, "", 1500, [2000, 2000]),
        ([100, 900, 50, 1999, 100, 700, 700, 700], "", 2000, [3049, 2200]),
        ([800] * 6, "id % 16 = 0", 1600, [2250, 2250]),  # deleted rows do not count
        ([1000] * 3, "id % 16 = 0", 1000, [937, 938, 937]),  # not small: deleted rows are still in its files
        ([10007], "id % 2 = 0", 1000, [1001, 1001, 1001, 1000, 1000]),
        ([900, 900, 900, 900, 100, 5000, 100], "id % 3 = 0 and id > 4000", 1000, [1800, 1800, 1200, 1200, 1200]),
    ],
)
def test_rows_per_fragment_after_a_compaction(
    tmp_path: Path, rows: list[int], deleted: str, target: int, expected: list[int]
) -> None:
    ids = np.split(np.arange(sum(rows)), np.cumsum(rows)[:-1])
    for part in ids:
        lance.write_dataset(pa.table({"id": part}), tmp_path / "t", mode="append")
    if deleted:
        lance.dataset(tmp_path / "t").delete(deleted)
    shutil.copytree(tmp_path / "t", tmp_path / "peer")
    ds, peer = lance.dataset(tmp_path / "t"), pylance.dataset(tmp_path / "peer")
    before = ds.to_table()
    for one in (ds, peer):
        one.optimize.compact_files(target_rows_per_fragment=target)
        assert [f.count_rows() for f in one.get_fragments()] == expected
    assert [f.fragment_id for f in ds.get_fragments()] == [f.fragment_id for f in peer.get_fragments()]
    assert ds.to_table().equals(before)
    assert pylance.dataset(tmp_path / "t").to_table().equals(before)


def test_distributed_compaction() -> None:
    ds = begun(max_rows_per_file=20)
    plan = Compaction.plan(ds, {"target_rows_per_fragment": 60})
    assert plan.num_tasks() > 1
    results = [CompactionTask.from_json(t.json()).execute(ds) for t in plan.tasks]
    metrics = Compaction.commit(ds, [RewriteResult.from_json(r.json()) for r in results])
    assert metrics.fragments_added == len(ds.get_fragments())
    assert rows_of(ds) == ROWS.to_pylist()
    for bad in ("", "[]", "{}"):
        with pytest.raises(InvalidArgumentError):
            CompactionTask.from_json(bad)
    with pytest.raises(InvalidArgumentError, match="unknown compaction option"):
        Compaction.plan(ds, {"what": 1})


def test_compaction_conflicts_with_delete() -> None:
    ds = begun(max_rows_per_file=20)
    other = lance.dataset(ds.uri)
    results = [t.execute(ds) for t in Compaction.plan(ds).tasks]
    other.delete("id = 5")
    with pytest.raises(ConflictError, match="same fragments"):
        Compaction.commit(ds, results)
    assert lance.dataset(ds.uri).count_rows() == 299


def test_restore_and_tags() -> None:
    ds = begun()
    ds.delete("id > 10")
    ds.tags.create("small", 2)
    old = ds.checkout_version(1)
    old.restore()
    assert (old.version, rows_of(old)) == (3, ROWS.to_pylist())
    assert ds.tags.list()["small"]["version"] == 2
    assert ds.tags.get_version("small") == 2
    assert lance.dataset(ds.uri, "small").count_rows() == 11
    assert ds.checkout_version("small").version == 2
    ds.tags.update("small", 3)
    assert ds.tags.get_version("small") == 3
    with pytest.raises(VersionNotFoundError):
        ds.tags.create("other", 99)
    ds.tags.delete("small")
    assert ds.tags.list() == {}


def test_cleanup() -> None:
    ds = begun()
    ds.delete("id < 150")
    ds.optimize.compact_files()
    assert ds.version == 4
    assert ds.cleanup_old_versions().old_versions == 0
    ds.tags.create("keep", 1)
    with pytest.raises(OSError, match="has the tag 'keep'"):
        ds.cleanup_old_versions(dt.timedelta(0))
    done = ds.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False)
    assert (done.old_versions, [v["version"] for v in ds.versions()]) == (2, [1, 4])
    assert done.bytes_removed > 0
    assert ds.checkout_version(1).to_table().equals(ROWS)
    ds.tags.delete("keep")
    ds.cleanup_old_versions(dt.timedelta(0))
    store = ds.snapshot.store
    assert len(list(store.list("data"))) == len(ds.get_fragments()) == 1
    assert not list(store.list("_deletions"))
    assert len(list(store.list("_versions"))) == 1
    ds.validate()
    store.put("data/stranger.lance", b"x")
    ds.cleanup_old_versions(dt.timedelta(0))
    assert store.head("data/stranger.lance").size == 1
    ds.cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert len(list(store.list("data"))) == 1
    assert ds.count_rows() == 150


def test_version_restored_during_cleanup_keeps_its_files() -> None:
    ds = begun()
    lance.write_dataset(ROWS.slice(0, 5), ds.uri, mode="overwrite")
    old = lance.dataset(ds.uri, version=1)
    looked: list[str] = []

    def restore(op: str, key: str) -> None:
        """At the first search for nested tables, the last step before files are deleted."""
        if op == "list" and key.startswith("data/"):
            looked.append(key)
            if len(looked) == 1:
                old.restore()

    cleanup(FaultStore(ds.snapshot.store, before=restore), 0, SYSTEM_RUNTIME)
    assert len(looked) > 1
    newest = lance.dataset(ds.uri)
    assert newest.version == 3
    assert newest.to_table().equals(ROWS)


def test_clock_ahead_of_the_store_cleans_up_nothing() -> None:
    ds = begun()
    ds.delete("id < 150")
    store = ds.snapshot.store
    before = [o.key for o in store.list()]
    ahead = runtime_in_ms(lambda: SYSTEM_RUNTIME.clock_ms() + 40 * 24 * 3_600_000)
    with pytest.raises(ClockError, match="ahead of the store's"):
        cleanup(store, 7 * 24 * 3_600_000, ahead)
    assert [o.key for o in store.list()] == before


# --- distributed commits ----------------------------------------------------------------------------------------------


def test_distributed_writes() -> None:
    uri = f"memory://lance-commands-{next(numbers)}"
    parts = [LanceFragment.create(uri, ROWS.slice(i, 100)) for i in (0, 100)]
    assert [p.id for p in parts] == [0, 0]
    ds = LanceDataset.commit(uri, LanceOperation.Overwrite(ROWS.schema, parts))
    assert (ds.version, [f.fragment_id for f in ds.get_fragments()]) == (1, [0, 1])
    more = [FragmentMetadata.from_json(__import__("json").dumps(LanceFragment.create(uri, ROWS.slice(200)).to_json()))]
    ds = LanceDataset.commit(uri, LanceOperation.Append(more), ds.version)
    assert rows_of(ds) == ROWS.to_pylist()
    files = lance.write_fragments(ROWS, uri, max_rows_per_file=100)
    assert len(files) == 3
    with pytest.raises(InvalidArgumentError, match="read_version"):
        LanceDataset.commit(uri, LanceOperation.Append(files))
    with pytest.raises(TypeError):
        LanceOperation.Append(["x"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        LanceOperation.Overwrite("x", files)  # type: ignore[arg-type]


def test_distributed_deletes_and_columns() -> None:
    ds = begun()
    updated, removed = [], []
    for fragment in ds.get_fragments():
        left = fragment.delete("id < 150")
        if left is None:
            removed.append(fragment.fragment_id)
        else:
            updated.append(left)
    operation = LanceOperation.Delete(updated, removed, "id < 150")
    ds = LanceDataset.commit(ds.uri, operation, ds.version)
    assert [r["id"] for r in rows_of(ds)] == list(range(150, 300))
    wide = [
        f.add_columns(lambda b: pa.record_batch({"n": pc.multiply(b["id"], 2)}), ["id"]) for f in ds.get_fragments()
    ]
    schema = ds.schema.append(pa.field("n", pa.int64()))
    ds = LanceDataset.commit(ds.uri, LanceOperation.Merge(wide, schema), ds.version)
    assert ds.to_table()["n"].to_pylist() == [2 * i for i in range(150, 300)]
    joined = [f.merge(pa.table({"id": [200], "m": ["x"]}), "id") for f in ds.get_fragments()]
    ds = LanceDataset.commit(ds.uri, LanceOperation.Merge([j[0] for j in joined], joined[0][1]), ds.version)
    assert [r["id"] for r in rows_of(ds) if r["m"]] == [200]
    assert LanceDataset.commit(ds.uri, LanceOperation.Restore(1)).count_rows() == 300
    with pytest.raises(ConflictError):
        LanceDataset.commit(ds.uri, operation, 1)
