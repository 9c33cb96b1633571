"""Writes that Spark refuses for Python sources, in the words that ``df.write`` has for them."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    WriteFailedError,
)
from trilake.spark.delta.names.catalogue import known_location
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
        assert session.table("writer_t").orderBy("key").collect() == [("a", 2), ("b", 3)]
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


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_a_name_is_written_at_no_other_place_than_its_own(session: SparkSession, tmp_path: Path, format: str) -> None:
    """The rows of the first place were overwritten, and nothing was made at the second."""
    df, name = _frame(session), f"writer_elsewhere_{format}"
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


def test_the_history_tells_that_a_table_was_made_or_replaced(session: SparkSession, tmp_path: Path) -> None:
    """It was a WRITE like that of an append."""
    write, path = _frame(session).write.format("delta"), f"{tmp_path}/t"
    made, replaced = "CREATE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT"
    try:
        write.partitionBy("key").option("delta.appendOnly", "false").saveAsTable("writer_history")
        for mode in ("append", "overwrite"):
            _frame(session).write.format("delta").mode(mode).saveAsTable("writer_history")
        where = write.mode("overwrite").option("replaceWhere", "value > 0")
        where.saveAsTable("writer_history")
        rows = DeltaTable.forName(session, "writer_history").history().orderBy("version").collect()
        assert [r.operation for r in rows] == [made, "WRITE", replaced, "WRITE"]
        said = {"isManaged": "true", "description": None, "partitionBy": '["key"]', "clusterBy": "[]"}
        said["properties"] = '{"delta.appendOnly":"false"}'
        assert rows[0].operationParameters == rows[2].operationParameters == said
        session.sql("DROP TABLE writer_history")
        for mode in ("append", "overwrite"):
            df = _frame(session).write.format("delta").mode(mode)
            df.option("path", f"{path}{mode}").saveAsTable("writer_history")
            rows = DeltaTable.forName(session, "writer_history").history().collect()
            assert [r.operation for r in rows] == [made if mode == "append" else replaced]
            assert rows[0].operationParameters["isManaged"] == "false"
            session.sql("DROP TABLE writer_history")
        _frame(session).write.format("delta").saveAsTable(f"delta.`{path}`")
        row = DeltaTable.forPath(session, path).history().collect()[0]
        assert (row.operation, row.operationParameters["isManaged"]) == (made, "false")
    finally:
        session.sql("DROP TABLE IF EXISTS writer_history")


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


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_write_to_a_table_of_another_format(session: SparkSession, format: str) -> None:
    df, name = _frame(session), f"writer_v2_{format}"
    try:
        df.writeTo(name).using(format).create()
        with pytest.raises(AnalysisException, match=f"{name} already exists"):
            df.writeTo(name).using(format).create()
        df.writeTo(name).append()
        assert session.read.table(name).count() == 4
        df.limit(1).writeTo(name).using(format).createOrReplace()
        assert session.read.table(name).count() == 1
        with pytest.raises(AnalysisException, match=f"{name} is a {format} table"):
            df.writeTo(name).using("delta").replace()
        with pytest.raises(AnalysisException, match="all rows or none"):
            df.writeTo(name).overwritePartitions()
        with pytest.raises(AnalysisException, match="no properties: owner"):
            df.writeTo(name).using(format).tableProperty("owner", "me").replace()
    finally:
        session.sql(f"DROP TABLE IF EXISTS {name}")


def test_replace_replaces_the_properties_too(session: SparkSession) -> None:
    df = _frame(session)
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
def test_a_property_says_where_a_new_table_is_to_be(session: SparkSession, tmp_path: Path, format: str) -> None:
    """It was kept as a property of a table in the warehouse."""
    writer, place = _frame(session).writeTo("writer_placed").using(format), f"{tmp_path}/there"
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
def test_write_to_a_path_where_nothing_is(session: SparkSession, tmp_path: Path, provider: str) -> None:
    df = _frame(session)
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
    with pytest.raises(InvalidArgumentError, match="place of its own"):
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
def test_save_as_a_table_at_a_path_where_nothing_is(session: SparkSession, tmp_path: Path, provider: str) -> None:
    for mode in ("error", "ignore", "append", "overwrite"):
        _frame(session).write.format("delta").mode(mode).saveAsTable(f"{provider}.`{tmp_path}/{mode}`")
        assert trilake.open(f"{tmp_path}/{mode}").count() == 2
    with pytest.raises(TableExistsError, match="already exists"):
        _frame(session).write.format("delta").saveAsTable(f"{provider}.`{tmp_path}/append`")
    _frame(session).write.format("delta").mode("ignore").saveAsTable(f"{provider}.`{tmp_path}/append`")
    assert trilake.open(f"{tmp_path}/append").count() == 2
    with pytest.raises(TableNotFoundError):
        _frame(session).write.insertInto(f"{provider}.`{tmp_path}/nothing`")


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_paths_of_other_formats_are_names_too(session: SparkSession, tmp_path: Path, format: str) -> None:
    df, name = _frame(session), f"{format}.`{tmp_path}/new`"
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


def test_a_name_without_a_slash_is_of_a_database_that_is_called_like_a_format(session: SparkSession) -> None:
    session.sql("CREATE DATABASE IF NOT EXISTS lance")
    try:
        _frame(session).write.format("lance").saveAsTable("lance.`t`")
        _frame(session).write.insertInto("lance.`t`")
        assert session.table("lance.`t`").count() == 4
        assert session.catalog.tableExists("t", "lance")
    finally:
        session.sql("DROP DATABASE lance CASCADE")


def test_insert_into_stores_nested_values_by_position_as_insert_does(session: SparkSession) -> None:
    made = "s struct<a: int, b: string>, l array<struct<a: int, b: string>>, m map<string, struct<i: int>>, n tinyint"
    given = "named_struct('b', 7L, 'a', 8) s, array(named_struct('b', 1, 'x', 'y')) l, map('k', named_struct('j', 2)) m"
    try:
        session.createDataFrame([], made).write.format("delta").saveAsTable("writer_nested")
        session.range(1).selectExpr(*_columns(given), "'5' n").write.insertInto("writer_nested")
        (row,) = session.table("writer_nested").collect()
        assert row.asDict(recursive=True) == {
            "s": {"a": 7, "b": "8"},
            "l": [{"a": 1, "b": "y"}],
            "m": {"k": {"i": 2}},
            "n": 5,
        }
        with pytest.raises(TrilakeError, match="1000") as found:
            session.range(1).selectExpr(*_columns(given), "1000 n").write.insertInto("writer_nested")
        assert found.value.getCondition() == "CAST_OVERFLOW_IN_TABLE_INSERT"  # type: ignore[attr-defined]
        few = _columns(given.replace("'b', 7L, 'a', 8", "'b', 7L"))
        with pytest.raises(SchemaMismatchError, match="1 fields"):
            session.range(1).selectExpr(*few, "1 n").write.insertInto("writer_nested")
        assert session.table("writer_nested").count() == 1
    finally:
        session.sql("DROP TABLE IF EXISTS writer_nested")


def test_insert_into_makes_new_columns_where_the_schema_evolves(session: SparkSession) -> None:
    wide = session.createDataFrame([(2, "x")], "v int, w string")
    try:
        session.createDataFrame([(1,)], "a int").write.format("delta").saveAsTable("writer_evolves")
        with pytest.raises(TrilakeError, match="1 columns, the data 2"):
            wide.write.insertInto("writer_evolves")
        with pytest.raises(TrilakeError, match="together with partitionBy"):
            wide.select("v").write.partitionBy("v").insertInto("writer_evolves")
        wide.write.option("mergeSchema", "true").insertInto("writer_evolves")
        assert sorted(map(tuple, session.table("writer_evolves").collect())) == [(1, None), (2, "x")]
        assert session.catalog.listColumns("writer_evolves")[1].name == "w"
    finally:
        session.sql("DROP TABLE IF EXISTS writer_evolves")


def _columns(text: str) -> list[str]:
    return re.split(r", (?=array\(|map\()", text)


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_insert_into_other_formats_goes_by_position_too(session: SparkSession, format: str) -> None:
    name = f"writer_nested_{format}"
    df = session.range(1).selectExpr("id", "named_struct('a', 1L, 'b', 'x') s")
    try:
        df.write.format(format).saveAsTable(name)
        session.range(1).selectExpr("2 i", "named_struct('b', 3, 'a', 4) t").write.insertInto(name)
        rows = [r.asDict(recursive=True) for r in session.table(name).orderBy("id").collect()]
        assert rows == [{"id": 0, "s": {"a": 1, "b": "x"}}, {"id": 2, "s": {"a": 3, "b": "4"}}]
    finally:
        session.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("format", ["lance", "trevni"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_misfit_of_another_format_is_our_error_in_a_few_lines(
    session: SparkSession, tmp_path: Path, format: str, mode: str
) -> None:
    path = str(tmp_path / "t")
    session.range(2).write.format(format).save(path)
    if mode == "append":
        with pytest.raises(SchemaMismatchError, match="other") as found:
            session.range(2).selectExpr("'x' other").write.format(format).mode(mode).save(path)
        _is_short(found.value)
        assert isinstance(found.value, AnalysisException)
    with pytest.raises(InvalidArgumentError, match="nosuch") as unknown:
        session.range(2).write.format(format).mode(mode).option("nosuch", "1").save(path)
    _is_short(unknown.value)
    with pytest.raises(WriteFailedError, match="DIVIDE_BY_ZERO") as failed:
        session.range(2).selectExpr("1 DIV (id - id) id").write.format(format).mode(mode).save(path)
    _is_short(failed.value)
    assert trilake.open(path).count() == 2


def _is_short(error: Exception) -> None:
    assert len(str(error).splitlines()) < 4
    assert "Traceback" not in str(error)


@pytest.mark.parametrize("mode", ["error", "append"])
@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_names_of_columns_need_no_quoting(session: SparkSession, tmp_path: Path, format: str, mode: str) -> None:
    path = str(tmp_path / "t")
    session.range(2).selectExpr("id `a``b`", "id + 1 `c d`").write.format(format).mode(mode).save(path)
    assert trilake.open(path).to_arrow().to_pydict() == {"a`b": [0, 1], "c d": [1, 2]}


def test_merge_into_a_name(session: SparkSession) -> None:
    try:
        _frame(session).write.format("delta").saveAsTable("writer_merged")
        source = session.createDataFrame([("a", 10), ("c", 30)], "key string, value int").alias("s")
        (
            source.mergeInto("writer_merged", F.expr("writer_merged.key = s.key"))
            .whenMatched(F.col("s.value") == 10)
            .update({"value": F.col("s.value") + F.col("writer_merged.value")})
            .whenNotMatched()
            .insertAll()
            .whenNotMatchedBySource(F.col("writer_merged.key") == "b")
            .delete()
            .merge()
        )
        assert sorted(session.table("writer_merged").collect()) == [("a", 11), ("c", 30)]
    finally:
        session.sql("DROP TABLE IF EXISTS writer_merged")


def test_files_have_no_more_records_than_the_write_says(session: SparkSession, tmp_path: Path) -> None:
    df = session.range(0, 25, 1, 1).withColumn("p", F.lit("x"))
    ways = {
        "native": df.select("id", "p", F.rand(1).alias("r")),
        "arrow": df.select("id", "p", F.rand(1).alias("r")),
        "driver": session.createDataFrame([(i, "x", 0.5) for i in range(25)], "id long, p string, r double"),
    }
    for name, frame in ways.items():
        writer = frame.write.format("delta").option("maxRecordsPerFile", 10).option("compression", "zstd")
        if name == "arrow":
            writer = writer.partitionBy("p")
        writer.save(str(tmp_path / name))
        files = trilake.open(str(tmp_path / name)).snapshot.adds  # type: ignore[attr-defined]
        footers = [pq.read_metadata(tmp_path / name / p) for p in files["path"].to_pylist()]
        assert sum(f.num_rows for f in footers) == 25
        assert max(f.num_rows for f in footers) <= 10, name
        assert {f.row_group(0).column(0).compression for f in footers} == {"ZSTD"}, name


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("delta", {"maxRecordsPerFile": "0"}),
        ("delta", {"compression": "lzma"}),
        ("lance", {"compression": "zstd"}),
        ("lance", {"maxRecordsPerFile": "5"}),
        ("trevni", {"maxRecordsPerFile": "5"}),
    ],
)
def test_a_limit_or_compression_that_is_not_done_is_refused_by_name(
    session: SparkSession, tmp_path: Path, format: str, options: dict[str, str]
) -> None:
    with pytest.raises(TrilakeError, match=next(iter(options))):
        _frame(session).write.format(format).options(**options).save(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


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


_NULL = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


def test_an_error_states_the_condition_that_delta_spark_has_for_it() -> None:
    for error, condition in (
        (
            InvalidArgumentError("no", condition="DELTA_ZORDERING_ON_PARTITION_COLUMN"),
            "DELTA_ZORDERING_ON_PARTITION_COLUMN",
        ),
        (TableExistsError("[TABLE_OR_VIEW_ALREADY_EXISTS] t already exists"), "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (InvalidArgumentError("[a] is no name"), "INVALID_ARGUMENT"),
        (InvalidArgumentError("no. Cause: [CAST_INVALID_INPUT] The value 'x'"), "CAST_INVALID_INPUT"),
        # As it comes out of a task, whose text is all that is left of it.
        (InvalidArgumentError("no (column: a, condition: DELTA_NOT_NULL_CONSTRAINT_VIOLATED)"), _NULL),
    ):
        found = analysis_error(error)
        assert isinstance(found, AnalysisException)
        assert found.getCondition() == condition
        assert pickle.loads(pickle.dumps(found)).getCondition() == condition
