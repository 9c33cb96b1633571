"""``spark.catalog`` after ``trilake.install``: creating and describing trilake tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from trilake.errors import TrilakeError, UnknownOptionError

_COLUMNS = T.StructType(
    [T.StructField("id", T.LongType(), False), T.StructField("s", T.StringType(), True, {"comment": "a text"})]
)


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    for name in ("made", "made_too"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    trilake.uninstall(spark)


def _entries(spark: SparkSession) -> list[str]:
    return [t.name for t in spark.catalog.listTables() if t.name.startswith("made")]


def test_table_created_by_the_catalog_has_a_log(sql: SparkSession, tmp_path: Path) -> None:
    """It failed with UNKNOWN_OPTION."""
    path = f"{tmp_path}/t"
    options = {"schema": _COLUMNS, "description": "why", "delta.appendOnly": True}
    for name, place in (("made", None), ("made_too", path)):
        frame = sql.catalog.createTable(name, path=place, source="delta", **options)
        assert (frame.columns, frame.count()) == (["id", "s"], 0)
        sql.sql(f"INSERT INTO {name} VALUES (1, 'a')")
        detail = sql.sql(f"DESCRIBE DETAIL {name}").collect()[0]
        assert (detail.description, detail.properties) == ("why", {"delta.appendOnly": "true"})
        kind = "MANAGED" if place is None else "EXTERNAL"  # Spark treats a table of any Python source as managed
        assert sql.catalog.getTable(name).tableType == kind
        assert [t.tableType for t in sql.catalog.listTables() if t.name == name] == [kind]
    shown = [(c.name, c.nullable, c.description) for c in sql.catalog.listColumns("made_too")]
    assert shown == [("id", False, None), ("s", True, "a text")]
    with pytest.raises(AnalysisException, match="already exists"):
        sql.catalog.createTable("made", source="delta", schema=_COLUMNS)
    # Spark handles other formats.
    sql.sql("DROP TABLE made")
    sql.catalog.createTable("made", source="parquet", schema=_COLUMNS)
    assert sql.table("made").count() == 0


def test_external_table_without_location_is_managed(sql: SparkSession) -> None:
    """As with delta-spark.  It failed with CREATE_EXTERNAL_TABLE_WITHOUT_LOCATION, Spark's error for other formats."""
    try:
        sql.sql("CREATE EXTERNAL TABLE outside (id INT) USING delta")
        assert sql.catalog.getTable("outside").tableType == "MANAGED"
        sql.sql("CREATE OR REPLACE TABLE outside USING delta AS SELECT 1 AS id")
        assert sql.table("outside").count() == 1
        with pytest.raises(AnalysisException, match="CREATE_EXTERNAL_TABLE_WITHOUT_LOCATION"):
            sql.sql("CREATE EXTERNAL TABLE others (id INT) USING parquet")
    finally:
        sql.sql("DROP TABLE IF EXISTS outside")


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_existing_table_gets_a_name(sql: SparkSession, tmp_path: Path, format: str) -> None:
    path = f"{tmp_path}/t"
    trilake.write(sql.range(3), path, format=format)
    assert sql.catalog.createTable("made", path, format).count() == 3
    assert [c.name for c in sql.catalog.listColumns("made")] == ["id"]
    with pytest.raises(AnalysisException, match="already exists with different columns: id"):
        sql.catalog.createTable("made_too", path, format, _COLUMNS)
    sql.sql(f"CREATE TABLE made_too (id BIGINT) USING {format} LOCATION '{path}'")
    assert sql.table("made_too").count() == 3
    detail, files = sql.sql("DESCRIBE DETAIL made_too").collect()[0], trilake.open(path).files()["size"].to_pylist()
    assert (detail.format, detail.numFiles, detail.sizeInBytes) == (format, len(files), sum(files))


