"""Catalog names: DROP deletes managed tables and keeps others, and every engine can read the entries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable
from trilake.errors import TableExistsError
from trilake.spark.catalog.entries import Entry, EntryContents, change_entry, decoded, find_entry, make_entry
from trilake.spark.catalog.named_tables import existing_delta_table
from trilake.spark.session.bypass import bypass
from trilake.spark.session.internals import java_session


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.register(spark)
    yield spark
    for name in ("cat_t", "cat_b", "cat_c", "cat_s", "cat_x"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def _frame(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame([(v,) for v in values], "n int")


def _make(session: SparkSession, way: str, name: str) -> None:
    df = _frame(session, 1, 2)
    if way == "saveAsTable":
        df.write.format("delta").saveAsTable(name)
    elif way == "writeTo":
        df.writeTo(name).using("delta").create()
    elif way == "builder":
        DeltaTable.create(session).tableName(name).addColumn("n", "int").execute()
        df.write.insertInto(name)
    else:
        path = existing_delta_table(session, "cat_s").location
        DeltaTable.forPath(session, path).clone(name)


@pytest.mark.parametrize("way", ["saveAsTable", "writeTo", "builder", "clone"])
def test_dropped_managed_table_stays_deleted(session: SparkSession, way: str) -> None:
    _frame(session, 1, 2).write.format("delta").saveAsTable("cat_s")
    _make(session, way, "cat_t")
    place = existing_delta_table(session, "cat_t").location
    entry = find_entry(session, ["cat_t"])
    assert entry is not None
    assert entry.managed
    assert entry.provider == "delta"
    named = DeltaTable.forName(session, "cat_t")
    assert {t.detail().first()["name"] for t in (named, named.alias("t"))} == {"spark_catalog.default.cat_t"}
    _frame(session, 3).write.format("delta").mode("append").saveAsTable("cat_t")
    wide = _frame(session, 4).withColumn("more", F.lit("x"))
    wide.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("cat_t")
    assert sorted(r.n for r in DeltaTable.forName(session, "cat_t").toDF().collect()) == [1, 2, 3, 4]
    assert session.table("cat_t").columns == ["n", "more"]
    assert existing_delta_table(session, "cat_t").location == place
    session.sql("DROP TABLE cat_t")
    assert not os.path.exists(place) or not os.listdir(place)
    _frame(session, 9).write.format("delta").mode("append").saveAsTable("cat_t")
    assert [r.n for r in session.table("cat_t").collect()] == [9]


def test_dropped_external_table_keeps_its_files(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "a b")
    _frame(session, 1).write.format("delta").option("path", path).saveAsTable("cat_x")
    entry = find_entry(session, ["cat_x"])
    assert entry is not None
    assert not entry.managed
    assert entry.location == path
    _frame(session, 2).write.format("delta").mode("append").saveAsTable("cat_x")
    session.sql("DROP TABLE cat_x")
    assert trilake.open(path).count() == 2
    _frame(session, 3).write.format("delta").mode("append").option("path", path).saveAsTable("cat_x")
    assert session.table("cat_x").count() == 3


def test_failed_write_leaves_no_name(session: SparkSession) -> None:
    bad = _frame(session, 1).withColumn("n", F.expr("raise_error('no')").cast("int"))
    with pytest.raises(Exception, match="no"):
        bad.write.format("delta").saveAsTable("cat_t")
    assert not session.catalog.tableExists("cat_t")
    _make(session, "saveAsTable", "cat_t")
    with pytest.raises(AnalysisException, match="already exists"):
        _make(session, "saveAsTable", "cat_t")
    assert session.table("cat_t").count() == 2


def test_foreign_files_at_a_managed_location_are_not_adopted(session: SparkSession) -> None:
    _make(session, "saveAsTable", "cat_t")
    place = Path(existing_delta_table(session, "cat_t").location)
    session.sql("DROP TABLE cat_t")
    place.mkdir(exist_ok=True)
    (place / "other.txt").write_text("mine")
    try:
        with pytest.raises(AnalysisException, match="already contains files") as found:
            _make(session, "saveAsTable", "cat_t")
        assert isinstance(found.value, TableExistsError)
        assert (place / "other.txt").read_text() == "mine"
    finally:
        (place / "other.txt").unlink()


def test_entries_of_other_engines_are_found(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    trilake.write({"n": [1, 2]}, path)
    session.catalog.createTable("cat_b", path=path, source="delta", schema=_frame(session, 1).schema)
    assert existing_delta_table(session, "cat_b").location == path
    assert DeltaTable.forName(session, "cat_b").toDF().count() == 2
    _frame(session, 5).write.insertInto("cat_b")
    assert trilake.open(path).count() == 3


def test_entries_describe_the_table_without_trilake_properties(session: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.enableChangeDataFeed": "true", "owner": "me"}
    described = DeltaTable.create(session).tableName("cat_t").location(str(tmp_path / "t")).comment("what it is")
    for key, value in properties.items():
        described = described.property(key, value)
    described.addColumn("n", "int", nullable=False, comment="a number").execute()
    _frame(session, 1).write.format("delta").saveAsTable("cat_b")
    with bypass():
        assert [(f.name, f.metadata) for f in session.table("cat_t").schema.fields] == [("n", {"comment": "a number"})]
        assert [f.metadata for f in session.table("cat_b").schema.fields] == [{}]
    catalog = java_session(session).sessionState().catalog()
    entry = catalog.getTableMetadata(java_session(session).sessionState().sqlParser().parseTableIdentifier("cat_t"))
    assert {k: entry.properties().apply(k) for k in properties} == properties
    assert entry.comment().get() == "what it is"


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_tables_of_other_formats_have_names(session: SparkSession, format: str) -> None:
    _frame(session, 1, 2).write.format(format).saveAsTable("cat_t")
    with pytest.raises(AnalysisException, match="already exists"):
        _frame(session, 3).write.format(format).saveAsTable("cat_t")
    _frame(session, 3).write.format(format).mode("append").saveAsTable("cat_t")
    _frame(session, 4).write.insertInto("cat_t")
    assert sorted(r.n for r in session.table("cat_t").collect()) == [1, 2, 3, 4]
    assert session.read.table("cat_t").where("n > 2").count() == 2
    entry = find_entry(session, ["cat_t"])
    assert entry is not None
    assert (entry.provider, entry.managed) == (format, True)
    with pytest.raises(AnalysisException, match=rf"cannot write format delta to .*, which is a {format} table"):
        _frame(session, 3).write.format("delta").mode("append").saveAsTable("cat_t")
    with pytest.raises(AnalysisException, match=f"a {format} table"):
        DeltaTable.forName(session, "cat_t")
    wide = _frame(session, 9).withColumn("more", F.lit("x"))
    wide.write.format(format).mode("overwrite").saveAsTable("cat_t")
    assert [tuple(r) for r in session.table("cat_t").collect()] == [(9, "x")]
    assert session.catalog.listColumns("cat_t")[-1].name == "more"
    session.sql("DROP TABLE cat_t")
    assert not os.path.exists(entry.location or "") or not os.listdir(entry.location or "")


def test_sql_without_install_names_the_fix(session: SparkSession) -> None:
    _frame(session, 1).write.format("delta").saveAsTable("cat_t")
    assert session.table("cat_t").count() == 1
    with pytest.raises(Exception, match=r"trilake\.install\(spark\)"):
        session.sql("SELECT count(*) FROM cat_t").collect()


def test_name_for_a_location_that_spark_cannot_reach(session: SparkSession) -> None:
    about = EntryContents(_frame(session, 1).schema)
    make_entry(session, ["cat_x"], about, path="s3://no one/t x")
    entry = find_entry(session, ["cat_x"])
    assert entry == Entry("default", "cat_x", "EXTERNAL", "delta", "s3://no one/t x")
    assert change_entry(session, ["cat_x"], replace(about, comment="new"))
    session.sql("DROP TABLE cat_x")
    assert find_entry(session, ["cat_x"]) is None


def test_managed_name_for_existing_files(session: SparkSession, tmp_path: Path) -> None:
    trilake.write(_frame(session, 1), tmp_path / "t")
    make_entry(
        session,
        ["spark_catalog", "default", "cat_x"],
        EntryContents(_frame(session, 1).schema),
        path=str(tmp_path / "t"),
        managed=True,
    )
    assert find_entry(session, ["cat_x"]) == Entry("default", "cat_x", "MANAGED", "delta", str(tmp_path / "t"))
    session.sql("DROP TABLE cat_x")
    assert not (tmp_path / "t").exists()


def test_locations_are_decoded() -> None:
    assert decoded("file:///a%20b/c") == "/a b/c"
    assert decoded("file:/a%2520b") == "/a%20b"
    assert decoded("s3://b/x%20y") == "s3://b/x y"
