"""Write options of single data files: maximum rows and compression."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from trilake.errors import InvalidArgumentError


def _footers(path: Path) -> list[pq.FileMetaData]:
    files = trilake.open(str(path)).snapshot.adds  # type: ignore[attr-defined]
    return [pq.read_metadata(path / p) for p in files["path"].to_pylist()]


@pytest.mark.parametrize(("rows", "most", "sizes"), [(25, 10, [5, 10, 10]), (20, 10, [10, 10]), (3, 1, [1, 1, 1])])
def test_files_respect_max_records_per_file(tmp_path: Path, rows: int, most: int, sizes: list[int]) -> None:
    data = pa.table({"n": pa.array(range(rows), pa.float64())})
    trilake.write(data, tmp_path, max_records_per_file=most)
    assert sorted(f.num_rows for f in _footers(tmp_path)) == sizes
    assert sorted(trilake.open(str(tmp_path)).to_arrow()["n"].to_pylist()) == list(range(rows))


def test_record_limit_applies_per_partition_and_with_nan(tmp_path: Path) -> None:
    data = pa.table({"p": ["a", "b"] * 15, "n": [1.0] * 28 + [float("nan")] * 2})
    trilake.write(data.to_batches(max_chunksize=4), tmp_path, partition_by="p", max_records_per_file=6)
    assert max(f.num_rows for f in _footers(tmp_path)) <= 6
    assert trilake.open(str(tmp_path)).count() == 30


@pytest.mark.parametrize(("given", "expected"), [("ZSTD", "ZSTD"), ("gzip", "GZIP"), ("uncompressed", "UNCOMPRESSED")])
def test_files_use_the_given_compression(tmp_path: Path, given: str, expected: str) -> None:
    trilake.write(pa.table({"n": [1, 2]}), tmp_path, compression=given)
    assert {f.row_group(0).column(0).compression for f in _footers(tmp_path)} == {expected}


def test_invalid_options_are_rejected_before_writing(tmp_path: Path) -> None:
    data = pa.table({"n": [1]})
    rejected: list[tuple[str, dict[str, object]]] = [
        ("above 0, got 0", {"max_records_per_file": 0}),
        ("compression must be one of .*, got 'lzma'", {"compression": "lzma"}),
        ("the table's files are lance", {"compression": "zstd", "data_format": "lance"}),
        ("compression needs a table with a log", {"compression": "zstd", "format": "lance"}),
        ("max_records_per_file needs a table with a log", {"max_records_per_file": 5, "format": "trevni"}),
        ("partition_overwrite needs a table with a log", {"partition_overwrite": "dynamc", "format": "lance"}),
    ]
    for message, how in rejected:
        with pytest.raises(InvalidArgumentError, match=message):
            trilake.write(data, tmp_path / "t", **how)  # type: ignore[arg-type]
        assert not (tmp_path / "t").exists()
