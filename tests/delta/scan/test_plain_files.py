"""Versions that another engine can read as Parquet files, with the same rows as trilake's scan."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from trilake.delta.scan import scan as scanning
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptFileError, MissingFileError

_ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"]})


def _table(place: str) -> ArrowDeltaTable:
    return trilake.open(place, format="delta")


def _sql(place: str, what: str = "*", where: str = "true") -> pa.Table:
    return trilake.sql(f"SELECT {what} FROM delta.`{place}` WHERE {where}")


def _same(place: str, where: str = "true") -> bool:
    """Return whether DuckDB gives the rows of trilake's scan, from files or from that scan."""
    expected = _table(place).to_arrow(filter=where)
    key = [
        (name, "ascending")
        for name in expected.column_names
        if not pa.types.is_nested(expected.schema.field(name).type)
    ]
    rows = _sql(place, where=where).cast(expected.schema)
    return bool(rows.sort_by(key).to_pylist() == expected.sort_by(key).to_pylist())


def test_plain_table_is_read_from_its_files(tmp_path: Path) -> None:
    place = f"{tmp_path}/it's"
    trilake.write(_ROWS, place)
    trilake.write(_ROWS, place, mode="append")
    paths = _table(place).plain_files()
    assert paths is not None
    assert len(paths) == 2
    assert all(Path(p).is_file() for p in paths)
    assert _sql(place, "sum(n) AS n").to_pylist() == [{"n": 12}]
    assert _table(place).to_duckdb().aggregate("sum(n)").fetchall() == [(12,)]
    trilake.open(place).delete("true")
    assert _table(place).plain_files() is None
    assert _sql(place).num_rows == 0


def _with_vectors(place: str) -> None:
    trilake.write(_ROWS, place, properties={"delta.enableDeletionVectors": "true"})
    _table(place).delete("n = 2")


def _with_mapped_names(place: str) -> None:
    trilake.write(_ROWS, place, properties={"delta.columnMapping.mode": "name"})
    trilake.alter(place).rename_column("n", "m")


def _with_partitions(place: str) -> None:
    trilake.write(_ROWS, place, partition_by="s")


def _of_lance(place: str) -> None:
    trilake.write(_ROWS, place, data_format="lance")


def _cloned(place: str) -> None:
    trilake.write(_ROWS, f"{place}-source")
    _table(f"{place}-source").clone(place, shallow=True)


def _of_many_files(place: str) -> None:
    trilake.write(_ROWS, place)
    for _ in range(2):
        trilake.write(_ROWS, place, mode="append")


@pytest.mark.parametrize(
    "make", [_with_vectors, _with_mapped_names, _with_partitions, _of_lance, _cloned, _of_many_files]
)
def test_other_tables_are_read_by_trilake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], None]
) -> None:
    monkeypatch.setattr(scanning, "MOST_PLAIN_FILES", 2)
    place = f"{tmp_path}/t"
    make(place)
    assert _table(place).plain_files() is None
    assert _same(place)


def _an_older_file(place: str) -> None:
    """Return a table whose first file lacks a column that was added later."""
    trilake.write(_ROWS.select(["n"]), place)
    trilake.write(_ROWS, place, mode="append", schema_mode="merge")


def _a_wider_type(place: str) -> None:
    narrow = _ROWS.set_column(0, "n", pa.array([1, 2, 3], pa.int32()))
    trilake.write(narrow, place, properties={"delta.enableTypeWidening": "true"})
    trilake.alter(place).change_type("n", "bigint")
    trilake.write(_ROWS, place, mode="append")


def _old_timestamps(place: str) -> None:
    """Write INT96 timestamps, which have no time zone."""
    times = pa.array([dt.datetime(2020, 1, day, tzinfo=dt.UTC) for day in (1, 2)], pa.timestamp("us", "UTC"))
    Path(place).mkdir()
    pq.write_table(pa.table({"at": times}), f"{place}/a.parquet", use_deprecated_int96_timestamps=True)
    trilake.convert_to_delta(place)


def _written_again(place: str, rows: pa.Table) -> None:
    """Replace a file with one of another writer."""
    [path] = _table(place).plain_files() or []
    size = Path(path).stat().st_size
    pq.write_table(rows, path)
    log = Path(place, "_delta_log", f"{0:020d}.json")
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{Path(path).stat().st_size}'))


