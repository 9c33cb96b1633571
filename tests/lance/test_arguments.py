"""Invalid arguments, and those of other implementations: error types, and no data lost."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import LanceDataset
from trilake.lance.util import KMeans
from trilake.lance.vector import vec_to_table

TABLE = vec_to_table(np.random.default_rng(0).random((40, 4))).append_column("a", pa.array(range(40)))


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    return tmp_path / "t.lance"


@pytest.fixture
def dataset(uri: Path) -> LanceDataset:
    return lance.write_dataset(TABLE, uri, max_rows_per_file=20, max_rows_per_group=10)


def test_delete_without_a_condition_deletes_nothing(dataset: LanceDataset) -> None:
    nothing: Any = None
    with pytest.raises(TypeError, match="needs a predicate"):
        dataset.delete(nothing)
    with pytest.raises(TypeError, match="needs a predicate"):
        dataset.get_fragments()[0].delete(nothing)
    assert (dataset.version, dataset.latest_version, dataset.count_rows()) == (1, 1, 40)


@pytest.mark.parametrize("replace", [False, True])
def test_index_is_not_replaced_by_index_of_another_column(dataset: LanceDataset, replace: bool) -> None:
    dataset.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=1)
    with pytest.raises(OSError, match="on another column"):
        dataset.create_scalar_index("a", "BTREE", name="vector_idx", replace=replace)
    dataset.create_scalar_index("a", "BTREE", name="mine")
    with pytest.raises(OSError, match="on another column"):
        dataset.create_index("vector", "IVF_PQ", name="mine", num_partitions=1, num_sub_vectors=1, replace=replace)
    shown = {i["name"]: i["fields"] for i in lance.dataset(dataset.uri).list_indices()}
    assert shown == {"vector_idx": ["vector"], "mine": ["a"]}


def test_fragment_rejects_duplicate_column(dataset: LanceDataset) -> None:
    fragment = dataset.get_fragments()[0]
    with pytest.raises(OSError, match="column 'a' already exists"):
        fragment.add_columns(lambda batch: batch.select(["a"]))
    with pytest.raises(OSError, match="column 'vector' already exists"):
        fragment.merge(TABLE, "a")
    with pytest.raises(OSError, match="column 'vector' already exists"):
        dataset.merge(TABLE, "a")


def test_write_modes_are_case_insensitive(uri: Path) -> None:
    mode: Any
    for mode, rows in (("CREATE", 40), ("Append", 80), ("OVERWRITE", 40)):
        assert lance.write_dataset(TABLE, uri, mode=mode).count_rows() == rows
    mode = 3
    with pytest.raises(TypeError, match="mode"):
        lance.write_dataset(TABLE, uri, mode=mode)


def test_scan_names_argument_of_wrong_type(dataset: LanceDataset) -> None:
    options: list[dict[str, Any]] = [
        {"limit": "3"},
        {"limit": 3.0},
        {"offset": True},
        {"batch_size": "1"},
        {"columns": "vector"},
        {"bogus": 1},
        *({"nearest": {"column": "vector", "q": q}} for q in (None, "abcd", ["x"] * 4)),
    ]
    for option in options:
        with pytest.raises(TypeError):
            dataset.to_table(**option)
    with pytest.raises(ValueError, match="Limit"):
        dataset.to_table(limit=-1)
    with pytest.raises(TypeError, match="columns"):
        dataset.take([0], columns="vector")
    with pytest.raises(TypeError, match="columns"):
        dataset.get_fragments()[0].take([0], columns="vector")


def test_missing_columns_and_rows_are_rejected(dataset: LanceDataset) -> None:
    fragment = dataset.get_fragments()[0]
    with pytest.raises(OSError, match="zz"):
        dataset.take([0], ["zz"])
    with pytest.raises(OSError, match="zz"):
        fragment.take([0], ["zz"])
    with pytest.raises(OSError, match="20 rows"):
        fragment.take([20])
    with pytest.raises(ValueError, match="zz"):
        dataset.to_table(["zz"])
    assert fragment.metadata.to_json()["deletion_file"] is None


def test_invalid_training_arguments_are_rejected(dataset: LanceDataset) -> None:
    with pytest.raises(RuntimeError, match="fit"):
        KMeans(2).predict(np.zeros((1, 2), np.float32))
    with pytest.raises(OSError, match="40 vectors"):
        dataset.create_index("vector", "IVF_PQ", num_partitions=50, num_sub_vectors=1)
    with pytest.raises(TypeError, match="must be SQL"):
        dataset.update({"a": 3})  # type: ignore[dict-item]
    shuffle: dict[str, Any] = {"shuffle_partition_batches": 8, "shuffle_partition_concurrency": 1}
    assert dataset.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=1, **shuffle).has_index
    with pytest.raises(InvalidArgumentError, match="no option 'bogus'"):
        dataset.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=1, replace=True, bogus=1)


def test_commit_and_cleanup_arguments(uri: Path, dataset: LanceDataset) -> None:
    with pytest.raises(OSError, match="was not found"):
        LanceDataset.commit(uri / "none", lance.LanceOperation.Append([]), read_version=1)
    with pytest.raises(TypeError, match="timedelta"):
        dataset.cleanup_old_versions(older_than=14)  # type: ignore[arg-type]


def test_merge_keys_must_match_the_column_type(uri: Path) -> None:
    days = pa.array([1, 2, 3], pa.date32())
    dataset = lance.write_dataset(pa.table({"a": [1, 2, 3], "s": ["1", "2", "3"], "d": days}), uri)
    texts, numbers = pa.array(["01", "2", "3"]), pa.array([1, 2, 3], pa.int32())
    for left, keys in (("a", texts), ("s", numbers), ("d", numbers), ("a", pa.array([True] * 3))):
        for key in (keys, keys.dictionary_encode()):
            with pytest.raises(OSError, match="the join keys are of type"):
                dataset.merge(pa.table({"key": key, "q": ["x", "y", "z"]}), left, "key")
    others = {"a": pa.array([2.0, 3.0]), "s": texts[1:].cast(pa.large_string()), "d": days[1:].cast("date64")}
    for left, keys in others.items():
        dataset.merge(pa.table({"key": keys, f"of_{left}": ["y", "z"]}), left, "key")
    assert list(dataset.to_table(["of_a", "of_s", "of_d"]).to_pydict().values()) == [[None, "y", "z"]] * 3


@pytest.mark.parametrize(
    ("there", "given"),
    [([True], [5]), ([True], [0.5]), ([[True]], [[5]]), ([{"x": True}], [{"x": 5}])],
    ids=["int", "float", "list", "struct"],
)
def test_numbers_are_not_cast_to_booleans(uri: Path, there: list[Any], given: list[Any]) -> None:
    dataset = lance.write_dataset(pa.table({"k": [1], "b": there}), uri)
    other = pa.table({"k": [2], "b": given})
    with pytest.raises(OSError, match="cannot cast"):
        lance.write_dataset(other, uri, mode="append")
    with pytest.raises(OSError, match="cannot cast"):
        dataset.merge_insert("k").when_not_matched_insert_all().execute(other)
    if there == [True]:
        with pytest.raises(OSError, match="cannot cast"):
            dataset.update({"b": str(given[0])})
    assert lance.dataset(uri).to_table().to_pylist() == [{"k": 1, "b": there[0]}]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.time64("us")], ids=str)
def test_timestamps_are_not_cast_to_dates_or_times(uri: Path, kind: pa.DataType) -> None:
    times = pa.array([3_600_000_000], pa.timestamp("us"))
    lance.write_dataset(pa.table({"x": pa.nulls(0, kind), "l": pa.nulls(0, pa.list_(kind))}), uri)
    with pytest.raises(OSError, match="cannot cast"):
        lance.write_dataset(pa.table({"x": times, "l": pa.nulls(1, pa.list_(kind))}), uri, mode="append")
    with pytest.raises(OSError, match="cannot cast"):
        lance.write_dataset(pa.table({"x": times.cast(kind), "l": pa.array([times.to_pylist()])}), uri, mode="append")
    assert lance.dataset(uri).count_rows() == 0


def test_take_accepts_only_scan_options() -> None:
    dataset = lance.write_dataset(pa.table({"a": [1, 2, 3]}), "memory://arguments-take", mode="overwrite")
    assert dataset.take([2], ["a"], with_row_id=True, use_threads=False, batch_size=5).column_names == ["a", "_rowid"]
    for call in (lambda: dataset.take([2], colums=["a"]), lambda: dataset.sample(2, colum="a")):
        with pytest.raises(TypeError, match="unknown scan option 'colum"):
            call()


def test_negative_age_removes_no_version(dataset: LanceDataset) -> None:
    """It means a time in the future, and all versions except the newest were older."""
    dataset.delete("a < 5")
    with pytest.raises(InvalidArgumentError, match="must not be negative"):
        dataset.cleanup_old_versions(dt.timedelta(days=-14))
    assert [v["version"] for v in dataset.versions()] == [1, 2]


def test_string_is_not_a_flag(dataset: LanceDataset) -> None:
    text: Any = "false"
    with pytest.raises(InvalidArgumentError, match="use_index must be True or False, got 'false'"):
        dataset.to_table(nearest={"column": "vector", "q": [0.0] * 4, "use_index": text})
    with pytest.raises(InvalidArgumentError, match="materialize_deletions must be True or False, got 'false'"):
        dataset.optimize.compact_files(materialize_deletions=text)


@pytest.mark.parametrize("flag", ["false", 0, None])
def test_flags_must_be_booleans(dataset: LanceDataset, flag: Any) -> None:
    """Every string is truthy: ``with_row_id="false"`` added a column, ``delete_unverified="false"`` deleted files."""
    dataset.create_scalar_index("a")
    scans = (
        () if flag is None else ("prefilter", "with_row_id", "use_stats", "scan_in_order")
    )  # None means the default there
    calls: list[Any] = [
        *(partial(dataset.to_table, **{name: flag}) for name in scans),
        lambda: dataset.take([1], with_row_id=flag),
        lambda: dataset.sample(1, randomize_order=flag),
        lambda: dataset.create_scalar_index("a", replace=flag),
        lambda: dataset.cleanup_old_versions(dt.timedelta(0), delete_unverified=flag),
        lambda: dataset.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=flag),
        lambda: dataset.alter_columns({"path": "a", "nullable": "no", "name": "b"}),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError, match="True or False"):
            call()
    assert (dataset.version, len(dataset.versions())) == (2, 2)


def test_conflicting_or_unused_arguments_are_rejected(uri: Path, dataset: LanceDataset) -> None:
    search: dict[str, Any] = {"column": "vector", "q": [0.0] * 4}
    dataset.add_columns({"kept": "a"}, batch_size=5)
    calls: list[tuple[str, Any]] = [
        ("limit", lambda: dataset.head(3, limit=1)),
        ("limit", lambda: dataset.get_fragments()[0].head(3, limit=1)),
        ("version and asof", lambda: lance.dataset(uri, version=1, asof="2020-01-01")),
        (
            "different storage_options",
            lambda: lance.write_dataset(TABLE, dataset, mode="append", storage_options={"a": "1"}),
        ),
        ("read_columns does not apply", lambda: dataset.add_columns({"b": "a"}, read_columns=["a"])),
        ("reader_schema does not apply", lambda: dataset.add_columns({"b": "a"}, reader_schema=pa.schema([]))),
        ("batch_size does not apply", lambda: dataset.add_columns(pa.field("b", pa.string()), batch_size=1)),
        ("read_columns does not apply", lambda: dataset.add_columns(TABLE.select(["a"]), read_columns=["a"])),
        ("nprobes must be between", lambda: dataset.to_table(nearest={**search, "nprobes": 2, "maximum_nprobes": 1})),
        ("got 'x'", lambda: lance.dataset(uri, nulls="x")),  # type: ignore[arg-type]
        ("between 0 and 1, got 7", lambda: dataset.optimize.compact_files(materialize_deletions_threshold=7)),
        ("num_threads must be", lambda: dataset.optimize.compact_files(num_threads=0)),
        ("fragment_id must be", lambda: lance.LanceFragment.create(str(uri), TABLE, -1)),
    ]
    for words, call in calls:
        with pytest.raises(InvalidArgumentError, match=words):
            call()
    others: list[Any] = [
        lambda: dataset.to_table(nearest={**search, "k": "3"}),
        lambda: dataset.to_table(nearest={**search, "k": 2.5}),
        lambda: lance.write_dataset(TABLE, dataset, mode="append", max_rows_per_file="5"),  # type: ignore[arg-type]
        lambda: lance.write_dataset(TABLE, dataset, mode="append", max_rows_per_group=1.5),  # type: ignore[arg-type]
    ]
    for call in others:
        with pytest.raises(TypeError, match="an integer >= 1"):
            call()
    dataset.drop_columns(columns=["kept"])
    assert lance.write_dataset(TABLE, dataset, mode="append", storage_options={}).schema.names == ["vector", "a"]
