"""``saveAsTable`` and ``writeTo`` with catalog tables and with paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.spark.patches.frames import two_rows
from trilake import DeltaTable
from trilake.errors import InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.spark.catalog.named_tables import existing_delta_table


def test_catalog_tables(session: SparkSession) -> None:
    df = two_rows(session)
    try:
        df.write.format("delta").saveAsTable("writer_t")
        with pytest.raises(AnalysisException, match="writer_t already exists"):
            df.write.format("delta").saveAsTable("writer_t")
        df.write.format("delta").mode("ignore").saveAsTable("writer_t")
        df.write.format("delta").mode("append").saveAsTable("writer_t")
        df.write.insertInto("writer_t")
        assert session.table("writer_t").count() == DeltaTable.forName(session, "writer_t").toDF().count() == 6
        df.selectExpr("key as other", "value + 1").write.mode("overwrite").insertInto("writer_t")
        assert session.table("writer_t").orderBy("key").collect() == [("a", 2), ("b", 3)]
        with pytest.raises(AnalysisException, match="2 columns, but the data has 1"):
            df.select("key").write.insertInto("writer_t")
        again = df.selectExpr("key k").write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        again.saveAsTable("writer_t")
        assert session.table("writer_t").columns == ["k"]
    finally:
        session.sql("DROP TABLE IF EXISTS writer_t")


def test_save_as_table_with_a_path(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    try:
        two_rows(session).write.format("delta").option("path", path).partitionBy("key").saveAsTable("writer_placed")
        assert trilake.open(path).count() == 2
        assert session.table("writer_placed").count() == 2
    finally:
        session.sql("DROP TABLE IF EXISTS writer_placed")


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_save_as_table_with_another_path_is_rejected(session: SparkSession, tmp_path: Path, format: str) -> None:
    """The rows at the first path were overwritten, and nothing was written to the second."""
    df, name = two_rows(session), f"writer_elsewhere_{format}"
    here, there = tmp_path / "here", tmp_path / "there"
    try:
        df.write.format(format).option("path", str(here)).saveAsTable(name)
        for mode in ("overwrite", "append"):
            with pytest.raises(AnalysisException, match="doesn't match the specified location") as found:
                df.limit(1).write.format(format).mode(mode).option("path", str(there)).saveAsTable(name)
            assert found.value.getCondition() == "DELTA_TABLE_LOCATION_MISMATCH"
            assert str(here) in str(found.value)
            assert str(there) in str(found.value)
        with pytest.raises(AnalysisException, match="match the specified location"):
            df.limit(1).write.mode("append").saveAsTable(f"{format}.`{here}`", format=format, path=str(there))
        df.write.format(format).mode("ignore").option("path", str(there)).saveAsTable(name)
        assert session.table(name).count() == 2
        assert not there.exists()
        for same in (f"file:{here}", f"{here}/", os.path.relpath(here), here.as_uri()):
            df.write.format(format).mode("overwrite").option("PATH", same).saveAsTable(name)
        assert session.table(name).count() == trilake.open(str(here), format=format).count() == 2
    finally:
        session.sql(f"DROP TABLE IF EXISTS {name}")


def test_write_to_table(session: SparkSession) -> None:
    df = two_rows(session)
    try:
        writer = df.writeTo("writer_v2").using("delta").partitionedBy(F.col("key")).tableProperty("owner", "me")
        writer.tableProperty("comment", "for tests").create()
        with pytest.raises(InvalidArgumentError, match="a comment can only be set"):
            df.writeTo("writer_v2").tableProperty("comment", "others").append()
        with pytest.raises(AnalysisException, match="writer_v2 already exists"):
            df.writeTo("writer_v2").using("delta").create()
        df.writeTo("writer_v2").append()
        path = existing_delta_table(session, "writer_v2").location
        table = trilake.open(path)
        assert table.metadata.partition_columns == ("key",)  # type: ignore[attr-defined]
        assert table.metadata.configuration == {"owner": "me"}  # type: ignore[attr-defined]
        assert table.metadata.description == "for tests"  # type: ignore[attr-defined]
        one = session.createDataFrame([("a", 7)], "key string, value int")
        one.writeTo("writer_v2").overwritePartitions()
        assert sorted(session.table("writer_v2").collect()) == [("a", 7), ("b", 2), ("b", 2)]
        one.writeTo("writer_v2").overwrite(F.col("key") == "a")
        one.writeTo("writer_v2").using("delta").tableProperty("comment", "another").createOrReplace()
        assert trilake.open(path).metadata.description == "another"  # type: ignore[attr-defined]
        assert session.table("writer_v2").collect() == [("a", 7)]
        with pytest.raises(AnalysisException, match="writer_missing cannot be found"):
            df.writeTo("writer_missing").using("delta").replace()
    finally:
        session.sql("DROP TABLE IF EXISTS writer_v2")


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_write_to_table_of_another_format(session: SparkSession, format: str) -> None:
    df, name = two_rows(session), f"writer_v2_{format}"
    try:
        df.writeTo(name).using(format).create()
        with pytest.raises(AnalysisException, match=f"{name} already exists"):
            df.writeTo(name).using(format).create()
        df.writeTo(name).append()
        assert session.read.table(name).count() == 4
        df.limit(1).writeTo(name).using(format).createOrReplace()
        assert session.read.table(name).count() == 1
        with pytest.raises(AnalysisException, match=f"{name}, which is a {format} table"):
            df.writeTo(name).using("delta").replace()
        with pytest.raises(AnalysisException, match="all rows or none"):
            df.writeTo(name).overwritePartitions()
        with pytest.raises(AnalysisException, match="do not support table properties, got owner"):
            df.writeTo(name).using(format).tableProperty("owner", "me").replace()
    finally:
        session.sql(f"DROP TABLE IF EXISTS {name}")


def test_replace_replaces_the_properties(session: SparkSession) -> None:
    df = two_rows(session)
    try:
        writer = df.writeTo("writer_props").using("delta").partitionedBy("key")
        writer.tableProperty("owner", "me").tableProperty("delta.appendOnly", "false").create()
        df.writeTo("writer_props").using("delta").tableProperty("delta.enableChangeDataFeed", "true").replace()
        table = DeltaTable.forName(session, "writer_props")
        found = table._open().metadata
        assert found.configuration == {"delta.enableChangeDataFeed": "true"}
        assert found.partition_columns == ()
        df.select("key").writeTo("writer_props").using("delta").tableProperty("owner", "you").createOrReplace()
        found = table._open().metadata
        assert found.configuration == {"owner": "you"}
        assert session.table("writer_props").columns == ["key"]
        assert table.history(1).collect()[0]["operation"] == "CREATE OR REPLACE TABLE AS SELECT"
    finally:
        session.sql("DROP TABLE IF EXISTS writer_props")


@pytest.mark.parametrize("format", ["delta", "lance"])
def test_location_property_sets_the_location(session: SparkSession, tmp_path: Path, format: str) -> None:
    """It was stored as a property of a table in the warehouse."""
    writer, place = two_rows(session).writeTo("writer_placed").using(format), f"{tmp_path}/there"
    try:
        writer.tableProperty("location", place).create()
        assert trilake.open(place, format=format).count() == session.table("writer_placed").count() == 2
        assert "location" not in getattr(trilake.open(place), "properties", {})
        with pytest.raises(AnalysisException, match=r"writer_placed is .*/there.* match the specified location"):
            writer.tableProperty("location", f"{tmp_path}/elsewhere").replace()
        assert not Path(tmp_path, "elsewhere").exists()
    finally:
        session.sql("DROP TABLE IF EXISTS writer_placed")


@pytest.mark.parametrize("provider", ["delta", "`delta`"])
def test_write_to_new_path(session: SparkSession, tmp_path: Path, provider: str) -> None:
    df = two_rows(session)
    name = f"{provider}.`{tmp_path}/new`"
    for missing in (
        df.writeTo(name).append,
        df.writeTo(name).using("delta").replace,
        df.writeTo(name).overwritePartitions,
        lambda: df.writeTo(name).overwrite(F.col("key") == "a"),
    ):
        with pytest.raises(TableNotFoundError, match="cannot be found"):
            missing()
    with pytest.raises(InvalidArgumentError, match="delta table"):
        df.writeTo(name).using("lance").create()
    with pytest.raises(InvalidArgumentError, match="but the call names"):
        df.writeTo(name).using("delta").option("path", f"{tmp_path}/other").create()
    assert list(tmp_path.iterdir()) == []
    df.writeTo(name).using("delta").partitionedBy("key").tableProperty("owner", "me").create()
    with pytest.raises(TableExistsError, match="already exists"):
        df.writeTo(name).using("delta").create()
    df.writeTo(name).append()
    table = trilake.open(f"{tmp_path}/new")
    assert table.count() == 4
    assert table.metadata.partition_columns == ("key",)  # type: ignore[attr-defined]
    assert table.metadata.configuration["owner"] == "me"  # type: ignore[attr-defined]
    df.limit(1).writeTo(f"{provider}.`{tmp_path}/other`").using("delta").createOrReplace()
    df.writeTo(f"{provider}.`{tmp_path}/other`").using("delta").createOrReplace()
    assert trilake.open(f"{tmp_path}/other").count() == 2


@pytest.mark.parametrize("provider", ["delta", "`delta`"])
def test_save_as_table_at_new_path(session: SparkSession, tmp_path: Path, provider: str) -> None:
    for mode in ("error", "ignore", "append", "overwrite"):
        two_rows(session).write.format("delta").mode(mode).saveAsTable(f"{provider}.`{tmp_path}/{mode}`")
        assert trilake.open(f"{tmp_path}/{mode}").count() == 2
    with pytest.raises(TableExistsError, match="already exists"):
        two_rows(session).write.format("delta").saveAsTable(f"{provider}.`{tmp_path}/append`")
    two_rows(session).write.format("delta").mode("ignore").saveAsTable(f"{provider}.`{tmp_path}/append`")
    assert trilake.open(f"{tmp_path}/append").count() == 2
    with pytest.raises(TableNotFoundError):
        two_rows(session).write.insertInto(f"{provider}.`{tmp_path}/nothing`")


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_paths_of_other_formats_are_names(session: SparkSession, tmp_path: Path, format: str) -> None:
    df, name = two_rows(session), f"{format}.`{tmp_path}/new`"
    with pytest.raises(TableNotFoundError):
        df.write.insertInto(name)
    for missing in df.writeTo(name).append, df.writeTo(name).using(format).replace:
        with pytest.raises(TableNotFoundError, match="cannot be found"):
            missing()
    with pytest.raises(InvalidArgumentError, match=f"is a {format} table"):
        df.writeTo(name).using("delta").create()
    assert list(tmp_path.iterdir()) == []
    df.writeTo(name).using(format).create()
    for again in df.writeTo(name).using(format).create, lambda: df.write.format(format).saveAsTable(name):
        with pytest.raises(TableExistsError, match="already exists"):
            again()
    df.write.format(format).mode("ignore").saveAsTable(name)
    df.write.format(format).mode("append").saveAsTable(name)
    df.writeTo(name).append()
    df.selectExpr("key AS other", "value + 10L AS names").write.insertInto(name)
    rows = session.read.table(name)
    assert (rows.columns, rows.count(), rows.where("value > 10").count()) == (["key", "value"], 8, 2)
    df.limit(1).write.insertInto(name, overwrite=True)
    assert session.table(name).count() == 1
    df.writeTo(name).using(format).createOrReplace()
    assert trilake.open(tmp_path / "new").count() == 2
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


def test_name_without_slash_in_a_database_named_like_a_format(session: SparkSession) -> None:
    session.sql("CREATE DATABASE IF NOT EXISTS lance")
    try:
        two_rows(session).write.format("lance").saveAsTable("lance.`t`")
        two_rows(session).write.insertInto("lance.`t`")
        assert session.table("lance.`t`").count() == 4
        assert session.catalog.tableExists("t", "lance")
    finally:
        session.sql("DROP DATABASE lance CASCADE")