def _nanoseconds(place: str) -> None:
    times = pa.array([1, 1_700_000_000_000_000_789], pa.timestamp("ns", "UTC"))
    trilake.write(pa.table({"at": times}), place, round_times=True)
    _written_again(place, pa.table({"at": times}))


def _names_in_another_case(place: str) -> None:
    trilake.write(_ROWS, place)
    _written_again(place, _ROWS.rename_columns(["N", "s"]))


@pytest.mark.parametrize("make", [_an_older_file, _a_wider_type, _old_timestamps, _nanoseconds, _names_in_another_case])
def test_files_differing_from_the_schema_are_read_by_trilake(tmp_path: Path, make: Callable[[str], None]) -> None:
    place = f"{tmp_path}/t"
    make(place)
    assert _table(place).plain_files() is not None
    assert _same(place)


def test_nan_and_negative_zero_are_found_despite_bounds(tmp_path: Path) -> None:
    """Parquet bounds omit NaN, which is greater than all numbers."""
    place = f"{tmp_path}/t"
    trilake.write(pa.table({"x": [1.0, float("nan"), 2.0], "zero": [-0.0, -0.0, -0.0]}), place)
    assert _table(place).plain_files()
    assert _sql(place, "count(*) AS n", "x > 5").to_pylist() == [{"n": 1}]
    assert _sql(place, "count(*) AS n", "isnan(x)").to_pylist() == [{"n": 1}]
    assert _sql(place, "count(*) AS n", "zero = 0.0").to_pylist() == [{"n": 3}]
    assert _table(place).to_duckdb().filter("x > 5").aggregate("count(*)").fetchall() == [(1,)]


def test_values_of_every_type_match_trilakes_scan(tmp_path: Path) -> None:
    place = f"{tmp_path}/t"
    day, at = dt.date(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    rows = {
        "b": pa.array([True, None]),
        "i8": pa.array([-128, None], pa.int8()),
        "i16": pa.array([2**15 - 1, None], pa.int16()),
        "f": pa.array([1.5, None], pa.float32()),
        "d": pa.array([Decimal("9" * 36 + ".99"), None], pa.decimal128(38, 2)),
        "day": pa.array([day, None]),
        "at": pa.array([at, None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([at.replace(tzinfo=None), None], pa.timestamp("us")),
        "raw": pa.array([b"\xff\x00", None]),
        "s": pa.array(["ä", None]),
        "l": pa.array([[1, None], None], pa.list_(pa.int64())),
        "st": pa.array([{"a": 1, "b": None}, None], pa.struct({"a": pa.int64(), "b": pa.string()})),
        "m": pa.array([[("k", 1.0)], None], pa.map_(pa.string(), pa.float64())),
    }
    trilake.write(pa.table(rows), place)
    assert _table(place).plain_files()
    expected = _table(place).to_arrow()
    assert _sql(place).cast(expected.schema).to_pylist() == expected.to_pylist()


def test_file_errors_match_trilakes_scan(tmp_path: Path) -> None:
    place = f"{tmp_path}/t"
    trilake.write(_ROWS, place)
    [path] = _table(place).plain_files() or []
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:-8] + b"\0" * 8)
    with pytest.raises(CorruptFileError, match=Path(path).name):
        _sql(place)
    with pytest.raises(duckdb.Error, match=Path(path).name):
        _table(place).to_duckdb().fetchall()
    Path(path).write_bytes(content + b"more")
    assert _table(place).plain_files() is None  # it is not the file that was written
    Path(path).unlink()
    with pytest.raises(MissingFileError):
        _sql(place)


def test_connection_without_file_access_gets_the_rows(tmp_path: Path) -> None:
    trilake.write(_ROWS, f"{tmp_path}/t")
    closed = duckdb.connect(":memory:", config={"enable_external_access": False})
    assert _table(f"{tmp_path}/t").to_duckdb(closed).aggregate("sum(n)").fetchall() == [(6,)]


def test_path_that_looks_like_a_glob_is_literal(tmp_path: Path) -> None:
    """DuckDB would read the rows of all matching files."""
    trilake.write(_ROWS, f"{tmp_path}/a")
    shutil.copytree(f"{tmp_path}/a", f"{tmp_path}/[ab]")
    trilake.write(_ROWS, f"{tmp_path}/b")
    assert _sql(f"{tmp_path}/[ab]").num_rows == 3
