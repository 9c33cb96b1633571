"""Bytes read per operation, and memory use of large files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake.storage.memory import MemoryStore
from trilake.trevni import TrevniFile, TrevniTable, write
from trilake.trevni.blocks import source


class CountingStore(MemoryStore):
    """Records the bytes read."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        self.ranges.append((start, length))
        return super().read_range(key, start, length)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        return [self.read_range(key, start, length) for start, length in ranges]

    def read(self, key: str) -> pa.Buffer:
        raise AssertionError("the whole file was read")

    def open_input(self, key: str) -> pa.NativeFile:
        raise AssertionError("the file was opened, so it is not known what is read of it")


ROWS = 20_000
TABLE = pa.table(
    {
        "n": np.arange(ROWS),
        "s": [f"text number {i}" for i in range(ROWS)],
        "l": [[{"a": i, "b": [str(i)] * (i % 3)}] * (i % 4) for i in range(ROWS)],
    }
)


@pytest.fixture(params=["null", "deflate"])
def counted(request: pytest.FixtureRequest) -> tuple[TrevniFile, CountingStore]:
    """An open file with loaded block tables, and the count at zero."""
    store = CountingStore()
    write(TABLE, (store, "t.trv"), codec=request.param, block_size=1024, columns={"n": {"values": True}})
    file = TrevniFile((store, "t.trv"))
    assert file.columns
    store.ranges.clear()
    return file, store


def blocks_of(file: TrevniFile, name: str, row: int) -> tuple[int, int]:
    """The byte range of the block with a row."""
    (block,) = (b for b in file.columns[file.number(name)].blocks if b.row <= row < b.row + b.rows)
    return block.offset, block.offset + block.stored_size


def test_one_row_reads_its_blocks_only(counted: tuple[TrevniFile, CountingStore]) -> None:
    file, store = counted
    for row in (0, 7_777, ROWS - 1):
        store.ranges.clear()
        assert file.read(["n", "s"], rows=[row]).to_pylist() == [{"n": row, "s": f"text number {row}"}]
        found = sorted((start, start + length) for start, length in store.ranges)
        # The beginning of the file was read with its header.
        blocks = (blocks_of(file, name, row) for name in ("n", "s"))
        assert found == sorted(b for b in blocks if b[1] > source.BEGIN)


def test_nested_row_reads_few_blocks(
    counted: tuple[TrevniFile, CountingStore],
) -> None:
    file, store = counted
    assert file.read(["l"], rows=[9_999])["l"].to_pylist() == [TABLE["l"][9_999].as_py()]
    others = [c for c in file.columns if c.name not in ("n", "s")]
    first, last = (
        min(c.blocks[0].offset for c in others),
        max(c.blocks[-1].offset + c.blocks[-1].stored_size for c in others),
    )
    assert all(first <= start <= start + length <= last for start, length in store.ranges)
    assert sum(length for _, length in store.ranges) < (last - first) / 10


def test_seek_reads_one_block(counted: tuple[TrevniFile, CountingStore]) -> None:
    file, store = counted
    for value in (-5, 0, 1, 12_345, ROWS - 1, ROWS, 10**12):
        store.ranges.clear()
        assert file.seek("n", value) == min(max(value, 0), ROWS)
        assert len(store.ranges) <= 1


def test_open_and_count_read_the_header(counted: tuple[TrevniFile, CountingStore]) -> None:
    _, store = counted
    file = TrevniFile((store, "t.trv"))
    assert (file.row_count, len(file.header.columns), len(file.schema)) == (ROWS, 5, 3)
    assert len(store.ranges) == 1
    assert store.ranges[0][0] == 0


def test_projection_reads_its_column(counted: tuple[TrevniFile, CountingStore]) -> None:
    file, store = counted
    assert file.read(["s"]).num_rows == ROWS
    blocks = file.columns[file.number("s")].blocks
    begin, end = blocks[0].offset, blocks[-1].offset + blocks[-1].stored_size
    assert sum(length for _, length in store.ranges) == end - begin
    assert all(begin <= start for start, _ in store.ranges)


def test_filter_on_a_sorted_column_reads_few_blocks(tmp_path: Path) -> None:
    write(TABLE, tmp_path / "t.trv", block_size=1024, columns={"n": {"values": True}})
    assert TrevniTable(tmp_path).count("n = 15000") == 1
    assert "rows of the kept files are in blocks that may match" in TrevniTable(tmp_path).explain("n = 15000").notes[1]
    assert int(TrevniTable(tmp_path).explain("n = 15000").notes[1].split(" ")[0]) < 1_000


_LARGE = """
import resource, sys
import numpy as np, pyarrow as pa
from trilake.trevni import TrevniFile, TrevniWriter, write

rows, memory = 1 << 17, 16 << 20
schema = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())])

def batch(i):
    n = np.arange(i * rows, (i + 1) * rows)
    return pa.record_batch([n, n * 0.5, pa.array(n).cast(pa.string())], schema=schema)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

def anonymous():
    # What no file stands behind: pages of mapped files are the system's to drop.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

batch(0), write(pa.Table.from_batches([batch(0)]), sys.argv[1] + ".warm")
TrevniFile(sys.argv[1] + ".warm").read()
before = peak()
with TrevniWriter(sys.argv[1], schema, memory=memory, folder=sys.argv[2]) as writer:
    for i in range(int(sys.argv[3])):
        writer.write(batch(i))
written = peak() - before
file = TrevniFile(sys.argv[1])
count = total = most = 0
start = anonymous()
for one in file.batches(size=8 << 20):
    count += one.num_rows
    total += int(np.asarray(one["n"]).sum())
    most = max(most, anonymous() - start)
assert count == file.row_count and total == count * (count - 1) // 2
print(file.size, written, most)
"""


def large(folder: Path, batches: int) -> tuple[int, int, int]:
    """The size of a file of ``batches`` batches, and the memory growth while writing and reading it in batches."""
    path = folder / "large.trv"
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, str(path), str(folder), str(batches)],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    size, written, read = map(int, done.stdout.split())
    return size, written, read


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped and what is not")
def test_write_and_read_in_bounded_memory(tmp_path: Path) -> None:
    size, written, read = large(tmp_path, 30)
    assert size > 64 << 20
    assert written < 48 << 20
    assert read < 64 << 20
    # The spilled columns are deleted.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.trv", "large.trv.warm"]


def test_files_without_rows(counted: tuple[TrevniFile, CountingStore]) -> None:
    nothing: list[Any] = [[], range(0), slice(0, 0), np.array([], np.int64)]
    for none in nothing:
        assert counted[0].read(rows=none).equals(TABLE.slice(0, 0))
