"""Data files by pylance's names: readers, writers and sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.file import LanceFileReader, LanceFileSession, LanceFileWriter, ListResult, stable_version
from trilake.lance.fragment import DataFile


def written(rows: Any, uri: Any, **options: Any) -> lance.LanceDataset:
    """A dataset in the current format."""
    return lance.write_dataset(rows, uri, **{"data_storage_version": "2.2", **options})


ROWS = pa.table({"a": [1, 2, None], "s": ["x", None, "z"]})


@pytest.mark.parametrize(
    ("version", "footer"), [("2.0", (0, 3)), ("2.1", (2, 1)), ("2.2", (2, 2)), (None, (2, 2)), ("legacy", (0, 1))]
)
def test_file_version_is_written_and_reported(tmp_path: Path, version: Any, footer: tuple[int, int]) -> None:
    path = tmp_path / "x.lance"
    rows = ROWS if version != "legacy" else pa.table({"a": [1, 2, 3]})
    with LanceFileWriter(path, rows.schema, version=version) as writer:
        writer.write_batch(rows)
    reader = LanceFileReader(path)
    assert reader.read_all().to_table().equals(rows)
    said = reader.metadata()
    assert (said.major_version, said.minor_version, said.num_rows, said.size) == (*footer, 3, path.stat().st_size)
    assert writer.size_bytes == path.stat().st_size
    assert writer.close() is None
    assert stable_version() == "2.2"


def test_column_metadata_lists_pages(tmp_path: Path) -> None:
    with LanceFileWriter(tmp_path / "x.lance") as writer:
        writer.write_batch(ROWS)
        number = writer.add_global_buffer(b"more")
    reader = LanceFileReader(tmp_path / "x.lance")
    said = reader.metadata()
    assert [len(column.pages) for column in said.columns] == [1, 1]
    buffers = [b for column in said.columns for page in column.pages for b in page.buffers]
    assert all(b.position % 64 == 0 and b.size for b in buffers)
    assert said.num_data_bytes == sum(b.size for b in buffers)
    assert all(page.encoding for column in said.columns for page in column.pages)
    assert (said.num_column_metadata_bytes > 0, said.global_buffers[number].size) == (True, 4)
    assert [c.num_pages for c in reader.file_statistics().columns] == [1, 1]
    assert reader.read_global_buffer(number) == b"more"
    with pytest.raises(InvalidArgumentError, match="the file has 2"):
        reader.read_global_buffer(2)


def test_page_size_of_2_0_is_bounded(tmp_path: Path) -> None:
    for version, pages in (("2.0", 3), ("2.1", 1)):
        with LanceFileWriter(tmp_path / version, version=version, max_page_bytes=1) as writer:
            writer.write_batch(pa.table({"a": [1, 2, 3]}))
        assert len(LanceFileReader(tmp_path / version).metadata().columns[0].pages) == pages


def test_file_without_schema_or_rows_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Schema is unknown"), LanceFileWriter(tmp_path / "x"):
        pass
    with pytest.raises(UnsupportedProtocolError, match=r"2\.3"):
        LanceFileWriter(tmp_path / "x", ROWS.schema, version="2.3")
    with pytest.raises(TypeError, match="no option"):
        LanceFileWriter(tmp_path / "x", compression="zstd")  # type: ignore[call-arg]


def test_blobs_of_files_are_read_as_bytes(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("v", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    for version in ("2.0", "2.1", "2.2"):
        with LanceFileWriter(tmp_path / "x.lance", schema, version=version) as writer:
            writer.write_batch(pa.table({"v": [b"abc", b"", b"d" * 70_000]}, schema=schema))
        read = LanceFileReader(tmp_path / "x.lance").read_all().to_table()
        assert read["v"].to_pylist() == [b"abc", b"", b"d" * 70_000]


def test_session_reads_lists_and_removes(tmp_path: Path) -> None:
    session = LanceFileSession(tmp_path)
    for path in ("x.lance", "below/y.lance", "below/more/z.lance"):
        with session.open_writer(path, schema=ROWS.schema) as writer:
            writer.write_batch(ROWS)
    assert session.open_reader("below/y.lance", columns=["s"]).read_all().to_table().equals(ROWS.select(["s"]))
    assert sorted(session.list()) == ["below/more/z.lance", "below/y.lance", "x.lance"]
    assert session.list("below/more/") == session.list("below/more") == ["below/more/z.lance"]
    assert session.list_with_delimiter() == ListResult(["below"], ["x.lance"])
    assert session.list_with_delimiter("below") == ListResult(["below/more"], ["below/y.lance"])
    (tmp_path / "source").write_bytes(b"0123456789")
    session.upload_file(tmp_path / "source", "up/loaded")
    assert (session.read_range("up/loaded", 2, 3), session.read_range("up/loaded", 4, 0)) == (b"234", b"")
    session.download_file("up/loaded", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == b"0123456789"
    session.delete_file("up/loaded")
    assert (session.contains("up/loaded"), session.contains("x.lance")) == (False, True)
    for call in (session.delete_file, lambda path: session.read_range(path, 0, 1)):
        with pytest.raises(OSError, match="up/loaded"):
            call("up/loaded")


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.2"])
def test_data_file_is_described_for_a_dataset(tmp_path: Path, version: str) -> None:
    rows = pa.table({"a": [1, 2], "at": [{"x": 1}, {"x": 2}]})
    dataset = written(rows, tmp_path / "t", data_storage_version=version)
    with LanceFileWriter(tmp_path / "t" / "data" / "new.lance", version=version) as writer:
        writer.write_batch(rows if version == "legacy" else rows.select(["at", "a"]))
    expected = dataset.get_fragments()[0].metadata.files[0]
    file = DataFile.create(dataset, "new.lance")
    assert sorted(file.fields) == sorted(expected.fields)
    assert (file.file_major_version, file.file_minor_version) == (
        expected.file_major_version,
        expected.file_minor_version,
    )
    fragment = lance.LanceFragment.create_from_file("new.lance", dataset, 1)
    done = lance.LanceDataset.commit(dataset, lance.LanceOperation.Append([fragment]), read_version=1)
    assert done.to_table().to_pylist() == rows.to_pylist() * 2
    with LanceFileWriter(tmp_path / "t" / "data" / "odd.lance", version=version) as writer:
        writer.write_batch(pa.table({"b": [1]}))
    with pytest.raises(KeyError, match="'b'"):
        DataFile.create(dataset, "odd.lance")
