"""Names that are dropped, renamed or relocated while a statement works on their table.

Acknowledged rows are found under an existing name, no name refers to deleted files, and results reported to other
statements stay valid.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from trilake.errors import TableNotFoundError
from trilake.lance.versions import transaction
from trilake.spark.catalog import entries
from trilake.spark.catalog import named_tables as names
from trilake.spark.patches import table_names
from trilake.sql.spark.rows import dml
from trilake.sql.spark.session import entries as session_entries
from trilake.sql.spark.tables import alter, create_tables

Before = Callable[..., None]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    for name in "raced", "renamed":
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        shutil.rmtree(names.default_location(spark, name), ignore_errors=True)
    trilake.uninstall(spark)


@pytest.fixture
def before(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Before:
    """Run statements concurrently, right before the first call of a function."""

    def arrange(module: Any, function: str, *statements: str) -> None:
        original, left = getattr(module, function), list(statements)

        def late(*args: Any, **more: Any) -> Any:
            now, left[:] = left[:], []
            with ThreadPoolExecutor(1) as other:  # this thread already runs a trilake statement
                for statement in now:
                    other.submit(session.sql, statement).result()
            return original(*args, **more)

        monkeypatch.setattr(module, function, late)

    return arrange


def ids(session: SparkSession, name: str = "raced") -> list[int]:
    return sorted(row.id for row in session.table(name).collect())


def make(session: SparkSession, format: str = "delta", place: str = "") -> None:
    where = f" LOCATION '{place}'" if place else ""
    session.sql(f"CREATE TABLE raced USING {format}{where} AS SELECT 1 AS id")


def append(session: SparkSession, format: str = "delta") -> None:
    session.sql("SELECT 7 AS id").write.format(format).mode("append").saveAsTable("raced")


@pytest.mark.parametrize("function", ["refresh_name", "newest"])
def test_rename_after_append_keeps_the_rows_once(session: SparkSession, before: Before, function: str) -> None:
    """If the append failed, the caller would write the rows again."""
    make(session)
    before(table_names if function == "refresh_name" else names, function, "ALTER TABLE raced RENAME TO renamed")
    append(session)
    assert not session.catalog.tableExists("raced")
    assert ids(session, "renamed") == [1, 7]


@pytest.mark.parametrize("function", ["find_entry", "newest"])
def test_rename_after_replace_is_kept(session: SparkSession, before: Before, function: str) -> None:
    make(session)
    before(names, function, "ALTER TABLE raced RENAME TO renamed")
    session.sql("CREATE OR REPLACE TABLE raced USING delta AS SELECT 7 AS id")
    assert not session.catalog.tableExists("raced")
    assert ids(session, "renamed") == [7]


@pytest.mark.parametrize("format", ["delta", "trevni"])
def test_append_recreates_a_dropped_table(session: SparkSession, before: Before, format: str) -> None:
    make(session, format)
    before(table_names, "save_named", "DROP TABLE raced")
    append(session, format)
    assert ids(session) == [7]
    entry = entries.find_entry(session, ["raced"])
    assert entry is not None
    assert entry.managed


@pytest.mark.parametrize(("format", "function"), [("delta", "write_dataframe"), ("lance", "SaveRequest")])
def test_replace_of_a_dropped_table_restores_its_name(
    session: SparkSession, before: Before, format: str, function: str
) -> None:
    make(session, format)
    before(create_tables, function, "DROP TABLE raced")
    session.sql(f"CREATE OR REPLACE TABLE raced USING {format} AS SELECT 7 AS id")
    assert ids(session) == [7]


@pytest.mark.parametrize("placed", [False, True], ids=["managed", "placed"])
def test_name_dropped_after_a_write_stays_dropped(
    session: SparkSession, before: Before, tmp_path: Path, placed: bool
) -> None:
    make(session, place=str(tmp_path / "t") if placed else "")
    before(table_names, "refresh_name", "DROP TABLE raced")
    append(session)
    assert not session.catalog.tableExists("raced")
    if placed:
        assert sorted(trilake.open(tmp_path / "t").to_arrow()["id"].to_pylist()) == [1, 7]


@pytest.mark.parametrize("more", ["", ", more INT"], ids=["as it was", "with a column"])
def test_location_set_after_a_write_is_kept(session: SparkSession, before: Before, tmp_path: Path, more: str) -> None:
    """The catalog replaces whole entries: an entry read before would restore the old location."""
    make(session)
    trilake.write(pa.table({"id": pa.array([9], pa.int32())}), tmp_path / "b")
    before(
        names if more else entries,
        "change_entry" if more else "string_map",
        f"ALTER TABLE raced SET LOCATION '{tmp_path / 'b'}'",
    )
    session.conf.set("spark.databricks.delta.alterLocation.bypassSchemaCheck", "true")
    try:
        session.sql(f"CREATE OR REPLACE TABLE raced (id INT{more}) USING delta")
    finally:
        session.conf.unset("spark.databricks.delta.alterLocation.bypassSchemaCheck")
    assert ids(session) == [9]


@pytest.mark.parametrize("statement", ["DROP TABLE raced", "ALTER TABLE raced RENAME TO renamed"])
def test_lance_write_to_a_dropped_dataset_has_no_name(session: SparkSession, before: Before, statement: str) -> None:
    """Its commit had landed, and only the copy of the newest manifest was written to the empty folder."""
    first = session.sql("SELECT 1 AS id").write.format("lance").option("dataStorageVersion", "legacy")
    first.saveAsTable("raced")
    before(transaction, "_copy_latest", statement)
    append(session, "lance")
    assert not session.catalog.tableExists("raced")


def test_set_location_of_a_dropped_name_is_rejected(session: SparkSession, before: Before, tmp_path: Path) -> None:
    make(session)
    trilake.write(pa.table({"id": pa.array([9], pa.int32())}), tmp_path / "b")
    before(alter, "move_entry", "DROP TABLE raced")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql(f"ALTER TABLE raced SET LOCATION '{tmp_path / 'b'}'")
    assert not session.catalog.tableExists("raced")


def test_set_location_never_removes_the_name(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between two catalog calls another statement could take the name, or delete the files with it."""
    make(session)
    trilake.write(pa.table({"id": pa.array([9], pa.int32())}), tmp_path / "b")
    place = names.default_location(session, "raced")

    def never(*args: Any, **more: Any) -> None:
        raise AssertionError("the name goes")

    monkeypatch.setattr(entries, "drop_entry", never)
    session.sql(f"ALTER TABLE raced SET LOCATION '{tmp_path / 'b'}'")
    assert ids(session) == [9]
    session.sql("DROP TABLE raced")
    assert trilake.open(place).to_arrow()["id"].to_pylist() == [1]
    assert trilake.open(tmp_path / "b").to_arrow()["id"].to_pylist() == [9]


def test_name_is_not_created_for_deleted_files(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    original = session_entries.make_entry

    def late(*args: Any, **more: Any) -> None:
        shutil.rmtree(names.default_location(session, "raced"))
        original(*args, **more)

    monkeypatch.setattr(session_entries, "make_entry", late)
    session.sql("CREATE TABLE raced (id INT) USING delta")
    assert not session.catalog.tableExists("raced")


def test_name_dropped_between_two_lookups_is_not_found(session: SparkSession, before: Before) -> None:
    make(session)
    before(dml, "changeable_table", "ALTER TABLE raced RENAME TO renamed")
    with pytest.raises(TableNotFoundError, match="cannot be found"):
        session.sql("DELETE FROM raced WHERE id = 1")
    assert ids(session, "renamed") == [1]
