"""Tables of many files: listing, partitions, filters, splits, staged writes."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.trevni.crafted import Block, Col, craft, zigzag
from trilake.errors import SchemaMismatchError, TableExistsError, TableNotFoundError
from trilake.expr import parse_filter
from trilake.storage import open_store
from trilake.table.folders import DataFile, partition_fields, partition_values
from trilake.trevni import RowGroupWriter, TrevniFile, TrevniTable, WriteOptions, read_split, write, write_table
from trilake.trevni.tables.dataset import candidate_rows

ROWS = pa.table({"id": range(60_000), "s": [f"s{i}" for i in range(60_000)], "n": [None, 1.5] * 30_000})


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("t")
    for year in (2023, 2024):
        for day in ("a b", "__HIVE_DEFAULT_PARTITION__"):
            folder = root / f"y={year}" / f"d={day}"
            folder.mkdir(parents=True)
            write(ROWS, folder / "part-0.trv", codec="snappy", columns={"id": {"values": True}})
    (root / "_SUCCESS").touch()
    return root


def test_folder_of_partitions(partitioned: Path) -> None:
    table = TrevniTable(partitioned)
    assert table.schema.names == ["id", "s", "n", "y", "d"]
    assert (table.schema.field("y").type, table.schema.field("d").type) == (pa.int32(), pa.string())
    assert table.count() == 240_000
    assert table.count("id < 10") == 40
    assert table.count("y = 2023 AND d IS NULL AND id BETWEEN 5 AND 9") == 5
    found = table.to_arrow(["S", "d"], "id = 59999 AND y = 2023 AND n > 1").to_pylist()
    assert sorted(found, key=str) == [{"s": "s59999", "d": "a b"}, {"s": "s59999", "d": None}]
    assert table.explain("y = 2024").skipped == table.files("y = 2023")["path"].to_pylist()
    assert table.files()["num_records"].to_pylist() == [60_000] * 4


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("y=2023/d=a b/part-0.trv", 60_000),
        ("y=*/d=a*", 120_000),
        ("**/*.trv", 240_000),
        ("y=202[!3]/**/part-?.trv", 120_000),
    ],
)
def test_files_and_globs(partitioned: Path, pattern: str, rows: int) -> None:
    assert TrevniTable(f"{partitioned}/{pattern}").count() == rows


def test_location_without_files(tmp_path: Path) -> None:
    for location in (tmp_path, tmp_path / "*.trv", tmp_path / "x.trv"):
        with pytest.raises(TableNotFoundError):
            TrevniTable(location)


def test_pickled_splits_cover_all_rows(partitioned: Path) -> None:
    table = TrevniTable(partitioned)
    splits = pickle.loads(pickle.dumps(table.splits("y = 2023", size=50_000)))
    assert len(splits) > 8
    filter = parse_filter("id % 1000 = 7", table.schema)
    rows = [i for split in splits for b in read_split(split, table.schema, ["id"], filter) for i in b["id"].to_pylist()]
    assert sorted(rows) == sorted(list(range(7, 60_000, 1000)) * 2)


def test_first_values_of_sorted_columns_skip_blocks(partitioned: Path, tmp_path: Path) -> None:
    file = TrevniFile(next(partitioned.rglob("*.trv")))
    filter = parse_filter("id >= 30000 AND id < 30010", ROWS.schema)
    ((start, stop),) = candidate_rows(file, filter, 0, file.row_count)
    assert 0 < start <= 30_000
    assert 30_010 <= stop < 60_000
    # A column that only seems sorted: first values of blocks ascend, but an outlier must be found.
    ids = np.arange(60_000)
    ids[50] = 59_999
    write(pa.table({"id": ids}), tmp_path / "t.trv", columns={"id": {"values": True}})
    assert TrevniTable(tmp_path).count("id = 59999") == 2


def test_missing_columns_and_other_types(tmp_path: Path) -> None:
    write({"a": [1, 2], "b": ["x", "y"]}, tmp_path / "1.trv")
    write({"a": pa.array([3], pa.int32())}, tmp_path / "2.trv")
    table = TrevniTable(tmp_path)
    assert table.to_arrow().sort_by("a").to_pydict() == {"a": [1, 2, 3], "b": ["x", "y", None]}
    assert table.count("b IS NULL") == 1
    write({"a": ["no number"]}, tmp_path / "3.trv")
    with pytest.raises(SchemaMismatchError):
        TrevniTable(tmp_path).to_arrow()


def test_partition_by_accepts_a_name(tmp_path: Path) -> None:
    write_table({"day": ["x", "y"], "a": [1, 2]}, tmp_path / "t", partition_by="day")
    assert TrevniTable(tmp_path / "t").count("day = 'x'") == 1


@pytest.mark.parametrize(
    ("folders", "type_", "values"),
    [
        (["1", "+2", None], pa.int32(), [1, 2, None]),
        (["1", "1099511627776"], pa.int64(), [1, 2**40]),
        (["-1", "18446744073709551615"], pa.decimal128(20, 0), [Decimal(-1), Decimal(2**64 - 1)]),
        (["9" * 38], pa.decimal128(38, 0), [Decimal(10**38 - 1)]),
        (["9" * 39], pa.float64(), [1e39]),
        (["1.5", "nan", "-inf"], pa.float64(), [1.5, float("nan"), float("-inf")]),
        (["nan"], pa.string(), ["nan"]),
        (["2024-05-01"], pa.date32(), [dt.date(2024, 5, 1)]),
        (["2024-05-01 10:00:00"], pa.string(), ["2024-05-01 10:00:00"]),
    ],
)
def test_partition_values_keep_all_digits(folders: list[str | None], type_: pa.DataType, values: list[Any]) -> None:
    """Integers beyond bigint became the nearest double."""
    files = [DataFile("f", 1, (("k", text),)) for text in folders]
    (one,) = partition_fields(files)
    assert one.type == type_
    assert partition_values(files, [one])["k"].to_pylist() == pytest.approx(values, nan_ok=True)


def test_partition_value_of_another_type_raises(tmp_path: Path) -> None:
    (tmp_path / "k=abc").mkdir()
    write({"n": [1]}, tmp_path / "k=abc" / "1.trv")
    for filter in (None, "k = 1"):
        with pytest.raises(SchemaMismatchError, match="k=abc does not fit type int32"):
            TrevniTable(tmp_path, schema=pa.schema([("n", pa.int64()), ("k", pa.int32())])).to_arrow(filter=filter)


def test_duplicate_column_names(tmp_path: Path) -> None:
    """The format's writers reject them, its readers do not; tables look up columns by name."""
    columns = [Col("a", "int", [Block(1, zigzag(value))]) for value in (1, 2)]
    path = tmp_path / "1.trv"
    path.write_bytes(craft(1, [*columns, Col("b", "int", [Block(1, zigzag(3))])]))
    assert [column.to_pylist() for column in TrevniFile(path).read().columns] == [[1], [2], [3]]
    table = TrevniTable(tmp_path)
    assert table.count() == 1
    for read in (lambda: table.schema, table.to_arrow, lambda: table.count("b = 3")):
        with pytest.raises(SchemaMismatchError, match="the file has duplicate column names 'a'"):
            read()
    stated = TrevniTable(tmp_path, schema=pa.schema([("a", pa.int32()), ("b", pa.int32())]))
    assert stated.to_arrow().to_pydict() == {"a": [2], "b": [3]}


