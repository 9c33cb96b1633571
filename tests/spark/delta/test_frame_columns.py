"""Columns of the DataFrame from ``toDF`` in DELETE, UPDATE and MERGE of the same table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    path = str(tmp_path / "t")
    trilake.write(pa.table({"id": [1, 2, 3, 4], "n#1": ["a", "b", "c", "d"]}), path)
    return DeltaTable.forPath(spark, path)


def _rows(table: DeltaTable) -> list[tuple[int, str]]:
    return sorted(zip(*table._open().to_arrow().to_pydict().values(), strict=True))


def test_delete_and_update_accept_columns_of_toDF(table: DeltaTable) -> None:
    frame, other = table.toDF(), table.toDF()
    table.delete((frame["id"] == 1) | (other["n#1"] == "zz"))
    assert _rows(table) == [(2, "b"), (3, "c"), (4, "d")]
    table.update(frame["id"] == 2, {"n#1": F.concat(frame["n#1"], F.lit("!"))})
    assert _rows(table) == [(2, "b!"), (3, "c"), (4, "d")]
    named = table.alias("t")
    named.update(named.toDF()["id"] > 3, {"t.id": named.toDF()["id"] + F.col("t.id")})
    assert _rows(table) == [(2, "b!"), (3, "c"), (8, "d")]
    named.delete(table.toDF().alias("u")["id"] == 8)
    assert _rows(table) == [(2, "b!"), (3, "c")]
    with pytest.raises(AnalysisException):
        table.delete(DeltaTable.forPath(table._spark, table._path).toDF()["id"] == 2)
    assert _rows(table) == [(2, "b!"), (3, "c")]


def test_merge_accepts_columns_of_toDF(spark: SparkSession, table: DeltaTable) -> None:
    source = spark.createDataFrame([(1, "x"), (9, "y")], ["id", "n#1"])
    target = table.toDF()
    (
        table.merge(source, target["id"] == source["id"])
        .whenMatchedUpdate(target["n#1"] == "a", {"n#1": F.concat(target["n#1"], source["n#1"])})
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceDelete(target["id"] == 4)
        .execute()
    )
    assert _rows(table) == [(1, "ax"), (2, "b"), (3, "c"), (9, "y")]


def test_merge_of_the_same_frame_distinguishes_both_sides(table: DeltaTable) -> None:
    frame = table.toDF()
    source = frame.where(frame["id"] > 2).select((frame["id"] - 2).alias("id"), frame["n#1"].alias("n"))
    table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"`n#1`": "s.n"}).execute()
    assert _rows(table) == [(1, "c"), (2, "d"), (3, "c"), (4, "d")]


def test_ambiguous_merge_column_is_rejected(table: DeltaTable) -> None:
    """It resolved to the source on both sides of the condition, which was true for every row: all were deleted."""
    frame, before = table.toDF(), _rows(table)
    source = frame.where(frame["id"] == 4)
    named = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    for merge in (
        table.merge(source, frame["id"] == source["id"]).whenMatchedDelete(),
        named.whenMatchedDelete(frame["id"] == 4),
        named.whenMatchedUpdateAll(source["id"] == 4),
        named.whenMatchedUpdate(set={"`n#1`": F.upper(frame["n#1"])}),
    ):
        with pytest.raises(AnalysisException, match="ambiguous"):
            merge.execute()
    assert _rows(table) == before
    # Unmatched rows have columns of one side, and so does a column that the source has recomputed.
    other = source.drop("n#1").withColumn("n#1", F.lit("new")).withColumn("m", F.lit(1))
    table.alias("t").merge(
        other.alias("s"), F.expr("t.id = s.id") & (other["m"] == 1) & (frame["n#1"] == "d")
    ).whenMatchedUpdate(set={"`n#1`": F.concat(frame["n#1"], other["n#1"])}).whenNotMatchedInsert(
        source["id"] > 0, {"id": source["id"]}
    ).execute()
    assert _rows(table) == [*before[:3], (4, "dnew")]
