"""Base paths: new data files go where ``target_bases`` says, and a failed write leaves none of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import ConflictError, InvalidArgumentError
from trilake.lance import DatasetBasePath, LanceDataset, LanceOperation, write_fragments
from trilake.lance.blob import blob_array, blob_field


def rows(count: int, first: int = 0) -> pa.Table:
    return pa.table({"a": range(first, first + count)})


def base_ids(ds: LanceDataset) -> list[int | None]:
    return [file.base_id for fragment in ds.get_fragments() for file in fragment.data_files()]


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


@pytest.fixture
def bases(tmp_path: Path) -> list[DatasetBasePath]:
    return [
        DatasetBasePath(str(tmp_path / "hot"), name="hot"),
        DatasetBasePath(str(tmp_path / "cold"), name="cold", is_dataset_root=True),
    ]


@pytest.fixture
def dataset(tmp_path: Path, bases: list[DatasetBasePath]) -> LanceDataset:
    return lance.write_dataset(rows(1), tmp_path / "t", initial_bases=bases)


@pytest.mark.parametrize("version", ["legacy", "2.0", "stable"])
def test_new_dataset_is_written_to_its_base_paths(tmp_path: Path, bases: list[DatasetBasePath], version: str) -> None:
    options: dict[str, Any] = {"max_rows_per_file": 2, "max_rows_per_group": 2, "data_storage_version": version}
    ds = lance.write_dataset(
        rows(5), tmp_path / "t", initial_bases=bases, target_bases=["cold", str(tmp_path / "hot")], **options
    )
    assert base_ids(ds) == [2, 1, 2]
    assert len(files(tmp_path / "hot")) == len(list((tmp_path / "hot").glob("*.lance"))) == 1
    assert len(files(tmp_path / "cold")) == len(list((tmp_path / "cold" / "data").glob("*.lance"))) == 2
    assert not (tmp_path / "t" / "data").exists()
    again = lance.dataset(ds.uri)
    assert again.to_table(filter="a > 0").equals(rows(4, 1))
    assert again.take([4, 0])["a"].to_pylist() == [4, 0]
    assert {b.name: (b.path, b.is_dataset_root) for b in again.base_paths().values()} == {
        "hot": (str(tmp_path / "hot"), False),
        "cold": (str(tmp_path / "cold"), True),
    }


def test_files_rotate_over_the_targets(tmp_path: Path, dataset: LanceDataset) -> None:
    for options, expected in (
        ({"target_bases": [dataset.uri, (tmp_path / "hot").as_uri()]}, [None, 1, None, 1]),
        ({"target_all_bases": True}, [None, 1, 2, None]),
        ({"target_all_bases": False}, [1, 2, 1, 2]),
        ({"target_bases": []}, [None] * 4),
        ({}, [None] * 4),
    ):
        ds = lance.write_dataset(rows(4), dataset.uri, mode="overwrite", max_rows_per_file=1, **options)
        assert base_ids(ds) == expected
        assert (ds.to_table().equals(rows(4)), len(ds.base_paths())) == (True, 2)


def test_rows_at_base_paths_are_changed_and_compacted(dataset: LanceDataset) -> None:
    for first in (1, 3, 5):
        dataset.insert(rows(2, first), target_bases=["cold"])
    dataset.delete("a = 1")
    dataset.update({"a": "a * 10"}, where="a >= 5")
    dataset.optimize.compact_files()
    assert sorted(dataset.to_table()["a"].to_pylist()) == [0, 2, 3, 4, 50, 60]
    assert base_ids(dataset) == [None]
    assert lance.dataset(dataset.uri, version=4).count_rows() == 7
    dataset.validate()


def test_invalid_base_options_are_rejected(tmp_path: Path, dataset: LanceDataset) -> None:
    before = files(tmp_path)
    for options, message in (
        ({"target_bases": ["warm"]}, "base 'warm' was not found"),
        ({"target_bases": ["hot"], "target_all_bases": True}, "cannot be used together"),
        ({"target_bases": "hot"}, "must be a list of strings, got 'hot'"),
        ({"initial_bases": [DatasetBasePath("/x")]}, "Cannot register new bases in Append mode"),
    ):
        for write in (lance.write_dataset, write_fragments):
            with pytest.raises((InvalidArgumentError, TypeError), match=message):
                write(rows(1), dataset.uri, mode="append", **options)
    with pytest.raises(OSError, match="needs a base path"):
        lance.write_dataset(rows(1), tmp_path / "other", target_all_bases=False)
    assert files(tmp_path) == before


@pytest.mark.parametrize("fails", ["rows", "commit"])
def test_failed_writes_leave_no_files_at_base_paths(tmp_path: Path, dataset: LanceDataset, fails: str) -> None:
    before = files(tmp_path)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(4).to_batches(max_chunksize=1)
        if fails == "rows":
            raise ZeroDivisionError
        shutil.rmtree(tmp_path / "t" / "_versions")

    reader = pa.RecordBatchReader.from_batches(rows(1).schema, batches())
    with pytest.raises(Exception):  # noqa: B017
        lance.write_dataset(reader, dataset.uri, mode="append", target_all_bases=True, max_rows_per_file=1)
    assert not (tmp_path / "hot").exists() or not files(tmp_path / "hot")
    assert not (tmp_path / "cold").exists() or not files(tmp_path / "cold")
    assert fails == "commit" or files(tmp_path) == before


def test_fragments_at_base_paths_are_committed_later(tmp_path: Path, bases: list[DatasetBasePath]) -> None:
    where = str(tmp_path / "t")
    options: dict[str, Any] = {"initial_bases": bases, "target_bases": ["hot"]}
    begun = write_fragments(rows(2), where, mode="create", return_transaction=True, **options)
    ds = LanceDataset.commit(where, begun)
    appended = write_fragments(rows(1, 2), ds, target_bases=["cold"])
    ds = LanceDataset.commit(ds, LanceOperation.Append(appended), ds.version)
    assert (base_ids(ds), ds.to_table().equals(rows(3))) == ([1, 2], True)
    loose = write_fragments(rows(2), tmp_path / "u", mode="create", **options)
    with pytest.raises(ConflictError, match="base path 1, which does not exist"):
        LanceDataset.commit(str(tmp_path / "u"), LanceOperation.Overwrite(rows(1).schema, loose))


def test_base_paths_are_added_once(tmp_path: Path, dataset: LanceDataset) -> None:
    other = lance.dataset(dataset.uri)
    warm = DatasetBasePath(str(tmp_path / "warm"), name="warm")
    assert dataset.add_bases([warm], {"by": "ann"}) is dataset
    assert sorted(dataset.base_paths()) == [1, 2, 3]
    begun = dataset.read_transaction(2)
    assert begun is not None
    assert begun.transaction_properties == {"by": "ann"}
    assert begun.operation == LanceOperation.UpdateBases([dataset.base_paths()[3]])
    assert dataset.add_bases([]).version == 2
    for base in (warm, DatasetBasePath("/x", name="hot"), DatasetBasePath(warm.path), DatasetBasePath("/x", id=1)):
        with pytest.raises(ValueError, match="already exists"):
            dataset.add_bases([base])
    with pytest.raises(ConflictError):
        other.add_bases([DatasetBasePath("/x")])
    dataset.insert(rows(1, 1), target_bases=["warm"])
    assert lance.dataset(dataset.uri).to_table().equals(rows(2))
    # An overwrite may follow a restore, which undoes the base path.
    stale = lance.dataset(dataset.uri)
    lost = write_fragments(rows(1), stale, mode="overwrite", target_bases=["warm"], return_transaction=True)
    dataset.checkout_version(1).restore()
    with pytest.raises(ConflictError, match="base path 3, which does not exist"):
        LanceDataset.commit(dataset.uri, lost)
    assert lance.dataset(dataset.uri).to_table().equals(rows(1))


def test_blobs_at_base_paths(tmp_path: Path, bases: list[DatasetBasePath]) -> None:
    values = [b"x" * size for size in (1, 70_000, 5_000_000)]
    table = pa.table([blob_array(values)], schema=pa.schema([blob_field("v")]))
    for base in ("hot", "cold"):
        ds = lance.write_dataset(table, tmp_path / base[0], initial_bases=bases, target_bases=[base])
        assert len(files(tmp_path / base)) > 1
        assert [f and f.readall() for f in ds.take_blobs("v", indices=range(3))] == values
