"""Rows in the driver are written by the driver, with the same result as from a job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.spark.native_files import settings
from trilake.spark.scan.write import rows_on_driver

TYPED = """
    SELECT CAST(a AS TINYINT) b, CAST(a AS SMALLINT) s, a i, CAST(a AS BIGINT) l, a > 1 t, CAST(a AS FLOAT) f,
           CAST(a AS DOUBLE) d, CAST(a AS DECIMAL(20, 3)) m, v, CAST(v AS BINARY) y, DATE'1582-10-15' + a dd,
           TIMESTAMP'2020-07-01 01:02:03.456789' ts, TIMESTAMP_NTZ'1900-01-01 00:00:00.000001' ntz,
           ARRAY(a, NULL) r, MAP('k', a) mp, NAMED_STRUCT('x', a, 'z', ARRAY(NAMED_STRUCT('w', v))) st,
           CAST(NULL AS STRING) nothing
    FROM VALUES (1, 'ä'), (2, NULL), (NULL, '') AS (a, v) WHERE v IS NULL OR v <> 'zz'
"""


def test_frames_with_rows_in_the_driver(spark: SparkSession) -> None:
    table = pa.table({"n": [1, 2, 3]})
    made = [
        spark.createDataFrame(table),
        spark.createDataFrame(table.to_pandas()),
        spark.sql("SELECT * FROM VALUES (1), (2), (3) AS (n)"),
        spark.createDataFrame(table).where("n > 0").select((F.col("n") * 1).alias("n")),
    ]
    for df in made:
        found = rows_on_driver(df)
        assert found is not None
        assert found["n"].to_pylist() == [1, 2, 3]
    assert rows_on_driver(spark.sql("SELECT 1 AS n")) is not None
    df = made[0]
    others = [
        spark.createDataFrame([(1,), (2,), (3,)], "n long"),  # an RDD, like any other
        spark.range(3),  # sets the number of partitions
        df.repartition(2),
        df.crossJoin(spark.range(3)),
        df.select(F.explode(F.sequence(F.lit(1), F.col("n")))),
        df.select(F.udf(lambda n: n, "long")("n")),
        df.mapInArrow(lambda batches: batches, df.schema),
    ]
    assert [rows_on_driver(o) for o in others] == [None] * len(others)


def test_too_many_rows_are_written_by_a_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    df = spark.createDataFrame(pa.table({"n": range(1000)}))
    assert rows_on_driver(df) is not None
    monkeypatch.setattr("trilake.spark.scan.write._MOST_BYTES", 7999)
    assert rows_on_driver(df) is None


@pytest.mark.parametrize("partition_by", [None, ["b", "ts", "dd"]])
def test_driver_and_job_write_equal_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: list[str] | None
) -> None:
    def written(name: str) -> tuple[pa.Table, list[str]]:
        trilake.write(df.coalesce(1) if name == "job" else df, tmp_path / name, partition_by=partition_by)
        table = trilake.open(tmp_path / name)
        return table.to_arrow().sort_by("i"), sorted(table.files()["stats"].to_pylist())

    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        df = spark.sql(TYPED)
        with monkeypatch.context() as patch:
            patch.setattr(type(df), "mapInArrow", lambda *_: pytest.fail("a job"))
            here = written("here")
        assert rows_on_driver(df.coalesce(1)) is None
        assert here == written("job")
        assert here[0].num_rows == 3


def test_no_rows_create_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    result = trilake.write(spark.createDataFrame([], "n long, s string"), tmp_path / "t")
    assert (result.version, result.files_added) == (0, 0)
    assert trilake.open(tmp_path / "t").schema.names == ["n", "s"]


def test_rows_that_cannot_be_computed_raise(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame(pa.table({"s": ["1", "x"]}))
    trilake.write(df, tmp_path / "t")
    for expression in ("CAST(CAST(s AS INT) AS STRING) AS s", "CAST(raise_error(concat('no ', s)) AS STRING) AS s"):
        with pytest.raises(trilake.TrilakeError, match="the table is unchanged and no files remain"):
            trilake.write(df.selectExpr(expression), tmp_path / "t", mode="append")
    assert trilake.open(tmp_path / "t").version == 0
