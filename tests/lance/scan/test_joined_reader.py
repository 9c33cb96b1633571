"""Many small fragments are read as one, with the rows, ids and errors of each."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pyarrow as pa
import pytest
from pyroaring import BitMap

from tests.s3_server import S3Server
from trilake import lance
from trilake.errors import CorruptFileError, MissingFileError
from trilake.lance import LanceDataset
from trilake.lance.scan import joined_reader
from trilake.lance.scan.fragment_reader import ROW_METADATA
from trilake.lance.scan.joined_reader import JoinedReader, together
from trilake.lance.versions import deletions
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import Fragment
from trilake.storage import durable, open_store

ROWS = pa.table(
    {
        "a": range(60),
        "s": [None if i % 7 == 3 else f"value {i}" for i in range(60)],
        "l": [None if i % 5 == 2 else [{"x": i, "v": [float(i), 0.5]}] * (i % 3) for i in range(60)],
        "v": pa.array([[i, i % 4] for i in range(60)], pa.list_(pa.float32(), 2)),
    }
)


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def dataset(tmp_path: Path, request: pytest.FixtureRequest) -> LanceDataset:
    """Twenty fragments of three rows, with deleted rows in some and none left in one."""
    dataset = lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=3, enable_stable_row_ids=request.param)
    dataset.delete("a IN (0, 5, 9, 10, 11, 25, 59)")
    dataset.update({"s": "'new'"}, where="a = 30")
    return dataset


@pytest.fixture
def remote(dataset: LanceDataset, s3_options: Mapping[str, str]) -> LanceDataset:
    """The same dataset in an object store."""
    uri = f"s3://lake/joined/{uuid4()}"
    store = open_store(uri, s3_options)
    for path in Path(dataset.uri).rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(dataset.uri)), path.read_bytes())
    return lance.dataset(uri, storage_options=dict(s3_options))


def groups(dataset: LanceDataset) -> list[int]:
    return [len(group) for group in together(dataset.snapshot.readers)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"filter": "a % 3 = 1"},
        {"filter": "s LIKE '%1%'", "columns": ["l", "a"]},
        {"filter": "a < 55 AND a > 2", "offset": 7},
        {"filter": "a % 3 = 1", "limit": 9, "offset": 1},
        {"offset": 9, "columns": ["v"]},
        {"include_deleted_rows": True, "with_row_id": True},
        {"columns": [], "with_row_address": True},
        {"nearest": {"column": "v", "q": [20.0, 1.0], "k": 9}},
        {"nearest": {"column": "v", "q": [20.0, 1.0], "k": 9}, "filter": "a % 2 = 0", "prefilter": True},
    ],
    ids=str,
)
def test_scans_equal_those_of_single_fragments(dataset: LanceDataset, options: dict[str, Any]) -> None:
    assert max(groups(dataset)) > 8
    got = dataset.to_table(**options)
    with mock.patch.object(joined_reader, "_LEAST", 1 << 30):
        assert max(groups(dataset)) == 1
        assert got.equals(dataset.to_table(**options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": ["s"]},
        {"filter": "a % 3 = 1", "with_row_id": True},
        {"filter": "a < 30", "limit": 3},
        {"offset": 2, "limit": 30},
        {"nearest": {"column": "v", "q": [20.0, 1.0], "k": 9}, "columns": ["a"]},
    ],
    ids=str,
)
def test_remote_fragments_are_joined(
    dataset: LanceDataset, remote: LanceDataset, s3: S3Server, options: dict[str, Any]
) -> None:
    """Eight were read at once, and one after another in a search for the nearest vectors."""
    before = len(s3.requests)
    with mock.patch.object(JoinedReader, "__init__", autospec=True, side_effect=JoinedReader.__init__) as opened:
        got = remote.to_table(**options)
    assert got.equals(dataset.to_table(**options))
    assert opened.called
    files = len(dataset.snapshot.readers) + sum(reader.has_deletions for reader in dataset.snapshot.readers)
    found = 9 if "nearest" in options else 0  # the other columns of the nearest rows
    assert len(s3.requests) - before <= files + found


def test_deleted_rows_of_remote_fragments_are_read_together(
    remote: LanceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = sum(reader.has_deletions for reader in remote.snapshot.readers)
    barrier, read = threading.Barrier(count), deletions.read

    def meet(bases: Bases, fragment: Fragment, rows: int) -> BitMap:
        barrier.wait(10)
        return read(bases, fragment, rows)

    monkeypatch.setattr(deletions, "read", meet)
    assert remote.to_table(["a"]).num_rows == remote.count_rows()


def test_a_limit_reads_no_more_remote_files_than_needed(remote: LanceDataset, s3: S3Server) -> None:
    before = len(s3.requests)
    assert remote.head(4).num_rows == 4
    assert len(s3.requests) - before <= 4  # two files and their deleted rows


@pytest.mark.parametrize("place", ROW_METADATA)
def test_ids_equal_those_of_single_fragments(dataset: LanceDataset, place: str) -> None:
    got = dataset.to_table([place, "a"])
    with mock.patch.object(joined_reader, "_LEAST", 1 << 30):
        assert got.equals(dataset.to_table([place, "a"]))


def test_fragments_of_other_layouts_are_not_joined(dataset: LanceDataset) -> None:
    before = len(dataset.get_fragments())
    dataset.insert(ROWS.slice(0, 9).set_column(0, "a", pa.array(range(100, 109))), max_rows_per_file=1)
    dataset.add_columns({"b": "a + 1"})
    dataset.insert(pa.table({"a": range(200, 230)}), max_rows_per_file=3)
    assert groups(dataset)[-1] == 10
    assert sum(groups(dataset)) == len(dataset.get_fragments()) == before + 19
    rows = dataset.to_table(["a", "b"])
    assert rows["b"].to_pylist() == [a + 1 if a < 200 else None for a in rows["a"].to_pylist()]


def test_rows_of_many_fragments_are_taken(dataset: LanceDataset) -> None:
    ranks, columns = [50, 3, 3, 41, 0, 9, 17, 23, 30, 35, 12, 48], ["l", "_rowid", "a", "_rowaddr"]
    got = dataset.take(ranks, columns)
    with mock.patch.object(joined_reader, "_LEAST", 1 << 30):
        assert got.equals(dataset.take(ranks, columns))
    assert got["a"].to_pylist() == dataset.to_table(["a"])["a"].take(pa.array(ranks)).to_pylist()


def test_fragments_of_many_rows_are_not_joined(tmp_path: Path) -> None:
    """A few bytes may hold millions of equal rows, whose ids would fill the memory."""
    dataset = lance.write_dataset(pa.table({"a": [7] * 200_000}), tmp_path / "t", max_rows_per_file=20_000)
    assert sum(entry.size_bytes for f in dataset.snapshot.manifest.fragments for entry in f.files) < 20_000
    assert groups(dataset) == [1] * 10


def files_of(dataset: LanceDataset) -> list[Path]:
    entries = [fragment.files[0] for fragment in dataset.snapshot.manifest.fragments]
    return [Path(dataset.uri) / entry.key for entry in entries]


def test_error_names_the_damaged_file(dataset: LanceDataset) -> None:
    damaged = files_of(dataset)[4]
    content = bytearray(damaged.read_bytes())
    content[:200] = b"\xff" * 200
    damaged.write_bytes(content)
    with pytest.raises(CorruptFileError, match=damaged.name):
        lance.dataset(dataset.uri).to_table()


def test_error_names_the_missing_file(dataset: LanceDataset) -> None:
    missing = files_of(dataset)[4]
    missing.unlink()
    with pytest.raises(MissingFileError, match=missing.name):
        lance.dataset(dataset.uri).to_table()


def test_a_limit_reads_no_more_files_than_needed(dataset: LanceDataset) -> None:
    with mock.patch.object(JoinedReader, "__init__", side_effect=AssertionError):
        assert dataset.head(4).num_rows == 4


def test_a_scan_that_ends_early_opens_few_fragments(dataset: LanceDataset) -> None:
    with mock.patch.object(JoinedReader, "__init__", autospec=True, side_effect=JoinedReader.__init__) as opened:
        assert dataset.to_table(filter="a < 30", limit=3).num_rows == 3
    (call,) = opened.call_args_list
    assert len(call.args[1]) == 8


@pytest.mark.parametrize("command", ["delete", "update", "add_columns", "cast", "merge columns"])
def test_files_of_a_command_are_synced_together(tmp_path: Path, command: str) -> None:
    """A thousand files of ten rows each: a sync for each took most of the time."""
    dataset = lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2)
    unwritten = mock.patch.object(durable, "_unwritten", return_value=0)  # by other writers
    with unwritten, mock.patch.object(os, "fsync", wraps=os.fsync) as syncs:
        if command == "delete":
            dataset.delete("a % 2 = 0")
        elif command == "update":
            dataset.update({"s": "upper(s)"}, where="a % 2 = 0")
        elif command == "add_columns":
            dataset.add_columns({"b": "a + 1"})
        elif command == "cast":
            dataset.alter_columns({"path": "a", "data_type": pa.int32()})
        else:
            merge = dataset.merge_insert("a").when_matched_update_all()
            merge.write_mode("rewrite_columns").execute(ROWS.select(["a", "s"]))
    assert syncs.call_count < 30
    assert dataset.count_rows() == (30 if command == "delete" else 60)
