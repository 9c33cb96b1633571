"""Scans: the rows do not depend on how many are read at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.scan import scan
from trilake.lance.scan.fragment_reader import FragmentReader

_ROWS = 5_000


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    """Some thousand rows in small groups, with every seventeenth row deleted."""
    random = np.random.default_rng(7)
    table = pa.table(
        {
            "id": np.arange(_ROWS),
            "x": random.random(_ROWS),
            "s": [f"text {i}" * (i % 5) for i in range(_ROWS)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(random.random(_ROWS * 8, np.float32)), 8),
        }
    )
    place = str(tmp_path_factory.mktemp("scan") / "t.lance")
    written = lance.write_dataset(table, place, max_rows_per_group=64, data_storage_version="legacy")
    written.delete("id % 17 = 3")
    return lance.dataset(place)


@pytest.mark.parametrize("condition", ["id < 700", "x < 0.01", "x < 0.6", "id >= 0", "s = 'text 4'", "id < 0"])
@pytest.mark.parametrize(("tested", "stored"), [(1, 4_000), (1_000, 4_000), (10_000, 40_000), (1 << 21, 4_000)])
def test_rows_do_not_depend_on_the_window_size(
    dataset: LanceDataset, monkeypatch: pytest.MonkeyPatch, condition: str, tested: int, stored: int
) -> None:
    expected = dataset.to_table(filter=condition, use_stats=False)
    monkeypatch.setattr(scan, "_TESTED_BYTES", tested)
    monkeypatch.setattr(scan, "CHUNK_BYTES", stored)
    assert dataset.to_table(filter=condition, use_stats=False).equals(expected)
    some = dataset.to_table(["s", "id"], filter=condition, limit=70, offset=11, with_row_id=True, use_stats=False)
    assert some["id"].to_pylist() == expected["id"].slice(11, 70).to_pylist()
    assert some["s"].to_pylist() == expected["s"].slice(11, 70).to_pylist()


def test_selective_filter_reads_larger_windows(dataset: LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = FragmentReader.read_range

    def spy(reader: FragmentReader, projection: object, start: int, stop: int) -> object:
        seen.append(stop - start)
        return original(reader, projection, start, stop)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(FragmentReader, "read_range", spy)
    batches = list(dataset.to_batches(filter="x >= 0", use_stats=False))
    assert seen[0] == _ROWS
    assert len(batches) > 5
    assert max(b.num_rows for b in batches) < 1_000
    seen.clear()
    dataset.to_table(filter="s = 'nope'", use_stats=False)  # string lengths are unknown before they are read
    assert max(seen) < 1_000


@pytest.fixture
def wide(tmp_path: Path) -> LanceDataset:
    """Rows of 2 kB, and in a second file a narrow column."""
    rows = 20_000
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.random.default_rng(1).random(rows * 256)), 256)
    dataset = lance.write_dataset(pa.table({"id": range(rows), "v": vectors}), tmp_path / "wide")
    dataset.add_columns({"even": "id % 2 = 0"})
    return dataset


def test_narrow_columns_beside_wide_ones_are_read_in_large_batches(wide: LanceDataset) -> None:
    """The bytes of a whole row decided how many rows are read at once: 4,096 here."""
    assert [b.num_rows for b in wide.to_batches(["id", "even"], batch_size=1 << 20)] == [20_000]
    assert len(list(wide.to_batches(batch_size=1 << 20))) > 2
    assert wide.to_table(["id"], filter="even AND id > 19990")["id"].to_pylist() == [19992, 19994, 19996, 19998]


def test_files_of_different_widths_are_valid(wide: LanceDataset) -> None:
    """Batches of 2.x are no part of the file; those of two files were compared."""
    wide.validate()
