"""``merge_insert`` from a source with some of the columns; expected rows and counts are from pylance 14.0.2."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance as pylance
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import FilterError, SchemaMismatchError
from trilake.lance import LanceDataset

TEXTS = ["ab", "b", "c", "ad"]
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "s": TEXTS,
        "x": [1.5, 2.5, 3.5, 4.5],
        "kind": pa.array(["p", "q", "p", "q"]).dictionary_encode(),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(range(8), pa.float32()), 2),
    }
)


def begun(rows: pa.Table = ROWS, **options: Any) -> LanceDataset:
    """``rows`` in a separate dataset per file version."""
    uri = "memory://partial-merges-" + options.get("data_storage_version", "stable")
    return lance.write_dataset(rows, uri, mode="overwrite", max_rows_per_file=2, max_rows_per_group=2, **options)


def stats(inserted: int, updated: int, deleted: int) -> dict[str, int]:
    return {"num_inserted_rows": inserted, "num_updated_rows": updated, "num_deleted_rows": deleted}


def test_columns_missing_in_the_source_keep_their_values() -> None:
    dataset = begun()
    source = pa.table({"x": [30.0, 20.0, 70.0], "id": [3, 2, 7]})
    assert dataset.merge_insert("id").when_matched_update_all().execute(source) == stats(0, 2, 0)
    expected = ROWS.to_pylist()
    expected[1]["x"], expected[2]["x"] = 20.0, 30.0
    assert dataset.to_table().sort_by("id").to_pylist() == expected
    assert dataset.schema.equals(ROWS.schema)
    dataset.validate()


def test_key_only_sources_and_nested_keys() -> None:
    dataset = begun()
    assert dataset.merge_insert("id").when_matched_update_all().execute(ROWS.select(["id"])) == stats(0, 4, 0)
    assert dataset.to_table().sort_by("id").equals(ROWS)
    both = pa.table({"s": ["b", "b"], "id": [2, 3], "x": [0.0, 0.0]})
    assert dataset.merge_insert(["s", "id"]).when_matched_update_all().execute(both) == stats(0, 1, 0)
    assert dataset.to_table(filter="x = 0.0")["id"].to_pylist() == [2]
    assert dataset.merge_insert("id").when_matched_delete().execute(ROWS.select(["id"]).slice(0, 1)) == stats(0, 0, 1)


def test_inserted_rows_get_nulls_in_nullable_columns() -> None:
    texts = pa.table({"id": ["1", "2"], "s": ["a", "b"], "t": ["c", "d"]})
    dataset = begun(texts)
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    assert merge.execute(pa.table({"id": ["2", "9"], "t": ["y", "z"]})) == stats(1, 1, 0)
    assert [tuple(r.values()) for r in dataset.to_table().to_pylist()] == [
        ("1", "a", "c"),
        ("2", "b", "y"),
        ("9", None, "z"),
    ]
    numbers = begun(data_storage_version="legacy")
    with pytest.raises(SchemaMismatchError, match="a null would be lost"):
        numbers.merge_insert("id").when_not_matched_insert_all().execute(pa.table({"id": [9], "s": ["n"]}))
    assert numbers.latest_version == numbers.version
    masked = begun(nulls="mask", data_storage_version="legacy")
    today = begun()
    today.merge_insert("id").when_not_matched_insert_all().execute(pa.table({"id": [9], "s": ["n"]}))
    assert today.to_table(filter="id = 9").to_pylist() == [{"id": 9, "s": "n", "x": None, "kind": None, "v": None}]
    masked.merge_insert("id").when_not_matched_insert_all().execute(pa.table({"id": [9], "s": ["n"]}))
    assert masked.to_table(filter="id = 9").to_pylist() == [{"id": 9, "s": "n", "x": None, "kind": None, "v": None}]


def test_conditions_see_only_existing_columns() -> None:
    dataset = begun()
    source = pa.table({"id": [2, 3], "x": [20.0, 5.0]})
    merge = dataset.merge_insert("id").when_matched_update_all("source.x > target.x + 10 AND target.s = 'b'")
    assert merge.execute(source) == stats(0, 1, 0)
    assert dataset.to_table(["s"], filter="x = 20.0").to_pylist() == [{"s": "b"}]
    with pytest.raises(FilterError, match="s"):
        dataset.merge_insert("id").when_matched_update_all("source.s = 'b'").execute(source)
    by_source = dataset.merge_insert("id").when_matched_update_all().when_not_matched_by_source_delete("x < 2")
    assert by_source.execute(pa.table({"id": [2], "x": [0.0]})) == stats(0, 1, 1)


@pytest.mark.parametrize(
    "source",
    [
        {"x": [1.0]},  # without its key
        {"id": [1], "zz": [1]},  # with an unknown column
        {"id": [1], "v": [[1.0]]},  # of another size
    ],
)
def test_incompatible_sources_are_rejected(source: dict[str, list[Any]]) -> None:
    dataset = begun()
    with pytest.raises(SchemaMismatchError):
        dataset.merge_insert("id").when_matched_update_all().execute(pa.table(source))
    assert dataset.latest_version == dataset.version


def layout(dataset: Any) -> list[tuple[list[list[int]], int]]:
    """The fields in each fragment's files, and its number of deleted rows."""
    return [([list(d.fields) for d in f.data_files()], f.num_deletions) for f in dataset.get_fragments()]


