"""Tables created from frames with ``char(n)`` and ``varchar(n)`` columns keep these types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import trilake
from trilake import DeltaTable
from trilake.errors import ConstraintViolatedError
from trilake.spark.session.compat import RELEASE

_TYPES = {"a": "char(5)", "b": "varchar(3)", "s": "struct<x:char(2)>", "n": "int", "u": "string"}


@pytest.fixture
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    """The rows of a Parquet table, read by Spark."""
    trilake.install(spark)
    spark.sql("CREATE TABLE with_chars (a CHAR(5), b VARCHAR(3), s STRUCT<x: CHAR(2)>, n INT) USING parquet")
    spark.sql("INSERT INTO with_chars VALUES ('ab', 'xyz', named_struct('x', 'q'), 1)")
    yield spark.sql("SELECT *, upper(a) AS u FROM with_chars")
    spark.sql("DROP TABLE with_chars")
    trilake.uninstall(spark)


@pytest.mark.parametrize(
    "write",
    [
        lambda df, place: df.sparkSession.sql(
            f"CREATE TABLE delta.`{place}` USING delta AS SELECT *, upper(a) AS u FROM with_chars"
        ),
        lambda df, place: df.write.format("delta").save(place),
        trilake.write,
        lambda df, place: trilake.foreach_batch.append(place, app_id="x")(df, 0),
    ],
)
def test_table_created_from_a_frame(
    frame: DataFrame, tmp_path: Path, write: Callable[[DataFrame, str], object]
) -> None:
    """They became strings: ``a = 'ab'`` matched a row of the frame but none of the table, and longer strings fitted."""
    spark, place = frame.sparkSession, str(tmp_path / "t")
    write(frame, place)
    shown = {r.col_name: r.data_type for r in spark.sql(f"DESCRIBE delta.`{place}`").collect()}
    assert shown == _TYPES
    table = spark.read.format("delta").load(place)
    assert frame.where("a = 'ab'").count() == 1
    assert table.where("a = 'ab'").count() == 1
    with pytest.raises(ConstraintViolatedError, match="varchar"):
        spark.sql(f"INSERT INTO delta.`{place}` VALUES ('ab', 'too long', NULL, 1, 'x')")


def test_existing_columns_keep_their_types(frame: DataFrame, tmp_path: Path) -> None:
    spark, place = frame.sparkSession, str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{place}` (a STRING, n INT) USING delta")
    frame.select("a", "n").write.format("delta").mode("append").save(place)
    frame.select("a", "n").write.format("delta").mode("overwrite").save(place)
    frame.select("a", "b").write.format("delta").mode("append").option("mergeSchema", "true").save(place)
    shown = {r.col_name: r.data_type for r in spark.sql(f"DESCRIBE delta.`{place}`").collect()}
    assert shown == {"a": "string", "n": "int", "b": "varchar(3)"}
    spark.sql(f"INSERT INTO delta.`{place}` VALUES ('a longer text', 1, 'b')")


@pytest.mark.parametrize(
    "grow",
    [
        lambda df, place: df.sparkSession.sql(
            f"INSERT WITH SCHEMA EVOLUTION INTO delta.`{place}` BY NAME SELECT n, b FROM with_chars"
        ),
        lambda df, place: (
            DeltaTable.forPath(df.sparkSession, place)
            .merge(df.select("n", "b"), "false")
            .whenNotMatchedInsertAll()
            .withSchemaEvolution()
            .execute()
        ),
    ],
)
def test_columns_added_from_a_frame(frame: DataFrame, tmp_path: Path, grow: Callable[[DataFrame, str], object]) -> None:
    place = str(tmp_path / "t")
    frame.select("n").write.format("delta").save(place)
    grow(frame, place)
    assert [r.data_type for r in frame.sparkSession.sql(f"DESCRIBE delta.`{place}`").collect()] == ["int", "varchar(3)"]


@pytest.mark.skipif(RELEASE < (4, 0), reason="Spark has the setting from 4.0 on")
def test_frames_with_types_instead_of_metadata(frame: DataFrame, tmp_path: Path, conf: Any) -> None:
    """With ``preserveCharVarcharTypeInfo``, Spark's tables and casts have such types: MERGE failed in Arrow, a new
    table lost its lengths, and INSERT turned a null struct into a struct of nulls."""
    spark, old, new = frame.sparkSession, f"delta.`{tmp_path}/t`", f"delta.`{tmp_path}/new`"
    spark.sql(f"CREATE TABLE {old} (a CHAR(5), b VARCHAR(3), s STRUCT<x: CHAR(2)>, n INT) USING delta")
    spark.sql("INSERT INTO with_chars VALUES ('cd', 'uv', NULL, 2)")
    conf("spark.sql.preserveCharVarcharTypeInfo", "true")
    source = spark.table("with_chars")
    assert source.dtypes[0][1] == "char(5)"

    spark.sql(f"INSERT INTO {old} SELECT * FROM with_chars")
    assert {(r.a, r.s) for r in spark.table(old).collect()} == {("ab   ", ("q ",)), ("cd   ", None)}
    merge = DeltaTable.forName(spark, old).alias("t").merge(source.alias("s"), "t.a = s.a AND s.n = 2")
    merge.whenMatchedUpdate(set={"b": "upper(s.b)"}).whenNotMatchedInsertAll().execute()
    assert sorted((r.n, r.b) for r in spark.table(old).collect()) == [(1, "xyz"), (1, "xyz"), (2, "UV")]
    spark.sql(f"CREATE TABLE {new} USING delta AS SELECT *, CAST('x' AS CHAR(4)) AS u FROM with_chars")
    shown = {r.col_name: r.data_type for r in spark.sql(f"DESCRIBE {new}").collect()}
    assert shown == {**_TYPES, "u": "char(4)"}
