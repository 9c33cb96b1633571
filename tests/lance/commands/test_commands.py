"""Commands that change a dataset: writes, deletes, updates, merges, columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.lance.small_datasets import ROWS, begun, numbers, rows_of
from trilake import lance
from trilake.errors import ExpressionError, InvalidArgumentError, SchemaMismatchError, TableExistsError
from trilake.lance import FragmentMetadata, LanceDataset
from trilake.lance.commands import update

# --- writing ----------------------------------------------------------------------------------------------------------


def test_write_modes() -> None:
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


def test_file_names_spread_over_store_partitions() -> None:
    names = {f.path for fragment in begun().get_fragments() for f in fragment.data_files()}
    assert names
    assert all(re.fullmatch(r"[01]{24}[0-9a-f]{26}\.lance", name) for name in names)


def test_files_are_split_at_row_group_ends() -> None:
    sizes = [
        f.physical_rows
        for f in begun(max_rows_per_file=90, max_rows_per_group=40, data_storage_version="legacy").get_fragments()
    ]
    assert sizes == [120, 120, 60]
    sizes = [f.physical_rows for f in begun(max_rows_per_file=90).get_fragments()]
    assert sizes == [90, 90, 90, 30]
    ds = begun(ROWS.slice(0, 0))
    assert (ds.get_fragments(), ds.count_rows(), ds.schema) == ([], 0, ROWS.schema)
    for bad in ({"max_rows_per_file": 0}, {"max_rows_per_group": -1}, {"nulls": "no"}):
        with pytest.raises(InvalidArgumentError):
            begun(**bad)


def test_write_accepts_every_source(tmp_path: Path) -> None:
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


def test_append_requires_a_matching_schema() -> None:
    ds = begun()
    for bad in (
        pa.table({"id": [1], "t": ["a"], "u": [1]}),
        pa.table({"id": ["x"], "t": ["a"]}),
        pa.table({"id": [1.5], "t": ["a"]}),
    ):
        with pytest.raises(SchemaMismatchError) as caught:
            lance.write_dataset(bad, ds.uri, mode="append")
        assert isinstance(caught.value, OSError)
    dataset = lance.write_dataset(pa.table({"t": ["a"], "id": pa.array([1], pa.int8())}), ds.uri, mode="append")
    assert rows_of(dataset)[-1] == {"id": 1, "t": "a"}
    keys = [m.key for m in ds.snapshot.store.list("data")]
    assert len(keys) == 4  # failed writes leave no files
    fewer = lance.write_dataset(pa.table({"id": [7]}), ds.uri, mode="append")  # files of 2.x may lack columns
    assert rows_of(fewer)[-1] == {"id": 7, "t": None}


def test_batch_dictionaries_are_merged() -> None:
    def part(*values: str) -> pa.RecordBatch:
        return pa.record_batch({"d": pa.array(values).dictionary_encode()})

    schema = part("a").schema
    parts = [part("a", "b"), part("c", "a"), part("b", "d", "c")]
    ds = begun(
        pa.Table.from_batches(parts, schema), max_rows_per_group=2, max_rows_per_file=2, data_storage_version="legacy"
    )
    assert [r["d"] for r in rows_of(ds)] == list("abcabdc")
    assert len(ds.get_fragments()) == 4
    more = lance.write_dataset(pa.Table.from_batches([part("d", "a")]), ds.uri, mode="append")
    assert [r["d"] for r in rows_of(more)] == list("abcabdcda")
    with pytest.raises(SchemaMismatchError, match="dictionary"):
        lance.write_dataset(pa.Table.from_batches([part("e")]), ds.uri, mode="append")


def test_legacy_dictionary_column_needs_rows() -> None:
    rows = pa.table({"d": pa.array(["a", "b"]).dictionary_encode()})
    for begin in (
        lambda: begun(rows.slice(0, 0), data_storage_version="legacy"),
        lambda: LanceDataset.commit(
            "memory://dictionary", lance.LanceOperation.Overwrite(rows.schema, []), data_storage_version="legacy"
        ),
    ):
        with pytest.raises(InvalidArgumentError, match="values of a dictionary"):
            begin()


def test_write_reports_progress() -> None:
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


def test_failed_write_leaves_no_files() -> None:
    def batches() -> Any:
        yield ROWS.to_batches()[0]
        raise RuntimeError("the source broke")

    store_uri = f"memory://lance-broken-{next(numbers)}"
    with pytest.raises(RuntimeError):
        lance.write_dataset(batches(), store_uri, ROWS.schema, max_rows_per_file=20, max_rows_per_group=20)
    from trilake.storage import open_store

    assert list(open_store(store_uri).list()) == []


# --- rows -------------------------------------------------------------------------------------------------------------


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
    assert ds.update({"t": "concat(t, '-', id)"}, "id >= 295") == {"num_rows_updated": 5}
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


def test_stale_handle_changes_the_newest_version() -> None:
    ds = begun()
    stale = lance.dataset(ds.uri)
    lance.write_dataset(pa.table({"id": [1000], "t": ["x"]}), ds.uri, mode="append")
    stale.delete("id >= 299")
    assert stale.count_rows() == 299
    again = lance.dataset(ds.uri, 1)
    again.update({"t": "'new'"}, "id = 0")
    assert [r for r in rows_of(again) if r["t"] == "new"] == [{"id": 0, "t": "new"}]


MERGE = pa.table({"id": pa.array([5, 6, 900], pa.int64()), "t": ["five", "six", "nine hundred"]})


def test_two_merges_insert_a_new_key_once() -> None:
    ds = begun()
    first, second = lance.dataset(ds.uri), lance.dataset(ds.uri)
    for number, handle in enumerate((first, second)):
        rows = pa.table({"id": pa.array([1000], pa.int64()), "t": [f"w{number}"]})
        handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
    assert lance.dataset(ds.uri).to_table(filter="id = 1000").to_pylist() == [{"id": 1000, "t": "w1"}]


def test_stale_delete_removes_rows_moved_by_update() -> None:
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


def test_merge_insert_condition_without_matches() -> None:
    ds = begun()
    done = ds.merge_insert("id").when_matched_update_all("source.id > 1000").execute(MERGE)
    assert done == {"num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 0}
    done = ds.merge_insert("id").when_not_matched_by_source_delete("id > 1000").execute(MERGE)
    assert done["num_deleted_rows"] == 0
    assert rows_of(ds) == ROWS.to_pylist()


def test_invalid_merge_insert_is_rejected() -> None:
    ds = begun()
    twice = pa.concat_tables([MERGE, MERGE])
    with pytest.raises(InvalidArgumentError, match="several source rows"):
        ds.merge_insert("id").when_matched_update_all().execute(twice)
    with pytest.raises(InvalidArgumentError, match="2 rows match"):
        ds.merge_insert("id").when_matched_fail().when_not_matched_insert_all().execute(MERGE)
    with pytest.raises(InvalidArgumentError, match="has no actions"):
        ds.merge_insert("id").execute(MERGE)
    with pytest.raises(InvalidArgumentError, match="key column 'nope' not found"):
        ds.merge_insert("nope")
    with pytest.raises(SchemaMismatchError):
        ds.merge_insert("id").when_not_matched_insert_all().execute(MERGE.drop_columns(["id"]))
    assert (ds.latest_version, len(list(ds.snapshot.store.list("data")))) == (1, 3)


def test_null_keys_never_match() -> None:
    ds = begun(pa.table({"k": ["a", None, "b"], "n": ["1", "2", "3"]}))
    source = pa.table({"k": pa.array([None, "a"]), "n": ["x", "y"]})
    done = ds.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(source)
    assert done == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}


# --- columns ----------------------------------------------------------------------------------------------------------


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
    with pytest.raises(InvalidArgumentError, match="join column"):
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
    with pytest.raises(SchemaMismatchError, match="ended before producing values"):
        ds.add_columns(pa.table({"short": [1]}))
    with pytest.raises(SchemaMismatchError, match="new values"):
        ds.add_columns(lambda b: pa.record_batch({"bad": pa.array([1])}), read_columns=["id"], reader_schema=None)
    with pytest.raises(InvalidArgumentError, match="already"):
        ds.add_columns({"udf": "1"})
    with pytest.raises(ExpressionError):
        ds.add_columns({"bad": "nope + 1"})


def test_compaction_keeps_column_without_files_null() -> None:
    ds = begun()
    ds.add_columns(pa.schema({"empty": pa.int64()}))
    ds.optimize.compact_files()
    assert len(ds.get_fragments()) == 1
    assert ds.to_table()["empty"].null_count == 300


def test_drop_and_alter_columns() -> None:
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
    dataset = lance.write_dataset(ds.to_table(), ds.uri, mode="append")
    assert dataset.to_table()["text"].to_pylist() == ROWS["t"].to_pylist() * 2
    ds = lance.dataset(ds.uri)
    ds.alter_columns({"path": "text", "nullable": False})
    assert not ds.schema.field("text").nullable
    for bad in ({"path": "nope"}, {"name": "x"}, {"path": "text", "other": 1}, {"path": "text", "name": "s"}):
        with pytest.raises(InvalidArgumentError):
            ds.alter_columns(bad)
    with pytest.raises(SchemaMismatchError):
        ds.alter_columns({"path": "text", "data_type": pa.int64()})
    with pytest.raises(InvalidArgumentError, match="cannot drop all columns"):
        ds.drop_columns(["text", "s"])


def test_alterations_of_one_column_add_up() -> None:
    ds = lance.write_dataset(pa.table({"a": [1]}, pa.schema([pa.field("a", pa.int64(), False)])), "memory://")
    ds.alter_columns({"path": "a", "name": "b"}, {"path": "a", "nullable": True})
    assert ds.schema == pa.schema({"b": pa.int64()})


def test_readded_column_is_a_new_column() -> None:
    ds = begun()
    ds.drop_columns(["t"])
    ds.add_columns({"t": "'new'"})
    assert {r["t"] for r in rows_of(ds)} == {"new"}
    assert [f.data_files()[-1].field_ids() for f in ds.get_fragments()] == [[2]] * 3
