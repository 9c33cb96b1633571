"""Reading the files of a bin: in order, with many small ones at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trilake
from tests.delta.tables import new_uri
from trilake.delta.commands.optimize.rewrite import in_turn
from trilake.delta.commands.rows.row_changes import ChangedFile
from trilake.delta.files.file_writer import ParquetFile
from trilake.delta.scan.read import packs
from trilake.delta.scan.scan import FileTask
from trilake.storage import open_store


def files_of(sizes: list[int]) -> list[ChangedFile]:
    return [ChangedFile(i, FileTask(f"{i}.parquet", size, {})) for i, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 1 << 24), max_size=300), st.integers(0, 100))
def test_packs_cover_all_files_within_limits(sizes: list[int], most: int) -> None:
    made = [list(pack) for pack in packs(files_of(sizes), lambda item: item.file.size, most)]
    assert [item.number for pack in made for item in pack] == list(range(len(sizes)))
    for pack in made:
        assert 1 <= len(pack) <= max(1, min(most, 1024))
        assert len(pack) == 1 or sum(item.file.size for item in pack) <= 8 << 20


def rows_of(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
    for item in pack:
        yield pa.record_batch({"x": [item.number, item.number]})


def test_small_files_are_read_in_order_in_few_batches() -> None:
    batches = list(in_turn(files_of([100] * 1_000), rows_of, 2))
    assert [x for b in batches for x in b["x"].to_pylist()[::2]] == list(range(1_000))
    assert len(batches) <= 4


def test_few_files_are_read_separately() -> None:
    """Each may have latency: a slow store is asked for several files at once."""
    assert len(list(in_turn(files_of([100] * 10), rows_of, 2))) == 10


def test_large_rows_of_small_files_are_not_buffered_together() -> None:
    def wide(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
        for _ in pack:
            yield pa.record_batch({"x": [b"x" * (1 << 20)]})

    assert max(b.nbytes for b in in_turn(files_of([100] * 400), wide, 1)) <= 5 << 20


def test_error_in_a_pack_is_raised_and_ends_the_threads() -> None:
    def broken(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
        if any(item.number == 700 for item in pack):
            raise OSError("gone")
        return rows_of(pack)

    before = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        list(in_turn(files_of([100] * 1_000), broken, 2))
    assert threading.active_count() == before


def test_small_batches_are_combined_before_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column with 20,000 chunks takes ten times as long to write as one with few."""
    chunks: list[int] = []
    write = ParquetFile.write

    def counted(self: ParquetFile, table: pa.Table) -> None:
        chunks.append(table.column(0).num_chunks)
        write(self, table)

    monkeypatch.setattr(ParquetFile, "write", counted)
    schema = pa.schema({"x": pa.int64()})
    pieces = (pa.record_batch({"x": pa.array([i, i])}) for i in range(5_000))
    uri = new_uri()
    trilake.write(pa.RecordBatchReader.from_batches(schema, pieces), uri)
    assert chunks == [1]
    assert trilake.open(uri).to_arrow()["x"].to_pylist() == [i for i in range(5_000) for _ in range(2)]
    assert len([m for m in open_store(uri).list() if m.key.endswith(".parquet")]) == 1