def test_writing_a_table(tmp_path: Path) -> None:
    table = ROWS.append_column("p", pa.array(["a/b c", "", None] * 20_000))
    done = write_table(table, tmp_path / "t", partition_by=["p"], options=WriteOptions(row_group_size=50_000))
    assert done.rows_added == 60_000
    assert done.files_added > 2
    back = TrevniTable(tmp_path / "t")
    assert back.count("p = 'a/b c'") == 20_000
    assert back.count("p IS NULL") == 40_000
    with pytest.raises(TableExistsError):
        write_table(table, tmp_path / "t")
    assert write_table(table, tmp_path / "t", mode="ignore").files_added == 0
    write_table(ROWS, tmp_path / "t", mode="overwrite")
    assert TrevniTable(tmp_path / "t").to_arrow().sort_by("id").equals(ROWS)
    assert {path.name for path in (tmp_path / "t").rglob("*") if path.is_file()} == {
        path.rpartition("/")[2] for path in TrevniTable(tmp_path / "t").files()["path"].to_pylist()
    }


def test_failed_write_leaves_no_files(tmp_path: Path) -> None:
    batches = [ROWS.to_batches()[0], pa.record_batch({"x": [1]})]
    with pytest.raises(SchemaMismatchError):
        write_table(batches, tmp_path / "t")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_staged_files_are_invisible(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with RowGroupWriter(store, ROWS.schema, "w") as writer:
        writer.write(ROWS.to_batches()[0])
    assert writer.files
    with pytest.raises(TableNotFoundError):
        TrevniTable(tmp_path)


def test_empty_table_keeps_its_schema() -> None:
    write_table(ROWS.slice(0, 0), "memory://empty-trevni")
    table = TrevniTable("memory://empty-trevni")
    assert table.schema.equals(ROWS.schema)
    assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.date32()])
def test_years_that_arrow_formats_wrongly_name_no_folder(tmp_path: Path, kind: pa.DataType) -> None:
    day = {"us": 86_400_000_000, "s": 86_400}.get(getattr(kind, "unit", ""), 1)
    numbers = pa.array([40_000 * 365 * day], pa.int32() if day == 1 else pa.int64())
    with pytest.raises(SchemaMismatchError, match="30,000 years"):
        write_table(pa.table({"k": [1], "p": numbers.cast(kind)}), tmp_path / "t", partition_by=["p"])
    assert not list(tmp_path.rglob("*.trv"))
