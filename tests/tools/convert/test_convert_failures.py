"""Failures of ``trilake.convert``: nothing is visible or left behind, and no other files are removed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trilake
from tests.fault_store import Fault, FaultStore
from tests.tools.convert.conversions import FORMATS, ROWS, make, read, same_rows
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.conversion import DeltaRows
from trilake.errors import ChecksumMismatchError, StorageError, TableNotFoundError, TrilakeError, WriteFailedError
from trilake.lance.conversion import LanceRows
from trilake.storage import open_store
from trilake.storage.local import LocalStore
from trilake.storage.memory import MemoryStore
from trilake.tools.convert.parquet import ParquetFiles, ParquetOptions, ParquetRows
from trilake.trevni.conversion import TrevniRows
from trilake.trevni.tables.row_groups import RowGroupWriter


@pytest.mark.parametrize("end", FORMATS)
def test_rows_that_read_back_differently_are_not_visible(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the target's reader returns another value, the target must not exist."""
    source = make(ROWS.select(["n", "y", "f"]), "delta", str(tmp_path / "from"))
    target = {"delta": DeltaRows, "lance": LanceRows, "trevni": TrevniRows, "parquet": ParquetRows}[end]
    true_reader = target.read_back

    def wrong(self: Any, written: Any) -> Iterator[pa.RecordBatch]:
        for batch in true_reader(self, written):
            yield batch.set_column(0, batch.schema.field(0), pc.add(batch.column(0), pa.scalar(1, pa.int64())))

    options = {"nulls": "mask"} if end == "lance" else None
    with monkeypatch.context() as patch:
        patch.setattr(target, "read_back", wrong)
        with pytest.raises(ChecksumMismatchError, match="in column n; the target is unchanged"):
            trilake.convert(source, tmp_path / "to", format=end, options=options)
    left = [p for p in (tmp_path / "to").rglob("*") if p.is_file()]
    assert all("_staged" in p.parts for p in left)
    with pytest.raises(TableNotFoundError):
        trilake.open(tmp_path / "to")
    assert trilake.convert(source, tmp_path / "to", format=end, options=options).rows == 4


@pytest.mark.parametrize("end", FORMATS)
def test_failing_source_leaves_nothing(tmp_path: Path, end: str) -> None:
    source = tmp_path / "from"
    for i in range(3):
        trilake.write(ROWS.select(["n", "p"]).slice(i, 1), source, mode="append")
    files = sorted(source.glob("*.parquet"))
    files[-1].write_bytes(files[-1].read_bytes()[:-9])
    with pytest.raises(TrilakeError, match=r"\.parquet"):
        trilake.convert(source, tmp_path / "to", format=end)
    assert all("_staged" in p.parts for p in (tmp_path / "to").rglob("*") if p.is_file())


def test_memory_is_bounded_by_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are never collected: the source is only a few batches ahead of the target."""
    where = f"memory://{uuid.uuid4().hex}"
    store = open_store(f"{where}/a")
    rows = pa.table({"n": range(1_000_000)})
    with store.open_output("x.parquet") as sink:
        pq.write_table(rows, sink, row_group_size=1 << 16)
    seen: list[int] = []
    true_write = RowGroupWriter.write

    def write(self: RowGroupWriter, batch: pa.RecordBatch) -> None:
        seen.append(batch.num_rows)
        true_write(self, batch)

    monkeypatch.setattr(RowGroupWriter, "write", write)
    assert trilake.convert(f"{where}/a", f"{where}/b", format="trevni").rows == 1_000_000
    assert max(seen) <= 1 << 16
    assert len(seen) > 10


def test_buffered_rows_of_many_partitions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition buffered a row group, so that all rows of a table could be in memory."""
    monkeypatch.setattr("trilake.tools.convert.parquet._WAITING_BYTES", 8 * 1000)
    where, most = f"memory://{uuid.uuid4().hex}", [0]
    rows = pa.table({"n": range(10_000), "p": [f"p{i % 50}" for i in range(10_000)]})
    trilake.write(rows, f"{where}/a")
    true_write = ParquetFiles.write

    def write(self: ParquetFiles, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, 500):
            true_write(self, batch.slice(start, 500))
            most.append(sum(b.nbytes for waiting in self.waiting.values() for b in waiting))

    monkeypatch.setattr(ParquetFiles, "write", write)
    assert trilake.convert(f"{where}/a", f"{where}/b", format="parquet", partition_by="p").rows == 10_000
    assert max(most) <= 8 * 1000


