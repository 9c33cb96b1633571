"""Detection of Parquet files with untyped columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trilake.parquet.untyped import first_untyped, footer_has_untyped


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize(
    ("column", "untyped"),
    [
        (pa.nulls(3), True),
        (pa.array([{"a": None}], pa.struct([("a", pa.null())])), True),
        (pa.array([[None]], pa.list_(pa.null())), True),
        (pa.nulls(3, pa.int32()), False),
        (pa.nulls(3, pa.string()), False),
    ],
)
def test_untyped_column_is_detected(tmp_path: Path, column: pa.Array, untyped: bool, store_schema: bool) -> None:
    # The bytes of this type may also occur elsewhere in a footer.
    notes = {"note": bytes([0xBC, 0, 0])}
    path = tmp_path / "f.parquet"
    table = pa.table({"x": column}).replace_schema_metadata(notes)
    pq.write_table(table, path, store_schema=store_schema)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": [1]}), other)
    assert (first_untyped([str(other), str(path)]) == str(path)) is untyped


def test_wide_footer_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    names = [f"column_with_a_long_name_{i}" for i in range(2000)]
    pq.write_table(pa.table({"v": pa.nulls(1), **{n: [i] for i, n in enumerate(names)}}), path)
    assert path.stat().st_size > 1 << 17
    assert first_untyped([str(path)]) == str(path)


def test_damaged_and_missing_files_are_not_untyped(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"v": pa.nulls(1)}), path)
    data = path.read_bytes()
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        assert first_untyped([str(path), str(tmp_path / "missing"), "a\0b"]) is None
    assert not footer_has_untyped(bytes([0xBC, 0, 0]))


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"v": pa.nulls(1)}), path)
    assert first_untyped([str(path)]) == str(path)
    pq.write_table(pa.table({"value": [1]}), path)
    assert first_untyped([str(path)]) is None
