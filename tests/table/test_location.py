"""Errors for locations that are not tables: folders of a table, and Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import rows
from trilake.errors import ForeignFilesError, TableNotFoundError


@pytest.fixture(params=["disk", "memory"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder for tables."""
    return str(tmp_path) if request.param == "disk" else f"memory://{request.node.name}"


PARTITIONS = pa.table({"p": ["a b", "5", None], "q": [1, 2, None], "n": [1, 2, 3]})


@pytest.mark.parametrize(
    ("columns", "folder", "filter"),
    [
        ("p", "p=a%20b", "p = 'a b'"),
        ("p", "p=5", "p = '5'"),
        (["q", "p"], "q=2/p=5", "q = 2 AND p = '5'"),
        (["q", "p"], "q=2", "q = 2"),
        ("p", "p=__HIVE_DEFAULT_PARTITION__", "p IS NULL"),
    ],
)
def test_partition_folder_suggests_a_filter(lake: str, columns: str, folder: str, filter: str) -> None:
    trilake.write(PARTITIONS, f"{lake}/t", partition_by=columns)
    for format in (None, "delta"):
        with pytest.raises(TableNotFoundError, match="got a location inside the Delta table") as missing:
            trilake.open(f"{lake}/t/{folder}", format=format)
        assert str(missing.value.help).endswith(f"and filter by {filter}")
    found = trilake.open(f"{lake}/t").to_arrow(filter=filter)
    assert found.num_rows == 1


def test_table_is_not_created_below_a_table(lake: str) -> None:
    trilake.write(PARTITIONS, f"{lake}/t", partition_by="p")
    for folder in ("p=5", "p=1/deep"):
        place = f"{lake}/t/{folder}"
        for mode in ("error", "append", "overwrite"):
            with pytest.raises(ForeignFilesError, match=r"inside the Delta table \S+/t,"):
                trilake.write({"n": [1]}, place, mode=mode)
        for format in ("lance", "trevni"):
            with pytest.raises(ForeignFilesError, match=r"inside the Delta table|is not a Trevni file"):
                trilake.write({"n": [1]}, place, format=format)
        with pytest.raises(ForeignFilesError, match="inside the Delta table"):
            trilake.sql(f"CREATE TABLE delta.`{place}` (n INT)")
        with pytest.raises(TableNotFoundError):
            trilake.open(place)
    assert rows(trilake.open(f"{lake}/t").to_arrow()) == rows(PARTITIONS)


def test_table_below_a_table_with_explicit_option(lake: str) -> None:
    trilake.write(PARTITIONS, f"{lake}/t")
    trilake.write({"n": [1]}, f"{lake}/t/_hidden")
    trilake.write({"n": [1]}, f"{lake}/t/own", allow_foreign_files=True)
    trilake.write({"n": [2]}, f"{lake}/t/own", mode="append")
    assert trilake.open(f"{lake}/t/own").count() == 2
    trilake.write({"n": [1]}, f"{lake}/beside")


def test_parquet_folder_suggests_convert(tmp_path: Path) -> None:
    folder = tmp_path / "files" / "year=2024"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), folder / "f.parquet")
    for format in (None, "delta"):
        for place in (folder / "f.parquet", folder, tmp_path / "files"):
            with pytest.raises(TableNotFoundError, match="Parquet file") as missing:
                trilake.open(place, format=format)
            assert "convert_to_delta" in str(missing.value.help)
    (tmp_path / "text").write_text("x")
    with pytest.raises(TableNotFoundError, match="no Delta, Lance or Trevni table found"):
        trilake.open(tmp_path / "text")
    with pytest.raises(TableNotFoundError, match="no Delta, Lance or Trevni table found"):
        trilake.open(tmp_path / "nothing")
