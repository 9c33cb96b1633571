"""Concurrent statements that create one table: neither loses rows, and the name refers to the existing table."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from trilake.delta.log.log import DeltaLog
from trilake.errors import TableExistsError, UnsupportedSparkError
from trilake.spark.catalog import entries
from trilake.spark.catalog import named_tables as names
from trilake.spark.delta import convert
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.schemas import from_spark
from trilake.sql.spark.session import entries as session_entries
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.tables import alter, create_tables, table_location
from trilake.storage import open_store

PLAIN = "CREATE TABLE {}raced (id INT) USING delta"
SELECT = "CREATE TABLE {}raced USING delta AS SELECT 1 AS id"
OTHER = "CREATE TABLE IF NOT EXISTS raced (id INT) USING delta"


INSERT = "INSERT INTO raced VALUES (7)"


def elsewhere(session: SparkSession, *statements: str) -> None:
    """Run statements in a separate thread: this thread already runs a trilake statement."""
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
    """Create the table and write a row concurrently, right before the first call of a function."""

    def arrange(module: Any, function: str, other: str) -> None:
        original = getattr(module, function)
        done: list[bool] = []

        def late(*args: Any, **more: Any) -> Any:
            if not done:
                done.append(True)
                elsewhere(session, other, INSERT)
            return original(*args, **more)

        monkeypatch.setattr(module, function, late)

    return arrange


def _fail(session: SparkSession, rows: int) -> None:
    if rows:
        frame = session.sql("SELECT 7 AS id")
        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: frame.write.format("delta").mode("append").saveAsTable("raced")).result()
    raise RuntimeError("the write failed")


def _fail_beside(session: SparkSession, *statements: str) -> None:
    elsewhere(session, *statements)
    raise RuntimeError("the write failed")


def ids(session: SparkSession) -> list[int]:
    return sorted(row.id for row in session.table("raced").collect())


@pytest.mark.parametrize(
    ("text", "named", "placed"),
    [(PLAIN, True, True), (PLAIN, False, False), (SELECT, True, True), (SELECT, False, True)],
    ids=["columns, before its name", "columns, before its files", "query, before its name", "query, before its files"],
)
def test_create_if_not_exists_uses_a_concurrent_table(
    session: SparkSession, before: Any, tmp_path: Path, text: str, named: bool, placed: bool
) -> None:
    place = f" LOCATION '{tmp_path / 't'}'" if placed else ""
    makes = (create_tables, "create_table" if text is PLAIN else "write_dataframe")
    # The rows of a query are present if the statement wrote them first.
    first = [1] if named and text is SELECT else []
    before(*((session_entries, "add_delta") if named else makes), OTHER + place)
    statement = text.format("IF NOT EXISTS ").replace(" USING delta", f" USING delta{place}")
    session.sql(statement)
    assert ids(session) == [*first, 7]


@pytest.mark.parametrize("placed", [False, True], ids=["managed", "placed"])
def test_create_if_not_exists_ignores_the_location(
    session: SparkSession, before: Any, tmp_path: Path, placed: bool
) -> None:
    places = ["", f" LOCATION '{tmp_path / 't'}'"]
    before(session_entries, "make_entry", OTHER + places[not placed])
    try:
        session.sql(OTHER + places[placed])
        assert ids(session) == [7]
    finally:
        if not placed:
            shutil.rmtree(names.default_location(session, "raced"))


@pytest.mark.parametrize("placed", [False, True], ids=["managed", "placed"])
def test_failed_create_keeps_a_concurrent_table(
    session: SparkSession, before: Any, tmp_path: Path, placed: bool
) -> None:
    place = f" LOCATION '{tmp_path / 't'}'" if placed else ""
    before(create_tables, "create_table", OTHER + place)
    with pytest.raises(TableExistsError):
        session.sql(PLAIN.format("") + place)
    assert ids(session) == [7]


def test_create_accepts_a_concurrently_registered_name(session: SparkSession, before: Any) -> None:
    before(session_entries, "add_delta", f"{OTHER} LOCATION '{names.default_location(session, 'raced')}'")
    session.sql(PLAIN.format(""))
    assert ids(session) == [7]
    shutil.rmtree(names.default_location(session, "raced"))


@pytest.mark.parametrize("text", [PLAIN, SELECT], ids=["columns", "query"])
def test_create_if_not_exists_waits_for_the_name(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The files at a managed table's location belong to a statement that has not registered them yet."""
    looks, original_look, original_add = Event(), table_location.gets_entry, session_entries.add_delta

    def look(*args: Any) -> bool:
        looks.set()
        return original_look(*args)

    def add(*args: Any, **more: Any) -> None:
        started.append(other.submit(session.sql, OTHER))
        assert looks.wait(60)
        original_add(*args, **more)

    monkeypatch.setattr(table_location, "gets_entry", look)
    monkeypatch.setattr(session_entries, "add_delta", add)
    started: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as other:
        session.sql(text.format(""))
        started[0].result()
    assert ids(session) == ([1] if text is SELECT else [])


