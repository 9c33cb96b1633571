"""Writes that Spark refuses for Python sources, in the words that ``df.write`` has for them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable
from trilake.errors import InvalidArgumentError, TableExistsError
from trilake.spark.delta.catalogue import known_location
from trilake.spark.session.analysis_errors import analysis_error


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    trilake.register(spark)
    return spark


def _frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1), ("b", 2)], "key string, value int")


def test_the_default_mode_makes_a_table_once(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    df = _frame(session)
    df.write.format("delta").save(path)
    with pytest.raises(AnalysisException) as found:
        df.write.format("delta").save(path)
    assert isinstance(found.value, TableExistsError)
    df.write.format("delta").mode("ignore").save(path)
    df.write.save(path, format="delta", mode="append")
    assert session.read.format("delta").load(path).count() == 4
    assert trilake.open(path).version == 1


def test_partition_by_and_options_reach_the_table(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write = _frame(session).write.format("delta").partitionBy("key").option("userMetadata", "first").mode("append")
    write.option("delta.appendOnly", "true").save(path)
    table = trilake.open(path)
    assert table.metadata.partition_columns == ("key",)  # type: ignore[attr-defined]
    assert table.metadata.configuration == {"delta.appendOnly": "true"}  # type: ignore[attr-defined]
    assert table.history()["userMetadata"].to_pylist() == ["first"]
    # A later write that says the same partitioning goes in; another one does not.
    _frame(session).write.format("delta").partitionBy("key").mode("append").save(path)
    with pytest.raises(AnalysisException, match="partition"):
        _frame(session).write.format("delta").partitionBy("value").mode("append").save(path)
    with pytest.raises(InvalidArgumentError, match="no path"):
        _frame(session).write.format("delta").save()


def test_lance_and_trevni_have_all_modes(session: SparkSession, tmp_path: Path) -> None:
    df = _frame(session)
    for name in ("lance", "trevni"):
        path = str(tmp_path / name)
        df.write.format(name).save(path)
        with pytest.raises(AnalysisException):
            df.write.format(name).save(path)
        df.write.format(name).mode("ignore").save(path)
        assert session.read.format(name).load(path).count() == 2
    parts = str(tmp_path / "parts")
    df.write.format("trevni").partitionBy("key").mode("append").save(parts)
    assert sorted(session.read.format("trevni").load(parts).select("key", "value").collect()) == [("a", 1), ("b", 2)]
    with pytest.raises(AnalysisException, match="no partitions"):
        df.write.format("lance").partitionBy("key").save(str(tmp_path / "other"))


def test_tables_of_the_catalogue(session: SparkSession) -> None:
    df = _frame(session)
    try:
        df.write.format("delta").saveAsTable("writer_t")
        with pytest.raises(AnalysisException, match="writer_t already exists"):
            df.write.format("delta").saveAsTable("writer_t")
        df.write.format("delta").mode("ignore").saveAsTable("writer_t")
        df.write.format("delta").mode("append").saveAsTable("writer_t")
        df.write.insertInto("writer_t")
        assert session.table("writer_t").count() == DeltaTable.forName(session, "writer_t").toDF().count() == 6
        df.selectExpr("key as other", "value + 1").write.mode("overwrite").insertInto("writer_t")
        assert session.sql("select * from writer_t order by key").collect() == [("a", 2), ("b", 3)]
        with pytest.raises(AnalysisException, match="2 columns, the data 1"):
            df.select("key").write.insertInto("writer_t")
        again = df.selectExpr("key k").write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        again.saveAsTable("writer_t")
        assert session.table("writer_t").columns == ["k"]
    finally:
        session.sql("DROP TABLE IF EXISTS writer_t")


def test_a_named_table_may_have_a_place_of_its_own(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    try:
        _frame(session).write.format("delta").option("path", path).partitionBy("key").saveAsTable("writer_placed")
        assert trilake.open(path).count() == 2
        assert session.table("writer_placed").count() == 2
    finally:
        session.sql("DROP TABLE IF EXISTS writer_placed")


def test_write_to_a_table(session: SparkSession) -> None:
    df = _frame(session)
    try:
        writer = df.writeTo("writer_v2").using("delta").partitionedBy(F.col("key")).tableProperty("owner", "me")
        writer.create()
        with pytest.raises(AnalysisException, match="writer_v2 already exists"):
            df.writeTo("writer_v2").using("delta").create()
        df.writeTo("writer_v2").append()
        path = known_location(session, "writer_v2")
        table = trilake.open(path)
        assert table.metadata.partition_columns == ("key",)  # type: ignore[attr-defined]
        assert table.metadata.configuration == {"owner": "me"}  # type: ignore[attr-defined]
        one = session.createDataFrame([("a", 7)], "key string, value int")
        one.writeTo("writer_v2").overwritePartitions()
        assert sorted(session.table("writer_v2").collect()) == [("a", 7), ("b", 2), ("b", 2)]
        one.writeTo("writer_v2").overwrite(F.col("key") == "a")
        one.writeTo("writer_v2").using("delta").createOrReplace()
        assert session.table("writer_v2").collect() == [("a", 7)]
        with pytest.raises(AnalysisException, match="writer_missing cannot be found"):
            df.writeTo("writer_missing").using("delta").replace()
    finally:
        session.sql("DROP TABLE IF EXISTS writer_v2")


def test_other_formats_stay_with_spark(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "p")
    df = _frame(session)
    df.write.format("parquet").partitionBy("key").save(path)
    with pytest.raises(AnalysisException, match="already exists"):
        df.write.parquet(path)
    df.write.save(path, mode="append", partitionBy="key")
    assert session.read.parquet(path).count() == 4
    try:
        df.write.saveAsTable("writer_parquet", format="parquet")
        df.write.insertInto("writer_parquet")
        assert session.table("writer_parquet").count() == 4
    finally:
        session.sql("DROP TABLE IF EXISTS writer_parquet")


def test_an_error_of_both_kinds_travels() -> None:
    error = analysis_error(TableExistsError("there", file="x", version=3))
    assert isinstance(error, AnalysisException)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, TableExistsError)
    assert isinstance(again, AnalysisException)
    assert str(again) == str(error)
    assert again.getCondition() == "TABLE_EXISTS"
