"""What others commit or tag while an operation is at work: the operation sees it, or it is done again."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from trilake import lance
from trilake.lance import cleanup
from trilake.lance.file.errors import IndexExistsError, UnknownColumnError
from trilake.lance.pylance.lance_dataset import LanceDataset


def made(uri: str, count: int = 4) -> LanceDataset:
    return lance.write_dataset(pa.table({"a": list(range(count))}), f"memory://meanwhile-{uri}", mode="overwrite")


def column(dataset: Any, name: str) -> list[Any]:
    found: list[Any] = dataset.to_table()[name].to_pylist()
    return sorted(found)


def test_an_insert_of_a_key_that_is_deleted_meanwhile_inserts_it() -> None:
    ours = made("insert")
    lance.dataset(ours.uri).delete("a = 1")
    ours.merge_insert("a").when_not_matched_insert_all().execute(pa.table({"a": [1, 2]}))
    assert column(lance.dataset(ours.uri), "a") == [0, 1, 2, 3]


def test_a_delete_sees_that_an_insert_stood_on_its_rows() -> None:
    ours = made("delete")
    lance.dataset(ours.uri).merge_insert("a").when_not_matched_insert_all().execute(pa.table({"a": [1, 2]}))
    ours.delete("a = 1")
    assert column(lance.dataset(ours.uri), "a") == [0, 2, 3]


def test_an_index_is_of_no_column_that_got_the_id_of_another() -> None:
    made("ids").add_columns({"b": "a"})
    ours, other = (lance.dataset("memory://meanwhile-ids") for _ in range(2))
    other.drop_columns(["b"])
    other.add_columns({"c": "a + 10"})
    with pytest.raises(UnknownColumnError, match="b not found"):
        ours.create_scalar_index("b", "BTREE")
    assert lance.dataset(ours.uri).list_indices() == []
    assert lance.dataset(ours.uri).to_table(filter="c = 12")["a"].to_pylist() == [2]
    assert lance.dataset(ours.uri).to_table(filter="c = 2").num_rows == 0


def test_an_index_that_is_dropped_meanwhile_does_not_come_back() -> None:
    made("indices").create_scalar_index("a", "BTREE")
    lance.write_dataset(pa.table({"a": [9]}), "memory://meanwhile-indices", mode="append")
    ours, other = (lance.dataset("memory://meanwhile-indices") for _ in range(2))
    other.drop_index("a_idx")
    ours.optimize.optimize_indices()
    assert lance.dataset(ours.uri).list_indices() == []


def test_an_index_takes_no_name_that_another_column_got_meanwhile() -> None:
    """Both were acknowledged, and the later one removed the other without a word."""
    made("names").add_columns({"b": "a + 10"})
    ours, other = (lance.dataset("memory://meanwhile-names") for _ in range(2))
    other.create_scalar_index("b", "BTREE", name="i")
    with pytest.raises(IndexExistsError, match="another column"):
        ours.create_scalar_index("a", "BTREE", name="i")
    assert [i["fields"] for i in lance.dataset(ours.uri).list_indices()] == [["b"]]


@pytest.mark.parametrize("replace", [False, True])
def test_an_index_that_comes_meanwhile_is_replaced_only_where_it_may_be(replace: bool) -> None:
    made("replaced")
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


def test_a_clean_up_sees_a_tag_that_comes_meanwhile() -> None:
    ours = made("tags")
    lance.write_dataset(pa.table({"a": [7]}), ours.uri, mode="overwrite")
    own_keys = cleanup.own_keys

    def tagged(*given: Any, **more: Any) -> Any:
        ours.tags.create("kept", ours.version)
        return own_keys(*given, **more)

    with mock.patch.object(cleanup, "own_keys", tagged):
        done = lance.dataset(ours.uri).cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert done.old_versions == 0
    assert column(lance.dataset(ours.uri, "kept"), "a") == [0, 1, 2, 3]
