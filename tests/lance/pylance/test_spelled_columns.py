"""Column names as users write them: in backticks, in another case, and after a rename."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import LanceDataset
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.util import validate_vector_index

ROWS = pa.table(
    {
        "userId": range(20),
        "row-id": range(20),
        "MetaData": [{"userId": i, "item:count": i * 10} for i in range(20)],
        "Vec": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(80) % 11, pa.float32()), 4),
    }
)


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t")


@pytest.mark.parametrize(
    ("column", "spelled", "filter"),
    [
        ("userid", "userId", "userId = 5"),
        ("`row-id`", "row-id", "`row-id` = 5"),
        ("metadata.userid", "MetaData.userId", "MetaData.userId = 5"),
        ("MetaData.`item:count`", "MetaData.item:count", "MetaData.`item:count` = 50"),
        ("`metadata`.`ITEM:count`", "MetaData.item:count", "MetaData.`item:count` = 50"),
    ],
)
def test_index_column_name_is_normalized(dataset: LanceDataset, column: str, spelled: str, filter: str) -> None:
    dataset.create_scalar_index(column, "BTREE")
    (index,) = dataset.list_indices()
    assert (index["fields"], index["name"]) == ([spelled], f"{spelled}_idx")
    assert "ScalarIndexQuery" in dataset.scanner(filter=filter).explain_plan()
    assert dataset.to_table(["userId"], filter=filter)["userId"].to_pylist() == [5]
    dataset.create_scalar_index(spelled, "BTREE")
    assert len(dataset.list_indices()) == 1


def test_vector_and_key_columns_in_another_case(dataset: LanceDataset) -> None:
    indexed = dataset.create_index("vec", "IVF_PQ", num_partitions=1, num_sub_vectors=2)
    assert indexed.list_indices()[0]["fields"] == ["Vec"]
    change = pa.concat_tables([ROWS.slice(18), ROWS.slice(0, 1).set_column(0, "userId", [[99]])])
    stats = dataset.merge_insert("USERID").when_matched_update_all().when_not_matched_insert_all().execute(change)
    assert (stats["num_updated_rows"], stats["num_inserted_rows"]) == (2, 1)
    with pytest.raises(InvalidArgumentError, match="key column 'user' not found"):
        dataset.merge_insert("user")


def test_ambiguous_case_is_rejected(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"ab": [1], "aB": [2], "c": [3]}), tmp_path / "t")
    dataset.create_scalar_index("aB", "BTREE")
    assert dataset.list_indices()[0]["fields"] == ["aB"]
    with pytest.raises(KeyError, match="AB not found in schema"):
        dataset.create_scalar_index("AB", "BTREE")


def test_backquoted_columns_are_read_and_dropped(dataset: LanceDataset) -> None:
    assert dataset.to_table(["`row-id`"], limit=1).to_pylist() == [{"row-id": 0}]
    assert dataset.take([1], ["MetaData.`item:count`"]).to_pylist() == [{"MetaData.`item:count`": 10}]
    dataset.drop_columns(["`row-id`", "MetaData.`item:count`"])
    assert dataset.schema.names == ["userId", "MetaData", "Vec"]


@pytest.mark.parametrize("kind", [None, 3, ["BTREE"]])
def test_non_string_index_arguments_are_rejected(dataset: LanceDataset, kind: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="is not supported"):
        dataset.create_scalar_index("userId", kind)
    with pytest.raises(InvalidArgumentError, match="is not supported"):
        dataset.create_index("Vec", kind, num_partitions=1, num_sub_vectors=2)
    with pytest.raises(WrongTypeError, match="column must be a column name, got 3"):
        dataset.create_scalar_index([3])  # type: ignore[list-item]


NULLS = pa.table({"a": [1, None, 3], "b": ["", None, "x"], "s": [{"x": 1}, None, {"x": 3}]})


@pytest.mark.parametrize("at_once", [True, False])
def test_renamed_columns_keep_their_nulls(tmp_path: Path, at_once: bool) -> None:
    dataset = lance.write_dataset(NULLS, tmp_path / "t", nulls="mask", data_storage_version="legacy")
    dataset.create_scalar_index("b", "BTREE")
    if at_once:
        dataset.alter_columns({"path": "a", "name": "b"}, {"path": "b", "name": "a"}, {"path": "s.x", "name": "y"})
    else:
        for path, name in (("a", "c"), ("b", "a"), ("c", "b"), ("s.x", "y")):
            dataset.alter_columns({"path": path, "name": name})
    expected = pa.table({"b": NULLS["a"], "a": NULLS["b"], "s": [{"y": 1}, None, {"y": 3}]})
    for ds in (dataset, lance.dataset(dataset.uri)):
        assert ds.to_table().to_pylist() == expected.to_pylist()
        assert (ds.count_rows("b IS NULL"), ds.count_rows("a = ''"), ds.count_rows("s IS NULL")) == (1, 1, 1)
    dataset.add_columns({"c": "b + 1"})
    more = lance.write_dataset(expected.append_column("c", NULLS["a"]), dataset.uri, mode="append")
    more.optimize.compact_files()
    assert more.to_table(["b", "a"]).to_pylist() == expected.select(["b", "a"]).to_pylist() * 2
    assert more.to_table(["c"])["c"].to_pylist() == [2, None, 4, 1, None, 3]


def test_validate_vector_index(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(300, 8)).astype(np.float32)
    vectors[0] = np.nan
    rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8)})
    dataset = lance.write_dataset(rows, tmp_path / "t").create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=4)
    validate_vector_index(dataset, "v", refine_factor=50)
    validate_vector_index(dataset, "v", refine_factor=50, sample_size=8)
    words = np.zeros((8, 256, 1), np.float32)  # every vector has the same code
    bad = dataset.create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=8, replace=True, pq_codebook=words)
    with pytest.raises(ValueError, match="of 299 vectors"):
        validate_vector_index(bad, "v", refine_factor=1)
