"""``df.writeTo`` of trilake tables: options are applied or rejected by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.spark.patches.frames import two_rows
from trilake import DeltaTable
from trilake.errors import InvalidArgumentError

_NAME = "table_writer_t"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.register(spark)
    yield spark
    spark.sql(f"DROP TABLE IF EXISTS {_NAME}")


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_write_to_name_with_another_path_is_rejected(session: SparkSession, tmp_path: Path, format: str) -> None:
    """The path was ignored, and the rows of the table were replaced in place."""
    df, here, there = two_rows(session), tmp_path / "here", tmp_path / "there"
    df.writeTo(_NAME).using(format).option("path", str(here)).create()
    elsewhere = df.limit(1).writeTo(_NAME).using(format).option("path", str(there))
    calls = [elsewhere.createOrReplace, elsewhere.replace, elsewhere.append]
    if format == "delta":
        calls += [elsewhere.overwritePartitions, lambda: elsewhere.overwrite(F.col("key") == "a")]
    calls.append(df.writeTo(_NAME).using(format).tableProperty("location", str(there)).createOrReplace)
    for call in calls:
        with pytest.raises(AnalysisException, match="doesn't match the specified location") as found:
            call()
        assert found.value.getCondition() == "DELTA_TABLE_LOCATION_MISMATCH"
    with pytest.raises(InvalidArgumentError, match="option 'location'"):
        df.writeTo(_NAME).using(format).option("location", str(there)).append()
    assert not there.exists()
    assert trilake.open(str(here), format=format).count() == 2
    df.writeTo(_NAME).using(format).option("path", f"{here}/").createOrReplace()
    df.writeTo(_NAME).using(format).tableProperty("location", here.as_uri()).createOrReplace()
    assert session.table(_NAME).count() == 2


def test_replace_with_schema_option_is_rejected(session: SparkSession) -> None:
    """The option was ignored: the schema was replaced with the rows."""
    df = two_rows(session)
    kept = df.select("key").writeTo(_NAME).using("delta").option("overwriteschema", "false")
    with pytest.raises(AnalysisException, match="overwriteSchema is not allowed when replacing") as found:
        kept.createOrReplace()
    assert found.value.getCondition() == "DELTA_ILLEGAL_USAGE"
    kept.create()
    for call in (kept.createOrReplace, kept.replace):
        with pytest.raises(AnalysisException, match="overwriteSchema is not allowed when replacing"):
            call()
    kept.append()
    df.writeTo(_NAME).using("delta").option("overwriteSchema", "true").createOrReplace()
    assert session.table(_NAME).columns == ["key", "value"]


def test_conflicting_overwrite_conditions_are_rejected(session: SparkSession) -> None:
    """The condition silently overrode the option."""
    df = two_rows(session)
    df.writeTo(_NAME).using("delta").create()
    with pytest.raises(AnalysisException, match="cannot be used together") as found:
        df.writeTo(_NAME).option("replacewhere", "key = 'b'").overwrite(F.col("key") == "a")
    assert found.value.getCondition() == "DELTA_REPLACE_WHERE_IN_OVERWRITE"
    assert found.value.getSqlState() == "42613"
    assert session.table(_NAME).count() == 2


def test_history_records_create_and_replace(session: SparkSession) -> None:
    """It was recorded as a WRITE, or always as a REPLACE TABLE AS SELECT."""
    write = two_rows(session).writeTo(_NAME).using("delta")
    for call in (write.createOrReplace, write.append, write.replace, write.createOrReplace):
        call()
    rows = DeltaTable.forName(session, _NAME).history().orderBy("version").collect()
    either = "CREATE OR REPLACE TABLE AS SELECT"
    assert [r.operation for r in rows] == [either, "WRITE", "REPLACE TABLE AS SELECT", either]
    parameters = {"isManaged": "true", "description": None, "partitionBy": "[]", "clusterBy": "[]", "properties": "{}"}
    assert [r.operationParameters for r in rows if r.operation != "WRITE"] == [parameters] * 3
    session.sql(f"DROP TABLE {_NAME}")
    write.clusterBy("key").create()
    row = DeltaTable.forName(session, _NAME).history().collect()[0]
    assert (row.operation, row.operationParameters["clusterBy"]) == ("CREATE TABLE AS SELECT", '["key"]')


def test_new_tables_use_the_default_format_of_the_session(session: SparkSession) -> None:
    """Spark created a table without a location: nothing could be written to it."""
    df = two_rows(session)
    df.write.format("parquet").saveAsTable("table_writer_parquet")
    session.conf.set("spark.sql.sources.default", "delta")
    try:
        df.writeTo(_NAME).create()
        df.writeTo(_NAME).append()
        with pytest.raises(AnalysisException, match="Cannot write into v1 table"):  # a Spark table, Spark's error
            df.writeTo("table_writer_parquet").append()
    finally:
        session.conf.unset("spark.sql.sources.default")
    assert DeltaTable.forName(session, _NAME).toDF().count() == 4
    session.sql("DROP TABLE table_writer_parquet")