def test_table_may_be_created_without_columns(sql: SparkSession, tmp_path: Path) -> None:
    """As in delta-spark; the columns are added with the first rows, or by ALTER TABLE."""
    sql.sql("CREATE TABLE made USING delta")
    sql.sql("CREATE TABLE IF NOT EXISTS made USING delta")
    sql.catalog.createTable("made_too", f"{tmp_path}/t", "delta")
    assert [sql.table(name).count() for name in ("made", "made_too")] == [0, 0]
    statement = sql.sql("SHOW CREATE TABLE made").collect()[0][0]
    assert statement.startswith("CREATE TABLE spark_catalog.default.made\nUSING delta")
    sql.range(2).write.mode("append").option("mergeSchema", "true").format("delta").saveAsTable("made")
    sql.sql("ALTER TABLE made_too ADD COLUMNS (id BIGINT)")
    sql.sql("INSERT INTO made_too SELECT * FROM made")
    assert [sql.table(name).count() for name in ("made", "made_too")] == [2, 2]
    with pytest.raises(AnalysisException, match="needs at least one column"):
        sql.sql("CREATE OR REPLACE TABLE made_new USING delta")


def test_failed_create_leaves_no_name_and_no_files(sql: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/t"
    for format in ("lance", "trevni"):
        with pytest.raises(AnalysisException, match="needs at least one column"):
            sql.sql(f"CREATE TABLE made USING {format} LOCATION '{path}'")
    with pytest.raises(AnalysisException, match="'mergeSchema'") as unknown:
        sql.catalog.createTable("made", path, "delta", _COLUMNS, mergeSchema="true")
    assert isinstance(unknown.value, UnknownOptionError)
    with pytest.raises(TrilakeError, match="unknown option 'headr'"):
        sql.sql(f"CREATE TABLE made (id INT) USING delta OPTIONS (headr 'true') LOCATION '{path}'")
    assert not _entries(sql)
    assert not Path(path).exists()
    options = f"PATH '{path}', 'delta.appendOnly' 'true', header 'true'"
    with pytest.warns(UserWarning, match="ignores these options: header"):
        sql.sql(f"CREATE TABLE made (id INT) USING delta OPTIONS ({options})")
    assert trilake.open(path).properties == {"delta.appendOnly": "true"}


def test_catalog_shows_the_newest_schema(sql: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/t"
    by_path = f"delta.`{path}`"
    assert not sql.catalog.tableExists(by_path)
    sql.sql(f"CREATE TABLE made (id INT) USING delta LOCATION '{path}'")
    trilake.write(
        sql.sql("SELECT 1 AS id, 'x' AS p"), path, mode="overwrite", schema_mode="overwrite", partition_by="p"
    )
    trilake.alter(path).comment("later")
    shown = [(c.name, c.dataType, c.isPartition) for c in sql.catalog.listColumns("made")]
    assert shown == [("id", "int", False), ("p", "string", True)]
    assert sql.catalog.listColumns(by_path) == sql.catalog.listColumns("default.made")
    assert sql.catalog.getTable("made").description == "later"
    assert sql.catalog.tableExists(by_path)
    about = sql.catalog.getTable(by_path)
    assert (about.description, about.namespace, about.tableType) == ("later", ["delta"], "EXTERNAL")
    with pytest.raises(AnalysisException):
        sql.catalog.getTable(f"delta.`{tmp_path}/none`")
    sql.catalog.refreshTable("made")
    with pytest.raises(AnalysisException, match="not supported for Delta tables"):
        sql.catalog.recoverPartitions("made")


def test_cached_table_is_read_from_the_cache(sql: SparkSession) -> None:
    sql.sql("CREATE TABLE made (id INT) USING delta")
    sql.sql("INSERT INTO made VALUES (1)")
    assert not sql.catalog.isCached("made")
    sql.catalog.cacheTable("default.made", StorageLevel.MEMORY_ONLY)
    assert sql.catalog.isCached("made")
    assert "InMemoryTableScan" in sql.sql("EXPLAIN SELECT * FROM made").collect()[0][0]
    sql.sql("INSERT INTO made VALUES (2)")
    assert sql.table("made").count() == 2
    sql.sql("CACHE TABLE made")
    sql.catalog.uncacheTable("made")
    assert not sql.catalog.isCached("made")
