"""``_metadata`` of rows: row indices with deletion vectors, and row ids."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from delta.tables import DeltaTable
from trilake.spark.scan import scan as native_scan_module
from trilake.spark.session.internals import InternalsError

_TRACKED = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}
_IDS = ("_metadata.row_id", "_metadata.row_commit_version")


def _ids(df: DataFrame) -> dict[int, tuple[int, int]]:
    return {r.id: (r.row_id, r.row_commit_version) for r in df.select("id", *_IDS).collect()}


def _tracked(path: Path) -> str:
    uri = str(path / "t")
    for first in (0, 5):
        rows = pa.table({"id": list(range(first, first + 5)), "v": ["a"] * 5})
        trilake.write(rows, uri, mode="append", properties=None if first else _TRACKED)
    return uri


def test_row_indices_with_deletion_vectors(spark: SparkSession, tmp_path: Path) -> None:
    trilake.install(spark)
    uri = str(tmp_path / "t")
    trilake.write(pa.table({"id": [0, 1, 2]}), uri, properties={"delta.enableDeletionVectors": "true"})
    trilake.open(uri).delete("id = 1")
    df = spark.read.format("delta").load(uri)
    assert sorted(r.row_index for r in df.select("_metadata.row_index").collect()) == [0, 2]
    assert sorted(r.m.row_index for r in df.select(F.col("_metadata").alias("m")).collect()) == [0, 2]
    query = f"SELECT id FROM delta.`{uri}` WHERE _metadata.row_index = 2"
    assert [r.id for r in spark.sql(query).collect()] == [2]
    joined = df.alias("a").join(df.alias("b"), F.expr("a.id = b.id")).select("a._metadata.row_index")
    assert sorted(r.row_index for r in joined.collect()) == [0, 2]


def test_rows_keep_their_row_ids(spark: SparkSession, tmp_path: Path) -> None:
    trilake.install(spark)
    uri = _tracked(tmp_path)
    before = _ids(spark.read.format("delta").load(uri))
    assert sorted(i for i, _ in before.values()) == list(range(10))
    assert {version for i, (_, version) in before.items() if i < 5} == {0}
    assert {version for i, (_, version) in before.items() if i >= 5} == {1}

    table = DeltaTable.forPath(spark, uri)
    table.update("id IN (1, 7)", {"v": "'b'"})
    changed = spark.createDataFrame([(2, "c"), (20, "new")], "id LONG, v STRING")
    table.alias("t").merge(changed.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    table.delete("id = 3")
    expected = {i: place for i, place in before.items() if i != 3}
    expected |= {1: (before[1][0], 2), 7: (before[7][0], 2), 2: (before[2][0], 3)}
    after = _ids(spark.read.format("delta").load(uri))
    new, version = after.pop(20)
    assert new not in dict(before.values())
    assert version == 3
    assert after == expected

    table.optimize().executeCompaction()
    assert _ids(spark.read.format("delta").load(uri)) == expected | {20: (new, 3)}
    assert _ids(spark.read.format("delta").option("versionAsOf", 1).load(uri)) == before


def test_row_ids_are_hidden_and_selectable(spark: SparkSession, tmp_path: Path) -> None:
    trilake.install(spark)
    uri = _tracked(tmp_path)
    df = spark.read.format("delta").load(uri)
    assert df.columns == ["id", "v"]
    assert df.where("id = 3").select("*").collect() == [(3, "a")]
    # File and row metadata in one query.
    shown = spark.sql(f"SELECT _metadata.* FROM delta.`{uri}`").columns
    assert shown[-4:] == ["row_id", "row_commit_version", "base_row_id", "default_row_commit_version"]
    assert {"file_path", "file_size", "row_index"} <= set(shown)
    both = spark.sql(
        f"SELECT a._metadata.row_id AS x, b._metadata.row_id AS y FROM delta.`{uri}` a JOIN delta.`{uri}` b USING (id)"
    )
    assert both.count() == both.where("x = y").count() == 10
    other = spark.read.format("delta").load(uri)
    joined = (
        df.alias("a")
        .join(other.alias("b"), F.expr("a.id = b.id"))
        .select("a._metadata.row_id", F.col("b._metadata.row_id").alias("y"))
    )
    assert joined.where("row_id = y").count() == 10
    assert df.alias("a").join(df.alias("b"), "id").count() == 10


def test_row_ids_of_partitioned_renamed_and_empty_tables(spark: SparkSession, tmp_path: Path) -> None:
    trilake.install(spark)
    uri = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    assert spark.read.format("delta").load(uri).select("id", *_IDS).collect() == []
    spark.sql(f"INSERT INTO delta.`{uri}` VALUES (1, 'a'), (2, 'b c'), (3, 'a')")
    spark.sql(f"ALTER TABLE delta.`{uri}` RENAME COLUMN p TO q")
    df = spark.read.format("delta").load(uri)
    assert sorted(i for i, _ in _ids(df).values()) == [0, 1, 2]
    assert set(_ids(df.where("q = 'a'"))) == {1, 3}


@pytest.mark.parametrize("tracked", [False, True])
def test_table_without_files_has_the_column(spark: SparkSession, tmp_path: Path, tracked: bool) -> None:
    """A query that names it failed whenever the table was empty, or a filter excluded all files."""
    trilake.install(spark)
    uri, names = str(tmp_path / "t"), ("_metadata.file_name", "_metadata.row_index")
    properties = f"'delta.enableRowTracking' = '{tracked}', 'delta.columnMapping.mode' = 'name'"
    spark.sql(f"CREATE TABLE delta.`{uri}` (id BIGINT, c CHAR(3)) USING delta TBLPROPERTIES ({properties})")
    empty = spark.read.format("delta").load(uri)
    named, joined = (
        empty.where("c = 'a'").select("id", *names),
        empty.alias("a").join(empty.select("id", "_metadata.*"), "id"),
    )
    assert named.collect() == joined.collect() == []
    assert spark.sql(f"SELECT _metadata.file_path FROM delta.`{uri}`").collect() == []
    fields = spark.read.format("delta").option("versionAsOf", 0).load(uri).select("_metadata").schema[0].dataType
    assert empty.columns == ["id", "c"]

    spark.sql(f"INSERT INTO delta.`{uri}` VALUES (7, 'a'), (8, 'b')")
    assert trilake.read(spark, uri, filter="id = 10").select(*names).collect() == []
    full = spark.read.format("delta").load(uri)
    assert full.select("_metadata").schema[0].dataType.simpleString() == fields.simpleString()
    rows = full.select("id", *names).collect()
    assert [tuple(r) for r in named.collect()] == [tuple(r) for r in rows if r.id == 7]
    assert sorted((r.id, r.file_name, r.row_index) for r in joined.collect()) == sorted(map(tuple, rows))
    spark.sql(f"DELETE FROM delta.`{uri}`")
    assert named.collect() == full.select("id", *names).collect() == []


def test_column_named_metadata_hides_the_row_ids(spark: SparkSession, tmp_path: Path) -> None:
    trilake.register(spark)
    uri = str(tmp_path / "t")
    trilake.write(pa.table({"id": [1, 2], "_metadata": ["x", "y"]}), uri, properties=_TRACKED)
    trilake.open(uri).delete("id = 1")
    assert spark.read.format("delta").load(uri).collect() == [(2, "y")]


def test_spark_without_hidden_columns_reads_without_row_ids(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> DataFrame:
        raise InternalsError("no such tag")

    trilake.register(spark)
    uri = _tracked(tmp_path)
    monkeypatch.setattr(native_scan_module, "hidden_column", missing)
    df = spark.read.format("delta").load(uri)
    assert df.count() == 10
    assert df.select("_metadata.row_index").count() == 10
