"""CREATE TABLE of trilake's formats with only ``trilake.register``: a name for a table, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from trilake.errors import InvalidArgumentError


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.register(spark)
    yield spark
    for name in ("named", "named_too"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_create_with_location_names_an_existing_table(session: SparkSession, tmp_path: Path, format: str) -> None:
    """Spark asked the source for its schema without the path."""
    path = f"{tmp_path}/a b"
    trilake.write(session.range(3), path, format=format)
    assert session.sql(f"CREATE TABLE named USING {format} LOCATION '{path}'").columns == []
    assert session.table("named").count() == session.read.table("named").count() == 3
    session.sql(f"/* again */ create table if not exists named using {format} location '{path}'")
    session.sql(f"CREATE TABLE named_too (id BIGINT) USING {format} LOCATION '{path}'")
    assert session.table("named_too").count() == 3


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_catalog_names_an_existing_table(session: SparkSession, tmp_path: Path, format: str) -> None:
    path = f"{tmp_path}/a b"
    frame = session.range(3)
    trilake.write(frame, path, format=format)
    assert session.catalog.createTable("default.named", path, format).count() == 3
    session.catalog.createTable("named_too", path=path, source=format, schema=frame.schema)
    assert session.table("named").count() == session.table("named_too").count() == 3
    with pytest.raises(AnalysisException, match="named"):
        session.catalog.createTable("named", path, format)


def test_create_without_a_table_leaves_no_name(session: SparkSession, tmp_path: Path) -> None:
    for text in (
        "CREATE TABLE named (id INT) USING delta",
        f"CREATE TABLE named (id INT) USING delta LOCATION '{tmp_path}/none'",
        f"CREATE TABLE named USING lance LOCATION '{tmp_path}/none'",
        "CREATE TABLE IF NOT EXISTS named (id INT) USING trevni PARTITIONED BY (id)",
    ):
        with pytest.raises(AnalysisException, match=r"trilake\.install\(spark\)") as rejected:
            session.sql(text)
        assert isinstance(rejected.value, InvalidArgumentError)
    with pytest.raises(AnalysisException, match=r"trilake\.install\(spark\)"):
        session.catalog.createTable("named", source="delta", schema=session.range(1).schema)
    assert not session.catalog.tableExists("named")
    session.sql("CREATE TABLE named USING parquet AS SELECT 'CREATE TABLE t USING delta' AS s")
    assert session.table("named").count() == 1