def test_new_parquet_names_are_durable_before_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure ``_SUCCESS`` could exist without the old or the new files."""
    source = make(pa.table({"n": [1, 2], "p": ["x", "y"]}), "delta", str(tmp_path / "from"))
    target = tmp_path / "to"
    trilake.convert(source, target, format="parquet", partition_by="p")
    steps: list[str] = []
    true_delete = LocalStore.delete

    def delete(self: LocalStore, keys: Iterable[str]) -> None:
        names = list(keys)
        steps.extend("delete" for k in names if k.endswith(".parquet") and "=" in k.partition("/")[0])
        true_delete(self, names)

    monkeypatch.setattr(LocalStore, "delete", delete)
    monkeypatch.setattr("trilake.storage.staging.sync_folder", lambda path: steps.append(Path(path).name))
    trilake.convert(source, target, format="parquet", partition_by="p", mode="overwrite")
    assert sorted(steps[:2]) == ["p=x", "p=y"]
    assert steps[2:] == ["delete", "delete"]


def test_row_error_is_raised_if_cleanup_fails() -> None:
    """The store's error replaced it."""
    store = FaultStore(MemoryStore(), [Fault("delete", times=9)])
    schema = pa.schema({"n": pa.int64(), "p": pa.string()})
    options = ParquetOptions(file_rows=1, row_group_rows=1)
    rows = ParquetRows(store, "job", schema, ("p",), options, ("n", "p"), SYSTEM_RUNTIME)
    batch = pa.record_batch([pa.array([1]), ["x"]], schema=schema)

    def write() -> None:
        with ParquetFiles(rows, 0) as files:
            files.write(batch)
            assert len(files.done) == 1
            raise WriteFailedError("these rows")

    with pytest.raises(WriteFailedError, match="these rows"):
        write()


def test_progress_covers_reading_and_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilake.tools.convert import run

    bars = []
    true_progress = run.progress

    def progress(*args: Any, **more: Any) -> Any:
        bars.append(true_progress(*args, **more))
        return _Kept(bars)

    class _Kept:
        def __init__(self, made: list[Any]) -> None:
            self.manager = made.pop()

        def __enter__(self) -> Any:
            bars.append(self.manager.__enter__())
            return bars[-1]

        def __exit__(self, *error: Any) -> Any:
            return self.manager.__exit__(*error)

    monkeypatch.setattr(run, "progress", progress)
    source = make(ROWS, "delta", str(tmp_path / "from"))
    trilake.convert(source, tmp_path / "to", format="trevni")
    assert [(b.label, b.total, b.done, b.unit) for b in bars] == [("convert", 8, 8, "rows")]


def test_parquet_folder_that_cannot_be_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilake.tools.convert import parquet

    source = make(ROWS, "delta", str(tmp_path / "from"), partition_by="p")
    trilake.convert(source, tmp_path / "to", format="parquet")
    before = sorted((tmp_path / "to").rglob("*.parquet"))
    true_move, calls = parquet.move, []

    def move(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise OSError("the disk is full")
        true_move(*args)

    monkeypatch.setattr(parquet, "move", move)
    with pytest.raises(WriteFailedError, match="the disk is full"):
        trilake.convert(source, tmp_path / "to", format="parquet", mode="overwrite")
    assert sorted((tmp_path / "to").rglob("*.parquet")) == before
    assert same_rows(read(str(tmp_path / "to")), ROWS)


@pytest.mark.parametrize("behind", ["link", "table"])
def test_parquet_overwrite_spares_links_and_other_tables(tmp_path: Path, behind: str) -> None:
    source, folder = make(ROWS, "delta", str(tmp_path / "from")), tmp_path / "to"
    trilake.convert(source, folder, format="parquet")
    if behind == "link":
        trilake.convert(source, tmp_path / "theirs", format="parquet")
        (folder / "inner").symlink_to(tmp_path / "theirs")
        kept = tmp_path / "theirs"
    else:
        trilake.write(ROWS, str(folder / "inner"))
        kept = folder / "inner"
    before = sorted(p.name for p in (*kept.iterdir(), *folder.iterdir()))
    with pytest.raises(StorageError, match="behind a symbolic link or in another table"):
        trilake.convert(source, folder, format="parquet", mode="overwrite")
    assert sorted(p.name for p in (*kept.iterdir(), *folder.iterdir())) == before


def test_staged_parquet_files_behind_links_are_not_removed(tmp_path: Path) -> None:
    from trilake.tools.convert import parquet

    (tmp_path / "theirs" / "job").mkdir(parents=True)
    (tmp_path / "theirs" / "job" / "x").write_text("x")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "_temporary").symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageError):
        parquet.clean(open_store(str(tmp_path / "to")), "job")
    assert (tmp_path / "theirs" / "job" / "x").exists()
