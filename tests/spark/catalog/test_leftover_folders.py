"""A new managed table never adopts a leftover folder: an in-memory catalog is lost, its folders stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from tests.connect_session import run_apart
from trilake.errors import TableExistsError
from trilake.spark.catalog.named_tables import default_location

OLD, NEW = [{"id": 1}, {"id": 2}], [7]


@pytest.fixture(scope="module")
def _other(spark: SparkSession) -> Iterator[None]:
    """A table ``other`` with one row."""
    trilake.install(spark)
    spark.sql("CREATE TABLE other USING delta AS SELECT 7 AS id")
    yield
    trilake.install(spark)
    spark.sql("DROP TABLE other")
    trilake.uninstall(spark)


@pytest.fixture
def place(_other: None, sql: SparkSession) -> Iterator[Path]:
    """The catalog's location of the table ``left``, with files of an earlier session."""
    folder = Path(default_location(sql, "left"))
    trilake.write(OLD, folder)
    yield folder
    sql.sql("DROP TABLE IF EXISTS left")
    shutil.rmtree(folder, ignore_errors=True)


def _seven(spark: SparkSession) -> Any:
    return spark.sql("SELECT 7 AS id")


def _save(mode: str, format: str = "delta") -> Callable[[SparkSession, Path], Any]:
    return lambda spark, _: _seven(spark).write.format(format).mode(mode).saveAsTable("left")


def _statement(text: str) -> Callable[[SparkSession, Path], Any]:
    return lambda spark, _: spark.sql(text)


def _stream(spark: SparkSession, tmp_path: Path) -> None:
    trilake.write(OLD, tmp_path / "source")
    source = spark.readStream.format("delta").load(str(tmp_path / "source"))
    writer = source.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).toTable("left").awaitTermination()


CREATES: dict[str, Callable[[SparkSession, Path], Any]] = {
    "columns": _statement("CREATE TABLE left (id INT) USING delta"),
    "other columns": _statement("CREATE TABLE left (name STRING) USING delta"),
    "no columns": _statement("CREATE TABLE left USING delta"),
    "if not exists": _statement("CREATE TABLE IF NOT EXISTS left (id INT) USING delta"),
    "query": _statement("CREATE TABLE left USING delta AS SELECT 7 AS id"),
    "query, if not exists": _statement("CREATE TABLE IF NOT EXISTS left USING delta AS SELECT 7 AS id"),
    "like": _statement("CREATE TABLE left LIKE other"),
    "clone": _statement("CREATE TABLE left SHALLOW CLONE other"),
    "catalog": lambda spark, _: spark.catalog.createTable("left", source="delta", schema=_seven(spark).schema),
    "saveAsTable": _save("error"),
    "saveAsTable, append": _save("append"),
    "saveAsTable, ignore": _save("ignore"),
    "writeTo": lambda spark, _: _seven(spark).writeTo("left").using("delta").create(),
    "builder": lambda spark, _: trilake.DeltaTable.create(spark).tableName("left").addColumn("id", "INT").execute(),
    "createIfNotExists": lambda spark, _: (
        trilake.DeltaTable.createIfNotExists(spark).tableName("left").addColumn("id", "INT").execute()
    ),
    "DeltaTable.clone": lambda spark, _: trilake.DeltaTable.forName(spark, "other").clone("left"),
    "stream": _stream,
}
REPLACES: dict[str, Callable[[SparkSession, Path], Any]] = {
    "columns": _statement("CREATE OR REPLACE TABLE left (id INT) USING delta"),
    "query": _statement("CREATE OR REPLACE TABLE left USING delta AS SELECT 7 AS id"),
    "clone": _statement("CREATE OR REPLACE TABLE left SHALLOW CLONE other"),
    "saveAsTable": _save("overwrite"),
    "writeTo": lambda spark, _: _seven(spark).writeTo("left").using("delta").createOrReplace(),
    "builder": lambda spark, _: (
        trilake.DeltaTable.createOrReplace(spark).tableName("left").addColumn("id", "INT").execute()
    ),
    "DeltaTable.clone": lambda spark, _: trilake.DeltaTable.forName(spark, "other").clone("left", replace=True),
}


ALL = {**CREATES, **{f"replace {name}": replace for name, replace in REPLACES.items()}}


def error_message(spark: SparkSession, place: Path, create: Callable[[], Any]) -> str:
    """The message of an error that leaves no name."""
    with pytest.raises(TableExistsError) as e:
        create()
    assert isinstance(e.value, AnalysisException)
    assert e.value.getCondition() == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
    message = str(e.value)
    assert str(place) in message
    assert "LOCATION" in message
    assert "remove the folder" in message
    assert not spark.catalog.tableExists("left")
    return message