NUMBERS = pa.table({"k": range(10), "v": range(10), "w": range(10)})


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("indexed", "condition"),
    [(False, None), (False, "target.w > 2"), (True, None), (True, "source.v > 200")],
)
def test_only_source_columns_are_written(tmp_path: Path, stable: bool, indexed: bool, condition: str | None) -> None:
    lance.write_dataset(NUMBERS, tmp_path / "t", max_rows_per_file=5, enable_stable_row_ids=stable)
    dataset = lance.dataset(tmp_path / "t")
    dataset.create_scalar_index("v", "BTREE")
    if indexed:
        dataset.create_scalar_index("k", "BTREE")
    dataset.delete("k = 8")
    shutil.copytree(tmp_path / "t", tmp_path / "peer")
    peer = pylance.dataset(tmp_path / "peer")
    source = pa.table({"v": [100, 700, 300, 800, 9900], "k": [1, 7, 3, 8, 99]})
    done = []
    for one in (dataset, peer):
        merge = one.merge_insert("k").when_matched_update_all(condition)
        if indexed:
            merge.when_not_matched_insert_all()
        else:
            merge.write_mode("rewrite_columns")
        done.append(merge.execute(source))
    assert done[0] == done[1]
    inserted = [([[0, 1, 2]], 0)] if indexed else []
    assert layout(dataset) == [([[0, -2, 2], [1]], 0), ([[0, -2, 2], [1]], 1), *inserted]
    assert layout(dataset)[:2] == layout(peer)[:2]
    columns = ["k", "v", "w", "_row_last_updated_at_version"] if stable else ["k", "v", "w"]
    expected = peer.to_table(columns, with_row_id=True)
    assert dataset.to_table(columns, with_row_id=True).equals(expected)
    assert pylance.dataset(tmp_path / "t").to_table(columns, with_row_id=True).equals(expected)
    covered = {i.name: i.segments[0].fragment_ids for i in dataset.describe_indices()}
    assert covered == {i.name: i.segments[0].fragment_ids for i in peer.describe_indices()}
    assert dataset.to_table(["k"], filter="v = 300").to_pydict() == {"k": [3]}
    dataset.validate()


def test_write_mode_rewrites_rows_or_columns() -> None:
    dataset = lance.write_dataset(NUMBERS, "memory://partial-merge-modes", mode="overwrite")
    dataset.create_scalar_index("k", "BTREE")
    source = NUMBERS.select(["k", "v"]).slice(0, 1)

    def merged(merge: Any) -> int:
        merge.when_matched_update_all().execute(source)
        return dataset.get_fragments()[0].num_deletions

    assert merged(dataset.merge_insert("k")) == 0
    assert merged(dataset.merge_insert("k").use_index(False)) == 1
    assert merged(dataset.merge_insert("k").write_mode("rewrite_rows")) == 1


def test_unsupported_column_rewrites_are_rejected() -> None:
    dataset = begun()
    source = pa.table({"id": [1], "x": [0.0]})

    def check_rejected(source: pa.Table, merge: Any, reason: str) -> None:
        with pytest.raises(OSError, match=reason):
            merge.write_mode("rewrite_columns").execute(source)

    def update() -> Any:
        return dataset.merge_insert("id").when_matched_update_all()

    check_rejected(source, dataset.merge_insert("id").when_matched_delete(), "does not update")
    check_rejected(source, update().when_not_matched_insert_all(), "inserts rows")
    check_rejected(source, update().when_not_matched_by_source_delete(), "deletes rows")
    check_rejected(source.select(["id"]), update(), "no columns except the keys")
    check_rejected(ROWS, update(), "all columns")
    with pytest.raises(ValueError, match="write_mode must be one of"):
        update().write_mode("rows")
    assert dataset.latest_version == dataset.version


def test_column_rewrite_after_concurrent_delete() -> None:
    dataset = begun()
    other = lance.dataset(dataset.uri)
    other.delete("id = 2")
    merge = dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    assert merge.execute(pa.table({"id": [1, 2], "x": [10.0, 20.0]})) == stats(0, 1, 0)
    assert dataset.to_table(["id", "x"]).to_pydict() == {"id": [1, 3, 4], "x": [10.0, 3.5, 4.5]}
    dataset.validate()


def test_deletes_need_only_the_keys_of_the_source() -> None:
    source = pa.table({"id": [1, 2], "z": [0, 0], "s": [{"other": 1}] * 2})
    dataset = begun()
    assert dataset.merge_insert("id").when_matched_delete().execute(source) == stats(0, 0, 2)
    assert dataset.merge_insert("id").when_not_matched_by_source_delete("id > 3").execute(source) == stats(0, 0, 1)
    assert dataset.to_table()["id"].to_pylist() == [3]
    with pytest.raises(SchemaMismatchError, match="the source has columns id, z, s"):
        dataset.merge_insert("id").when_not_matched_insert_all().execute(source)
    twice = pa.table([pa.array([3]), pa.array([3])], ["id", "id"])
    with pytest.raises(SchemaMismatchError, match="the source has columns id, id"):
        dataset.merge_insert("id").when_matched_delete().execute(twice)
