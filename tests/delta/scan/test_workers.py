"""Reads use threads for large or remote files, and the calling thread for a few small local ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import add, log_of, metadata, new_uri, opened, parquet, protocol
from trilake.delta.scan import read
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptFileError
from trilake.storage import open_store


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads per read that uses threads."""
    result: list[int] = []
    real = read._parallel
    monkeypatch.setattr(
        read, "_parallel", lambda tasks, one, workers: result.append(workers) or real(tasks, one, workers)
    )
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    return result


@pytest.mark.parametrize(("files", "rows", "expected"), [(3, 2, []), (9, 2, [4]), (2, 50_000, [2])])
def test_few_small_local_files_are_read_by_the_caller(
    files: int, rows: int, expected: list[int], tmp_path: Path, counts: list[int]
) -> None:
    for i in range(files):
        trilake.write(pa.table({"a": range(i * rows, (i + 1) * rows)}), tmp_path, mode="append")
    counts.clear()
    assert sorted(trilake.open(tmp_path).to_arrow()["a"].to_pylist()) == list(range(files * rows))
    assert counts == expected


def test_files_of_a_remote_store_are_read_in_parallel(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    data = [parquet(pa.table({"a": [i]})) for i in range(3)]
    store = log_of([protocol(), metadata(), *(add(f"f{i}", size=len(d)) for i, d in enumerate(data))]).store
    for i, content in enumerate(data):
        store.put(f"f{i}", content)
    table = ArrowDeltaTable(store, standard_engine())
    table.to_arrow()
    assert counts == []
    monkeypatch.setattr(store, "uri", "s3://bucket/table")
    assert sorted(table.to_arrow()["a"].to_pylist()) == [0, 1, 2]
    assert counts == [3]


@pytest.mark.parametrize("where", [None, "v % 7 = 3 AND p = 'b'", "t = 'x' OR d < 3"])
def test_many_small_files_are_read_together(where: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows equal a file-by-file read: partition values, deleted rows, the filter and other columns."""
    uri = new_uri()
    schema = pa.schema([("v", pa.int64()), ("t", pa.string()), ("p", pa.string()), ("d", pa.float64())])
    properties = {"delta.enableDeletionVectors": "true"}
    trilake.create(uri, schema, partition_by=["p"], properties=properties)
    transaction = trilake.Transaction(open_store(uri))
    for n in range(700):
        rows = {"v": range(n, n + 5), "t": [f"t{n}", None] * 2 + ["x"], "p": ["abc"[n // 300]] * 5, "d": [n / 2] * 5}
        transaction.write(pa.table(rows, schema=schema))
    transaction.commit("WRITE")
    table = opened(uri)
    table.delete("v in (20, 400)")
    table = trilake.open(uri)
    merged: list[int] = []
    real = read.merge_files
    monkeypatch.setattr(read, "merge_files", lambda files: merged.append(len(files)) or real(files))
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def rows(columns: list[str]) -> pa.Table:
        return table.to_arrow(columns, filter=where).sort_by([(name, "ascending") for name in columns])

    together = {names: rows(list(names)) for names in (("v", "t", "p", "d"), ("v", "t"))}
    assert sum(merged) > 500
    monkeypatch.setattr(read, "FEWEST", 1 << 20)
    merged.clear()
    for names, result in together.items():
        assert result.equals(rows(list(names)))
        assert result.num_rows
    assert not merged
    assert table.count() == 3500 - 10


def test_damaged_file_among_many_is_named() -> None:
    uri = new_uri()
    trilake.create(uri, pa.schema([("v", pa.int64())]))
    store = open_store(uri)
    transaction = trilake.Transaction(store)
    for n in range(300):
        transaction.write(pa.table({"v": [n] * 100}))
    transaction.commit("WRITE")
    table = trilake.open(uri)
    bad = table.files()["path"].to_pylist()[200]
    data = bytearray(store.read(bad))
    data[20:40] = bytes(20)
    store.put(bad, bytes(data))
    with pytest.raises(CorruptFileError, match=bad):
        table.to_arrow()