@pytest.mark.parametrize("create", CREATES.values(), ids=CREATES)
def test_leftover_table_is_not_adopted(
    sql: SparkSession, place: Path, tmp_path: Path, create: Callable[[SparkSession, Path], Any]
) -> None:
    error_message(sql, place, lambda: create(sql, tmp_path))
    assert trilake.open(place).version == 0
    assert trilake.open(place).to_arrow().num_rows == len(OLD)


@pytest.mark.parametrize("replace", REPLACES.values(), ids=REPLACES)
def test_leftover_table_is_replaced_on_request(
    sql: SparkSession, place: Path, tmp_path: Path, replace: Callable[[SparkSession, Path], Any]
) -> None:
    replace(sql, tmp_path)
    rows = [row.id for row in sql.table("left").collect()]
    assert rows in ([], NEW)
    assert trilake.open(place).version == 1
    sql.sql("DROP TABLE left")
    assert not place.exists()


@pytest.mark.parametrize("create", ALL.values(), ids=ALL)
def test_foreign_files_are_not_adopted_or_replaced(
    sql: SparkSession, place: Path, tmp_path: Path, create: Callable[[SparkSession, Path], Any]
) -> None:
    shutil.rmtree(place)
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    error_message(sql, place, lambda: create(sql, tmp_path))
    assert [p.name for p in place.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("format", ["lance", "trevni"])
@pytest.mark.parametrize(
    "create",
    [
        lambda spark, format: spark.sql(f"CREATE TABLE left (id INT) USING {format}"),
        lambda spark, format: spark.sql(f"CREATE TABLE left USING {format} AS SELECT 7 AS id"),
        lambda spark, format: _save("error", format)(spark, Path()),
    ],
    ids=["columns", "query", "saveAsTable"],
)
def test_leftover_files_of_other_formats_are_not_adopted(
    sql: SparkSession, place: Path, format: str, create: Callable[[SparkSession, str], Any]
) -> None:
    shutil.rmtree(place)
    trilake.write(pa.table({"id": [1]}), place, format=format)
    error_message(sql, place, lambda: create(sql, format))
    assert trilake.open(place).to_arrow().num_rows == 1


@pytest.mark.parametrize("left", ["absent", "empty"])
def test_table_can_use_an_empty_folder(sql: SparkSession, place: Path, left: str) -> None:
    shutil.rmtree(place)
    if left == "empty":
        place.mkdir()
    sql.sql("CREATE TABLE left (id INT) USING delta")
    sql.sql("INSERT INTO left VALUES (7)")
    assert [row.id for row in sql.table("left").collect()] == NEW


def test_suggested_fixes_for_leftover_folder_work(sql: SparkSession, place: Path) -> None:
    message = error_message(sql, place, lambda: sql.sql("CREATE TABLE left (id INT) USING delta"))
    named = f"CREATE TABLE `left` USING delta LOCATION '{place}'"
    assert named in message
    sql.sql(named)
    assert sql.table("left").count() == len(OLD)
    sql.sql("DROP TABLE left")
    shutil.rmtree(place)
    sql.sql("CREATE TABLE left (id INT) USING delta")
    assert sql.table("left").count() == 0


CONNECT = """
import shutil, sys
from pathlib import Path
import trilake
from tests.connect_session import connect_session
from tests.spark.catalog.test_leftover_folders import ALL, OLD, error_message
folder = Path(sys.argv[1])
spark = connect_session(**{"spark.sql.warehouse.dir": f"file:{folder / 'warehouse'}"})
trilake.install(spark)
spark.sql("CREATE TABLE other USING delta AS SELECT 7 AS id")
place = folder / "warehouse" / "left"
for name, create in ALL.items():
    shutil.rmtree(place, ignore_errors=True)
    trilake.write(OLD, place)
    try:
        error_message(spark, place, lambda: create(spark, folder / name.replace(",", "")))
    except BaseException as e:
        raise AssertionError(name) from e
    assert trilake.open(place).to_arrow().num_rows == len(OLD)
print("all rejected")
"""


@pytest.mark.soak
def test_leftover_table_is_not_adopted_over_connect(tmp_path: Path) -> None:
    done = run_apart(CONNECT, str(tmp_path))
    assert "all rejected" in done.stdout, done.stderr[-3000:]
