"""Geometry and geography types on Spark, which has them since 4.1."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import trilake
from trilake.spark.session.compat import RELEASE

pytestmark = pytest.mark.skipif(RELEASE < (4, 1), reason="Spark has the types from 4.1 on")

POINT = struct.pack("<BIdd", 1, 1, 17, 7)
_LITERAL = f"X'{POINT.hex()}'"
SCHEMA = {"n": "int", "g": "geometry(4326)", "p": "geography(4326)", "l": "array<geometry(4326)>"}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    trilake.register(spark)
    spark.conf.set("spark.sql.geospatial.enabled", "true")
    return spark


def points(session: SparkSession, *numbers: int) -> DataFrame:
    made = f"st_geomfromwkb({_LITERAL}, 4326)"
    return session.createDataFrame([(n,) for n in numbers], "n int").selectExpr(
        "n", f"{made} AS g", f"st_geogfromwkb({_LITERAL}) AS p", f"array({made}, NULL) AS l"
    )


def test_points_round_trip(session: SparkSession, tmp_path: Path) -> None:
    points(session, 1).write.format("delta").save(str(tmp_path))
    row = {"g": POINT, "p": POINT, "l": [POINT, None]}
    assert trilake.open(tmp_path).to_arrow().to_pylist() == [{"n": 1, **row}]
    more = pa.table({"n": pa.array([2], pa.int32()), "g": [POINT], "l": [[POINT, None]]})
    trilake.write(more, tmp_path, mode="append")
    frame = session.read.format("delta").load(str(tmp_path))
    assert [f.dataType.simpleString() for f in frame.schema] == list(SCHEMA.values())
    shown = frame.selectExpr("n", "st_asbinary(g) AS g", "st_srid(g) AS srid", "p IS NULL AS absent").orderBy("n")
    assert shown.collect() == [
        Row(n=1, g=bytearray(POINT), srid=4326, absent=False),
        Row(n=2, g=bytearray(POINT), srid=4326, absent=True),
    ]


def test_points_in_merge(session: SparkSession, tmp_path: Path) -> None:
    trilake.create(tmp_path, SCHEMA)
    trilake.write(pa.table({"n": pa.array([1, 2], pa.int32()), "g": [POINT, None]}), tmp_path, mode="append")
    merge = (
        trilake.DeltaTable.forPath(session, str(tmp_path))
        .alias("t")
        .merge(points(session, 2, 3).alias("s"), "t.n = s.n")
    )
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    rows = sorted(trilake.open(tmp_path).to_arrow(columns=["n", "g", "p"]).to_pylist(), key=lambda r: r["n"])
    assert rows == [{"n": n, "g": POINT, "p": None if n == 1 else POINT} for n in (1, 2, 3)]


def test_spark_reads_variants_in_parts(session: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.enableVariantShredding": "true"}
    trilake.create(tmp_path, {"n": "bigint", "v": "variant"}, properties=properties)
    frame = session.range(5).selectExpr("id AS n", """parse_json('{"a":' || id || ',"b":[1]}') AS v""")
    frame.coalesce(1).write.format("delta").mode("append").save(str(tmp_path))
    assert "typed_value" in str(pq.read_schema(next(tmp_path.glob("*.parquet"))))
    read = session.read.format("delta").load(str(tmp_path)).selectExpr("n", "to_json(v) AS v").orderBy("n").collect()
    assert read == [Row(n=n, v=f'{{"a":{n},"b":[1]}}') for n in range(5)]
