"""``merge_insert`` of a source that has some of the columns; rows and numbers are those of pylance 14.0.2."""

from __future__ import annotations

from typing import Any

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
    """``rows`` in a dataset of its own for every version of its files."""
    uri = "memory://partial-merges-" + options.get("data_storage_version", "stable")
    return lance.write_dataset(rows, uri, mode="overwrite", max_rows_per_file=2, max_rows_per_group=2, **options)


def stats(inserted: int, updated: int, deleted: int) -> dict[str, int]:
    return {"num_inserted_rows": inserted, "num_updated_rows": updated, "num_deleted_rows": deleted}


def test_columns_that_the_source_has_not_keep_their_values() -> None:
    made = begun()
    source = pa.table({"x": [30.0, 20.0, 70.0], "id": [3, 2, 7]})
    assert made.merge_insert("id").when_matched_update_all().execute(source) == stats(0, 2, 0)
    wanted = ROWS.to_pylist()
    wanted[1]["x"], wanted[2]["x"] = 20.0, 30.0
    assert made.to_table().sort_by("id").to_pylist() == wanted
    assert made.schema.equals(ROWS.schema)
    made.validate()


def test_keys_alone_and_nested_keys_of_several_columns() -> None:
    made = begun()
    assert made.merge_insert("id").when_matched_update_all().execute(ROWS.select(["id"])) == stats(0, 4, 0)
    assert made.to_table().sort_by("id").equals(ROWS)
    both = pa.table({"s": ["b", "b"], "id": [2, 3], "x": [0.0, 0.0]})
    assert made.merge_insert(["s", "id"]).when_matched_update_all().execute(both) == stats(0, 1, 0)
    assert made.to_table(filter="x = 0.0")["id"].to_pylist() == [2]
    assert made.merge_insert("id").when_matched_delete().execute(ROWS.select(["id"]).slice(0, 1)) == stats(0, 0, 1)


def test_rows_that_are_inserted_have_nulls_where_a_null_can_be() -> None:
    texts = pa.table({"id": ["1", "2"], "s": ["a", "b"], "t": ["c", "d"]})
    made = begun(texts)
    merge = made.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    assert merge.execute(pa.table({"id": ["2", "9"], "t": ["y", "z"]})) == stats(1, 1, 0)
    assert [tuple(r.values()) for r in made.to_table().to_pylist()] == [
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


def test_conditions_see_the_columns_that_there_are() -> None:
    made = begun()
    source = pa.table({"id": [2, 3], "x": [20.0, 5.0]})
    merge = made.merge_insert("id").when_matched_update_all("source.x > target.x + 10 AND target.s = 'b'")
    assert merge.execute(source) == stats(0, 1, 0)
    assert made.to_table(["s"], filter="x = 20.0").to_pylist() == [{"s": "b"}]
    with pytest.raises(FilterError, match="s"):
        made.merge_insert("id").when_matched_update_all("source.s = 'b'").execute(source)
    by_source = made.merge_insert("id").when_matched_update_all().when_not_matched_by_source_delete("x < 2")
    assert by_source.execute(pa.table({"id": [2], "x": [0.0]})) == stats(0, 1, 1)


@pytest.mark.parametrize(
    "source",
    [
        {"x": [1.0]},  # without its key
        {"id": [1], "zz": [1]},  # with a column that there is not
        {"id": [1], "v": [[1.0]]},  # of another size
    ],
)
def test_sources_that_do_not_fit(source: dict[str, list[Any]]) -> None:
    made = begun()
    with pytest.raises(SchemaMismatchError):
        made.merge_insert("id").when_matched_update_all().execute(pa.table(source))
    assert made.latest_version == made.version
