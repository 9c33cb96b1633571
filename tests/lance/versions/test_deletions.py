"""Deletion files of both kinds: written, read, damaged; and the live rows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from tests.lance import corpus
from trilake.errors import DeletionVectorError, MissingFileError
from trilake.lance.versions import deletions
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import ARROW_ARRAY, BITMAP, DataFile, DeletionFile, Fragment
from trilake.lance.versions.transaction import load
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore


def fragment(rows: BitMap, store: MemoryStore, physical: int = 1_000_000) -> Fragment:
    entry = deletions.write(store, 3, rows, read_version=2, id=9)
    return Fragment(3, (DataFile("x", (0,)),), entry, physical)


@pytest.mark.parametrize(("count", "kind"), [(1, ARROW_ARRAY), (5000, ARROW_ARRAY), (5001, BITMAP), (90_000, BITMAP)])
def test_file_kind_depends_on_the_number_of_rows(count: int, kind: int) -> None:
    store, rows = MemoryStore(), BitMap(range(0, 3 * count, 3))
    found = fragment(rows, store)
    assert found.deletion_file == DeletionFile(kind, 2, 9, count)
    assert deletions.read(Bases(store), found) == rows


def test_corpus_has_both_kinds(shared: Path) -> None:
    seen = set()
    for name in ("delete_few", "delete_many", "update", "compaction"):
        store = open_store(corpus.folder(shared, name))
        for one in load(store, 2).fragments:
            if one.deletion_file is not None:
                rows = deletions.read(Bases(store), one)
                assert len(rows) == one.deletion_file.num_deleted_rows
                seen.add(one.deletion_file.file_type)
    assert seen == {ARROW_ARRAY, BITMAP}


def arrow(values: pa.Array) -> bytes:
    out = io.BytesIO()
    batch = pa.record_batch([values], ["row_id"])
    with pa.ipc.new_file(out, batch.schema) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def test_order_and_compression_do_not_matter() -> None:
    data = arrow(pa.array([7, 3, 5], pa.uint32()))
    assert deletions.decode(ARROW_ARRAY, pa.py_buffer(data), rows=1 << 20, file="f") == BitMap([3, 5, 7])


def test_run_containers_are_read() -> None:
    rows = BitMap(range(100_000))
    rows.run_optimize()
    data = rows.serialize()
    assert data[:2] == (12347).to_bytes(2, "little")
    assert deletions.decode(BITMAP, pa.py_buffer(data), rows=1 << 20, file="f") == rows


@pytest.mark.parametrize(
    "values",
    [pa.array([1, 1], pa.uint32()), pa.array([1, None], pa.uint32()), pa.array(["a"]), pa.array([-1], pa.int32())],
)
def test_wrong_columns(values: pa.Array) -> None:
    with pytest.raises(DeletionVectorError):
        deletions.decode(ARROW_ARRAY, pa.py_buffer(arrow(values)), rows=1 << 20, file="f")


def test_damaged_deletion_files_are_rejected() -> None:
    for rows in (BitMap([1, 5]), BitMap(range(0, 30_000, 2))):
        kind, data = deletions.encode(rows)
        for size in range(0, len(data), max(1, len(data) // 50)):
            with pytest.raises(DeletionVectorError):
                deletions.decode(kind, pa.py_buffer(data[:size]), rows=1 << 20, file="f")
    with pytest.raises(DeletionVectorError, match="type 7"):
        deletions.decode(7, pa.py_buffer(b""), rows=1 << 20, file="f")


def test_manifest_counts_are_checked() -> None:
    store = MemoryStore()
    found = fragment(BitMap([1, 10]), store)
    assert found.deletion_file is not None
    wrong = DeletionFile(0, 2, 9, 3)
    with pytest.raises(DeletionVectorError, match="has 2 rows, but the manifest says 3"):
        deletions.read(Bases(store), Fragment(3, (), wrong, 100))
    with pytest.raises(DeletionVectorError, match="row 10, but its fragment has only 10 rows"):
        deletions.read(Bases(store), Fragment(3, (), found.deletion_file, 10))
    with pytest.raises(MissingFileError):
        deletions.read(Bases(store), Fragment(4, (), found.deletion_file, 100))
    assert deletions.read(Bases(store), Fragment(4, (), None, 100)) == BitMap()


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_nth_live_row(case: tuple[int, set[int]]) -> None:
    rows, gone = case
    live = [i for i in range(rows) if i not in gone]
    deleted = deletions.offsets_of(BitMap(gone))
    found = deletions.live_offsets(deleted, np.arange(len(live), dtype=np.int64))
    assert found.tolist() == live
