"""Statements that make one table at the same time: rows of neither are lost, and a name is that of the table there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from trilake.errors import TableExistsError
from trilake.spark.delta.names import catalogue as names
from trilake.spark.session.schemas import from_spark
from trilake.sql.session import catalogue as place_names
from trilake.sql.tables import create_table

PLAIN = "CREATE TABLE {}raced (id INT) USING delta"
SELECT = "CREATE TABLE {}raced USING delta AS SELECT 1 AS id"
OTHER = "CREATE TABLE IF NOT EXISTS raced (id INT) USING delta"


INSERT = "INSERT INTO raced VALUES (7)"


def elsewhere(session: SparkSession, *statements: str) -> None:
    """Run statements in a thread of their own: in this one a statement of ours is at work."""
    with ThreadPoolExecutor(1) as other:
        for statement in statements:
            other.submit(session.sql, statement).result()


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    spark.sql("DROP TABLE IF EXISTS raced")
    trilake.uninstall(spark)


@pytest.fixture
def before(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, str], None]:
    """Lets another one make the table, and write a row, right before a function is called for the first time."""

    def arrange(module: Any, function: str, other: str) -> None:
        own = getattr(module, function)
        done: list[bool] = []

        def late(*args: Any, **more: Any) -> Any:
            if not done:
                done.append(True)
                elsewhere(session, other, INSERT)
            return own(*args, **more)

        monkeypatch.setattr(module, function, late)

    return arrange


def _fail(session: SparkSession, rows: int) -> None:
    if rows:
        frame = session.sql("SELECT 7 AS id")
        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: frame.write.format("delta").mode("append").saveAsTable("raced")).result()
    raise RuntimeError("the write failed")


def ids(session: SparkSession) -> list[int]:
    return sorted(row.id for row in session.table("raced").collect())


@pytest.mark.parametrize(
    ("text", "named", "placed"),
    [(PLAIN, True, True), (PLAIN, False, False), (SELECT, True, False), (SELECT, False, True)],
    ids=["columns, before its name", "columns, before its files", "query, before its name", "query, before its files"],
)
def test_who_takes_a_table_that_is_there_takes_that_of_another(
    session: SparkSession, before: Any, tmp_path: Path, text: str, named: bool, placed: bool
) -> None:
    place = f" LOCATION '{tmp_path / 't'}'" if placed else ""
    makes = (create_table, "create_table" if text is PLAIN else "write_dataframe")
    # The rows of a query are there where the statement was the first to write them.
    first = [1] if named and text is SELECT else []
    before(*((place_names, "add_delta") if named else makes), OTHER + place)
    statement = text.format("IF NOT EXISTS ").replace(" USING delta", f" USING delta{place}")
    session.sql(statement)
    assert ids(session) == [*first, 7]


@pytest.mark.parametrize("placed", [False, True], ids=["managed", "placed"])
def test_who_refuses_a_table_that_is_there_leaves_that_of_another(
    session: SparkSession, before: Any, tmp_path: Path, placed: bool
) -> None:
    place = f" LOCATION '{tmp_path / 't'}'" if placed else ""
    before(create_table, "create_table", OTHER + place)
    with pytest.raises(TableExistsError):
        session.sql(PLAIN.format("") + place)
    assert ids(session) == [7]


def test_a_table_that_got_its_name_from_another_has_it(session: SparkSession, before: Any) -> None:
    before(place_names, "add_delta", OTHER)
    session.sql(PLAIN.format(""))
    assert ids(session) == [7]


def test_a_table_without_its_name_goes_again(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*args: Any, **more: Any) -> None:
        raise RuntimeError("the catalogue is gone")

    monkeypatch.setattr(place_names, "add_delta", refused)
    with pytest.raises(RuntimeError):
        session.sql(f"{PLAIN.format('')} LOCATION '{tmp_path / 't'}'")
    assert not list((tmp_path / "t").rglob("*.json"))


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore"])
def test_a_write_to_a_name_that_comes_meanwhile(session: SparkSession, before: Any, mode: str) -> None:
    before(names, "make_entry", OTHER)
    session.sql("SELECT 1 AS id").write.format("delta").mode(mode).saveAsTable("raced")
    assert ids(session) == {"append": [1, 7], "overwrite": [1], "ignore": [7]}[mode]


def test_a_builder_finds_the_table_of_another(session: SparkSession, before: Any) -> None:
    before(names, "make_entry", OTHER)
    trilake.DeltaTable.createIfNotExists(session).tableName("raced").addColumn("id", "int").execute()
    assert ids(session) == [7]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_name_goes_with_a_write_that_fails_unless_others_have_written(session: SparkSession, rows: int) -> None:
    with (
        pytest.raises(RuntimeError),
        names.new_name(session, "raced", from_spark(T.StructType().add("id", T.IntegerType()))),
    ):
        _fail(session, rows)
    assert session.catalog.tableExists("raced") == bool(rows)
    if rows:
        assert ids(session) == [7]
