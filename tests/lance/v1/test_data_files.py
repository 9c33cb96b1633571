"""``lance.file``: single data files of the legacy format, read and written without a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import (
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    SchemaMismatchError,
    UnsupportedProtocolError,
)
from trilake.lance import LanceFragment, LanceOperation
from trilake.lance.file import LanceFileReader, LanceFileWriter

ROWS = pa.table(
    {
        "id": range(3000),
        "s": [None if i % 3 == 0 else f"t{i}" for i in range(3000)],
        "kind": pa.array([f"k{i % 5}" for i in range(3000)]).dictionary_encode(),
    }
)


def test_written_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.lance"
    with lance.file.LanceFileWriter(path, version="legacy", max_page_bytes=1 << 20) as writer:
        for at in range(0, 3000, 700):
            writer.write_batch(ROWS.slice(at, 700))
        writer.add_schema_metadata("written", "here")
        assert not path.exists()
    reader = LanceFileReader(str(path))
    assert reader.read_all().to_table().equals(ROWS)
    assert (reader.num_rows(), reader.metadata().num_rows, reader.metadata().size) == (3000, 3000, path.stat().st_size)
    assert reader.metadata().schema.metadata == {b"written": b"here"}
    assert [b.num_rows for b in reader.read_all(batch_size=2000).to_batches()] == [2000, 1000]
    for start, rows in (0, 1), (699, 2), (1400, 1600), (2999, 1), (5, 0), (3000, 0):
        assert reader.read_range(start, rows).to_table().equals(ROWS.slice(start, rows))
    places = [0, 3, 3, 699, 700, 2999]
    for given in (places, np.array(places), pa.array(places)):
        assert reader.take_rows(given).to_table().equals(ROWS.take(places))
    some = LanceFileReader(path, columns=["s", "id"])
    assert some.take_rows([7]).to_table().to_pylist() == [{"s": "t7", "id": 7}]


def test_data_files_of_datasets(tmp_path: Path) -> None:
    written = lance.write_dataset(ROWS, tmp_path / "t", nulls="mask", data_storage_version="legacy")
    written.delete("id < 10")
    [entry] = written.get_fragments()[0].data_files()
    reader = LanceFileReader(tmp_path / "t" / "data" / entry.path)
    assert reader.read_all().to_table().equals(ROWS)
    with LanceFileWriter(tmp_path / "u" / "data" / "two.lance", version="legacy") as writer:
        writer.write_batch(ROWS.select(["id", "s"]))
    fragment = LanceFragment.create_from_file("two.lance", ROWS.select(["id", "s"]).schema, 0)
    schema = ROWS.select(["id", "s"]).schema
    dataset = lance.LanceDataset.commit(tmp_path / "u", LanceOperation.Overwrite(schema, [fragment]))
    assert dataset.to_table().equals(ROWS.select(["id", "s"]))


def test_nulls_in_files() -> None:
    rows = pa.table({"n": [1, None], "v": [[1.0], None]})
    with (
        pytest.raises(SchemaMismatchError, match="null would be lost"),
        LanceFileWriter("memory://files/n", version="legacy") as writer,
    ):
        writer.write_batch(rows)
    with pytest.raises(MissingFileError):
        LanceFileReader("memory://files/n")
    with LanceFileWriter("memory://files/n", version="legacy", nulls="mask") as writer:
        writer.write_batch(rows)
    assert LanceFileReader("memory://files/n").read_all().to_table().equals(rows)
    assert LanceFileReader("memory://files/n", columns=["v"]).read_all().to_table().to_pydict() == {"v": [[1.0], None]}


def test_files_without_rows() -> None:
    writer = LanceFileWriter("memory://files/none", ROWS.schema, version="legacy")
    assert writer.close() == 0
    read = LanceFileReader("memory://files/none").read_all().to_table()
    assert (read.num_rows, read.schema.names) == (0, ROWS.schema.names)
    with pytest.raises(InvalidArgumentError, match="closed"):
        writer.write_batch(ROWS)
    with pytest.raises(InvalidArgumentError, match="Schema is unknown"):
        LanceFileWriter("memory://files/empty").close()


def test_invalid_arguments_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'2\.9'"):
        LanceFileWriter(tmp_path / "x", version="2.9")
    with pytest.raises(TypeError, match="'compression'"):
        LanceFileWriter(tmp_path / "x", compression="zstd")
    with pytest.raises(InvalidArgumentError, match="is a folder"):
        LanceFileReader(f"{tmp_path}/")
    writer = LanceFileWriter("memory://files/x", ROWS.schema, version="legacy")
    with pytest.raises(SchemaMismatchError, match="column s is missing"):
        writer.write_batch(ROWS.select(["id"]))
    with pytest.raises(TypeError, match="metadata"):
        writer.add_schema_metadata("a", 1)
    with pytest.raises(AttributeError, match="global buffers"):
        writer.add_global_buffer(b"")
    writer.write_batch(ROWS)
    writer.close()
    reader = LanceFileReader("memory://files/x")
    bad: list[Any] = [lambda: reader.read_range(2999, 2), lambda: reader.read_range(-1, 1)]
    bad += [lambda: reader.take_rows([3000]), lambda: reader.take_rows([2, 1]), lambda: reader.read_all(batch_size=0)]
    for call in bad:
        with pytest.raises(InvalidArgumentError):
            call()
    (tmp_path / "damaged.lance").write_bytes(b"no file of Lance, though it is long enough")
    with pytest.raises(CorruptFileError):
        LanceFileReader(tmp_path / "damaged.lance")
    (tmp_path / "second.lance").write_bytes(bytes(40) + b"\x02\x00\x00\x00\x02\x00\x09\x00LANC")
    with pytest.raises(UnsupportedProtocolError):
        LanceFileReader(tmp_path / "second.lance")
