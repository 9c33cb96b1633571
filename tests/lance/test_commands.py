"""Commands that change a dataset: writes, deletes, updates, merges, columns, compaction, clean-up, commits of jobs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.runtimes import runtime_in_ms
from trilake import lance
from trilake.errors import (
    ClockError,
    ConflictError,
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    VersionNotFoundError,
)
from trilake.lance import Compaction, FragmentMetadata, LanceDataset, LanceFragment, LanceOperation
from trilake.lance.cleanup import cleanup
from trilake.lance.commands import update
from trilake.lance.optimize import CompactionTask, RewriteResult
from trilake.runtime import SYSTEM_RUNTIME
from trilake.storage.faults import FaultStore

ROWS = pa.table({"id": pa.array(range(300), pa.int64()), "t": [f"t{i % 7}" for i in range(300)]})
_count = iter(range(10**6))


def begun(rows: pa.Table = ROWS, **more: Any) -> LanceDataset:
    uri = f"memory://lance-commands-{next(_count)}"
    return lance.write_dataset(rows, uri, **{"max_rows_per_file": 100, "max_rows_per_group": 20, **more})


def rows_of(ds: LanceDataset) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.to_table().to_pylist()
    return found


# --- writing ---------------------------------------------------------------------------------------------------------


def test_modes() -> None:
    ds = begun()
    assert (ds.version, ds.count_rows()) == (1, 300)
    with pytest.raises(TableExistsError) as caught:
        lance.write_dataset(ROWS, ds.uri)
    assert isinstance(caught.value, OSError)
    assert lance.write_dataset(ROWS, ds.uri, mode="append").count_rows() == 600
    other = lance.write_dataset(pa.table({"z": [1.5]}), ds.uri, mode="overwrite")
    assert (other.version, rows_of(other)) == (3, [{"z": 1.5}])
    assert rows_of(ds) == ROWS.to_pylist()
    with pytest.raises(InvalidArgumentError):
        lance.write_dataset(ROWS, ds.uri, mode="upsert")  # type: ignore[arg-type]
    assert lance.write_dataset(ROWS, f"{ds.uri}-new", mode="append").version == 1
    assert lance.write_dataset(ROWS, f"{ds.uri}-newer", mode="overwrite").version == 1


def test_files_are_cut_behind_row_groups() -> None:
    sizes = [f.physical_rows for f in begun(max_rows_per_file=90, max_rows_per_group=40).get_fragments()]
    assert sizes == [120, 120, 60]
    ds = begun(ROWS.slice(0, 0))
    assert (ds.get_fragments(), ds.count_rows(), ds.schema) == ([], 0, ROWS.schema)
    for bad in ({"max_rows_per_file": 0}, {"max_rows_per_group": -1}, {"nulls": "no"}):
        with pytest.raises(InvalidArgumentError):
            begun(**bad)


def test_what_can_be_written(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int32()})
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int32())})
    table = pa.Table.from_batches([batch])
    sources: list[Any] = [
        table,
        batch,
        table.to_reader(),
        pa.dataset.dataset(table),
        pa.dataset.dataset(table).scanner(),
        pd.DataFrame({"id": pd.array([1, 2], dtype="int32")}),
        begun(table),
    ]
    for i, source in enumerate(sources):
        assert rows_of(lance.write_dataset(source, tmp_path / str(i))) == [{"id": 1}, {"id": 2}]
    again = lance.write_dataset(iter([pa.record_batch({"id": [1, 2]})]), tmp_path / "iter", schema)
    assert again.schema == schema
    with pytest.raises(InvalidArgumentError, match="Must provide schema"):
        lance.write_dataset(iter([batch]), tmp_path / "x")
    with pytest.raises(InvalidArgumentError, match="Unknown data type"):
        lance.write_dataset(5, tmp_path / "x")
    with pytest.raises(OSError, match="does not match the expected schema"):
        lance.write_dataset(iter([pa.record_batch({"id": ["a"]})]), tmp_path / "x", schema)
    assert not (tmp_path / "x" / "_versions").exists()


def test_appended_rows_must_fit() -> None:
    ds = begun()
    for bad in (
        pa.table({"id": [1]}),
        pa.table({"id": [1], "t": ["a"], "u": [1]}),
        pa.table({"id": ["x"], "t": ["a"]}),
        pa.table({"id": [1.5], "t": ["a"]}),
    ):
        with pytest.raises(SchemaMismatchError) as caught:
            lance.write_dataset(bad, ds.uri, mode="append")
        assert isinstance(caught.value, OSError)
    made = lance.write_dataset(pa.table({"t": ["a"], "id": pa.array([1], pa.int8())}), ds.uri, mode="append")
    assert rows_of(made)[-1] == {"id": 1, "t": "a"}
    keys = [m.key for m in ds.snapshot.store.list("data")]
    assert len(keys) == 4  # what the failed writes began is gone


def test_dictionaries_of_all_batches_are_one() -> None:
    def part(*values: str) -> pa.RecordBatch:
        return pa.record_batch({"d": pa.array(values).dictionary_encode()})

    schema = part("a").schema
    parts = [part("a", "b"), part("c", "a"), part("b", "d", "c")]
    ds = begun(pa.Table.from_batches(parts, schema), max_rows_per_group=2, max_rows_per_file=2)
    assert [r["d"] for r in rows_of(ds)] == list("abcabdc")
    assert len(ds.get_fragments()) == 4
    more = lance.write_dataset(pa.Table.from_batches([part("d", "a")]), ds.uri, mode="append")
    assert [r["d"] for r in rows_of(more)] == list("abcabdcda")
    with pytest.raises(SchemaMismatchError, match="dictionary"):
        lance.write_dataset(pa.Table.from_batches([part("e")]), ds.uri, mode="append")


def test_a_dataset_with_a_dictionary_begins_with_rows() -> None:
    rows = pa.table({"d": pa.array(["a", "b"]).dictionary_encode()})
    for begin in (
        lambda: begun(rows.slice(0, 0)),
        lambda: LanceDataset.commit("memory://dictionary", lance.LanceOperation.Overwrite(rows.schema, [])),
    ):
        with pytest.raises(InvalidArgumentError, match="values of a dictionary"):
            begin()


def test_progress_is_told() -> None:
    class Progress:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def begin(self, fragment: FragmentMetadata) -> None:
            self.seen.append("begin")

        def complete(self, fragment: FragmentMetadata) -> None:
            assert fragment.data_files()[0].field_ids() == [0, 1]
            self.seen.append("complete")

    progress = Progress()
    begun(progress=progress)
    assert progress.seen == ["begin", "complete"] * 3


def test_a_write_that_fails_leaves_nothing() -> None:
    def batches() -> Any:
        yield ROWS.to_batches()[0]
        raise RuntimeError("the source broke")

    store_uri = f"memory://lance-broken-{next(_count)}"
    with pytest.raises(RuntimeError):
        lance.write_dataset(batches(), store_uri, ROWS.schema, max_rows_per_file=20, max_rows_per_group=20)
    from trilake.storage import open_store

    assert list(open_store(store_uri).list()) == []


# --- rows ------------------------------------------------------------------------------------------------------------


def test_delete() -> None:
    ds = begun()
    ds.delete("id < 120 AND t = 't3'")
    assert rows_of(ds) == [r for r in ROWS.to_pylist() if not (r["id"] < 120 and r["t"] == "t3")]
    ds.delete(pc.field("id") < 150)
    assert [f.fragment_id for f in ds.get_fragments()] == [1, 2]
    assert ds.count_rows() == 150
    ds.delete("false")
    assert (ds.version, ds.count_rows()) == (4, 150)
    ds.delete("true")
    assert (ds.get_fragments(), ds.count_rows()) == ([], 0)
    assert rows_of(lance.write_dataset(ROWS.slice(0, 1), ds.uri, mode="append")) == ROWS.slice(0, 1).to_pylist()


def test_update() -> None:
    ds = begun()
    assert ds.update({"t": "concat(t, '-', id)"}, "id >= 295") is None  # type: ignore[func-returns-value]
    expected = {r["id"]: r["t"] for r in ROWS.to_pylist()} | {i: f"t{i % 7}-{i}" for i in range(295, 300)}
    assert {r["id"]: r["t"] for r in rows_of(ds)} == expected
    assert update.update(ds.snapshot, {"id": "id + 1000"}).num_rows_updated == 300
    ds.checkout_latest()
    assert sorted(r["id"] for r in rows_of(ds)) == list(range(1000, 1300))
    assert update.update(ds.snapshot, {"id": "0"}, "id < 0").num_rows_updated == 0
    for bad in ({"nope": "1"}, {}, {"id": 5}):
        with pytest.raises(InvalidArgumentError):
            ds.update(bad)  # type: ignore[arg-type]
    with pytest.raises(ExpressionError):
        ds.update({"id": "nope"})
    with pytest.raises(SchemaMismatchError):
        ds.update({"id": "t"})


def test_stale_handles_delete_and_update_what_is_there_now() -> None:
    ds = begun()
    stale = lance.dataset(ds.uri)
    lance.write_dataset(pa.table({"id": [1000], "t": ["x"]}), ds.uri, mode="append")
    stale.delete("id >= 299")
    assert stale.count_rows() == 299
    again = lance.dataset(ds.uri, 1)
    again.update({"t": "'new'"}, "id = 0")
    assert [r for r in rows_of(again) if r["t"] == "new"] == [{"id": 0, "t": "new"}]


MERGE = pa.table({"id": pa.array([5, 6, 900], pa.int64()), "t": ["five", "six", "nine hundred"]})


def test_two_merges_of_one_new_key_insert_it_once() -> None:
    ds = begun()
    first, second = lance.dataset(ds.uri), lance.dataset(ds.uri)
    for number, handle in enumerate((first, second)):
        rows = pa.table({"id": pa.array([1000], pa.int64()), "t": [f"w{number}"]})
        handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
    assert lance.dataset(ds.uri).to_table(filter="id = 1000").to_pylist() == [{"id": 1000, "t": "w1"}]


def test_a_delete_by_an_old_handle_takes_rows_that_an_update_moved_meanwhile() -> None:
    ds = begun()
    old = lance.dataset(ds.uri)
    lance.dataset(ds.uri).update({"t": "'gone'"}, "id = 250")
    old.delete("t = 'gone' or id = 5")
    assert lance.dataset(ds.uri).count_rows() == 298


def test_merge_insert() -> None:
    ds = begun()
    done = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(MERGE)
    assert done == {"num_inserted_rows": 1, "num_updated_rows": 2, "num_deleted_rows": 0}
    found = {r["id"]: r["t"] for r in rows_of(ds)}
    assert (len(found), found[5], found[900], found[7]) == (301, "five", "nine hundred", "t0")
    done = ds.merge_insert(["id"]).when_not_matched_insert_all().execute(MERGE)
    assert done == {"num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 0}
    builder = ds.merge_insert("id").when_matched_update_all("source.id > 5 AND target.t = 'six'")
    changed = MERGE.set_column(1, "t", pa.array(["a", "b", "c"]))
    assert builder.execute(changed)["num_updated_rows"] == 1
    assert {r["id"]: r["t"] for r in rows_of(ds)}[6] == "b"
    done = ds.merge_insert("id").when_matched_delete().execute(MERGE)
    assert (done["num_deleted_rows"], ds.count_rows()) == (3, 298)
    done = ds.merge_insert("id").when_not_matched_by_source_delete("id < 100").execute(ROWS.slice(0, 50))
    assert done["num_deleted_rows"] == 50
    done = ds.merge_insert("id").when_not_matched_by_source_delete().execute(ROWS.slice(0, 10))
    assert sorted(r["id"] for r in rows_of(ds)) == [i for i in range(10) if i not in (5, 6)]


def test_a_merge_insert_whose_condition_no_row_meets() -> None:
    ds = begun()
    done = ds.merge_insert("id").when_matched_update_all("source.id > 1000").execute(MERGE)
    assert done == {"num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 0}
    done = ds.merge_insert("id").when_not_matched_by_source_delete("id > 1000").execute(MERGE)
    assert done["num_deleted_rows"] == 0
    assert rows_of(ds) == ROWS.to_pylist()


def test_merge_inserts_that_are_refused() -> None:
    ds = begun()
    twice = pa.concat_tables([MERGE, MERGE])
    with pytest.raises(InvalidArgumentError, match="several rows"):
        ds.merge_insert("id").when_matched_update_all().execute(twice)
    with pytest.raises(InvalidArgumentError, match="2 rows match"):
        ds.merge_insert("id").when_matched_fail().when_not_matched_insert_all().execute(MERGE)
    with pytest.raises(InvalidArgumentError, match="does nothing"):
        ds.merge_insert("id").execute(MERGE)
    with pytest.raises(InvalidArgumentError, match="no column 'nope'"):
        ds.merge_insert("nope")
    with pytest.raises(SchemaMismatchError):
        ds.merge_insert("id").when_not_matched_insert_all().execute(MERGE.drop_columns(["id"]))
    assert (ds.latest_version, len(list(ds.snapshot.store.list("data")))) == (1, 3)


def test_null_keys_match_nothing() -> None:
    ds = begun(pa.table({"k": ["a", None, "b"], "n": ["1", "2", "3"]}))
    source = pa.table({"k": pa.array([None, "a"]), "n": ["x", "y"]})
    done = ds.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(source)
    assert done == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}


# --- columns ---------------------------------------------------------------------------------------------------------


def test_merge_columns() -> None:
    ds = begun()
    ds.delete("id % 2 = 1")
    ds.merge(
        pa.table({"key": pa.array(range(0, 300, 4), pa.int32()), "w": [f"w{i}" for i in range(0, 300, 4)]}), "id", "key"
    )
    assert [(r["id"], r["w"]) for r in rows_of(ds)] == [(i, f"w{i}" if i % 4 == 0 else None) for i in range(0, 300, 2)]
    assert all(len(f.data_files()) == 2 for f in ds.get_fragments())
    with pytest.raises(InvalidArgumentError, match="already"):
        ds.merge(pa.table({"id": [1], "w": ["x"]}), "id")
    with pytest.raises(InvalidArgumentError, match="join on"):
        ds.merge(pa.table({"z": [1]}), "z")


def test_add_columns_of_every_kind() -> None:
    ds = begun()
    ds.delete("id < 50 OR id BETWEEN 100 AND 119")
    ids = [r["id"] for r in rows_of(ds)]
    ds.add_columns({"double": "id * 2", "upper": "upper(t)"})
    ds.add_columns(lambda b: pa.record_batch({"udf": pc.add(b["id"], 1)}), read_columns=["id"])
    ds.add_columns(pa.table({"feed": range(len(ids))}))
    ds.add_columns([pa.field("empty", pa.int64())])
    found = ds.to_table()
    assert found["double"].to_pylist() == [2 * i for i in ids]
    assert found["udf"].to_pylist() == [i + 1 for i in ids]
    assert found["feed"].to_pylist() == list(range(len(ids)))
    assert found["empty"].null_count == len(ids)
    assert ds.count_rows("empty IS NULL") == len(ids)
    assert ds.count_rows("double = 500 AND feed > 0") == 1
    with pytest.raises(SchemaMismatchError, match="fewer new values"):
        ds.add_columns(pa.table({"short": [1]}))
    with pytest.raises(SchemaMismatchError, match="new values"):
        ds.add_columns(lambda b: pa.record_batch({"bad": pa.array([1])}), read_columns=["id"], reader_schema=None)
    with pytest.raises(InvalidArgumentError, match="already"):
        ds.add_columns({"udf": "1"})
    with pytest.raises(ExpressionError):
        ds.add_columns({"bad": "nope + 1"})


def test_a_column_of_no_file_stays_null_through_compaction() -> None:
    ds = begun()
    ds.add_columns(pa.schema({"empty": pa.int64()}))
    ds.optimize.compact_files()
    assert len(ds.get_fragments()) == 1
    assert ds.to_table()["empty"].null_count == 300


def test_drop_and_alter() -> None:
    rows = ROWS.append_column("s", pa.array([{"a": i, "b": str(i)} for i in range(300)]))
    ds = begun(rows)
    ds.drop_columns(["s.a"])
    assert ds.schema.field("s").type == pa.struct({"b": pa.string()})
    ds.alter_columns({"path": "t", "name": "text"}, {"path": "s.b", "name": "c"})
    assert rows_of(ds)[1] == {"id": 1, "text": "t1", "s": {"c": "1"}}
    ds.alter_columns({"path": "id", "data_type": pa.int32()})
    assert ds.schema.field("id").type == pa.int32()
    assert [r["id"] for r in rows_of(ds)] == list(range(300))
    ds.drop_columns(["id"])
    made = lance.write_dataset(ds.to_table(), ds.uri, mode="append")
    assert made.to_table()["text"].to_pylist() == ROWS["t"].to_pylist() * 2
    ds = lance.dataset(ds.uri)
    ds.alter_columns({"path": "text", "nullable": False})
    assert not ds.schema.field("text").nullable
    for bad in ({"path": "nope"}, {"name": "x"}, {"path": "text", "other": 1}, {"path": "text", "name": "s"}):
        with pytest.raises(InvalidArgumentError):
            ds.alter_columns(bad)
    with pytest.raises(SchemaMismatchError):
        ds.alter_columns({"path": "text", "data_type": pa.int64()})
    with pytest.raises(InvalidArgumentError, match="must keep a column"):
        ds.drop_columns(["text", "s"])


def test_a_name_that_comes_back_is_another_column() -> None:
    ds = begun()
    ds.drop_columns(["t"])
    ds.add_columns({"t": "'new'"})
    assert {r["t"] for r in rows_of(ds)} == {"new"}
    assert [f.data_files()[-1].field_ids() for f in ds.get_fragments()] == [[2]] * 3


# --- upkeep ----------------------------------------------------------------------------------------------------------


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


def test_compaction_in_parts() -> None:
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
    with pytest.raises(InvalidArgumentError, match="Invalid compaction option"):
        Compaction.plan(ds, {"what": 1})


def test_compaction_against_a_delete() -> None:
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
    with pytest.raises(OSError, match="tagged 'keep'"):
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


def test_a_version_that_is_restored_while_clean_up_looks_around_keeps_its_files() -> None:
    ds = begun()
    lance.write_dataset(ROWS.slice(0, 5), ds.uri, mode="overwrite")
    old = lance.dataset(ds.uri, version=1)
    looked: list[str] = []

    def restore(op: str, key: str) -> None:
        """At the first look for other tables below the dataset, which is what comes last before files go."""
        if op == "list" and key.startswith("data/"):
            looked.append(key)
            if len(looked) == 1:
                old.restore()

    cleanup(FaultStore(ds.snapshot.store, before=restore), 0, SYSTEM_RUNTIME)
    assert len(looked) > 1
    newest = lance.dataset(ds.uri)
    assert newest.version == 3
    assert newest.to_table().equals(ROWS)


def test_a_clock_ahead_of_the_stores_cleans_up_nothing() -> None:
    ds = begun()
    ds.delete("id < 150")
    store = ds.snapshot.store
    before = [o.key for o in store.list()]
    ahead = runtime_in_ms(lambda: SYSTEM_RUNTIME.clock_ms() + 40 * 24 * 3_600_000)
    with pytest.raises(ClockError, match="ahead of the store's"):
        cleanup(store, 7 * 24 * 3_600_000, ahead)
    assert [o.key for o in store.list()] == before


# --- distributed commits ---------------------------------------------------------------------------------------------


def test_distributed_writes() -> None:
    uri = f"memory://lance-commands-{next(_count)}"
    parts = [LanceFragment.create(uri, ROWS.slice(i, 100)) for i in (0, 100)]
    assert [p.id for p in parts] == [0, 0]
    ds = LanceDataset.commit(uri, LanceOperation.Overwrite(ROWS.schema, parts))
    assert (ds.version, [f.fragment_id for f in ds.get_fragments()]) == (1, [0, 1])
    more = [FragmentMetadata.from_json(__import__("json").dumps(LanceFragment.create(uri, ROWS.slice(200)).to_json()))]
    ds = LanceDataset.commit(uri, LanceOperation.Append(more), ds.version)
    assert rows_of(ds) == ROWS.to_pylist()
    files = lance.write_fragments(ROWS, uri, max_rows_per_file=100, max_rows_per_group=50)
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


# --- fields of structs -----------------------------------------------------------------------------------------------

PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])


def nested(struct: pa.DataType, value: dict[str, Any]) -> pa.Table:
    columns = {"s": pa.array([value], struct), "l": pa.array([[value]], pa.list_(struct))}
    return pa.table({"id": pa.array([1], pa.int64()), **columns})


def append(ds: LanceDataset, rows: pa.Table) -> None:
    lance.write_dataset(rows.drop_columns(["id"]).add_column(0, "id", pa.array([2])), ds.uri, mode="append")


def append_batches(ds: LanceDataset, rows: pa.Table) -> None:
    ids = rows.drop_columns(["id"]).add_column(0, "id", pa.array([2]))
    lance.write_dataset(ids.to_batches(), ds.uri, mode="append", schema=ds.schema)


def merge(ds: LanceDataset, rows: pa.Table) -> None:
    ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def set_column(ds: LanceDataset, rows: pa.Table) -> None:
    other = begun(rows.rename_columns({"s": "s2", "l": "l2"}).append_column("s", ds.to_table()["s"]))
    other = lance.write_dataset(
        other.to_table().append_column("l", ds.to_table()["l"]), f"{ds.uri}-wide", mode="overwrite"
    )
    other.update({"s": "s2", "l": "l2"})
    merge(ds, other.to_table().select(["id", "s", "l"]))


CHANGES = pytest.mark.parametrize("change", [append, append_batches, merge, set_column])


@CHANGES
def test_fields_of_structs_are_matched_by_name(change: Any) -> None:
    ds = begun(nested(PAIR, {"a": 1, "b": "x"}))
    change(ds, nested(pa.struct([("b", pa.string()), ("a", pa.int64())]), {"a": 5, "b": "q"}))
    found = rows_of(lance.dataset(ds.uri))[-1]
    assert (found["s"], found["l"]) == ({"a": 5, "b": "q"}, [{"a": 5, "b": "q"}])


@CHANGES
@pytest.mark.parametrize("column", ["s", "l"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": 5, "b": "q", "z": 9}, "has a field z, which the column has not"),
        ({"a": 5, "B": "q"}, "has a field B, which the column has not"),
        ({"a": 5}, "has no field b, which the column has"),
    ],
)
def test_structs_with_other_fields_are_refused(change: Any, column: str, value: dict[str, Any], problem: str) -> None:
    old = nested(PAIR, {"a": 1, "b": "x"})
    ds = begun(old, nulls="zero")
    struct = pa.struct([(n, pa.string() if n in "bB" else pa.int64()) for n in value])
    rows = old.set_column(old.schema.get_field_index(column), column, nested(struct, value)[column])
    with pytest.raises(SchemaMismatchError, match=rf"the struct for column {column}.* {problem}"):
        change(ds, rows)
    assert rows_of(lance.dataset(ds.uri)) == old.to_pylist()
