"""Cached statements: the cache depends on the SQL alone, and rows are always read again."""

from __future__ import annotations

import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from trilake.errors import InvalidArgumentError
from trilake.sql.duckdb import run
from trilake.sql.parser.cursor import Cursor


def test_cached_query_sees_each_commit(tmp_path: Path) -> None:
    place = tmp_path / "t"
    text = f"SELECT sum(n) AS s FROM delta.`{place}`"
    for n in range(1, 5):
        trilake.write({"n": [n]}, place, mode="append")
        assert trilake.sql(text).to_pylist() == [{"s": n * (n + 1) // 2}]


def test_column_types_may_change_between_runs(tmp_path: Path) -> None:
    place = tmp_path / "t"
    text = f"SELECT * FROM delta.`{place}` ORDER BY 1"
    trilake.write({"n": [1]}, place)
    assert trilake.sql(text).schema.field("n").type == pa.int64()
    trilake.write({"n": ["a"], "m": [2.5]}, place, mode="overwrite", schema_mode="overwrite")
    assert trilake.sql(text).to_pylist() == [{"n": "a", "m": 2.5}]


def test_passed_rows_may_have_other_columns() -> None:
    text = "SELECT max(x) AS m FROM rows"
    for _ in range(2):
        assert trilake.sql(text, rows={"x": [1, 2]}).to_pylist() == [{"m": 2}]
        assert trilake.sql(text, rows=pa.table({"x": ["a", "b"]})).to_pylist() == [{"m": "b"}]
    with pytest.raises(trilake.TrilakeError, match="rows"):
        trilake.sql(text)


@pytest.mark.parametrize("what", ["current_timestamp", "now()", "(SELECT max(x) FROM (SELECT now() AS x))"])
def test_current_time_is_evaluated_in_each_run(what: str) -> None:
    first = trilake.sql(f"SELECT {what} AS t").column("t")[0].as_py()
    time.sleep(0.002)
    second = trilake.sql(f"SELECT {what} AS t").column("t")[0].as_py()
    assert dt.timedelta(0) < second - first < dt.timedelta(minutes=5)


def test_version_expressions_are_evaluated_in_each_run(tmp_path: Path) -> None:
    place = tmp_path / "t"
    for n in range(3):
        trilake.write({"n": [n]}, place, mode="append")
    text = f"""SELECT count(*) AS n, (SELECT count(*) FROM delta.`{place}` TIMESTAMP AS OF now()) AS now
               FROM delta.`{place}` VERSION AS OF 1"""
    assert trilake.sql(text).to_pylist() == [{"n": 2, "now": 3}]
    trilake.write({"n": [3]}, place, mode="append")
    assert trilake.sql(text).to_pylist() == [{"n": 2, "now": 4}]


def test_change_feed_is_read_in_each_run(tmp_path: Path) -> None:
    place = tmp_path / "t"
    trilake.sql(f"CREATE TABLE delta.`{place}` (n BIGINT) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    text = f"SELECT count(*) AS n FROM table_changes_by_path('{place}', 1)"
    for n in range(1, 4):
        trilake.write({"n": [n]}, place, mode="append")
        assert trilake.sql(text).to_pylist() == [{"n": n}]
    assert trilake.sql(text.replace(", 1)", ", '1999-01-01')")).to_pylist() == [{"n": 3}]


def test_error_is_the_same_in_each_run() -> None:
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="nope"):
            trilake.sql("SELECT nope FROM rows", rows={"x": [1]})


def test_threads_share_a_cached_query() -> None:
    text = "SELECT count(*) AS n, sum(x) AS s FROM rows GROUP BY x % 3 ORDER BY 1, 2"
    expected = trilake.sql(text, rows={"x": list(range(10))})
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: trilake.sql(text, rows={"x": list(range(10))}), range(20)):
            assert answer.equals(expected)


def test_cached_statement_is_not_tokenized_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, seen = tmp_path / "t", list[str]()
    trilake.write({"n": [1]}, place)

    def cursor(text: str) -> Cursor:
        seen.append(text)
        return Cursor(text)

    monkeypatch.setattr(run, "Cursor", cursor)
    monkeypatch.setattr(run, "_LONGEST", 1000)
    long = f"SELECT n FROM delta.`{place}` WHERE n < 5{' ' * 1000}"
    for text in (f"SELECT n FROM delta.`{place}`", long):
        assert [trilake.sql(text).num_rows for _ in range(2)] == [1, 1]
    assert seen == [*dict.fromkeys(seen), long]
