"""The source of a query's rows: files that DuckDB reads itself, or the tables' scans."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import trilake
from trilake.common.lru_cache import LruCache
from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.expr.terms.engine import open_database
from trilake.sql.duckdb import database
from trilake.table.relations.parquet import parquet_relation
from trilake.table.table import Table

_MANY = 200_000


def _damaged(place: Path, after: int) -> None:
    """A table of a valid file of ``after`` rows, if any, and one with damaged pages and a valid footer."""
    if after:
        trilake.write(pa.table({"n": range(after)}), place)
    sound = set(place.glob("*.parquet"))
    trilake.write(pa.table({"n": range(_MANY)}), place, mode="append")
    [path] = set(place.glob("*.parquet")) - sound
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 1000 + content[1004:])


def _batches(place: Path, query: str, rows: int = 1000) -> list[pa.RecordBatch]:
    table: Table = trilake.open(place)
    assert table.plain_files()
    return list(database.batches_of({("t",): table}, query, rows)[1])


@pytest.mark.parametrize("after", [0, _MANY])
def test_damaged_file_is_reported_by_the_table_scan(tmp_path: Path, after: int) -> None:
    place = tmp_path / "t"
    _damaged(place, after)
    with pytest.raises(CorruptFileError):
        _batches(place, "SELECT n FROM t")
    with pytest.raises(CorruptFileError):
        trilake.sql(f"SELECT n FROM delta.`{place}`")


def test_rows_are_sent_once_after_falling_back_to_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "t"
    trilake.write({"n": [1, 2, 3]}, place)
    original = parquet_relation

    def wrong(db: duckdb.DuckDBPyConnection, paths: Sequence[str], schema: pa.Schema) -> str:
        return f"SELECT CASE WHEN n > 0 THEN error('no rows')::BIGINT END AS n FROM ({original(db, paths, schema)})"

    monkeypatch.setattr(f"{database.__name__}.parquet_relation", wrong)
    monkeypatch.setattr(database, "_file_queries", LruCache(1, 1))
    assert pa.Table.from_batches(_batches(place, "SELECT n FROM t"))["n"].to_pylist() == [1, 2, 3]


def test_engine_error_after_first_rows_is_raised(tmp_path: Path) -> None:
    place = tmp_path / "t"
    trilake.write(pa.table({"s": ["1"] * _MANY + ["x"]}), place)
    with pytest.raises(duckdb.Error, match="'x'"):
        _batches(place, "SELECT s::INT FROM t")


def test_files_are_checked_against_the_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "t"
    trilake.write({"n": [1]}, place)
    compared: list[int] = []
    original = parquet_relation

    def spy(db: duckdb.DuckDBPyConnection, paths: Sequence[str], schema: pa.Schema) -> str | None:
        compared.append(len(paths))
        return original(db, paths, schema)

    monkeypatch.setattr(f"{database.__name__}.parquet_relation", spy)
    query = f"SELECT a.n FROM delta.`{place}` a JOIN delta.`{place}` b USING (n)"
    for _ in range(2):
        assert trilake.sql(query).num_rows == 1
    assert compared == [1]
    [path] = place.glob("*.parquet")
    os.utime(path, ns=(0, 1))
    assert trilake.sql(query).num_rows == 1
    assert compared == [1, 1]
    trilake.write({"n": [2]}, place, mode="append")
    assert trilake.sql(query).num_rows == 2
    assert compared == [1, 1, 2]


def test_statement_without_query_opens_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    original = open_database

    def spy(*args: Any) -> duckdb.DuckDBPyConnection:
        opened.append(args)
        return original(*args)

    monkeypatch.setattr("trilake.sql.duckdb.database.open_database", spy)
    name = f"delta.`{tmp_path}/t`"
    trilake.sql(f"CREATE TABLE {name} (n BIGINT)")
    trilake.sql(f"INSERT INTO {name} VALUES (1)")
    assert opened == []
    assert trilake.sql(f"SELECT n FROM {name} VERSION AS OF 1").to_pylist() == [{"n": 1}]
    assert len(opened) == 1


def test_statement_without_query_opens_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(InvalidArgumentError, match="disabled"):
        trilake.sql(f"SELECT * FROM read_csv('{tmp_path}/x.csv')")
