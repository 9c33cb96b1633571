"""Who reads the files of a table: threads for large or distant ones, the caller for a few small ones at hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import add, log_of, metadata, parquet, protocol
from trilake.delta.scan import read
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads of each read that has some."""
    found: list[int] = []
    real = read._parallel
    monkeypatch.setattr(
        read, "_parallel", lambda tasks, one, workers: found.append(workers) or real(tasks, one, workers)
    )
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    return found


@pytest.mark.parametrize(("files", "rows", "expected"), [(3, 2, []), (9, 2, [4]), (2, 50_000, [2])])
def test_a_few_small_local_files_are_read_by_the_caller(
    files: int, rows: int, expected: list[int], tmp_path: Path, counts: list[int]
) -> None:
    for i in range(files):
        trilake.write(pa.table({"a": range(i * rows, (i + 1) * rows)}), tmp_path, mode="append")
    counts.clear()
    assert sorted(trilake.open(tmp_path).to_arrow()["a"].to_pylist()) == list(range(files * rows))
    assert counts == expected


def test_files_of_a_distant_store_are_asked_for_together(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
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
