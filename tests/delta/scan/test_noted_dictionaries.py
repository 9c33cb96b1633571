"""Files with dictionaries in their Arrow schema are read with any encoding."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import opened, parquet, rows, table_of
from trilake.delta.scan import data_files, parquet_rows
from trilake.delta.verify import data_files as verified_files
from trilake.errors import CorruptFileError, UnsupportedFileError

ENCODINGS = ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN")
WORDS = pa.array(["a", "b", None, "a"])
ROWS = {
    "s": WORDS.dictionary_encode(),
    "b": WORDS.cast(pa.binary()).dictionary_encode(),
    "in": pa.StructArray.from_arrays([WORDS.dictionary_encode()], ["s"]),
    "l": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), WORDS.dictionary_encode()),
    "n": pa.array([1, 2, 3, 4]),
}
PLAIN = [
    {"s": w, "b": None if w is None else w.encode(), "in": {"s": w}, "l": [w], "n": n}
    for n, w in enumerate(WORDS.to_pylist(), 1)
]


def _file(encoding: str) -> bytes:
    encodings = {"s": encoding, "b": encoding, "in.s": encoding, "l.list.element": encoding}
    return parquet(pa.table(ROWS), use_dictionary=False, column_encoding=encodings)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_dictionary_columns_are_read_in_any_encoding(encoding: str) -> None:
    table = table_of(_file(encoding), schema=pa.table(ROWS).schema)
    assert rows(table.to_arrow()) == sorted(PLAIN, key=repr)
    assert table.to_arrow(filter="s = 'a' AND in.s = 'a'")["n"].to_pylist() == [1, 4]
    assert table.to_arrow(["n"], filter="b IS NULL")["n"].to_pylist() == [3]
    table.update({"s": "'new'"}, where="n = 1")
    assert table.delete("n = 2").version == 2
    changed = opened(table.uri)
    changed.optimize()
    assert sorted(map(str, trilake.open(table.uri).to_arrow()["s"].to_pylist())) == ["None", "a", "new"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_many_small_files_with_dictionary_columns_are_read(encoding: str) -> None:
    table = table_of(*[_file(encoding)] * 70, schema=pa.table(ROWS).schema)
    assert table.to_arrow(["s"])["s"].to_pylist() == WORDS.to_pylist() * 70


def test_abandoned_dictionary_is_read_as_values() -> None:
    """Some writers switch the encoding when a dictionary grows too large."""
    strings = [f"{i % 7:03}" for i in range(20_000)] + [f"{i:07}" for i in range(2_000)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("s", pa.string())]), dictionary_pagesize_limit=100) as writer:
        writer.write_table(pa.table({"s": strings}))
    table = table_of(sink.getvalue().to_pybytes(), schema=pa.schema([("s", pa.string())]))
    table.update({"s": "'x'"}, where="s = '001'")
    expected = ["x" if t == "001" else t for t in strings]
    assert sorted(trilake.open(table.uri).to_arrow()["s"].to_pylist()) == sorted(expected)


def test_corpus_of_delta_encodings_is_read(shared: Path, tmp_path: Path) -> None:
    for name in ("parquet_delta_byte_array", "parquet_delta_length_byte_array"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "f.parquet").write_bytes((shared / "corpus" / "faults" / name / "f.parquet").read_bytes())
        trilake.convert_to_delta(str(folder))
        table = trilake.open(folder)
        assert table.to_arrow(["s"])["s"].to_pylist() == ["a", "b", None, "a"]
        assert table.to_arrow(filter="s = 'a'").num_rows == 2


@pytest.mark.parametrize("module", [data_files, parquet_rows])
def test_unsupported_encoding_is_not_corruption(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    def lacking(*args: Any, **options: Any) -> Any:
        raise pa.ArrowNotImplementedError("some encoding")

    table = table_of(pa.table({"a": [1, 2]}))
    monkeypatch.setattr(module, "open_parquet", lacking)
    work = table.to_arrow if module is data_files else partial(table.update, {"a": "3"}, where="a = 1")
    with pytest.raises(
        UnsupportedFileError, match="the Parquet reader does not support the file: some encoding"
    ) as rejected:
        work()
    assert not isinstance(rejected.value, CorruptFileError)


def test_verify_does_not_drop_unsupported_files(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(pa.table({"a": [1, 2]}))

    def lacking(*args: Any, **options: Any) -> Any:
        raise pa.ArrowNotImplementedError("some encoding")

    for module in (data_files, parquet_rows, verified_files):
        monkeypatch.setattr(module, "open_parquet", lacking)
    result = trilake.verify(table.uri)
    assert list(result)
    assert not any(f.repair for f in result)
