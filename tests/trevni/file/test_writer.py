"""The writer: blocks, spilling, options, errors, and atomic files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.trevni.test_arrow import written
from trilake.errors import InvalidArgumentError, SchemaMismatchError, UnknownOptionError
from trilake.trevni import ColumnOptions, TrevniFile, TrevniWriter, write


def rows_of(file: TrevniFile, column: str) -> list[int]:
    return [block.rows for block in file.columns[file.number(column)].blocks]


def test_blocks_end_like_those_of_the_reference() -> None:
    n = 600_000
    table = pa.table(
        {
            "boolean": pa.array(np.arange(n) % 3 == 0),
            "fixed32": pa.array(np.arange(n, dtype=np.float32)),
            "int": pa.array(np.full(n, 5, np.int32)),
            "null": pa.nulls(n),
            "empty": pa.array([[]] * n, pa.list_(pa.int32())),
        }
    )
    file = written(table)
    # A boolean block ends when byte 65536 is started; runs of lengths do not count.
    assert rows_of(file, "boolean") == [524281, n - 524281]
    assert rows_of(file, "fixed32")[:-1] == [16384] * (n // 16384)
    assert rows_of(file, "int")[:-1] == [65536] * (n // 65536)
    assert rows_of(file, "null") == rows_of(file, "empty") == [n]
    assert [b.raw_size for b in file.columns[3].blocks] == [0]
    assert file.read().equals(table)


def test_one_large_row_is_one_large_block() -> None:
    table = pa.table({"s": ["a", "x" * 1_000_000, "b"], "l": [[1], list(range(100_000)), []]})
    file = written(table)
    assert rows_of(file, "s") == [2, 1]
    assert file.read().equals(table)


def test_spilled_columns_keep_their_order(tmp_path: Path) -> None:
    table = pa.table({"i": range(200_000), "s": [f"row {i}" for i in range(200_000)], "n": [None, 1.5] * 100_000})
    path = tmp_path / "t.trv"
    spilled, kept = io.BytesIO(), io.BytesIO()
    write(table, spilled, codec="snappy", checksum="crc32", memory=100_000, folder=str(tmp_path))
    write(table, kept, codec="snappy", checksum="crc32")
    assert spilled.getvalue() == kept.getvalue()
    write(table, path, memory=100_000, folder=str(tmp_path))
    assert TrevniFile(path).read().equals(table)
    assert [p.name for p in tmp_path.iterdir()] == ["t.trv"]


def test_first_null_in_a_late_batch() -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.list_(pa.string()))]))])
    rows = [{"a": i, "s": {"x": ["k"] * (i % 3)}} for i in range(50)]
    late = [{"a": None, "s": None}, {"a": 1, "s": {"x": None}}, {"a": 2, "s": {"x": [None, "z"]}}]
    batches = [pa.RecordBatch.from_pylist(part, schema=schema) for part in (rows, late)]
    file = written(batches, block_size=8)
    assert file.read().to_pylist() == rows + late
    assert file.read(rows=[51, 3]).to_pylist() == [late[1], rows[3]]
    assert [c.name for c in file.columns][:2] == ["a?", "a"]


def test_column_options_and_metadata() -> None:
    options = {
        "b": ColumnOptions(codec="null", checksum="null", type="fixed64", metadata={"unit": b"m"}),
        "a": {"values": True},
    }
    file = written(
        {"a": [1, 2], "b": [3, 4]},
        codec="deflate",
        checksum="crc-32",
        metadata={"k": "v", "b": b"\xff"},
        columns=options,
    )
    a, b = file.columns
    assert (a.codec, a.checksum, a.values, b.codec, b.checksum, b.type) == (
        "deflate",
        "crc32",
        True,
        "null",
        "null",
        "fixed64",
    )
    assert b.metadata["unit"] == b"m"
    assert list(file.metadata) == ["trevni.codec", "trevni.checksum", "k", "b"]
    assert file.read().to_pydict() == {"a": [1, 2], "b": [3, 4]}


def test_rows_as_dictionaries() -> None:
    def rows() -> Iterator[dict[str, object]]:
        for i in range(40_000):
            yield {"i": i, "tags": [str(i)] * (i % 3)}

    sink = io.BytesIO()
    assert write(rows(), sink) == 40_000
    assert list(TrevniFile(sink.getvalue()))[39_999] == {"i": 39_999, "tags": []}


def nested(depth: int) -> pa.DataType:
    type_: pa.DataType = pa.int32()
    for _ in range(depth):
        type_ = pa.list_(type_)
    return type_


def test_copied_metadata_does_not_set_the_schema() -> None:
    """A file with it could not be read, because its columns state their types themselves."""
    one, other = io.BytesIO(), io.BytesIO()
    write({"a": ["x", None]}, one)
    write({"b": [1]}, other, metadata={**TrevniFile(one.getvalue()).metadata, "arrow.schemas": b"kept"})
    file = TrevniFile(other.getvalue())
    assert file.read().to_pydict() == {"b": [1]}
    assert file.metadata["arrow.schemas"] == b"kept"


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        ({"a": [1]}, {"codec": "zip"}, InvalidArgumentError),
        ({"a": [1]}, {"checksum": "md5"}, InvalidArgumentError),
        ({"a": [1]}, {"metadata": {"trevni.x": b""}}, InvalidArgumentError),
        ({"a": [1]}, {"columns": {"z": {}}}, InvalidArgumentError),
        ({"a": [1]}, {"columns": {"a": {"colour": 1}}}, UnknownOptionError),
        ({"a": [1]}, {"columns": {"a": {"type": "string"}}}, InvalidArgumentError),
        ({"a": [[1]]}, {"columns": {"a": {"values": True}}}, InvalidArgumentError),
        ({"a": [1, None]}, {"columns": {"a": {"values": True}}}, InvalidArgumentError),
        ({"a": [1]}, {"columns": "a"}, InvalidArgumentError),
        ({"a": [1]}, {"columns": 5}, InvalidArgumentError),
        ({"a": [1]}, {"columns": {"a": 5}}, InvalidArgumentError),
        ({"a": [1]}, {"metadata": 5}, InvalidArgumentError),
        ({"a": [1]}, {"codec": 5}, InvalidArgumentError),
        ({"a": [1]}, {"block_size": 0}, InvalidArgumentError),
        ({"a": [1]}, {"columns": {"a": {"metadata": {"trilake.sorted": b""}}}}, InvalidArgumentError),
        ({"a": [1]}, {"columns": {"a": {"metadata": {"arrow.presence": b"0"}}}}, InvalidArgumentError),
        (pa.table({"a": pa.nulls(1, nested(120))}), {}, InvalidArgumentError),
        (pa.table([[1], [2]], names=["a", "a"]), {}, InvalidArgumentError),
        ([{"a": 1}, "x"], {}, SchemaMismatchError),
        ([pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})], {}, SchemaMismatchError),
        (17, {}, InvalidArgumentError),
    ],
)
def test_rejected_data_leaves_no_file(data: object, options: dict, error: type, tmp_path: Path) -> None:
    with pytest.raises(error):
        write(data, tmp_path / "t.trv", **options)
    assert not list(tmp_path.iterdir())


def test_error_in_the_block_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "t.trv"
    write({"a": [1]}, path)

    def fail() -> None:
        with TrevniWriter(path, pa.schema([("a", pa.int64())])) as writer:
            writer.write(pa.record_batch({"a": [2]}))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert TrevniFile(path).read().to_pydict() == {"a": [1]}


def test_read_only_requested_columns_and_rows() -> None:
    table = pa.table({"a": range(100_000), "b": [f"text {i}" for i in range(100_000)]})
    sink = io.BytesIO()
    write(table, sink)

    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    source = Counting(sink.getvalue())
    file = TrevniFile(source)
    opened = source.taken
    assert file.read(["b"], rows=[77_777])["b"].to_pylist() == ["text 77777"]
    # Its block descriptors and one block.
    assert source.taken - opened < 2 * 65_536 + 4_096