@pytest.mark.parametrize("text", [PLAIN, SELECT], ids=["columns", "query"])
def test_failed_registration_keeps_a_table_used_by_others(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    """Another statement has registered the table, and others may have opened it: its log must stay."""
    place, original = f" LOCATION '{tmp_path / 't'}'", session_entries.add_delta
    rejected: list[bool] = []

    def late(*args: Any, **more: Any) -> None:
        if rejected:
            return original(*args, **more)
        rejected.append(True)
        elsewhere(session, OTHER.replace("raced", "raced_too") + place)
        raise RuntimeError("the catalog is gone")

    monkeypatch.setattr(session_entries, "add_delta", late)
    statement = text.format("").replace(" USING delta", f" USING delta{place}")
    with pytest.raises(RuntimeError, match="gone"):
        session.sql(statement)
    session.sql("INSERT INTO raced_too VALUES (7)")
    session.sql(OTHER + place)  # registers the intended name
    assert ids(session) == [*([1] if text is SELECT else []), 7]
    session.sql("DROP TABLE raced_too")


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_files_at_a_managed_location_are_not_replaced(session: SparkSession, format: str) -> None:
    place = names.default_location(session, "raced")
    trilake.write(pa.table({"id": [7]}), place, format=format)
    try:
        for text in (
            f"CREATE OR REPLACE TABLE raced USING {format} AS SELECT 1 AS id",
            f"CREATE TABLE raced (id INT) USING {format}",
        ):
            with pytest.raises(TableExistsError, match="already contains files"):
                session.sql(text)
        assert trilake.open(place).to_arrow()["id"].to_pylist() == [7]
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("format", ["lance", "trevni"])
@pytest.mark.parametrize("named", [False, True], ids=["before its files", "before its name"])
def test_create_if_not_exists_uses_concurrent_files(
    session: SparkSession, before: Any, tmp_path: Path, format: str, named: bool
) -> None:
    place = f" LOCATION '{tmp_path / 't'}'"
    other = OTHER.replace("delta", format) + place
    if named:  # the files exist, and the other statement uses them
        before(session_entries, "add", other)
    else:
        before(create_tables, "SaveRequest", other)
    session.sql(PLAIN.format("IF NOT EXISTS ").replace("delta", format) + place)
    assert ids(session) == [7]


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore"])
def test_save_as_table_with_a_concurrent_create(session: SparkSession, before: Any, mode: str) -> None:
    before(names, "make_entry", OTHER)
    session.sql("SELECT 1 AS id").write.format("delta").mode(mode).saveAsTable("raced")
    assert ids(session) == {"append": [1, 7], "overwrite": [1], "ignore": [7]}[mode]


def test_builder_finds_a_concurrent_table(session: SparkSession, before: Any) -> None:
    before(names, "make_entry", OTHER)
    trilake.DeltaTable.createIfNotExists(session).tableName("raced").addColumn("id", "int").execute()
    assert ids(session) == [7]


def test_name_with_a_concurrent_location_is_kept(session: SparkSession, tmp_path: Path) -> None:
    columns = from_spark(T.StructType().add("id", T.IntegerType()))
    with (
        pytest.raises(RuntimeError, match="failed"),
        names.new_name(session, "raced", columns, path=str(tmp_path / "a")),
    ):
        _fail_beside(session, "DROP TABLE raced", f"{OTHER} LOCATION '{tmp_path / 'b'}'", INSERT)
    assert ids(session) == [7]


def test_name_is_not_taken_from_a_concurrent_table(session: SparkSession, tmp_path: Path) -> None:
    """After the write, the name refers to another table."""
    elsewhere(session, f"{OTHER} LOCATION '{tmp_path / 'a'}'", INSERT)
    trilake.write(pa.table({"id": [1]}), tmp_path / "b")
    log = DeltaLog(open_store(tmp_path / "b"), spark_engine())
    with pytest.raises(TableExistsError, match="now refers to another table"):
        names.refresh_name(session, "raced", str(tmp_path / "b"), log, managed=False)
    assert ids(session) == [7]


def test_backup_name_is_logged_if_restore_fails(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def taken(*args: Any, **more: Any) -> None:
        elsewhere(session, OTHER, INSERT)
        raise RuntimeError("the name was taken")

    session.sql(f"CREATE TABLE raced USING parquet LOCATION '{tmp_path}' AS SELECT 1 AS id")
    monkeypatch.setattr(convert, "make_entry", taken)
    with pytest.raises(RuntimeError, match="taken"):
        trilake.DeltaTable.convertToDelta(session, "raced")
    assert ids(session) == [7]
    aside = re.findall(r"is now named `(raced_\w+)`", caplog.text)
    assert [row.id for row in session.table(aside[0]).collect()] == [1]
    session.sql(f"DROP TABLE {aside[0]}")


def test_rows_written_during_drop_are_kept(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last check of a managed table's location and the removal of its name."""
    place, drop = names.default_location(session, "raced"), entries.drop_entry

    def late(*args: Any) -> None:
        trilake.write(pa.table({"id": [7]}), place)
        drop(*args)

    monkeypatch.setattr(names, "drop_entry", late)
    columns = from_spark(T.StructType().add("id", T.IntegerType()))
    with pytest.raises(RuntimeError, match="failed"), names.new_name(session, "raced", columns):
        raise RuntimeError("the write failed")
    assert not session.catalog.tableExists("raced")
    assert trilake.open(place).to_arrow()["id"].to_pylist() == [7]
    shutil.rmtree(place)


def test_write_error_is_raised_if_drop_fails(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def rejected(*args: Any) -> None:
        raise OSError("the catalog is gone")

    monkeypatch.setattr(names, "drop_entry", rejected)
    columns = from_spark(T.StructType().add("id", T.IntegerType()))
    with pytest.raises(RuntimeError, match="failed"), names.new_name(session, "raced", columns):
        raise RuntimeError("the write failed")


@pytest.mark.parametrize("rows", [0, 1])
def test_failed_write_drops_an_unused_name(session: SparkSession, rows: int) -> None:
    with (
        pytest.raises(RuntimeError),
        names.new_name(session, "raced", from_spark(T.StructType().add("id", T.IntegerType()))),
    ):
        _fail(session, rows)
    assert session.catalog.tableExists("raced") == bool(rows)
    if rows:
        assert ids(session) == [7]


@pytest.mark.parametrize("by_sql", [False, True], ids=["classic", "by SQL alone"])
def test_failed_set_location_keeps_the_name(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_sql: bool
) -> None:
    elsewhere(session, f"{OTHER} LOCATION '{tmp_path / 'a'}'", INSERT)
    trilake.write(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "b")
    module, rejects = (session_entries, "add_delta") if by_sql else (alter, "move_entry")
    original, rejected = getattr(module, rejects), [OSError("the catalog is gone")]

    def late(*args: Any, **more: Any) -> None:
        if rejected:
            raise rejected.pop()
        original(*args, **more)

    monkeypatch.setattr(module, rejects, late)
    if by_sql:
        sql_only_catalog(monkeypatch)
    with pytest.raises(OSError, match="gone"):
        session.sql(f"ALTER TABLE raced SET LOCATION '{tmp_path / 'b'}'")
    assert ids(session) == [7]


def sql_only_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over Spark Connect, where the catalog is changed only by SQL."""
    original = alter._set_location

    def set_location(*args: Any) -> Any:
        with monkeypatch.context() as inside:
            inside.setattr(SqlSession, "classic", False)
            return original(*args)

    monkeypatch.setattr(alter, "_set_location", set_location)


def test_managed_table_keeps_files_with_sql_only_catalog(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over Spark Connect a name is removed by DROP TABLE, which deletes the files of a managed table."""
    elsewhere(session, OTHER, INSERT)
    trilake.write(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "b")
    sql_only_catalog(monkeypatch)
    with pytest.raises(UnsupportedSparkError, match="the location of the managed table"):
        session.sql(f"ALTER TABLE raced SET LOCATION '{tmp_path / 'b'}'")
    assert ids(session) == [7]
