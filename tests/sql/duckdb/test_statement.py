"""Texts that ran before: they are translated again where columns have other types, and rows are always read anew."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import trilake
from trilake.errors import InvalidArgumentError
from trilake.sql.duckdb import run, statement
from trilake.sql.duckdb.queries.select import Translation
from trilake.sql.parser.cursor import Cursor


@pytest.fixture
def translated() -> Iterator[list[bool]]:
    """One entry for each translation of a text."""
    seen: list[bool] = []

    class Spied(Translation):
        def __init__(self, *args: object, wide: bool = False, **more: object) -> None:
            seen.append(wide)
            super().__init__(*args, wide=wide, **more)  # type: ignore[arg-type]

    with patch.object(statement, "Translation", Spied):
        yield seen


def test_a_text_is_translated_once_and_sees_each_commit(tmp_path: Path, translated: list[bool]) -> None:
    place = tmp_path / "t"
    text = f"SELECT sum(n) AS s FROM delta.`{place}`"
    for n in range(1, 5):
        trilake.write({"n": [n]}, place, mode="append")
        assert trilake.sql(text).to_pylist() == [{"s": n * (n + 1) // 2}]
    assert len(translated) == 1


def test_other_types_of_columns_are_another_translation(tmp_path: Path, translated: list[bool]) -> None:
    place = tmp_path / "t"
    text = f"SELECT * FROM delta.`{place}` ORDER BY 1"
    trilake.write({"n": [1]}, place)
    assert trilake.sql(text).schema.field("n").type == pa.int64()
    trilake.write({"n": ["a"], "m": [2.5]}, place, mode="overwrite", schema_mode="overwrite")
    assert trilake.sql(text).to_pylist() == [{"n": "a", "m": 2.5}]
    assert len(translated) == 2


def test_rows_that_are_given_need_not_have_the_same_columns(translated: list[bool]) -> None:
    text = "SELECT max(x) AS m FROM rows"
    for _ in range(2):
        assert trilake.sql(text, rows={"x": [1, 2]}).to_pylist() == [{"m": 2}]
        assert trilake.sql(text, rows=pa.table({"x": ["a", "b"]})).to_pylist() == [{"m": "b"}]
    assert len(translated) == 2
    with pytest.raises(trilake.TrilakeError, match="rows"):
        trilake.sql(text)


@pytest.mark.parametrize("what", ["current_timestamp()", "now()", "(SELECT max(x) FROM (SELECT now() AS x))"])
def test_a_text_that_asks_for_the_time_gets_that_of_each_run(what: str) -> None:
    first = trilake.sql(f"SELECT {what} AS t").column("t")[0].as_py()
    time.sleep(0.002)  # the clock counts milliseconds
    second = trilake.sql(f"SELECT {what} AS t").column("t")[0].as_py()
    assert dt.timedelta(0) < second - first < dt.timedelta(minutes=5)


def test_a_text_without_the_time_is_kept_beside_one_with_it(translated: list[bool]) -> None:
    for text in (
        "SELECT 40 + 2 AS x",
        "SELECT current_date() AS x",
        "SELECT 40 + 2 AS x",
        "SELECT current_date() AS x",
    ):
        assert trilake.sql(text).num_rows == 1
    assert len(translated) == 3


def test_versions_are_computed_for_each_run(tmp_path: Path) -> None:
    place = tmp_path / "t"
    for n in range(3):
        trilake.write({"n": [n]}, place, mode="append")
    text = f"""SELECT count(*) AS n, (SELECT count(*) FROM delta.`{place}` TIMESTAMP AS OF current_timestamp()) AS now
               FROM delta.`{place}` VERSION AS OF 1"""
    assert trilake.sql(text).to_pylist() == [{"n": 2, "now": 3}]
    trilake.write({"n": [3]}, place, mode="append")
    assert trilake.sql(text).to_pylist() == [{"n": 2, "now": 4}]


def test_changes_are_read_for_each_run(tmp_path: Path) -> None:
    place = tmp_path / "t"
    trilake.sql(f"CREATE TABLE delta.`{place}` (n BIGINT) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    text = f"SELECT count(*) AS n FROM table_changes_by_path('{place}', 1)"
    for n in range(1, 4):
        trilake.write({"n": [n]}, place, mode="append")
        assert trilake.sql(text).to_pylist() == [{"n": n}]
    assert trilake.sql(text.replace(", 1)", ", '1999-01-01')")).to_pylist() == [{"n": 3}]


def test_a_product_that_64_bits_do_not_hold_is_translated_for_128_as_well(translated: list[bool]) -> None:
    rows = pa.table({"a": pa.array([10**17], pa.decimal128(18, 0))})
    for _ in range(2):
        [row] = trilake.sql("SELECT sum(a * a) AS s FROM rows", rows=rows).to_pylist()
        assert row["s"] == 10**34
    assert sorted(translated) in ([False], [False, True])


def test_an_error_is_the_same_each_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="nope"):
            trilake.sql("SELECT nope FROM rows", rows={"x": [1]})


def test_many_threads_share_a_text(translated: list[bool]) -> None:
    text = "SELECT count(*) AS n, sum(x) AS s FROM rows GROUP BY x % 3 ORDER BY 1, 2"
    expected = trilake.sql(text, rows={"x": list(range(10))})
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: trilake.sql(text, rows={"x": list(range(10))}), range(20)):
            assert found.equals(expected)
    assert len(translated) == 1


def test_few_statements_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "_MOST", 3)
    known = statement.KnownStatements()
    first = known.of("SELECT 0", frozenset())
    assert known.of("SELECT 0", frozenset()) is first
    for n in range(1, 5):
        known.of(f"SELECT {n}", frozenset())
    assert len(known.statements) == 3
    assert known.of("SELECT 0", frozenset()) is not first
    long = f"SELECT '{'x' * 50_000}'"
    known.of(long, frozenset())
    assert (long, frozenset()) not in known.statements


def test_the_tokens_of_a_text_that_ran_are_not_told_apart_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, seen = tmp_path / "t", list[str]()
    trilake.write({"n": [1]}, place)

    def cursor(text: str) -> Cursor:
        seen.append(text)
        return Cursor(text)

    monkeypatch.setattr(run, "Cursor", cursor)
    monkeypatch.setattr(run, "_LONGEST", 1000)
    long = f"SELECT n FROM delta.`{place}` WHERE n < 5{' ' * 1000}"
    for text in (f"SELECT n FROM delta.`{place}`", f"DESCRIBE HISTORY delta.`{place}`", long):
        assert [trilake.sql(text).num_rows for _ in range(2)] == [1, 1]
    assert seen == [*dict.fromkeys(seen), long]
