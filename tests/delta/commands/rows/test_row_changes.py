"""Removing rows from files: vectors, copies, removals, and their actions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

import trilake
from tests.conftest import examples
from trilake.delta.commands.rows.removal import Removal, remove_rows
from trilake.delta.commands.rows.row_changes import changed_files, check_changeable, commit_changes, whole_rows
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.scan.read import read_positions
from trilake.delta.standard import standard_engine
from trilake.errors import ConcurrentDeleteDeleteError, CorruptFileError, InvalidArgumentError
from trilake.storage.memory import MemoryStore

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def _table(uri: str, properties: Mapping[str, str], files: int = 3, rows: int = 4) -> tuple[DeltaLog, Snapshot]:
    for n in range(files):
        data = pa.table({"id": pa.array(range(n * rows, (n + 1) * rows), pa.int64())})
        trilake.write(data, uri, mode="append", properties=properties if n == 0 else None)
    table: Any = trilake.open(uri)
    return table.log, table.snapshot


def _first(snapshot: Snapshot) -> list[int]:
    """The first id of each file, in snapshot order."""
    return [orjson.loads(s)["minValues"]["id"] for s in snapshot.adds["stats"].to_pylist()]


def _commit(log: DeltaLog, snapshot: Snapshot, removal: Removal, job_id: str = "job") -> Snapshot:
    read = ReadSet(files=removal.removed, removed=removal.removed)
    done = commit_changes(log, snapshot, "TEST", {}, removal.actions, read, removal.metrics, job_id=job_id)
    return log.snapshot(done)


def _ids(uri: str) -> list[int]:
    return sorted(trilake.open(uri).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("feed", [True, False])
def test_removal_depends_on_each_file(tmp_path: Path, vectors: bool, feed: bool) -> None:
    uri = str(tmp_path)
    log, snapshot = _table(uri, {**(VECTORS if vectors else {}), **(FEED if feed else {})})
    first = _first(snapshot)
    at = {start: number for number, start in enumerate(first)}
    rows = {at[0]: BitMap64([1, 2]), at[4]: BitMap64(range(4)), at[8]: BitMap64()}
    removal = remove_rows(log, snapshot, rows, job_id="job", change_type="delete")
    paths = snapshot.adds["path"].to_pylist()
    assert removal.removed == {paths[at[0]], paths[at[4]]}
    assert (removal.rows, removal.copied) == (6, 0 if vectors else 2)
    assert (removal.files_removed, removal.files_added) == ((1, 0) if vectors else (2, 1))
    assert (removal.vectors_added, removal.vectors_updated, removal.vectors_removed) == (
        (1, 0, 0) if vectors else (0, 0, 0)
    )
    assert removal.change_files == (feed and not vectors)
    assert sum("cdc" in a for a in removal.actions) == (1 if feed and not vectors else 0), "small files share one"
    assert (removal.bytes_added > 0) != vectors
    _commit(log, snapshot, removal)
    assert _ids(uri) == [0, 3, 8, 9, 10, 11]
    if feed:
        changes = trilake.open(uri).changes(3).to_pylist()  # type: ignore[attr-defined]
        assert sorted((c["_change_type"], c["id"]) for c in changes) == [("delete", n) for n in (1, 2, 4, 5, 6, 7)]


def test_vectors_accumulate_until_the_file_is_removed(tmp_path: Path) -> None:
    uri = str(tmp_path)
    log, snapshot = _table(uri, VECTORS, files=1)
    snapshot = _commit(log, snapshot, remove_rows(log, snapshot, {0: BitMap64([0])}, job_id="a"))
    second = remove_rows(log, snapshot, {0: BitMap64([2])}, job_id="b")
    assert (second.rows, second.vectors_added, second.vectors_updated, second.vectors_removed) == (1, 1, 1, 1)
    snapshot = _commit(log, snapshot, second)
    assert _ids(uri) == [1, 3]
    third = remove_rows(log, snapshot, {0: BitMap64([1, 3])}, job_id="c")
    assert (third.rows, third.files_removed, third.vectors_added, third.vectors_removed) == (2, 1, 0, 1)
    assert [list(a) for a in third.actions] == [["remove"]]
    assert _commit(log, snapshot, third).adds.num_rows == 0


def test_wholly_removed_file_is_not_read(tmp_path: Path) -> None:
    uri = str(tmp_path)
    log, snapshot = _table(uri, FEED, files=2)
    for path in snapshot.adds["path"].to_pylist():
        (tmp_path / path).unlink()
    removal = remove_rows(log, snapshot, {}, whole=[0, 1], job_id="job", change_type="delete")
    assert (removal.rows, removal.files_removed, removal.change_files) == (8, 2, False)


def test_failed_removal_leaves_nothing_behind(tmp_path: Path) -> None:
    log, snapshot = _table(str(tmp_path), FEED)
    files = set(tmp_path.rglob("*.parquet"))
    (tmp_path / snapshot.adds["path"][1].as_py()).write_bytes(b"no Parquet file")
    rows = {n: BitMap64([1]) for n in range(3)}
    with pytest.raises(CorruptFileError):
        remove_rows(log, snapshot, rows, job_id="job", change_type="delete")
    assert set(tmp_path.rglob("*.parquet")) == files


def test_vector_adds_a_missing_record_count(tmp_path: Path) -> None:
    uri = str(tmp_path)
    log, snapshot = _table(uri, VECTORS, files=2)
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        lines = [orjson.loads(line) for line in commit.read_bytes().splitlines()]
        for line in lines:
            line.get("add", {}).pop("stats", None)
        commit.write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    log = DeltaLog(log.store, standard_engine())
    snapshot = log.snapshot()
    removal = remove_rows(log, snapshot, {0: BitMap64([1]), 1: BitMap64(range(4))}, job_id="job")
    (add,) = [a["add"] for a in removal.actions if "add" in a]
    assert orjson.loads(add["stats"]) == {"numRecords": 4, "tightBounds": False}
    assert removal.files_removed == 1
    assert remove_rows(log, snapshot, {}, whole=[0], job_id="job").rows is None


def test_conflict_deletes_new_files(tmp_path: Path) -> None:
    uri = str(tmp_path)
    log, snapshot = _table(uri, {}, files=1)
    mine = remove_rows(log, snapshot, {0: BitMap64([1])}, job_id="mine")
    _commit(log, snapshot, remove_rows(log, snapshot, {0: BitMap64([2])}, job_id="theirs"), "theirs")
    read = ReadSet(removed=mine.removed)
    with pytest.raises(ConcurrentDeleteDeleteError):
        commit_changes(log, snapshot, "TEST", {}, mine.actions, read, {}, job_id="mine")
    assert not list(tmp_path.glob("*mine*"))
    assert _ids(uri) == [0, 1, 3]


def test_copied_rows_keep_their_row_ids(tmp_path: Path) -> None:
    uri = str(tmp_path)
    log, snapshot = _table(uri, {"delta.enableRowTracking": "true"}, files=2)
    before = {first: row["baseRowId"] for first, row in zip(_first(snapshot), snapshot.adds.to_pylist(), strict=True)}
    at = _first(snapshot).index(4)
    removal = remove_rows(log, snapshot, {at: BitMap64([0, 2])}, job_id="job")
    (add,) = [a["add"] for a in removal.actions if "add" in a]
    rows = pq.read_table(tmp_path / add["path"]).to_pydict()
    id_column = snapshot.metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]
    assert rows["id"] == [5, 7]
    assert rows[id_column] == [before[4] + 1, before[4] + 3]


def test_append_only_table_is_rejected(tmp_path: Path) -> None:
    _, snapshot = _table(str(tmp_path), {"delta.appendOnly": "true"}, files=1)
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        check_changeable(snapshot, "DELETE")
    check_changeable(snapshot, "MERGE", removes=False)


@settings(max_examples=examples(15))
@given(
    gone=st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=3),
    vectors=st.booleans(),
    feed=st.booleans(),
)
def test_successive_removals_match_a_set(gone: list[set[int]], vectors: bool, feed: bool) -> None:
    """The remaining rows match a set, and the change feed has the deleted ones."""
    store = MemoryStore(f"rows-taken-{np.random.default_rng().integers(1 << 60)}")
    log, snapshot = _table(store.uri, {**(VECTORS if vectors else {}), **(FEED if feed else {})})
    left = set(range(12))
    for step, expected in enumerate(gone):
        table: Any = trilake.open(store.uri)
        snapshot, rows = table.snapshot, {}
        for number, add in enumerate(snapshot.adds.to_pylist()):
            (source,) = changed_files(snapshot, [number])
            assert add["path"]
            for positions, batch in read_positions(log.store, source.file, whole_rows(snapshot)):
                hit = np.isin(batch.column("id").to_numpy(), list(expected))
                rows[number] = rows.get(number, BitMap64()) | BitMap64(positions[hit].astype(np.uint64))
        removal = remove_rows(log, snapshot, rows, job_id=f"job{step}", change_type="delete")
        assert removal.rows == len(expected & left)
        if removal.actions:
            done = _commit(log, snapshot, removal)
            if feed:
                changes = trilake.open(store.uri).changes(done.version)  # type: ignore[attr-defined]
                assert sorted(changes["id"].to_pylist()) == sorted(expected & left)
                assert set(changes["_change_type"].to_pylist()) == {"delete"}
        left -= expected
        assert _ids(store.uri) == sorted(left)


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_change_type_column_is_allowed_without_change_feed(properties: Mapping[str, str]) -> None:
    uri = f"memory://change-type-{len(properties)}"
    data = pa.table({"id": [1, 2, 3], "_change_type": ["a", "b", "c"]})
    trilake.write(data, uri, properties=properties)
    trilake.open(uri).update({"_change_type": "'new'"}, where="id = 1")
    trilake.open(uri).delete("id = 2")
    source = pa.table({"id": [3, 4], "_change_type": ["merged", "inserted"]})
    merge = trilake.open(uri).merge(source, on="target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = {1: "new", 3: "merged", 4: "inserted"}
    assert {r["id"]: r["_change_type"] for r in trilake.open(uri).to_arrow().to_pylist()} == expected
